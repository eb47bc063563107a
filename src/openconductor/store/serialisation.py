"""Values as JSON, and back: the one form that the journal, the records of an evaluation and ``--json`` share.

In: the frozen values. Out: JSON's own types; ``load`` makes the frozen value again, but for those
that hold errors. A value is a mapping of its fields; a Decimal is a decimal string, so that nothing
is lost to binary fractions; an unknown price is null; an error is its class, its message and what
else it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError
from openconductor.ledger import CONDUCTOR, Attempt, Ledger, draw_up
from openconductor.types import Episode, Message, Round, StepResult, Usage

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_UNICODE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_ASCII = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

T = TypeVar("T")
Json = dict[str, object]
_Attempts = Mapping[tuple[int, int | None], Sequence[Attempt]]


def plain(value: object) -> object:
    """The value in JSON's types: dict, list, str, int, float, bool, None."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[object]", value)]
    if not isinstance(value, dict):
        return plain(_simpler(value))
    return {str(name): plain(item) for name, item in cast("dict[object, object]", value).items()}


def dumps(value: object) -> str:
    """Canonical JSON of ``plain(value)``: names sorted, no spaces; ASCII only where it holds a lone surrogate."""
    value = plain(value)
    text = _UNICODE(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII(value)
    return text


def compact(value: object) -> str:
    """JSON of the value, in the order of its fields; many times as fast as ``dumps``."""
    import pydantic_core

    try:
        return pydantic_core.to_json(value, fallback=_simpler).decode()
    except ValueError:  # a lone surrogate
        return dumps(value)


def _simpler(value: object) -> object:
    """A value that JSON does not know as one of a type nearer to JSON's; what is none of ours as its ``repr``."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=repr)
    if not isinstance(value, OpenConductorError):
        return repr(value)
    known: Json = {"type": type(value).__name__, "message": str(value)}
    if isinstance(value, WorkflowError):
        known["reason"] = value.reason.value
    return known | _only(value, "worker", "status") if isinstance(value, WorkerError) else known


def load(kind: type[T], data: object) -> T:
    """The frozen value of which ``data`` is the ``plain`` form; fields that it lacks have their defaults.

    Raises:
        ValueError: it is not the form of such a value (pydantic's ValidationError).
    """
    return cast("TypeAdapter[T]", _adapter(kind)).validate_python(data)


@cache
def _adapter(kind: type) -> TypeAdapter[object]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def outcome_of(result: StepResult) -> str:
    """What became of a step: ``answered``, ``failed``, ``cancelled`` or ``not_reached``."""
    if result.completion is not None:
        return "answered"
    if result.error is not None:
        return "failed"
    return "cancelled" if result.started is not None else "not_reached"


# ── an episode as `ask --json` prints it ──────────────────────────────────────────────────────────
def episode_json(episode: Episode, workers: Mapping[int, str]) -> Json:
    """The episode, its rounds with their steps and every attempt at these, and the ledger.

    Args:
        episode: the episode, a stopped one too.
        workers: the name of each worker of its pool, by ordinal.
    """
    ledger = draw_up(episode)
    attempts: _Attempts = {(entry.round, entry.step): entry.attempts for entry in ledger.entries}
    asked = episode.question
    return {
        "id": episode.id,
        "question": asked if isinstance(asked, str) else _messages(asked),
        "answer": episode.answer,
        "error": plain(episode.error),
        "seconds": episode.seconds,
        "rounds": [
            _round(index, one, workers, attempts) for index, one in enumerate(episode.rounds)
        ],
        "ledger": _ledger(ledger, episode, workers),
    }


def _only(value: object, *names: str) -> Json:
    """Some fields of a value; null where there is no value."""
    return {name: plain(getattr(value, name, None)) for name in names}


def _messages(turns: Sequence[Message]) -> list[Json]:
    return [_only(turn, "role", "content") for turn in turns]


def _shown(attempts: Sequence[Attempt]) -> list[Json]:
    return [
        {
            "worker": call.worker,
            "attempt": call.attempt,
            "outcome": call.outcome,
            "wasted": wasted,
            **_only(call, "replayed", "nested", "usage"),
        }
        for call, wasted in attempts
    ]


def _round(index: int, one: Round, workers: Mapping[int, str], attempts: _Attempts) -> Json:
    said = _only(one.completion, "text", "reasoning", "finish_reason", "usage")
    results = one.transcript.results if one.transcript is not None else ()
    return {
        "round": index,
        "conductor": None if one.completion is None else said,
        "planning": {
            "usage": plain(one.planning),
            "attempts": _shown(attempts.get((index, None), ())),
        },
        "valid": one.workflow is not None,
        "accepted": one.accepted,
        "error": plain(one.error),
        "answer": one.transcript.answer if one.transcript is not None else None,
        "steps": [
            _step(number, result, workers, attempts[index, number])
            for number, result in enumerate(results)
        ],
    }


def _step(
    index: int, result: StepResult, workers: Mapping[int, str], attempts: Sequence[Attempt]
) -> Json:
    completion = result.completion
    return {
        "step": index,
        "worker": result.step.worker,
        "worker_name": workers[result.step.worker],
        "answered_by": workers[result.asked] if completion is not None else None,
        **_only(result.step, "subtask", "access"),
        "messages": _messages(result.messages),
        "response": completion.text if completion is not None else None,
        **_only(completion, "reasoning", "finish_reason"),
        "usage": plain(result.usage),
        "attempts": _shown(attempts),
        "outcome": outcome_of(result),
        **_only(result, "error", "started", "ended"),
    }


def _ledger(ledger: Ledger, episode: Episode, workers: Mapping[int, str]) -> Json:
    """Who cost what: the Conductor once a round, every step, and the sums."""
    made = [attempt for entry in ledger.entries for attempt in entry.attempts]
    entries: list[Json] = []
    for entry in ledger.entries:
        transcript, who = episode.rounds[entry.round].transcript, CONDUCTOR
        if entry.step is not None and transcript is not None:
            who = workers[transcript.results[entry.step].asked]
        counted = {"who": who, "attempts": len(entry.attempts)}
        entries.append(
            {**_only(entry, "round", "step"), **counted, **_only(entry.usage, *_names(Usage))}
        )

    wasted, replayed = sum(one.wasted for one in made), sum(one.call.replayed for one in made)
    return {
        "entries": entries,
        **_only(ledger, "conductor", "workers"),
        "by_worker": plain(ledger.by_worker),
        "rounds": plain(ledger.rounds),
        "wasted": {"attempts": wasted, **_only(ledger.wasted, *_names(Usage))},
        "replayed": {"attempts": replayed, **_only(ledger.replayed, *_names(Usage))},
        "total": plain(ledger.total),
    }
