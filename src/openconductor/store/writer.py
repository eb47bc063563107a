"""Batches of events, written to SQLite in one transaction each. For the writer's thread alone.

Many rows go into one statement: each statement hands the interpreter to the busy event loop and has
to wait to get it back, so that a statement for every row would be slower than the disk.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from openconductor.events import Answered, Asked, CallEnded, Event, RoundEnded, StepEnded
from openconductor.privacy import Privacy
from openconductor.store import rows
from openconductor.store.rows import Row, SharedText, TextPolicy
from openconductor.store.serialisation import compact
from openconductor.store.sqlite_file import last_number
from openconductor.store.store import StoredRecord
from openconductor.types import Message


class Together(NamedTuple):
    """The events of one episode, which are kept in one commit."""

    events: Sequence[Event]


class Removal(NamedTuple):
    """The removal of an episode's texts, and of all records of some keys."""

    episode: str
    records: Sequence[str]


Item = Asked | CallEnded | StepEnded | RoundEnded | Answered | StoredRecord | Together | Removal

_UPDATE = (
    "ON CONFLICT (id) DO UPDATE SET (outcome, seconds, usage, error, answer) = "
    "(excluded.outcome, excluded.seconds, excluded.usage, excluded.error, excluded.answer)"
)
KEPT = Asked | CallEnded | StepEnded | RoundEnded | Answered
"""The events that are kept."""
_STATEMENTS = {
    "episode starts": "INSERT OR IGNORE INTO episodes {}",
    "whole episodes": "INSERT OR IGNORE INTO episodes {}",
    "calls": "INSERT INTO calls {}",
    "steps": "INSERT OR REPLACE INTO steps {}",
    "rounds": "INSERT OR REPLACE INTO rounds {}",
    "episode ends": f"INSERT INTO episodes {{}} {_UPDATE}",
    "texts": "INSERT INTO texts {}",
    "messages": "INSERT INTO messages {}",
    "records": "INSERT INTO outcomes {}",
}
"""The statement for each kind of row, in the order of writing; ``{}`` are the columns and rows."""
_REMOVALS = (
    "UPDATE episodes SET (question, answer, error) = (NULL, NULL, NULL) WHERE id = ?",
    "UPDATE episodes SET only_step = NULL WHERE id = ?",
    "UPDATE rounds SET (text, workflow, error) = (NULL, NULL, NULL) WHERE episode = ?",
    "UPDATE steps SET (subtask, error) = (NULL, NULL) WHERE episode = ?",
    "UPDATE calls SET (request, response, body_sent) = (NULL, NULL, NULL) WHERE episode = ?",
    "UPDATE calls SET (replayable, error) = (0, NULL) WHERE episode = ?",
)
"""They remove the texts of an episode; its numbers stay."""
_SIZES = (64, 16, 4, 1)  # rows in a statement
_REMEMBERED = 16_384  # messages whose numbers are kept, until all are forgotten
_HELD = 50_000_000  # characters of texts that are remembered, until all are forgotten


