"""What a journal holds, read while it is written or long after: episodes, calls, outcomes, sums, completions by key.

In: a journal's file. Out: frozen values. Sums count what was
paid for: no call that was answered from a journal (``replayed``).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, cast

from openconductor.errors import JournalError
from openconductor.journal.schema import explanation, open_for_reading, texts_of, turns_of
from openconductor.journal.text import loads
from openconductor.types import Completion, FinishReason, Message, Price, Question, Role, Sampling, Usage

_PAGE = 500  # rows read at a time, so that a slow reader does not hold up the writer's checkpoints

_COMPLETION = "SELECT * FROM calls WHERE key = ? AND replayable ORDER BY number LIMIT 1"
_EPISODES = "SELECT * FROM episodes WHERE number > ? ORDER BY number LIMIT ?"
_OUTCOMES = "SELECT * FROM outcomes WHERE number > ? {last} ORDER BY number LIMIT ?"
_LAST = "AND number = (SELECT max(number) FROM outcomes AS later WHERE later.key = outcomes.key)"
_CALLS = """SELECT calls.*, episodes.id FROM calls JOIN episodes ON episodes.number = calls.episode
    WHERE calls.number > ? {where} ORDER BY calls.number LIMIT ?"""
_SUMS = """SELECT worker, outcome, dollars, count(*) AS calls, sum(input_tokens) AS input_tokens,
    sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens,
    sum(reasoning_tokens) AS reasoning_tokens, sum(unpriced_calls) AS unpriced_calls,
    sum(work_seconds) AS work_seconds
    FROM calls WHERE NOT replayed GROUP BY worker, outcome, dollars"""


@dataclass(frozen=True, slots=True)
class JournaledEpisode:
    """One episode.

    Attributes:
        id: its id.
        above: the id of the episode that it worked for; "" at the top.
        path: the (round, step) of each call above it.
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
    above: str
    path: tuple[tuple[int, int | None], ...]
    sample: int
    question: Question | None
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
        for row in self._rows(_COMPLETION, (key,)):
            return _completion(row, self._texts([row]))
        return None

    def episodes(self) -> Iterator[JournaledEpisode]:
        """All episodes, nested ones too, in the order in which they began."""
        for row in chain.from_iterable(self._pages(_EPISODES, ())):
            yield JournaledEpisode(
                row["id"],
                row["above"] or "",
                tuple((level[0], level[1]) for level in cast("list[list[Any]]", loads(row["path"] or "[]"))),
                row["sample"] or 0,
                None if row["question"] is None else _question(loads(row["question"])),
                row["started"],
                row["outcome"],
                row["answer"],
                row["error_type"],
                row["error"],
                _usage(row),
                row["seconds"],
            )

    def calls(self, episode: str | None = None) -> Iterator[JournaledCall]:
        """All calls, or those of the episode of this id, in the order in which they ended."""
        where = "" if episode is None else "AND episodes.id = ?"
        for row, texts in self._calls(_CALLS.format(where=where), () if episode is None else (episode,)):
            messages, sampling = _request(row, texts)
            yield JournaledCall(
                row["id"],
                row["round"],
                row["step"],
                row["attempt"],
                row["worker"],
                row["identity"],
                row["outcome"],
                row["key"],
                row["request_hash"],
                messages,
                sampling,
                _completion(row, texts),
                row["error_type"],
                row["error"],
                row["status"],
                _usage(row),
                _price(row["price"]),
                row["started"],
                bool(row["nested"]),
                bool(row["replayed"]),
            )

    def outcomes(self, *, history: bool = False) -> Iterator[JournaledOutcome]:
        """What evaluations kept, in the order in which it was written.

        Args:
            history: whether to give all that a key ever had (a question that was judged again); else the last only.
        """
        for row in chain.from_iterable(self._pages(_OUTCOMES.format(last="" if history else _LAST), ())):
            yield JournaledOutcome(row["key"], cast("dict[str, Any]", loads(row["record"])), row["written"])

    def totals(self) -> Totals:
        """What was paid for, to the token and to the last digit of a dollar."""
        spent = Spending()
        by_worker: dict[str, Spending] = {}
        by_outcome: dict[str, Spending] = {}
        for row in self._rows(_SUMS, ()):
            dollars = Decimal(row["dollars"] or 0) * row["calls"]
            part = Spending(row["calls"], _usage(row, dollars))
            spent += part
            by_worker[row["worker"]] = by_worker.get(row["worker"], Spending()) + part
            by_outcome[row["outcome"]] = by_outcome.get(row["outcome"], Spending()) + part
        return Totals(spent, MappingProxyType(by_worker), MappingProxyType(by_outcome))

    def export_parquet(self, folder: str | Path) -> list[Path]:
        """Write one Parquet file a table into a folder; returns the files.

        Decimals are strings, what is JSON in the journal is JSON there; rounds, steps and calls name their episode by
        its id, and calls hold their texts.

        Raises:
            ConfigError: pyarrow is not installed.
            JournalError: the journal cannot be read, or the folder not be written to.
        """
        from openconductor.journal.export import export_parquet

        return export_parquet(self.path, Path(folder))

    @contextmanager
    def _alone(self) -> Generator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        try:
            with self._reading:
                yield self._connection
        except sqlite3.Error as error:
            raise JournalError(f"journal {self.path}: cannot be read: {explanation(error)}") from error

    def _rows(self, query: str, values: tuple[object, ...]) -> list[sqlite3.Row]:
        with self._alone() as connection:
            return connection.execute(query, values).fetchall()

    def _texts(self, calls: Sequence[sqlite3.Row]) -> dict[int, str]:
        with self._alone() as connection:
            return texts_of(connection, calls)

    def _pages(self, query: str, values: tuple[object, ...]) -> Iterator[list[sqlite3.Row]]:
        last = 0
        while rows := self._rows(query, (last, *values, _PAGE)):
            yield rows
            last = rows[-1]["number"]

    def _calls(self, query: str, values: tuple[object, ...]) -> Iterator[tuple[sqlite3.Row, Mapping[int, str]]]:
        """The calls, each with the texts that it names."""
        for rows in self._pages(query, values):
            texts = self._texts(rows)
            for row in rows:
                yield row, texts


