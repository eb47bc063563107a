"""Cost of an evaluation beyond its workers: wall time, CPU a call, and memory as it goes on.

    python -m benchmarks.evaluation [--json] [--questions 1000] [--concurrency 8 16] [--folder .]
    [--no-memory]

Needs two idle cores, Linux and a disk, and takes six minutes. The first concurrency counts for the
bar.

A grid of five systems over questions in a local file, against workers behind HTTP on loopback that
answer after 20 ms, served by another process: two workers alone (one call), consensus (five calls
side by side), reflection (three one after the other) and a Conductor (a plan, then three steps, the
longest line three calls of four). So a question takes 14 calls, and its five episodes 180 ms of
waiting for workers.

- **Overhead**: the wall time of the run over *the workers' own time at the same concurrency*, which
  is that of all episodes' longest lines of calls divided by the number of episodes at once. A
  call's time is measured in its worker, from the request's last byte to the answer (``worker ms``:
  20 and what its timer adds). The overhead is HTTP and the loopback, the checks, the journal with
  every call on the disk, the graders, the tables and their bootstraps at the end.
- **Bare**: the same calls by a script over an aiohttp session that keeps and checks nothing: no
  evaluation on this machine can be below. The two take turns, three rounds each; medians count.
- **Memory**: one run of five times as many questions: the resident set when a fifth of it is done
  and when all of it is, and its peak with the tables, for which every record is read back.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import resource
import selectors
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import results as benchmark, server

from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import Progress, run_grid
from openconductor.store import JournalReader

SECONDS = 0.02
ROUNDS = 3
BAR = 0.10
FLAT = 0.10  # growth of the resident set between a fifth of the run and its end
AT_ONCE = 32  # in the run that memory is looked at in
SYSTEMS = ("worker:w0", "worker:w1", "consensus:w0?n=5", "reflection:w1?n=2", "conductor")
LINES = (1, 1, 1, 3, 3)  # calls one after the other, of each system
CALLS = (1, 1, 5, 3, 4)
PLAN = """model_id = [0, 1, 0]
subtasks = ["Solve it.", "Solve it.", "Decide."]
access_list = [[], [], "all"]"""
SUMS = " ".join(f"Step {number}: the sum so far is {number * 7}." for number in range(40))
SOLUTION = f"{SUMS} So \\boxed{{42}}."
USAGE = {"prompt_tokens": 100, "completion_tokens": 300, "total_tokens": 400}


# ── the workers, in a process of their own ────────────────────────────────────────────────────────
class Workers(server.Server):
    """Answers each request after 20 ms; the model ``planner`` with a plan, others with a solution.

    ``GET /seconds`` returns the mean time of the requests since it was last called.
    """

    times: ClassVar[list[float]] = []
    plan = server.response(server.completion(PLAN, USAGE))
    solution = server.response(server.completion(SOLUTION, USAGE))

    def answer(self, body: bytes) -> None:
        if not body:
            mean = sum(self.times) / max(1, len(self.times))
            self.times.clear()
            self.write(server.response(json.dumps(mean).encode()))
            return
        reply = self.plan if json.loads(body)["model"] == "planner" else self.solution
        loop = asyncio.get_running_loop()
        loop.call_later(SECONDS, self.reply, reply, loop.time())

    def reply(self, data: bytes, began: float) -> None:
        self.write(data)
        self.times.append(asyncio.get_running_loop().time() - began)


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────
def own_time(questions: int, concurrency: int, a_call: float) -> float:
    """Return the seconds that the workers themselves need, at ``a_call`` seconds a call."""
    return questions * sum(LINES) * a_call / concurrency


def recipe(folder: Path, url: str, questions: int, concurrency: int) -> dict[str, object]:
    """Write a pool of two workers and a planner and a file of questions; return the recipe."""
    price = "price = {input = 1, output = 2}"
    with (folder / "pool.toml").open("w", encoding="utf-8") as pool:
        for name in ("w0", "w1", "planner"):
            pool.write(f'[[worker]]\nname = "{name}"\nmodel = "{name}"\n')
            pool.write(f'base_url = "{url}"\n{price}\n')
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as rows:
        for number in range(questions):
            row = {"question": f"What is {number} + {42 - number}?", "answer": "#### 42"}
            rows.write(json.dumps(row) + "\n")
    return {
        "systems": list(SYSTEMS),
        "task": [{"name": "gsm8k", "path": str(folder / "rows.jsonl")}],
        "pool": str(folder / "pool.toml"),
        "conductor": {"planner": "worker:planner"},
        "concurrency": concurrency,
    }


def resident() -> float:
    """Return the resident megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def ours(under: Path, url: str, questions: int, concurrency: int) -> dict[str, object]:
    """Run one evaluation, from nothing to its tables."""
    sizes: list[float] = []
    asked = 0.0

    def note_size(progress: Progress) -> None:
        nonlocal asked
        if progress.done * 5 in (progress.total, 5 * progress.total):
            sizes.append(resident())
            asked = time.perf_counter()

    with tempfile.TemporaryDirectory(dir=under, prefix="evaluation-benchmark-") as name:
        folder = Path(name)
        config = make_eval_config(recipe(folder, url, questions, concurrency), where="benchmark")
        worker_seconds(url)
        began, cpu = time.perf_counter(), time.process_time()
        results = asyncio.run(run_grid(config, folder / "run", on_progress=note_size))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        took = worker_seconds(url)
        with JournalReader(folder / "run" / "journal.sqlite") as journal:
            calls = journal.totals().spent.calls
    assert calls == questions * sum(CALLS), (calls, questions * sum(CALLS))
    assert len(results.records) == questions * len(SYSTEMS)
    assert all(record.correct for record in results.records)
    own = own_time(questions, concurrency, took)
    return {
        "wall_seconds": wall,
        "of_it_asking": asked - began,
        "own_seconds": own,
        "overhead": wall / own - 1,
        "worker_ms": took * 1000,
        "cpu_ms_a_call": cpu / calls * 1000,
        "load_1min": os.getloadavg()[0],
        "megabytes": {
            "at_a_fifth": sizes[0],
            "at_the_end": sizes[1],
            "growth": sizes[1] / sizes[0] - 1,
        },
    }