class BatchWriter:
    """Writes batches of items, each in a transaction of its own.

    Args:
        connection: the writer's.
        privacy: cleans every text.
        content: whether texts are written at all; hashes and numbers always are.
    """

    def __init__(self, connection: sqlite3.Connection, privacy: Privacy, *, content: bool) -> None:
        self._connection = connection
        self._privacy = privacy
        self._texts = TextPolicy(privacy, content)
        self._no_texts = TextPolicy(privacy, content=False)
        self._without_texts: set[str] = set()  # episodes that have not ended
        self._samples: dict[str, int] = {}  # by the id of an episode that has not ended
        self._numbers: dict[str | Message, int] = {}  # of messages that are in the file
        self._texts_held: dict[str, SharedText] = {}  # that are in the file
        self._characters = 0  # of both
        self._shared: dict[str, list[SharedText]] = {}  # of the question, by the episode's id
        self._last_message = last_number(connection, "messages")
        self._last_text = last_number(connection, "texts")
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._removals: list[Removal] = []

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit items, each with its time (seconds since 1970): then they are on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        is_full = len(self._numbers) > _REMEMBERED or self._characters > _HELD
        if self._privacy.refresh() or is_full:
            self.forget()
        self._rows.clear()
        self._removals.clear()
        for item, now in batch:
            self._add(item, now)
        self._connection.execute("BEGIN IMMEDIATE")
        for kind, statement in _STATEMENTS.items():
            self._insert(statement, self._rows[kind])
        for removal in self._removals:
            for statement in _REMOVALS:
                self._connection.execute(statement, (removal.episode,))
            for key in removal.records:
                self._connection.execute("DELETE FROM outcomes WHERE key = ?", (key,))
        self._connection.execute("COMMIT")

    def _add(self, item: Item, now: float) -> None:
        """Add the rows of an item to those of the batch."""
        if isinstance(item, Together):
            self._add_together(item.events, now)
            return
        if isinstance(item, Removal):
            self._removals.append(item)
            return
        texts = self._policy(item)
        if isinstance(item, CallEnded):
            self._rows["calls"].append(self._call_row(item, texts))
        elif isinstance(item, StepEnded):
            row = rows.step_row(item.episode, item.round, item.step, item.result, texts)
            self._rows["steps"].append(row)
        elif isinstance(item, RoundEnded):
            self._rows["rounds"].append(rows.round_row(item, texts))
            self._rows["steps"] += rows.silent_step_rows(item, texts)
        elif isinstance(item, Answered):
            self._samples.pop(item.episode, None)
            self._shared.pop(item.episode, None)
            self._without_texts.discard(item.episode)
            self._rows["episode ends"].append(rows.episode_end(item, texts))
        elif isinstance(item, Asked):
            self._samples[item.episode] = item.sample
            turns = self._turns(item, texts)
            self._rows["episode starts"].append(rows.episode_start(item, now, turns, texts))
        else:
            self._rows["records"].append(rows.record_row(item, texts))

    def _add_together(self, events: Sequence[Event], now: float) -> None:
        """Add the rows of an episode's events, the last of which happened at ``now``."""
        only_step = rows.only_step_row(events, self._policy(events[0]))
        for event in events:
            if only_step is not None and isinstance(event, StepEnded | RoundEnded):
                continue
            if isinstance(event, KEPT):
                self._add(event, now - (events[-1].at - event.at))
        if only_step is not None:
            start = self._rows["episode starts"].pop()
            end = self._rows["episode ends"].pop()
            whole = {**start, **end, "only_step": compact(only_step)}
            self._rows["whole episodes"].append(whole)

    def _policy(self, item: Event | StoredRecord) -> TextPolicy:
        """Return which texts of an item are kept."""
        if isinstance(item, StoredRecord):
            return self._texts
        if isinstance(item, Asked) and not item.keep_texts:
            self._without_texts.add(item.episode)
        return self._no_texts if item.episode in self._without_texts else self._texts

    def _turns(self, event: Asked, texts: TextPolicy) -> list[int] | None:
        """Return the numbers of a question's messages; None: it is a text, or not kept.

        Their long texts are shared with the messages of the episode's calls.
        """
        if not texts.content:
            return None
        shared = self._shared[event.episode] = []
        if isinstance(event.question, str):
            question = Message("user", event.question)
            shared += self._share(rows.long_texts(question, self._texts))
            return None
        numbers: list[int] = []
        for message in event.question:
            own = self._share(rows.long_texts(message, self._texts))
            numbers.append(self._number(message, own))
            shared += own
        return numbers

    def _call_row(self, event: CallEnded, texts: TextPolicy) -> Row:
        call = event.call
        shared: list[SharedText] = []
        numbers: list[int] = []
        if texts.content:
            shared += self._shared.get(event.episode, ())
            numbers = [self._number(message, shared) for message in call.messages]
            if call.sampling.body:
                shared += self._share(rows.long_settings(call.sampling, self._texts))
        sample = self._samples.get(event.episode)
        return rows.call_row(event, sample, numbers, texts, shared)

    def _number(self, message: Message, shared: Sequence[SharedText]) -> int:
        """Return the number of a message, which is written with this batch if it is new."""
        known_as = compact(message) if message.parts else message  # parts cannot be hashed
        number = self._numbers.get(known_as)
        if number is None:
            self._last_message += 1
            self._numbers[known_as] = number = self._last_message
            self._characters += len(message.content)
            self._rows["messages"].append(rows.message_row(number, message, self._texts, shared))
        return number

    def _share(self, texts: Sequence[str]) -> list[SharedText]:
        """Return texts with their numbers; those that are new are written with this batch."""
        shared: list[SharedText] = []
        for text in texts:
            held = self._texts_held.get(text)
            if held is None:
                self._last_text += 1
                self._texts_held[text] = held = (text, self._last_text)
                self._characters += len(text)
                self._rows["texts"].append({"number": self._last_text, "text": text})
            shared.append(held)
        return shared

    def forget(self) -> None:
        """Forget which messages and texts are in the file: they are written again."""
        self._numbers.clear()
        self._texts_held.clear()
        self._shared.clear()
        self._characters = 0

    def _insert(self, statement: str, added: Sequence[Row]) -> None:
        done = 0
        for size in _SIZES:
            while len(added) - done >= size:
                chunk = added[done : done + size]
                values = chain.from_iterable(row.values() for row in chunk)
                self._connection.execute(_sql(statement, tuple(chunk[0]), size), tuple(values))
                done += size


@functools.cache
def _sql(statement: str, columns: Sequence[str], size: int) -> str:
    """Return the SQL that adds ``size`` rows with these columns."""
    marks = ", ".join("?" * len(columns))
    values = ", ".join([f"({marks})"] * size)
    return statement.format(f"({', '.join(columns)}) VALUES {values}")
