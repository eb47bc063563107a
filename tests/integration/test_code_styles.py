"""Correct programs in unusual styles (``programs/styles.md``) are right in both modes."""

from __future__ import annotations

import sys
from typing import get_args

import pytest
from code_programs import read_programs

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.sandboxes import Sandbox
from openconductor.types import Problem

SUM = CodeTests(
    (IoTest("2 3\n", "5\n"), IoTest("-1 1\n", "0\n"), IoTest(f"{10**30} 1\n", f"{10**30 + 1}\n"))
)
BIG = CodeTests((IoTest("200000\n", "".join(f"{number}\n" for number in range(100_000))),))
LONG = CodeTests((IoTest(" ".join(["7"] * 300_000), "2100000"),))
EMPTY = CodeTests((IoTest("", "nothing"),))
TWICE = CodeTests((CallTest((3,), 6), CallTest((), 8, {"n": 4})), "twice")
ADD = CodeTests((CallTest((1, 2), 3), CallTest((), 4, {"a": 2, "b": 2})), "add")

TESTS = {"Sum": SUM, "Double": TWICE, "Big output": BIG, "Long input": LONG, "No input": EMPTY}
TESTS["A name of the preamble"] = ADD
PROGRAMS = read_programs("styles")
STYLES = [(section, name) for section, programs in PROGRAMS.items() for name in programs]


@pytest.fixture(scope="module", params=get_args(Mode))
def grader(request: pytest.FixtureRequest, sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(request.param, sandbox)


@pytest.mark.parametrize(("section", "name"), STYLES)
async def test_a_program_in_this_style_is_right(
    section: str, name: str, grader: CodeGrader
) -> None:
    if name == "recursion through C" and sys.version_info >= (3, 12):
        pytest.skip("Python 3.12 and later limit recursion through C, whatever a program sets")
    problem = Problem(name, "", TESTS[section], "styles")
    grade = await grader.grade(problem, f"```python\n{PROGRAMS[section][name]}\n```")
    assert grade.correct is True, grade.note
