"""Lists of episodes: the filters, a line for each episode, and the SQL of the file that finds them.

A line holds what a list shows, so that a page of fifty episodes reads no steps, messages or calls
of theirs, whatever the size of the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from openconductor.ledger import CONDUCTOR
from openconductor.store.serialisation import load
from openconductor.store.store import SERVED, SUCCESSES, EpisodeOutcome, StoredEpisode
from openconductor.types import Usage, text_of

EXCERPT = 300
"""The characters of a question and of an answer that a line holds, at most."""

EpisodeOrder = Literal["latest", "dollars", "tokens", "seconds"]
"""The latest first, or those with the most of it."""


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Chooses episodes for a list. None: any.

    Attributes:
        identifier: the episode of this id only.
        outcome: those with this outcome.
        worker: those that called the worker of this name.
        error: those that ended in an error of this class.
        text: those whose question or answer contains this text (ASCII in any case).
        since: those that began then or later, in seconds since 1970.
        key: those that were served to the key of this name; "": to anybody, by a server without
            keys.
        task: those of an evaluation that answered a problem of this task.
        order: the order of the list.
    """

    identifier: str | None = None
    outcome: EpisodeOutcome | None = None
    worker: str | None = None
    error: str | None = None
    text: str | None = None
    since: float | None = None
    key: str | None = None
    task: str | None = None
    order: EpisodeOrder = "latest"

    def values(self) -> dict[str, object]:
        """Return what it chooses by, as the arguments of a query."""
        values: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "order":
                values[field.name] = contains_pattern(value) if field.name == "text" else value
        return values


@dataclass(frozen=True, slots=True)
class EpisodeLine:
    """An episode as a list shows it.

    Attributes:
        id: names the episode.
        started: seconds since 1970; None: its beginning was not stored.
        outcome: ``answered``, ``failed`` or ``unfinished``.
        question, answer: the beginnings of the texts; None: not kept, or no answer.
        error: the class of the error that ended it; None: none did.
        seconds: wall time; None: it has not ended.
        usage: everything; of an unfinished episode that of the calls that have ended.
        workers: the names of the workers that were called, without the planner.
        rounds, steps: how many there are; of an unfinished episode those that have ended.
        calls: attempts at calls that have ended.
        key: the name of the key that it was served to; None: it was not served.
        model: the model that the client asked for.
        is_stopped: True if it was cut off and will never end: its request is over, or the process
            that wrote it is gone.
    """

    id: str
    started: float | None
    outcome: EpisodeOutcome
    question: str | None
    answer: str | None
    error: str | None
    seconds: float | None
    usage: Usage
    workers: tuple[str, ...]
    rounds: int
    steps: int
    calls: int
    key: str | None = None
    model: str | None = None
    is_stopped: bool = False

    @property
    def state(self) -> str:
        """The outcome, or ``running``, or ``stopped``."""
        if self.outcome != "unfinished":
            return self.outcome
        return "stopped" if self.is_stopped else "running"


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker's latest calls, as the page of the pool shows them.

    Attributes:
        name: the worker's.
        outcomes: the number of calls of each outcome.
        usage: of all of them.
        median_s, slow_s: seconds of a call that succeeded, in the median and at 95 %; None: none
            did.
    """

    name: str
    outcomes: Mapping[str, int]
    usage: Usage
    median_s: float | None
    slow_s: float | None

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.outcomes.values())

    @property
    def failed(self) -> float:
        """The share of calls that did not succeed."""
        succeeded = sum(self.outcomes.get(outcome, 0) for outcome in SUCCESSES)
        return 1 - succeeded / max(1, self.calls)


def worker_lines(calls: Iterable[tuple[str, str, Usage]]) -> list[WorkerLine]:
    """Return a line for each worker, by name, of its calls: the worker, the outcome, the usage."""
    by_worker: dict[str, list[tuple[str, Usage]]] = {}
    for worker, outcome, usage in calls:
        by_worker.setdefault(worker, []).append((outcome, usage))
    lines: list[WorkerLine] = []
    for name in sorted(by_worker):
        own = by_worker[name]
        seconds = sorted(usage.seconds for outcome, usage in own if outcome in SUCCESSES)
        last = len(seconds) - 1
        line = WorkerLine(
            name=name,
            outcomes=dict(Counter(outcome for outcome, _ in own).most_common()),
            usage=sum((usage for _, usage in own), Usage()),
            median_s=seconds[last // 2] if seconds else None,
            slow_s=seconds[round(0.95 * last)] if seconds else None,
        )
        lines.append(line)
    return lines


# ── the file ──────────────────────────────────────────────────────────────────────────────────────
RECORD = f"""(SELECT record FROM outcomes WHERE outcomes.key = '{SERVED}' || episodes.id
    ORDER BY outcomes.number DESC LIMIT 1)"""  # noqa: S608 - our own prefix
"""SQL for the latest record of whom an episode was served to."""

_CONDITIONS = {
    "identifier": "episodes.id = :identifier",
    "outcome": "episodes.outcome = :outcome",
    "worker": """EXISTS (SELECT 1 FROM calls WHERE calls.episode = episodes.id
        AND calls.worker = :worker AND calls.step IS NOT NULL)""",
    "error": "json_extract(episodes.error, '$.type') = :error",
    "text": "(episodes.answer LIKE :text ESCAPE '!' OR {question} LIKE :text ESCAPE '!')",
    "since": "episodes.started >= :since",
    "key": f"json_extract({RECORD}, '$.key') = :key",
    "task": """episodes.id IN (SELECT json_extract(record, '$.episode') FROM outcomes
        WHERE json_extract(record, '$.task') = :task)""",
}
_ORDERS: Mapping[EpisodeOrder, str] = {
    "latest": "episodes.number DESC",
    "dollars": "CAST(json_extract(usage, '$.dollars') AS REAL) DESC, episodes.number DESC",
    "tokens": """json_extract(usage, '$.input_tokens') + json_extract(usage, '$.output_tokens')
        DESC, episodes.number DESC""",
    "seconds": "episodes.seconds DESC, episodes.number DESC",
}
_TURN = """(SELECT json_extract(message, '$.content') FROM {messages} AS whole
    WHERE whole.number = json_extract(question, '$[#-1]'))"""
_QUESTION = "CASE json_type(question) WHEN 'array' THEN {turn} ELSE json_extract(question, '$') END"

# The numbers are found first, so that what a line costs is paid for its page only.
_LINES = """SELECT episodes.id, started, outcome, seconds, usage, error,
    substr(answer, 1, {excerpt}) AS answer_text, substr({question}, 1, {excerpt}) AS question_text,
    CASE WHEN usage IS NULL THEN (SELECT json_group_array(json(calls.usage)) FROM calls
        WHERE calls.episode = episodes.id) END AS spent,
    (SELECT json_group_array(DISTINCT worker) FROM calls
        WHERE calls.episode = episodes.id AND step IS NOT NULL) AS called,
    (SELECT count(*) FROM calls WHERE calls.episode = episodes.id) AS calls,
    (SELECT count(*) FROM rounds WHERE rounds.episode = episodes.id) AS rounds,
    (SELECT count(*) FROM steps WHERE steps.episode = episodes.id) AS steps,
    {only_step} AS was_only_step, {record} AS served
    FROM episodes WHERE number IN (SELECT number FROM episodes WHERE {conditions}
        ORDER BY {order} LIMIT :limit OFFSET :offset) ORDER BY {order}"""


def lines_query(chosen: EpisodeFilter, *, tables: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return the SQL of a page of a list, and the values of the filter.

    Args:
        chosen: the filter.
        tables: the tables, views and columns of ``episodes`` that the file has; an old one has
            fewer.
    """
    messages = "whole_messages" if "whole_messages" in tables else "messages"
    question = _QUESTION.format(turn=_TURN.format(messages=messages))
    values = chosen.values()
    conditions = ["1", *(_CONDITIONS[name].format(question=question) for name in values)]
    query = _LINES.format(
        excerpt=EXCERPT,
        question=question,
        only_step="only_step IS NOT NULL" if "only_step" in tables else "0",
        record=RECORD,
        conditions=" AND ".join(conditions),
        order=_ORDERS[chosen.order],
    )
    return query, values


