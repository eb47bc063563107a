"""Plain numbers, compared exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.graders.math_text import normalise
from openconductor.graders.numerals import equal_numerals, read_numeral


def value(text: str) -> Fraction | None:
    numeral = read_numeral(normalise(text))
    return None if numeral is None else numeral.value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("− 7", -7),
        ("007", 7),
        ("1,234,567", 1234567),
        ("1{,}234", 1234),
        ("1 234", 1234),
        ("11,\\! 111", 11111),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("3/4", Fraction(3, 4)),
        ("-\\frac{3}{4}", Fraction(-3, 4)),
        ("\\frac{-3}{4}", Fraction(-3, 4)),
        ("\\dfrac34", Fraction(3, 4)),
        ("\\frac 34", Fraction(3, 4)),
        ("\\frac{270}7", Fraction(270, 7)),
        ("2\\frac{1}{2}", Fraction(5, 2)),
        ("-2\\frac12", Fraction(-5, 2)),
        ("2 1/2", Fraction(5, 2)),
        ("0.\\overline{3}", Fraction(1, 3)),
        ("0.1\\overline{6}", Fraction(1, 6)),
        ("1.5\\times10^{3}", 1500),
        ("1.5 × 10^-3", Fraction(3, 2000)),
        ("10^{-2}", Fraction(1, 100)),
        ("2e-3", Fraction(1, 500)),
        ("28%", 28),
        ("$5", 5),
        ("\\$-5", -5),
        ("5t", None),
        ("5 minus 3", None),
        ("5 or 6", None),
        ("1/0", None),
        ("\\frac{1}{0}", None),
        ("1,2,3", None),
        ("1.2.3", None),
        ("2\\frac{5}{2}", None),
        ("10^{1001}", None),
        ("1e99999999", None),
        ("9" * 401, None),
        ("x", None),
        ("", None),
    ],
)
def test_a_number_is_read_as_it_is_written(text: str, number: Fraction | int | None) -> None:
    assert value(text) == number


@given(st.integers(), st.integers(1, 10**9))
def test_a_fraction_equals_itself_and_nothing_else(top: int, under: int) -> None:
    gold = read_numeral(f"\\frac{{{top}}}{{{under}}}")
    same, other = read_numeral(f"{top}/{under}"), read_numeral(f"{top + 1}/{under}")
    assert gold is not None
    assert same is not None
    assert other is not None
    assert equal_numerals(gold, same) is True
    assert equal_numerals(gold, other) is False


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_exact(number: object) -> None:
    assert value(str(number)) == Fraction(str(number))


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("5 \\text{ m}", "500 \\text{ cm}", True),
        ("5 \\text{ m}", "5 \\text{ cm}", False),
        ("60 \\text{ mph}", "60 \\text{ miles per hour}", True),
        ("90 km/h", "25 \\text{ m/s}", True),
        ("864 \\text{ inches}^2", "864 \\text{ inches}", True),
        ("2 hours", "120 minutes", True),
        ("2 hours", "2 apples", True),
        ("3,5", "5,3", None),
        ("3,5", "3.5", True),
        ("3,5", "35", None),
    ],
)
def test_units_of_one_kind_are_converted_and_a_comma_is_left_open(gold: str, answer: str, same: bool | None) -> None:
    numerals = read_numeral(normalise(gold)), read_numeral(normalise(answer))
    assert numerals[0] is not None
    assert numerals[1] is not None
    assert equal_numerals(numerals[0], numerals[1]) is same
