"""What an evaluation costs beyond its workers: wall time over their own, CPU a call, and memory as it goes on.

    python -m benchmarks.evaluation [--json] [--questions 1000] [--concurrency 8 16] [--folder .]
    [--no-memory]

In: nothing but this machine (two idle cores, Linux) and a disk. Out: figures, with the bars that
they are held against. The first concurrency counts for the bar; six minutes in all.

A grid of five systems over questions in a local file, against workers behind HTTP on loopback that
answer after 20 ms, served by another process: two workers alone (one call), consensus (five calls
side by side), reflection (three one after the other) and a Conductor (a plan, then three steps, the
longest line three calls of four). So a question takes 14 calls, and its five episodes 180 ms of
waiting for workers.

- **Overhead**: the wall time of the run over *the workers' own time at the same concurrency*, which is that of all
  episodes' longest lines of calls divided by how many episodes ask at once; a call's is what its worker took from the
  request's last byte to handing the answer on, measured there (``worker ms``: 20 and what its timer adds). Everything
  else is in it: HTTP and the loopback, the checks, the journal with every call on the disk, the graders, the tables and
  their bootstraps at the end.
- **Bare**: the same calls by a script over an aiohttp session that keeps and checks nothing, over the same time: what
  no evaluation on this machine can be below. The two take turns, three rounds each; medians count.
- **Memory**: one run of five times as many questions: the resident set when a fifth of it is done and when all of it
  is, and its peak with the tables, for which every record is read back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import resource
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import aiohttp

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
PLAN = "model_id = [0, 1, 0]\nsubtasks = ['Solve it.', 'Solve it.', 'Decide.']\naccess_list = [[], [], 'all']"
SOLUTION = " ".join(
    [
        *(f"Step {number}: the sum so far is {number * 7}." for number in range(40)),
        "So \\boxed{42}.",
    ]
)

# ── the workers, in a process of their own ────────────────────────────────────────────────────────
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Server(asyncio.Protocol):
    """Answers each request after 20 ms; the model ``planner`` with a plan, others with a solution.

    ``GET /seconds`` says how long a request took on average since this was asked last.
    """

    times: ClassVar[list[float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._buffer.startswith(b"GET /seconds"):
            self._buffer = b""
            self._write(json.dumps(sum(self.times) / max(1, len(self.times))).encode())
            self.times.clear()
            return
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or length is None or len(body) < int(length[1]):
            return
        self._buffer = b""
        planned = b'"model":"planner"' in body.replace(b'": "', b'":"')
        loop = asyncio.get_running_loop()
        loop.call_later(SECONDS, self._answer, PLAN if planned else SOLUTION, loop.time())

    def _answer(self, text: str, began: float) -> None:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 300, "total_tokens": 400}
        self._write(json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode())
        self.times.append(asyncio.get_running_loop().time() - began)

    def _write(self, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if not self._transport.is_closing():
            self._transport.write(head.encode() + body)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(
        None, sys.stdin.read
    )  # until the parent is gone


@contextmanager
def served() -> Generator[str]:
    command = [sys.executable, "-m", "benchmarks.evaluation", "--serve"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


# ── what is measured ──────────────────────────────────────────────────────────────────────────────
def own_time(questions: int, concurrency: int, a_call: float) -> float:
    """Seconds that the workers themselves need, where a call takes them so long."""
    return questions * sum(LINES) * a_call / concurrency


def recipe(folder: Path, url: str, questions: int, concurrency: int) -> dict[str, object]:
    """A pool of two workers and a planner, and a file of questions, in a folder."""
    workers = [
        f'[[worker]]\nname = "{name}"\nmodel = "{name}"\nbase_url = "{url}"\nprice = {{input = 1, output = 2}}\n'
        for name in ("w0", "w1", "planner")
    ]
    (folder / "pool.toml").write_text("".join(workers), encoding="utf-8")
    rows = [
        {"question": f"What is {number} + {42 - number}?", "answer": "#### 42"}
        for number in range(questions)
    ]
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return {
        "systems": list(SYSTEMS),
        "task": [{"name": "gsm8k", "path": str(folder / "rows.jsonl")}],
        "pool": str(folder / "pool.toml"),
        "conductor": {"planner": "worker:planner"},
        "concurrency": concurrency,
    }


def resident() -> float:
    """Megabytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def ours(under: Path, url: str, questions: int, concurrency: int) -> dict[str, object]:
    """One evaluation, from nothing to its tables."""
    sizes: list[float] = []
    asked = 0.0

    def look(progress: Progress) -> None:
        nonlocal asked
        if progress.done * 5 in (progress.total, 5 * progress.total):
            sizes.append(resident())
            asked = time.perf_counter()

    with tempfile.TemporaryDirectory(dir=under, prefix="evaluation-benchmark-") as name:
        folder = Path(name)
        config = make_eval_config(recipe(folder, url, questions, concurrency), where="benchmark")
        worker_seconds(url)
        began, cpu = time.perf_counter(), time.process_time()
        results = asyncio.run(run_grid(config, folder / "run", on_progress=look))
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
    """How long a request took in the workers, on average since this was asked last."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/seconds", timeout=10) as response:
        return float(response.read())


async def bare(url: str, questions: int, concurrency: int) -> float:
    """The overhead of the same calls, by a script that keeps nothing."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(text: str) -> str:
            payload = {"model": "w0", "messages": [{"role": "user", "content": text}]}
            async with session.post(f"{url}/chat/completions", json=payload) as response:
                return (await response.json())["choices"][0]["message"]["content"]

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
        todo = iter(
            [(system, f"What is {number}?") for number in range(questions) for system in systems]
        )

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
) -> dict[str, object]:
    figures: dict[str, Any] = {}
    long: Any = None
    with served() as url:
        asyncio.run(bare(url, 20, 8))  # warms the server up
        for concurrency in concurrencies:
            rounds: list[dict[str, Any]] = []
            for _ in range(ROUNDS):  # a pair of neighbours shares what else the machine does
                mine = ours(under, url, questions, concurrency)
                rounds.append(
                    {**mine, "bare_overhead": asyncio.run(bare(url, questions, concurrency))}
                )
            rounds.sort(key=lambda one: one["overhead"])
            over_bare = [(1 + one["overhead"]) / (1 + one["bare_overhead"]) for one in rounds]
            figures[str(concurrency)] = {
                **rounds[len(rounds) // 2],
                "bare_overhead": statistics.median(one["bare_overhead"] for one in rounds),
                "over_bare": statistics.median(over_bare),
                "overheads": [one["overhead"] for one in rounds],
            }
        if memory:
            before = resident()
            long = {**ours(under, url, 5 * questions, AT_ONCE), "questions": 5 * questions}
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            long["megabytes"] |= {"before": before, "with_the_tables": resident(), "peak": peak}
    first = figures[str(concurrencies[0])]
    bars: list[dict[str, Any]] = [{"what": "overhead", "at_most": BAR, "value": first["overhead"]}]
    if long is not None:
        what = "growth of the resident set after a fifth of the long run"
        bars.append({"what": what, "at_most": FLAT, "value": long["megabytes"]["growth"]})
    return {
        "bars": [{**bar, "held": bar["value"] <= bar["at_most"]} for bar in bars],
        "questions": questions,
        "systems": list(SYSTEMS),
        "at_once": figures,
        "memory": long,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "aiohttp": aiohttp.__version__,
        },
    }


