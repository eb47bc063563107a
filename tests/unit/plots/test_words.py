"""Names and numbers as figures write them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openconductor.plots.looks import BLACK, Look, ink_on, look, shade
from openconductor.plots.words import drawable, labels, listed, percentage, printable, shortened, signed, spanned


def test_long_names_keep_both_ends_and_stay_different() -> None:
    names = [f"{'x' * 30}-{middle}-{'y' * 30}" for middle in ("one", "two", "three")]
    found = labels(names)
    assert len(set(found.values())) == 3
    assert all(len(label) <= 22 for label in found.values())
    assert found[names[0]].startswith("xxx")
    assert found[names[0]].endswith("yyy")
    assert found[names[2]].endswith(" (3)")


def test_names_that_differ_in_their_middle_can_be_told_apart() -> None:
    modes = ["smoothie?mode=dependent", "smoothie?mode=independent"]
    assert list(labels(modes, longest=20).values()) == ["smoothie?m…dependent", "…ie?mode=independent"]


def test_control_characters_of_a_name_do_not_reach_a_figure() -> None:
    assert printable("a\x1b[31m\nb\u202e") == "a [31m b"
    assert printable("\n\t") == "(no name)"


def test_letters_that_the_font_lacks_are_written_as_code_points() -> None:
    assert drawable("ä→ 通") == "ä→ \\u901a"
    assert labels(["通" * 20])["通" * 20] == "\\u901a\\u901…901a\\u901a"


@pytest.mark.parametrize(
    ("number", "decimals", "text"), [(12.34, 1, "12.3"), (-12.34, 1, "−12.3"), (-0.01, 1, "0.0"), (1234, 0, "1,234")]
)
def test_a_number_has_a_true_minus_and_zero_has_none(number: float, decimals: int, text: str) -> None:
    assert signed(number, decimals) == text


def test_counts_shares_and_lists_are_written_as_people_do() -> None:
    assert percentage(0.5) == "50.0 %"
    assert spanned([7, 7, 7]) == "7"
    assert spanned([1200, 7]) == "7 to 1,200"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert shortened("abcdefgh", 5) == "ab…gh"


def test_seventy_series_look_different_and_neighbours_differ_in_colour_and_marker() -> None:
    looks = [look(place) for place in range(70)]
    assert len({(one.colour, one.marker) for one in looks}) == 70
    for one, other in pairwise(looks):
        assert one.colour != other.colour
        assert one.marker != other.marker


def test_every_colour_of_a_series_is_of_okabe_and_ito_or_a_grey() -> None:
    okabe_ito = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
    greys = {f"#{level:02X}{level:02X}{level:02X}" for level in range(256)}
    assert {look(place).colour for place in range(70)} <= okabe_ito | greys


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_darker_shade_is_more_in_grey_as_well() -> None:
    greys = [luminance(shade(step / 20)) for step in range(21)]
    assert greys == sorted(greys, reverse=True)
    assert shade(-1) == shade(0)
    assert shade(2) == shade(1)


def test_ink_can_be_read_on_what_lies_below() -> None:
    assert ink_on("#FFFFFF") == BLACK
    assert ink_on("#00263D") == "#FFFFFF"
    assert Look(BLACK, "o").unfilled.hollow
