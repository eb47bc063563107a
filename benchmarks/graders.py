"""How fast graders are, and whether their time is linear in the length of a reply.

    python benchmarks/graders.py speed     # grades a second, by grader
    python benchmarks/graders.py growth    # time for a text of twice the length, by pattern

To compare two versions, run ``speed`` in turns with PYTHONPATH set to each one's ``src``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from openconductor.graders.choice import ChoiceGrader, extract_choice
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import from_asserts
from openconductor.graders.code_text import program_of
from openconductor.graders.extraction import find_answer
from openconductor.graders.formulas.math_text import normalise
from openconductor.graders.freeform import FreeFormGrader, kind_of
from openconductor.graders.math import MathGrader
from openconductor.graders.units import read_unit
from openconductor.protocols import Grader
from openconductor.types import Problem

CODE = "Here:\n```python\ndef twice(n):\n    return 2 * n\n```\nIt doubles."
REPLIES: dict[str, tuple[Grader, object, str, int]] = {
    "code": (CodeGrader(), from_asserts("assert twice(2) == 4"), CODE, 200),
    "choice": (ChoiceGrader(), "B", "It floats. " * 60 + "The answer is (B).", 5_000),
    "choice, lines": (ChoiceGrader(), "B", "It floats.\n- So.\n\n" * 30 + "Answer: B", 5_000),
    "math": (MathGrader(), r"\frac{1}{2}", r"So it is \boxed{0.5}.", 5_000),
    "formula": (MathGrader(), "x^2+1", r"So it is \boxed{1 + x^2}.", 1_000),
    "freeform": (FreeFormGrader(), "9.8 m/s^2", "The answer is 9.81 m/s^2.", 5_000),
    "words": (FreeFormGrader(), "photosynthesis", "Answer: the photosynthesis", 5_000),
}
"""By name: the grader, the reference, the reply, and how often it is graded."""

OTHER_PROCESSES = {"code", "formula"}
"""Graders whose work is done in other processes: by the clock, not by CPU time."""

TEXTS = " |\n|`|{|{}|answer is |Answer:\n|[|(|$ |\\boxed{|\\text{|\\frac{|\\|<|~|_|*|^(|sqrt(|and "
PATTERNS = [*TEXTS.split("|"), "```\n", "```python\nx = 1\n```\n", "Question: x\n", "A. x\nB. y\n"]
READERS: dict[str, Callable[[str], object]] = {
    "choice": extract_choice,
    "answer": find_answer,
    "program": program_of,
    "normalise": getattr(normalise, "__wrapped__", normalise),  # without its cache
    "kind": getattr(kind_of, "__wrapped__", kind_of),
    "unit": read_unit,
}
LENGTH = 30_000
SHORTEST = 0.03
"""Seconds below which a ratio says nothing."""


async def measure_speed() -> None:
    """Print the best of five rounds: another program's load only makes a round slower."""
    for name, (grader, reference, reply, times) in REPLIES.items():
        problem = Problem("p", "", reference, "benchmark")
        rounds: list[float] = []
        for _ in range(5):
            clock = time.perf_counter if name in OTHER_PROCESSES else time.process_time
            start = clock()
            for _ in range(times // 5):
                await grader.grade(problem, reply)
            rounds.append((clock() - start) / (times // 5))
        print(f"{name:13} {1 / min(rounds):10.0f} a second")


def measure_growth() -> int:
    """Print the largest ratio of each reader; return 1 if one is above 3."""
    worst = 0.0
    for name, read in READERS.items():
        ratios = {pattern: _ratio(read, pattern) for pattern in PATTERNS}
        pattern = max(ratios, key=ratios.__getitem__)
        worst = max(worst, ratios[pattern])
        print(f"{name:10} at most {ratios[pattern]:.1f} times the time, for {pattern!r}")
    return 1 if worst > 3 else 0


def _ratio(read: Callable[[str], object], pattern: str) -> float:
    count = LENGTH // len(pattern)
    short, long = (_seconds(read, "x " + pattern * times) for times in (count, 2 * count))
    return long / short if long > SHORTEST else 1.0


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Return the least time of three."""
    times: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        read(text)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        sys.exit(measure_growth())
    asyncio.run(measure_speed())
