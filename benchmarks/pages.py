"""The page over a large store: bytes and CPU of each address, beside ``GET /health`` in one run.

    python -m benchmarks.pages [--json] [--episodes 100000] [--repeats 15] [--store FILE]

The store has episodes of one planned step, every hundredth of four rounds with five steps each, and
fifty that have not ended. With ``--store`` it is kept in a file, and made only if that is missing.
Requests are handed to the ASGI app without a network; CPU is that of the whole process.

- bars: a page has at most 200 kB; the median page costs at most 20 times the CPU of ``/health``;
  reading all of them adds at most 50 MB to the process.
- live: the share of a core that looking for changes takes, with 50 episodes open in browsers.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks import results

from openconductor import Conductor, Step, Worker, WorkerPool, Workflow
from openconductor.events import Answered, Asked, Event
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import ServeConfig
from openconductor.store import EpisodeFilter, Journal, open_store
from openconductor.testing import Scripted
from openconductor.types import Completion, Price, Usage
from openconductor.ui.door import Door
from openconductor.ui.site import EPISODE_POLL_S

PAGE_BYTES = 200_000
TIMES_HEALTH = 20.0
MEGABYTES = 50.0
RUNNING = 50
BATCH = 2_000
WORDS = "the sum of both halves is an integer, which the second way of counting confirms; "
NAMES = ("gpt-5", "opus", "gemini", "qwen", "counter")
PRICE = Price(Decimal("1.25"), Decimal(10))
SMALL = Workflow([Step(0, "Answer.")])
LARGE = Workflow(
    [
        Step(0, "List what is given."),
        Step(1, "Solve it.", [0]),
        Step(2, "Solve it in another way.", [0]),
        Step(3, "Compare.", [1, 2]),
        Step(4, "Answer.", "all"),
    ]
)


def conductor(flow: Workflow, rounds: int) -> Conductor:
    """Return a Conductor whose workers answer with 2,000 characters."""
    said = Completion(WORDS * 25, usage=Usage(400, 0, 500))
    workers = [Worker(Scripted([said], identity=name), name=name, price=PRICE) for name in NAMES]
    planner = Worker(Scripted([flow], identity="planner"), name="planner", price=PRICE)
    return Conductor(planner, pool=WorkerPool(workers), max_rounds=rounds)


async def recorded(flow: Workflow, rounds: int) -> list[Event]:
    """Return the events of one episode."""
    events: list[Event] = []
    asked = await conductor(flow, rounds).ask("Q", on_event=events.append)
    assert asked.answer is not None
    assert len(asked.rounds) == rounds
    return events


def renamed(events: Sequence[Event], number: int) -> list[Event]:
    """Return the events of another episode, with another question and other costs."""
    identifier = uuid.uuid4().hex
    copies: list[Event] = []
    for event in events:
        copy = replace(event, episode=identifier)
        if isinstance(copy, Asked):
            copy = replace(copy, question=f"Question {number}: {WORDS * 3}")
        elif isinstance(copy, Answered):
            usage = replace(copy.outcome.usage, dollars=Decimal(number * 7919 % 9973) / 100_000)
            copy = replace(copy, outcome=replace(copy.outcome, usage=usage))
        copies.append(copy)
    return copies


async def fill(store: Journal, episodes: int) -> None:
    """Write so many episodes, and some that have not ended."""
    small, large = await recorded(SMALL, 1), await recorded(LARGE, 4)
    for number in range(episodes):
        store.put_episode(renamed(large if number % 100 == 0 else small, number))
        if number % BATCH == 0:
            await store.wait_durable()
    for number in range(RUNNING):
        store.put_episode(renamed(large, number)[:20])
    await store.wait_durable()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────
class Client:
    """Sends requests to an ASGI app, as a browser with a session."""

    def __init__(self, app: Any, cookie: str) -> None:
        self._app = app
        self._cookie = cookie

    async def get(self, address: str) -> tuple[int, bytes]:
        """Return the status and the body of an address."""
        path, _, query = address.partition("?")
        headers = [(b"host", b"127.0.0.1:1"), (b"cookie", self._cookie.encode())]
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "scheme": "http",
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
            "http_version": "1.1",
        }
        status, body = 0, b""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")

        await self._app(scope, receive, send)
        return status, body


async def cost_of(client: Client, address: str, repeats: int) -> dict[str, Any]:
    """Return the bytes of an address, and the median of its CPU in milliseconds."""
    seconds: list[float] = []
    size = 0
    for _ in range(repeats):
        began = time.process_time()
        status, body = await client.get(address)
        seconds.append(time.process_time() - began)
        assert status == 200, (address, status)
        size = len(body)
    return {"bytes": size, "ms": round(1000 * statistics.median(seconds), 2)}


def megabytes() -> float:
    """Return the largest memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(store: Journal, repeats: int) -> dict[str, Any]:
    asked = conductor(SMALL, 1)
    gateway = Gateway(asked.pool, store, {"conductor": asked})
    door = Door(1)
    app = build_app(gateway, KeyRing(()), ServeConfig(log_level="error"), door)
    session = door.exchange(token=door.new_token(None))
    client = Client(app, f"{door.cookie}={session}")
    large = next(line for line in store.lines(limit=500) if line.rounds == 4)
    small = next(line for line in store.lines(limit=500) if line.rounds == 1)
    other = next(line for line in store.lines(offset=200, limit=500) if line.rounds == 4)
    total = len(store.lines(limit=10**9))
    episode = f"/ui/episodes/{large.id}"
    addresses = {
        "health": "/health",
        "list": "/ui/episodes",
        "list as JSON": "/ui/episodes.json",
        "list, last page": f"/ui/episodes?page={total // 50}",
        "list by cost": "/ui/episodes?order=dollars",
        "list of failures": "/ui/episodes?outcome=failed",
        "list of a worker": "/ui/episodes?worker=opus",
        "list of a text": "/ui/episodes?text=Question+77",
        "episode of one step": f"/ui/episodes/{small.id}",
        "episode of 4 x 5 steps": episode,
        "part": f"{episode}/parts/3-4",
        "two side by side": f"/ui/compare?id={large.id}&id={other.id}",
    }
    for address in addresses.values():
        await client.get(address)
    before = megabytes()
    found = {name: await cost_of(client, address, repeats) for name, address in addresses.items()}
    grown = megabytes() - before
    health = found["health"]["ms"]
    for figures in found.values():
        figures["times health"] = round(figures["ms"] / health, 1)
    pages = [figures for name, figures in found.items() if name != "health"]
    bars = [
        results.at_most("largest page, bytes", max(page["bytes"] for page in pages), PAGE_BYTES),
        results.at_most(
            "median page, times /health",
            statistics.median(page["times health"] for page in pages),
            TIMES_HEALTH,
        ),
        results.at_most("memory added, MB", grown, MEGABYTES),
        results.at_most("50 live episodes, share of a core", live_share(store), 0.1),
    ]
    return {"bars": bars, "episodes": total, "pages": found, **results.machine()}


def live_share(store: Journal) -> float:
    """Return the share of a core that it takes to look for changes of 50 episodes."""
    running = [line.id for line in store.lines(EpisodeFilter(outcome="unfinished"))]
    assert len(running) == RUNNING
    began = time.process_time()
    for identifier in running:
        store.lines(EpisodeFilter(identifier=identifier), limit=1)
    return (time.process_time() - began) / EPISODE_POLL_S


async def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "pages.sqlite"
        is_new = not path.exists()
        with open_store(path) as store:
            assert isinstance(store, Journal)
            if is_new:
                await fill(store, options.episodes)
            results.show(await measure(store, options.repeats), as_json=options.json)


if __name__ == "__main__":
    asyncio.run(main())
