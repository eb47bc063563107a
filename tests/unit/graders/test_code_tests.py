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


@pytest.mark.parametrize("row", [{}, {"input": "1"}, {"args": 1, "expected": 2}, {"args": [1]}, {"output": "x"}])
def test_a_row_of_another_shape_is_an_error_that_names_its_fields(row: dict[str, object]) -> None:
    with pytest.raises(TaskError, match="test 0: got the fields"):
        from_rows([row], "f")
    with pytest.raises(TaskError, match="entry point"):
        from_rows([{"args": [1], "expected": 2}])


def test_livecodebenchs_functional_tests_hold_a_value_a_line() -> None:
    tests = from_json_lines(['[1, 2]\n"x"'], ["[3.5, null]"], "f")
    assert tests == CodeTests((CallTest(([1, 2], "x"), [3.5, None]),), "f")
    for inputs, outputs in ((["["], ["1"]), (["1"], [])):
        with pytest.raises(TaskError, match="JSON"):
            from_json_lines(inputs, outputs, "f")


def asserted(*arguments: object, expected: object = None, condition: str | None = None, **keywords: object) -> CallTest:
    return CallTest(arguments, expected, keywords, "python", condition)


def test_assertions_become_calls_with_what_they_must_return_or_a_condition() -> None:
    source = """
import math
assert f(1, [2]) == (3, "x")
assert f(n=-1) == None, "message"
assert f(1)
assert not f(2)
assert f(3) is True
assert abs(f(4) - 0.5) < 1e-6
assert set(f(5)) == set([1, 2])
assert 7 == f(7)
x = 1
assert f(x) == x
x = 2
assert f(x) == x
"""
    assert from_asserts(source) == CodeTests(
        (
            *(asserted(1, [2], expected=(3, "x")), asserted(n=-1), asserted(1, condition="_")),
            *(asserted(2, condition="not _"), asserted(3, condition="_ is True")),
            *(asserted(4, condition="abs(_ - 0.5) < 1e-06"), asserted(5, condition="set(_) == set([1, 2])")),
            *(asserted(7, condition="7 == _"), asserted(1, expected=1), asserted(2, expected=2)),
        ),
        "f",
    )


def test_a_check_function_names_the_candidate_and_may_count() -> None:
    source = """
METADATA = {"author": "nobody"}
def check(candidate):
    assert True, "this always holds"
    base = [1, 2]
    for x in range(2, 4):
        assert candidate(base, x) == str(x) * 2
"""
    calls = asserted([1, 2], 2, expected="22"), asserted([1, 2], 3, expected="33")
    assert from_asserts(source, "grow") == CodeTests(calls, "grow")


NOT_TURNED = "assert f(random.random()) < 1|assert f(1) == f(2)|assert f(f(1)) == 2|assert f(Pair(1, 2)) == 3|x = f(1)"
NOT_TURNED += "|assert f(*[1])|assert f(1) ** 3 == 8|assert False|with open('x'): assert f(1)|assert g(f(1))|f(1)"


@pytest.mark.parametrize("statement", NOT_TURNED.split("|"))
def test_what_cannot_be_turned_is_kept_whole_beside_the_rest(statement: str) -> None:
    source = f"assert f(0) == 1\n{statement}"
    assert from_asserts(source, "f") == CodeTests((asserted(0, expected=1),), "f", source)


def test_the_function_under_test_is_the_first_that_is_no_builtin() -> None:
    assert from_asserts("assert set(common([1])) == {1}").entry_point == "common"
    assert from_asserts("assert sum(10, 15) == 6").entry_point == "sum"


@pytest.mark.parametrize(("source", "message"), [("assert f(", "expected Python"), ("x = 1", "entry point")])
def test_a_program_without_a_test_is_an_error(source: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        from_asserts(source)
