"""Events become rows, and a batch of rows one transaction. In: what the journal's sink was handed. Out: a commit.

Rows go in many a statement: each statement hands the interpreter to the busy event loop and has to wait to get it back,
so that one statement a row would be slower than the disk. For the writer's thread alone.

Not covered: Planned, StepStarted and StepText (rounds and steps are written when they have ended), and when anything
is written (``journal``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, cast

from openconductor.errors import OpenConductorError
from openconductor.events import Answered, Asked, CallEnded, RoundEnded, StepEnded
from openconductor.journal.keys import digest, key_of, request_hash, set_fields
from openconductor.privacy import Privacy
from openconductor.serialisation import compact, outcome_of, plain
from openconductor.types import Call, Completion, StepResult

Row = tuple[str | int | float | bytes | None, ...]

_ASKED = "INSERT OR IGNORE INTO episodes (id, sample, started, question) VALUES "
_ANSWERED = "INSERT INTO episodes (id, outcome, seconds, usage, error, answer) VALUES "
_TEXTS = "INSERT INTO texts (number, text) VALUES "
_CALLS = (
    "INSERT INTO calls (episode, round, step, attempt, worker, identity, outcome, nested, replayed, replayable, key, "
    "request_hash, started, usage, price, error, request, response) VALUES "
)
_STEPS = "INSERT OR REPLACE INTO steps VALUES "
_ROUNDS = "INSERT OR REPLACE INTO rounds VALUES "
_OUTCOMES = "INSERT INTO outcomes (key, written, record) VALUES "
_ORDER = (_ASKED, _TEXTS, _CALLS, _STEPS, _ROUNDS, _ANSWERED, _OUTCOMES)
_OTHERWISE = {
    _ANSWERED: " ON CONFLICT (id) DO UPDATE SET (outcome, seconds, usage, error, answer) = "
    "(excluded.outcome, excluded.seconds, excluded.usage, excluded.error, excluded.answer)"
}
_SIZES = (64, 16, 4, 1)  # rows a statement

_SUCCESSES = ("answered", "cut", "refused")  # of a call whose completion came: it is not paid for again
_REMEMBERED = 16_000_000  # characters of texts whose numbers are known, until these are forgotten


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a question, under its key; ``written`` in seconds since 1970."""

    key: str
    written: float
    record: Mapping[str, object]


Item = tuple[Asked, float] | CallEnded | StepEnded | RoundEnded | Answered | Kept
"""What is written; an Asked comes with its moment, in seconds since 1970."""


