"""What an evaluation keeps of one question asked once: everything that tables, reports and plots need, and no more.

In: an Outcome and the system that was asked. Out: a Record, which goes into a run's journal as JSON and comes
back equal.

A Record never holds whole conversations; those stand in the journal beside it, under ``episode``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast, get_args

from openconductor.errors import JournalError, OpenConductorError, WorkflowError, caused_by_plan
from openconductor.evaluation.run import Outcome
from openconductor.ledger import draw_up
from openconductor.types import Call, Round, Step, Usage, Workflow

Status = Literal["graded", "unparsed", "invalid", "refused", "ungraded", "failed"]
"""What became of a question.

- ``graded``: the grader said right or wrong.
- ``unparsed``: wrong, for the grader found no answer in the text (its note begins so).
- ``invalid``: wrong, for the plan was no workflow.
- ``refused``: wrong, by the plan's own doing: a refusal, a context too long, the question's budget spent.
- ``ungraded``: masked, for the grader or its sandbox could not decide.
- ``failed``: masked, for transport, provider or time failed.
"""
MASKED: tuple[Status, ...] = ("ungraded", "failed")
UNPARSED = "unparsed"
"""How the note of a grade begins where no answer could be read off the text."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: its workflow, or why there is none.

    Attributes:
        workflow: what was planned; None where nothing valid was. A workflow without steps accepts.
        planned: whether a Conductor wrote it (a baseline's round has no completion).
        reason: of a text that is no workflow; "" otherwise.
        outcomes: of each step, in order: that of its last call; "" where it was not reached.
    """

    workflow: Workflow | None
    planned: bool = False
    reason: str = ""
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One problem, asked once of one system.

    Attributes:
        system, task, problem: their names; ``problem`` is the problem's id.
        sample: which repeat of the problem this is, from 0.
        kind: the problem's kind.
        correct: right, wrong, or undecided (None: masked, never counted as wrong).
        status: why.
        answer, extracted, note: the answer, what the grader read off it, and what it said.
        rounds: what was planned.
        calls: attempts at workers and planner, those of nested orchestrators included once.
        usage: everything it cost.
        seconds: wall time.
        episode: the episode's id in the journal.
        error: the class and message of the error that ended it; "" where there was none.
    """

    system: str
    task: str
    problem: str
    sample: int
    kind: str
    correct: bool | None
    status: Status
    answer: str | None
    extracted: str | None
    note: str
    rounds: tuple[RoundRecord, ...]
    calls: int
    usage: Usage
    seconds: float
    episode: str = ""
    error: str = ""

    @property
    def valid(self) -> bool | None:
        """Whether the first round's text was a workflow; None where no Conductor wrote any.

        A planner that could not be reached wrote none; one that declined, or was asked too much, wrote no workflow.
        """
        first = self.rounds[0] if self.rounds else None
        if first is None or not first.planned:
            return None
        if first.workflow is None and not first.reason and self.status in MASKED:
            return None
        return first.workflow is not None

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """The workflows of all rounds, those that only accept left out."""
        return tuple(one.workflow for one in self.rounds if one.workflow is not None and one.workflow.steps)


def record_of(outcome: Outcome, *, system: str) -> Record:
    """What is kept of an outcome.

    Args:
        outcome: a problem, asked once and graded.
        system: the name of what was asked.
    """
    episode, grade, problem = outcome.episode, outcome.grade, outcome.problem
    return Record(
        system=system,
        task=problem.task,
        problem=problem.id,
        sample=outcome.sample,
        kind=problem.kind,
        correct=outcome.correct,
        status=_status(outcome),
        answer=episode.answer,
        extracted=grade.extracted if grade is not None else None,
        note=grade.note if grade is not None else "",
        rounds=tuple(_round(one) for one in episode.rounds),
        calls=len(draw_up(episode).attempts),
        usage=episode.usage,
        seconds=episode.seconds,
        episode=episode.id,
        error="" if episode.error is None else f"{type(episode.error).__name__}: {episode.error}",
    )


def to_json(record: Record) -> dict[str, object]:
    """A record as plain values; dollars are a decimal string."""
    usage = record.usage
    return {
        "system": record.system,
        "task": record.task,
        "problem": record.problem,
        "sample": record.sample,
        "kind": record.kind,
        "correct": record.correct,
        "status": record.status,
        "answer": record.answer,
        "extracted": record.extracted,
        "note": record.note,
        "rounds": [
            {
                "steps": None
                if one.workflow is None
                else [[step.worker, step.subtask, _plain(step.access)] for step in one.workflow],
                "planned": one.planned,
                "reason": one.reason,
                "outcomes": list(one.outcomes),
            }
            for one in record.rounds
        ],
        "calls": record.calls,
        "usage": [
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            format(usage.dollars, "f"),
            usage.unpriced_calls,
            usage.seconds,
        ],
        "seconds": record.seconds,
        "episode": record.episode,
        "error": record.error,
    }


def from_json(data: Mapping[str, Any]) -> Record:
    """The record of ``to_json``'s values.

    Raises:
        JournalError: they are none.
    """
    try:
        if data["status"] not in get_args(Status):
            raise ValueError(f"status {data['status']!r}")
        read, cached, written, reasoned, dollars, unpriced, seconds = cast("list[Any]", data["usage"])
        plain = {name: data[name] for name in _PLAIN}
        return Record(
            **plain,
            rounds=tuple(_round_from(one) for one in data["rounds"]),
            usage=Usage(read, cached, written, reasoned, Decimal(dollars), unpriced, seconds),
        )
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise JournalError(f"record: got {str(data)[:200]}, expected one of an evaluation ({error})") from error


_PLAIN = (
    *("system", "task", "problem", "sample", "kind", "correct", "status", "answer", "extracted", "note"),
    *("calls", "seconds", "episode", "error"),
)


def _plain(access: Sequence[object]) -> object:
    return access if isinstance(access, str) else list(access)


def _round_from(data: Mapping[str, Any]) -> RoundRecord:
    steps = data["steps"]
    workflow = None if steps is None else Workflow(tuple(Step(*step) for step in steps))
    return RoundRecord(workflow, data["planned"], data["reason"], tuple(data["outcomes"]))


def _round(one: Round) -> RoundRecord:
    results = one.transcript.results if one.transcript is not None else ()
    reason = one.error.reason.value if isinstance(one.error, WorkflowError) else ""
    planned = one.completion is not None or bool(one.calls)
    return RoundRecord(one.workflow, planned, reason, tuple(_ended(result.calls) for result in results))


def _ended(calls: Sequence[Call]) -> str:
    return calls[-1].outcome if calls else ""


def _status(outcome: Outcome) -> Status:
    error = outcome.episode.error
    if error is not None:
        return _failure(error)
    if outcome.grade is None or outcome.grade.correct is None:
        return "ungraded"
    unparsed = not outcome.grade.correct and outcome.grade.note.startswith(UNPARSED)
    return "unparsed" if unparsed else "graded"


def _failure(error: OpenConductorError) -> Status:
    if isinstance(error, WorkflowError):
        return "invalid"
    return "refused" if caused_by_plan(error) else "failed"
