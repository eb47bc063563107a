"""Events become rows, and a batch of rows one transaction. In: what the journal's sink was handed. Out: a commit.

Rows go in many a statement: each statement hands the interpreter to the busy event loop and has to
wait to get it back, so that one statement a row would be slower than the disk. For the writer's
thread alone.

Not covered: Planned, StepStarted and StepText (rounds and steps are written when they have ended),
and when anything is written (``journal``).
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

from openconductor.errors import OpenConductorError
from openconductor.events import Answered, Asked, CallEnded, RoundEnded, StepEnded
from openconductor.privacy import Privacy
from openconductor.store.keys import key_of, request_hash
from openconductor.store.reading import JournaledOutcome
from openconductor.store.serialisation import compact, outcome_of, plain
from openconductor.types import Completion, Message, Sampling, StepResult

Item = Asked | CallEnded | StepEnded | RoundEnded | Answered | JournaledOutcome
Kind = type[Item | Message]
Row = tuple[str | int | float | None, ...]

_STATEMENTS = {
    Asked: "INSERT OR IGNORE INTO episodes (id, sample, started, question) VALUES (?)",
    CallEnded: "INSERT INTO calls VALUES (?)",
    StepEnded: "INSERT OR REPLACE INTO steps VALUES (?)",
    RoundEnded: "INSERT OR REPLACE INTO rounds VALUES (?)",
    Answered: "INSERT INTO episodes (id, outcome, seconds, usage, error, answer) VALUES (?) "
    "ON CONFLICT (id) DO UPDATE SET (outcome, seconds, usage, error, answer) = "
    "(excluded.outcome, excluded.seconds, excluded.usage, excluded.error, excluded.answer)",
    Message: "INSERT INTO messages VALUES (?)",
    JournaledOutcome: "INSERT INTO outcomes (key, written, record) VALUES (?)",
}
_SIZES = (64, 16, 4, 1)  # rows a statement
_REMEMBERED = 4_096  # messages whose numbers are known, until these are forgotten
_SUCCESSES = (
    "answered",
    "cut",
    "refused",
)  # of a call whose completion came: it is not paid for again


class BatchWriter:
    """Writes batches, each in a transaction of its own.

    Args:
        connection: the writer's.
        privacy: cleans every text.
        content: whether texts are written at all; hashes and numbers always are.
    """

    def __init__(self, connection: sqlite3.Connection, privacy: Privacy, *, content: bool) -> None:
        self._connection = connection
        self._privacy = privacy
        self._content = content
        self._samples: dict[str, int] = {}  # of the episodes under way
        self._numbers: dict[str | Message, int] = {}  # of messages that are in the file
        self._last: int = connection.execute(
            "SELECT coalesce(max(number), 0) FROM messages"
        ).fetchone()[0]
        self._new: list[Row] = []  # messages

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit a batch of items, each with its moment in seconds since 1970: when this returns, it is on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        if self._privacy.refresh() or len(self._numbers) > _REMEMBERED:
            self._numbers.clear()
        self._new = []
        rows: defaultdict[Kind, list[Row]] = defaultdict(list, {Message: self._new})
        for item, now in batch:
            for kind, row in self._rows(item, now):
                rows[kind].append(row)
        self._connection.execute("BEGIN IMMEDIATE")
        for kind, statement in _STATEMENTS.items():
            done = 0
            for size in _SIZES:
                while len(rows[kind]) - done >= size:
                    chunk = rows[kind][done : done + size]
                    values = ", ".join([f"({', '.join('?' * len(chunk[0]))})"] * size)
                    self._connection.execute(
                        statement.replace("(?)", values), tuple(chain.from_iterable(chunk))
                    )
                    done += size
        self._connection.execute("COMMIT")

    def _rows(self, item: Item, now: float) -> Iterator[tuple[Kind, Row]]:
        """What is written for an item, and as what."""
        if isinstance(item, CallEnded):
            yield CallEnded, self._call(item)
        elif isinstance(item, StepEnded):
            yield StepEnded, self._step(item.episode, item.round, item.step, item.result)
        elif isinstance(item, RoundEnded):
            yield RoundEnded, self._round(item)
            transcript = item.outcome.transcript
            for index, result in enumerate(transcript.results if transcript is not None else ()):
                if (
                    result.completion is None and result.error is None
                ):  # not reached, or nobody was told about its end
                    yield StepEnded, self._step(item.episode, item.round, index, result)
        elif isinstance(item, Answered):
            one = item.outcome
            self._samples.pop(item.episode, None)
            ended = (
                "answered" if one.answer is not None else "failed",
                one.seconds,
                compact(one.usage),
            )
            yield Answered, (item.episode, *ended, self._error(one.error), self._text(one.answer))
        elif isinstance(item, Asked):
            self._samples[item.episode] = item.sample
            yield Asked, (item.episode, item.sample, now, self._json(item.question))
        else:
            yield (
                JournaledOutcome,
                (self._name(item.key), item.written, self._cleaned(compact(item.record))),
            )

    def _step(self, episode: str, index: int, number: int, result: StepResult) -> Row:
        step, outcome = result.step, outcome_of(result)
        return (
            *(
                episode,
                index,
                number,
                step.worker,
                result.asked if outcome == "answered" else None,
                outcome,
            ),
            *(result.started, result.ended, compact(result.usage), self._error(result.error)),
            *(compact(step.access), self._text(step.subtask)),
        )

    def _round(self, event: RoundEnded) -> Row:
        one, workflow, accepted = event.outcome, None, None
        if one.workflow is not None:
            steps = (
                one.workflow.steps
                if self._content
                else [replace(step, subtask="") for step in one.workflow]
            )
            workflow, accepted = self._cleaned(compact({"steps": steps})), one.accepted
        said = self._text(one.completion.text) if one.completion is not None else None
        began = (event.episode, event.round, event.at, one.workflow is not None, accepted)
        return (*began, self._error(one.error), workflow, said)

    def _call(self, event: CallEnded) -> Row:
        call, key = event.call, None
        asked = request_hash(call.messages, call.sampling)
        if (
            event.episode in self._samples
        ):  # where it began unheard, which sample it is is not known
            place = (self._samples[event.episode], event.round, event.step)
            key = key_of(asked, call.worker, call.identity, place)
        response, whole, body = self._response(call.messages, call.completion)
        replayable = key is not None and whole and not call.replayed and call.outcome in _SUCCESSES
        return (
            *(None, event.episode, event.round, event.step, call.attempt, self._name(call.worker)),
            *(
                self._name(call.identity),
                call.outcome,
                call.nested,
                call.replayed,
                replayable,
                key,
                asked,
            ),
            *(
                call.started,
                compact(call.usage),
                None if call.price is None else compact(call.price),
            ),
            self._error(call.error),
            *(self._request(call.messages, call.sampling), response, body),
        )

    def _request(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        """What was asked, as JSON in which numbers stand for the messages; these are written if they are new."""
        if not self._content:
            return None
        numbers: list[int] = []
        for message in messages:
            known_as = compact(message) if message.parts else message  # parts cannot be hashed
            if known_as not in self._numbers:
                self._last += 1
                self._numbers[known_as] = self._last
                self._new.append((self._last, self._cleaned(compact(message))))
            numbers.append(self._numbers[known_as])
        return compact(
            {"messages": numbers, "sampling": json.loads(self._cleaned(compact(sampling)))}
        )

    def _response(
        self, asked: Sequence[Message], said: Completion | None
    ) -> tuple[str | None, bool, str | None]:
        """What came as JSON, whether it is kept as it came, and the body that was sent.

        The body's messages are left out where these are the request's: they would double every row.
        """
        if said is None or not self._content:
            return None, False, None
        parts = {"text": said.text, "reasoning": said.reasoning, "tool_calls": said.tool_calls}
        came = compact({**parts, "finish_reason": said.finish_reason})
        kept, body = self._cleaned(came), said.body_sent
        if body and body.get("messages") == [
            {"role": turn.role, "content": turn.content} for turn in asked
        ]:
            body = {**body, "messages": None}
        return kept, kept == came, self._json(body)

    def _error(self, error: OpenConductorError | None) -> str | None:
        """The error as JSON; its message, which may echo what was sent, only where content is kept."""
        if error is None:
            return None
        known = cast("dict[str, object]", plain(error))
        return self._cleaned(compact(known if self._content else {**known, "message": None}))

    def _json(self, value: object) -> str | None:
        return self._cleaned(compact(value)) if self._content and value is not None else None

    def _cleaned(self, document: str) -> str:
        """A JSON document without what must not be written."""
        if self._privacy.holds_nothing(document):
            return document
        return compact(self._privacy.value(json.loads(document)))

    def _text(self, text: str | None) -> str | None:
        return _encodable(self._privacy.text(text)) if self._content and text is not None else None

    def _name(self, text: str) -> str:
        return _encodable(self._privacy.scrub(text))


def _encodable(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate is written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()