def _completion(row: sqlite3.Row, texts: Mapping[int, str]) -> Completion | None:
    if row["text"] is None:
        return None
    tools = loads(row["tool_calls"] or "[]")
    body = _mapping(row["body_sent"])
    if body is not None and "messages" in body and body["messages"] is None:
        body["messages"] = [{"role": turn["role"], "content": texts[turn["content"]]} for turn in turns_of(row)]
    return Completion(
        texts[row["text"]],
        texts.get(row["reasoning"], ""),
        tuple(cast("list[dict[str, object]]", tools)) if isinstance(tools, list) else (),
        _usage(row),
        cast(FinishReason, row["finish_reason"]),
        body,
    )


def _request(row: sqlite3.Row, texts: Mapping[int, str]) -> tuple[tuple[Message, ...] | None, Sampling | None]:
    request = _mapping(row["request"])
    if request is None:
        return None, None
    turns = [
        {**turn, "content": texts[turn["content"]]}
        | ({"parts": loads(texts[turn["parts"]])} if "parts" in turn else {})
        for turn in turns_of(row)
    ]
    return _messages(turns), Sampling(**request["sampling"])


def _mapping(text: str | None) -> dict[str, Any] | None:
    """The mapping of a JSON text; None where there is none, or what should be one was written as something else."""
    value = None if text is None else loads(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _question(value: object) -> Question:
    return value if isinstance(value, str) else _messages(cast("list[dict[str, Any]]", value))


def _messages(turns: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(cast(Role, turn["role"]), turn["content"], tuple(turn.get("parts", ()))) for turn in turns)


def _price(text: str | None) -> Price | None:
    value = _mapping(text)
    return None if value is None else Price(**{name: Decimal(amount) for name, amount in value.items()})


def _usage(row: sqlite3.Row, dollars: Decimal | None = None) -> Usage:
    return Usage(
        int(row["input_tokens"] or 0),
        int(row["cached_tokens"] or 0),
        int(row["output_tokens"] or 0),
        int(row["reasoning_tokens"] or 0),
        Decimal(row["dollars"] or 0) if dollars is None else dollars,
        int(row["unpriced_calls"] or 0),
        row["work_seconds"] or 0.0,
    )
