"""Collaborations: the fixed teams that MASRouter chooses from, the explorer that tries them, and its Trials.

In: a question and a worker for each seat. Out: a workflow. And back: which collaboration a workflow
is, and what came of it.

The modes are those of MasRouter (Yue et al. 2025, arXiv 2502.11133; its published code has IO, CoT,
Chain, FullConnected, Debate and Reflection), as far as a workflow of at most five steps can say
them: steps come in an order, so that a chain whose last step sees all before it is the nearest to a
full graph. The roles are few and general, in words of our own, where the original has some dozens
by domain.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.baselines.observed import text_of
from openconductor.baselines.pools import Baseline, check_count
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Question, Step, Workflow

ROLES: dict[str, str] = {
    "solver": ALONE,
    "reasoner": (
        "Solve the question step by step: write down each step of your reasoning, and only then the final answer, in "
        "the form that the question demands."
    ),
    "opener": (
        "Do the first part of the work only. Split the question into parts, work out the first one completely, and "
        "hand on its result together with what is left to do. Do not give a final answer."
    ),
    "middle": (
        "Go on from what has been worked out so far: do the next part of the work, check what it rests on, and hand on "
        "the result. Do not give a final answer."
    ),
    "closer": (
        "Go on from what has been worked out so far, do the rest of the work, and give the complete final answer in "
        "the form that the question demands."
    ),
    "drafter": SOLVE_SUBTASK,
    "critic": (
        "Check the draft: name each mistake, gap or unproved step in it, or say that you found none. Do not write "
        "a new answer."
    ),
    "reviser": (
        "Write the final answer: take the draft, mend what the criticism rightly finds wrong with it, and keep the "
        "rest. Use the form that the question demands."
    ),
    "debater": (
        "Argue for the answer that you hold to be right: work it out, give your reasons, and say what speaks against "
        "the other answers that one might give."
    ),
    "judge": (
        "You have heard several sides. Decide by the reasons and not by their number, and give the complete final "
        "answer in the form that the question demands."
    ),
}
"""What each role is told, where the question brings no words of its own."""

_CHAIN = ("opener", "middle", "closer")


@dataclass(frozen=True, slots=True)
class Collaboration:
    """A mode with its seats.

    Attributes:
        name: the mode and, where a mode has several forms, how many work before the last one.
        roles: one a seat, in order.
        sees: the earlier seats that each seat sees.
    """

    name: str
    roles: tuple[str, ...]
    sees: tuple[tuple[int, ...], ...]

    def workflow(self, workers: Sequence[int], question: Question) -> Workflow:
        """The collaboration over one worker a seat, in the words that suit the question."""
        texts = instructions_for(question).roles(question, self.roles, ROLES)
        told = zip(workers, texts, self.sees, strict=True)
        return Workflow(tuple(Step(worker, text, sees) for worker, text, sees in told))


_LIST = (
    Collaboration("io", ("solver",), ((),)),
    Collaboration("cot", ("reasoner",), ((),)),
    Collaboration("chain-1", ("opener", "closer"), ((), (0,))),
    Collaboration("chain-2", _CHAIN, ((), (0,), (0, 1))),
    Collaboration("reflection", ("drafter", "critic", "reviser"), ((), (0,), (0, 1))),
    Collaboration("debate-2", ("debater", "debater", "judge"), ((), (), (0, 1))),
    Collaboration("debate-3", ("debater",) * 3 + ("judge",), ((), (), (), (0, 1, 2))),
    Collaboration("debate-4", ("debater",) * 4 + ("judge",), ((), (), (), (), (0, 1, 2, 3))),
)
COLLABORATIONS = {one.name: one for one in _LIST}


class Explorer(Baseline):
    """Plays a collaboration drawn uniformly, with workers drawn uniformly: what MASRouter's Trials come from.

    A draw is keyed by (seed, question, sample): each repeat of a question tries another one.

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
        """The collaboration that is drawn for a question, with its workers."""
        rng = random.Random(f"explorer/{self._seed}/{sample}/{text_of(question)}")
        drawn = rng.choice(list(COLLABORATIONS.values()))
        return drawn.workflow([rng.choice(self.pool.ordinals) for _ in drawn.roles], question)


@dataclass(frozen=True, slots=True)
class Trial:
    """One collaboration that was played on one question.

    Attributes:
        question: the text that was asked.
        collaboration: its name.
        workers: the names of its workers, one a seat.
        right: the share of right answers in [0, 1].
        cost: what it cost, in whatever unit ``MASRouter`` is to weigh (US dollars a question, say);
            None is not known.

    Raises:
        ConfigError: there is no such collaboration, it has another number of seats, or a number is
            out of its range.
    """

    question: str
    collaboration: str
    workers: tuple[str, ...]
    right: float
    cost: float | None = None

    def __post_init__(self) -> None:
        seats = {one.name: len(one.roles) for one in COLLABORATIONS.values()}
        if seats.get(self.collaboration) != len(self.workers):
            got = f"{self.collaboration!r} of {len(self.workers)} workers"
            raise ConfigError(
                f"Trial: got the collaboration {got}, expected one of these, of so many: {seats}"
            )
        if not 0 <= self.right <= 1 or (self.cost is not None and not self.cost >= 0):
            raise ConfigError(
                f"Trial: got right {self.right} and cost {self.cost}, expected 0 to 1, and from 0"
            )


def trial_of(
    question: Question,
    text: str,
    workflow: Workflow,
    pool: WorkerPool,
    *,
    right: float,
    cost: float | None = None,
) -> Trial | None:
    """What a played workflow tells; None where it is not one of the collaborations.

    Args:
        question: as it was asked.
        text: the question as the router will look at it (``observed.text_of``).
        workflow: what was played.
        pool: the workers.
        right: the share of right answers.
        cost: what it cost; None is not known.
    """
    workers = [step.worker for step in workflow]
    for one in COLLABORATIONS.values():
        if len(one.roles) == len(workers) and one.workflow(workers, question) == workflow:
            return Trial(
                text, one.name, tuple(pool[worker].name for worker in workers), right, cost
            )
    return None
