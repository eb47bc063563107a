"""Batches of events, written to SQLite in one transaction each. For the writer's thread alone.

Many rows go into one statement: each statement hands the interpreter to the busy event loop and has
to wait to get it back, so that a statement for every row would be slower than the disk.
"""

from __future__ import annotations

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
_TARGETS: dict[type[Row], tuple[str, str]] = {
    rows.EpisodeStart: ("INSERT OR IGNORE INTO episodes", ""),
    rows.CallRow: ("INSERT INTO calls", ""),
    rows.StepRow: ("INSERT OR REPLACE INTO steps", ""),
    rows.RoundRow: ("INSERT OR REPLACE INTO rounds", ""),
    rows.EpisodeEnd: ("INSERT INTO episodes", _UPDATE),
    rows.MessageRow: ("INSERT INTO messages", ""),
    rows.RecordRow: ("INSERT INTO outcomes", ""),
}
"""The beginning and the end of the statement for each kind of row, in the order of writing."""
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
        self._rows: defaultdict[type[Row], list[Row]] = defaultdict(list)

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
        for kind, (insert, conflict) in _TARGETS.items():
            columns = ", ".join(kind._fields)
            values = f"({', '.join('?' * len(kind._fields))})"
            self._insert(f"{insert} ({columns}) VALUES", values, conflict, self._rows[kind])
        self._connection.execute("COMMIT")

    def _add(self, item: Item, now: float) -> None:
        """Add the rows of an item to those of the batch."""
        texts = self._texts
        added: Sequence[Row]
        if isinstance(item, CallEnded):
            numbers: list[int] = []
            if texts.content:
                numbers = [self._number(message) for message in item.call.messages]
            added = [rows.call_row(item, self._samples.get(item.episode), numbers, texts)]
        elif isinstance(item, StepEnded):
            added = [rows.step_row(item.episode, item.round, item.step, item.result, texts)]
        elif isinstance(item, RoundEnded):
            added = rows.round_rows(item, texts)
        elif isinstance(item, Answered):
            self._samples.pop(item.episode, None)
            added = [rows.episode_end(item, texts)]
        elif isinstance(item, Asked):
            self._samples[item.episode] = item.sample
            added = [rows.episode_start(item, now, texts)]
        else:
            added = [rows.record_row(item, texts)]
        for row in added:
            self._rows[type(row)].append(row)

    def _number(self, message: Message) -> int:
        """Return the number of a message, which is written with this batch if it is new."""
        known_as = compact(message) if message.parts else message  # parts cannot be hashed
        number = self._numbers.get(known_as)
        if number is None:
            self._last_number += 1
            self._numbers[known_as] = number = self._last_number
            self._rows[rows.MessageRow].append(rows.message_row(number, message, self._texts))
        return number

    def _insert(self, insert: str, values: str, conflict: str, added: Sequence[Row]) -> None:
        done = 0
        for size in _SIZES:
            while len(added) - done >= size:
                statement = f"{insert} {', '.join([values] * size)} {conflict}"
                chunk = added[done : done + size]
                self._connection.execute(statement, tuple(chain.from_iterable(chunk)))
                done += size
