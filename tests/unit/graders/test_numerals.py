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


NUMBERS = "7=7|+7|007|7.0|7%;-7=-7|− 7;1234567=1,234,567;1234=1{,}234|1 234|So 1234;11111=11,\\! 111;1/2=.5|1/2|0.5;"
NUMBERS += "5=5.|$5|5 apples;-5=\\$-5;3/4=3/4|\\dfrac34|\\frac 34;-3/4=-\\frac{3}{4}|\\frac{-3}{4};270/7=\\frac{270}7;"
NUMBERS += "5/2=2\\frac{1}{2}|2 1/2;-5/2=-2\\frac12;1/3=0.\\overline{3};1/6=0.1\\overline{6};1500=1.5\\times10^{3};"
NUMBERS += "3/2000=1.5 × 10^-3;1/500=2e-3"
NONE = "5t|5 minus 3|5 or 6|1/0|\\frac{1}{0}|1,2,3|3,5|-3,0|0,111|1.2.3|2\\frac{5}{2}|10^{1001}|1e99999999|x|"


def test_a_number_is_read_as_it_is_written() -> None:
    for number, _, texts in (row.partition("=") for row in NUMBERS.split(";")):
        assert {text: value(text) for text in texts.split("|")} == dict.fromkeys(texts.split("|"), Fraction(number))
    assert [text for text in (*NONE.split("|"), "9" * 401) if value(text) is not None] == []


@given(st.integers(), st.integers(1, 10**9))
def test_a_fraction_equals_itself_and_nothing_else(top: int, under: int) -> None:
    texts = f"\\frac{{{top}}}{{{under}}}", f"{top}/{under}", f"{top + 1}/{under}"
    gold, same, other = filter(None, map(read_numeral, texts))
    assert equal_numerals(gold, same) and not equal_numerals(gold, other)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_exact(number: object) -> None:
    assert value(str(number)) == Fraction(str(number))


PAIRS = {  # a reference, an answer to it that may use a decimal comma, and whether they are the same
    True: "5 \\text{ m}|500 \\text{ cm}; 60 \\text{ mph}|60 \\text{ miles per hour}; 90 km/h|25 \\text{ m/s};"
    "90 \\text{ km/h}|90 \\frac{\\text{km}}{\\text{h}}; 864 \\text{ cm}^2|864 \\text{ square centimeters};"
    "864 \\text{ cm}^2|864; 2 hours|120 minutes; 2 hours|2 apples; 3.5|3,5; 0.111|0,111; 1234|1,234",
    False: "5 \\text{ m}|5 \\text{ cm}; 90 \\text{ km/h}|90 \\text{ h/km}; 864 \\text{ inches}^2|864 \\text{ inches};"
    "864 \\text{ cm}^2|864 \\text{ cm}^3",
    None: "3|3,0",
}


@pytest.mark.parametrize(("pair", "same"), [(pair, same) for same in PAIRS for pair in PAIRS[same].split(";")])
def test_units_are_converted_and_a_comma_may_be_a_decimal_point_in_an_answer(pair: str, same: bool | None) -> None:
    gold, _, answer = pair.partition("|")
    wanted, got = read_numeral(normalise(gold)), read_numeral(normalise(answer), comma=True)
    assert wanted is not None
    assert (None if got is None else equal_numerals(wanted, got)) is same


NAMES = "cm|centimeters; \\text{ cm}^2|square centimetres; km/h|kilometers per hour; mph|miles/hour; ^\\circ|degrees;"
NAMES += "m/s^2|\\text{ m/s}^2; m/s^2|\\mathrm{m s^{-2}}; kg m/s|kg\\cdot m/s; sq ft|feet^2; m|\\text{ m}"


@pytest.mark.parametrize("names", NAMES.split(";"))
def test_one_unit_has_several_names(names: str) -> None:
    one, _, other = names.partition("|")
    assert read_unit(one, letters=True) == read_unit(other, letters=True) is not None


def test_what_is_not_in_the_list_is_no_unit_nor_is_a_single_letter_that_may_be_a_variable() -> None:
    unknown = ("", "apples", "x", "cm apples", "/s", "m/s/s", "t")
    assert [text for text in unknown if read_unit(text, letters=True)] == []
    assert [letter for letter in "msgA" if read_unit(letter)] == []


def test_sizes_are_exact() -> None:
    unit = read_unit("km/h", letters=True)
    assert unit is not None
    assert (unit.size, unit.dimension) == (Fraction(5, 18), (("metre", 1), ("second", -1)))
