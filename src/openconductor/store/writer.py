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

from openconductor.events import Answered, Asked, CallEnded, RoundEnded, StepEnded
from openconductor.privacy import Privacy
from openconductor.store import rows
from openconductor.store.rows import Row, TextPolicy
from openconductor.store.serialisation import compact
from openconductor.store.store import StoredRecord
from openconductor.types import Message

Item = Asked | CallEnded | StepEnded | RoundEnded | Answered | StoredRecord

_UPDATE = (
    "ON CONFLICT (id) DO UPDATE SET (outcome, seconds, usage, error, answer) = "
    "(excluded.outcome, excluded.seconds, excluded.usage, excluded.error, excluded.answer)"
)
_STATEMENTS = {
    "episode starts": "INSERT OR IGNORE INTO episodes {}",
    "calls": "INSERT INTO calls {}",
    "steps": "INSERT OR REPLACE INTO steps {}",
    "rounds": "INSERT OR REPLACE INTO rounds {}",
    "episode ends": f"INSERT INTO episodes {{}} {_UPDATE}",
    "messages": "INSERT INTO messages {}",
    "records": "INSERT INTO outcomes {}",
}
"""The statement for each kind of row, in the order of writing; ``{}`` are the columns and rows."""
_SIZES = (64, 16, 4, 1)  # rows in a statement
_REMEMBERED = 4_096  # messages whose numbers are kept, until all are forgotten


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
        self._samples: dict[str, int] = {}  # by the id of an episode that has not ended
        self._numbers: dict[str | Message, int] = {}  # of messages that are in the file
        last = connection.execute("SELECT coalesce(max(number), 0) FROM messages").fetchone()
        self._last_number: int = last[0]
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit items, each with its time (seconds since 1970): then they are on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        if self._privacy.refresh() or len(self._numbers) > _REMEMBERED:
            self._numbers.clear()
        self._rows.clear()
        for item, now in batch:
            self._add(item, now)
        self._connection.execute("BEGIN IMMEDIATE")
        for kind, statement in _STATEMENTS.items():
            self._insert(statement, self._rows[kind])
        self._connection.execute("COMMIT")

    def _add(self, item: Item, now: float) -> None:
        """Add the rows of an item to those of the batch."""
        texts = self._texts
        if isinstance(item, CallEnded):
            numbers: list[int] = []
            if texts.content:
                numbers = [self._number(message) for message in item.call.messages]
            sample = self._samples.get(item.episode)
            self._rows["calls"].append(rows.call_row(item, sample, numbers, texts))
        elif isinstance(item, StepEnded):
            row = rows.step_row(item.episode, item.round, item.step, item.result, texts)
            self._rows["steps"].append(row)
        elif isinstance(item, RoundEnded):
            self._rows["rounds"].append(rows.round_row(item, texts))
            self._rows["steps"] += rows.silent_step_rows(item, texts)
        elif isinstance(item, Answered):
            self._samples.pop(item.episode, None)
            self._rows["episode ends"].append(rows.episode_end(item, texts))
        elif isinstance(item, Asked):
            self._samples[item.episode] = item.sample
            self._rows["episode starts"].append(rows.episode_start(item, now, texts))
        else:
            self._rows["records"].append(rows.record_row(item, texts))

    def _number(self, message: Message) -> int:
        """Return the number of a message, which is written with this batch if it is new."""
        known_as = compact(message) if message.parts else message  # parts cannot be hashed
        number = self._numbers.get(known_as)
        if number is None:
            self._last_number += 1
            self._numbers[known_as] = number = self._last_number
            self._rows["messages"].append(rows.message_row(number, message, self._texts))
        return number

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
