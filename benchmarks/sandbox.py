"""What a sandbox costs: checks a second beside a runner that protects nothing.

    python -m benchmarks.sandbox [--json] [--rounds 5] [--problems 40] [--humaneval
    ../shared/data/humaneval/data.jsonl]

In: this machine (Linux with bubblewrap, two cores), and HumanEval's file. Out: ratios, with the
bars that they are held against. "cold" starts ``python -I`` for every run, in a subprocess without
any limit, two at a time, and compares stdout or lets the assertions run inside; "ours" is
CodeGrader as it is, which protects, in as many sandboxes at a time as it likes. Both take turns
within a round; the figure is the median of the rounds' ratios.

- HumanEval: canonical solutions with the tests of their problem; a check is a problem.
- stdin: a small program with ten tests; a check is the problem with all ten.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openconductor import Problem
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests, IoTest, from_asserts
from openconductor.sandboxes import open_sandbox

HUMANEVAL = Path(__file__).parents[1] / ".." / "shared" / "data" / "humaneval" / "data.jsonl"
CORES = 2
BARS = {"humaneval": 0.7, "stdin": 2.5}
STDIN_PROGRAM = """
import sys
def main():
    n, *numbers = map(int, sys.stdin.read().split())
    best = here = numbers[0]
    for number in numbers[1:]:
        here = max(number, here + number)
        best = max(best, here)
    print(best)
main()
"""


def stdin_tests() -> list[IoTest]:
    """Ten inputs of growing length, with the largest sum of a run of numbers."""
    tests: list[IoTest] = []
    for size in range(1, 11):
        numbers = [(index * 7919) % 23 - 11 for index in range(size * 20)]
        best = max(
            sum(numbers[start:end])
            for start in range(len(numbers))
            for end in range(start + 1, len(numbers) + 1)
        )
        tests.append(IoTest(f"{len(numbers)}\n{' '.join(map(str, numbers))}\n", f"{best}\n"))
    return tests


def cold(arguments: tuple[str, list[IoTest]]) -> bool:
    """A program in a fresh, unprotected Python a test."""
    program, tests = arguments
    for test in tests:
        command = [sys.executable, "-I", "-c", program]
        done = subprocess.run(
            command, input=test.stdin, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0 or done.stdout.strip() != test.expected.strip():
            return False
    return True


def cold_rate(work: list[tuple[str, list[IoTest]]]) -> float:
    """Checks a second, two at a time."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        assert all(threads.map(cold, work))
    return len(work) / (time.perf_counter() - begun)


async def our_rate(grader: CodeGrader, work: list[tuple[Problem, str]]) -> float:
    """Checks a second, all asked for at once."""
    begun = time.perf_counter()
    grades = await asyncio.gather(*(grader.grade(problem, answer) for problem, answer in work))
    assert all(grade.correct for grade in grades), [
        grade.note for grade in grades if not grade.correct
    ]
    return len(work) / (time.perf_counter() - begun)


def humaneval(
    path: Path, count: int
) -> tuple[list[tuple[str, list[IoTest]]], list[tuple[Problem, str]]]:
    """Canonical solutions for both runners."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()][:count]
    theirs = [
        (
            f"{row['prompt']}{row['canonical_solution']}\n{row['test']}\ncheck({row['entry_point']})\n",
            [IoTest("", "")],
        )
        for row in rows
    ]
    ours = [
        (
            Problem(row["task_id"], "", from_asserts(row["test"], row["entry_point"]), "humaneval"),
            f"```python\n{row['prompt']}{row['canonical_solution']}\n```",
        )
        for row in rows
    ]
    return theirs, ours


async def measure(rounds: int, problems: int, path: Path | None) -> dict[str, object]:
    """Both runners in turn, for each kind of work."""
    tests = stdin_tests()
    answer = f"```python\n{STDIN_PROGRAM}```"
    stdin = (
        [(STDIN_PROGRAM, tests)] * max(2, problems // 4),
        [(Problem("stdin", "", CodeTests(tuple(tests)), "stdin"), answer)] * max(2, problems // 4),
    )
    kinds = {"stdin": stdin} | ({"humaneval": humaneval(path, problems)} if path else {})
    sandbox = open_sandbox()
    grader = CodeGrader(sandbox=sandbox)
    report: dict[str, object] = {"level": sandbox.level, "python": platform.python_version()}
    for kind, (theirs, ours) in kinds.items():
        rates = [(cold_rate(theirs), await our_rate(grader, ours)) for _ in range(rounds)]
        ratios = [mine / other for other, mine in rates]
        report[kind] = {
            "cold_per_s": statistics.median(other for other, _ in rates),
            "ours_per_s": statistics.median(mine for _, mine in rates),
            "ratio": statistics.median(ratios),
            "ratios": [round(ratio, 2) for ratio in ratios],
            "bar": BARS[kind],
        }
    await sandbox.aclose()
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--humaneval", type=Path, default=HUMANEVAL)
    options = parser.parse_args()
    report = asyncio.run(
        measure(
            options.rounds,
            options.problems,
            options.humaneval if options.humaneval.is_file() else None,
        )
    )
    if options.json:
        print(json.dumps(report))
        return
    print(f"sandbox {report['level']}, Python {report['python']}")
    for kind in BARS:
        row = report.get(kind)
        if not isinstance(row, dict):
            print(f"{kind:10} not measured: no {options.humaneval}", file=sys.stderr)
            continue
        held = "held" if row["ratio"] >= row["bar"] else "MISSED"
        rates = f"cold {row['cold_per_s']:6.1f}/s  ours {row['ours_per_s']:6.1f}/s"
        print(
            f"{kind:10} {rates}  ratio {row['ratio']:.2f} (bar {row['bar']}: {held})  {row['ratios']}"
        )


if __name__ == "__main__":
    main()
