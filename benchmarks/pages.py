"""The page over a large store: bytes and CPU of each address, beside ``GET /health`` in one run.

    python -m benchmarks.pages [--json] [--episodes 100000] [--repeats 15] [--store FILE]

The store has episodes of one planned step, every hundredth of four rounds with five steps each, and
fifty that have not ended. Beside it stand two trainings of 500 iterations with 64 rollouts each,
and an evaluation of the gym's workers and Conductor. With ``--store`` the store is kept in a file,
and made only if that is missing.
A process of ``openconductor serve --ui`` answers over loopback; the CPU is the server's own, as
Linux counts it for each of its threads.

- bars: a page has at most 200 kB; the median page costs at most 20 times the CPU of ``/health``;
  reading all of them adds at most 50 MB to the process.
- live: the share of a core that looking for changes takes, with 50 episodes open in browsers.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks import results
from tests.integration.browsing import PageClient, read_link

from openconductor import Conductor, Step, Worker, WorkerPool, Workflow
from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import run_grid
from openconductor.events import Answered, Asked, Event
from openconductor.store import (
    SERVED,
    EpisodeFilter,
    Journal,
    StoreReader,
    open_store,
    read_store,
)
from openconductor.testing import Scripted
from openconductor.types import Completion, Price, Usage
from openconductor.ui.episodes import EPISODE_POLL_S

PAGE_BYTES = 200_000
TIMES_HEALTH = 20.0
MEGABYTES = 50.0
LIVE_SHARE = 0.1
RUNNING = 50
ITERATIONS, ROLLOUTS, QUESTIONS = 500, 64, 200
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


def put_served(store: Journal, events: Sequence[Event]) -> None:
    """Keep an episode as a server without keys does."""
    store.put_episode(events)
    record = {"key": "", "model": "conductor", "began": 0.0, "charged": "0"}
    store.put_record(f"{SERVED}{events[0].episode}", record, texts=False)


async def fill(store: Journal, episodes: int) -> None:
    """Write so many episodes, and some that have not ended."""
    small, large = await recorded(SMALL, 1), await recorded(LARGE, 4)
    for number in range(episodes):
        put_served(store, renamed(large if number % 100 == 0 else small, number))
        if number % BATCH == 0:
            await store.wait_durable()
    for number in range(RUNNING):
        put_served(store, renamed(large, number)[:20])
    await store.wait_durable()


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────
def write_training(folder: Path, seed: int) -> None:
    """Write the folder of a training as it stands after 500 iterations."""
    draws = random.Random(seed)
    folder.mkdir(parents=True)
    recipe = f"seed = {seed}\n[rollout]\niterations = 1000\ncompletions = 8\n"
    (folder / "config.toml").write_text(recipe)
    rollout = {"round": 0, "invalid": None, "error": None, "correct": True, "reward": 1.0}
    rollout |= {"completion": WORDS * 6, "answer": WORDS, "undecided": False}
    with (folder / "curves.jsonl").open("w") as curve, Journal(folder / "journal.sqlite") as store:
        for number in range(ITERATIONS):
            curve.write(json.dumps(record_of(number, draws)) + "\n")
            for place in range(ROLLOUTS):
                problem = f"question {number}-{place // 8}"
                store.put_record(f"iteration {number}/{place}", {**rollout, "problem": problem})
        store.flush()


def record_of(number: int, draws: random.Random) -> dict[str, Any]:
    """Return the record of an iteration, as a training writes it."""
    shares = [draws.random() for _ in range(8)]
    measures = ("reward", "validity", "accuracy", "accuracy_given_valid", "truncated", "dollars")
    measures += ("groups_without_spread", "completion_tokens", "routing_entropy_bits")
    measures += ("routing_entropy_by_subtask_bits", "seconds")
    return {
        "iteration": number,
        "phase": "grpo",
        "rollouts": ROLLOUTS,
        "masked": 0,
        **{name: draws.random() for name in measures},
        "worker_share": {
            f"worker {place}": share / sum(shares) for place, share in enumerate(shares)
        },
        "topology": {"single": ROLLOUTS},
        "steps_by_kind": {kind: 1 + draws.random() for kind in ("single", "pair", "triple")},
        "accuracy_by_kind": {},
    }


async def write_runs(root: Path) -> None:
    """Write the folders of two trainings and an evaluation."""
    for seed in range(2):
        write_training(root / f"training-{seed}", seed)
    task = [{"name": "gym", "limit": QUESTIONS}]
    values = {"systems": ["conductor", "workers"], "pool": "gym", "task": task, "repeats": 2}
    await run_grid(make_eval_config(values, where="benchmark"), root / "evaluation")


# ── requests ──────────────────────────────────────────────────────────────────────────────────────
class Server:
    """``openconductor serve --ui`` as a process, and a browser's connection to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._pid = process.pid
        link = read_link(process)
        time.sleep(1)  # it listens soon after it has said so
        self._client = PageClient(link)

    def get(self, address: str) -> bytes:
        """Return the body of an address."""
        _, body = self._client.get(address)
        return body

    def cpu(self) -> float:
        """Return the CPU that the server has used, in milliseconds."""
        return results.cpu_ms(self._pid)

    def megabytes(self) -> float:
        """Return the largest memory that the server has had."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024

    def cost_of(self, address: str) -> float:
        """Return the CPU that an address takes once, in milliseconds."""
        began = self.cpu()
        self.get(address)
        return self.cpu() - began


def addresses_of(store: StoreReader, total: int) -> dict[str, str]:
    """Return the addresses that are measured, by name."""
    lines = store.lines(limit=500)
    large, other = [line.id for line in lines if line.rounds == 4 and line.seconds is not None][:2]
    small = next(line.id for line in lines if line.rounds == 1)
    return {
        "health": "/health",
        "list": "/ui/episodes",
        "list as JSON": "/ui/episodes.json",
        "list, last page": f"/ui/episodes?page={total // 50}",
        "list by cost": "/ui/episodes?order=dollars",
        "list of failures": "/ui/episodes?outcome=failed",
        "list of a worker": "/ui/episodes?worker=opus",
        "list of a text": "/ui/episodes?text=Question+77",
        "episode of one step": f"/ui/episodes/{small}",
        "episode of 4 x 5 steps": f"/ui/episodes/{large}",
        "part": f"/ui/episodes/{large}/parts/3-4",
        "two side by side": f"/ui/compare?id={large}&id={other}",
        "runs": "/ui/runs",
        "training": "/ui/trainings/training-0",
        "training, its first iterations": f"/ui/trainings/training-0?page={ITERATIONS // 25}",
        "training as JSON": "/ui/trainings/training-0.json",
        "iteration": "/ui/trainings/training-0/iterations/250",
        "two trainings": "/ui/trainings?run=training-0&run=training-1",
        "evaluation": "/ui/evaluations/evaluation",
        "who was right where": "/ui/evaluations/evaluation/questions?show=apart",
        "pool": "/ui/pool",
    }


def measure(path: Path, root: Path, repeats: int) -> dict[str, Any]:
    words = [
        "serve",
        "--ui",
        "--port",
        "8397",
        "--log-level",
        "warning",
        "--journal",
        str(path.resolve()),
    ]
    command = [sys.executable, "-m", "openconductor", *words]
    started = results.process(*command, stderr=subprocess.PIPE, cwd=root.parent)
    with read_store(path) as store, started as process:
        total = len(store.lines(limit=10**9))
        addresses = addresses_of(store, total)
        server = Server(process)
        server.get("/health")
        before = server.megabytes()
        for address in addresses.values():
            server.get(address)
        while b"being read" in server.get(addresses["evaluation"]):  # by another process
            pass
        spent: dict[str, list[float]] = {name: [] for name in addresses}
        for _ in range(repeats):  # in turn, so that the machine's load falls on all alike
            for name, address in addresses.items():
                spent[name].append(server.cost_of(address))
        sizes = {name: len(server.get(address)) for name, address in addresses.items()}
        grown = server.megabytes() - before
        share = live_share(store)
    medians = {name: statistics.median(costs) for name, costs in spent.items()}
    found: dict[str, dict[str, Any]] = {}
    for name, milliseconds in medians.items():
        times = round(milliseconds / medians["health"], 1)
        found[name] = {"bytes": sizes[name], "ms": round(milliseconds, 2), "times health": times}
    pages = [figures for name, figures in found.items() if name != "health"]
    median = statistics.median(page["times health"] for page in pages)
    bars = [
        results.at_most("largest page, bytes", max(page["bytes"] for page in pages), PAGE_BYTES),
        results.at_most("median page, times /health", median, TIMES_HEALTH),
        results.at_most("memory added, MB", grown, MEGABYTES),
        results.at_most("50 live episodes, share of a core", share, LIVE_SHARE),
    ]
    return {"bars": bars, "episodes": total, "pages": found, **results.machine()}


def live_share(store: StoreReader) -> float:
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
        root = Path(folder) / "runs"
        await write_runs(root)
        results.show(measure(path, root, options.repeats), as_json=options.json)


if __name__ == "__main__":
    asyncio.run(main())
