# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Names and numbers as figures write them: short, printable, never two alike.

In: texts and numbers of any kind. Out: labels. Needs matplotlib only to know which letters its font has.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from openconductor.plots.extra import require_extra

FONT = "DejaVu Sans"
"""Comes with matplotlib, so figures look the same on every machine."""
LONGEST = 22
"""The most characters of a name in a figure."""


def labels(names: Sequence[str], *, longest: int = LONGEST) -> dict[str, str]:
    """A printable label for each name: at most ``longest`` characters, and never two alike.

    Names of models share their beginnings and differ at their ends, so the middle is what is left out.

    >>> labels(["short", "a-very-long-model-name-2026-11-21-instruct"])["a-very-long-model-name-2026-11-21-instruct"]
    'a-very-long…1-instruct'
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        whole = drawable(printable(name))
        label = shortened(whole, longest)
        if label in taken and sum(one.endswith(whole[1 - longest :]) for one in names) == 1:
            label = f"…{whole[1 - longest :]}"
        number = 2
        while label in taken:
            ending = f" ({number})"
            label = shortened(whole, longest - len(ending)) + ending
            number += 1
        taken.add(label)
        found[name] = label
    return found


def percentage(share: float, decimals: int = 1) -> str:
    """A fraction as people write it, with a true minus sign.

    >>> percentage(0.804), percentage(-0.13, 0)
    ('80.4 %', '−13 %')
    """
    return f"{signed(100 * share, decimals)} %"


def signed(number: float, decimals: int = 1) -> str:
    """A number with a true minus sign, and none before a zero."""
    text = f"{number:,.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")


def spanned(numbers: Iterable[int]) -> str:
    """The smallest and the largest of some counts; one of them where they are the same.

    >>> spanned([100, 100]), spanned([1000, 30])
    ('100', '30 to 1,000')
    """
    kept = sorted(numbers)
    return f"{kept[0]:,}" if kept[0] == kept[-1] else f"{kept[0]:,} to {kept[-1]:,}"


def printable(text: str) -> str:
    """The text on one line, without control and format characters; "(no name)" where nothing is left."""
    kept = (character if unicodedata.category(character)[0] != "C" else " " for character in text)
    return " ".join("".join(kept).split()) or "(no name)"


def shortened(text: str, longest: int) -> str:
    """The text with its middle left out where it is longer than ``longest`` characters."""
    if len(text) <= longest:
        return text
    ending = (longest - 1) // 2
    return f"{text[: longest - 1 - ending]}…{text[-ending:]}"


def listed(names: Iterable[str], *, most: int = 4) -> str:
    """Names as part of a sentence; of many only the first few, and how many more there are.

    >>> listed(["a", "b"]), listed("abcdef")
    ('a and b', 'a, b, c, d and 2 more')
    """
    shown = list(names)
    if len(shown) > most:
        return f"{', '.join(shown[:most])} and {len(shown) - most} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def drawable(text: str) -> str:
    r"""The text with what the font lacks written as its code point (``\u4e2d``) instead of as an empty box."""
    glyphs = _glyphs()
    return "".join(
        one if one == "\n" or ord(one) in glyphs else one.encode("ascii", "backslashreplace").decode() for one in text
    )


_KNOWN: list[frozenset[int]] = []


def _glyphs() -> frozenset[int]:
    """The code points that the font can draw."""
    if not _KNOWN:
        require_extra()
        from matplotlib import font_manager

        _KNOWN.append(frozenset(font_manager.get_font(font_manager.findfont(FONT)).get_charmap()))
    return _KNOWN[0]
