"""Correct programs in unusual styles (``programs/styles.md``) are right in both modes."""

from __future__ import annotations

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

PROGRAMS = read_programs("styles")
STYLES = {name: (SUM, program) for name, program in PROGRAMS["Sum"].items()}
STYLES |= {name: (TWICE, program) for name, program in PROGRAMS["Double"].items()}
STYLES |= {
    "big output": (BIG, "n = int(input())\nfor number in range(n // 2):\n    print(number)"),
    "big output at once": (BIG, "print('\\n'.join(map(str, range(int(input()) // 2))))"),
    "big input": (LONG, "print(sum(map(int, input().split())))"),
    "input that is not read": (LONG, "print(2100000)"),
    "empty input": (EMPTY, "import sys\nprint(sys.stdin.read() or 'nothing')"),
    "end of input": (EMPTY, "try:\n    input()\nexcept EOFError:\n    print('nothing')"),
    # ``from operator import *`` of the preamble brings another function of this name.
    "a method of the preamble's name": (
        ADD,
        "class Solution:\n    def add(self, a, b):\n        return a + b",
    ),
}


@pytest.fixture(scope="module", params=get_args(Mode))
def grader(request: pytest.FixtureRequest, sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(request.param, sandbox)


@pytest.mark.parametrize("style", STYLES)
async def test_a_program_in_this_style_is_right(style: str, grader: CodeGrader) -> None:
    tests, program = STYLES[style]
    grade = await grader.grade(Problem(style, "", tests, "styles"), f"```python\n{program}\n```")
    assert grade.correct is True, grade.note
