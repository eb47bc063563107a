"""An episode as JSON: the one form that ``ask --json``, the server and the page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from openconductor.ledger import CONDUCTOR, Attempt, Entry, Ledger, draw_up
from openconductor.store.serialisation import outcome_of, plain
from openconductor.types import Completion, Episode, Message, Round, StepResult, Usage

Json = dict[str, object]
_Attempts = Mapping[tuple[int, int | None], Sequence[Attempt]]

_USAGE_FIELDS = tuple(field.name for field in fields(Usage))


def episode_json(episode: Episode, workers: Mapping[int, str]) -> Json:
    """Return the episode with its rounds, their steps, every attempt at a call, and the ledger.

    Args:
        episode: the episode, a stopped one too.
        workers: the names of the workers of its pool, by ordinal; an unknown name is null.
    """
    ledger = draw_up(episode)
    attempts = {(entry.round, entry.step): entry.attempts for entry in ledger.entries}
    question = episode.question
    return {
        "id": episode.id,
        "question": question if isinstance(question, str) else _messages(question),
        "answer": episode.answer,
        "error": plain(episode.error),
        "seconds": episode.seconds,
        "rounds": [
            _round(index, played, workers, attempts) for index, played in enumerate(episode.rounds)
        ],
        "ledger": _ledger(ledger, episode, workers),
    }


def _messages(turns: Sequence[Message]) -> list[Json]:
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def _attempts(attempts: Sequence[Attempt]) -> list[Json]:
    return [
        {
            "worker": call.worker,
            "attempt": call.attempt,
            "outcome": call.outcome,
            "wasted": wasted,
            "replayed": call.replayed,
            "nested": call.nested,
            "usage": plain(call.usage),
        }
        for call, wasted in attempts
    ]


def _round(index: int, played: Round, workers: Mapping[int, str], attempts: _Attempts) -> Json:
    results = () if played.transcript is None else played.transcript.results
    return {
        "round": index,
        "conductor": _completion(played.completion),
        "planning": {
            "usage": plain(played.planning),
            "attempts": _attempts(attempts.get((index, None), ())),
        },
        "valid": played.workflow is not None,
        "accepted": played.accepted,
        "error": plain(played.error),
        "answer": None if played.transcript is None else played.transcript.answer,
        "steps": [
            _step(number, result, workers, attempts[index, number])
            for number, result in enumerate(results)
        ],
    }


def _completion(completion: Completion | None) -> Json | None:
    if completion is None:
        return None
    return {
        "text": completion.text,
        "reasoning": completion.reasoning,
        "finish_reason": completion.finish_reason,
        "usage": plain(completion.usage),
    }


def _step(
    index: int, result: StepResult, workers: Mapping[int, str], attempts: Sequence[Attempt]
) -> Json:
    step = result.step
    completion = result.completion
    answered = completion is not None
    return {
        "step": index,
        "worker": step.worker,
        "worker_name": workers.get(step.worker),
        "answered_by": workers.get(result.asked) if answered else None,
        "subtask": step.subtask,
        "access": plain(step.access),
        "messages": _messages(result.messages),
        "response": completion.text if answered else None,
        "reasoning": completion.reasoning if answered else None,
        "finish_reason": completion.finish_reason if answered else None,
        "usage": plain(result.usage),
        "attempts": _attempts(attempts),
        "outcome": outcome_of(result),
        "error": plain(result.error),
        "started": result.started,
        "ended": result.ended,
    }


def _ledger(ledger: Ledger, episode: Episode, workers: Mapping[int, str]) -> Json:
    """Return the costs: an entry for each round's planning and for each step, and the sums."""
    attempts = [attempt for entry in ledger.entries for attempt in entry.attempts]
    wasted = sum(attempt.wasted for attempt in attempts)
    replayed = sum(attempt.call.replayed for attempt in attempts)
    return {
        "entries": [_entry(entry, episode, workers) for entry in ledger.entries],
        "conductor": plain(ledger.conductor),
        "workers": plain(ledger.workers),
        "by_worker": plain(ledger.by_worker),
        "rounds": plain(ledger.rounds),
        "wasted": {"attempts": wasted, **_usage(ledger.wasted)},
        "replayed": {"attempts": replayed, **_usage(ledger.replayed)},
        "total": plain(ledger.total),
    }


def _entry(entry: Entry, episode: Episode, workers: Mapping[int, str]) -> Json:
    who: str | None = CONDUCTOR
    transcript = episode.rounds[entry.round].transcript
    if entry.step is not None and transcript is not None:
        who = workers.get(transcript.results[entry.step].asked)
    return {
        "round": entry.round,
        "step": entry.step,
        "who": who,
        "attempts": len(entry.attempts),
        **_usage(entry.usage),
    }


def _usage(usage: Usage) -> Json:
    return {name: plain(getattr(usage, name)) for name in _USAGE_FIELDS}
