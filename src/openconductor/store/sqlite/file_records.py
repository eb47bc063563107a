"""Changing a single record of a SQLite file beside the process that writes it.

SQLite lets one transaction write at a time, so the writer waits for a change of a few milliseconds.
Only a record is changed, because all else that is written has numbers that the writer keeps in
memory.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

from openconductor.store.reader import JournalReader
from openconductor.store.serialisation import compact
from openconductor.store.sqlite.sqlite_file import explained, open_beside
from openconductor.store.store import RecordChange


class FileRecords(JournalReader):
    """A journal that is only read, but for single records, while its writer goes on.

    Args:
        path: the journal's file.

    Raises:
        JournalError: it cannot be opened, is not a journal, or has a newer version.
    """

    def __init__(self, path: str | Path) -> None:
        self._writing = open_beside(Path(path))
        self._changing = threading.Lock()  # any thread may change a record
        super().__init__(path)

    def change_record(self, key: str, change: RecordChange) -> None:
        """Replace a record by what ``change`` makes of it, in one step among all processes."""
        with self._changing:
            change_file_record(self._writing, self.path, key, change)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        super().close()
        self._writing.close()  # the last to close moves the log into the file


def change_file_record(
    connection: sqlite3.Connection, path: Path, key: str, change: RecordChange
) -> None:
    """Replace a record by what ``change`` makes of it; it is durable when this returns.

    Raises:
        JournalError: the file cannot be written.
    """
    with explained(path), connection:  # a failure rolls back
        connection.execute("BEGIN IMMEDIATE")
        query = "SELECT record FROM outcomes WHERE key = ? ORDER BY number DESC LIMIT 1"
        row = connection.execute(query, (key,)).fetchone()
        value = change(None if row is None else json.loads(row[0]))
        connection.execute("DELETE FROM outcomes WHERE key = ?", (key,))
        added = "INSERT INTO outcomes (key, written, record) VALUES (?, ?, ?)"
        connection.execute(added, (key, time.time(), compact(value)))
