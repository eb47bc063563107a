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
from dataclasses import dataclass
from pathlib import Path

from openconductor.errors import JournalError
from openconductor.store.sqlite_file import explain, lock, open_for_writing
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


@dataclass(slots=True)
class Pruned:
    """What was removed: rows, and the bytes that the file became smaller by."""

    episodes: int = 0
    calls: int = 0
    messages: int = 0
    texts: int = 0
    bytes: int = 0


def prune_file(path: Path, before: float) -> Pruned:
    """Remove the episodes of a file that began before a time, and give the disk back.

    Args:
        path: a journal that nobody writes to.
        before: seconds since 1970.

    Raises:
        JournalError: it cannot be written, or has a writer.
    """
    pruned = Pruned()
    size = path.stat().st_size
    try:
        with closing(lock(path)), closing(open_for_writing(path)) as connection:
            for _ in prune_steps(connection, before, pruned):
                pass
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise JournalError(f"journal {path}: could not be pruned: {explain(error)}") from error
    pruned.bytes = size - path.stat().st_size
    return pruned


def prune_steps(
    connection: sqlite3.Connection,
    before: float,
    pruned: Pruned,
    forget: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Remove the episodes that began before a time, a step at a time.

    Args:
        connection: the writer's.
        before: seconds since 1970.
        pruned: counts what was removed.
        forget: called before messages are removed: from then on, new rows must not refer to
            messages and texts of earlier ones.
    """
    for first, last in _ranges(_last(connection, "episodes")):
        old = [row[0] for row in connection.execute(_OLD, (first, last, before))]
        if old:
            _remove_episodes(connection, old, pruned)
        yield
    forget()
    messages = bytearray(_last(connection, "messages") + 1)  # 1: something refers to it
    texts = bytearray(_last(connection, "texts") + 1)
    calls = _last(connection, "calls")
    yield from _mark(connection, _MESSAGES_OF_CALLS, calls, messages)
    episodes = _last(connection, "episodes")
    yield from _mark(connection, _MESSAGES_OF_QUESTIONS, episodes, messages)
    for removed in _sweep(connection, "messages", messages):
        pruned.messages += removed
        yield
    yield from _mark(connection, _TEXTS_OF_SAMPLINGS, calls, texts)
    yield from _mark(connection, _TEXTS_OF_BODIES, calls, texts)
    yield from _mark(connection, _TEXTS_OF_MESSAGES, len(messages) - 1, texts)
    for removed in _sweep(connection, "texts", texts):
        pruned.texts += removed
        yield


class Retention:
    """Removes old episodes while the file is written. For the writer's thread alone.

    Args:
        connection: the writer's.
        keep_days: how long an episode is kept.
        forget: as for ``prune_steps``.
    """

    def __init__(
        self, connection: sqlite3.Connection, keep_days: float, forget: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._keep_s = keep_days * DAY_S
        self._forget = forget
        self._steps: Iterator[None] | None = None  # of a removal that has begun
        self._due = 0.0  # by the monotonic clock

    @property
    def wait_s(self) -> float:
        """The seconds until the next step."""
        return max(0.0, self._due - time.monotonic())

    def work(self) -> None:
        """Make the next step, if it is time for it."""
        if self.wait_s:
            return
        if self._steps is None:
            before = time.time() - self._keep_s
            self._steps = prune_steps(self._connection, before, Pruned(), self._forget)
        try:
            next(self._steps)
            pause = _PAUSE_S
        except StopIteration:
            self._steps = None
            pause = EVERY_S
        self._due = time.monotonic() + pause


def _last(connection: sqlite3.Connection, table: str) -> int:
    query = f"SELECT coalesce(max(number), 0) FROM {table}"  # noqa: S608 - our own names
    return connection.execute(query).fetchone()[0]


def _ranges(last: int) -> Iterator[tuple[int, int]]:
    for first in range(1, last + 1, _STEP):
        yield first, min(first + _STEP - 1, last)


def _remove_episodes(
    connection: sqlite3.Connection, identifiers: Sequence[str], pruned: Pruned
) -> None:
    names = (json.dumps(identifiers),)
    shown = (json.dumps([f"{SHOWN}{identifier}" for identifier in identifiers]),)
    connection.execute("BEGIN IMMEDIATE")
    _delete(connection, "rounds", "episode", names)
    _delete(connection, "steps", "episode", names)
    _delete(connection, "outcomes", "key", shown)
    pruned.calls += _delete(connection, "calls", "episode", names)
    pruned.episodes += _delete(connection, "episodes", "id", names)
    connection.execute("COMMIT")


def _mark(connection: sqlite3.Connection, query: str, last: int, used: bytearray) -> Iterator[None]:
    """Mark the rows that rows of these numbers refer to."""
    for numbers in _ranges(last):
        for (number,) in connection.execute(query, numbers):
            if number < len(used):  # others were written since
                used[number] = 1
        yield


def _sweep(connection: sqlite3.Connection, table: str, used: bytearray) -> Iterator[int]:
    """Remove the rows that nothing refers to; yield how many a step removed."""
    for first, last in _ranges(len(used) - 1):
        unused = [number for number in range(first, last + 1) if not used[number]]
        yield _delete(connection, table, "number", (json.dumps(unused),)) if unused else 0


def _delete(connection: sqlite3.Connection, table: str, column: str, values: tuple[str]) -> int:
    query = f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608
    return connection.execute(query, values).rowcount
