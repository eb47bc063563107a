"""Rows as values: pure functions from rows, their JSON parsed, to calls and episodes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from openconductor.store.serialisation import load, load_error
from openconductor.store.store import SUCCESSES, StoredCall, StoredEpisode
from openconductor.types import (
    Completion,
    Message,
    Price,
    Round,
    Sampling,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
    is_array,
)

UNKNOWN = -1
"""Stands for the ordinal of a worker that is not known."""

_Row = Mapping[str, Any]

# Columns of a call that hold its fields as they are.
_COLUMNS = (
    "worker",
    "outcome",
    "attempt",
    "started",
    "identity",
    "episode",
    "round",
    "step",
    "key",
    "request_hash",
)


def join_pieces(document: Any, texts: Mapping[int, str]) -> Any:
    """Return a document's value; one that is stored in pieces is put together.

    Args:
        document: its JSON, or the list of its pieces, parsed.
        texts: those that the pieces name, by number.

    Raises:
        ValueError: a text is missing.
    """
    if not is_array(document):
        return document
    try:
        whole = [piece if isinstance(piece, str) else texts[piece] for piece in document]
    except KeyError as error:
        raise ValueError(f"text {error} is missing") from error
    return json.loads("".join(whole))


def read_call(row: _Row, messages: Sequence[_Row]) -> StoredCall:
    """Return the call of a row.

    Args:
        row: its columns.
        messages: the messages that its request names.

    Raises:
        ValueError: a column has the wrong form.
    """
    request = row["request"]
    price = row["price"]
    return StoredCall(
        **{name: row[name] for name in _COLUMNS},
        messages=load(tuple[Message, ...], messages),
        sampling=Sampling() if request is None else load(Sampling, request["sampling"]),
        completion=_read_completion(row, messages),
        error=load_error(row["error"]),
        usage=load(Usage, row["usage"]),
        price=None if price is None else load(Price, price),
        nested=bool(row["nested"]),
        replayed=bool(row["replayed"]),
    )


def _read_completion(row: _Row, messages: Sequence[_Row]) -> Completion | None:
    if row["response"] is None:
        return None
    body = row["body_sent"]
    if body is not None and body.get("messages", ...) is None:  # they are those of the request
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in messages]
        body = {**body, "messages": turns}
    return load(Completion, {**row["response"], "usage": row["usage"], "body_sent": body})


@dataclass(slots=True)
class _RoundParts:
    """The rows and calls of one round; without a row of its own it has not ended."""

    row: _Row | None = None
    steps: dict[int, _Row] = field(default_factory=dict[int, _Row])
    planning: list[StoredCall] = field(default_factory=list[StoredCall])
    calls: defaultdict[int, list[StoredCall]] = field(
        default_factory=lambda: defaultdict(list[StoredCall])
    )


def read_episode(
    row: _Row,
    rounds: Sequence[_Row] = (),
    steps: Sequence[_Row] = (),
    calls: Sequence[StoredCall] = (),
) -> StoredEpisode:
    """Return the episode of a row, with its rounds, steps and calls.

    Raises:
        ValueError: a column has the wrong form.
    """
    parts: defaultdict[int, _RoundParts] = defaultdict(_RoundParts)
    only_step = row.get("only_step")
    if only_step is not None:
        steps = (only_step,)
        rounds = (_round_of(only_step),)
    for round_row in rounds:
        parts[round_row["round"]].row = round_row
    for step_row in steps:
        parts[step_row["round"]].steps[step_row["step"]] = step_row
    for call in calls:
        if call.step is None:
            parts[call.round].planning.append(call)
        else:
            parts[call.round].calls[call.step].append(call)
    names: Mapping[str, str] = row.get("workers") or {}
    workers = {int(ordinal): name for ordinal, name in names.items()}
    if not workers:
        workers = _workers_that_answered(parts.values())
    ordinals = {name: ordinal for ordinal, name in workers.items()}
    played = tuple(_read_round(parts[index], ordinals) for index in sorted(parts))
    if row["usage"] is None:
        usage = sum((outcome.usage for outcome in played), Usage())
    else:
        usage = load(Usage, row["usage"])
    question = row["question"] or ""
    if not isinstance(question, str):
        question = load(tuple[Message, ...], question)
    return StoredEpisode(
        question=question,
        rounds=played,
        answer=row["answer"],
        error=load_error(row["error"]),
        usage=usage,
        seconds=row["seconds"] or 0.0,
        id=row["id"],
        sample=row["sample"] or 0,
        started=row["started"],
        outcome=row["outcome"],
        workers=MappingProxyType(workers),
    )


def _round_of(step: _Row) -> _Row:
    """Return the row of a round that was one step, which nobody planned."""
    planned = {"worker": step["worker"], "subtask": step["subtask"] or "", "access": step["access"]}
    workflow = {"steps": (planned,)}
    return {"round": 0, "error": step["error"], "workflow": workflow, "text": None}


def _workers_that_answered(rounds: Iterable[_RoundParts]) -> dict[int, str]:
    """Return the names that the rows tell: those of workers that answered a step."""
    workers: dict[int, str] = {}
    for parts in rounds:
        for index, row in parts.steps.items():
            calls = parts.calls[index]
            if row["answered_by"] is not None and calls:
                workers[row["answered_by"]] = calls[-1].worker
    return workers


def _read_round(parts: _RoundParts, ordinals: Mapping[str, int]) -> Round:
    completion = _answer_of(parts.planning)
    rule = None
    if parts.row is None:
        error = None
        workflow = _known_workflow(parts, ordinals)
    else:
        error = load_error(parts.row["error"])
        rule = parts.row.get("rule")  # earlier journals have no such column
        workflow = None
        if parts.row["workflow"] is not None:
            workflow = load(Workflow, parts.row["workflow"])
        if completion is None and parts.row["text"] is not None:
            completion = Completion(parts.row["text"])
    transcript = None
    if workflow is not None and (parts.steps or parts.calls):
        results = tuple(
            _read_result(step, parts.steps.get(index), parts.calls[index], ordinals)
            for index, step in enumerate(workflow)
        )
        transcript = Transcript(workflow, results)
    return Round(completion, workflow, transcript, error, tuple(parts.planning), rule)


def _known_workflow(parts: _RoundParts, ordinals: Mapping[str, int]) -> Workflow | None:
    """Return the known steps of a round that has not ended; None: no step was called."""
    called = {*parts.steps, *parts.calls}
    if not called:
        return None
    steps: list[Step] = []
    for index in range(max(called) + 1):
        row = parts.steps.get(index)
        calls = parts.calls.get(index)
        if row is not None:
            steps.append(Step(row["worker"], row["subtask"] or "", row["access"]))
        elif calls:
            steps.append(Step(ordinals.get(calls[0].worker, UNKNOWN), ""))
        else:
            steps.append(Step(UNKNOWN, ""))
    return Workflow(tuple(steps))


def _read_result(
    step: Step, row: _Row | None, calls: Sequence[StoredCall], ordinals: Mapping[str, int]
) -> StepResult:
    """Return the result of a step; without a row it has not ended."""
    messages = calls[-1].messages if calls else ()
    if row is None:
        usage = sum((call.usage for call in calls), Usage())
        started = calls[0].started if calls else None
        return StepResult(step, None, None, messages, None, usage, started, None, tuple(calls))
    worker = row["answered_by"]
    if worker is None and calls:
        worker = ordinals.get(calls[-1].worker)
    return StepResult(
        step=step,
        completion=_answer_of(calls) if row["outcome"] == "answered" else None,
        error=load_error(row["error"]),
        messages=messages,
        worker=worker,
        usage=load(Usage, row["usage"]),
        started=row["started"],
        ended=row["ended"],
        calls=tuple(calls),
    )


def _answer_of(calls: Sequence[StoredCall]) -> Completion | None:
    """Return the completion of the last call that succeeded; without content its text is empty."""
    for call in reversed(calls):
        if call.outcome in SUCCESSES and call.error is None:
            return call.completion or Completion("", usage=call.usage)
    return None