def worker_seconds(url: str) -> float:
    """Return the mean time of the workers' requests since this was last called."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/seconds", timeout=10) as response:
        return float(response.read())


async def bare(url: str, questions: int, concurrency: int) -> float:
    """Return the overhead of the same calls by a script that keeps nothing."""
    async with server.bare_session() as session:

        async def call(text: str) -> str:
            payload = {"model": "w0", "messages": [{"role": "user", "content": text}]}
            return await server.post(session, url, payload)

        async def line(text: str) -> None:
            for _ in range(3):
                await call(text)

        async def tree(text: str) -> None:
            await call(text)
            await asyncio.gather(call(text), call(text))
            await call(text)

        async def five(text: str) -> None:
            await asyncio.gather(*(call(text) for _ in range(5)))

        systems: tuple[Callable[[str], Awaitable[object]], ...] = (call, call, five, line, tree)
        texts = [f"What is {number}?" for number in range(questions)]
        todo = iter([(system, text) for text in texts for system in systems])

        async def lane() -> None:
            for system, text in todo:
                await system(text)

        worker_seconds(url)
        began = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(concurrency)))
        wall = time.perf_counter() - began
        return wall / own_time(questions, concurrency, worker_seconds(url)) - 1


def measure(
    questions: int, concurrencies: list[int], under: Path, *, memory: bool
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    long: Any = None
    with server.served("evaluation", "--serve") as url:
        asyncio.run(bare(url, 20, 8))  # warms the server up
        for concurrency in concurrencies:
            figures[str(concurrency)] = measure_at(url, questions, concurrency, under)
        if memory:
            before = resident()
            long = {**ours(under, url, 5 * questions, AT_ONCE), "questions": 5 * questions}
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            long["megabytes"] |= {"before": before, "with_the_tables": resident(), "peak": peak}
    overhead = figures[str(concurrencies[0])]["overhead"]
    bars = [benchmark.at_most("overhead", overhead, BAR)]
    if long is not None:
        what = "growth of the resident set after a fifth of the long run"
        bars.append(benchmark.at_most(what, long["megabytes"]["growth"], FLAT))
    return {
        "bars": bars,
        "questions": questions,
        "systems": list(SYSTEMS),
        "at_once": figures,
        "memory": long,
        "versions": benchmark.versions("aiohttp"),
        "machine": benchmark.machine(),
    }


def measure_at(url: str, questions: int, concurrency: int, under: Path) -> dict[str, Any]:
    """Measure rounds of both; return the median round of ours, and medians of the others."""
    rounds: list[dict[str, Any]] = []
    for _ in range(ROUNDS):  # neighbours share what else the machine does
        figures = ours(under, url, questions, concurrency)
        figures["bare_overhead"] = asyncio.run(bare(url, questions, concurrency))
        figures["over_bare"] = (1 + figures["overhead"]) / (1 + figures["bare_overhead"])
        rounds.append(figures)
    rounds.sort(key=lambda figures: figures["overhead"])
    median = dict(rounds[len(rounds) // 2])
    for name in ("bare_overhead", "over_bare"):
        median[name] = statistics.median(figures[name] for figures in rounds)
    median["overheads"] = [figures["overhead"] for figures in rounds]
    return median


def main() -> None:
    parser = benchmark.arguments(__doc__)
    add = parser.add_argument
    add("--questions", type=int, default=1000, help="how many questions (default 1000)")
    help_ = "episodes at once; the first counts (default 8 16)"
    add("--concurrency", type=int, nargs="+", default=[8, 16], help=help_)
    help_ = "a folder on the disk in question (default: here)"
    add("--folder", type=Path, default=Path(), help=help_)
    add("--no-memory", action="store_true", help="leave out the long run that measures memory")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        # epoll, asyncio's own choice, rounds waits up to milliseconds: 5 % of 20.
        selector = selectors.SelectSelector()
        loop_factory = functools.partial(asyncio.SelectorEventLoop, selector)
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(server.serve(Workers))
        return
    memory = not options.no_memory
    result = measure(options.questions, options.concurrency, options.folder, memory=memory)
    benchmark.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
