r"""Plain numbers as answers write them, compared exactly and without any algebra system.

In: texts that ``math_text`` has normalised. Out: numbers, and whether two of them are equal.

A plain number is an integer, decimal, fraction, mixed number, repeating decimal, number with a
power of ten or in a base, with thousands separators, a percent sign, a currency or a unit if it
likes: ``1,234``, ``-3/4``, ``1\frac45``, ``0.\overline{3}``, ``6.02\times10^{23}``, ``52_8``,
``28\%``, ``\$5``, ``10\text{ cm}``. All are quotients of integers, so equality is exact at every
size; the integers of AIME never leave this module.

Forgiven are a missing base, a missing unit and a percent sign on one side only. Not forgiven are
another base, a unit of another kind (of one kind, values are converted; ``cm^2`` and ``cm^3`` are
two kinds), and rounding: that takes a tolerance, but for a decimal of ten or more significant
digits, which may stand for the number that it begins (``0.3333333333`` for 1/3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from openconductor.graders.units import Unit, ratio, read_unit

LONGEST = 400
LARGEST_EXPONENT = 1000
ENOUGH_DIGITS = 10
"""From how many significant digits on a decimal may stand for a number that it only begins."""

_NUMBER = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+"
_ARGUMENT = r"(?:\{{\s*(?P<{0}>-?(?:{1}))\s*\}}|(?P<{0}1>\d))\s*"
# Which kind a number is shows in the names of the groups that matched.
_KINDS = (
    rf"(?P<whole>\d+)?\s*\\frac\s*{_ARGUMENT.format('top', _NUMBER)}{_ARGUMENT.format('under', _NUMBER)}",
    rf"(?:(?P<whole>\d+)\s+)?(?P<top>{_NUMBER})\s*/\s*(?P<under>{_NUMBER})",
    r"(?P<digits>\d+)\s*_\s*\{?(?P<base>\d+)\}?",
    r"(?P<before>\d*\.\d*)\\overline\{(?P<repeated>\d+)\}",
    rf"(?:(?P<number>{_NUMBER})\s*(?:\\times|\\cdot)\s*)?10\s*\^\s*\{{?\s*(?P<exponent>[+-]?\d+)\s*\}}?",
    rf"(?P<number>{_NUMBER})[eE](?P<exponent>[+-]?\d+)(?![\w.])",
    rf"(?P<number>{_NUMBER})(?![\d,.])",
)
_PATTERNS = tuple(map(re.compile, _KINDS))
# Not thousands, and more than zeros: "3,0" is a list.
_DECIMAL_COMMA = re.compile(
    r"(?P<comma>(?!\d+,0+(?!\d)|[1-9]\d{0,2},\d{3}(?!\d))\d+,\d+)(?![\d,.])"
)
_SIGN = re.compile(r"([+-]?)\s*(\\?\$|€|£)?\s*")
_CURRENCIES = {"€": "euro", "£": "GBP"}
_PERCENT = re.compile(r"(?:\\?%|\\text\{\s*percent\s*\}|percent|pct)(?:age)?\s*$")
# Words that name what was counted ("5 apples"); an operation or a list is none of these.
_COUNTED = re.compile(
    r"(?:\s*\\text\{[^{}]*\}|(?:\s+(?!(?:and|or|to|times|plus|minus|over|of)\b)[A-Za-z]{2,}){1,3})\s*(?:\^\{?\d\}?)?"
)


@dataclass(frozen=True, slots=True)
class Numeral:
    """A plain number.

    Attributes:
        value: the number before its percent sign and its unit.
        percent: whether a percent sign is behind it.
        whole: whether it is written as an integer: no point, fraction or power of ten.
        base: its base, where it names one.
        place: what its last digit counts (1/100 of 2.43); None where it is no decimal.
        significant: how many of its digits are significant; 0 where it is no decimal.
        unit: its unit, where it names one that is known.
    """

    value: Fraction
    percent: bool = False
    whole: bool = False
    base: int | None = None
    place: Fraction | None = None
    significant: int = 0
    unit: Unit | None = None


def read_numeral(text: str, *, letters: bool = False, comma: bool = False) -> Numeral | None:
    r"""Read a plain number; None where the text is something else.

    Args:
        text: a normalised text.
        letters: whether a single letter behind the number is a unit (``5 m``) rather than a
            variable.
        comma: whether a comma may be the decimal point (``2,75``), as in an answer; in a reference
            it parts a list.

    >>> read_numeral("1\\frac{4}{5}").value, read_numeral("28\\%").percent, read_numeral("5t"), read_numeral("2,75")
    (Fraction(9, 5), True, None, None)
    """
    text = text.strip()
    if len(text) > LONGEST or not any(map(str.isdigit, text)):
        return None
    sign = _SIGN.match(text)
    assert sign is not None  # it matches nothing, too
    for pattern in (_DECIMAL_COMMA, *_PATTERNS) if comma else _PATTERNS:
        if (match := pattern.match(text, sign.end())) is None or (
            numeral := _read(match.groupdict())
        ) is None:
            continue
        if (numeral := _with_tail(numeral, text[match.end() :], letters=letters)) is None:
            continue
        if sign[2] and not numeral.unit:
            numeral = replace(numeral, unit=read_unit(_CURRENCIES.get(sign[2], "dollar")))
        return replace(numeral, value=-numeral.value) if sign[1] == "-" else numeral
    return None


def equal_numerals(gold: Numeral, answer: Numeral, *, tolerance: float | None = None) -> bool:
    """Whether two numbers are the same.

    Args:
        gold: the reference.
        answer: what was answered.
        tolerance: the largest error, relative to the gold; None is exact. Golds written as integers
            are always exact.
    """
    if (
        gold.base is not None or answer.base is not None
    ):  # compared as written: "in base 8" is what was asked for
        same = gold.whole and answer.whole and gold.value == answer.value >= 0
        return same and (answer.base in {gold.base, None} or (gold.base, answer.base) == (None, 10))
    size = ratio(gold.unit, answer.unit)
    if size is None:
        return False
    largest_error = Fraction(0) if tolerance is None or gold.whole else Fraction(tolerance)
    long = gold if answer.place is None else answer
    begins = (
        (gold.place is None) != (answer.place is None)
        and size == 1
        and long.significant >= ENOUGH_DIGITS
    )
    return any(
        abs(wanted - got * size) <= largest_error * abs(wanted)
        or (begins and abs(wanted - got) < (long.place or 0))
        for wanted, got in _readings(gold, answer)
    )


def _readings(gold: Numeral, answer: Numeral) -> list[tuple[Fraction, Fraction]]:
    """The pairs of values of which one has to agree: several where only one side has a percent sign."""
    if gold.percent == answer.percent:
        return [(gold.value, answer.value)]
    if gold.percent:
        return [(gold.value, answer.value), (gold.value / 100, answer.value)]
    by_value = (gold.value, answer.value / 100)
    # "What percent ...?" 28, answered 28%. A share of 0.5 answered 0.5% is wrong.
    return [by_value, (gold.value, answer.value)] if abs(gold.value) > 1 else [by_value]


def _decimal(text: str) -> Numeral:
    """A number with or without a minus sign, thousands separators and a decimal point."""
    digits, _, decimals = text.replace(",", "").partition(".")
    value = Fraction(f"{digits or 0}.{decimals or 0}")
    if not decimals:
        return Numeral(value, whole=True)
    return Numeral(
        value,
        place=Fraction(1, 10 ** len(decimals)),
        significant=len((digits + decimals).lstrip("0")),
    )


def _read(parts: dict[str, str | None]) -> Numeral | None:
    """The number that the named parts of a match make; None where they make none."""
    if "top" in parts:
        top, under = (
            _decimal(parts[side] or parts.get(f"{side}1") or "").value for side in ("top", "under")
        )
        if not under or (parts["whole"] and not 0 < top / under < 1):
            return None
        return Numeral(top / under + int(parts["whole"] or 0))
    if base := parts.get("base"):
        return (
            Numeral(Fraction(parts["digits"] or 0), whole=True, base=int(base))
            if 1 < int(base) <= 36
            else None
        )
    if repeated := parts.get("repeated"):
        before = _decimal(parts["before"] or "")
        return Numeral(
            before.value + (before.place or 1) * Fraction(int(repeated), 10 ** len(repeated) - 1)
        )
    if with_comma := parts.get("comma"):
        return _decimal(with_comma.replace(",", "."))
    numeral, exponent = _decimal(parts["number"] or "1"), parts.get("exponent")
    if exponent is None:
        return numeral
    if len(exponent) > 5 or abs(int(exponent)) > LARGEST_EXPONENT:
        return None
    scale = Fraction(10) ** int(exponent)
    place = None if numeral.place is None else numeral.place * scale
    return Numeral(numeral.value * scale, place=place, significant=numeral.significant)


def _with_tail(numeral: Numeral, tail: str, *, letters: bool) -> Numeral | None:
    """The number with what stands behind it: nothing, a percent sign, a unit, or what was counted."""
    if not tail.strip():
        return numeral
    if _PERCENT.match(tail.strip()):
        return replace(numeral, percent=True)
    if (unit := read_unit(tail, letters=letters)) is not None:
        return replace(numeral, unit=unit)
    return numeral if _COUNTED.fullmatch(tail.rstrip(" .")) else None
