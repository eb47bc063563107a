"""Reading a store, while it is written or long after.

``RowReader`` turns rows into values, whatever database they come from. ``JournalReader`` reads a
SQLite file.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from openconductor.errors import JournalError
from openconductor.store.overview import (
    EpisodeFilter,
    EpisodeLine,
    WorkerLine,
    contains_pattern,
    lines_query,
    read_line,
    worker_lines,
)
from openconductor.store.serialisation import load
from openconductor.store.sqlite.sqlite_file import explain, locked_since, open_for_reading
from openconductor.store.store import (
    LATEST_CALLS,
    EpisodeOutcome,
    Spending,
    StoredCall,
    StoredEpisode,
    StoredRecord,
    Totals,
)
from openconductor.store.values import join_pieces, read_call, read_episode
from openconductor.types import Completion, Usage, Workflow, is_array

_Columns = dict[str, Any]

_JSON_COLUMNS = (
    "question",
    "workers",
    "usage",
    "error",
    "workflow",
    "access",
    "price",
    "request",
    "response",
    "body_sent",
    "record",
    "message",
    "only_step",
)
_EPISODES_AT_ONCE = 100
_PAGE = 500  # rows read at a time, so that a slow reader does not hold up the writer's checkpoints

_LAST = "AND number = (SELECT max(number) FROM outcomes AS later WHERE later.key = outcomes.key)"
_COUNTS = tuple(field.name for field in fields(Usage) if field.name != "dollars")
_EPISODES = """SELECT * FROM episodes
    WHERE number < coalesce((SELECT number FROM episodes WHERE id = :before), 9e18)
    AND outcome = coalesce(:outcome, outcome)
    AND (:text IS NULL OR answer LIKE :text ESCAPE '!' OR EXISTS (
        SELECT 1 FROM json_tree(question)
        WHERE (key IS NULL OR key = 'content') AND atom LIKE :text ESCAPE '!'){})
    ORDER BY number DESC LIMIT coalesce(:limit, -1)"""
_IN_TURNS = """ OR EXISTS (
        SELECT 1 FROM json_each(question) AS turn JOIN whole_messages AS whole
        ON turn.type = 'integer' AND whole.number = turn.value
        WHERE json_extract(message, '$.content') LIKE :text ESCAPE '!')"""


class RowReader(ABC):
    """Reads values from the rows of a store. A context manager.

    A store over a database returns the rows (``_rows``), and has the SQL that differs.

    Attributes:
        title: what and where the store is, as errors say it.
    """

    title: str
    _usage_field: str
    """SQL for a number in the column ``usage``; ``{}`` is its name."""
    _number_in: str
    """The condition that a row's number is in a JSON list."""
    _episode_in: str
    """The condition that a row's episode is in a JSON list."""

    @abstractmethod
    def _rows(
        self, query: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[_Columns]:
        """Return the rows of a query, with their JSON parsed.

        Raises:
            JournalError: the store cannot be read.
        """

    @abstractmethod
    def _episodes_query(self) -> str:
        """Return the query for ``episodes``, with its arguments by name."""

    @abstractmethod
    def _lines_query(self, chosen: EpisodeFilter) -> tuple[str, dict[str, object]]:
        """Return the query for ``lines``, with its arguments by name, and the filter's values."""

    @abstractmethod
    def _written_since(self) -> float:
        """Return since when the store has a writer, in seconds since 1970; infinity: it has none.

        What has not ended and began before was cut off.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; reading later raises JournalError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except JournalError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # the first error is the one to raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title}>"

    # ── completions and records ───────────────────────────────────────────────────────────────────
    def find_completion(self, key: str) -> Completion | None:
        """Return the completion of the first call of this key that succeeded. None: unknown.

        A response that redaction changed, or that is not kept, is not returned.
        """
        query = "SELECT * FROM calls WHERE key = ? AND replayable ORDER BY number LIMIT 1"
        rows = self._rows(query, (key,))
        return self._calls(rows)[0].completion if rows else None

    def find_record(self, key: str) -> Mapping[str, Any] | None:
        """Return the last value of this key. None: unknown."""
        query = "SELECT record FROM outcomes WHERE key = ? ORDER BY number DESC LIMIT 1"
        rows = self._rows(query, (key,))
        return rows[0]["record"] if rows else None

    def find_history(self, key: str) -> list[Mapping[str, Any]]:
        """Return all values of this key, the last one last."""
        query = "SELECT record FROM outcomes WHERE key = ? ORDER BY number"
        return [row["record"] for row in self._rows(query, (key,))]

    def records(self, *, history: bool = False) -> Iterator[StoredRecord]:
        """Return the last record of each key, in the order of writing; with ``history`` all."""
        query = "SELECT * FROM outcomes WHERE number > ?"
        for rows in self._pages(query if history else f"{query} {_LAST}"):
            for row in rows:
                yield StoredRecord(row["key"], row["record"], row["written"])

    # ── episodes ──────────────────────────────────────────────────────────────────────────────────
    def episodes(
        self,
        *,
        before: str | None = None,
        limit: int | None = 50,
        outcome: EpisodeOutcome | None = None,
        text: str | None = None,
    ) -> list[StoredEpisode]:
        """Return episodes, the latest first.

        Args:
            before: the id of an episode; only those that began before it.
            limit: the most episodes; None: all.
            outcome: only those with this outcome.
            text: only those whose question or answer contains this text (ASCII in any case).
        """
        values = {
            "before": before,
            "outcome": outcome,
            "text": None if text is None else contains_pattern(text),
            "limit": limit,
        }
        rows = self._rows(self._episodes_query(), values)
        episodes: list[StoredEpisode] = []
        for start in range(0, len(rows), _EPISODES_AT_ONCE):
            episodes += self._episodes(rows[start : start + _EPISODES_AT_ONCE])
        return episodes

    def episode(self, identifier: str, *, rounds: bool = True) -> StoredEpisode | None:
        """Return the episode of this id. None: unknown.

        Without ``rounds`` it has none, which spares reading its steps and calls.
        """
        rows = self._rows("SELECT * FROM episodes WHERE id = ?", (identifier,))
        return self._episodes(rows, rounds=rounds)[0] if rows else None

    def lines(
        self, chosen: EpisodeFilter | None = None, *, offset: int = 0, limit: int = 50
    ) -> list[EpisodeLine]:
        """Return a page of a list of episodes, a line for each.

        Args:
            chosen: chooses and sorts the episodes; None: all, the latest first.
            offset: how many episodes come before the page.
            limit: the most lines.
        """
        query, values = self._lines_query(chosen or EpisodeFilter())
        rows = self._rows(query, {**values, "offset": offset, "limit": limit})
        with self._explained():
            lines = [read_line(row) for row in rows]
        if all(line.state != "running" for line in lines):
            return lines
        since = self._written_since()
        return [_stopped(line) if (line.started or 0.0) < since else line for line in lines]

    def workers(self, *, latest: int = LATEST_CALLS) -> list[WorkerLine]:
        """Return a line for each worker that the latest calls were made of."""
        query = """SELECT worker, outcome, usage FROM calls WHERE NOT replayed
            ORDER BY number DESC LIMIT ?"""
        rows = self._rows(query, (latest,))
        calls: list[tuple[str, str, Usage]] = []
        with self._explained():
            for row in rows:
                used: _Columns = row["usage"]
                used["dollars"] = Decimal(used["dollars"])
                calls.append((row["worker"], row["outcome"], Usage(**used)))
        return worker_lines(calls)

    def calls(self, episode: str | None = None) -> Iterator[StoredCall]:
        """Return all calls, or those of one episode, in the order in which they ended."""
        query = "SELECT * FROM calls WHERE number > ?"
        if episode is None:
            pages = self._pages(query)
        else:
            pages = self._pages(f"{query} AND episode = ?", episode)
        for rows in pages:
            yield from self._calls(rows)

    def workflows(self) -> Iterator[tuple[int, int, Workflow]]:
        """Return the valid workflows that have steps, in the order of their episodes.

        Each comes with its episode's number (from 1, in the order in which they began) and the last
        episode's. Without content there are none.
        """
        query = """WITH numbered AS (
                SELECT id, question, row_number() OVER (ORDER BY number) AS place FROM episodes)
            SELECT place, workflow, (SELECT count(*) FROM episodes) AS last
            FROM rounds JOIN numbered ON id = episode
            WHERE valid AND NOT accepted AND question IS NOT NULL ORDER BY place, round"""
        for row in self._rows(query):
            with self._explained():
                workflow = load(Workflow, row["workflow"])
            yield row["place"], row["last"], workflow

    def totals(self) -> Totals:
        """Add up what was paid for, to the token and to the last digit of a dollar."""
        spent = Spending()
        by_worker: defaultdict[str, Spending] = defaultdict(Spending)
        by_outcome: defaultdict[str, Spending] = defaultdict(Spending)
        sums = [f"sum({self._usage_field.format(name)}) AS {name}" for name in _COUNTS]
        query = f"""SELECT worker, outcome, {self._usage_field.format("dollars")} AS paid,
            count(*) AS calls, {", ".join(sums)}
            FROM calls WHERE NOT replayed GROUP BY worker, outcome, paid"""  # noqa: S608 - our names
        for row in self._rows(query):
            counts: dict[str, Any] = {name: int(row[name]) for name in _COUNTS}
            counts["seconds"] = float(row["seconds"])
            dollars = Decimal(row["paid"]) * row["calls"]
            part = Spending(row["calls"], Usage(**counts, dollars=dollars))
            spent += part
            by_worker[row["worker"]] += part
            by_outcome[row["outcome"]] += part
        return Totals(spent, MappingProxyType(dict(by_worker)), MappingProxyType(dict(by_outcome)))

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────
    def _pages(self, query: str, *values: object) -> Iterator[list[_Columns]]:
        """Return the rows of a query whose first condition is ``number > ?``, page by page."""
        last = 0
        while True:
            rows = self._rows(f"{query} ORDER BY number LIMIT {_PAGE}", (last, *values))
            if not rows:
                return
            yield rows
            last = rows[-1]["number"]

    def _calls(self, rows: Sequence[_Columns]) -> list[StoredCall]:
        """Return the calls of rows."""
        calls: list[StoredCall] = []
        with self._explained():
            requests = [row["request"] for row in rows if row["request"] is not None]
            shown = chain.from_iterable(request["messages"] for request in requests)
            messages = self._messages(shown)
            samplings = [request["sampling"] for request in requests]
            texts = self._texts_of([*samplings, *(row["body_sent"] for row in rows)])
            for row in rows:
                turns: list[_Columns] = []
                request = row["request"]
                if request is not None:
                    turns = [messages[number] for number in request["messages"]]
                    request["sampling"] = join_pieces(request["sampling"], texts)
                    row["body_sent"] = join_pieces(row["body_sent"], texts)
                calls.append(read_call(row, turns))
        return calls

    def _messages(self, numbers: Iterable[int]) -> dict[int, _Columns]:
        """Return messages by their numbers."""
        wanted = sorted(set(numbers))
        if not wanted:
            return {}
        query = f"SELECT number, message FROM messages WHERE {self._number_in}"  # noqa: S608
        rows = self._rows(query, (json.dumps(wanted),))
        texts = self._texts_of([row["message"] for row in rows])
        return {row["number"]: join_pieces(row["message"], texts) for row in rows}

    def _texts_of(self, documents: Sequence[Any]) -> dict[int, str]:
        """Return the texts, by number, that documents are stored with."""
        numbers: set[int] = set()
        for document in documents:
            if is_array(document):
                numbers.update(piece for piece in document if isinstance(piece, int))
        if not numbers:
            return {}
        query = f"SELECT number, text FROM texts WHERE {self._number_in}"  # noqa: S608
        rows = self._rows(query, (json.dumps(sorted(numbers)),))
        return {row["number"]: row["text"] for row in rows}

    def _episodes(self, rows: Sequence[_Columns], *, rounds: bool = True) -> list[StoredEpisode]:
        """Return the episodes of rows."""
        with self._explained():
            questions = [row["question"] for row in rows if _is_numbered(row["question"])]
            messages = self._messages(chain.from_iterable(questions)) if questions else {}
            for row in rows:
                if _is_numbered(row["question"]):
                    row["question"] = [messages[number] for number in row["question"]]
            if not rounds:
                return [read_episode(row) for row in rows]
            parts = {table: self._rows_of(table, rows) for table in ("rounds", "steps", "calls")}
            calls: defaultdict[str, list[StoredCall]] = defaultdict(list)
            for call in self._calls(list(chain.from_iterable(parts["calls"].values()))):
                calls[call.episode].append(call)
            return [
                read_episode(
                    row, parts["rounds"][row["id"]], parts["steps"][row["id"]], calls[row["id"]]
                )
                for row in rows
            ]

    def _rows_of(
        self, table: str, episodes: Sequence[_Columns]
    ) -> defaultdict[str, list[_Columns]]:
        """Return the rows of a table, by the episode that they belong to."""
        order = "number" if table == "calls" else "round"
        query = f"SELECT * FROM {table} WHERE {self._episode_in} ORDER BY {order}"  # noqa: S608
        by_episode: defaultdict[str, list[_Columns]] = defaultdict(list)
        for row in self._rows(query, (json.dumps([row["id"] for row in episodes]),)):
            by_episode[row["episode"]].append(row)
        return by_episode

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Turn the errors of SQLite, and values of the wrong form, into a JournalError."""
        try:
            yield
        except (sqlite3.Error, ValueError, KeyError) as error:
            raise JournalError(f"{self.title}: cannot be read: {explain(error)}") from error


class JournalReader(RowReader):
    """A journal that is only read. A context manager; any thread may use it.

    Args:
        path: the journal's file.

    Raises:
        JournalError: it cannot be opened, is not a journal, or has a newer version.
    """

    _usage_field = "json_extract(usage, '$.{}')"
    _number_in = "number IN (SELECT value FROM json_each(?))"
    _episode_in = "episode IN (SELECT value FROM json_each(?))"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.title = f"journal {self.path}"
        self._connection = open_for_reading(self.path)
        self._reading = threading.Lock()

    def close(self) -> None:
        """Close the file; reading it later raises JournalError."""
        with self._reading:
            self._connection.close()

    def _rows(
        self, query: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[_Columns]:
        """Return the rows of a query, with their JSON parsed."""
        with self._explained():
            with self._reading:
                rows = [dict(row) for row in self._connection.execute(query, values)]
            for row in rows:
                parse_json(row)
            return rows

    def _written_since(self) -> float:
        return locked_since(self.path)

    def _episodes_query(self) -> str:
        has_turns = self._rows("SELECT 1 FROM sqlite_master WHERE name = 'whole_messages'")
        return _EPISODES.format(_IN_TURNS if has_turns else "")

    def _lines_query(self, chosen: EpisodeFilter) -> tuple[str, dict[str, object]]:
        named = self._rows(
            "SELECT name FROM sqlite_master UNION SELECT name FROM pragma_table_info('episodes')"
        )
        return lines_query(chosen, tables=[row["name"] for row in named])


def _stopped(line: EpisodeLine) -> EpisodeLine:
    return replace(line, is_stopped=line.outcome == "unfinished")


def parse_json(row: dict[str, Any]) -> None:
    """Parse the JSON in a row."""
    for name in _JSON_COLUMNS:
        if row.get(name) is not None:
            row[name] = json.loads(row[name])
    if row.get("only_step") is not None:
        parse_json(row["only_step"])


def _is_numbered(question: object) -> bool:
    """Return True if a question is a list of the numbers of its messages."""
    return is_array(question) and bool(question) and isinstance(question[0], int)
