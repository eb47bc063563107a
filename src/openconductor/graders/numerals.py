r"""Plain numbers as answers write them, compared exactly and without any algebra system.

In: texts that ``math_text`` has normalised. Out: equal, not equal, or None where that is not for this module to say.

A plain number is an integer, decimal, fraction, mixed number, repeating decimal, number with a power of ten or in a
base, with thousands separators, a percent sign, a currency or a unit if it likes: ``1,234``, ``-3/4``, ``1\frac45``,
``0.\overline{3}``, ``6.02\times10^{23}``, ``52_8``, ``28\%``, ``\$5``, ``10\text{ cm}``. All are quotients of integers,
so equality is exact at every size; the integers of AIME never leave this module.

Forgiven are a missing base, a missing unit, a percent sign on one side only, and a comma for the decimal point where it
makes the numbers equal. Not forgiven are another base, a unit of another kind (of one kind, values are converted), and
rounding: that takes a tolerance, but for a decimal of ten or more significant digits, which may stand for the number
that it begins (``0.3333333333`` for 1/3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from openconductor.graders.units import Unit, read_unit

LONGEST = 400
LARGEST_EXPONENT = 1000
ENOUGH_DIGITS = 10
"""From how many significant digits on a decimal may stand for a number that it only begins."""

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+"
_ARGUMENT = rf"(?:\{{\s*(-?(?:{_NUMBER}))\s*\}}|(\d))\s*"
_FRACTION = re.compile(rf"(\d+)?\s*\\frac\s*{_ARGUMENT}{_ARGUMENT}")
_SLASH = re.compile(rf"(?:(\d+)\s+)?({_NUMBER})\s*/\s*({_NUMBER})")
_BASE = re.compile(r"(\d+)\s*_\s*\{?(\d+)\}?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}")
_POWER = re.compile(rf"(?:({_NUMBER})\s*(?:\\times|\\cdot)\s*)?10\s*\^\s*\{{?\s*([+-]?\d+)\s*\}}?")
_SCIENTIFIC = re.compile(rf"({_NUMBER})[eE]([+-]?\d+)(?![\w.])")
_COMMA = re.compile(r"(\d+),(\d+)(?![\d,.])")
_PLAIN = re.compile(rf"({_NUMBER})(?![\d,.])")
_SIGN = re.compile(r"([+-]?)\s*(\\?\$|€|£)?\s*")
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
        digits: how it is written in its base; "" where it is no plain run of digits.
        base: its base, where it names one.
        place: what its last digit counts (1/100 of 2.43); None where it is no decimal.
        significant: how many of its digits are significant; 0 where it is no decimal.
        unit: its unit, where it names one that is known.
        whole: whether it is written as an integer.
        comma: whether a comma was read as the decimal point (it may as well be a list of two).
    """

    value: Fraction
    percent: bool = False
    digits: str = ""
    base: int | None = None
    place: Fraction | None = None
    significant: int = 0
    unit: Unit | None = None
    whole: bool = False
    comma: bool = False


def read_numeral(text: str, *, letters: bool = False) -> Numeral | None:
    r"""Read a plain number; None where the text is something else.

    Args:
        text: a normalised text.
        letters: whether a single letter behind the number is a unit (``5 m``) rather than a variable.

    >>> read_numeral("1\\frac{4}{5}").value, read_numeral("28\\%").percent, read_numeral("5t")
    (Fraction(9, 5), True, None)
    """
    if len(text) > LONGEST or not any(map(str.isdigit, text)):
        return None
    text = text.strip()
    sign = _SIGN.match(text)
    assert sign is not None  # it matches nothing, too
    for pattern, read in _READERS:
        match = pattern.match(text, sign.end())
        if match is None:
            continue
        numeral = read(match)
        tail = text[match.end() :]
        if numeral is None or (numeral := _with_tail(numeral, tail, letters=letters)) is None:
            continue
        if sign[2]:
            money = read_unit({"€": "euro", "£": "GBP"}.get(sign[2], "dollar"))
            numeral = numeral if numeral.unit else replace(numeral, unit=money)
        return replace(numeral, value=-numeral.value) if sign[1] == "-" else numeral
    return None


def equal_numerals(gold: Numeral, answer: Numeral, *, tolerance: float | None = None) -> bool | None:
    """Whether two numbers are the same.

    Args:
        gold: the reference.
        answer: what was answered.
        tolerance: the largest error, relative to the gold; None is exact. Golds written as integers are always exact.

    Returns:
        None where one or both may be a list of two instead (``3,5``), so that somebody else has to say.
    """
    if gold.base is not None or answer.base is not None:
        return _equal_in_base(gold, answer)
    if gold.comma and answer.comma:
        return None
    sizes = Fraction(1), Fraction(1)
    if gold.unit is not None and answer.unit is not None:
        if {basic for basic, _ in gold.unit.dimension} != {basic for basic, _ in answer.unit.dimension}:
            return False
        if gold.unit.dimension == answer.unit.dimension:  # else 864 inches for 864 square inches, which is forgiven
            sizes = gold.unit.size, answer.unit.size
    largest_error = Fraction(0) if tolerance is None or gold.whole else Fraction(tolerance)
    for wanted, got in _readings(gold, answer):
        if _close(wanted * sizes[0], got * sizes[1], largest_error) or _begins(gold, wanted, answer, got, sizes):
            return True
    return None if gold.comma or answer.comma else False