def show(result: dict[str, Any]) -> None:
    print(
        f"{'at once':>8} {'overhead':>9} {'bare':>7} {'ours/bare':>10} {'wall s':>8} {'asking':>7} {'own s':>7} "
        f"{'worker ms':>10} {'CPU ms a call':>14} {'load':>5}"
    )
    for concurrency, row in result["at_once"].items():
        print(
            f"{concurrency:>8} {row['overhead']:9.1%} {row['bare_overhead']:7.1%} "
            f"{row['over_bare']:10.3f} {row['wall_seconds']:8.2f} "
            f"{row['of_it_asking']:7.2f} {row['own_seconds']:7.2f} {row['worker_ms']:10.2f} "
            f"{row['cpu_ms_a_call']:14.2f} {row['load_1min']:5.1f}"
        )
    if result["memory"] is not None:
        sizes = result["memory"]["megabytes"]
        print(
            f"memory over {result['memory']['questions']} questions, MB: before {sizes['before']:.0f}, at a fifth "
            f"{sizes['at_a_fifth']:.0f}, all asked {sizes['at_the_end']:.0f}, with the tables "
            f"{sizes['with_the_tables']:.0f}, peak {sizes['peak']:.0f}"
        )
    for bar in result["bars"]:
        print(
            f"{'held  ' if bar['held'] else 'MISSED'} {bar['value']:.1%} {bar['what']} (at most {bar['at_most']:.0%})"
        )
    print(f"machine: {json.dumps(result['machine'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    parser.add_argument(
        "--questions", type=int, default=1000, help="how many questions (default 1000)"
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        nargs="+",
        default=[8, 16],
        help="episodes at once; the first counts",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        help="a folder on the disk in question (default: here)",
    )
    parser.add_argument(
        "--no-memory",
        action="store_true",
        help="leave out the long run that memory is looked at in",
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        # select() waits for microseconds; epoll, asyncio's own choice, rounds up to milliseconds: 5
        # % of 20.
        with asyncio.Runner(
            loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
        ) as runner:
            runner.run(serve())
        return
    result = measure(
        options.questions, options.concurrency, options.folder, memory=not options.no_memory
    )
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
