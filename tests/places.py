"""The two places of a store, a file and a database, with one face for the tests of both."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from openconductor.store import Store, StoreReader, open_store, read_store

TABLES = ("episodes", "rounds", "steps", "calls", "messages", "texts", "outcomes")


class FilePlace:
    """A SQLite file, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path

    def open(self, **options: Any) -> Any:
        return _opened(open_store(self.name, **options))

    def read(self) -> Any:
        return _opened(read_store(self.name))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()

    def everything(self) -> bytes:
        """Return all bytes of the folder: the journal, its log, exports."""
        files = sorted(self.path.parent.rglob("*"))
        return b"".join(path.read_bytes() for path in files if path.is_file())


class DatabasePlace:
    """A PostgreSQL database, which may be empty yet."""

    def __init__(self, url: str) -> None:
        self.name = url

    def open(self, **options: Any) -> Any:
        return _opened(open_store(self.name, **options))

    def read(self) -> Any:
        return _opened(read_store(self.name))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.name, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def everything(self) -> bytes:
        """Return the text of all rows."""
        if self.rows("SELECT to_regclass('episodes')") == [(None,)]:
            return b""
        texts: list[str] = []
        for table in TABLES:
            rows = self.rows(f"SELECT {table}.* FROM {table}")
            texts += [str(value) for row in rows for value in row]
        return "\n".join(texts).encode()


Place = FilePlace | DatabasePlace
OpenPlace = Callable[[], Place]


def _opened(store: Store | StoreReader) -> Any:
    """Return the store, whose class has more methods than the protocol."""
    return store
