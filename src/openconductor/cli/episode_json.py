"""An Episode as JSON: what ``ask --json`` prints.

In: an Episode and its pool. Out: plain values. Dollars are decimal strings, so that nothing is lost to binary
fractions; the ledger's entries add up to its total, to the token and to the last digit of a dollar.
"""

from __future__ import annotations

from collections.abc import Sequence

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.pool import WorkerPool
from openconductor.types import Episode, Message, Question, Round, StepResult, Usage

Json = dict[str, object]


def episode_json(episode: Episode, pool: WorkerPool) -> Json:
    """The episode, its rounds with their steps, and the ledger."""
    return {
        "id": episode.id,
        "question": _question(episode.question),
        "answer": episode.answer,
        "error": error_json(episode.error),
        "seconds": episode.seconds,
        "rounds": [_round(index, one, pool) for index, one in enumerate(episode.rounds)],
        "ledger": _ledger(episode, pool),
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


def _round(index: int, one: Round, pool: WorkerPool) -> Json:
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
        "valid": one.workflow is not None,
        "accepted": one.accepted,
        "error": error_json(one.error),
        "answer": one.transcript.answer if one.transcript is not None else None,
        "steps": [_step(number, result, pool) for number, result in enumerate(results)],
    }


def _step(index: int, result: StepResult, pool: WorkerPool) -> Json:
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


def _ledger(episode: Episode, pool: WorkerPool) -> Json:
    """Who cost what: the Conductor once a round, every step, and the sums."""
    entries: list[Json] = []
    planned, worked = Usage(), Usage()
    for index, one in enumerate(episode.rounds):
        if one.completion is not None:
            planned += one.completion.usage
            entries.append({"round": index, "step": None, "who": "conductor", **usage_json(one.completion.usage)})
        for number, result in enumerate(one.transcript.results if one.transcript is not None else ()):
            worked += result.usage
            ordinal = result.step.worker if result.worker is None else result.worker
            entries.append({"round": index, "step": number, "who": pool[ordinal].name, **usage_json(result.usage)})
    return {
        "entries": entries,
        "conductor": usage_json(planned),
        "workers": usage_json(worked),
        "total": usage_json(episode.usage),
    }
