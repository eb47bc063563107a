"""The parts of an episode: the planning and the steps of each round, as every drawing shows them.

Of an episode that still runs, a round's plan is read off the Conductor's completion, so that its
steps are there before they begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from openconductor.errors import OpenConductorError, WorkflowError
from openconductor.ledger import Attempt, draw_entries
from openconductor.parser import parse_completion
from openconductor.store import StoredEpisode
from openconductor.types import (
    Completion,
    Episode,
    Message,
    Round,
    StepResult,
    Usage,
    Workflow,
)

State = Literal[
    "planned",
    "accepted",
    "invalid",
    "answered",
    "failed",
    "running",
    "waiting",
    "cancelled",
    "not reached",
]
"""The state of a part. The first three are those of a planning."""

CONDUCTOR = "Conductor"
_MOST_STEPS = 64  # of a plan that is shown before its round has ended


@dataclass(frozen=True, slots=True)
class Part:
    """The planning of a round, or one of its steps.

    Attributes:
        round, step: 0-based places; the step of a planning is None.
        name: the worker that was asked, or ``Conductor``.
        ordinal: the worker's; None: a planning.
        instead_of: the worker of the plan, where another one took over; "": none did.
        state: how far it is, or how it ended.
        sees: the earlier steps of its round that it sees.
        sees_answer: the round whose answer it sees; None: none.
        subtask: its text; "" of a planning.
        messages: what was sent.
        completion: what came back.
        error: why nothing did, or why the plan is invalid.
        attempts: at its call, each wasted or not.
        usage: of all attempts.
        started, ended: seconds since the episode began.
    """

    round: int
    step: int | None
    name: str
    ordinal: int | None = None
    instead_of: str = ""
    state: State = "waiting"
    sees: tuple[int, ...] = ()
    sees_answer: int | None = None
    subtask: str = ""
    messages: tuple[Message, ...] = ()
    completion: Completion | None = None
    error: OpenConductorError | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Usage = field(default_factory=Usage)
    started: float | None = None
    ended: float | None = None

    @property
    def key(self) -> str:
        """The part's name in addresses: ``0`` is the planning of round 0, ``0-2`` its step 2."""
        return str(self.round) if self.step is None else f"{self.round}-{self.step}"

    @property
    def place(self) -> str:
        """The round, from 1, and the step, from 0: ``1.0``; of a planning the round alone."""
        return f"{self.round + 1}" if self.step is None else f"{self.round + 1}.{self.step}"

    @property
    def label(self) -> str:
        """The place and the name, as drawings show them."""
        return f"{self.place} {self.name}"

    @property
    def title(self) -> str:
        """The part in words; rounds are counted from 1, steps from 0, as plans count them."""
        if self.step is None:
            return f"Planning of round {self.round + 1}"
        return f"Step {self.step} of round {self.round + 1}"

    @property
    def seconds(self) -> float | None:
        """The wall time; None: it has not ended, or did not begin."""
        if self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)

    @property
    def access(self) -> str:
        """The steps that it sees, in words."""
        seen = [f"step {step}" for step in self.sees]
        if self.sees_answer is not None:
            seen.append(f"the answer of round {self.sees_answer + 1}")
        return ", ".join(seen) or "only the question"


@dataclass(frozen=True, slots=True)
class RoundParts:
    """A round: its planning, if somebody planned, and its steps."""

    index: int
    planning: Part | None
    steps: tuple[Part, ...]
    played: Round

    @property
    def parts(self) -> tuple[Part, ...]:
        """The planning and the steps."""
        return self.steps if self.planning is None else (self.planning, *self.steps)

    @property
    def title(self) -> str:
        """The round in words, with the rule that took the place of a plan."""
        title = f"Round {self.index + 1}"
        if self.played.rule == "default_worker":
            return f"{title}: no plan, so the default worker answers alone"
        if self.played.rule == "direct":
            return f"{title}: short enough to be asked without a plan"
        if self.played.accepted:
            return f"{title}: the answer before is accepted"
        return title


def rounds_of(stored: StoredEpisode, *, is_stopped: bool = False) -> tuple[RoundParts, ...]:
    """Return the rounds of a stored episode, which may be unfinished, or cut off."""
    running = stored.outcome == "unfinished" and not is_stopped
    return read_rounds(stored, stored.workers, running=running)


