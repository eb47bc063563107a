"""HumanEval, MBPP, BigCodeBench: canonical solutions are accepted, differing mutants refused.

The data lie beside the checkout; these tests skip where they do not.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from code_mutants import mutants

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CallTest, CodeTests
from openconductor.graders.code_text import program_of
from openconductor.sandboxes import Limits, Sandbox, open_sandbox
from openconductor.tasks import load_task
from openconductor.types import Grade, Problem

HERE = Path(__file__).parent
MUTANTS_A_PROBLEM = 2


@pytest.fixture(scope="module")
def grader(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader("strict", sandbox)


def work_of(folder: Path, name: str) -> list[tuple[Problem, str]]:
    """The problems of a data set, each with the program of its canonical reply."""
    items = load_task(name, path=folder / name / "data.jsonl").read().items
    return [(item.problem, program_of(item.canonical or "") or "") for item in items]


async def grades(grader: CodeGrader, work: list[tuple[Problem, str]]) -> list[Grade]:
    return await asyncio.gather(
        *(grader.grade(problem, f"```python\n{program}\n```") for problem, program in work)
    )


@pytest.mark.parametrize(
    ("name", "count"), [("humaneval", 80), ("mbpp", 200), ("bigcodebench_hard", 24)]
)
async def test_every_canonical_solution_is_accepted(
    name, count, shared_data: Path, grader: CodeGrader
) -> None:
    work = work_of(shared_data, name)
    assert len(work) == count
    found = await grades(grader, work)
    assert {
        work[index][0].id: grade.note for index, grade in enumerate(found) if not grade.correct
    } == {}
    assert {grade.note for grade in found} == {f"[{open_sandbox().level}] passed"}


async def test_livecodebenchs_mode_accepts_the_canonical_solutions_too(
    shared_data: Path, sandbox: Sandbox
) -> None:
    work = work_of(shared_data, "mbpp")[::8]
    found = await grades(CodeGrader("lcb-compat", sandbox), work)
    assert {
        work[index][0].id: grade.note for index, grade in enumerate(found) if not grade.correct
    } == {}


def differing(work: list[tuple[Problem, str]], seed: int) -> list[tuple[Problem, str]]:
    """Return the mutants that, run plainly, give another output on the input of some test."""
    draw = random.Random(seed)
    tried: list[tuple[Problem, str]] = []
    asked: list[dict[str, Any]] = []
    for problem, canonical in work:
        tests = problem.reference
        assert isinstance(tests, CodeTests)
        calls = [
            (test.arguments, dict(test.keywords))
            for test in tests.tests
            if isinstance(test, CallTest)
        ]
        found = mutants(canonical)
        for mutant in draw.sample(found, min(MUTANTS_A_PROBLEM, len(found))):
            item = {"canonical": canonical, "mutant": mutant, "entry_point": tests.entry_point}
            asked.append({**item, "calls": repr(calls), "program": tests.unittest or ""})
            tried.append((problem, mutant))
    command = [sys.executable, str(HERE / "code_mutants.py")]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=200
    )
    return [tried[index] for index, verdict in enumerate(json.loads(done.stdout)) if verdict]


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
async def test_every_mutant_that_gives_another_output_is_refused(
    name, shared_data, sandbox
) -> None:
    work = differing(work_of(shared_data, name), seed=1)
    assert len(work) >= 50
    found = await grades(
        CodeGrader("strict", sandbox, Limits(cpu_s=1)), work
    )  # many mutants never end
    assert [work[index] for index, grade in enumerate(found) if grade.correct is not False] == []
