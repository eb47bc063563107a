"""A batch of events becomes one transaction; and what is on its way to the disk can be found already.

In: what the journal's sink was handed, in order. Out: rows, committed together.

Rows go in many at a time: each statement hands the interpreter to the busy event loop and has to wait to get it back,
so that one statement a row would be slower than the disk.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from openconductor.events import Answered, Asked, CallEnded, Planned, RoundEnded, StepEnded
from openconductor.journal.rows import (
    ANSWERS,
    CALLS,
    EPISODES,
    OUTCOMES,
    ROUNDS,
    STEPS,
    SUCCESSES,
    TEXTS,
    Row,
    Rows,
)
from openconductor.journal.text import CallPath
from openconductor.types import Completion

_SIZES = (64, 16, 4, 1)  # rows a statement
_OPEN_EPISODES = 65_536  # whose numbers are remembered; that of an older one is looked up
_UNKNOWN: tuple[str, str, int, float | None, str | None] = ("", "[]", 0, None, None)


@dataclass(frozen=True, slots=True)
class Begun:
    """An episode began, at ``started`` seconds since 1970."""

    event: Asked
    started: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a question, under its key; ``written`` in seconds since 1970."""

    key: str
    written: float
    record: Mapping[str, object]


class CallRecord:
    """A call on its way to the disk; its row is made once, by whoever needs it first."""

    __slots__ = ("event", "key", "place", "row")

    def __init__(self, event: CallEnded, place: tuple[int, CallPath] | None) -> None:
        self.event = event
        self.place = place
        self.row: Row | None = None
        self.key: str | None = None


Item = Begun | CallRecord | Kept | Planned | StepEnded | RoundEnded | Answered


class Recent:
    """The calls that are not yet on the disk, by their keys. For any thread."""

    __slots__ = ("_by_key", "_lock", "_rows", "_unkeyed")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._unkeyed: deque[CallRecord] = deque()
        self._by_key: dict[str, CallRecord] = {}

    def add(self, record: CallRecord) -> None:
        """Take in a call; its key is made when it is needed, for that takes longer than a sink may."""
        call = record.event.call
        if record.place is not None and call.outcome in SUCCESSES and not call.replayed:
            self._unkeyed.append(record)

    def find(self, key: str) -> Completion | None:
        """The completion of the call of this key."""
        while self._unkeyed:
            with self._lock:
                if self._unkeyed:
                    self._prepare(self._unkeyed.popleft())
        record = self._by_key.get(key)
        return record.event.call.completion if record is not None else None

    def row(self, record: CallRecord) -> Row:
        """The call's row."""
        with self._lock:
            return self._prepare(record)

    def new_texts(self) -> list[Row]:
        """The rows of the texts that the rows of calls name, and that are not in the file yet."""
        with self._lock:
            return self._rows.texts.new_rows()

    def refresh(self) -> None:
        """Look again for secrets that must not be written."""
        with self._lock:
            self._rows.refresh()

    def forget(self, records: Sequence[CallRecord]) -> None:
        """Let go of calls that are on the disk."""
        with self._lock:
            while self._unkeyed and self._unkeyed[0].row is not None:
                self._unkeyed.popleft()
            for record in records:
                if record.key is not None and self._by_key.get(record.key) is record:
                    del self._by_key[record.key]

    def _prepare(self, record: CallRecord) -> Row:
        if record.row is None:
            record.row, record.key = self._rows.call(record.event, record.place)
            if record.key is not None:
                self._by_key.setdefault(record.key, record)
        return record.row


