"""Cost of durability: steps a second into the journal with group commit, and with a commit a step.

    python -m benchmarks.journal [--json] [--repeats 3] [--folder .]

The bar is 5,000 steps a second on the disk under ``--folder``.

- group commit: the events of real episodes (a tree of five steps, responses of 2,000 characters, a
  price, a planner's call) are handed to a Journal by many tasks of one event loop. Each task waits
  until its episode is durable before it begins the next. A step is its call with request and
  response, its row, and its share of the episode.
- one commit a step: the same events into the same Journal, but each step is waited for alone.
- through ``ask``: a Conductor with workers that answer at once, without and with a journal.
- the disk: how many times a second 64 KiB are appended and synced, one after the other.

Repeats are interleaved and medians reported, because machines are noisy. Everything is read back
and counted at the end.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import results

from openconductor import Conductor, Message, Worker, WorkerPool
from openconductor.events import Event, StepEnded
from openconductor.protocols import Provider
from openconductor.store import Journal
from openconductor.types import Completion, Price, Usage

BAR = 5_000  # steps a second
STEPS = 5
RECORDED = 300  # different episodes
EPISODES = {
    "group commit": 5_000,
    "one commit a step": 40,
    "ask, journal": 2_000,
}
IN_FLIGHT = (64, 256)
PLAN = """model_id = [0, 0, 0, 0, 0]
subtasks = ["Do the first half.", "Do the second half.", "Check the first half.",
            "Check the second half.", "Put both together."]
access_list = [[], [], [0], [1], [2, 3]]"""
WORDS = (
    "the value sum we prove that therefore get integer twice result which gives so if both halves "
    "agree"
)


class Instant(Provider):
    """A worker that answers at once: 2,000 characters, different ones each time."""

    identity = "instant"

    def __init__(self, *, plans: bool) -> None:
        draws = random.Random(0)
        self._texts = [" ".join(draws.choices(WORDS.split(), k=420))[:1990] for _ in range(997)]
        self._plans = plans
        self._calls = 0

    async def complete(self, messages: list[Message], sampling: object, **_: object) -> Completion:
        await asyncio.sleep(0)
        self._calls += 1
        text = PLAN if self._plans else f"{self._calls:9} {self._texts[self._calls % 997]}"
        read = sum(len(message.content) for message in messages) // 4
        return Completion(text, usage=Usage(input_tokens=read, output_tokens=500))


def conductor() -> Conductor:
    price = Price(Decimal("1.25"), Decimal(10))
    worker = Worker(Instant(plans=False), name="worker", price=price)
    planner = Worker(Instant(plans=True), name="conductor", price=price)
    return Conductor(planner, pool=WorkerPool([worker]))


def question(number: int) -> str:
    return f"Question {number}: " + WORDS * 3


async def record() -> list[list[Event]]:
    """Return the events of some episodes, a list for each."""
    asked = conductor()
    recorded: list[list[Event]] = []
    for number in range(RECORDED):
        events: list[Event] = []
        episode = await asked.ask(question(number), on_event=events.append)
        assert episode.answer is not None
        recorded.append(events)
    return recorded


async def in_flight(tasks: int, episodes: int, one: Callable[[int], Awaitable[None]]) -> float:
    """Run ``one`` for the number of each episode in some tasks; return the steps a second."""
    numbers = iter(range(episodes))

    async def lane() -> None:
        for number in numbers:
            await one(number)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(tasks)))
    return episodes * STEPS / (time.perf_counter() - began)


async def group_commit(recorded: list[list[Event]], tasks: int, journal: Journal) -> float:
    async def one(number: int) -> None:
        episode = uuid.uuid4().hex
        for event in recorded[number % RECORDED]:
            journal(replace(event, episode=episode))
            await asyncio.sleep(0)
        await journal.wait_durable()

    return await in_flight(tasks, EPISODES["group commit"], one)


async def one_commit_a_step(recorded: list[list[Event]], journal: Journal) -> float:
    async def one(number: int) -> None:
        episode = uuid.uuid4().hex
        for event in recorded[number % RECORDED]:
            journal(replace(event, episode=episode))
            if isinstance(event, StepEnded):
                await journal.wait_durable()
        await journal.wait_durable()

    return await in_flight(1, EPISODES["one commit a step"], one)


async def through_ask(tasks: int, journal: Journal | None) -> float:
    asked = conductor()

    async def one(number: int) -> None:
        episode = await asked.ask(question(number), on_event=journal)
        assert episode.answer is not None

    return await in_flight(tasks, EPISODES["ask, journal"], one)


def syncs_a_second(folder: Path) -> float:
    """Return how often a second 64 KiB are appended and reach the disk."""
    block, count = os.urandom(65_536), 100
    with (folder / "syncs").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(count):
            file.write(block)
            os.fsync(file.fileno())
        return count / (time.perf_counter() - began)


def bytes_a_step(path: Path, episodes: int) -> float:
    """Check that the file holds everything; return its bytes a step."""
    expected = {"episodes": episodes, "steps": episodes * STEPS, "calls": episodes * (STEPS + 1)}
    with closing(sqlite3.connect(path)) as connection:
        for table, count in expected.items():
            query = f"SELECT count(*) FROM {table} WHERE outcome = 'answered'"
            found = connection.execute(query).fetchone()[0]
            assert found == count, (table, found, count)
    return path.stat().st_size / (episodes * STEPS)


class Measured:
    """Rates by name, and the sizes of the journals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rates: dict[str, list[float]] = {}
        self.sizes: list[float] = []

    def add(self, name: str, rate: float) -> None:
        self.rates.setdefault(name, []).append(rate)

    def add_journaled(self, name: str, kind: str, run: Run) -> None:
        """Run with a new journal, and check what it holds."""
        path = self.folder / f"{uuid.uuid4().hex}.sqlite"
        with Journal(path) as journal:
            self.add(name, asyncio.run(run(journal)))
        self.sizes.append(bytes_a_step(path, EPISODES[kind]))
        path.unlink()


