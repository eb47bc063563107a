"""What durability costs: steps a second into the journal with group commit, beside one commit a step, on this disk.

    python -m benchmarks.journal [--json] [--repeats 3] [--folder .]

In: nothing but this machine and the disk under ``--folder``. Out: a table, and whether the bar of
5,000 steps a second holds.

- group commit: the events of real episodes (a tree of five steps, responses of 2,000 characters, a price, a planner's
  call) are handed to a Journal by so many tasks of one event loop, each of which waits until its episode is durable
  before it begins the next. What a step costs is all that belongs to it: its call with request and response, its row,
  its share of the episode.
- one commit a step: the same events into the same Journal, but each step is waited for on its own.
- through ``ask``: a Conductor with workers that answer at once, without and with a journal: what else happens on the
  event loop's thread meanwhile.
- the disk: how many times a second 64 KiB are appended and synced, one after the other.

Repeats are interleaved and medians reported, for machines are noisy; everything is read back and
counted at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
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
from pathlib import Path
from typing import Any

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
    "ask, no journal": 2_000,
    "ask, journal": 2_000,
}
IN_FLIGHT = (64, 256)
PLAN = "model_id = [0, 0, 0, 0, 0]\nsubtasks = ['Do the first half.', 'Do the second half.', 'Check the first half.', "
PLAN += "'Check the second half.', 'Put both together.']\naccess_list = [[], [], [0], [1], [2, 3]]"
WORDS = "the value sum we prove that therefore get integer twice result which gives so if both halves agree"


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
        return Completion(
            text,
            usage=Usage(input_tokens=sum(len(m.content) for m in messages) // 4, output_tokens=500),
        )


def conductor() -> Conductor:
    price = Price(Decimal("1.25"), Decimal(10))
    worker = Worker(Instant(plans=False), name="worker", price=price)
    return Conductor(
        Worker(Instant(plans=True), name="conductor", price=price), pool=WorkerPool([worker])
    )


def question(number: int) -> str:
    return f"Question {number}: " + WORDS * 3


async def record() -> list[list[Event]]:
    """The events of some episodes, one list an episode."""
    asking, heard = conductor(), list[list[Event]]()
    for number in range(RECORDED):
        events: list[Event] = []
        assert (await asking.ask(question(number), on_event=events.append)).answer is not None
        heard.append(events)
    return heard


async def in_flight(tasks: int, episodes: int, one: Callable[[int], Awaitable[None]]) -> float:
    """Run ``one`` for each episode's number, so many at once; the steps a second."""
    numbers = iter(range(episodes))

    async def lane() -> None:
        for number in numbers:
            await one(number)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(tasks)))
    return episodes * STEPS / (time.perf_counter() - began)


async def group_commit(journal: Journal, recorded: list[list[Event]], tasks: int) -> float:
    async def one(number: int) -> None:
        episode = uuid.uuid4().hex
        for event in recorded[number % RECORDED]:
            journal(replace(event, episode=episode))
            await asyncio.sleep(0)
        await journal.wait_durable()

    return await in_flight(tasks, EPISODES["group commit"], one)


async def one_commit_a_step(journal: Journal, recorded: list[list[Event]]) -> float:
    async def one(number: int) -> None:
        episode = uuid.uuid4().hex
        for event in recorded[number % RECORDED]:
            journal(replace(event, episode=episode))
            if isinstance(event, StepEnded):
                await journal.wait_durable()
        await journal.wait_durable()

    return await in_flight(1, EPISODES["one commit a step"], one)


async def through_ask(journal: Journal | None, tasks: int) -> float:
    asking = conductor()

    async def one(number: int) -> None:
        assert (await asking.ask(question(number), on_event=journal)).answer is not None

    return await in_flight(tasks, EPISODES["ask, journal" if journal else "ask, no journal"], one)


def syncs_a_second(folder: Path) -> float:
    """How often a second 64 KiB are appended and reach the disk."""
    block, count = os.urandom(65_536), 100
    with (folder / "syncs").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(count):
            file.write(block)
            os.fsync(file.fileno())
        return count / (time.perf_counter() - began)


def counted(path: Path, episodes: int) -> float:
    """Bytes a step; fails where anything is missing in the file."""
    with closing(sqlite3.connect(path)) as connection:
        for query, expected in (
            ("SELECT count(*) FROM episodes WHERE outcome = 'answered'", episodes),
            ("SELECT count(*) FROM steps WHERE outcome = 'answered'", episodes * STEPS),
            ("SELECT count(*) FROM calls WHERE outcome = 'answered'", episodes * (STEPS + 1)),
        ):
            found = connection.execute(query).fetchone()[0]
            assert found == expected, (query, found, expected)
    return path.stat().st_size / (episodes * STEPS)


def measure(repeats: int, under: Path) -> dict[str, object]:
    recorded = asyncio.run(record())
    rates: dict[str, list[float]] = {}
    size: list[float] = []

    def journaled(
        name: str, episodes: int, run: Callable[[Journal], Coroutine[None, None, float]]
    ) -> None:
        path = folder / f"{uuid.uuid4().hex}.sqlite"
        with Journal(path) as journal:
            rates.setdefault(name, []).append(asyncio.run(run(journal)))
        size.append(counted(path, episodes))
        path.unlink()

    with tempfile.TemporaryDirectory(dir=under, prefix="journal-benchmark-") as name:
        folder = Path(name)
        for _ in range(repeats):
            for tasks in IN_FLIGHT:
                journaled(
                    f"group commit, {tasks} in flight",
                    EPISODES["group commit"],
                    lambda journal, tasks=tasks: group_commit(journal, recorded, tasks),
                )
            journaled(
                "one commit a step",
                EPISODES["one commit a step"],
                lambda journal: one_commit_a_step(journal, recorded),
            )
            for tasks in IN_FLIGHT:
                rates.setdefault(f"ask, no journal, {tasks} in flight", []).append(
                    asyncio.run(through_ask(None, tasks))
                )
                journaled(
                    f"ask, journal, {tasks} in flight",
                    EPISODES["ask, journal"],
                    lambda journal, tasks=tasks: through_ask(journal, tasks),
                )
            rates.setdefault("the disk: 64 KiB appended and synced", []).append(
                syncs_a_second(folder)
            )
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max(medians[f"group commit, {tasks} in flight"] for tasks in IN_FLIGHT)
    return {
        "bar": {
            "what": "steps a second, group commit",
            "at_least": BAR,
            "value": best,
            "held": best >= BAR,
        },
        "a_second": {
            name: [min(values), medians[name], max(values)] for name, values in rates.items()
        },
        "times_one_commit_a_step": best / medians["one commit a step"],
        "bytes_a_step": statistics.median(size),
        "machine": {
            "cores": os.cpu_count(),
            "load_1min": os.getloadavg()[0],
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "repeats": repeats,
    }


def show(result: dict[str, Any]) -> None:
    print(f"{'a second':42} {'least':>8} {'median':>8} {'most':>8}")
    for name, figures in result["a_second"].items():
        print(f"{name:42} " + " ".join(f"{figure:8.0f}" for figure in figures))
    bar = result["bar"]
    print(
        f"{'held  ' if bar['held'] else 'MISSED'} {bar['value']:.0f} {bar['what']} (at least {bar['at_least']})"
    )
    print(
        f"{result['times_one_commit_a_step']:.0f} times one commit a step; {result['bytes_a_step']:.0f} bytes a step"
    )
    print(f"machine: {json.dumps(result['machine'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        help="a folder on the disk in question (default: here)",
    )
    options = parser.parse_args()
    result = measure(options.repeats, options.folder)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
