"""Events as rows: pure functions from an event to the rows that a store keeps of it.

Each kind of row is a NamedTuple whose fields are the columns; values with parts are JSON.
``TextPolicy`` decides which texts are kept, and cleans them. Planned, StepStarted and StepText
have no rows: rounds and steps are written when they have ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from openconductor.errors import OpenConductorError
from openconductor.events import Answered, Asked, CallEnded, RoundEnded
from openconductor.privacy import Privacy
from openconductor.store.keys import hash_text, key_of, request_hash
from openconductor.store.serialisation import compact, outcome_of, plain
from openconductor.store.store import SUCCESSES, StoredRecord
from openconductor.types import Call, Completion, Message, StepResult, Workflow

_NAME_LENGTH = 20  # digits of a message's hash, 80 bits: a collision is likely after 2**40 messages


class EpisodeStart(NamedTuple):
    """The part of an episode's row that is known when it begins."""

    id: str
    sample: int
    started: float
    question: str | None
    workers: str


class EpisodeEnd(NamedTuple):
    """The part of an episode's row that is known when it ends."""

    id: str
    outcome: str
    seconds: float
    usage: str
    error: str | None
    answer: str | None


class RoundRow(NamedTuple):
    """A round that has ended; ``text`` is what the Conductor wrote."""

    episode: str
    round: int
    ended: float
    valid: bool
    accepted: bool | None
    error: str | None
    workflow: str | None
    text: str | None


class StepRow(NamedTuple):
    """A step; ``answered_by`` is None where it has no answer."""

    episode: str
    round: int
    step: int
    worker: int
    answered_by: int | None
    outcome: str
    started: float | None
    ended: float | None
    usage: str
    error: str | None
    access: str
    subtask: str | None


class CallRow(NamedTuple):
    """An attempt at a call; ``request`` has names in place of its messages."""

    episode: str
    round: int
    step: int | None
    attempt: int
    worker: str
    identity: str
    outcome: str
    nested: bool
    replayed: bool
    replayable: bool
    key: str | None
    request_hash: str
    started: float
    usage: str
    price: str | None
    error: str | None
    request: str | None
    response: str | None
    body_sent: str | None


class MessageRow(NamedTuple):
    """A message: its number in this store, its JSON, and its hash, its name in any store."""

    number: int
    message: str
    hash: str


class RecordRow(NamedTuple):
    """A record that was kept by key."""

    key: str
    written: float
    record: str


Row = EpisodeStart | EpisodeEnd | RoundRow | StepRow | CallRow | MessageRow | RecordRow


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


def episode_start(event: Asked, now: float, texts: TextPolicy) -> EpisodeStart:
    """Return the row of an episode that began at ``now``, in seconds since 1970."""
    return EpisodeStart(
        id=event.episode,
        sample=event.sample,
        started=now,
        question=texts.json(event.question),
        workers=texts.clean(compact(event.workers)),
    )


def episode_end(event: Answered, texts: TextPolicy) -> EpisodeEnd:
    """Return the row of an episode that has ended."""
    episode = event.outcome
    return EpisodeEnd(
        id=event.episode,
        outcome="failed" if episode.answer is None else "answered",
        seconds=episode.seconds,
        usage=compact(episode.usage),
        error=texts.error(episode.error),
        answer=texts.text(episode.answer),
    )


def round_rows(event: RoundEnded, texts: TextPolicy) -> list[RoundRow | StepRow]:
    """Return the rows of a round that has ended: its own, and those of steps that no event told of.

    Such a step was not reached, or was cancelled.
    """
    ended = event.outcome
    workflow = ended.workflow
    rows: list[RoundRow | StepRow] = [
        RoundRow(
            episode=event.episode,
            round=event.round,
            ended=event.at,
            valid=workflow is not None,
            accepted=None if workflow is None else ended.accepted,
            error=texts.error(ended.error),
            workflow=None if workflow is None else _workflow_json(workflow, texts),
            text=None if ended.completion is None else texts.text(ended.completion.text),
        )
    ]
    if ended.transcript is not None:
        for index, result in enumerate(ended.transcript.results):
            if result.completion is None and result.error is None:
                rows.append(step_row(event.episode, event.round, index, result, texts))
    return rows


def step_row(
    episode: str, round_index: int, index: int, result: StepResult, texts: TextPolicy
) -> StepRow:
    """Return the row of a step."""
    step = result.step
    outcome = outcome_of(result)
    return StepRow(
        episode=episode,
        round=round_index,
        step=index,
        worker=step.worker,
        answered_by=result.asked if outcome == "answered" else None,
        outcome=outcome,
        started=result.started,
        ended=result.ended,
        usage=compact(result.usage),
        error=texts.error(result.error),
        access=compact(step.access),
        subtask=texts.text(step.subtask),
    )


def call_row(
    event: CallEnded, sample: int | None, names: Sequence[str | int], texts: TextPolicy
) -> CallRow:
    """Return the row of an attempt at a call.

    Args:
        event: the end of the call.
        sample: the sample of its episode; None: the episode's beginning was not seen, so that the
            call has no key.
        names: name the messages of the call, by hash (``message_row``) or by a number of the store.
        texts: cleans the texts.
    """
    call = event.call
    asked = request_hash(call.messages, call.sampling)
    key = None
    if sample is not None:
        key = key_of(asked, call.worker, call.identity, (sample, event.round, event.step))
    response, is_whole = _response_json(call.completion, texts)
    request = None
    if texts.content:
        sampling = texts.clean(compact(call.sampling))
        request = f'{{"messages":{compact(names)},"sampling":{sampling}}}'
    paid_here = call.outcome in SUCCESSES and not call.replayed
    return CallRow(
        episode=event.episode,
        round=event.round,
        step=event.step,
        attempt=call.attempt,
        worker=texts.name(call.worker),
        identity=texts.name(call.identity),
        outcome=call.outcome,
        nested=call.nested,
        replayed=call.replayed,
        replayable=paid_here and is_whole and key is not None,
        key=key,
        request_hash=asked,
        started=call.started,
        usage=compact(call.usage),
        price=None if call.price is None else compact(call.price),
        error=texts.error(call.error),
        request=request,
        response=response,
        body_sent=_body_json(call, texts),
    )


def message_row(number: int, message: Message, texts: TextPolicy) -> MessageRow:
    """Return the row of a message, named by the digest of what is kept of it."""
    document = texts.clean(compact(message))
    return MessageRow(number, document, hash_text(document)[:_NAME_LENGTH])


def record_row(record: StoredRecord, texts: TextPolicy) -> RecordRow:
    """Return the row of a record."""
    value = texts.clean(compact(record.value))
    return RecordRow(texts.name(record.key), record.written, value)


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
