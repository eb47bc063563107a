"""What happens while a question is answered, as frozen events in order.

In: values of ``types``. Out: one event type a moment; the terminal view and the journal consume the same.
``episode`` is the episode's id, ``round`` is 0-based, ``at`` is seconds since the episode began.
"""

from __future__ import annotations

from dataclasses import dataclass

from openconductor.errors import OpenConductorError
from openconductor.types import Call, Completion, Episode, Message, Question, Round, StepResult, Workflow


@dataclass(frozen=True, slots=True)
class Asked:
    """An episode began.

    Attributes:
        question: what was asked.
        sample: tells repeats of the same question apart.
    """

    episode: str
    round: int
    at: float
    question: Question
    sample: int = 0


@dataclass(frozen=True, slots=True)
class CallEnded:
    """One attempt at a call ended; ``step`` is None for the Conductor's own."""

    episode: str
    round: int
    at: float
    step: int | None
    call: Call


@dataclass(frozen=True, slots=True)
class Planned:
    """The Conductor wrote its completion; ``workflow`` is None where that is no workflow (then ``error`` is set)."""

    episode: str
    round: int
    at: float
    completion: Completion
    workflow: Workflow | None
    error: OpenConductorError | None = None


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step was sent to its worker; ``worker`` is the ordinal."""

    episode: str
    round: int
    at: float
    step: int
    worker: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class StepText:
    """A piece of a step's response arrived."""

    episode: str
    round: int
    at: float
    step: int
    text: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step answered or failed for good."""

    episode: str
    round: int
    at: float
    step: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over, whatever its outcome."""

    episode: str
    round: int
    at: float
    outcome: Round


@dataclass(frozen=True, slots=True)
class Answered:
    """The episode is over: answered, or ended by the error that it holds."""

    episode: str
    round: int
    at: float
    outcome: Episode


Event = Asked | CallEnded | Planned | StepStarted | StepText | StepEnded | RoundEnded | Answered
