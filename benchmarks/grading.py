"""Speed of grading mathematics: pairs of the golden cases, beside another checkout and math-verify.

    python -m benchmarks.grading [--json] [--rounds 3] [--against OTHER/src]

Each run is a process of its own that grades all pairs of `tests/golden/math.jsonl` and
`tests/golden/math_variants.jsonl` after a first pair has started the workers. What counts is the
CPU time of the process and of its workers, a pair; runs are interleaved and medians reported.
`--against` names the `src` folder of another checkout. math-verify reads and compares in the
process itself, without a limit of time; `pip install "math-verify[antlr4_13_2]"`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import results

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
OURS = """
import asyncio, json, sys
from openconductor.graders.formulas.math_workers import shared_workers
from openconductor.graders.math import MathGrader
from openconductor.types import Problem

async def grade(pairs):
    for reference, answer in pairs:
        await MathGrader().grade(Problem("p", "", reference, "t"), answer)

def start():
    asyncio.run(grade([("x+1", "1+x")]))

def run(pairs):
    asyncio.run(grade(pairs))

def cpu():
    ticks = 0
    for process in shared_workers()._all:
        fields = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100
"""
THEIRS = """
import json, logging, sys
from math_verify import parse, verify
logging.disable(logging.CRITICAL)

def run(pairs):
    for reference, answer in pairs:
        verify(parse(f"${reference}$"), parse(answer))

def start():
    run([("x+1", "1+x")])

def cpu():
    return 0.0
"""
MEASURE = """
import os
pairs = json.load(sys.stdin)
start()
before = sum(os.times()[:2]) + cpu()
run(pairs)
print((sum(os.times()[:2]) + cpu() - before) / len(pairs) * 1000)
"""


def read_pairs() -> list[tuple[str, str]]:
    """Return references and answers; bombs and unreadable references are none of them."""
    pairs: list[tuple[str, str]] = []
    for name in ("math.jsonl", "math_variants.jsonl"):
        for line in (GOLDEN / name).read_text("utf-8").splitlines():
            row = json.loads(line)
            answer = row["answer"] if "why" in row else rf"\\boxed{{{row['answer']}}}"
            if row["correct"] is not None:
                pairs.append((row["reference"], answer))
    return pairs


def measure(program: str, source: Path | None, pairs: str) -> float:
    """Return the milliseconds of CPU time a pair."""
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    command = [sys.executable, "-c", program + MEASURE]
    run = subprocess.run(
        command, input=pairs, env=environment, capture_output=True, text=True, check=True
    )
    return float(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    pairs = json.dumps(read_pairs())
    own = Path(__file__).resolve().parent.parent / "src"
    ways = {"ours": (OURS, own), "math-verify": (THEIRS, None)}
    if arguments.against:
        ways["against"] = (OURS, arguments.against.resolve())
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, (program, source) in ways.items():
            times[name].append(measure(program, source, pairs))
    medians = {name: round(statistics.median(values), 3) for name, values in times.items()}
    bars = [
        results.at_most(f"CPU time, ours / {name}", medians["ours"] / medians[name], 1.0)
        for name in ways
        if name != "ours"
    ]
    figures = {"machine": results.machine(), "milliseconds of CPU a pair": medians, "bars": bars}
    results.show(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
