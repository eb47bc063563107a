"""Speed of graders, beside another checkout and math-verify, and over the length of a reply.

    python -m benchmarks.grading [--json] [--rounds 5] [--only choice,mbpp] [--against OTHER/src]
    python -m benchmarks.grading --growth [--json]

Each run is a process of its own that grades all pairs of one kind, after a first one that starts
sandboxes and workers. What counts is the CPU time of the process and of all that it started, a
grade; runs are interleaved, and the figure is the median of the rounds' ratios. `--against` names
the `src` folder of another checkout. math-verify reads and compares in the process itself, without
a limit of time; `pip install "math-verify[antlr4_13_2]"`. The kinds `humaneval` and `mbpp` need
their files in `--data`, and bubblewrap.

`--growth` prints how much longer a text of twice the length takes, at most, by reader.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import results

from openconductor.graders.choice import extract_choice
from openconductor.graders.code_text import read_program
from openconductor.graders.extraction import find_answer
from openconductor.graders.formulas.math_text import normalise
from openconductor.graders.freeform import kind_of
from openconductor.graders.units import read_unit

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
Pair = tuple[object, str]
"""A reference (for programs: the tests and the entry point), and an answer."""

LETTERS = (
    "The answer is (B).",
    "It floats. " * 60 + "The answer is (B).",
    "\n".join(["Wood is lighter than water.", "So it floats.", "Answer: B"] * 5),
    "It floats.\nAnswer: B\n\nQuestion: What sinks?\nAnswer: C",
    "Wood floats on water.\n\nThe most likely one is (B).",
)
FREE = (
    ("9.8 m/s^2", "The answer is 9.81 m/s^2."),
    ("photosynthesis", "Answer: the photosynthesis"),
    ("increases", "Answer: it decreases"),
    ("1000", "Answer: 1000 \\Omega"),
)
GRADERS = {
    "choice": "choice:ChoiceGrader",
    "freeform": "freeform:FreeFormGrader",
    "math": "math:MathGrader",
    "humaneval": "code:CodeGrader",
    "mbpp": "code:CodeGrader",
}
OURS = """
import asyncio, importlib
from openconductor.types import Problem

def graded(grader, pairs):
    module, name = grader.split(":")
    grader = getattr(importlib.import_module(f"openconductor.graders.{module}"), name)()
    problems = []
    for reference, answer in pairs:
        if isinstance(reference, list):
            from openconductor.graders.code_tests import from_asserts
            reference = from_asserts(*reference)
        problems.append((Problem("p", "", reference, "benchmark"), answer))

    async def grade(problems):
        for problem, answer in problems:
            await grader.grade(problem, answer)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(grade(problems[:1]))
    yield
    loop.run_until_complete(grade(problems))
    yield
"""
THEIRS = """
import logging
from math_verify import parse, verify
logging.disable(logging.CRITICAL)

def graded(grader, pairs):
    verify(parse("$x+1$"), parse("1+x"))
    yield
    for reference, answer in pairs:
        verify(parse(f"${reference}$"), parse(answer))
    yield
"""
MEASURE = """
import json, os, sys

def cpu():
    ticks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")

