"""Copying a journal from a SQLite file into a PostgreSQL database.

Rows are copied as they are; only the numbers of messages and texts become others. What the database
has already is left as it is, so that a copy can be repeated.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from openconductor.errors import JournalError
from openconductor.store.postgres.database import (
    BLOCK,
    LOCK,
    LONG_S,
    WRITING,
    Database,
    DatabaseConnection,
    execute,
)
from openconductor.store.postgres.postgres_writer import BEGIN, add_rows
from openconductor.store.serialisation import compact
from openconductor.store.sqlite.sqlite_file import explain, last_number, lock, open_for_reading
from openconductor.types import is_array

_PAGE = 500  # rows at a time

_Row = dict[str, Any]


def copy_file(path: Path, url: str) -> dict[str, int]:
    """Copy the journal in a file into a database, all or nothing of it.

    Args:
        path: a journal that nobody writes to.
        url: the database; what it has already stays.

    Returns:
        How many ``episodes``, ``calls`` and ``records`` were copied, and how many ``known``
        episodes the database had before.

    Raises:
        ConfigError: the URL cannot be read.
        JournalError: the file is no journal or has a writer, or the database failed.
    """
    with (
        closing(open_for_reading(path)) as source,
        closing(lock(path)),
        closing(Database(url)) as database,
    ):
        database.open(for_writing=True)
        try:
            with database.explained(), database.transaction(LONG_S) as target:
                execute(target, BEGIN, (LOCK, WRITING))
                return _Copy(source, target).run()
        except sqlite3.Error as error:
            raise JournalError(f"journal {path}: cannot be read: {explain(error)}") from error


class _Copy:
    """One copy, in a transaction of the target."""

    def __init__(self, source: sqlite3.Connection, target: DatabaseConnection) -> None:
        self._source = source
        self._target = target
        self._known = self._known_episodes()
        last = max(last_number(source, table) for table in self._numbered())
        query = "SELECT nextval('numbers') AS first FROM generate_series(0, ?)"
        rows = execute(target, query, (last // BLOCK,)).fetchall()
        self._blocks: list[int] = [row["first"] for row in rows]

    def run(self) -> dict[str, int]:
        """Copy all tables; return what was copied."""
        episodes = self._copy("episodes", "whole episodes", "id", self._move_question)
        for table in ("rounds", "steps"):
            self._copy(table, table, "episode", lambda row: row)
        calls = self._copy("calls", "calls", "episode", self._move_call)
        if calls or episodes:
            for table in self._numbered():
                for rows in self._read(table):
                    add_rows(self._target, table, [self._move_numbered(row) for row in rows])
        records = self._copy_records()
        return {
            "episodes": episodes,
            "calls": calls,
            "records": records,
            "known": len(self._known),
        }

    def _numbered(self) -> list[str]:
        """Return the tables of what is named by numbers; files of an old version have one."""
        query = "SELECT name FROM sqlite_master WHERE name IN ('messages', 'texts')"
        return [row["name"] for row in self._source.execute(query)]

    def _known_episodes(self) -> set[str]:
        """Return the episodes of the file that the target has."""
        rows = self._source.execute("SELECT id FROM episodes UNION SELECT episode FROM calls")
        known: set[str] = set()
        for page in _pages(rows):
            ids = [row["id"] for row in page]
            query = """SELECT id FROM episodes WHERE id = ANY(?)
                UNION SELECT episode FROM calls WHERE episode = ANY(?)"""
            known.update(row["id"] for row in execute(self._target, query, (ids, ids)))
        return known

    def _read(self, table: str) -> Iterator[list[_Row]]:
        """Return the rows of a table of the file, in their order, page by page."""
        return _pages(self._source.execute(f"SELECT * FROM {table} ORDER BY rowid"))  # noqa: S608

    def _copy(self, table: str, kind: str, column: str, move: Callable[[_Row], _Row]) -> int:
        """Copy the rows of new episodes; return how many there were."""
        copied = 0
        for page in self._read(table):
            rows = [move(row) for row in page if row[column] not in self._known]
            if rows:
                add_rows(self._target, kind, rows)
            copied += len(rows)
        return copied

    def _copy_records(self) -> int:
        """Copy the records whose keys the target does not have."""
        copied = 0
        ours: set[str] = set()
        query = "SELECT DISTINCT key FROM outcomes WHERE key = ANY(?)"
        for page in self._read("outcomes"):
            keys = [row["key"] for row in page]
            there = {row["key"] for row in execute(self._target, query, (keys,))} - ours
            rows = [_without_number(row) for row in page if row["key"] not in there]
            if rows:
                add_rows(self._target, "records", rows)
            ours.update(row["key"] for row in rows)
            copied += len(rows)
        return copied

    # ── numbers ───────────────────────────────────────────────────────────────────────────────────
    def _move(self, number: int) -> int:
        """Return the number that a message or a text of the file gets in the database."""
        return self._blocks[number // BLOCK] + number % BLOCK

    def _move_list(self, values: Sequence[Any]) -> list[Any]:
        """Return a list with other numbers: of messages, or the pieces of a document."""
        return [self._move(value) if isinstance(value, int) else value for value in values]

    def _move_document(self, document: str | None) -> str | None:
        """Return a document that may be stored in pieces."""
        if document is None or not document.startswith("["):
            return document
        return compact(self._move_list(json.loads(document)))

    def _move_numbered(self, row: _Row) -> _Row:
        moved = {**row, "number": self._move(row["number"])}
        if "message" in row:
            moved["message"] = self._move_document(row["message"])
        return moved

    def _move_question(self, row: _Row) -> _Row:
        return {**_without_number(row), "question": self._move_document(row["question"])}

    def _move_call(self, row: _Row) -> _Row:
        moved = _without_number(row)
        moved["body_sent"] = self._move_document(row["body_sent"])
        if row["request"] is not None:
            request = json.loads(row["request"])
            request["messages"] = self._move_list(request["messages"])
            if is_array(request["sampling"]):
                request["sampling"] = self._move_list(request["sampling"])
            moved["request"] = compact(request)
        return moved


def _pages(rows: sqlite3.Cursor) -> Iterator[list[_Row]]:
    while True:
        page = rows.fetchmany(_PAGE)
        if not page:
            return
        yield [dict(row) for row in page]


def _without_number(row: _Row) -> _Row:
    return {name: value for name, value in row.items() if name != "number"}
