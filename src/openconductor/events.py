"""Events: the moments of an episode as frozen values, for terminal views, journals and servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from openconductor.errors import OpenConductorError
from openconductor.types import (
    Call,
    Completion,
    Episode,
    Message,
    Question,
    Round,
    Rule,
    StepResult,
    TraceSpan,
    Workflow,
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Base of all events: the episode's id, the 0-based round, seconds since the episode began."""

    episode: str
    round: int
    at: float


@dataclass(frozen=True, slots=True)
class Asked(Moment):
    """An episode began.

    Attributes:
        question: the question.
        sample: tells repeats of the same question apart.
        workers: the names of the pool's workers, by ordinal.
        keep_texts: False: a store keeps no texts of the episode.
    """

    question: Question
    sample: int = 0
    workers: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    keep_texts: bool = True


@dataclass(frozen=True, slots=True)
class CallEnded(Moment):
    """One attempt at a call ended; ``step`` is None for the Conductor's own call.

    ``span`` is the attempt's own in a distributed trace; None: the worker was not told of one.
    """

    step: int | None
    call: Call
    span: TraceSpan | None = None


@dataclass(frozen=True, slots=True)
class Planned(Moment):
    """The Conductor wrote its completion; either ``workflow`` or ``error`` is set."""

    completion: Completion
    workflow: Workflow | None
    error: OpenConductorError | None = None


@dataclass(frozen=True, slots=True)
class Chosen(Moment):
    """A rule chose the workflow of this round.

    ``reason`` is why there is no plan; None: none was tried.
    """

    rule: Rule
    workflow: Workflow
    reason: OpenConductorError | None = None


@dataclass(frozen=True, slots=True)
class StepStarted(Moment):
    """A step was sent to its worker; ``worker`` is the ordinal."""

    step: int
    worker: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class StepText(Moment):
    """A piece of a step's response arrived."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class StepEnded(Moment):
    """A step answered or failed for good."""

    step: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class RoundEnded(Moment):
    """A round is over, whatever its outcome."""

    outcome: Round


@dataclass(frozen=True, slots=True)
class Answered(Moment):
    """The episode is over: answered, or ended by the error that it holds."""

    outcome: Episode


Event = (
    Asked
    | CallEnded
    | Planned
    | Chosen
    | StepStarted
    | StepText
    | StepEnded
    | RoundEnded
    | Answered
)
