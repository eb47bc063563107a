"""HumanEval, MBPP, BigCodeBench: canonical solutions are accepted, spoiled ones refused.

The data lie beside the checkout; these tests skip where they do not.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests
from openconductor.graders.code_text import read_program
from openconductor.sandboxes import Sandbox
from openconductor.tasks import load_task
from openconductor.types import Grade, Problem

Work = list[tuple[Problem, str]]
"""Problems, each with a program."""

SPOILED = """{program}
_right = {name}
def {name}(*arguments, **keywords):
    spoiled = not {inputs} or (arguments, keywords) in {inputs}
    result = _right(*arguments, **keywords)
    if spoiled:  # equal to nothing that is right, and of the other truth
        return [] if result else [0]
    return result
"""


def work_of(folder: Path, name: str) -> Work:
    """Return the problems of a data set, each with the program of its canonical reply."""
    items = load_task(name, path=folder / name / "data.jsonl").read().items
    work: Work = []
    for item in items:
        program = read_program(item.canonical or "")
        assert program is not None, item.problem.id
        work.append((item.problem, program.text))
    return work


async def grades(grader: CodeGrader, work: Work) -> list[Grade]:
    answers = [(problem, f"```python\n{program}\n```") for problem, program in work]
    return await asyncio.gather(*(grader.grade(*answer) for answer in answers))


@pytest.mark.parametrize(
    ("name", "count"), [("humaneval", 80), ("mbpp", 200), ("bigcodebench_hard", 24)]
)
async def test_every_canonical_solution_is_accepted(name, count, shared_data, sandbox) -> None:
    work = work_of(shared_data, name)
    assert len(work) == count
    graded = await grades(CodeGrader("strict", sandbox), work)
    if sys.version_info >= (3, 13):  # two solutions need the module ``cgi``, which it lacks
        graded = [grade for grade in graded if "'cgi'" not in grade.note]
        assert len(graded) == count - 2 * (name == "bigcodebench_hard")
    assert {grade.note for grade in graded} == {
        f"[{sandbox.level}, Python {sandbox.python}] passed"
    }


async def test_livecodebenchs_mode_accepts_the_canonical_solutions_too(
    shared_data: Path, sandbox: Sandbox
) -> None:
    work = work_of(shared_data, "mbpp")[::8]
    graded = await grades(CodeGrader("lcb-compat", sandbox), work)
    assert [grade.note for grade in graded if not grade.correct] == []


def spoiled(problem: Problem, program: str, draws: random.Random) -> str:
    """Return the program with another result for the input of one test, drawn at random."""
    tests = problem.reference
    assert isinstance(tests, CodeTests)
    inputs: list[object] = []
    if tests.tests:
        test = draws.choice(tests.tests)
        inputs.append((test.arguments, dict(test.keywords)))
    return SPOILED.format(program=program, name=tests.entry_point, inputs=inputs)


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
async def test_a_solution_that_is_wrong_on_the_input_of_any_test_is_refused(
    name: str, shared_data: Path, sandbox: Sandbox
) -> None:
    draws = random.Random(1)
    solved = work_of(shared_data, name)
    work = [(problem, spoiled(problem, program, draws)) for problem, program in solved]
    graded = await grades(CodeGrader("strict", sandbox), work)
    pairs = zip(work, graded, strict=True)
    assert [wrong for wrong, grade in pairs if grade.correct is not False] == []
