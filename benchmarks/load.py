"""Many workflows at once on one core: wall time beside a bare script.

    python -m benchmarks.load [--json] [--in-flight 256] [--seconds 1.0]

Needs two idle cores and Linux. Workflow and server are those of ``benchmarks.orchestration``: a
tree of five steps whose longest line has three. The client is held to one core and the server to
another. With workers of 1 s (``--seconds``) the bar is a workflow's wall over its critical path;
with faster ones, such as 0.05, the wall is made of the client's CPU.

- "ours": ``execute`` through the OpenAI-compatible client, with every check, record and bill.
- "by_hand": the same tree over an aiohttp session that reads the JSON and checks nothing.

Both are interleaved in one run and medians reported; a figure is a workflow's wall over its
critical path.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics

from benchmarks import results, server
from benchmarks.orchestration import CRITICAL_STEPS, keep_in_flight, subjects

EACH = 3  # workflows a lane and round
CRITICAL, BARE = 1.10, 1.15


async def walls_of(url: str, in_flight: int, rounds: int) -> dict[str, list[float]]:
    """Return the median wall seconds of each round."""
    walls: dict[str, list[float]] = {}
    async with subjects(url) as trees:
        for once in trees.values():
            await keep_in_flight(once, in_flight, EACH)  # opens the connections
        for _ in range(rounds):
            for name, once in trees.items():
                median = statistics.median(await keep_in_flight(once, in_flight, EACH))
                walls.setdefault(name, []).append(median)
    return walls


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Measure with the server on one core and this process on another."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    with server.served("orchestration", "--serve", str(options.seconds)) as url:
        os.sched_setaffinity(0, {cores[0]})
        walls = asyncio.run(walls_of(url, options.in_flight, options.rounds))
    os.sched_setaffinity(0, set(cores))
    pairs = zip(walls["ours"], walls["by_hand"], strict=True)
    ratio = statistics.median(ours / bare for ours, bare in pairs)
    critical = CRITICAL_STEPS * options.seconds
    ratios = {name: statistics.median(values) / critical for name, values in walls.items()}
    bars = [results.at_most("wall / bare asyncio and aiohttp", ratio, BARE)]
    if options.seconds >= 1:
        what = "wall / critical path, workers of 1 s or more"
        bars.append(results.at_most(what, ratios["ours"], CRITICAL))
    return {
        "bars": bars,
        "seconds_a_call": options.seconds,
        "wall_over_critical_path": ratios,
        "in_flight": options.in_flight,
        "versions": results.versions("openconductor", "aiohttp", "httptools"),
        "machine": results.machine(),
    }


def main() -> None:
    parser = results.arguments(__doc__)
    add = parser.add_argument
    add("--in-flight", type=int, default=256, help="workflows at once (default 256)")
    add("--seconds", type=float, default=1.0, help="time of a worker's call (default 1)")
    add("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    options = parser.parse_args()
    results.show(measure(options), as_json=options.json)


if __name__ == "__main__":
    main()
