"""Retention: old episodes leave the file, with the messages and texts that only they refer to.

Everything happens in small steps, each a transaction of its own, so that the writer of a server can
go on between them. Records stay, because they hold what each key was charged. Only those of texts
(``SHOWN``) go with their episodes.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from openconductor.errors import JournalError
from openconductor.store.sqlite.sqlite_file import explain, last_number, lock, open_for_writing
from openconductor.store.store import SHOWN

DAY_S = 86_400.0
EVERY_S = 6 * 3600.0
"""Seconds between two removals in a process that goes on writing."""
_PAUSE_S = 0.05  # between two steps, which the events of episodes have for themselves
_STEP = 200  # numbers that a step looks at

_OLD = "SELECT id FROM episodes WHERE number BETWEEN ? AND ? AND started < ?"
_MESSAGES_OF_CALLS = """SELECT turn.value FROM calls, json_each(request, '$.messages') AS turn
    WHERE calls.number BETWEEN ? AND ?"""
_MESSAGES_OF_QUESTIONS = """SELECT turn.value FROM episodes, json_each(question) AS turn
    WHERE number BETWEEN ? AND ? AND turn.type = 'integer'"""
_TEXTS_OF_SAMPLINGS = """SELECT piece.value FROM calls, json_each(request, '$.sampling') AS piece
    WHERE calls.number BETWEEN ? AND ? AND piece.type = 'integer'"""
_TEXTS_OF_BODIES = """SELECT piece.value FROM calls, json_each(body_sent) AS piece
    WHERE calls.number BETWEEN ? AND ? AND piece.type = 'integer'"""
_TEXTS_OF_MESSAGES = """SELECT piece.value FROM messages, json_each(message) AS piece
    WHERE messages.number BETWEEN ? AND ? AND piece.type = 'integer'"""


_REFERENCES = {
    "messages": (("calls", _MESSAGES_OF_CALLS), ("episodes", _MESSAGES_OF_QUESTIONS)),
    "texts": (
        ("calls", _TEXTS_OF_SAMPLINGS),
        ("calls", _TEXTS_OF_BODIES),
        ("messages", _TEXTS_OF_MESSAGES),
    ),
}
"""The tables of which unused rows are removed: each table that refers to one, and by what."""


def prune_file(path: Path, before: float) -> dict[str, int]:
    """Remove the episodes of a file that began before a time, and give the disk back.

    Args:
        path: a journal that nobody writes to.
        before: seconds since 1970.

    Returns:
        How many ``episodes``, ``calls``, ``messages`` and ``texts`` were removed, and ``bytes``, by
        which the file became smaller.

    Raises:
        JournalError: it cannot be written, or has a writer.
    """
    removed = dict.fromkeys(("episodes", "calls", *_REFERENCES), 0)
    size = path.stat().st_size
    try:
        with closing(lock(path)), closing(open_for_writing(path)) as connection:
            for table, rows in prune_steps(connection, before):
                removed[table] += rows
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise JournalError(f"journal {path}: could not be pruned: {explain(error)}") from error
    return {**removed, "bytes": size - path.stat().st_size}


def prune_steps(
    connection: sqlite3.Connection, before: float, forget: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, int]]:
    """Remove the episodes that began before a time; yield after each step what it removed.

    Args:
        connection: the writer's.
        before: seconds since 1970.
        forget: called before messages are removed: from then on, new rows must not refer to
            messages and texts of earlier ones.

    Yields:
        A table, and how many of its rows were removed.
    """
    for numbers in _ranges(last_number(connection, "episodes")):
        old = [row[0] for row in connection.execute(_OLD, (*numbers, before))]
        yield "calls", _remove_episodes(connection, old)
        yield "episodes", len(old)
    forget()
    tables = ("episodes", "calls", *_REFERENCES)
    last = {table: last_number(connection, table) for table in tables}  # later rows are in use
    for table, references in _REFERENCES.items():
        used = bytearray(last[table] + 1)  # 1: something refers to it
        for source, query in references:
            for numbers in _ranges(last[source]):
                for (number,) in connection.execute(query, numbers):
                    if number < len(used):
                        used[number] = 1
                yield table, 0
        for first, end in _ranges(last[table]):
            unused = [number for number in range(first, end + 1) if not used[number]]
            yield table, _delete(connection, table, "number", unused)


def prune_for_ever(
    connection: sqlite3.Connection, keep_days: float, forget: Callable[[], None]
) -> Iterator[float]:
    """Remove old episodes of a file that is written; yield after each step when the next is due.

    For the writer's thread alone.

    Args:
        connection: the writer's.
        keep_days: how long an episode is kept.
        forget: as for ``prune_steps``.

    Yields:
        A time by the monotonic clock.
    """
    while True:
        before = time.time() - keep_days * DAY_S
        for _ in prune_steps(connection, before, forget):
            yield time.monotonic() + _PAUSE_S
        yield time.monotonic() + EVERY_S


def _ranges(last: int) -> Iterator[tuple[int, int]]:
    for first in range(1, last + 1, _STEP):
        yield first, min(first + _STEP - 1, last)


def _remove_episodes(connection: sqlite3.Connection, identifiers: Sequence[str]) -> int:
    """Remove episodes with all that is theirs alone; return how many calls that were."""
    if not identifiers:
        return 0
    connection.execute("BEGIN IMMEDIATE")
    _delete(connection, "rounds", "episode", identifiers)
    _delete(connection, "steps", "episode", identifiers)
    shown = [f"{SHOWN}{identifier}" for identifier in identifiers]
    _delete(connection, "outcomes", "key", shown)
    calls = _delete(connection, "calls", "episode", identifiers)
    _delete(connection, "episodes", "id", identifiers)
    connection.execute("COMMIT")
    return calls


def _delete(
    connection: sqlite3.Connection, table: str, column: str, values: Sequence[str | int]
) -> int:
    if not values:
        return 0
    query = f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608
    return connection.execute(query, (json.dumps(values),)).rowcount
