"""What a journal holds, read while it is written or long after: episodes, calls, outcomes, sums, completions by key.

In: a journal's file. Out: frozen values. Sums count what was paid for: no call that was answered from a journal
(``replayed``).
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from openconductor.errors import JournalError
from openconductor.journal.file import explanation, open_for_reading
from openconductor.serialisation import load
from openconductor.types import Completion, Message, Price, Sampling, Usage, Workflow

T = TypeVar("T")

_JSON = ("question", "usage", "error", "workflow", "price", "request", "response", "record")  # columns
_PAGE = 500  # rows read at a time, so that a slow reader does not hold up the writer's checkpoints

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
        outcome: ``answered``, ``failed``, or ``unfinished``: it runs still, or was killed or cancelled.
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

    ``messages``, ``sampling`` and ``completion`` are None where content is not kept; then ``error`` is, too.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def close(self) -> None:
        """Close the file; what is read later raises JournalError."""
        with self._reading:
            self._connection.close()

    def find_completion(self, key: str) -> Completion | None:
        """The completion of the first call of this key that succeeded; None where there is none.

        Only one that is kept as it came: a response that redaction changed, or that is not kept, is none.
        """
        for row in self._rows("SELECT * FROM calls WHERE key = ? AND replayable ORDER BY number LIMIT 1", key):
            return self._calls([row])[0].completion
        return None

    def episodes(self) -> Iterator[JournaledEpisode]:
        """All episodes, in the order in which they began."""
        for rows in self._pages("SELECT * FROM episodes WHERE number > ?"):
            for row in rows:
                usage: dict[str, Any] = row["usage"] or {}
                yield self._loaded(JournaledEpisode, row | _error(row) | {"usage": usage})

    def calls(self, episode: str | None = None) -> Iterator[JournaledCall]:
        """All calls, or those of the episode of this id, in the order in which they ended."""
        query = "SELECT * FROM calls WHERE number > ?"
        for rows in self._pages(query) if episode is None else self._pages(f"{query} AND episode = ?", episode):
            yield from self._calls(rows)

    def workflows(self) -> Iterator[tuple[int, int, Workflow]]:
        """The valid workflows, but those that only accept, in the order of the episodes.

        Each with its episode's number, from 1 in the order in which they began, and the last episode's number. None
        where content is not kept.
        """
        query = """SELECT number, workflow, (SELECT max(number) FROM episodes) AS last
            FROM rounds JOIN episodes ON id = episode
            WHERE valid AND NOT accepted AND question IS NOT NULL ORDER BY number, round"""
        for row in self._rows(query):
            yield row["number"], row["last"], self._loaded(Workflow, row["workflow"])

    def outcomes(self, *, history: bool = False) -> Iterator[JournaledOutcome]:
        """What evaluations kept, in the order in which it was written.

        Args:
            history: whether to give all that a key ever had (a question that was judged again); else the last only.
        """
        query = "SELECT * FROM outcomes WHERE number > ? "
        for rows in self._pages(query if history else query + _LAST):
            yield from (JournaledOutcome(row["key"], row["record"], row["written"]) for row in rows)

    def totals(self) -> Totals:
        """What was paid for, to the token and to the last digit of a dollar."""
        spent = Spending()
        by_worker: dict[str, Spending] = {}
        by_outcome: dict[str, Spending] = {}
        for row in self._rows(_SUMS):
            counts = {name: row[name] for name in _COUNTS}
            part = Spending(row["calls"], Usage(**counts, dollars=Decimal(row["paid"]) * row["calls"]))
            spent += part
            by_worker[row["worker"]] = by_worker.get(row["worker"], Spending()) + part
            by_outcome[row["outcome"]] = by_outcome.get(row["outcome"], Spending()) + part
        return Totals(spent, MappingProxyType(by_worker), MappingProxyType(by_outcome))

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query, their JSON read."""
        try:
            with self._reading:
                rows = self._connection.execute(query, values).fetchall()
            return [{name: _value(name, row[name]) for name in row.keys()} for row in rows]  # noqa: SIM118 - no dict
        except (sqlite3.Error, ValueError) as error:
            raise JournalError(f"journal {self.path}: cannot be read: {explanation(error)}") from error

    def _pages(self, query: str, *values: object) -> Iterator[list[dict[str, Any]]]:
        """The rows of a query whose first condition is on ``number``, in its order."""
        last = 0
        while rows := self._rows(f"{query} ORDER BY number LIMIT {_PAGE}", last, *values):
            yield rows
            last = rows[-1]["number"]

    def _calls(self, rows: list[dict[str, Any]]) -> list[JournaledCall]:
        """The calls of some rows, with the texts that these name."""
        turns = [turn for row in rows if row["request"] for turn in row["request"]["messages"]]
        said = [row["response"][part] for row in rows if row["response"] for part in ("text", "reasoning")]
        numbers = sorted({turn["content"] for turn in turns}.union(said))
        query = "SELECT number, text FROM texts WHERE number IN (SELECT value FROM json_each(?))"
        texts = {row["number"]: row["text"] for row in self._rows(query, json.dumps(numbers))}
        for turn in turns:
            turn["content"] = texts[turn["content"]]
        return [self._call(row, texts) for row in rows]

    def _call(self, row: dict[str, Any], texts: Mapping[int, str]) -> JournaledCall:
        request: dict[str, Any] = row["request"] or {"messages": None, "sampling": None}
        response: dict[str, Any] | None = row["response"]
        if response is not None:
            response |= {part: texts[response[part]] for part in ("text", "reasoning")} | {"usage": row["usage"]}
            if (body := response["body_sent"]) and body.get("messages", ...) is None:
                body["messages"] = [{"role": turn["role"], "content": turn["content"]} for turn in request["messages"]]
        return self._loaded(JournaledCall, row | request | {"completion": response} | _error(row))

    def _loaded(self, kind: type[T], data: Mapping[str, Any]) -> T:
        try:
            return load(kind, data)
        except ValueError as error:
            raise JournalError(f"journal {self.path}: cannot be read: {error}") from error


def _value(name: str, value: Any) -> Any:
    """What a column holds: its JSON read; a text that is bytes, for UTF-8 cannot hold it, as text."""
    if name in _JSON and value is not None:
        return json.loads(value)
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _error(row: Mapping[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = row["error"] or {}
    return {"error_type": error.get("type"), "error": error.get("message"), "status": error.get("status")}
