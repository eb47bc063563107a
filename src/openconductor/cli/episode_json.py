"""An Episode as JSON: what ``ask --json`` prints.

In: an Episode and its pool. Out: plain values. Dollars are decimal strings, so that nothing is lost to binary
fractions; the ledger's entries add up to its total, to the token and to the last digit of a dollar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.ledger import Attempt, Entry, Ledger, draw_up
from openconductor.pool import WorkerPool
from openconductor.types import Episode, Message, Question, Round, StepResult, Usage

Json = dict[str, object]
Entries = Mapping[tuple[int, int | None], Entry]
"""The ledger's entries by round and step; the step of planning is None."""


def episode_json(episode: Episode, pool: WorkerPool) -> Json:
    """The episode, its rounds with their steps and every attempt at these, and the ledger."""
    ledger = draw_up(episode)
    entries = {(entry.round, entry.step): entry for entry in ledger.entries}
    return {
        "id": episode.id,
        "question": _question(episode.question),
        "answer": episode.answer,
        "error": error_json(episode.error),
        "seconds": episode.seconds,
        "rounds": [_round(index, one, pool, entries) for index, one in enumerate(episode.rounds)],
        "ledger": _ledger(ledger, episode, pool),
    }


def error_json(error: OpenConductorError | None) -> Json | None:
    """What went wrong: the error's class, its message, and what it knows beyond."""
    if error is None:
        return None
    known: Json = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, WorkflowError):
        known["reason"] = error.reason.value
    if isinstance(error, WorkerError):
        known |= {"worker": error.worker, "status": error.status}
    return known


def usage_json(usage: Usage) -> Json:
    """Tokens, dollars (a string), calls without a price, and seconds of work."""
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "dollars": format(usage.dollars, "f"),
        "unpriced_calls": usage.unpriced_calls,
        "seconds": usage.seconds,
    }


def _question(question: Question) -> object:
    return question if isinstance(question, str) else _messages(question)


def _messages(turns: Sequence[Message]) -> list[Json]:
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def _round(index: int, one: Round, pool: WorkerPool, entries: Entries) -> Json:
    completion = one.completion
    results = one.transcript.results if one.transcript is not None else ()
    return {
        "round": index,
        "conductor": None
        if completion is None
        else {
            "text": completion.text,
            "reasoning": completion.reasoning,
            "finish_reason": completion.finish_reason,
            "usage": usage_json(completion.usage),
        },
        "planning": {"usage": usage_json(one.planning), "attempts": _attempts(entries.get((index, None)))},
        "valid": one.workflow is not None,
        "accepted": one.accepted,
        "error": error_json(one.error),
        "answer": one.transcript.answer if one.transcript is not None else None,
        "steps": [_step(number, result, pool, entries.get((index, number))) for number, result in enumerate(results)],
    }


def _step(index: int, result: StepResult, pool: WorkerPool, entry: Entry | None) -> Json:
    step, completion = result.step, result.completion
    answered_by = step.worker if result.worker is None else result.worker
    return {
        "step": index,
        "worker": step.worker,
        "worker_name": pool[step.worker].name,
        "answered_by": pool[answered_by].name if completion is not None else None,
        "subtask": step.subtask,
        "access": step.access if isinstance(step.access, str) else list(step.access),
        "messages": _messages(result.messages),
        "response": completion.text if completion is not None else None,
        "reasoning": completion.reasoning if completion is not None else None,
        "finish_reason": completion.finish_reason if completion is not None else None,
        "usage": usage_json(result.usage),
        "attempts": _attempts(entry),
        "outcome": _outcome(result),
        "error": error_json(result.error),
        "started": result.started,
        "ended": result.ended,
    }


def _outcome(result: StepResult) -> str:
    if result.completion is not None:
        return "answered"
    if result.error is not None:
        return "failed"
    return "cancelled" if result.started is not None else "not_reached"


def _attempts(entry: Entry | None) -> list[Json]:
    return [] if entry is None else [_attempt(attempt) for attempt in entry.attempts]


def _attempt(attempt: Attempt) -> Json:
    return {
        "worker": attempt.worker,
        "attempt": attempt.number,
        "outcome": attempt.outcome,
        "wasted": attempt.wasted,
        "replayed": attempt.replayed,
        "nested": attempt.nested,
        "usage": usage_json(attempt.usage),
    }


def _ledger(ledger: Ledger, episode: Episode, pool: WorkerPool) -> Json:
    """Who cost what: the Conductor once a round, every step, and the sums."""

    def who(entry: Entry) -> str:
        transcript = episode.rounds[entry.round].transcript
        if entry.step is None or transcript is None:
            return entry.who
        result = transcript.results[entry.step]
        return pool[result.step.worker if result.worker is None else result.worker].name

    return {
        "entries": [
            {
                "round": entry.round,
                "step": entry.step,
                "who": who(entry),
                "attempts": len(entry.attempts),
                **usage_json(entry.usage),
            }
            for entry in ledger.entries
        ],
        "conductor": usage_json(ledger.conductor),
        "workers": usage_json(ledger.workers),
        "by_worker": {name: usage_json(usage) for name, usage in ledger.by_worker},
        "rounds": [usage_json(usage) for usage in ledger.rounds],
        "wasted": {"attempts": sum(attempt.wasted for attempt in ledger.attempts), **usage_json(ledger.wasted)},
        "replayed": {"attempts": sum(attempt.replayed for attempt in ledger.attempts), **usage_json(ledger.replayed)},
        "total": usage_json(ledger.total),
    }
