"""Events as rows: pure functions from an event to the rows that a store keeps of it.

A row is a dict by column; values with parts are JSON. ``TextPolicy`` decides which texts are kept,
and cleans them. Planned, StepStarted and StepText have no rows: rounds and steps are written when
they have ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from openconductor.errors import OpenConductorError
from openconductor.events import Answered, Asked, CallEnded, Event, RoundEnded
from openconductor.privacy import Privacy
from openconductor.store.keys import hash_text, key_of, request_hash
from openconductor.store.serialisation import compact, outcome_of, plain
from openconductor.store.store import SUCCESSES, StoredRecord
from openconductor.types import Call, Completion, Message, Sampling, StepResult, Workflow

_NAME_LENGTH = 20  # digits of a message's hash, 80 bits: a collision is likely after 2**40 messages


LONG = 64
"""Characters from which on a text of a question is stored once for all that holds it."""

Row = dict[str, object]
SharedText = tuple[str, int]
"""A text in the store, escaped as in JSON, and its number."""


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """Decides which texts are kept, and cleans them.

    Attributes:
        privacy: removes secrets, and applies the user's redaction.
        content: False: keep no questions, messages, subtasks, responses, answers or messages of
            errors. Names are kept always.
    """

    privacy: Privacy
    content: bool

    def name(self, text: str) -> str:
        """Return a name without secrets; it is not redacted."""
        return _encodable(self.privacy.scrub(text))

    def text(self, text: str | None) -> str | None:
        """Return a cleaned text; None where content is not kept."""
        if text is None or not self.content:
            return None
        return _encodable(self.privacy.text(text))

    def json(self, value: object) -> str | None:
        """Return a value as cleaned JSON; None where content is not kept."""
        if value is None or not self.content:
            return None
        return self.clean(compact(value))

    def error(self, error: OpenConductorError | None) -> str | None:
        """Return an error as cleaned JSON.

        Its message is kept only where content is, because it may echo a request.
        """
        if error is None:
            return None
        kept = cast("dict[str, object]", plain(error))
        if not self.content:
            kept["message"] = None
        return self.clean(compact(kept))

    def clean(self, document: str) -> str:
        """Return a JSON document with every text in it cleaned."""
        if self.privacy.holds_nothing(document):
            return document
        return compact(self.privacy.value(json.loads(document)))


def long_texts(message: Message, texts: TextPolicy) -> list[str]:
    """Return the long texts of a message, as they stand in its JSON.

    Of an image, only its Base64 is returned, because APIs write what stands before it differently.
    """
    found: list[str] = []
    for string in _strings((message.content, *message.parts)):
        text = string
        if string.startswith("data:"):
            text = string.partition(";base64,")[2]
        if len(text) >= LONG:
            found.append(texts.clean(compact(text))[1:-1])
    return found


def _strings(value: object) -> Iterator[str]:
    """Yield the strings in a value of JSON's types, but for the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(tuple(cast("Mapping[str, object]", value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from _strings(item)


def long_settings(sampling: Sampling, texts: TextPolicy) -> list[str]:
    """Return the long values of a sampling's body (the client's tools), as JSON."""
    documents = [texts.clean(compact(value)) for value in sampling.body.values()]
    return [document for document in documents if len(document) >= LONG]


def in_pieces(document: str, shared: Sequence[SharedText]) -> str:
    """Return a JSON document with numbers in place of the shared texts in it.

    It becomes a list of its pieces. Without a shared text it is returned as it is.
    """
    spans: list[tuple[int, int, int]] = []
    end = 0
    for text, number in shared:
        if len(text) > len(document):
            continue
        start = document.find(text, end)
        if start < 0:  # texts may stand in another order than in the question
            start = document.find(text, 0, end)
        if start >= 0:
            end = start + len(text)
            spans.append((start, end, number))
    pieces: list[str | int] = []
    done = 0
    for start, end, number in sorted(spans):
        if start >= done:
            pieces += [document[done:start], number]
            done = end
    return compact([*pieces, document[done:]]) if pieces else document


def episode_start(
    event: Asked, now: float, turns: Sequence[int | str] | None, texts: TextPolicy
) -> Row:
    """Return what is known of an episode that began at ``now``, in seconds since 1970.

    Args:
        event: the beginning.
        now: its time.
        turns: name the messages of its question; None: it is a text.
        texts: cleans the texts.
    """
    return {
        "id": event.episode,
        "sample": event.sample,
        "started": now,
        "question": texts.json(event.question) if turns is None else compact(turns),
        "workers": texts.clean(compact(event.workers)),
    }


def episode_end(event: Answered, texts: TextPolicy) -> Row:
    """Return what is known of an episode once it has ended."""
    episode = event.outcome
    return {
        "id": event.episode,
        "outcome": "failed" if episode.answer is None else "answered",
        "seconds": episode.seconds,
        "usage": compact(episode.usage),
        "error": texts.error(episode.error),
        "answer": texts.text(episode.answer),
    }


def round_row(event: RoundEnded, texts: TextPolicy) -> Row:
    """Return the row of a round that has ended; ``text`` is what the Conductor wrote."""
    ended = event.outcome
    workflow = ended.workflow
    return {
        "episode": event.episode,
        "round": event.round,
        "ended": event.at,
        "valid": workflow is not None,
        "accepted": None if workflow is None else ended.accepted,
        "rule": ended.rule,
        "error": texts.error(ended.error),
        "workflow": None if workflow is None else _workflow_json(workflow, texts),
        "text": None if ended.completion is None else texts.text(ended.completion.text),
    }


