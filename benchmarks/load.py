"""Many workflows at once on one core: wall time beside a bare script, and the gain of faster parts.

    python -m benchmarks.load [--json] [--in-flight 256] [--seconds 1.0]

Needs two idle cores and Linux. Workflow and server are those of ``benchmarks.orchestration``: a
tree of five steps whose longest line has three. The client is held to one core and the server to
another. With workers of 1 s (``--seconds``) the bar is a workflow's wall over its critical path;
with faster ones, such as 0.05, the wall is made of the client's CPU.

- "ours": ``execute`` through the OpenAI-compatible client, with every check, record and bill.
- "bare": the same tree written by hand over an aiohttp session that reads the JSON and checks
  nothing.
- "+uvloop", "+64 connections": ours and bare with another event loop (optional: `pip install
  uvloop`), and with calls limited to 64 at once.
- "bare +pyreqwest": bare over another HTTP core (optional: `pip install pyreqwest`).

Subjects are interleaved in one run and medians reported; a figure is a workflow's wall over its
critical path.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import subprocess
import sys

import aiohttp
from benchmarks import results
from benchmarks.orchestration import (
    CRITICAL_STEPS,
    QUESTION,
    WORKFLOW,
    by_hand,
    keep_in_flight,
    slow_server,
)

from openconductor import Message, Worker, WorkerPool, execute
from openconductor.providers.openai_compatible import OpenAICompatibleProvider

EACH = 3  # workflows a lane and round
CRITICAL, BARE = 1.10, 1.15
PAYLOAD = {"model": "slow", "messages": [{"role": "user", "content": QUESTION}]}


async def asynchronous(
    url: str, in_flight: int, repeats: int, limit: int | None
) -> dict[str, list[float]]:
    """Measure ours and bare, interleaved on one event loop."""
    walls: dict[str, list[float]] = {"ours": [], "bare": []}
    async with (
        OpenAICompatibleProvider("slow", base_url=url) as provider,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit or 0)) as session,
    ):
        pool = WorkerPool([Worker(provider, name="slow", max_concurrency=limit)])

        async def post(messages: list[Message]) -> str:
            async with session.post(f"{url}/chat/completions", json=PAYLOAD) as response:
                return (await response.json())["choices"][0]["message"]["content"]

        subjects = {"ours": lambda: execute(WORKFLOW, pool, QUESTION), "bare": by_hand(post)}
        for once in subjects.values():
            await keep_in_flight(once, in_flight, EACH)  # opens the connections
        for _ in range(repeats):
            for name, once in subjects.items():
                walls[name] += await keep_in_flight(once, in_flight, EACH)
    return walls


async def other_core(url: str, in_flight: int, repeats: int) -> dict[str, list[float]]:
    """Measure bare over pyreqwest."""
    from pyreqwest.client import ClientBuilder

    walls: list[float] = []
    async with ClientBuilder().build() as client:

        async def post(messages: list[Message]) -> str:
            response = (
                await client.post(f"{url}/chat/completions").body_json(PAYLOAD).build().send()
            )
            return (await response.json())["choices"][0]["message"]["content"]

        once = by_hand(post)
        await keep_in_flight(once, in_flight, EACH)
        for _ in range(repeats):
            walls += await keep_in_flight(once, in_flight, EACH)
    return {"bare": walls}


def client(options: argparse.Namespace) -> None:
    """Measure in this process, on one core; print the medians of the subjects as JSON."""
    limit = 64 if options.client == "limited" else None
    if options.client == "pyreqwest":
        main = other_core(options.url, options.in_flight, options.repeats)
    else:
        main = asynchronous(options.url, options.in_flight, options.repeats, limit)
    if options.client == "uvloop":
        import uvloop

        walls = uvloop.run(main)
    else:
        walls = asyncio.run(main)
    critical = CRITICAL_STEPS * options.seconds
    ratios = {name: statistics.median(values) / critical for name, values in walls.items()}
    print(json.dumps(ratios))


def run_client(name: str, url: str, options: argparse.Namespace) -> dict[str, float] | None:
    """Run a client as a process; return its medians. None: it crashed."""
    command = [sys.executable, "-m", "benchmarks.load", "--client", name, "--url", url]
    for option in ("in_flight", "repeats", "seconds"):
        command += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    return None if done.returncode else json.loads(done.stdout)


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Run the clients in turn against one server; rounds are interleaved."""
    cores = sorted(os.sched_getaffinity(0))
    suffixes = {"plain": ""}
    if options.seconds < 1:  # with 1 s the limited client would take minutes
        suffixes["limited"] = " +64 connections"
    for package in ("uvloop", "pyreqwest"):
        if importlib.util.find_spec(package):
            suffixes[package] = f" +{package}"
    walls: dict[str, list[float]] = {}
    crashed: list[str] = []
    os.sched_setaffinity(0, {cores[-1]})
    with slow_server(options.seconds) as url:
        os.sched_setaffinity(0, {cores[0]})
        for _ in range(options.rounds):
            for name, suffix in suffixes.items():
                medians = run_client(name, url, options)
                if medians is None:
                    crashed.append(name)
                    continue
                for subject, wall in medians.items():
                    walls.setdefault(subject + suffix, []).append(wall)
    os.sched_setaffinity(0, set(cores))
    pairs = zip(walls["ours"], walls["bare"], strict=True)
    ratio = statistics.median(ours / bare for ours, bare in pairs)
    medians = {name: round(statistics.median(values), 3) for name, values in walls.items()}
    bars = [results.at_most("wall / bare asyncio and aiohttp", ratio, BARE)]
    if options.seconds >= 1:
        what = "wall / critical path, workers of 1 s or more"
        bars.append(results.at_most(what, medians["ours"], CRITICAL))
    packages = ("openconductor", "aiohttp", "httptools", "uvloop", "pyreqwest")
    return {
        "bars": bars,
        "seconds_a_call": options.seconds,
        "wall_over_critical_path": medians,
        "in_flight": options.in_flight,
        "crashed": crashed,
        "versions": results.versions(*packages),
        "machine": results.machine(),
    }


def main() -> None:
    parser = results.arguments(__doc__)
    add = parser.add_argument
    add("--in-flight", type=int, default=256, help="workflows at once (default 256)")
    add("--seconds", type=float, default=1.0, help="time of a worker's call (default 1)")
    add("--repeats", type=int, default=1, help="repeats in each client (default 1)")
    add("--rounds", type=int, default=3, help="interleaved rounds of clients (default 3)")
    add("--client", help=argparse.SUPPRESS)
    add("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options)
    else:
        results.show(measure(options), as_json=options.json)


if __name__ == "__main__":
    main()