class BatchWriter:
    """Writes batches, each in a transaction of its own. For one thread.

    Args:
        connection: the writer's.
        rows: makes the rows.
        recent: makes those of calls.
    """

    def __init__(self, connection: sqlite3.Connection, rows: Rows, recent: Recent) -> None:
        self._connection = connection
        self._rows = rows
        self._recent = recent
        self._numbers: dict[str, int] = {}
        self._next: int = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM episodes").fetchone()[0]

    def write(self, batch: Sequence[Item]) -> None:
        """Commit a batch: when this returns, it is on the disk.

        Raises:
            sqlite3.Error: nothing of the batch is committed.
            JournalError: the user's redaction failed.
        """
        self._recent.refresh()
        self._connection.execute("BEGIN IMMEDIATE")
        self._begin([item for item in batch if type(item) is Begun])
        tables = _Tables()
        for item in batch:
            if type(item) is not Begun:
                self._add(item, tables)
        _TEXTS.insert(self._connection, self._recent.new_texts())
        _CALLS.insert(self._connection, tables.calls)
        _STEPS.insert(self._connection, tables.steps)
        _STEPS_LEFT.insert(self._connection, tables.left)
        _ROUNDS.insert(self._connection, list(tables.rounds.values()))
        _ANSWERS.insert(self._connection, tables.answers)
        _OUTCOMES.insert(self._connection, tables.outcomes)
        self._connection.execute("COMMIT")
        self._recent.forget([item for item in batch if type(item) is CallRecord])

    def _begin(self, begun: Sequence[Begun]) -> None:
        """Write the beginnings of episodes, and number them."""
        rows: list[Row] = []
        for item in begun:
            self._number_it(item.event.episode, self._next)
            rows.append((self._next, *self._rows.asked(item.event, item.started)))
            self._next += 1
        if _EPISODES.insert(self._connection, rows) < len(rows):
            for item in begun:  # an id of old among them, heard of before: it keeps its number
                self._numbers[item.event.episode] = self._looked_up(item.event.episode) or 0

    def _add(self, item: Item, tables: _Tables) -> None:
        if isinstance(item, CallRecord):
            tables.calls.append((self._number(item.event.episode), *self._recent.row(item)))
        elif isinstance(item, StepEnded):
            tables.steps.append((self._number(item.episode), *self._rows.step(item)))
        elif isinstance(item, Planned):
            number = self._number(item.episode)
            tables.rounds[number, item.round] = (number, *self._rows.planned(item))
        elif isinstance(item, RoundEnded):
            number = self._number(item.episode)
            tables.rounds[number, item.round] = (number, *self._rows.round(item))
            transcript = item.outcome.transcript
            for index, result in enumerate(transcript.results if transcript is not None else ()):
                if result.completion is None and result.error is None:  # not reached, or nobody was told of its end
                    tables.left.append((number, *self._rows.result(item.round, index, result)))
        elif isinstance(item, Answered):
            number = self._number(item.episode)
            tables.answers.append((number, *self._rows.answered(item)))
            self._numbers.pop(item.episode, None)
        elif isinstance(item, Kept):
            tables.outcomes.append(self._rows.kept(item.key, item.written, item.record))

    def _number(self, episode: str) -> int:
        """The number of an episode; one that began unheard gets a row here."""
        number = self._numbers.get(episode) or self._looked_up(episode)
        if number is None:
            number = self._next
            self._next += 1
            _EPISODES.insert(self._connection, [(number, episode, *_UNKNOWN)])
        if episode not in self._numbers:
            self._number_it(episode, number)
        return number

    def _number_it(self, episode: str, number: int) -> None:
        if len(self._numbers) >= _OPEN_EPISODES:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[episode] = number

    def _looked_up(self, episode: str) -> int | None:
        found = self._connection.execute("SELECT number FROM episodes WHERE id = ?", (episode,)).fetchone()
        return found[0] if found is not None else None


class _Tables:
    """The rows of one transaction."""

    __slots__ = ("answers", "calls", "left", "outcomes", "rounds", "steps")

    def __init__(self) -> None:
        self.calls: list[Row] = []
        self.steps: list[Row] = []
        self.left: list[Row] = []
        self.rounds: dict[tuple[int, int], Row] = {}
        self.answers: list[Row] = []
        self.outcomes: list[Row] = []


class _Insert:
    """An insertion of rows of one kind, many a statement."""

    __slots__ = ("_statements",)

    def __init__(self, table: str, columns: Sequence[str], otherwise: str = "") -> None:
        into = f"{table} ({', '.join(columns)})"
        values = f"({', '.join('?' * len(columns))})"
        self._statements = [
            (size, f"INSERT INTO {into} VALUES {', '.join([values] * size)} {otherwise}")  # noqa: S608 - our names
            for size in _SIZES
        ]

    def insert(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """Insert the rows; returns how many were inserted or changed."""
        done = changed = 0
        for size, statement in self._statements:
            while len(rows) - done >= size:
                chunk = rows[done : done + size]
                changed += connection.execute(statement, tuple(chain.from_iterable(chunk))).rowcount
                done += size
        return changed


def _or_update(columns: Sequence[str], keys: Sequence[str]) -> str:
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in keys)
    return f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"


_EPISODES = _Insert("episodes", EPISODES, "ON CONFLICT (id) DO NOTHING")
_ANSWERS = _Insert("episodes", ANSWERS, _or_update(ANSWERS, ["number"]))
_ROUNDS = _Insert("rounds", ROUNDS, _or_update(ROUNDS, ["episode", "round"]))
_STEPS = _Insert("steps", STEPS, _or_update(STEPS, ["episode", "round", "step"]))
_STEPS_LEFT = _Insert("steps", STEPS, "ON CONFLICT DO NOTHING")
_CALLS = _Insert("calls", CALLS)
_TEXTS = _Insert("texts", TEXTS)
_OUTCOMES = _Insert("outcomes", OUTCOMES)
