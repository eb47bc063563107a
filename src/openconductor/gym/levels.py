"""Reference levels: what to expect, exactly, of orchestration that knows more or less.

In: a question, or many. Out: the best fixed workflow (one choice of workers and access for every question, its subtasks
as good as they can be) with its expected accuracy, and the mean expected accuracies of every level. Only the random
level is estimated: its workflows are drawn, though each one's accuracy is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openconductor.gym.exact import ALL, Offered, alone_accuracy, oracle_workflow, random_accuracy
from openconductor.gym.questions import GymQuestion
from openconductor.gym.subtasks import Visible, best_subtasks
from openconductor.gym.workers import PROFILES
from openconductor.types import Step, Workflow


@dataclass(frozen=True, slots=True)
class Constant:
    """Who works and who sees whom, the same for every question: one ordinal and one tuple of earlier steps a step."""

    workers: tuple[int, ...]
    access: Visible


BEST_FIXED = Constant(workers=(5, 1, 7, 1, 3), access=((), (), (), (0, 1, 2), (0, 1, 3)))
"""The best constant over the gym's eight workers, as far as a search of local ascents sees."""
BEST_FIXED_ACCURACY = 0.3912
"""Its expected accuracy: the four kinds of question alike, and within a kind all compositions alike."""


def fixed_workflow(question: GymQuestion, constant: Constant = BEST_FIXED, offered: Offered = ALL) -> Workflow:
    """The constant's workflow for a question, with its best subtasks."""
    profiles = [offered[worker] for worker in constant.workers]
    subtasks, _ = best_subtasks(question, profiles, constant.access)
    return Workflow(tuple(map(Step, constant.workers, subtasks, constant.access)))


def fixed_accuracy(question: GymQuestion, constant: Constant = BEST_FIXED, offered: Offered = ALL) -> float:
    """The expected accuracy of ``fixed_workflow``, exact."""
    return best_subtasks(question, [offered[worker] for worker in constant.workers], constant.access)[1]


@dataclass(frozen=True, slots=True)
class ReferenceLevels:
    """Expected accuracies, each the mean over the same questions.

    Attributes:
        random: random workflows.
        workers: each worker alone, by name.
        best_fixed: the best constant choice of workers and access.
        oracle: the best workflow of each question.
    """

    random: float
    workers: Mapping[str, float]
    best_fixed: float
    oracle: float

    @property
    def best_worker(self) -> float:
        """The best worker alone."""
        return max(self.workers.values())


def reference_levels(questions: Sequence[GymQuestion], *, draws: int = 50, seed: int = 0) -> ReferenceLevels:
    """The levels over some questions (at least one); ``draws`` random workflows are averaged for each question."""
    return ReferenceLevels(
        random=fmean(random_accuracy(question, draws=draws, seed=seed) for question in questions),
        workers={
            profile.name: fmean(alone_accuracy(question, profile) for question in questions) for profile in PROFILES
        },
        best_fixed=fmean(fixed_accuracy(question) for question in questions),
        oracle=fmean(oracle_workflow(question)[1] for question in questions),
    )
