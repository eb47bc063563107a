"""The store in one SQLite file: everything that is paid for, written as it happens.

The file survives ``kill -9`` and a full disk, and can be read while it is written.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain, count
from pathlib import Path
from typing import Literal

from openconductor.privacy import Privacy
from openconductor.store.reader import JournalReader
from openconductor.store.rows import Row
from openconductor.store.sink import QueuedSink, check_content
from openconductor.store.sqlite.retention import prune_for_ever
from openconductor.store.sqlite.sqlite_file import last_number, lock, open_beside, open_for_writing
from openconductor.store.store import RecordChange
from openconductor.store.writer import ADDED, EPISODE_END, REMOVALS, Item, RowBuilder

_BEGINNINGS = {
    "episode starts": "INSERT OR IGNORE",
    "whole episodes": "INSERT OR IGNORE",
    "steps": "INSERT OR REPLACE",
    "rounds": "INSERT OR REPLACE",
}
_SIZES = (64, 16, 4, 1)  # rows in a statement


class Journal(QueuedSink, JournalReader):
    """A store in one SQLite file; an ``on_event`` sink and a context manager.

    A file has one writer at a time. Reading it returns what is on the disk.

    Args:
        path: the file; a new one is created.
        content: ``"none"`` keeps questions, messages, subtasks, responses, answers and error
            messages out of it. Hashes, numbers and names stay, and no completion can be replayed.
        redact: changes each text before it is written, on the journal's own thread. A response that
            it changed is not replayed, because what came is no longer there.
        keep_days: removes episodes that began longer ago, in the background. None: nothing is
            removed. The space is used again; ``openconductor store prune`` gives it back.

    Raises:
        ConfigError: ``content`` has another value.
        JournalError: the file cannot be written, is not a journal, has a newer version, or has
            another writer.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        content: Literal["full", "none"] = "full",
        redact: Callable[[str], str] | None = None,
        keep_days: float | None = None,
    ) -> None:
        self.keeps_texts = check_content(content)
        path = Path(path)
        with ExitStack() as undone:
            self._lock = undone.enter_context(closing(lock(path)))
            connection = undone.enter_context(closing(open_for_writing(path)))
            super().__init__(path)
            undone.pop_all()
        privacy = Privacy(redact)
        self._start(
            _SqliteWriter(connection, privacy, content=self.keeps_texts, keep_days=keep_days)
        )

    @classmethod
    def reading(cls, path: str | Path) -> JournalReader:
        """Open a journal only to read it; its writer may continue meanwhile.

        Raises:
            JournalError: it cannot be opened, is not a journal, or has a newer version.
        """
        return JournalReader(path)

    def change_record(self, key: str, change: RecordChange) -> None:
        """Replace a record by what ``change`` makes of it, in one step among all processes."""
        from openconductor.store.sqlite.file_records import change_file_record

        with closing(open_beside(self.path)) as connection:
            change_file_record(connection, self.path, key, change)

    def close(self) -> None:
        """Write what is left, and release the file; closing twice is allowed.

        Raises:
            JournalError: the journal had failed, or fails now.
        """
        # The reading connection first: the last to close moves the log into the file, and that
        # must be the writer.
        super().close()
        self._stop()
        self._lock.close()
        self._check_end()


class _SqliteWriter:
    """Writes batches of items to SQLite, each in a transaction of its own.

    Many rows go into one statement: each statement hands the interpreter to the busy event loop and
    has to wait to get it back, so that a statement for every row would be slower than the disk.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        privacy: Privacy,
        *,
        content: bool,
        keep_days: float | None,
    ) -> None:
        self._connection = connection
        self._keep_days = keep_days
        last = max(last_number(connection, table) for table in ("messages", "texts"))
        numbers = count(last + 1)
        self._builder = RowBuilder(privacy, content=content, next_number=numbers.__next__)

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit items, each with its time (seconds since 1970): then they are on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        built = self._builder.build(batch)
        self._connection.execute("BEGIN IMMEDIATE")
        for kind in ADDED:
            self._insert(kind, built.rows[kind])
        for removal in built.removals:
            for statement in REMOVALS:
                self._connection.execute(statement, (removal.episode,))
            for key in removal.records:
                self._connection.execute("DELETE FROM outcomes WHERE key = ?", (key,))
        self._connection.execute("COMMIT")
        self._builder.end_batch()

    def chores(self) -> Iterator[float]:
        """Remove old episodes step by step; yield when the next step is due."""
        if self._keep_days is None:
            return iter(())
        return prune_for_ever(self._connection, self._keep_days, self._builder.forget)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _insert(self, kind: str, added: Sequence[Row]) -> None:
        done = 0
        for size in _SIZES:
            while len(added) - done >= size:
                chunk = added[done : done + size]
                values = chain.from_iterable(row.values() for row in chunk)
                self._connection.execute(_sql(kind, tuple(chunk[0]), size), tuple(values))
                done += size


@functools.cache
def _sql(kind: str, columns: Sequence[str], size: int) -> str:
    """Return the SQL that adds ``size`` rows with these columns."""
    beginning = _BEGINNINGS.get(kind, "INSERT")
    ending = EPISODE_END if kind == "episode ends" else ""
    marks = ", ".join("?" * len(columns))
    values = ", ".join([f"({marks})"] * size)
    return f"{beginning} INTO {ADDED[kind]} ({', '.join(columns)}) VALUES {values} {ending}"
