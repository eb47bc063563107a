"""Test programs that are judged outside of the answer's process: cheats fail, right answers pass.

The programs are in ``programs/outside.md``; those of ``cheats.md`` fail here, too.
"""

from __future__ import annotations

import pytest
from code_programs import read_programs
from test_code_cheats import (
    ASSERTIONS,
    BESIDE_CHEATS,
    EQUALITY,
    PATCHING,
    RIGHT,
    SECRET,
    UNITTESTS,
)

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests, from_asserts
from openconductor.sandboxes import Limits, Sandbox
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.types import Grade, Problem

LIMITS = Limits(cpu_s=3, wall_s=5, memory_mb=512)
CHEATS = read_programs("outside")
BY_VALUE = {
    name: program
    for section in ("Of the test framework", "Lies about equality", "Of the values that are sent")
    for name, program in CHEATS[section].items()
}
OF_FRAMES = CHEATS["Of arrays and frames"]
WEAK = f"""
import unittest

class Cases(unittest.TestCase):
    def test_value(self):
        value = f(1, 2)
        self.assertIsInstance(value, int)
        self.assertIn(value, [{SECRET}])
        self.assertTrue(value == {SECRET})
        self.assertFalse(value != {SECRET})

    def test_all(self):
        for value in map(f, [3], [4]):
            self.assertAlmostEqual(value, 7)
        self.assertTrue(all(f(n, n) == 2 * n for n in range(2, 4)))
"""
FRAMES = """
import unittest
import numpy as np
import pandas as pd

class Cases(unittest.TestCase):
    def test_array(self):
        values = frame(3)["x"].to_numpy()
        {first}

    def test_frame(self):
        result = frame(3)
        {second}
"""
FRAME = "pd.DataFrame({'x': [1.0, 2.0, 3.0]})"
COMPARED = {
    "equal": (
        "self.assertTrue(np.array_equal(values, [1, 2, 3]))",
        f"self.assertTrue(result.equals({FRAME}))",
    ),
    "close": (
        "self.assertTrue(np.allclose(values, [1, 2, 3]))",
        "np.testing.assert_allclose(result.x, [1, 2, 3])",
    ),
    "testing": (
        "np.testing.assert_array_equal(values, [1, 2, 3])",
        f"pd.testing.assert_frame_equal(result, {FRAME})",
    ),
}
WRONG_BESIDE = [name for name, text in BESIDE_CHEATS.items() if RIGHT not in text]


@pytest.fixture(scope="module")
def grader(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader("strict", sandbox, LIMITS)


@pytest.fixture(scope="module")
def with_packages(bubblewrap: BubblewrapSandbox) -> CodeGrader:
    return CodeGrader("strict", BubblewrapSandbox(packages=True), Limits(memory_mb=2048))


async def grade(grader: CodeGrader, tests: str, program: str, entry_point: str = "f") -> Grade:
    problem = Problem("cheat", "", CodeTests((), entry_point, tests), "cheats")
    verdict = await grader.grade(problem, f"```python\n{program}\n```")
    assert verdict.judged_by == "outside"
    return verdict


@pytest.mark.parametrize(
    "tests", [UNITTESTS, EQUALITY, ASSERTIONS, WEAK], ids=["unittest", "equality", "check", "weak"]
)
@pytest.mark.parametrize("cheat", BY_VALUE)
async def test_a_cheat_fails_before_a_judge_outside(cheat, tests, grader) -> None:
    verdict = await grade(grader, tests, BY_VALUE[cheat])
    assert verdict.correct is False, verdict.note


@pytest.mark.parametrize(
    "cheat", [name for name, text in BESIDE_CHEATS.items() if RIGHT not in text]
)
async def test_a_cheat_beside_its_tests_fails_outside_too(cheat, grader) -> None:
    verdict = await grade(grader, UNITTESTS, BESIDE_CHEATS[cheat])
    assert verdict.correct is False, verdict.note


@pytest.mark.parametrize("compared", COMPARED)
@pytest.mark.parametrize("cheat", OF_FRAMES)
async def test_a_cheat_with_arrays_and_frames_fails(cheat, compared, with_packages) -> None:
    first, second = COMPARED[compared]
    tests = FRAMES.format(first=first, second=second)
    right = f"import pandas as pd\ndef frame(n):\n    return {FRAME}"
    assert (await grade(with_packages, tests, right, "frame")).correct is True
    verdict = await grade(with_packages, tests, OF_FRAMES[cheat], "frame")
    assert verdict.correct is False, verdict.note


@pytest.mark.parametrize(
    "tests", [UNITTESTS, EQUALITY, ASSERTIONS, WEAK], ids=["unittest", "equality", "check", "weak"]
)
async def test_a_right_answer_passes_before_a_judge_outside(tests, grader) -> None:
    verdict = await grade(grader, tests, RIGHT)
    assert verdict.correct is True, verdict.note


HELD_INSIDE = ("a test that should stop", "an exit of contexts that swallows", "swapped code of")


@pytest.mark.parametrize(
    "cheat", [name for name in BY_VALUE if name.startswith(HELD_INSIDE) or "skip" in name]
)
async def test_a_cheat_at_the_framework_fails_inside_too(cheat: str, grader: CodeGrader) -> None:
    tests = CodeTests((), "f", PATCHING + UNITTESTS)
    program = BY_VALUE[cheat]
    verdict = await grader.grade(Problem("p", "", tests, "cheats"), f"```python\n{program}\n```")
    assert (verdict.correct, verdict.judged_by) == (False, "inside"), verdict.note


PYTESTS = """
{way}
def test_value():
    assert f(1, 2) == 3

class TestMore:
    def test_other(self):
        assert f(3, 4) == 7
"""


@pytest.mark.parametrize("way", ["", PATCHING])
async def test_functions_and_classes_of_pytest_are_run(way: str, grader: CodeGrader) -> None:
    tests = from_asserts(PYTESTS.format(way=way))
    assert tests.entry_point == "f"
    for body, right in (("a + b", True), ("3", False), ("0", False)):
        answer = f"```python\ndef f(a, b):\n    return {body}\n```"
        verdict = await grader.grade(Problem("p", "", tests, "pytest"), answer)
        assert verdict.correct is right, verdict.note


async def test_modules_that_tests_name_are_there_with_their_parts(with_packages) -> None:
    tests = """
import unittest
import matplotlib.pyplot as plt

class Cases(unittest.TestCase):
    def tearDown(self):
        plt.close("all")

    def test_title(self):
        axes = draw([1, 2])
        self.assertIsInstance(axes, plt.Axes)
        self.assertEqual((axes.get_title(), axes.get_xlim()[0] < 0), ("Rise", True))
"""
    program = """
import matplotlib.pyplot as plt

def draw(values):
    _, axes = plt.subplots()
    axes.plot(values)
    axes.set_title("Rise")
    return axes
"""
    assert (await grade(with_packages, tests, program, "draw")).correct is True
    other = program.replace("Rise", "Fall")
    assert (await grade(with_packages, tests, other, "draw")).correct is False
