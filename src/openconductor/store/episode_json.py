"""An episode as JSON: the one form that ``ask --json``, the server and the page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from openconductor.ledger import CONDUCTOR, Attempt, Entry, Ledger, draw_up
from openconductor.store.serialisation import outcome_of, plain
from openconductor.types import Episode, Message, Round, StepResult, Usage

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
    question: object = episode.question
    if not isinstance(episode.question, str):
        question = _messages(episode.question)
    rounds = [
        _round(index, played, workers, attempts) for index, played in enumerate(episode.rounds)
    ]
    return {
        "id": episode.id,
        "question": question,
        **_fields(episode, "answer", "error", "seconds"),
        "rounds": rounds,
        "ledger": _ledger(ledger, workers),
    }


def _fields(value: object, *names: str) -> Json:
    """Return some of the fields of a value in JSON's types."""
    return {name: plain(getattr(value, name)) for name in names}


def _messages(turns: Sequence[Message]) -> list[Json]:
    return [_fields(turn, "role", "content") for turn in turns]


def _attempts(attempts: Sequence[Attempt]) -> list[Json]:
    forms: list[Json] = []
    for call, wasted in attempts:
        form = _fields(call, "worker", "attempt", "outcome")
        form["wasted"] = wasted
        form |= _fields(call, "replayed", "nested", "usage")
        forms.append(form)
    return forms


def _round(index: int, played: Round, workers: Mapping[int, str], attempts: _Attempts) -> Json:
    conductor = None
    completion = played.completion
    if completion is not None:
        conductor = _fields(completion, "text", "reasoning", "finish_reason", "usage")
    planning = _attempts(attempts.get((index, None), ()))
    answer = None
    steps: list[Json] = []
    if played.transcript is not None:
        answer = played.transcript.answer
        for number, result in enumerate(played.transcript.results):
            steps.append(_step(number, result, workers, attempts[index, number]))
    rule = {} if played.rule is None else {"rule": played.rule}
    return {
        "round": index,
        **rule,
        "conductor": conductor,
        "planning": {"usage": plain(played.planning), "attempts": planning},
        "valid": played.workflow is not None,
        **_fields(played, "accepted", "error"),
        "answer": answer,
        "steps": steps,
    }


def _step(
    index: int, result: StepResult, workers: Mapping[int, str], attempts: Sequence[Attempt]
) -> Json:
    step = result.step
    form: Json = {
        "step": index,
        "worker": step.worker,
        "worker_name": workers.get(step.worker),
        "answered_by": None,
        **_fields(step, "subtask", "access"),
        "messages": _messages(result.messages),
    }
    form |= dict.fromkeys(("response", "reasoning", "finish_reason"))
    if result.completion is not None:
        form["answered_by"] = workers.get(result.asked)
        form["response"] = result.completion.text
        form |= _fields(result.completion, "reasoning", "finish_reason")
    form["usage"] = plain(result.usage)
    form["attempts"] = _attempts(attempts)
    form["outcome"] = outcome_of(result)
    return form | _fields(result, "error", "started", "ended")


def _ledger(ledger: Ledger, workers: Mapping[int, str]) -> Json:
    """Return the costs: an entry for each round's planning and for each step, and the sums."""
    attempts = [attempt for entry in ledger.entries for attempt in entry.attempts]
    wasted = sum(attempt.wasted for attempt in attempts)
    replayed = sum(attempt.call.replayed for attempt in attempts)
    return {
        "entries": [_entry(entry, workers) for entry in ledger.entries],
        **_fields(ledger, "conductor", "workers", "by_worker", "rounds"),
        "wasted": {"attempts": wasted, **_fields(ledger.wasted, *_USAGE_FIELDS)},
        "replayed": {"attempts": replayed, **_fields(ledger.replayed, *_USAGE_FIELDS)},
        "total": plain(ledger.total),
    }


def _entry(entry: Entry, workers: Mapping[int, str]) -> Json:
    form = _fields(entry, "round", "step")
    form["who"] = CONDUCTOR if entry.asked is None else workers.get(entry.asked)
    form["attempts"] = len(entry.attempts)
    return form | _fields(entry.usage, *_USAGE_FIELDS)
