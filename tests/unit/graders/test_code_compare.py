"""Outputs and values, compared outside: what is equal in each mode, and what is not."""

from __future__ import annotations

import pytest

from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_tests import CallTest, IoTest
from openconductor.sandboxes.encoding import encode

BOTH = [
    ("5", "5"),
    ("5\n", "5"),
    ("  5 \n\n", "5"),
    ("1\n2\n", "1\r\n2\r\n"),
    ("3.0", "3"),
    ("0.50 1e2", ".5 100"),
    ("1   2", "1 2"),
    ("+7", "7"),
    ("", "\n"),
    ("12345678901234567890123456789", "12345678901234567890123456789.0"),
]
NEITHER = [
    ("5", "6"),
    ("1\n2", "1 2"),
    ("1 2 3", "1 2"),
    ("1\n\n2", "1\n2"),
    ("YES", "Yes"),
    ("a b", "ab"),
    ("50000000000000001", "50000000000000000"),
    ("0.30000000000000004", "0.3"),
    ("nan", "0"),
    ("one", "1"),
    ("#  #", "# #"),
    ("", "0"),
]


@pytest.mark.parametrize("mode", ["strict", "lcb-compat"])
@pytest.mark.parametrize(("got", "expected"), BOTH)
def test_these_outputs_are_the_same(got: str, expected: str, mode: Mode) -> None:
    assert wrong_output(IoTest("", expected), got, mode) == ""


@pytest.mark.parametrize("mode", ["strict", "lcb-compat"])
@pytest.mark.parametrize(("got", "expected"), NEITHER)
def test_these_outputs_are_not(got: str, expected: str, mode: Mode) -> None:
    assert wrong_output(IoTest("", expected), got, mode).startswith("wrong output")


def test_numbers_within_a_line_of_words_are_numbers_in_strict_mode_alone() -> None:
    test = IoTest("", "Case 1: 3")
    assert wrong_output(test, "Case 1: 3.0", "strict") == ""
    assert wrong_output(test, "Case 1: 3.0", "lcb-compat") != ""
    assert wrong_output(test, "Case  1: 3.0", "strict") != "", "the gaps are part of such a line"


def test_what_only_decimals_decimal_reads_is_no_number_in_strict_mode() -> None:
    for got, expected in [("1_0", "10"), ("Infinity", "inf"), ("\u0661", "1")]:
        assert wrong_output(IoTest("", expected), got, "strict") != ""
        assert wrong_output(IoTest("", expected), got, "lcb-compat") == ""


def test_a_huge_number_is_compared_at_once() -> None:
    assert wrong_output(IoTest("", "1"), "1e999999999", "strict") != ""
    assert wrong_output(IoTest("", "1e999999999"), "10e999999998", "strict") == ""


def test_a_fault_names_the_line_and_not_what_was_expected() -> None:
    said = wrong_output(IoTest("", "1\n4815"), "1\nx" + "y" * 1000, "strict")
    assert "line 2" in said and len(said) < 200 and "4815" not in said


@pytest.mark.parametrize(
    ("got", "expected"),
    [(3, 3), ([1, [2]], [1, [2]]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ("x", "x"), (None, None), (0.5, 0.5)],
)
def test_these_values_are_the_same_in_every_way(got: object, expected: object) -> None:
    modes: tuple[Mode, ...] = ("strict", "lcb-compat")
    for mode in modes:
        assert wrong_value(CallTest((), expected), encode(got), mode) == ""
        assert wrong_value(CallTest((), expected, equality="python"), encode(got), mode) == ""


@pytest.mark.parametrize(
    ("got", "expected"),
    [(3, 4), ([1], [1, 2]), ("3", 3), (None, 0), ({1, 2}, [1, 2]), ([1, (2,)], [1, [2]]), (b"x", "x"), ({}, [])],
)
def test_these_values_are_different_in_every_way(got: object, expected: object) -> None:
    modes: tuple[Mode, ...] = ("strict", "lcb-compat")
    for mode in modes:
        assert wrong_value(CallTest((), expected), encode(got), mode)
        assert wrong_value(CallTest((), expected, equality="python"), encode(got), mode)


@pytest.mark.parametrize(("got", "expected"), [(3.0, 3), (True, 1), ([1.0], [1])])
def test_numbers_of_other_types_count_where_python_or_livecodebench_says_so(got: object, expected: object) -> None:
    assert wrong_value(CallTest((), expected), encode(got), "strict")
    assert wrong_value(CallTest((), expected), encode(got), "lcb-compat") == ""
    assert wrong_value(CallTest((), expected, equality="python"), encode(got), "strict") == ""


def test_a_returned_tuple_is_a_list_for_livecodebench_alone() -> None:
    assert wrong_value(CallTest((), [1, 2]), encode((1, 2)), "lcb-compat") == ""
    assert wrong_value(CallTest((), [1, 2]), encode((1, 2)), "strict")
    assert wrong_value(CallTest((), [1, 2], equality="python"), encode((1, 2)), "lcb-compat"), "the test itself says =="


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
    assert wrong_value(test, encode(right), "strict") == ""
    assert wrong_value(test, encode(wrong), "strict") == "wrong value"


@pytest.mark.parametrize("reply", ["", "junk", encode(3) + "x", '{"set": 1}', "[" * 100_000])
def test_a_reply_that_is_no_value_is_wrong(reply: str) -> None:
    assert wrong_value(CallTest((), 3), reply, "strict").startswith("wrong value")
    assert wrong_value(CallTest((), condition="_ == 3"), reply, "strict").startswith("wrong value")
