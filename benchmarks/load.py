"""Many workflows at once on one core: wall time beside a bare script, and what faster parts would bring.

    python -m benchmarks.load [--json] [--in-flight 256] [--seconds 1.0]

In: nothing but this machine (two idle cores, Linux). Out: ratios, with the bars that they are held
against. Workflow and server are those of ``benchmarks.orchestration``: a tree of five steps whose
longest line has three. The client is held to one core and the server to another. With workers of 1
s (``--seconds``), what is held is a workflow's wall over its critical path; with faster ones, such
as 0.05, the client's CPU is what the wall is made of.

- "ours": ``execute`` through the OpenAI-compatible client, with every check, record and bill.
- "bare": the same tree written out by hand over an aiohttp session that reads the JSON and checks nothing.
- "+uvloop", "+64 connections": ours and bare with another event loop (optional: `pip install uvloop`), and with calls
  limited to 64 at once.
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
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
from benchmarks.orchestration import (
    CRITICAL_STEPS,
    QUESTION,
    WORKFLOW,
    by_hand,
    installed,
    slow_server,
)

from openconductor import Message, Worker, WorkerPool, execute
from openconductor.providers.openai_compatible import OpenAICompatibleProvider

EACH = 3  # workflows a lane and round
CRITICAL, BARE = 1.10, 1.15


async def lanes(once: Callable[[], Awaitable[object]], in_flight: int) -> list[float]:
    """The wall seconds of each workflow, ``in_flight`` at any time."""
    walls: list[float] = []

    async def lane() -> None:
        for _ in range(EACH):
            begun = time.perf_counter()
            await once()
            walls.append(time.perf_counter() - begun)

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return walls


async def asynchronous(
    url: str, in_flight: int, repeats: int, limit: int | None
) -> dict[str, list[float]]:
    """Ours and bare, interleaved on one event loop."""
    payload = {"model": "slow", "messages": [{"role": "user", "content": QUESTION}]}
    walls: dict[str, list[float]] = {"ours": [], "bare": []}
    async with (
        OpenAICompatibleProvider("slow", base_url=url) as provider,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit or 0)) as session,
    ):
        pool = WorkerPool([Worker(provider, name="slow", max_concurrency=limit)])

        async def post(messages: list[Message]) -> str:
            async with session.post(f"{url}/chat/completions", json=payload) as response:
                return (await response.json())["choices"][0]["message"]["content"]

        who = {"ours": lambda: execute(WORKFLOW, pool, QUESTION), "bare": by_hand(post)}
        for once in who.values():
            await lanes(once, in_flight)  # opens the connections
        for _ in range(repeats):
            for name, once in who.items():
                walls[name] += await lanes(once, in_flight)
    return walls


async def other_core(url: str, in_flight: int, repeats: int) -> dict[str, list[float]]:
    """Bare over pyreqwest."""
    from pyreqwest.client import ClientBuilder

    payload = {"model": "slow", "messages": [{"role": "user", "content": QUESTION}]}
    walls: list[float] = []
    async with ClientBuilder().build() as client:

        async def post(messages: list[Message]) -> str:
            response = (
                await client.post(f"{url}/chat/completions").body_json(payload).build().send()
            )
            return (await response.json())["choices"][0]["message"]["content"]

        once = by_hand(post)
        await lanes(once, in_flight)
        for _ in range(repeats):
            walls += await lanes(once, in_flight)
    return {"bare": walls}


def client(url: str, options: argparse.Namespace) -> None:
    """One client process, on one core; prints the medians of its subjects as one JSON object."""
    limit = 64 if options.client == "limited" else None
    if options.client == "pyreqwest":
        main = other_core(url, options.in_flight, options.repeats)
    else:
        main = asynchronous(url, options.in_flight, options.repeats, limit)
    if options.client == "uvloop":
        import uvloop

        walls = uvloop.run(main)
    else:
        walls = asyncio.run(main)
    critical_s = CRITICAL_STEPS * options.seconds
    print(
        json.dumps({name: statistics.median(values) / critical_s for name, values in walls.items()})
    )


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Every client in turn against one server, each on a core of its own; rounds are interleaved."""
    cores = sorted(os.sched_getaffinity(0))
    optional = [name for name in ("uvloop", "pyreqwest") if importlib.util.find_spec(name)]
    clients = [
        "plain",
        *(["limited"] if options.seconds < 1 else []),
        *optional,
    ]  # a line of minutes, with 1 s
    suffix = {"limited": " +64 connections"} | {name: f" +{name}" for name in optional}
    found: dict[str, list[float]] = {}
    crashed: dict[str, int] = {}
    os.sched_setaffinity(0, {cores[-1]})
    with slow_server(options.seconds) as url:
        os.sched_setaffinity(0, {cores[0]})
        for _ in range(options.rounds):
            for which in clients:
                command = [sys.executable, "-m", "benchmarks.load", "--client", which, "--url", url]
                command += [
                    "--in-flight",
                    str(options.in_flight),
                    "--repeats",
                    str(options.repeats),
                ]
                command += ["--seconds", str(options.seconds)]
                done = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=300
                )
                if (
                    done.returncode and which in optional
                ):  # a peer that falls over takes nobody with it
                    crashed[which] = crashed.get(which, 0) + 1
                    continue
                done.check_returncode()
                for name, value in json.loads(done.stdout).items():
                    found.setdefault(name + suffix.get(which, ""), []).append(value)
    os.sched_setaffinity(0, set(cores))
    walls = {name: round(statistics.median(values), 3) for name, values in found.items()}
    ratio = statistics.median(a / b for a, b in zip(found["ours"], found["bare"], strict=True))
    bars = [("wall / bare asyncio and aiohttp", ratio, BARE)]
    if options.seconds >= 1:
        bars.insert(0, ("wall / critical path, workers of 1 s or more", walls["ours"], CRITICAL))
    return {
        "bars": [
            {"what": w, "value": round(v, 3), "at_most": most, "held": v <= most}
            for w, v, most in bars
        ],
        "seconds_a_call": options.seconds,
        "wall_over_critical_path": walls,
        "in_flight": options.in_flight,
        "crashed": crashed,
        "versions": {"python": platform.python_version()}
        | {
            name: installed(name)
            for name in ("openconductor", "aiohttp", "httptools", "uvloop", "pyreqwest")
        },
        "machine": {
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "load_average": os.getloadavg(),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    parser.add_argument(
        "--in-flight", type=int, default=256, help="workflows at once (default 256)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long a worker takes (default 1)"
    )
    parser.add_argument("--repeats", type=int, default=1, help="repeats in each client (default 1)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="interleaved rounds of clients (default 3)"
    )
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.url, options)
        return
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for bar in result["bars"]:  # type: ignore[attr-defined]
        print(
            f"{'held  ' if bar['held'] else 'MISSED'}  {bar['value']:8.3f}  (at most {bar['at_most']})  {bar['what']}"
        )
    for key in (
        "seconds_a_call",
        "wall_over_critical_path",
        "in_flight",
        "crashed",
        "versions",
        "machine",
    ):
        print(f"{key}: {json.dumps(result[key])}")


if __name__ == "__main__":
    main()
