"""Units behind a number."""

from __future__ import annotations

from fractions import Fraction

import pytest

from openconductor.graders.units import read_unit


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cm", "centimeters"),
        ("\\text{ cm}^2", "square centimetres"),
        ("km/h", "kilometers per hour"),
        ("mph", "miles/hour"),
        ("m/s^2", "\\text{ m/s}^2"),
        ("^\\circ", "degrees"),
        ("kg m/s", "kg*m/s"),
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
    assert read_unit(letter, letters=True) is not None
    assert read_unit(f"\\text{{ {letter}}}") is not None


def test_sizes_are_exact() -> None:
    unit = read_unit("km/h", letters=True)
    assert unit is not None
    assert unit.size == Fraction(5, 18)
    assert unit.dimension == (("metre", 1), ("second", -1))