Run = Callable[[Journal], Coroutine[None, None, float]]


def measure(repeats: int, under: Path) -> dict[str, Any]:
    recorded = asyncio.run(record())
    with tempfile.TemporaryDirectory(dir=under, prefix="journal-benchmark-") as name:
        measured = Measured(Path(name))
        for _ in range(repeats):
            measure_once(measured, recorded)
    medians = {name: statistics.median(rates) for name, rates in measured.rates.items()}
    best = max(medians[f"group commit, {tasks} in flight"] for tasks in IN_FLIGHT)
    return {
        "bars": [results.at_least("steps a second, group commit", best, BAR)],
        "a_second": {
            name: [min(rates), medians[name], max(rates)] for name, rates in measured.rates.items()
        },
        "times_one_commit_a_step": best / medians["one commit a step"],
        "bytes_a_step": statistics.median(measured.sizes),
        "machine": {**results.machine(), "sqlite": sqlite3.sqlite_version},
        "repeats": repeats,
    }


def measure_once(measured: Measured, recorded: list[list[Event]]) -> None:
    one_by_one = partial(one_commit_a_step, recorded)
    for tasks in IN_FLIGHT:
        grouped = partial(group_commit, recorded, tasks)
        measured.add_journaled(f"group commit, {tasks} in flight", "group commit", grouped)
    measured.add_journaled("one commit a step", "one commit a step", one_by_one)
    for tasks in IN_FLIGHT:
        rate = asyncio.run(through_ask(tasks, None))
        measured.add(f"ask, no journal, {tasks} in flight", rate)
        asked = partial(through_ask, tasks)
        measured.add_journaled(f"ask, journal, {tasks} in flight", "ask, journal", asked)
    measured.add("the disk: 64 KiB appended and synced", syncs_a_second(measured.folder))


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    help_ = "a folder on the disk in question (default: here)"
    parser.add_argument("--folder", type=Path, default=Path(), help=help_)
    options = parser.parse_args()
    result = measure(options.repeats, options.folder)
    results.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
