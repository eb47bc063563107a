"""What a journal holds, read while it is written or long after: episodes, calls, outcomes, sums, completions by key.

In: a journal's file. Out: frozen values. Sums count what was paid for: no call that was answered
from a journal (``replayed``).
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from openconductor.errors import JournalError
from openconductor.store.file import explanation, open_for_reading
from openconductor.store.serialisation import load
from openconductor.types import Completion, Message, Price, Sampling, Usage, Workflow

T = TypeVar("T")

_JSON = (  # columns
    *(
        "question",
        "usage",
        "error",
        "workflow",
        "price",
        "request",
        "response",
        "body_sent",
        "record",
        "message",
    ),
    "access",
)
_PAGE = 500  # rows read at a time, so that a slow reader does not hold up the writer's checkpoints

_PARTS = {"rounds": "round", "steps": "round, step", "calls": "number"}
"""What an episode has beside itself, and in what order."""

_LAST = "AND number = (SELECT max(number) FROM outcomes AS later WHERE later.key = outcomes.key)"
_COUNTS = tuple(one.name for one in fields(Usage) if one.name != "dollars")
_SUMS = f"""SELECT worker, outcome, json_extract(usage, '$.dollars') AS paid, count(*) AS calls,
    {", ".join(f"sum(json_extract(usage, '$.{name}')) AS {name}" for name in _COUNTS)}
    FROM calls WHERE NOT replayed GROUP BY worker, outcome, paid"""  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class JournaledEpisode:
    """One episode.

    Attributes:
        id: its id.
        sample: which repeat of its question it is.
        question: what was asked; None where content is not kept.
        started: seconds since 1970; None where its beginning was not heard of.
        outcome: ``answered``, ``failed``, or ``unfinished``: it runs still, or was killed or
            cancelled.
        answer: its answer.
        error_type, error: the class and the message of the error that ended it.
        usage: what it used, when it was over; before that nothing.
        seconds: wall time; None while it is not over.
    """

    id: str
    sample: int
    question: str | tuple[Message, ...] | None
    started: float | None
    outcome: str
    answer: str | None
    error_type: str | None
    error: str | None
    usage: Usage
    seconds: float | None


@dataclass(frozen=True, slots=True)
class JournaledCall:
    """One attempt at one call: as ``types.Call``, with where it stands, and its key and hash.

    ``messages``, ``sampling`` and ``completion`` are None where content is not kept; then ``error``
    is, too.
    """

    episode: str
    round: int
    step: int | None
    attempt: int
    worker: str
    identity: str
    outcome: str
    key: str | None
    request_hash: str
    messages: tuple[Message, ...] | None
    sampling: Sampling | None
    completion: Completion | None
    error_type: str | None
    error: str | None
    status: int | None
    usage: Usage
    price: Price | None
    started: float
    nested: bool
    replayed: bool


@dataclass(frozen=True, slots=True)
class JournaledOutcome:
    """What an evaluation kept of a question, as it was handed over.

    Attributes:
        key: which question, asked of whom, and which time.
        record: the values that were kept; tuples are lists.
        written: seconds since 1970.
    """

    key: str
    record: Mapping[str, Any]
    written: float


@dataclass(frozen=True, slots=True)
class Spending:
    """How many calls, and what they used."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.calls + other.calls, self.usage + other.usage)


@dataclass(frozen=True, slots=True)
class Totals:
    """What was spent: together, by the worker's name, and by the outcome of the call."""

    spent: Spending
    by_worker: Mapping[str, Spending]
    by_outcome: Mapping[str, Spending]