def only_step_row(events: Sequence[Event], texts: TextPolicy) -> Row | None:
    """Return the row of the only step of an episode, from which its round is known too.

    None: it has not ended, or more happened than one step that no Conductor planned.
    """
    rounds = [event for event in events if isinstance(event, RoundEnded)]
    if len(rounds) != 1 or not isinstance(events[-1], Answered):
        return None
    played = rounds[0].outcome
    transcript = played.transcript
    if transcript is None or len(transcript.results) != 1:
        return None
    (result,) = transcript.results
    planned = played.completion is not None or played.calls or played.rule is not None
    if planned or result.started is None or played.error is not result.error:
        return None
    return step_row(rounds[0].episode, 0, 0, result, texts)


def silent_step_rows(event: RoundEnded, texts: TextPolicy) -> list[Row]:
    """Return the rows of a round's steps that were not reached or were cancelled.

    No event told of them.
    """
    transcript = event.outcome.transcript
    results = () if transcript is None else transcript.results
    rows: list[Row] = []
    for index, result in enumerate(results):
        if result.completion is None and result.error is None:
            rows.append(step_row(event.episode, event.round, index, result, texts))
    return rows


def step_row(
    episode: str, round_index: int, index: int, result: StepResult, texts: TextPolicy
) -> Row:
    """Return the row of a step; ``answered_by`` is None where it has no answer."""
    step = result.step
    outcome = outcome_of(result)
    return {
        "episode": episode,
        "round": round_index,
        "step": index,
        "worker": step.worker,
        "answered_by": result.asked if outcome == "answered" else None,
        "outcome": outcome,
        "started": result.started,
        "ended": result.ended,
        "usage": compact(result.usage),
        "error": texts.error(result.error),
        "access": compact(step.access),
        "subtask": texts.text(step.subtask),
    }


def call_row(
    event: CallEnded,
    sample: int | None,
    names: Sequence[str | int],
    texts: TextPolicy,
    shared: Sequence[SharedText] = (),
) -> Row:
    """Return the row of an attempt at a call; ``request`` has names in place of its messages.

    Args:
        event: the end of the call.
        sample: the sample of its episode; None: the episode's beginning was not seen, so that the
            call has no key.
        names: name the messages of the call, by hash (``message_row``) or by a number of the store.
        texts: cleans the texts.
        shared: texts that the store holds already.
    """
    call = event.call
    request_digest = request_hash(call.messages, call.sampling)
    key = None
    if sample is not None:
        key = key_of(request_digest, call.worker, call.identity, (sample, event.round, event.step))
    response, is_whole = _response_json(call.completion, texts)
    request = None
    if texts.content:
        sampling = in_pieces(texts.clean(compact(call.sampling)), shared)
        request = f'{{"messages":{compact(names)},"sampling":{sampling}}}'
    body = _body_json(call, texts)
    paid_here = call.outcome in SUCCESSES and not call.replayed
    return {
        "episode": event.episode,
        "round": event.round,
        "step": event.step,
        "attempt": call.attempt,
        "worker": texts.name(call.worker),
        "identity": texts.name(call.identity),
        "outcome": call.outcome,
        "nested": call.nested,
        "replayed": call.replayed,
        "replayable": paid_here and is_whole and key is not None,
        "key": key,
        "request_hash": request_digest,
        "started": call.started,
        "usage": compact(call.usage),
        "price": None if call.price is None else compact(call.price),
        "error": texts.error(call.error),
        "request": request,
        "response": response,
        "body_sent": None if body is None else in_pieces(body, shared),
    }


def message_row(
    number: int, message: Message, texts: TextPolicy, shared: Sequence[SharedText] = ()
) -> Row:
    """Return the row of a message: its number in this store, its JSON and the JSON's hash.

    The hash names it in any store. ``shared`` are texts that the store holds already.
    """
    document = texts.clean(compact(message))
    digest = hash_text(document)
    return {
        "number": number,
        "message": in_pieces(document, shared),
        "hash": digest[:_NAME_LENGTH],
    }


def record_row(record: StoredRecord, texts: TextPolicy) -> Row:
    """Return the row of a record."""
    return {
        "key": texts.name(record.key),
        "written": record.written,
        "record": texts.clean(compact(record.value)),
    }


def _workflow_json(workflow: Workflow, texts: TextPolicy) -> str:
    if not texts.content:
        workflow = Workflow(tuple(replace(step, subtask="") for step in workflow))
    return texts.clean(compact(workflow))


def _response_json(completion: Completion | None, texts: TextPolicy) -> tuple[str | None, bool]:
    """Return a response as JSON, and whether it is kept exactly as it came."""
    if completion is None or not texts.content:
        return None, False
    document = compact(
        {
            "text": completion.text,
            "reasoning": completion.reasoning,
            "tool_calls": completion.tool_calls,
            "finish_reason": completion.finish_reason,
        }
    )
    kept = texts.clean(document)
    return kept, kept == document


def _body_json(call: Call, texts: TextPolicy) -> str | None:
    """Return the body that was sent as JSON, without messages that are those of the call.

    They would double the row.
    """
    body = None if call.completion is None else call.completion.body_sent
    if body and texts.content:
        turns = [{"role": turn.role, "content": turn.content} for turn in call.messages]
        if body.get("messages") == turns:
            body = {**body, "messages": None}
    return texts.json(body)


def _encodable(text: str) -> str:
    """Return the text as UTF-8 can hold it: a lone surrogate becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()
