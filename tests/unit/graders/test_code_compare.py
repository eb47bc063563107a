"""Outputs and values, compared outside: what is equal in each mode, and what is not."""

from __future__ import annotations

from typing import get_args

import pytest

from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_tests import CallTest, IoTest
from openconductor.sandboxes.encoding import encode

MODES: tuple[Mode, ...] = get_args(Mode)
LONG = "12345678901234567890123456789"
SAME = [("  5 \n\n", "5"), ("1\n2\n", "1\r\n2\r\n"), ("3.0", "3"), ("0.50 1e2", ".5 100"), ("1   2", "1 2")]
SAME += [("+7", "7"), ("", "\n"), (LONG, f"{LONG}.0")]
OTHER = [("5", "6"), ("1\n2", "1 2"), ("1 2 3", "1 2"), ("1\n\n2", "1\n2"), ("YES", "Yes"), ("a b", "ab"), ("", "0")]
OTHER += [("50000000000000001", "50000000000000000"), ("0.30000000000000004", "0.3"), ("nan", "0"), ("one", "1")]
OTHER += [("#  #", "# #")]


@pytest.mark.parametrize("mode", MODES)
def test_outputs_are_compared_line_by_line_and_numbers_by_value(mode: Mode) -> None:
    assert [pair for pair in SAME if wrong_output(IoTest("", pair[1]), pair[0], mode)] == []
    assert [pair for pair in OTHER if not wrong_output(IoTest("", pair[1]), pair[0], mode)] == []


def test_the_modes_differ_over_words_beside_numbers_and_over_what_only_decimal_reads() -> None:
    def verdicts(got: str, expected: str) -> list[bool]:
        return [not wrong_output(IoTest("", expected), got, mode) for mode in ("strict", "lcb-compat")]

    assert verdicts("Case 1: 3.0", "Case 1: 3") == [True, False]
    assert verdicts("Case  1: 3.0", "Case 1: 3") == [False, False]  # the gaps are part of such a line
    for got, expected in [("1_0", "10"), ("Infinity", "inf"), ("\u0661", "1")]:
        assert verdicts(got, expected) == [False, True]


def test_a_huge_number_is_compared_at_once() -> None:
    assert wrong_output(IoTest("", "1"), "1e999999999", "strict") != ""
    assert wrong_output(IoTest("", "1e999999999"), "10e999999998", "strict") == ""


def test_a_fault_names_the_line_and_not_what_was_expected() -> None:
    said = wrong_output(IoTest("", "1\n4815"), "1\nx" + "y" * 1000, "strict")
    assert "line 2" in said and len(said) < 200 and "4815" not in said


@pytest.mark.parametrize(
    ("got", "expected", "typed", "compat", "python"),
    [
        *((value, value, True, True, True) for value in (3, [1, [2]], "x", None, 0.5)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, True, True),
        *((got, want, False, False, False) for got, want in [(3, 4), ([1], [1, 2]), ("3", 3), (None, 0), (b"x", "x")]),
        *((got, want, False, False, False) for got, want in [({1, 2}, [1, 2]), ([1, (2,)], [1, [2]]), ({}, [])]),
        *((got, want, False, True, True) for got, want in [(3.0, 3), (True, 1), ([1.0], [1])]),
        ((1, 2), [1, 2], False, True, False),  # a returned tuple is a list for LiveCodeBench, unless the test says ==
    ],
)
def test_values_are_equal_by_type_by_livecodebench_or_as_python_says(
    got: object, expected: object, typed: bool, compat: bool, python: bool
) -> None:
    reply = encode(got)
    assert (wrong_value(CallTest((), expected), reply, "strict") == "") is typed
    assert (wrong_value(CallTest((), expected), reply, "lcb-compat") == "") is compat
    for mode in MODES:
        assert (wrong_value(CallTest((), expected, equality="python"), reply, mode) == "") is python


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        ("abs(_ - 0.33) < 1e-06", 0.3300001, 0.34),
        ("not _", [], [0]),
        ("_ is True", True, 1),
        ("set(_) == {1, 2}", [2, 1, 1], [1]),
        ("math.isclose(_, 10, rel_tol=0.001)", 10.001, "ten"),
        ("_[0] == 'a' and len(_) == 2", "ab", ""),
    ],
)
def test_a_condition_holds_or_not(condition: str, right: object, wrong: object) -> None:
    test = CallTest((), condition=condition)
    assert [wrong_value(test, encode(value), "strict") for value in (right, wrong)] == ["", "wrong value"]


@pytest.mark.parametrize("reply", ["", "junk", encode(3) + "x", '{"set": 1}', "[" * 100_000])
def test_a_reply_that_is_no_value_is_wrong(reply: str) -> None:
    for test in (CallTest((), 3), CallTest((), condition="_ == 3")):
        assert wrong_value(test, reply, "strict").startswith("wrong value")