def contains_pattern(text: str) -> str:
    """Return the pattern of LIKE for a text that contains this one; ``!`` escapes."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def read_line(row: Mapping[str, Any]) -> EpisodeLine:
    """Return the line of a row of ``lines_query``.

    Raises:
        ValueError: a column has the wrong form.
    """
    usage = row["usage"]
    spent = [usage] if usage is not None else json.loads(row["spent"])
    served: dict[str, Any] = {} if row["served"] is None else json.loads(row["served"])
    only_step = bool(row["was_only_step"])
    error = row["error"]
    return EpisodeLine(
        id=row["id"],
        started=row["started"],
        outcome=row["outcome"],
        question=row["question_text"],
        answer=row["answer_text"],
        error=None if error is None else error["type"],
        seconds=row["seconds"],
        usage=sum((load(Usage, part) for part in spent), Usage()),
        workers=tuple(json.loads(row["called"])),
        rounds=row["rounds"] + only_step,
        steps=row["steps"] + only_step,
        calls=row["calls"],
        key=served.get("key"),
        model=served.get("model"),
        is_stopped=_is_stopped(row["outcome"], served),
    )


def _is_stopped(outcome: str, served: Mapping[str, Any]) -> bool:
    """Return True if a request is charged, and so over, while its episode has no end."""
    return outcome == "unfinished" and served.get("charged") is not None


# ── any other store ───────────────────────────────────────────────────────────────────────────────
def line_of(episode: StoredEpisode, record: Mapping[str, Any] | None = None) -> EpisodeLine:
    """Return the line of an episode that is at hand.

    Args:
        episode: the episode.
        record: the record of the request that it was served to; None: it was not served.
    """
    served: Mapping[str, Any] = {} if record is None else record
    question = text_of(episode.question)[:EXCERPT] if episode.question else None
    answer = None if episode.answer is None else episode.answer[:EXCERPT]
    results = [
        result
        for played in episode.rounds
        if played.transcript is not None
        for result in played.transcript.results
    ]
    called = [call.worker for result in results for call in result.calls]
    ended = episode.outcome != "unfinished"
    return EpisodeLine(
        id=episode.id,
        started=episode.started,
        outcome=episode.outcome,
        question=question,
        answer=answer,
        error=None if episode.error is None else type(episode.error).__name__,
        seconds=episode.seconds if ended else None,
        usage=episode.usage,
        workers=tuple(dict.fromkeys(name for name in called if name != CONDUCTOR)),
        rounds=len(episode.rounds),
        steps=len(results),
        calls=len(episode.calls),
        key=served.get("key"),
        model=served.get("model"),
        is_stopped=_is_stopped(episode.outcome, served),
    )