class _Stored(NamedTuple):
    """A text's place: its number (None: not kept), the digest of what it was, and whether it is that in the file."""

    number: int | None
    digest: str
    whole: bool


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
        self._stored: dict[str, _Stored] = {}
        self._characters = 0
        self._next: int = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM texts").fetchone()[0]
        self._rows: dict[str, list[Row]] = {}

    def write(self, batch: Sequence[Item]) -> None:
        """Commit a batch: when this returns, it is on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        if self._privacy.refresh():
            self._stored.clear()
        self._rows = {into: [] for into in _ORDER}
        for item in batch:
            self._add(item)
        self._connection.execute("BEGIN IMMEDIATE")
        for into, rows in self._rows.items():
            done = 0
            for size in _SIZES:
                while len(rows) - done >= size:
                    values = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * size)
                    chunk = tuple(chain.from_iterable(rows[done : done + size]))
                    self._connection.execute(f"{into}{values}{_OTHERWISE.get(into, '')}", chunk)
                    done += size
        self._connection.execute("COMMIT")

    def _add(self, item: Item) -> None:
        if isinstance(item, CallEnded):
            self._rows[_CALLS].append(self._call(item))
        elif isinstance(item, StepEnded):
            self._rows[_STEPS].append(self._step(item.episode, item.round, item.step, item.result))
        elif isinstance(item, RoundEnded):
            self._rows[_ROUNDS].append(self._round(item))
            transcript = item.outcome.transcript
            for index, result in enumerate(transcript.results if transcript is not None else ()):
                if result.completion is None and result.error is None:  # not reached, or nobody was told about its end
                    self._rows[_STEPS].append(self._step(item.episode, item.round, index, result))
        elif isinstance(item, Answered):
            one = item.outcome
            self._samples.pop(item.episode, None)
            ended = ("answered" if one.answer is not None else "failed", one.seconds, compact(one.usage))
            self._rows[_ANSWERED].append((item.episode, *ended, self._error(one.error), self._text(one.answer)))
        elif isinstance(item, Kept):
            self._rows[_OUTCOMES].append(
                (_name(self._privacy.scrub(item.key)), item.written, self._cleaned(item.record))
            )
        else:
            asked, started = item
            self._samples[asked.episode] = asked.sample
            question = self._cleaned(asked.question) if self._content else None
            self._rows[_ASKED].append((asked.episode, asked.sample, started, question))

    def _step(self, episode: str, index: int, number: int, result: StepResult) -> Row:
        step, outcome = result.step, outcome_of(result)
        by = step.worker if result.worker is None else result.worker
        return (
            *(episode, index, number, step.worker, by if outcome == "answered" else None, outcome),
            *(result.started, result.ended, compact(result.usage), self._error(result.error)),
            *(compact(step.access), self._text(step.subtask)),
        )

    def _round(self, event: RoundEnded) -> Row:
        one, workflow = event.outcome, None
        if one.workflow is not None:
            steps = one.workflow.steps if self._content else [replace(step, subtask="") for step in one.workflow]
            workflow = self._cleaned({"steps": steps})
        accepted = None if one.workflow is None else one.accepted
        said = self._text(one.completion.text) if one.completion is not None else None
        began = (event.episode, event.round, event.at, one.workflow is not None, accepted)
        return (*began, self._error(one.error), workflow, said)

    def _call(self, event: CallEnded) -> Row:
        call = event.call
        asked, key = request_hash(call.messages, call.sampling, lambda text: self._place(text).digest), None
        if event.episode in self._samples:  # where it began unheard, which sample it is is not known
            place = (self._samples[event.episode], event.round, event.step)
            key = key_of(asked, call.worker, call.identity, place)
        response, whole = self._response(call, call.completion)
        replayable = key is not None and whole and not call.replayed and call.outcome in _SUCCESSES
        scrub = self._privacy.scrub
        return (
            *(event.episode, event.round, event.step, call.attempt, _name(scrub(call.worker))),
            *(_name(scrub(call.identity)), call.outcome, call.nested, call.replayed, replayable, key, asked),
            *(call.started, compact(call.usage), None if call.price is None else compact(call.price)),
            *(self._error(call.error), self._request(call), response),
        )

    def _request(self, call: Call) -> str | None:
        """What was asked, as JSON in which numbers stand for the turns' texts."""
        if not self._content:
            return None
        turns = [
            {"role": turn.role, "content": self._place(turn.content).number}
            | ({"parts": self._clean(turn.parts)} if turn.parts else {})
            for turn in call.messages
        ]
        return compact({"messages": turns, "sampling": self._clean(set_fields(call.sampling))})

    def _response(self, call: Call, said: Completion | None) -> tuple[str | None, bool]:
        """What came, as JSON in which numbers stand for texts; and whether it is kept as it came, word by word.

        A sent body's messages are left out where these are the request's: they would double every row.
        """
        if said is None or not self._content:
            return None, False
        body = said.body_sent
        if body and body.get("messages") == [{"role": turn.role, "content": turn.content} for turn in call.messages]:
            body = {**body, "messages": None}
        text, reasoning = self._place(said.text), self._place(said.reasoning)
        tools = self._clean(said.tool_calls)
        whole = text.whole and reasoning.whole and (tools is said.tool_calls or tools == plain(said.tool_calls))
        response = {"text": text.number, "reasoning": reasoning.number, "finish_reason": said.finish_reason}
        rest = {"tool_calls": tools, "body_sent": self._clean(body)}
        return compact(response | rest), whole

    def _place(self, text: str) -> _Stored:
        """The text's place in the file, where it is written if it is new there (or was forgotten here)."""
        stored = self._stored.get(text)
        if stored is None:
            self._characters += len(text)
            if self._characters > _REMEMBERED:
                self._stored.clear()
                self._characters = len(text)
            number, cleaned = None, text
            if self._content:
                number, self._next, cleaned = self._next, self._next + 1, self._privacy.text(text)
                self._rows[_TEXTS].append((number, _packed(cleaned)))
            stored = self._stored[text] = _Stored(number, digest(text), cleaned == text)
        return stored

    def _text(self, text: str | None) -> str | None:
        return _name(self._privacy.text(text)) if self._content and text is not None else None

    def _clean(self, value: object) -> object:
        """The value itself where it holds nothing to clean; else in JSON's types, every text in it cleaned."""
        known = not value or self._privacy.holds_nothing(compact(value))
        return value if known else self._privacy.value(plain(value))

    def _cleaned(self, value: object) -> str:
        text = compact(value)
        return text if self._privacy.holds_nothing(text) else compact(self._privacy.value(plain(value)))

    def _error(self, error: OpenConductorError | None) -> str | None:
        """The error as JSON; its message, which may echo what was sent, only where content is kept."""
        if error is None:
            return None
        known = cast("dict[str, object]", plain(error))
        return self._cleaned(known if self._content else {**known, "message": None})


def _name(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate is written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _packed(text: str) -> str | bytes:
    """The text as SQLite can hold it, nothing lost: one with a lone surrogate as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