grader, pairs = json.load(sys.stdin)
run = graded(grader, pairs)
next(run)
before = cpu()
next(run)
print((cpu() - before) / len(pairs) * 1000)
"""

TEXTS = " |\n|`|{|{}|answer is |Answer:\n|[|(|$ |\\boxed{|\\text{|\\frac{|\\|<|~|_|*|^(|sqrt(|and "
PATTERNS = [*TEXTS.split("|"), "```\n", "```python\nx = 1\n```\n", "Question: x\n", "A. x\nB. y\n"]
READERS: dict[str, Callable[[str], object]] = {
    "choice": extract_choice,
    "answer": find_answer,
    "program": read_program,
    "normalise": getattr(normalise, "__wrapped__", normalise),  # without its cache
    "kind": getattr(kind_of, "__wrapped__", kind_of),
    "unit": read_unit,
}
LENGTH = 30_000
SHORTEST_S = 0.03
"""Below this a ratio of times says nothing."""


def pairs_of(kind: str, data: Path) -> list[Pair]:
    """Return the pairs of a kind; none if its file is absent."""
    if kind == "choice":
        return [("B", reply) for reply in LETTERS] * 1_000
    if kind == "freeform":
        return [*FREE] * 500
    if kind == "math":
        return math_pairs()
    path = data / kind / "data.jsonl"
    lines = path.read_text("utf-8").splitlines()[:100] if path.is_file() else []
    return [program_pair(json.loads(line)) for line in lines]


def math_pairs() -> list[Pair]:
    """Return the golden pairs without bombs and unreadable references."""
    pairs: list[Pair] = []
    for name in ("math.jsonl", "math_variants.jsonl"):
        for line in (GOLDEN / name).read_text("utf-8").splitlines():
            row = json.loads(line)
            answer = row["answer"] if "why" in row else rf"\\boxed{{{row['answer']}}}"
            if row["correct"] is not None:
                pairs.append((row["reference"], answer))
    return pairs


def program_pair(row: dict[str, object]) -> Pair:
    """Return the tests of a row of HumanEval or MBPP, and its canonical solution."""
    if "test" in row:
        program = f"{row['prompt']}{row['canonical_solution']}"
        return [row["test"], row["entry_point"]], f"```python\n{program}\n```"
    asserts = row["test_list"]
    assert isinstance(asserts, list)
    return ["\n".join(asserts), None], f"```python\n{row['code']}\n```"


def measure(program: str, source: Path | None, grader: str, pairs: list[Pair]) -> float:
    """Return the milliseconds of CPU time a grade."""
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    run = subprocess.run(
        [sys.executable, "-c", program + MEASURE],
        input=json.dumps([grader, pairs]),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)


def compare(
    kind: str, pairs: list[Pair], others: dict[str, Path | None], rounds: int
) -> dict[str, list[float]]:
    """Return our milliseconds a grade in each round, and their ratios to each other's."""
    figures: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
    for _ in range(rounds):
        ours = measure(OURS, ROOT / "src", GRADERS[kind], pairs)
        figures["ours"].append(ours)
        for name, source in others.items():
            program = OURS if source else THEIRS
            figures[name].append(ours / measure(program, source, GRADERS[kind], pairs))
    return figures


def growth() -> list[dict[str, object]]:
    """Return a bar a reader: how much longer it takes for twice the length, at most."""
    bars: list[dict[str, object]] = []
    for name, read in READERS.items():
        ratios = {pattern: _ratio(read, pattern) for pattern in PATTERNS}
        pattern = max(ratios, key=ratios.__getitem__)
        what = f"{name}: time for twice the length, at most, of {pattern!r}"
        bars.append(results.at_most(what, ratios[pattern], 3.0))
    return bars


def _ratio(read: Callable[[str], object], pattern: str) -> float:
    count = LENGTH // len(pattern)
    short = _seconds(read, "x " + pattern * count)
    long = _seconds(read, "x " + pattern * (2 * count))
    return long / short if long > SHORTEST_S else 1.0


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Return the least CPU time of three."""
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        read(text)
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(GRADERS), help="kinds, by comma")
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--growth", action="store_true")
    options = parser.parse_args()
    bars = growth() if options.growth else []
    milliseconds: dict[str, float] = {}
    for kind in [] if options.growth else options.only.split(","):
        pairs = pairs_of(kind, options.data)
        others: dict[str, Path | None] = {}
        if options.against:
            others["the other checkout"] = options.against.resolve()
        if kind == "math" and results.installed("math-verify"):
            others["math-verify"] = None
        if not pairs:
            continue
        figures = compare(kind, pairs, others, options.rounds)
        milliseconds[kind] = round(statistics.median(figures.pop("ours")), 3)
        for name, ratios in figures.items():
            what = f"{kind}: CPU time, ours / {name}"
            bars.append(results.at_most(what, statistics.median(ratios), 1.0))
    result = {"bars": bars, "milliseconds of CPU a grade": milliseconds}
    results.show({**result, "machine": results.machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