class JournalReader:
    """A journal that is only read. A context manager; may be used from any thread.

    Args:
        path: the journal's file.

    Raises:
        JournalError: it cannot be opened, is no journal, or is of another version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._connection = open_for_reading(self.path)
        self._reading = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def close(self) -> None:
        """Close the file; what is read later raises JournalError."""
        with self._reading:
            self._connection.close()

    def find_completion(self, key: str) -> Completion | None:
        """The completion of the first call of this key that succeeded; None where there is none.

        Only one that is kept as it came: a response that redaction changed, or that is not kept, is
        none.
        """
        for row in self._rows(
            "SELECT * FROM calls WHERE key = ? AND replayable ORDER BY number LIMIT 1", key
        ):
            return self._call(row).completion
        return None

    def episodes(self) -> Iterator[JournaledEpisode]:
        """All episodes, in the order in which they began."""
        return map(self._episode, self._pages("SELECT * FROM episodes WHERE number > ?"))

    def calls(self, episode: str | None = None) -> Iterator[JournaledCall]:
        """All calls, or those of the episode of this id, in the order in which they ended."""
        query = "SELECT * FROM calls WHERE number > ?"
        rows = (
            self._pages(query)
            if episode is None
            else self._pages(f"{query} AND episode = ?", episode)
        )
        return map(self._call, rows)

    def find_episode(self, identifier: str) -> JournaledEpisode | None:
        """The episode of this id; None where there is none."""
        rows = self._rows("SELECT * FROM episodes WHERE id = ?", identifier)
        return self._episode(rows[0]) if rows else None

    def whole_episode(self, identifier: str) -> dict[str, Any] | None:
        """An episode with its rounds, steps and calls, in JSON's types; None where there is none."""
        rows = self._rows("SELECT * FROM episodes WHERE id = ?", identifier)
        for name, by in _PARTS.items() if rows else ():
            rows[0][name] = self._rows(
                f"SELECT * FROM {name} WHERE episode = ? ORDER BY {by}",  # noqa: S608
                identifier,
            )
            for one in rows[0][name]:
                if one.get("request"):
                    one["request"]["messages"] = self._turns(one["request"]["messages"])
                for hidden in (
                    "number",
                    "episode",
                    "key",
                    "request_hash",
                    "replayable",
                    "body_sent",
                ):
                    one.pop(hidden, None)
        return (
            {name: value for name, value in rows[0].items() if name != "number"} if rows else None
        )

    def find_outcome(self, key: str) -> Mapping[str, object] | None:
        """The last record of this key; None where there is none."""
        rows = self._rows(
            "SELECT record FROM outcomes WHERE key = ? ORDER BY number DESC LIMIT 1", key
        )
        return rows[0]["record"] if rows else None

    def workflows(self) -> Iterator[tuple[int, int, Workflow]]:
        """The valid workflows, but those that only accept, in the order of the episodes.

        Each with its episode's number, from 1 in the order in which they began, and the last
        episode's number. None where content is not kept.
        """
        query = """SELECT number, workflow, (SELECT max(number) FROM episodes) AS last
            FROM rounds JOIN episodes ON id = episode
            WHERE valid AND NOT accepted AND question IS NOT NULL ORDER BY number, round"""
        for row in self._rows(query):
            yield row["number"], row["last"], self._loaded(Workflow, row["workflow"])

    def outcomes(self, *, history: bool = False) -> Iterator[JournaledOutcome]:
        """What evaluations kept, in the order in which it was written.

        Args:
            history: whether to give all that a key ever had (a question that was judged again);
                else the last only.
        """
        query = "SELECT * FROM outcomes WHERE number > ? "
        for row in self._pages(query if history else query + _LAST):
            yield JournaledOutcome(row["key"], row["record"], row["written"])

    def totals(self) -> Totals:
        """What was paid for, to the token and to the last digit of a dollar."""
        spent = Spending()
        by_worker: dict[str, Spending] = {}
        by_outcome: dict[str, Spending] = {}
        for row in self._rows(_SUMS):
            counts = {name: row[name] for name in _COUNTS}
            part = Spending(
                row["calls"], Usage(**counts, dollars=Decimal(row["paid"]) * row["calls"])
            )
            spent += part
            by_worker[row["worker"]] = by_worker.get(row["worker"], Spending()) + part
            by_outcome[row["outcome"]] = by_outcome.get(row["outcome"], Spending()) + part
        return Totals(spent, MappingProxyType(by_worker), MappingProxyType(by_outcome))

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query, their JSON read."""
        try:
            with self._reading:
                rows = [dict(row) for row in self._connection.execute(query, values)]
            for row in rows:
                row.update(
                    {name: json.loads(row[name]) for name in _JSON if row.get(name) is not None}
                )
        except (sqlite3.Error, ValueError) as error:
            raise JournalError(
                f"journal {self.path}: cannot be read: {explanation(error)}"
            ) from error
        return rows

    def _pages(self, query: str, *values: object) -> Iterator[dict[str, Any]]:
        """The rows of a query whose first condition is on ``number``, in its order."""
        last = 0
        while rows := self._rows(f"{query} ORDER BY number LIMIT {_PAGE}", last, *values):
            yield from rows
            last = rows[-1]["number"]

    def _episode(self, row: dict[str, Any]) -> JournaledEpisode:
        return self._loaded(JournaledEpisode, row | _error(row) | {"usage": row["usage"] or {}})

    def _call(self, row: dict[str, Any]) -> JournaledCall:
        request: dict[str, Any] = row["request"] or {"messages": None, "sampling": None}
        request["messages"] = self._turns(request["messages"])
        said, body = row["response"], row["body_sent"]
        if body and body.get("messages", ...) is None:
            turns: list[Any] = request["messages"] or []
            body["messages"] = [
                {"role": turn["role"], "content": turn["content"]} for turn in turns
            ]
        completion = None if said is None else said | {"usage": row["usage"], "body_sent": body}
        return self._loaded(JournaledCall, row | request | {"completion": completion} | _error(row))

    def _turns(self, numbers: list[int] | None) -> list[Any] | None:
        """The messages of these numbers; None where they are not kept."""
        if not numbers:
            return numbers
        query = (
            "SELECT number, message FROM messages WHERE number IN (SELECT value FROM json_each(?))"
        )
        known = {one["number"]: one["message"] for one in self._rows(query, json.dumps(numbers))}
        return [known[number] for number in numbers]

    def _loaded(self, kind: type[T], data: Mapping[str, Any]) -> T:
        try:
            return load(kind, data)
        except ValueError as error:
            raise JournalError(f"journal {self.path}: cannot be read: {error}") from error


def _error(row: Mapping[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = row["error"] or {}
    return {
        "error_type": error.get("type"),
        "error": error.get("message"),
        "status": error.get("status"),
    }
