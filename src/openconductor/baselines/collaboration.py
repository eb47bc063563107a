"""Collaborations: the teams that MASRouter chooses from, the explorer that tries them, and Trials.

The modes are those of MasRouter (Yue et al. 2025, arXiv 2502.11133; its published code has IO, CoT,
Chain, FullConnected, Debate and Reflection), as far as a workflow of at most five steps can express
them. Steps have an order, so a chain whose last step sees all before it is the nearest to a full
graph. The original has some dozens of roles by domain; these are ten general ones, in our words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.baselines.pools import Baseline, check_count
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Question, Step, Workflow, text_of

ROLES: dict[str, str] = {
    "solver": ALONE,
    "reasoner": (
        "Solve the question step by step: write down each step of your reasoning, and only then"
        " the final answer, in the form that the question demands."
    ),
    "opener": (
        "Do the first part of the work only. Split the question into parts, work out the first "
        "one completely, and hand on its result together with what is left to do. Do not give a"
        " final answer."
    ),
    "middle": (
        "Go on from what has been worked out so far: do the next part of the work, check what "
        "it rests on, and hand on the result. Do not give a final answer."
    ),
    "closer": (
        "Go on from what has been worked out so far, do the rest of the work, and give the "
        "complete final answer in the form that the question demands."
    ),
    "drafter": SOLVE_SUBTASK,
    "critic": (
        "Check the draft: name each mistake, gap or unproved step in it, or say that you found "
        "none. Do not write a new answer."
    ),
    "reviser": (
        "Write the final answer: take the draft, mend what the criticism rightly finds wrong "
        "with it, and keep the rest. Use the form that the question demands."
    ),
    "debater": (
        "Argue for the answer that you hold to be right: work it out, give your reasons, and "
        "say what speaks against the other answers that one might give."
    ),
    "judge": (
        "You have heard several sides. Decide by the reasons and not by their number, and give "
        "the complete final answer in the form that the question demands."
    ),
}
"""The instruction of each role, where the question brings no words of its own."""


@dataclass(frozen=True, slots=True)
class Collaboration:
    """A mode with its seats. Debaters see nobody; in every other role a seat sees all before it.

    Attributes:
        name: the mode and, where a mode has several forms, how many work before the last one.
        roles: one a seat, in order.
    """

    name: str
    roles: tuple[str, ...]

    def workflow(self, workers: Sequence[int], question: Question) -> Workflow:
        """Return the collaboration over one worker a seat, in words that suit the question."""
        subtasks = instructions_for(question).roles(question, self.roles, ROLES)
        steps: list[Step] = []
        for worker, role, subtask in zip(workers, self.roles, subtasks, strict=True):
            sees = () if role == "debater" else tuple(range(len(steps)))
            steps.append(Step(worker, subtask, sees))
        return Workflow(tuple(steps))


_ROLES_OF: dict[str, tuple[str, ...]] = {
    "io": ("solver",),
    "cot": ("reasoner",),
    "chain-1": ("opener", "closer"),
    "chain-2": ("opener", "middle", "closer"),
    "reflection": ("drafter", "critic", "reviser"),
    "debate-2": ("debater", "debater", "judge"),
    "debate-3": ("debater", "debater", "debater", "judge"),
    "debate-4": ("debater", "debater", "debater", "debater", "judge"),
}
COLLABORATIONS = {name: Collaboration(name, roles) for name, roles in _ROLES_OF.items()}


class Explorer(Baseline):
    """Plays a collaboration and workers drawn uniformly, as trials for MASRouter.

    A draw is keyed by (seed, question, sample), so each repeat of a question tries another one.

    Args:
        pool: the workers.
        seed: keys the draws.

    Raises:
        ConfigError: the seed is below 0.
    """

    def __init__(self, pool: WorkerPool, *, seed: int = 0) -> None:
        check_count("Explorer.seed", seed, 0)
        super().__init__(pool, "explorer")
        self._seed = seed

    def workflow(self, question: Question, *, sample: int = 0) -> Workflow:
        """Draw a collaboration and its workers."""
        rng = random.Random(f"explorer/{self._seed}/{sample}/{text_of(question)}")
        collaboration = rng.choice(list(COLLABORATIONS.values()))
        workers = [rng.choice(self.pool.ordinals) for _ in collaboration.roles]
        return collaboration.workflow(workers, question)


@dataclass(frozen=True, slots=True)
class Trial:
    """One collaboration that was played on one question.

    Attributes:
        question: the text that was asked.
        collaboration: its name.
        workers: the names of its workers, one a seat.
        right: the share of right answers in [0, 1].

    Raises:
        ConfigError: the collaboration is unknown or has another number of seats, or ``right`` is
            out of its range.
    """

    question: str
    collaboration: str
    workers: tuple[str, ...]
    right: float

    def __post_init__(self) -> None:
        seats = {name: len(known.roles) for name, known in COLLABORATIONS.items()}
        if seats.get(self.collaboration) != len(self.workers):
            got = f"{self.collaboration!r} of {len(self.workers)} workers"
            raise ConfigError(
                f"Trial: got the collaboration {got}, expected one of these, of so many: {seats}"
            )
        if not 0 <= self.right <= 1:
            raise ConfigError(f"Trial: got right {self.right}, expected 0 to 1")


def trial_of(
    question: Question, text: str, workflow: Workflow, pool: WorkerPool, *, right: float
) -> Trial | None:
    """Return the trial that a played workflow is; None: it is not a collaboration.

    Args:
        question: as it was asked.
        text: the question as the router will look at it (``observed.text_of``).
        workflow: the workflow that was played.
        pool: the workers.
        right: the share of right answers.
    """
    ordinals = [step.worker for step in workflow]
    for collaboration in COLLABORATIONS.values():
        if len(collaboration.roles) != len(ordinals):
            continue
        if collaboration.workflow(ordinals, question) == workflow:
            names = tuple(pool[ordinal].name for ordinal in ordinals)
            return Trial(text, collaboration.name, names, right)
    return None
