"""The cost of tracing: a server with it off and on, and on with a collector that died or hangs.

    python -m benchmarks.traces [--json] [--rounds 10] [--calls 400] [--against OTHER/src]

Needs Linux. Processes: a scripted worker that takes 50 ms, collectors that keep nothing, and one
`openconductor serve` for each case, which are asked by turns through ``direct:`` on 16 connections.
Figures: CPU of a request (the thread that sends spans included), and the 99th percentile of its
time. Ratios are medians over rounds, since other work on the machine makes single ones late.
``--against`` names the src folder of another checkout, served without traces.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import results, server
from benchmarks.serving import (
    CONNECTIONS,
    Served,
    calls_on,
    cpu_seconds,
    free_port,
    p99,
    port_of,
    serve_command,
    wait_for,
)

MODEL = "direct:fast"


class Collector(server.Server):
    """Accepts every batch of spans."""

    def answer(self, body: bytes) -> None:
        self.write(server.response(b""))


class HangingCollector(server.Server):
    """Reads every batch, and never answers."""

    def answer(self, body: bytes) -> None:
        pass


KINDS = {"live": Collector, "hanging": HangingCollector}


def serve(stack: ExitStack, url: str, case: str, source: Path | None, endpoint: str) -> Served:
    """Start a server; ``endpoint`` is its collector ("": no traces)."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    port = free_port()
    command = serve_command(folder, url, port)
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    if endpoint:
        command = (*command, "--traces")
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    log = stack.enter_context((folder / "log").open("w"))
    started = results.process(*command, env=environment, stderr=log, cwd=folder)
    return Served(port, MODEL, stack.enter_context(started).pid)


def start_servers(stack: ExitStack, url: str, against: Path | None) -> dict[str, Served]:
    """Start a server for each case."""
    live = stack.enter_context(server.served("traces", "--collect", "live"))
    hanging = stack.enter_context(server.served("traces", "--collect", "hanging"))
    with server.served("traces", "--collect", "live") as killed:
        pass
    endpoints = {"off": "", "on": live, "killed": killed, "hanging": hanging}
    source = Path(__file__).resolve().parent.parent / "src"
    servers = {
        case: serve(stack, url, case, source, endpoint.removesuffix("/v1"))
        for case, endpoint in endpoints.items()
    }
    if against is not None:
        servers["before"] = serve(stack, url, "before", against.resolve(), "")
    return servers


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        url = stack.enter_context(server.served("serving", "--workers", "1"))
        servers = start_servers(stack, url, options.against)
        for served in servers.values():
            await wait_for(served.port)
            await calls_on(served.port, MODEL, 10 * CONNECTIONS)  # opens everything
        late: dict[str, list[float]] = {case: [] for case in servers}
        cpu: dict[str, list[float]] = {case: [] for case in servers}
        order = list(servers)
        for _ in range(options.rounds):
            for case in order:
                served = servers[case]
                before = cpu_seconds(served.pid)
                seconds = await calls_on(served.port, MODEL, options.calls)
                cpu[case].append((cpu_seconds(served.pid) - before) / len(seconds))
                late[case].append(p99(seconds))
            order.append(order.pop(0))  # nobody is always the first
        assert port_of(url)
    return summary(cpu, late)


def summary(cpu: dict[str, list[float]], p99s: dict[str, list[float]]) -> dict[str, Any]:
    bars = [
        results.at_most("CPU a request, on / off", times(cpu, "on", "off"), 1.15),
        results.at_most("p99, killed collector / off", times(p99s, "killed", "off"), 1.05),
        results.at_most("p99, killed collector / live one", times(p99s, "killed", "on"), 1.05),
    ]
    if "before" in cpu:
        bars.insert(
            0, results.at_most("CPU a request, off / before", times(cpu, "off", "before"), 1.0)
        )
    return {
        "bars": bars,
        "cpu_ms": medians_ms(cpu),
        "p99_ms": medians_ms(p99s),
        "machine": results.machine(),
    }


def times(values: dict[str, list[float]], case: str, other: str) -> float:
    """Return the median over rounds of what one case takes over another one."""
    pairs = zip(values[case], values[other], strict=True)
    return statistics.median(one / of_other for one, of_other in pairs)


def medians_ms(values: dict[str, list[float]]) -> dict[str, float]:
    return {case: round(1000 * statistics.median(rounds), 3) for case, rounds in values.items()}


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--collect", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        asyncio.run(server.serve(KINDS[options.collect]))
        return
    results.show(asyncio.run(measure(options)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
