"""10,000 five-step episodes while a fifth of all calls fails: who is answered, how late, after how many attempts.

    python -m benchmarks.faults [--json] [--seed 0] [--episodes 10000]

In: nothing but this machine; a server in another process on loopback that fails by seed, in every
way that ``tests/faults/plays.py`` lists. Out: counts, with the bars that they are held against:

- at least 99.9 % of the episodes answered (one worker of 26 is healthy, fallback is on); all of them end in an answer
  or a typed error; none more than 1 s after its deadline;
- attempts bounded: at most (retries + 1) at a worker, at most that times the workers in a step;
- no call that failed counts as answered, and each failure has the name of what the call met.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import secrets
import sys
from pathlib import Path

from benchmarks.fault_process import fault_process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from faults.plays import FAULTS
from faults.storm import NAMES, RETRIES, Report, storm, storm_script


def measure(*, seed: int, episodes: int, in_flight: int) -> dict[str, object]:
    """One storm, as plain values."""
    with fault_process(storm_script(seed)) as process:
        report = asyncio.run(storm(process.url, seed=seed, episodes=episodes, in_flight=in_flight))
        server = process.stop()
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
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        },
    }


def by_fault(report: Report) -> dict[str, dict[str, int]]:
    """The outcomes of each fault, in the order of ``FAULTS``."""
    order = {name: index for index, name in enumerate(FAULTS)}
    table: dict[str, dict[str, int]] = {}
    for (fate, outcome), count in sorted(
        report.met.items(), key=lambda item: (order.get(item[0][0], -1), item[0])
    ):
        table.setdefault(fate, {})[outcome] = count
    return table


def bars(report: Report, server: dict[str, int]) -> list[dict[str, object]]:
    """Each bar with what was measured."""
    limits: list[tuple[str, float, str, float]] = [
        ("share of calls that failed", report.failing, ">=", 0.2),
        ("episodes answered", report.answered / report.episodes, ">=", 0.999),
        (
            "episodes that ended in neither an answer nor a typed error",
            len(report.untyped),
            "<=",
            0,
        ),
        ("seconds after the deadline, the latest", report.latest, "<=", 1.0),
        ("calls of a step at one worker, the most", report.most_a_worker, "<=", RETRIES + 1),
        ("calls of a step, the most", report.most_a_step, "<=", (RETRIES + 1) * len(NAMES)),
        (
            "times that one request came to the server, the most",
            server["most_repeats"],
            "<=",
            RETRIES + 1,
        ),
        ("failed calls that count as answered", len(report.lies), "<=", 0),
        ("failed calls under another fault's name", len(report.misnamed), "<=", 0),
    ]
    return [
        {
            "what": what,
            "value": round(value, 5),
            "bar": f"{sign} {bar}",
            "held": value >= bar if sign == ">=" else value <= bar,
        }
        for what, value, sign, bar in limits
    ]


def show(result: dict[str, object]) -> None:
    """Print the bars, then the rest."""
    for bar in result["bars"]:  # type: ignore[attr-defined]
        print(
            f"{'held  ' if bar['held'] else 'MISSED'}  {bar['value']:10}  ({bar['bar']})  {bar['what']}"
        )
    for fault, outcomes in result["outcomes"].items():  # type: ignore[attr-defined]
        print(
            f"  {fault:20} {', '.join(f'{outcome} {count}' for outcome, count in outcomes.items())}"
        )
    for key, value in result.items():
        if key not in ("bars", "outcomes"):
            print(f"{key}: {json.dumps(value)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one object instead of lines")
    parser.add_argument(
        "--seed", type=int, default=None, help="the storm's seed (default: a new one)"
    )
    parser.add_argument("--episodes", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument(
        "--in-flight", type=int, default=192, help="episodes at a time (default 192)"
    )
    options = parser.parse_args()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    result = measure(seed=seed, episodes=options.episodes, in_flight=options.in_flight)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
