"""Requests a second of one server on a SQLite file, and of one, two and more on one PostgreSQL.

    python -m benchmarks.replicas [--json] [--replicas 2] [--calls 4800] [--rounds 3] [--url …]

Needs Linux. Each way to serve is a set of ``openconductor serve`` processes, which are asked by
turns, in rounds, through ``direct:`` over a scripted worker that takes 50 ms. The clients have 64
connections in all, spread evenly over the processes, so that the processes and not the worker's
time bound the rate. Workers, servers, clients and the database share the machine: where it has few
cores, replicas gain little, and what they cost a request is what this shows.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import results, server
from benchmarks.postgres import database
from benchmarks.serving import (
    CONNECTIONS,
    calls_on,
    cpu_seconds,
    free_port,
    p99,
    serve_command,
    wait_for,
)

MODEL = "direct:fast"
LANES = 4  # of 16 connections


class Replicas:
    """Servers that share a store, and what was measured of them."""

    def __init__(self, stack: ExitStack, url: str, journal: str, count: int) -> None:
        self.ports: list[int] = []
        self.pids: list[int] = []
        self.rates: list[float] = []
        self.walls: list[float] = []
        self.cpu_s = 0.0
        for _ in range(count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            port = free_port()
            command = serve_command(folder, url, port)
            if journal:
                command = (*command, "--journal", journal)
            log = stack.enter_context((folder / "log").open("w"))
            process = stack.enter_context(results.process(*command, stderr=log, cwd=folder))
            self.ports.append(port)
            self.pids.append(process.pid)

    async def open(self) -> None:
        """Wait until all answer, and open everything."""
        for port in self.ports:
            await wait_for(port)
            await calls_on(port, MODEL, 10 * CONNECTIONS)

    async def round(self, calls: int) -> None:
        """Make calls on all connections."""
        before = self._cpu_seconds()
        ports = [self.ports[lane % len(self.ports)] for lane in range(LANES)]
        began = time.perf_counter()
        lanes = await asyncio.gather(*(calls_on(port, MODEL, calls // LANES) for port in ports))
        walls = [wall for lane in lanes for wall in lane]
        self.rates.append(len(walls) / (time.perf_counter() - began))
        self.walls += walls
        self.cpu_s += self._cpu_seconds() - before

    def figures(self) -> dict[str, float]:
        """Return the means over all rounds."""
        return {
            "requests_a_second": round(sum(self.rates) / len(self.rates), 1),
            "p99_ms": round(1000 * p99(self.walls), 1),
            "cpu_ms": round(1000 * self.cpu_s / len(self.walls), 3),
        }

    def _cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        url = stack.enter_context(server.served("serving", "--workers", "1"))
        shared = stack.enter_context(database(options.url))
        ways = {
            "1 on SQLite": Replicas(stack, url, "", 1),
            "1 on PostgreSQL": Replicas(stack, url, shared, 1),
            f"{options.replicas} on PostgreSQL": Replicas(stack, url, shared, options.replicas),
        }
        for replicas in ways.values():
            await replicas.open()
        order = list(ways.values())
        for _ in range(options.rounds):
            for replicas in order:
                await replicas.round(options.calls)
            order.append(order.pop(0))  # nobody is always the first
        figures = {way: replicas.figures() for way, replicas in ways.items()}
    return {**figures, "bars": [], "machine": results.machine()}


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--calls", type=int, default=4800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="an empty PostgreSQL database (default: a server of our own)")
    options = parser.parse_args()
    results.show(asyncio.run(measure(options)), as_json=options.json)


if __name__ == "__main__":
    main()
