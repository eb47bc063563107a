r"""Plain numbers of answers, compared exactly and without any algebra system.

``read_numeral`` reads texts that ``math_text`` has normalised; ``equal_numerals`` compares.

A plain number is an integer, decimal, fraction, mixed number, repeating decimal, number with a
power of ten or in a base. It may have thousands separators, a percent sign, a currency or a unit:
``1,234``, ``-3/4``, ``1\frac45``, ``0.\overline{3}``, ``6.02\times10^{23}``, ``52_8``, ``28\%``,
``\$5``, ``10\text{ cm}``. All are quotients of integers, so equality is exact at every size; the
integers of AIME never leave this module.

Forgiven are a missing base, a missing unit and a percent sign on one side only. Not forgiven are
another base, a unit of another kind (of one kind, values are converted; ``cm^2`` and ``cm^3`` are
two kinds), and rounding, which takes a tolerance. One exception: a decimal of ten or more
significant digits may stand for the number that it begins (``0.3333333333`` for 1/3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from openconductor.graders.units import Unit, ratio, read_unit

LONGEST = 400
LARGEST_EXPONENT = 1000
ENOUGH_DIGITS = 10
"""Significant digits of a decimal that may stand for the number that it begins."""

_NUMBER = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+"
_ARGUMENT = r"\s*\{{\s*(?P<{}>-?(?:{}))\s*\}}"
_FACTOR = rf"(?:(?P<number>{_NUMBER})\s*(?:\\times|\\cdot)\s*)?"
# The names of the groups that matched tell the kind of a number.
_KINDS = (
    rf"(?P<whole>\d+)?\s*\\frac{_ARGUMENT.format('top', _NUMBER)}"
    + _ARGUMENT.format("under", _NUMBER),
    rf"(?:(?P<whole>\d+)\s+)?(?P<top>{_NUMBER})\s*/\s*(?P<under>{_NUMBER})",
    r"(?P<before>\d*\.\d*)\\overline\{(?P<repeated>\d+)\}",
    rf"{_FACTOR}10\s*\^\s*\{{?\s*(?P<exponent>[+-]?\d+)\s*\}}?",
    rf"(?P<number>{_NUMBER})[eE](?P<exponent>[+-]?\d+)(?![\w.])",
    rf"(?P<number>{_NUMBER})(?![\d,.])",
)
_PATTERNS = tuple(map(re.compile, _KINDS))
# Not thousands, and more than zeros: "3,0" is a list.
_DECIMAL_COMMA = re.compile(
    r"(?P<comma>(?!\d+,0+(?!\d)|[1-9]\d{0,2},\d{3}(?!\d))\d+,\d+)(?![\d,.])"
)
_SIGN = re.compile(r"([+-]?)\s*(?:(?:USD?)?\s*(\\?\$|€|£)\s*([+-]?)\s*|USD\s+)?")
_CONTINENTAL = re.compile(r"(?P<comma>\d{1,3}(?:[. ]\d{3})+,\d+)(?![\d,.])")
_BASE_WORDS = """two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen"""
_BASES = {
    "b": 2,
    "o": 8,
    "x": 16,
    **{str(base): base for base in range(2, 37)},
    **{word: base for base, word in enumerate(_BASE_WORDS.split(), start=2)},
}
_BASE = r"\s*(?:_\s*|\(?\s*(?:in\s+)?base\s*-?\s*)[({\s]*(?P<base>\d{1,2}|[a-z]{2,8})\s*[)}]*"
_IN_BASE = re.compile(rf"(?P<sign>-?)[({{\s]*(?P<digits>[A-F]*\d[\dA-Fa-f]*)[)}}\s]*{_BASE}")
_PROGRAMMED = re.compile(r"(?P<sign>-?)0(?P<base>[box])(?P<digits>[\dA-Fa-f]+)")
_SCALES = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip
_SCALE = re.compile(rf"\s*({'|'.join(_SCALES)})\b")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_QUANTITY = r"(\d+(?:\.\d+)?)\s*([A-Za-z]+\b|'|\")[\s,]*"
_QUANTITIES = re.compile(_QUANTITY)
_COMPOUND = re.compile(f"(?:{_QUANTITY}){{2,3}}")
_CURRENCIES = {"€": "euro", "£": "GBP"}
_PERCENT = re.compile(r"(?:\\?%|\\text\{\s*percent\s*\}|percent|pct)(?:age)?\s*$")
# Words that name what was counted ("5 apples"); an operation or a list is none of these.
_COUNTED = re.compile(
    r"(?:\s*\\text\{[^{}]*\}|(?:\s+(?!(?:and|or|to|times|plus|minus|over|of)\b)[A-Za-z]{2,}){1,3})"
    r"\s*(?:\^\{?\d\}?)?"
)


@dataclass(frozen=True, slots=True)
class Numeral:
    """A plain number.

    Attributes:
        value: the number before its percent sign and its unit.
        percent: True if a percent sign is behind it.
        whole: True if it is written as an integer: no point, fraction or power of ten.
        base: None: it names none.
        place: the value of its last digit (1/100 for 2.43); None: it is no decimal.
        significant: its number of significant digits; 0: it is no decimal.
        unit: None: it names none that is known.
    """

    value: Fraction
    percent: bool = False
    whole: bool = False
    base: int | None = None
    place: Fraction | None = None
    significant: int = 0
    unit: Unit | None = None


def read_numeral(text: str, *, letters: bool = False, comma: bool = False) -> Numeral | None:
    r"""Read a plain number; None if the text is something else.

    Args:
        text: a normalised text.
        letters: True reads a single letter behind the number as a unit (``5 m``), not a variable.
        comma: True reads a comma as a decimal point (``2,75``), as in an answer; in a reference it
            parts a list.

    >>> read_numeral("1\\frac{4}{5}").value, read_numeral("28\\%").percent
    (Fraction(9, 5), True)
    >>> read_numeral("5t"), read_numeral("2,75")
    (None, None)
    """
    text = text.strip()
    if len(text) > LONGEST or not any(map(str.isdigit, text)):
        return None
    if "_" in text or "base" in text or text[:2] in ("0b", "0o", "0x"):
        return _read_in_base(text)
    plain = _TEXT.sub(r"\1 ", text).strip()
    if _COMPOUND.fullmatch(plain) is not None:
        return _read_compound(plain)
    sign = _SIGN.match(text)
    assert sign is not None  # the pattern matches an empty text, too
    patterns = _PATTERNS
    if comma:
        patterns = (_DECIMAL_COMMA, _CONTINENTAL, *_PATTERNS)
    for pattern in patterns:
        match = pattern.match(text, sign.end())
        if match is None:
            continue
        numeral = _read_parts(match.groupdict())
        if numeral is None:
            continue
        numeral = _with_tail(numeral, text[match.end() :], letters=letters)
        if numeral is None:
            continue
        if sign[2] and not numeral.unit:
            numeral = replace(numeral, unit=read_unit(_CURRENCIES.get(sign[2], "dollar")))
        if (sign[1] or sign[3]) == "-":
            return replace(numeral, value=-numeral.value)
        return numeral
    return None


def equal_numerals(gold: Numeral, answer: Numeral, *, tolerance: float | None = None) -> bool:
    """Return True if two numbers are the same.

    Args:
        gold: the reference.
        answer: the number that was answered.
        tolerance: the largest error, relative to the gold; None: exact. Golds written as integers
            are always exact.
    """
    if gold.base is not None or answer.base is not None:
        # Digits are compared as they are written: "in base 8" is what was asked for.
        return answer.base in {None, gold.base or 10} and gold.value == answer.value
    size = ratio(gold.unit, answer.unit)
    if size is None:
        return False
    if size == 1 and (_begins(gold, answer) or _begins(answer, gold)):
        return True
    error = Fraction(0)
    if tolerance is not None and not gold.whole:
        error = Fraction(tolerance)
    for wanted, value in _readings(gold, answer):
        if abs(wanted - value * size) <= error * abs(wanted):
            return True
    return False


def _begins(decimal: Numeral, number: Numeral) -> bool:
    """Return True if a long decimal begins a number that has no end as a decimal."""
    if decimal.place is None or decimal.significant < ENOUGH_DIGITS:
        return False
    endless = pow(10, LONGEST, number.value.denominator) != 0
    return endless and abs(decimal.value - number.value) < decimal.place


def _readings(gold: Numeral, answer: Numeral) -> list[tuple[Fraction, Fraction]]:
    """Return pairs of values, of which one must agree.

    There are several if only one side has a percent sign.
    """
    as_written = (gold.value, answer.value)
    if gold.percent == answer.percent:
        return [as_written]
    if gold.percent:
        return [as_written, (gold.value / 100, answer.value)]
    by_value = (gold.value, answer.value / 100)
    # "What percent ...?" 28, answered 28%. A share of 0.5 answered 0.5% is wrong.
    return [by_value, as_written] if abs(gold.value) > 1 else [by_value]


def _read_in_base(text: str) -> Numeral | None:
    """Read a number that names its base; in bases above ten its digits are read in base 36."""
    plain = _TEXT.sub(r"\1", text).strip()
    match = _IN_BASE.fullmatch(plain) or _PROGRAMMED.fullmatch(plain)
    if match is None:
        return None
    base = _BASES.get(match["base"])
    if base is None:
        return None
    value = int(match["digits"], 10 if match["digits"].isdigit() else 36)
    return Numeral(Fraction(-value if match["sign"] else value), whole=True, base=base)


def _read_compound(text: str) -> Numeral | None:
    """Read quantities of one kind as their sum (``1 hour 30 minutes``)."""
    total = None
    for number, name in _QUANTITIES.findall(text):
        word = str(name).replace("'", "feet").replace('"', "inches")
        unit = read_unit(word, letters=True)
        if total is None:
            total = Numeral(Fraction(0), unit=unit)
        size = ratio(total.unit, unit)
        if unit is None or size is None:
            return None
        total = replace(total, value=total.value + Fraction(number) * size)
    return total


def _read_decimal(text: str) -> Numeral:
    """Read a number with or without a minus sign, thousands separators and a decimal point."""
    digits, _, decimals = text.replace(",", "").partition(".")
    value = Fraction(f"{digits or 0}.{decimals or 0}")
    if not decimals:
        return Numeral(value, whole=True)
    significant = len((digits + decimals).lstrip("0"))
    return Numeral(value, place=Fraction(1, 10 ** len(decimals)), significant=significant)


def _read_parts(parts: dict[str, str | None]) -> Numeral | None:
    """Return the number that the named parts of a match make; None if they make none."""
    if "top" in parts:
        return _read_fraction(parts)
    repeated = parts.get("repeated")
    if repeated:
        before = _read_decimal(parts["before"] or "")
        period = Fraction(int(repeated), 10 ** len(repeated) - 1)
        return Numeral(before.value + (before.place or 1) * period)
    comma = parts.get("comma")
    if comma:
        return _read_decimal(re.sub("[. ]", "", comma).replace(",", "."))
    numeral = _read_decimal(parts["number"] or "1")
    exponent = parts.get("exponent")
    if exponent is None:
        return numeral
    if len(exponent) > 5 or abs(int(exponent)) > LARGEST_EXPONENT:
        return None
    scale = Fraction(10) ** int(exponent)
    place = None if numeral.place is None else numeral.place * scale
    return Numeral(numeral.value * scale, place=place, significant=numeral.significant)


def _read_fraction(parts: dict[str, str | None]) -> Numeral | None:
    """Read a fraction or a mixed number; the part of a mixed number must be below 1."""
    top = _read_decimal(parts["top"] or "").value
    under = _read_decimal(parts["under"] or "").value
    if not under:
        return None
    whole = parts["whole"]
    if not whole:
        return Numeral(top / under)
    if not 0 < top / under < 1:
        return None
    return Numeral(int(whole) + top / under)


def _with_tail(numeral: Numeral, tail: str, *, letters: bool) -> Numeral | None:
    """Add the text behind a number: a percent sign, a unit, or the name of what was counted.

    None: the text is something else.
    """
    if not tail.strip():
        return numeral
    if _PERCENT.match(tail.strip()):
        return replace(numeral, percent=True)
    words = _TEXT.sub(r" \1", tail)
    scale = _SCALE.match(words)
    if scale is not None:
        scaled = Numeral(numeral.value * _SCALES[scale[1]])
        return _with_tail(scaled, words[scale.end() :], letters=letters)
    unit = read_unit(tail, letters=letters)
    if unit is not None:
        return replace(numeral, unit=unit)
    return numeral if _COUNTED.fullmatch(tail.rstrip(" .")) else None
