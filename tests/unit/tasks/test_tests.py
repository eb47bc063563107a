"""Tests of programming problems, in the shapes that people have them in."""

from __future__ import annotations

import json

import pytest

from openconductor.errors import TaskError
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.tasks.code import row_tests
from openconductor.tasks.data.rows import Row

ASSERTIONS = "assert twice(2) == 4\nassert twice(0) == 0"
CALLS = (CallTest((2,), 4, {}, "python"), CallTest((0,), 0, {}, "python"))
UNITTEST = """
import unittest
from math import floor

class TestTwice(unittest.TestCase):
    def test_two(self):
        self.assertEqual(floor(twice(2)), 4)
"""
STDIN = (IoTest("2\n", "4\n"), IoTest("0\n", "0\n"))
FUNCTIONAL = (CallTest((2,), 4), CallTest((0,), 0))
ROWS = [{"input": "2\n", "output": "4\n"}, {"input": "0\n", "output": "0\n"}]
OF_TYPE = [{**row, "testtype": "stdin"} for row in ROWS]
CALLED = [{"input": "2", "output": "4", "testtype": "functional"}]
CALLED += [{"input": "0", "output": "0", "testtype": "functional"}]
COLUMNS = {"inputs": ["2\n", "0\n"], "outputs": ["4\n", "0\n"]}
APPS = {"inputs": [[2], [0]], "outputs": [4, 0], "fn_name": "twice"}


def read(tests: object, **fields: object) -> CodeTests:
    return row_tests(Row({"id": "p", "tests": tests, **fields}, "stdin, line 1"))


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (ASSERTIONS, CodeTests(CALLS, "twice")),
        (ASSERTIONS.split("\n"), CodeTests(CALLS, "twice")),
        (UNITTEST, CodeTests((), "twice", UNITTEST)),
        (ROWS, CodeTests(STDIN)),
        (json.dumps(ROWS), CodeTests(STDIN)),
        (OF_TYPE, CodeTests(STDIN)),
        (json.dumps(OF_TYPE), CodeTests(STDIN)),
        (COLUMNS, CodeTests(STDIN)),
        (json.dumps(COLUMNS), CodeTests(STDIN)),
        (APPS, CodeTests(FUNCTIONAL, "twice")),
    ],
)
def test_each_shape_is_read_without_an_entry_point(tests: object, expected: CodeTests) -> None:
    assert read(tests) == expected


def test_shapes_that_need_an_entry_point_take_it_or_the_starter_codes() -> None:
    rows = [{"args": [2], "expected": 4}, {"args": [0], "expected": 0}]
    columns = {"inputs": ["2", "0"], "outputs": ["4", "0"]}
    for tests in (rows, CALLED, json.dumps(CALLED), columns):
        assert read(tests, entry_point="twice") == CodeTests(FUNCTIONAL, "twice")
        starter = "class Solution:\n    def twice(self, n):\n        pass"
        assert read(tests, starter_code=starter) == CodeTests(FUNCTIONAL, "twice")
    assert read(UNITTEST, entry_point="other").entry_point == "other"


WRONG = [None, [], {}, 5, "", " ", [1], [None], ["assert f(1) == 2", 3], {"inputs": []}, "[", "{"]
WRONG += ["assert (", "x = 1", [{"stdin": "1"}], {"input": "1", "output": "2"}, "[1]", CALLED]
WRONG += [{"inputs": ["1"], "outputs": []}, [{"input": "1", "output": "1", "testtype": "odd"}]]


@pytest.mark.parametrize("tests", WRONG, ids=str)
def test_another_shape_is_an_error_that_names_the_three(tests: object) -> None:
    with pytest.raises(TaskError, match="stdin, line 1: field 'tests'") as error:
        read(tests)
    if tests is not None:
        for shape in ("a unittest class", "rows of {input, output}", "LiveCodeBench's tests"):
            assert shape in str(error.value)
