"""The fixed sets that MASRouter chooses from: modes of collaboration, and the roles in each.

In: a question and a worker for each seat. Out: a workflow. And back: which collaboration a workflow is.

The modes are those of MasRouter (Yue et al. 2025, arXiv 2502.11133; its published code has IO, CoT, Chain,
FullConnected, Debate and Reflection), as far as a workflow of at most five steps can say them: steps come in an order,
so that a chain whose last step sees all before it is the nearest to a full graph. The roles are few and general, in
words of our own, where the original has some dozens by domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.baselines.instructions import ALONE, in_gym, merge, revise, solve
from openconductor.errors import ConfigError
from openconductor.gym.questions import GymQuestion, read_question
from openconductor.prompt import SOLVE_SUBTASK
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
"""What each role is told, outside the gym."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in a collaboration: a role, and the earlier seats that it sees."""

    role: str
    sees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Collaboration:
    """A mode with its seats.

    Attributes:
        name: its name; the mode and, where a mode has several, how many work before the last one.
        seats: the roles, in order.
    """

    name: str
    seats: tuple[Seat, ...]

    def workflow(self, workers: Sequence[int], question: Question) -> Workflow:
        """The collaboration over one worker a seat.

        Raises:
            ConfigError: there are more or fewer workers than seats.
        """
        if len(workers) != len(self.seats):
            raise ConfigError(f"{self.name}: got {len(workers)} workers, expected {len(self.seats)}")
        texts = self.instructions(question)
        return Workflow(
            tuple(Step(worker, text, seat.sees) for worker, text, seat in zip(workers, texts, self.seats, strict=True))
        )

    def instructions(self, question: Question) -> list[str]:
        """What each seat is told."""
        text = in_gym(question)
        asked = read_question(text) if text is not None else None
        if asked is None:
            return [ROLES[seat.role] for seat in self.seats]
        parts = _parts(asked, sum(seat.role in _CHAIN for seat in self.seats))
        return [parts.pop(0) if seat.role in _CHAIN else _in_gym(seat.role, asked.text) for seat in self.seats]


COLLABORATIONS: tuple[Collaboration, ...] = (
    Collaboration("io", (Seat("solver"),)),
    Collaboration("cot", (Seat("reasoner"),)),
    Collaboration("chain-1", (Seat("opener"), Seat("closer", (0,)))),
    Collaboration("chain-2", (Seat("opener"), Seat("middle", (0,)), Seat("closer", (0, 1)))),
    Collaboration("reflection", (Seat("drafter"), Seat("critic", (0,)), Seat("reviser", (0, 1)))),
    Collaboration("debate-2", (Seat("debater"), Seat("debater"), Seat("judge", (0, 1)))),
    Collaboration("debate-3", (Seat("debater"), Seat("debater"), Seat("debater"), Seat("judge", (0, 1, 2)))),
)

_CHAIN = ("opener", "middle", "closer")


def collaboration_named(name: str) -> Collaboration:
    """The collaboration of this name.

    Raises:
        ConfigError: there is none.
    """
    for one in COLLABORATIONS:
        if one.name == name:
            return one
    raise ConfigError(f"collaboration: got {name!r}, expected one of {[one.name for one in COLLABORATIONS]}")


def find_collaboration(workflow: Workflow, question: Question) -> Collaboration | None:
    """The collaboration that a workflow is; None where it is none of them."""
    workers = [step.worker for step in workflow]
    for one in COLLABORATIONS:
        if len(one.seats) == len(workers) and one.workflow(workers, question) == workflow:
            return one
    return None


def _in_gym(role: str, question: str) -> str:
    match role:
        case "solver":
            return ALONE
        case "judge" | "reviser":
            return merge(question)
        case "critic":
            return revise(question)
        case _:
            return solve(question)


def _parts(question: GymQuestion, count: int) -> list[str]:
    """The question's operations dealt out to the seats of a chain; who gets none looks the work over."""
    phrases = [operation.phrase(wording) for operation, wording in question.operations]
    parts = [*phrases[: count - 1], ", then ".join(phrases[count - 1 :])] if count else []
    return [part or revise(question.text) for part in parts] + [revise(question.text)] * (count - len(parts))
