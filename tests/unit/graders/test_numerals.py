"""Plain numbers and their units, compared exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.graders.math_text import normalise
from openconductor.graders.numerals import equal_numerals, read_numeral
from openconductor.graders.units import read_unit


def value(text: str) -> Fraction | None:
    numeral = read_numeral(normalise(text))
    return None if numeral is None else numeral.value


NUMBERS: dict[Fraction | int, str] = {  # the texts that say a number, parted by "|"
    7: "7|+7|007|7.0|7%",
    -7: "-7|− 7",
    1234567: "1,234,567",
    1234: "1{,}234|1 234|So 1234",
    11111: "11,\\! 111",
    Fraction(1, 2): ".5|1/2|0.5",
    5: "5.|$5|5 apples",
    -5: "\\$-5",
    Fraction(3, 4): "3/4|\\dfrac34|\\frac 34",
    Fraction(-3, 4): "-\\frac{3}{4}|\\frac{-3}{4}",
    Fraction(270, 7): "\\frac{270}7",
    Fraction(5, 2): "2\\frac{1}{2}|2 1/2",
    Fraction(-5, 2): "-2\\frac12",
    Fraction(1, 3): "0.\\overline{3}",
    Fraction(1, 6): "0.1\\overline{6}",
    1500: "1.5\\times10^{3}",
    Fraction(3, 2000): "1.5 × 10^-3",
    Fraction(1, 500): "2e-3",
}
NONE = "5t|5 minus 3|5 or 6|1/0|\\frac{1}{0}|1,2,3|3,5|-3,0|0,111|1.2.3|2\\frac{5}{2}|10^{1001}|1e99999999|x|"


@pytest.mark.parametrize(
    ("text", "number"),
    [(text, number) for number, texts in NUMBERS.items() for text in texts.split("|")]
    + [(text, None) for text in (*NONE.split("|"), "9" * 401)],
)
def test_a_number_is_read_as_it_is_written(text: str, number: Fraction | int | None) -> None:
    assert value(text) == number


@given(st.integers(), st.integers(1, 10**9))
def test_a_fraction_equals_itself_and_nothing_else(top: int, under: int) -> None:
    gold, same = read_numeral(f"\\frac{{{top}}}{{{under}}}"), read_numeral(f"{top}/{under}")
    other = read_numeral(f"{top + 1}/{under}")
    assert gold is not None
    assert same is not None
    assert other is not None
    assert equal_numerals(gold, same)
    assert not equal_numerals(gold, other)


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
        ("90 \\text{ km/h}", "90 \\text{ h/km}", False),
        ("90 \\text{ km/h}", "90 \\frac{\\text{km}}{\\text{h}}", True),
        ("864 \\text{ inches}^2", "864 \\text{ inches}", False),
        ("864 \\text{ cm}^2", "864 \\text{ cm}^3", False),
        ("864 \\text{ cm}^2", "864 \\text{ square centimeters}", True),
        ("864 \\text{ cm}^2", "864", True),
        ("2 hours", "120 minutes", True),
        ("2 hours", "2 apples", True),
        ("3.5", "3,5", True),
        ("3", "3,0", None),
        ("1234", "1,234", True),
        ("0.111", "0,111", True),
    ],
)
def test_units_are_converted_and_a_comma_may_be_a_decimal_point_in_an_answer(
    gold: str, answer: str, same: bool | None
) -> None:
    wanted, got = read_numeral(normalise(gold)), read_numeral(normalise(answer), comma=True)
    assert wanted is not None
    assert (None if got is None else equal_numerals(wanted, got)) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cm", "centimeters"),
        ("\\text{ cm}^2", "square centimetres"),
        ("km/h", "kilometers per hour"),
        ("mph", "miles/hour"),
        ("m/s^2", "\\text{ m/s}^2"),
        ("m/s^2", "\\mathrm{m s^{-2}}"),
        ("^\\circ", "degrees"),
        ("kg m/s", "kg\\cdot m/s"),
        ("sq ft", "feet^2"),
    ],
)
def test_one_unit_has_several_names(one: str, other: str) -> None:
    assert read_unit(one, letters=True) == read_unit(other, letters=True) is not None


@pytest.mark.parametrize("text", ["", "apples", "x", "cm apples", "/s", "m/s/s", "t"])
def test_what_is_not_in_the_list_is_no_unit(text: str) -> None:
    assert read_unit(text, letters=True) is None


@pytest.mark.parametrize("letter", ["m", "s", "g", "A"])
def test_a_single_letter_is_a_unit_only_where_it_is_no_variable(letter: str) -> None:
    assert read_unit(letter) is None
    assert read_unit(letter, letters=True) == read_unit(f"\\text{{ {letter}}}") is not None


def test_sizes_are_exact() -> None:
    unit = read_unit("km/h", letters=True)
    assert unit is not None
    assert (unit.size, unit.dimension) == (Fraction(5, 18), (("metre", 1), ("second", -1)))