def read_rounds(
    episode: Episode, workers: Mapping[int, str], *, running: bool = False
) -> tuple[RoundParts, ...]:
    """Return the rounds of an episode.

    Args:
        episode: the episode.
        workers: their names, by ordinal.
        running: True if its last round may still go on.
    """
    attempts = {(entry.round, entry.step): entry.attempts for entry in draw_entries(episode)}
    rounds: list[RoundParts] = []
    answered: int | None = None  # the last round that gave an answer
    for index, played in enumerate(episode.rounds):
        open_round = running and index == len(episode.rounds) - 1
        steps: list[Part] = []
        for result in _results(played, workers, open_round=open_round):
            part = _step_part(index, len(steps), result, workers, answered)
            if open_round and part.state == "not reached":
                ready = all(steps[seen].state == "answered" for seen in part.sees)
                part = replace(part, state="running" if ready else "waiting")
            steps.append(replace(part, attempts=attempts.get((index, part.step), ())))
        planning = _planning_part(index, played, steps, open_round=open_round)
        if planning is not None:
            planning = replace(planning, attempts=attempts.get((index, None), ()))
        rounds.append(RoundParts(index, planning, tuple(steps), played))
        if played.answer is not None:
            answered = index
    return tuple(rounds)


def _results(
    played: Round, workers: Mapping[int, str], *, open_round: bool
) -> tuple[StepResult, ...]:
    """Return the results of a round's steps; of an open round also steps that have not begun."""
    ended = () if played.transcript is None else played.transcript.results
    workflow = played.workflow
    if open_round and played.completion is not None:
        workflow = _read_plan(played.completion, workers) or workflow
    if workflow is None or len(workflow) < len(ended):
        return ended
    results: list[StepResult] = []
    for index, step in enumerate(workflow):
        if index < len(ended):
            results.append(replace(ended[index], step=step))
        else:
            results.append(StepResult(step))
    return tuple(results)


def _read_plan(completion: Completion, workers: Mapping[int, str]) -> Workflow | None:
    try:
        return parse_completion(
            completion.text, workers, max_steps=_MOST_STEPS, accept_allowed=True
        )
    except WorkflowError:
        return None


def _step_part(
    round_index: int,
    index: int,
    result: StepResult,
    workers: Mapping[int, str],
    answered: int | None,
) -> Part:
    step = result.step
    planned = _name_of(step.worker, workers)
    called = _name_of(result.asked, workers)
    return Part(
        round=round_index,
        step=index,
        name=called,
        ordinal=result.asked,
        instead_of=planned if called != planned else "",
        state=_state_of(result),
        sees=tuple(seen for seen in step.visible(index) if 0 <= seen < index),
        sees_answer=answered if step.access == "all" else None,
        subtask=step.subtask,
        messages=result.messages,
        completion=result.completion,
        error=result.error,
        usage=result.usage,
        started=result.started,
        ended=result.ended,
    )


def _state_of(result: StepResult) -> State:
    if result.completion is not None:
        return "answered"
    if result.error is not None:
        return "failed"
    if result.ended is not None:
        return "cancelled"
    return "not reached"


def _planning_part(
    index: int, played: Round, steps: list[Part], *, open_round: bool
) -> Part | None:
    """Return the planning of a round; None: nobody planned."""
    if not played.calls and played.completion is None:
        return None
    if played.accepted:
        state: State = "accepted"
    elif played.workflow is not None or steps:
        state = "planned"
    elif open_round:
        state = "running"
    elif played.completion is None:
        state = "failed"
    else:
        state = "invalid"
    started = ended = None
    if played.calls:
        last = played.calls[-1]
        started = played.calls[0].started
        ended = last.started + last.usage.seconds
        begun = [step.started for step in steps if step.started is not None]
        ended = max(started, min([ended, *begun]))  # a replayed call has the seconds of its first
    return Part(
        round=index,
        step=None,
        name=CONDUCTOR,
        state=state,
        messages=played.calls[-1].messages if played.calls else (),
        completion=played.completion,
        error=played.error if state in ("invalid", "failed") else None,
        usage=played.planning,
        started=started,
        ended=ended,
    )


def _name_of(ordinal: int, workers: Mapping[int, str]) -> str:
    return workers.get(ordinal, "unknown worker" if ordinal < 0 else f"worker {ordinal}")
