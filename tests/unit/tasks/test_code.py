"""The shapes of programming rows. Nothing is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shapes import items_of

from openconductor.errors import TaskError
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.graders.code_text import program_of

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'def add(a, b):\n    """Add.\n    ```python\n    """\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
MBPP = {
    "task_id": 900,
    "prompt": "Write a function to add.",
    "code": "def add(a, b):\n  return a + b",
    "test_imports": ["import math"],
    "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
}
BIGCODEBENCH = {
    "task_id": "BigCodeBench/900",
    "complete_prompt": "import os\n\ndef task_func():\n    '''Do it.'''\n",
    "instruct_prompt": "Do it.",
    "canonical_solution": "    return os.sep\n",
    "test": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(task_func())",
    "entry_point": "task_func",
    "libs": "['os']",
}
LOCAL = {"id": "p1", "question": "Echo.", "tests": [{"input": "1\n", "output": "1\n"}]}


def test_humaneval_is_completed_and_its_assertions_are_judged_outside(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "humaneval", HUMANEVAL)
    assert item.problem.id == "HumanEval/900"
    assert item.problem.reference == CodeTests((CallTest((1, 2), 3, {}, "python"),), "add")
    assert str(HUMANEVAL["prompt"]).strip() in item.problem.question
    assert item.canonical is not None
    program = program_of(item.canonical)
    assert program is not None
    namespace: dict[str, object] = {}
    exec(program, namespace)  # our own two lines
    assert callable(namespace["add"])


def test_mbpp_shows_one_assertion_and_keeps_the_others(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "mbpp", MBPP)
    assert item.problem.id == "mbpp/900"
    tests = item.problem.reference
    assert isinstance(tests, CodeTests)
    assert (tests.entry_point, len(tests.tests), tests.unittest) == ("add", 2, None)
    assert "assert add(1, 2) == 3" in item.problem.question
    assert "add(2, 2)" not in item.problem.question
    assert "`add`" in item.problem.question


def test_mbpps_other_form_calls_the_text_text_and_may_set_up(tmp_path: Path) -> None:
    row = {key: value for key, value in MBPP.items() if key != "prompt"}
    (item,) = items_of(tmp_path, "mbpp", {**row, "text": "Write it.", "test_setup_code": "root = Node(1)"})
    tests = item.problem.reference
    assert isinstance(tests, CodeTests)
    assert tests.unittest is not None  # what cannot be followed runs beside the answer, imports and setup with it
    assert tests.unittest.startswith("import math\nroot = Node(1)\nassert add")


def test_bigcodebench_keeps_its_test_classes(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "bigcodebench_hard", BIGCODEBENCH)
    assert item.problem.reference == CodeTests((), "task_func", str(BIGCODEBENCH["test"]))
    assert item.canonical is not None
    assert item.canonical.endswith("    return os.sep\n```")
    assert "Do it." in item.problem.question


def test_a_local_row_may_be_tested_by_standard_input(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "livecodebench_v1", LOCAL)
    assert item.problem.reference == CodeTests((IoTest("1\n", "1\n"),))
    assert "standard input" in item.problem.question
    assert item.canonical is None


def test_a_local_row_may_be_tested_by_calls(tmp_path: Path) -> None:
    row = {**LOCAL, "tests": [{"args": [1, 2], "expected": 3}, {"args": {"a": 1, "b": 2}, "expected": 3}]}
    starter = "class Solution:\n    def __init__(self):\n        pass\n\n    def add(self, a, b):\n"
    (item,) = items_of(tmp_path, "humaneval", {**row, "starter_code": starter, "solution": "def add(a, b): ..."})
    assert item.problem.reference == CodeTests((CallTest((1, 2), 3), CallTest((), 3, {"a": 1, "b": 2})), "add")
    assert starter in item.problem.question
    assert item.canonical == "```python\ndef add(a, b): ...\n```"
    (named,) = items_of(tmp_path, "humaneval", {**row, "starter_code": starter, "entry_point": "other"})
    assert isinstance(named.problem.reference, CodeTests)
    assert named.problem.reference.entry_point == "other"


def test_a_local_row_may_hold_a_test_program(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "humaneval", {**LOCAL, "tests": "assert add(1, 2) == 3", "entry_point": "add"})
    assert item.problem.reference == CodeTests((CallTest((1, 2), 3, {}, "python"),), "add")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**LOCAL, "tests": []}, "line 1: field 'tests': got .*, expected a list of objects, of at least one"),
        ({**LOCAL, "tests": [{"input": "1"}]}, r"line 1: field 'tests': test 0: got the fields \['input'\]"),
        ({**LOCAL, "tests": [{"args": [1], "expected": 1}]}, "with the entry point None"),
        ({**LOCAL, "tests": "assert"}, "line 1: field 'tests': test program: "),
        ({**LOCAL, "tests": " "}, "field 'tests': got ' ', expected a text that is not blank"),
        ({**MBPP, "test_list": []}, r"field 'test_list': got \[\], expected a list of assertions"),
        ({**MBPP, "test_list": ["assert"]}, "line 1: field 'test_list': test program: "),
        ({**HUMANEVAL, "test": "def"}, "line 1: field 'test': test program: "),
        ({**HUMANEVAL, "entry_point": 3}, "field 'entry_point': got 3, expected a text"),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        items_of(tmp_path, "humaneval", row)
