"""HumanEval, MBPP and BigCodeBench: every canonical solution is accepted, every mutant that differs is refused.

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
from openconductor.graders.code_tests import CallTest, CodeTests, from_asserts
from openconductor.sandboxes import Limits, Sandbox, open_sandbox
from openconductor.types import Grade, Problem

HERE = Path(__file__).parent
MUTANTS_A_PROBLEM = 2


@pytest.fixture(scope="module")
def grader(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader("strict", sandbox)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name / "data.jsonl").read_text("utf-8").splitlines()]


def humaneval(folder: Path) -> list[tuple[Problem, str]]:
    return [
        (Problem(row["task_id"], "", from_asserts(row["test"], row["entry_point"]), ""), row["prompt"] + solution)
        for row in rows(folder, "humaneval")
        for solution in [row["canonical_solution"]]
    ]


def mbpp(folder: Path) -> list[tuple[Problem, str]]:
    return [
        (Problem(f"mbpp/{row['task_id']}", "", from_asserts("\n".join(row["test_list"])), ""), row["code"])
        for row in rows(folder, "mbpp")
    ]


def bigcodebench(folder: Path) -> list[tuple[Problem, str]]:
    return [
        (Problem(row["task_id"], "", CodeTests((), row["entry_point"], row["test"]), ""), row["complete_prompt"] + body)
        for row in rows(folder, "bigcodebench_hard")
        for body in [row["canonical_solution"]]
    ]


async def grades(grader: CodeGrader, work: list[tuple[Problem, str]]) -> list[Grade]:
    return await asyncio.gather(*(grader.grade(problem, f"```python\n{program}\n```") for problem, program in work))


@pytest.mark.parametrize("data_set", [humaneval, mbpp, bigcodebench], ids=lambda function: function.__name__)
async def test_every_canonical_solution_is_accepted(data_set: Any, shared_data: Path, grader: CodeGrader) -> None:
    work = data_set(shared_data)
    found = await grades(grader, work)
    assert {work[index][0].id: grade.note for index, grade in enumerate(found) if not grade.correct} == {}
    assert {grade.note for grade in found} == {f"[{open_sandbox().level}] passed"}


async def test_livecodebenchs_mode_accepts_the_canonical_solutions_too(shared_data: Path, sandbox: Sandbox) -> None:
    work = mbpp(shared_data)[::8]
    found = await grades(CodeGrader("lcb-compat", sandbox), work)
    assert {work[index][0].id: grade.note for index, grade in enumerate(found) if not grade.correct} == {}


def differing(work: list[tuple[Problem, str]], seed: int) -> list[tuple[Problem, str]]:
    """Mutants that, run plainly, give another output than the canonical solution on the input of some test."""
    draw = random.Random(seed)
    tried: list[tuple[Problem, str]] = []
    asked: list[dict[str, Any]] = []
    for problem, canonical in work:
        tests = problem.reference
        assert isinstance(tests, CodeTests)
        calls = [(test.arguments, dict(test.keywords)) for test in tests.tests if isinstance(test, CallTest)]
        found = mutants(canonical)
        for mutant in draw.sample(found, min(MUTANTS_A_PROBLEM, len(found))):
            item = {"canonical": canonical, "mutant": mutant, "entry_point": tests.entry_point}
            asked.append({**item, "calls": repr(calls), "program": tests.unittest or ""})
            tried.append((problem, mutant))
    command = [sys.executable, str(HERE / "code_mutants.py")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=200)
    return [tried[index] for index, verdict in enumerate(json.loads(done.stdout)) if verdict]


@pytest.mark.parametrize("data_set", [humaneval, mbpp], ids=lambda function: function.__name__)
async def test_every_mutant_that_gives_another_output_is_refused(data_set, shared_data, sandbox) -> None:
    work = differing(data_set(shared_data), seed=1)
    assert len(work) >= 50
    found = await grades(CodeGrader("strict", sandbox, Limits(cpu_s=1)), work)  # many mutants never end
    assert [work[index] for index, grade in enumerate(found) if grade.correct is not False] == []
