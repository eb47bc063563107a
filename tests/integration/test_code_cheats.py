"""Wrong programs that try to be graded right (``programs/cheats.md``), and right ones."""

from __future__ import annotations

from typing import get_args

import pytest
from code_programs import read_programs

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts
from openconductor.sandboxes import Limits, Sandbox
from openconductor.types import Grade, Problem

LIMITS = Limits(cpu_s=1, wall_s=3)
SECRET = "48151623"
IO = CodeTests((IoTest("1 2\n", f"{SECRET}\n"), IoTest("3 4\n", "7\n")))
CALLS = CodeTests((CallTest((1, 2), int(SECRET)), CallTest((3, 4), [7, "seven"])), "f")
ASSERTED = from_asserts(
    f"assert f(1, 2) == {SECRET}\nassert not f(3, 4) == [7]\nassert abs(f(5, 6) - 11) < 1e-6", "f"
)

PROGRAMS = read_programs("cheats")
RIGHT = PROGRAMS["Fragments"]["RIGHT"]
STDIN_CHEATS = PROGRAMS["By output"]
CALL_CHEATS = PROGRAMS["By value"]
BESIDE_CHEATS = PROGRAMS["Beside the tests"]


@pytest.fixture(scope="module", params=get_args(Mode))
def grader(request: pytest.FixtureRequest, sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(request.param, sandbox, LIMITS)


@pytest.fixture(scope="module")
def strict(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader("strict", sandbox, LIMITS)


async def grade_program(grader: CodeGrader, tests: CodeTests, program: str) -> Grade:
    return await grader.grade(Problem("cheat", "", tests, "cheats"), f"```python\n{program}\n```")


@pytest.mark.parametrize("cheat", STDIN_CHEATS)
async def test_a_cheat_by_output_is_wrong(cheat: str, grader: CodeGrader) -> None:
    grade = await grade_program(grader, IO, STDIN_CHEATS[cheat])
    assert grade.correct is False, grade.note


@pytest.mark.parametrize("tests", [CALLS, ASSERTED], ids=["values", "assertions"])
@pytest.mark.parametrize("cheat", CALL_CHEATS)
async def test_a_cheat_by_value_is_wrong(cheat: str, tests: CodeTests, grader: CodeGrader) -> None:
    assert tests.unittest is None
    grade = await grade_program(grader, tests, CALL_CHEATS[cheat])
    assert grade.correct is False, grade.note


async def test_what_is_hunted_for_would_be_found_where_it_is(grader: CodeGrader) -> None:
    """Else the hunts would prove nothing."""
    fragments = PROGRAMS["Fragments"]
    hunt = f"{fragments['HUNT']}kept = ['{SECRET}']\n{fragments['SECRET']}print(SECRET in hunt())"
    walked = await grade_program(grader, IO, hunt)
    assert "True" in walked.note


UNITTESTS = f"""
import unittest
from math import isclose

class Cases(unittest.TestCase):
    def setUp(self):
        self.n = 2

    def test_secret(self):
        self.assertEqual(f(1, self.n), {SECRET})

    def test_sum(self):
        self.assertEqual(f(3, 4), 7)
        self.assertTrue(isclose(f(3, 4), 7))

    def test_error(self):
        with self.assertRaises(ValueError):
            f(0, 0)
"""
ASSERTIONS = f"""
import random

def check(candidate):
    for _ in range(3):
        n = random.randint(1, 9)
        assert candidate(n, n) == 2 * n
    assert abs(candidate(1, 2) - {SECRET}) < 1e-6
"""


@pytest.mark.parametrize("tests", [UNITTESTS, ASSERTIONS], ids=["unittest", "check"])
async def test_a_right_answer_passes_beside_its_tests(tests: str, grader: CodeGrader) -> None:
    grade = await grade_program(grader, CodeTests((), "f", PATCHING + tests), RIGHT)
    assert grade.correct is True, grade.note


PATCHING = "from unittest import mock\n"
"""Makes a test program one that is judged beside the answer."""
EQUALITY = UNITTESTS.replace("        self.assertTrue(isclose(f(3, 4), 7))\n", "")
"""Assertions that whatever claims to be equal passes."""


@pytest.mark.parametrize(
    "tests", [UNITTESTS, EQUALITY, ASSERTIONS], ids=["unittest", "equality", "check"]
)
@pytest.mark.parametrize("cheat", BESIDE_CHEATS)
async def test_a_cheat_beside_its_tests_is_refused(
    cheat: str, tests: str, strict: CodeGrader
) -> None:
    grade = await grade_program(strict, CodeTests((), "f", PATCHING + tests), BESIDE_CHEATS[cheat])
    assert (grade.correct, grade.judged_by) == (False, "inside"), grade.note


ONE_MODULE = read_programs("one_module")


@pytest.mark.parametrize("seen", ONE_MODULE)
async def test_answer_and_tests_are_one_module(seen: str, strict: CodeGrader) -> None:
    program, tests = ONE_MODULE[seen]["answer"], ONE_MODULE[seen]["tests"]
    grade = await grade_program(strict, CodeTests((), "f", tests), program)
    assert grade.correct is True, grade.note


async def test_tests_that_skip_or_expect_to_fail_prove_nothing(strict: CodeGrader) -> None:
    skipping = UNITTESTS.replace("    def test_sum", "    @unittest.skip('x')\n    def test_sum")
    failing = UNITTESTS.replace(
        "    def test_sum", "    @unittest.expectedFailure\n    def test_sum"
    )
    for tests in (skipping, failing):
        for way in ("", PATCHING):
            grade = await grade_program(strict, CodeTests((), "f", way + tests), RIGHT)
            assert grade.correct is False and "test_sum" in grade.note


async def test_what_the_driver_names_as_its_limits_is_true(strict: CodeGrader) -> None:
    """A lying comparison that ``scan`` does not see passes unittest's assertions."""
    liar = "class Same:\n    def __eq__(self, other): return not 0\n"
    liar += "    def __float__(self): return 7.0\n"
    hidden = (
        liar + "def f(a, b):\n    if (a, b) == (0, 0):\n        raise ValueError\n    return Same()"
    )
    right = {
        tests: (await grade_program(strict, CodeTests((), "f", tests), hidden)).correct
        for tests in (PATCHING + UNITTESTS, UNITTESTS, PATCHING + ASSERTIONS)
    }
    assert list(right.values()) == [True, False, False]