def _readings(gold: Numeral, answer: Numeral) -> list[tuple[Fraction, Fraction]]:
    """The pairs of values of which one has to agree: several where only one side has a percent sign."""
    if gold.percent == answer.percent:
        return [(gold.value, answer.value)]
    if gold.percent:
        return [(gold.value, answer.value), (gold.value / 100, answer.value)]
    by_value = (gold.value, answer.value / 100)
    # "What percent ...?" 28, answered 28%. A share of 0.5 answered 0.5% is wrong.
    return [by_value, (gold.value, answer.value)] if abs(gold.value) > 1 else [by_value]


def _close(wanted: Fraction, got: Fraction, largest_error: Fraction) -> bool:
    return abs(wanted - got) <= largest_error * abs(wanted)


def _begins(gold: Numeral, wanted: Fraction, answer: Numeral, got: Fraction, sizes: tuple[Fraction, Fraction]) -> bool:
    """Whether one is a long decimal that begins the other, which is no decimal."""
    if (gold.place is None) == (answer.place is None) or sizes[0] != sizes[1]:
        return False
    decimal = answer if answer.place is not None else gold
    return decimal.significant >= ENOUGH_DIGITS and abs(wanted - got) < (decimal.place or 0)


def _equal_in_base(gold: Numeral, answer: Numeral) -> bool:
    """Numbers in a base are compared as they are written: "in base 8" is what was asked for."""
    same = gold.digits.lstrip("0") == answer.digits.lstrip("0") and gold.value >= 0 and answer.value >= 0
    bases = gold.base, answer.base
    return same and bool(gold.digits) and (bases[0] == bases[1] or bases[1] is None or bases == (None, 10))


def _decimal(text: str) -> Numeral:
    """A number with or without thousands separators and a decimal point."""
    plain = text.replace(",", "")
    whole, _, decimals = plain.partition(".")
    value = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    if not decimals:
        return Numeral(value, digits=whole, whole=True)
    return Numeral(value, place=Fraction(1, 10 ** len(decimals)), significant=len((whole + decimals).lstrip("0")))


def _value(text: str) -> Fraction:
    return -_decimal(text[1:]).value if text.startswith("-") else _decimal(text).value


def _read_quotient(whole: str | None, top: str, under: str) -> Numeral | None:
    over, below = _value(top), _value(under)
    if not below or (whole is not None and not 0 < over / below < 1):
        return None
    return Numeral(over / below + int(whole or "0"))


def _read_fraction(match: re.Match[str]) -> Numeral | None:
    return _read_quotient(match[1], match[2] or match[3], match[4] or match[5])


def _read_slash(match: re.Match[str]) -> Numeral | None:
    return _read_quotient(match[1], match[2], match[3])


def _read_base(match: re.Match[str]) -> Numeral | None:
    return Numeral(Fraction(int(match[1])), digits=match[1], base=int(match[2])) if 1 < int(match[2]) <= 36 else None


def _read_repeating(match: re.Match[str]) -> Numeral | None:
    whole, decimals, repeat = match[1] or "0", match[2], match[3]
    once = Fraction(int(whole + decimals), 10 ** len(decimals))
    return Numeral(once + Fraction(int(repeat), (10 ** len(repeat) - 1) * 10 ** len(decimals)))


def _read_power(match: re.Match[str]) -> Numeral | None:
    if len(match[2]) > 5 or abs(int(match[2])) > LARGEST_EXPONENT:
        return None
    head, scale = _decimal(match[1] or "1"), Fraction(10) ** int(match[2])
    place = None if head.place is None else head.place * scale
    return Numeral(head.value * scale, place=place, significant=head.significant)


def _read_comma(match: re.Match[str]) -> Numeral | None:
    thousands = len(match[2]) == 3 and len(match[1]) <= 3 and match[1] != "0"
    return None if thousands else replace(_decimal(f"{match[1]}.{match[2]}"), comma=True)


def _read_plain(match: re.Match[str]) -> Numeral | None:
    return _decimal(match[1])


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Numeral | None]], ...] = (
    (_FRACTION, _read_fraction),
    (_SLASH, _read_slash),
    (_BASE, _read_base),
    (_REPEATING, _read_repeating),
    (_POWER, _read_power),
    (_SCIENTIFIC, _read_power),
    (_COMMA, _read_comma),
    (_PLAIN, _read_plain),
)


def _with_tail(numeral: Numeral, tail: str, *, letters: bool) -> Numeral | None:
    """The number with what stands behind it: nothing, a percent sign, a unit, or what was counted."""
    if not tail.strip():
        return numeral
    if _PERCENT.match(tail.strip()):
        return replace(numeral, percent=True)
    unit = read_unit(tail, letters=letters)
    if unit is not None:
        return replace(numeral, unit=unit)
    return numeral if _COUNTED.fullmatch(tail.rstrip(" .")) else None
