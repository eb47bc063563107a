"""10,000 five-step episodes while a fifth of all calls fails: answers, delays and attempts.

    python -m benchmarks.faults [--json] [--seed 0] [--episodes 10000]

A server in another process on loopback fails by seed, in every way that ``tests/faults/plays.py``
lists. The bars:

- at least 99.9 % of the episodes answered (one worker of 26 is healthy, fallback is on); all of
  them end in an answer or a typed error; none more than 1 s after its deadline;
- attempts bounded: at most (retries + 1) at a worker, at most that times the workers in a step;
- no call that failed counts as answered, and each failure has the name of its fault.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
import sys
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.fault_process import fault_process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from faults.plays import FAULTS
from faults.storm import NAMES, RETRIES, Report, storm, storm_script


def measure(*, seed: int, episodes: int, in_flight: int) -> dict[str, Any]:
    """Run one storm."""
    with fault_process(storm_script(seed)) as (url, stop):
        report = asyncio.run(storm(url, seed=seed, episodes=episodes, in_flight=in_flight))
        server = stop()
    return {
        "bars": bars(report, server),
        "seed": seed,
        "episodes": report.episodes,
        "answered": report.answered,
        "errors": dict(report.errors),
        "untyped": report.untyped[:10],
        "calls": report.calls,
        "share_of_calls_that_failed": round(report.failing, 4),
        "seconds": round(report.seconds, 1),
        "seconds_of_the_longest_episode": round(report.longest, 2),
        "timeouts_and_cancellations_that_no_fault_asked_for": report.slow,
        "lies": report.lies[:10],
        "misnamed": report.misnamed[:10],
        "outcomes": by_fault(report),
        "server": server,
        "machine": results.machine(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def by_fault(report: Report) -> dict[str, dict[str, int]]:
    """Return the outcomes of each fault, in the order of ``FAULTS``."""
    order = {name: place for place, name in enumerate(FAULTS)}
    table: dict[str, dict[str, int]] = {}
    for fate, outcome in sorted(report.met, key=lambda met: (order.get(met[0], -1), met)):
        table.setdefault(fate, {})[outcome] = report.met[fate, outcome]
    return table


def bars(report: Report, server: dict[str, int]) -> list[dict[str, Any]]:
    attempts = RETRIES + 1
    most_a_step = attempts * len(NAMES)
    answered = report.answered / report.episodes
    repeats = server["most_repeats"]
    at_least, at_most = results.at_least, results.at_most
    return [
        at_least("share of calls that failed", report.failing, 0.2),
        at_least("episodes answered", answered, 0.999),
        at_most("episodes without an answer and a typed error", len(report.untyped), 0),
        at_most("seconds after the deadline, the latest", report.latest, 1.0),
        at_most("calls of a step at one worker, the most", report.most_a_worker, attempts),
        at_most("calls of a step, the most", report.most_a_step, most_a_step),
        at_most("times that one request came to the server, the most", repeats, attempts),
        at_most("failed calls that count as answered", len(report.lies), 0),
        at_most("failed calls under another fault's name", len(report.misnamed), 0),
    ]


def main() -> None:
    """Measure and print."""
    parser = results.arguments(__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=None, help="the storm's seed (default: a new one)")
    add("--episodes", type=int, default=10_000, help="how many (default 10,000)")
    add("--in-flight", type=int, default=192, help="episodes at a time (default 192)")
    options = parser.parse_args()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    result = measure(seed=seed, episodes=options.episodes, in_flight=options.in_flight)
    results.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
