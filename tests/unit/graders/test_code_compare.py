"""Numbers that a program prints: compared by value, and never the end of a grading."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import example, given, strategies as st

from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_tests import CallTest, IoTest

HUGE = "1e99999999999999999999"

SAME = """
3 3.0 3. 3e0 30e-1 0.3e1 +3 03 3.00 300E-2
0 0.0 -0 .0 0e5 +0.00
-1.5 -1.50 -15e-1 -0.15E1 -01.5
1000000 1e6 1E6 1e+6 1000000.0 0.1e7
123456789012345678901234567890 123456789012345678901234567890.0
1e400 10e399 1e+400
"""
"""Numbers of one value, one value a line."""

NO_NUMBERS = f"""
{HUGE} -{HUGE} 1e-99999999999999999999 0e99999999999999999999 nan inf -inf Infinity sNaN 1_000 0x10
1e 1e+ . + - e5 1.2.3 1,000 ٣ １ ½ 1e5e5 --1 +-1 1j None True 1/2 (1) [1] 1e١
"""
"""Texts that equal themselves only."""


def wrong(printed: str, expected: str, mode: Mode = "strict") -> bool:
    return wrong_output(IoTest("", expected), printed, mode) != ""


def test_numbers_of_one_value_are_the_same() -> None:
    lines = [line.split() for line in SAME.split("\n") if line]
    pairs = [(one, other) for line in lines for one in line for other in line]
    assert len(pairs) > 60
    assert [pair for pair in pairs if wrong(*pair)] == []
    first, *others = lines
    assert all(wrong(number, first[0]) for line in others for number in line)


@pytest.mark.parametrize("text", NO_NUMBERS.split())
def test_a_text_that_is_no_number_equals_itself_alone(text: str) -> None:
    for other in ("1", "1.0", HUGE + "9", "abc"):
        assert wrong(text, other) and wrong(other, text)
    assert not wrong(text, text)


NUMBER_LIKE = st.from_regex(r"[+-]?\d{0,30}\.?\d{0,30}([eE][+-]?\d{1,40})?", fullmatch=True)
TOKENS = st.one_of(st.text(), NUMBER_LIKE, st.sampled_from(NO_NUMBERS.split()))


@given(TOKENS, TOKENS, st.sampled_from(get_args(Mode)))
@example(HUGE, "1", "strict")
@example("1", HUGE, "strict")
def test_whatever_is_printed_gets_a_verdict(printed: str, expected: str, mode: Mode) -> None:
    assert isinstance(wrong_output(IoTest("", expected), printed, mode), str)
    assert wrong_output(IoTest("", printed), printed, mode) == ""


CONDITIONS = [None, "_", "_ == 1", "abs(_ - 1) < 1e-6", "len(_) == 1", "round(_, 2) == 1.5"]
CONDITIONS += ["int(_) == 3", "set(_) == {1}", "sorted(_) == [1]", "_ + 1 == 2", "_[0] == 1"]


@given(st.text() | NUMBER_LIKE, st.sampled_from(CONDITIONS), st.sampled_from(get_args(Mode)))
@example("[" * 3000 + "]" * 3000, "_ == 1", "strict")
@example("1" * 5000, None, "strict")
@example('{"tuple": [1e999]}', None, "lcb-compat")
def test_whatever_is_returned_gets_a_verdict(reply: str, condition: str | None, mode: Mode) -> None:
    test = CallTest((), 1.5, condition=condition)
    assert isinstance(wrong_value(test, reply, mode), str)
