"""Tests become values: rows of files, LiveCodeBench's texts, and assertions, as far as nothing need be run for it."""

from __future__ import annotations

import pytest

from openconductor.errors import TaskError
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts, from_json_lines, from_rows


def test_rows_of_a_file_are_inputs_and_outputs_or_calls() -> None:
    rows: list[dict[str, object]] = [{"input": "1\n", "output": "2"}, {"args": [1, [2]], "expected": 3}]
    assert from_rows([*rows, {"args": {"n": 1}, "expected": None}], "f") == CodeTests(
        (IoTest("1\n", "2"), CallTest((1, [2]), 3), CallTest((), None, {"n": 1})), "f"
    )


@pytest.mark.parametrize(
    "row", [{}, {"input": "1"}, {"args": 1, "expected": 2}, {"args": [1]}, {"output": "x", "args": []}]
)
def test_a_row_of_another_shape_is_an_error_that_names_its_fields(row: dict[str, object]) -> None:
    with pytest.raises(TaskError, match="test 0: got the fields"):
        from_rows([row], "f")


def test_a_call_needs_an_entry_point() -> None:
    with pytest.raises(TaskError, match="entry point"):
        from_rows([{"args": [1], "expected": 2}])


def test_livecodebenchs_functional_tests_hold_a_value_a_line() -> None:
    tests = from_json_lines(['[1, 2]\n"x"'], ["[3.5, null]"], "f")
    assert tests == CodeTests((CallTest(([1, 2], "x"), [3.5, None]),), "f")
    for inputs, outputs in ((["["], ["1"]), (["1"], [])):
        with pytest.raises(TaskError, match="JSON"):
            from_json_lines(inputs, outputs, "f")


def test_assertions_become_calls_and_what_they_must_return() -> None:
    tests = from_asserts('assert f(1, [2]) == (3, "x")\nassert f(n=-1) == None, "message"')
    assert tests.entry_point == "f" and tests.unittest is None
    first, second = tests.tests
    assert first == CallTest((1, [2]), (3, "x"), {}, "python")
    assert second == CallTest((), None, {"n": -1}, "python")


def test_other_assertions_become_conditions() -> None:
    source = """
import math
assert f(1)
assert not f(2)
assert f(3) is True
assert abs(f(4) - 0.5) < 1e-6
assert set(f(5)) == set([1, 2])
assert math.isclose(f(6), 2.5, rel_tol=0.001)
assert 7 == f(7)
"""
    tests = from_asserts(source)
    assert tests.unittest is None
    assert [test.condition for test in tests.tests if isinstance(test, CallTest)] == [
        *("_", "not _", "_ is True", "abs(_ - 0.5) < 1e-06", "set(_) == set([1, 2])"),
        *("math.isclose(_, 2.5, rel_tol=0.001)", "7 == _"),
    ]


def test_a_check_function_names_the_candidate_and_may_count() -> None:
    source = """
METADATA = {"author": "nobody"}
def check(candidate):
    assert True, "this always holds"
    base = [1, 2]
    for x in range(2, 4):
        assert candidate(base, x) == str(x) * 2
"""
    tests = from_asserts(source, "grow")
    assert tests == CodeTests(
        (CallTest(([1, 2], 2), "22", {}, "python"), CallTest(([1, 2], 3), "33", {}, "python")), "grow"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "assert f(random.random()) < 1",
        "assert f(1) == f(2)",
        "assert f(Pair(1, 2)) == 3",
        "x = f(1)",
        "assert f(*[1])",
        "assert f(1) ** 3 == 8",
        "assert False",
        "with open('x'): assert f(1)",
        "assert helper(f(1))",
        "f(1)",
    ],
)
def test_what_cannot_be_turned_is_kept_whole_beside_the_rest(statement: str) -> None:
    source = f"assert f(0) == 1\n{statement}"
    tests = from_asserts(source, "f")
    assert tests.tests == (CallTest((0,), 1, {}, "python"),)
    assert tests.unittest == source


def test_the_function_under_test_is_the_first_that_is_no_builtin() -> None:
    assert from_asserts("assert set(common([1])) == {1}").entry_point == "common"
    assert from_asserts("assert sum(10, 15) == 6").entry_point == "sum"


def test_a_name_that_changes_has_its_value_of_the_moment() -> None:
    tests = from_asserts("x = 1\nassert f(x) == x\nx = 2\nassert f(x) == x")
    assert [(test.arguments, test.expected) for test in tests.tests if isinstance(test, CallTest)] == [
        ((1,), 1),
        ((2,), 2),
    ]


@pytest.mark.parametrize(("source", "message"), [("assert f(", "expected Python"), ("x = 1", "entry point")])
def test_a_program_without_a_test_is_an_error(source: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        from_asserts(source)
