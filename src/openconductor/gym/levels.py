"""Reference levels over many questions: what to expect, exactly, of orchestration that knows more or less.

In: questions. Out: mean expected accuracies. Only the random level is estimated: its workflows are drawn, though each
one's accuracy is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openconductor.gym.exact import alone_accuracy, oracle_workflow, random_accuracy
from openconductor.gym.fixed import fixed_accuracy
from openconductor.gym.questions import GymQuestion
from openconductor.gym.workers import PROFILES


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
