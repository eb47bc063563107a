"""Cost of a sandbox: checks a second beside a runner that protects nothing.

    python -m benchmarks.sandbox [--json] [--rounds 5] [--problems 40] [--humaneval FILE]

Needs Linux with bubblewrap, two cores, and HumanEval's file. "cold" starts ``python -I`` for every
run, in a subprocess without any limit, two at a time, and compares stdout or lets the assertions
run inside. "ours" is CodeGrader as it is, which protects, in as many sandboxes at a time as it
likes. Both take turns within a round; the figure is the median of the rounds' ratios.

- HumanEval: canonical solutions with the tests of their problem; a check is a problem.
- stdin: a small program with ten tests; a check is the problem with all ten.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

from benchmarks import results

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
    """Return ten inputs of growing length, with the largest sum of a run of numbers."""
    tests: list[IoTest] = []
    for size in range(1, 11):
        numbers = [(index * 7919) % 23 - 11 for index in range(size * 20)]
        best = max(
            sum(numbers[start:end]) for start, end in combinations(range(len(numbers) + 1), 2)
        )
        text = " ".join(str(number) for number in numbers)
        tests.append(IoTest(f"{len(numbers)}\n{text}\n", f"{best}\n"))
    return tests


def cold(arguments: tuple[str, list[IoTest]]) -> bool:
    """Run a program in a fresh, unprotected Python for each test."""
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
    """Return the checks a second, two at a time."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        assert all(threads.map(cold, work))
    return len(work) / (time.perf_counter() - begun)


async def our_rate(grader: CodeGrader, work: list[tuple[Problem, str]]) -> float:
    """Return the checks a second, all asked for at once."""
    begun = time.perf_counter()
    grades = await asyncio.gather(*(grader.grade(problem, answer) for problem, answer in work))
    notes = [grade.note for grade in grades if not grade.correct]
    assert not notes, notes
    return len(work) / (time.perf_counter() - begun)


Work = tuple[list[tuple[str, list[IoTest]]], list[tuple[Problem, str]]]
"""The work of the cold runner, and ours."""


def humaneval(path: Path, count: int) -> Work:
    """Return canonical solutions with their tests."""
    cold_work: list[tuple[str, list[IoTest]]] = []
    our_work: list[tuple[Problem, str]] = []
    for line in path.read_text("utf-8").splitlines()[:count]:
        row = json.loads(line)
        solution = f"{row['prompt']}{row['canonical_solution']}\n"
        program = f"{solution}{row['test']}\ncheck({row['entry_point']})\n"
        cold_work.append((program, [IoTest("", "")]))
        tests = from_asserts(row["test"], row["entry_point"])
        problem = Problem(row["task_id"], "", tests, "humaneval")
        our_work.append((problem, f"```python\n{solution}```"))
    return cold_work, our_work


def stdin(count: int) -> Work:
    """Return the same program as often as wanted."""
    tests = stdin_tests()
    problem = Problem("stdin", "", CodeTests(tuple(tests)), "stdin")
    answer = f"```python\n{STDIN_PROGRAM}```"
    return [(STDIN_PROGRAM, tests)] * count, [(problem, answer)] * count


async def measure(rounds: int, kinds: dict[str, Work]) -> dict[str, object]:
    """Let both runners take turns, for each kind of work."""
    sandbox = open_sandbox()
    grader = CodeGrader(sandbox=sandbox)
    bars: list[dict[str, object]] = []
    figures: dict[str, object] = {}
    for kind, (cold_work, our_work) in kinds.items():
        cold_rates: list[float] = []
        our_rates: list[float] = []
        for _ in range(rounds):
            cold_rates.append(cold_rate(cold_work))
            our_rates.append(await our_rate(grader, our_work))
        ratios = [ours / cold for ours, cold in zip(our_rates, cold_rates, strict=True)]
        ratio = statistics.median(ratios)
        bars.append(results.at_least(f"{kind}: checks a second / cold", ratio, BARS[kind]))
        figures[kind] = {
            "cold_per_s": statistics.median(cold_rates),
            "ours_per_s": statistics.median(our_rates),
            "ratios": [round(ratio, 2) for ratio in ratios],
        }
    await sandbox.aclose()
    return {"bars": bars, **figures, "level": sandbox.level, "machine": results.machine()}


def main() -> None:
    """Measure and print."""
    parser = results.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--humaneval", type=Path, default=HUMANEVAL)
    options = parser.parse_args()
    kinds = {"stdin": stdin(max(2, options.problems // 4))}
    if options.humaneval.is_file():
        kinds["humaneval"] = humaneval(options.humaneval, options.problems)
    else:
        print(f"humaneval is not measured: no {options.humaneval}", file=sys.stderr)
    results.show(asyncio.run(measure(options.rounds, kinds)), as_json=options.json)


if __name__ == "__main__":
    main()
