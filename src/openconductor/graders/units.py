r"""Units behind a number: reads their names, and converts between units of one kind.

``read_unit`` takes the text behind a number ("cm", "\text{ square inches}", "m/s^2"). It knows a
closed list, because answers carry few units. A library of units (pint) would be one more dependency
of the core's graders, reads every letter as a unit (``5t`` is 5 times t, not 5 tonnes), and knows
neither "people" nor "apples". Callers treat an unknown unit as a name of what was counted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

Dimension = tuple[tuple[str, int], ...]
LONGEST = 200
"""Characters of the longest text that is read as a unit."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its dimension, as powers of basic units in order of name, and its size in them."""

    dimension: Dimension
    size: Fraction


def ratio(unit: Unit | None, other: Unit | None) -> Fraction | None:
    """Return the size of ``other`` in ``unit``; 1: either is unknown, None: their kinds differ."""
    if unit is None or other is None:
        return Fraction(1)
    for nameless, named in ((unit, other), (other, unit)):
        if dict(nameless.dimension).keys() == {"unit"}:  # "12 square units"
            same_power = nameless.dimension[0][1] == sum(power for _, power in named.dimension)
            return Fraction(1) if same_power else None
    if unit.dimension != other.dimension:
        return None
    return other.size / unit.size


# "basic unit: names = size, …". Sizes are exact. Units without an exact size (months, currencies)
# are basic. Sources: the SI Brochure (9th edition) and, for customary units, NIST SP 811.
_TABLE = """
metre: m metre meter = 1, micron = 1/1000000, in inch inches = 254/10000,
 ft foot feet = 3048/10000, yd yard = 9144/10000, mi mile = 1609344/1000
gram: g gram gm = 1, kilo = 1000, lb lbs pound = 45359237/100000, oz ounce = 45359237/1600000,
 tonne = 1000000
second: s sec second = 1, min minute = 60, h hr hour = 3600, day = 86400, week = 604800
month: month = 1, yr year = 12
gallon: gal gallon = 1
degree: degree deg ° = 1
radian: rad radian = 1
dollar: dollar USD = 1, cent = 1/100
euro: euro € EUR = 1
sterling: £ GBP = 1
yuan: yuan RMB CNY = 1
ampere: A amp ampere = 1
kelvin: K kelvin = 1
celsius: °C celsius Celsius = 1
fahrenheit: °F fahrenheit Fahrenheit = 1
mole: mol mole = 1
calorie: cal calorie = 1
unit: unit = 1
"""
# Named units that are made of others.
_COMPOSED = {
    "mph": "mi/h", "kmph": "km/h", "kph": "km/h", "fps": "ft/s", "L litre liter l": "dm^3",
    "M molar": "mol/dm^3", "cc": "cm^3", "hectare ha": "hm^2", "N newton": "kg m/s^2",
    "J joule": "N m", "W watt": "J/s", "Pa pascal": "N/m^2", "Hz hertz": "1/s",
    "C coulomb": "A s", "V volt": "W/A", "Ω ohm": "V/A", "F farad": "C/V", "T tesla": "Wb/m^2",
    "Wb weber": "V s", "H henry": "Wb/A",
}  # fmt: skip
_SIZED = {"eV": ("J", "1602176634/10000000000000000000000000000"), "atm": ("Pa", "101325"),
          "bar": ("Pa", "100000")}  # fmt: skip
_PREFIXES = {
    "p pico": -12, "n nano": -9, "μ µ u micro": -6, "m milli": -3, "c centi": -2, "d deci": -1,
    "h hecto": 2, "k kilo": 3, "M mega": 6, "G giga": 9, "T tera": 12,
}  # fmt: skip
_PREFIXED = "m g s L l M A V W J N T F C H K Ω Pa Hz eV mol cal bar ohm"
_PREFIXED_WORDS = """metre meter gram second litre liter ampere volt watt joule newton tesla farad
coulomb henry pascal hertz ohm mole calorie"""
_POWERS = {"square": 2, "sq": 2, "sq.": 2, "cubic": 3, "cu": 3, "cu.": 3}
_FACTOR = re.compile(
    r"[ *·]*(?P<per>/)?[ *·]*(?:(?P<prefix>square|sq\.?|cubic|cu\.?)\s*)?"
    r"(?P<name>°?[A-Za-zµμΩ€£]+|°|1(?=/))(?:\^(?P<power>-?\d))?[ *·]*"
)
_MARKED = re.compile(r"\\(?:text|mathrm|mbox)")
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{", r"\1/{"),
        (r"\\circ", "°"),
        (r"\\mu\s*", "μ"),
        (r"\\Omega", "Ω"),
        (r"\\cdot", "·"),
        (r"\\(?:text|mathrm|mbox)|[{}\\()]", " "),
        (r"\^\s*°", "°"),
        (r"(?i)(?:degrees?\s+|°\s*)(?=celsius|fahrenheit)", ""),
        (r"°\s+(?=[CF]\b)", "°"),
        (r"(?<=[kMμm])\s+(?=Ω)|(?<=μ)\s+(?=[A-Za-z])", ""),
        (r"\s*squared\b", "^2"),
        (r"\s*cubed\b", "^3"),
        (r"\bper\b", "/"),
        (r"\s*(?:\^|\*\*)\s*", "^"),
        ("²", "^2"),
        ("³", "^3"),
    )
)


@lru_cache(maxsize=1)
def _units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().replace(",\n", ",").splitlines():
        basic, _, entries = line.partition(":")
        for entry in entries.split(","):
            names, _, size = entry.partition("=")
            unit = Unit(((basic, 1),), Fraction(size.strip()))
            units |= dict.fromkeys(names.split(), unit)
    return units


def read_unit(text: str, *, letters: bool = False) -> Unit | None:
    r"""Return the unit that a text names; None if it is unknown.

    Args:
        text: stands behind a number.
        letters: True reads a single letter as a unit (in a formula it is a variable).

    >>> read_unit(r"\text{ square inches}") == read_unit("in^2")
    True
    >>> read_unit("m"), read_unit("m", letters=True).size
    (None, Fraction(1, 1))
    """
    if len(text) > LONGEST:
        return None
    letters = letters or _MARKED.search(text) is not None
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip(" .")
    powers: Counter[str] = Counter()
    size = Fraction(1)
    place = 0
    sign = 1
    while place < len(text):
        factor = _FACTOR.match(text, place)
        if factor is None:
            return None
        unit = _find_unit(factor["name"], letters=letters or place > 0)
        if unit is None:
            return None
        if factor["per"]:
            if sign < 0 or place == 0:
                return None
            sign = -1
        power = sign * _POWERS.get(factor["prefix"], int(factor["power"] or 1))
        for basic, exponent in unit.dimension:
            powers[basic] += exponent * power
        size *= unit.size**power
        place = factor.end()
    if place == 0:
        return None
    dimension = sorted((basic, power) for basic, power in powers.items() if power)
    return Unit(tuple(dimension), size)


def _find_unit(name: str, *, letters: bool) -> Unit | None:
    if name == "1":
        return Unit((), Fraction(1))
    if len(name) == 1 and name.isalpha() and name != "Ω" and not letters:
        return None
    lower = name.lower()
    forms = [name]
    if len(name) > 2:
        forms += [lower, lower.removesuffix("s"), lower.removesuffix("es")]
    for form in forms:
        unit = _units().get(form) or _compose(form)
        if unit is not None and (form == name or len(form) > 2):
            return unit
    return None


@lru_cache(maxsize=1024)
def _compose(name: str) -> Unit | None:
    """Return a unit that is made of others, or has a prefix."""
    for names, text in _COMPOSED.items():
        if name in names.split():
            return read_unit(text, letters=True)
    if name in _SIZED:
        other, size = _SIZED[name]
        unit = _find_unit(other, letters=True)
        return unit and replace(unit, size=unit.size * Fraction(size))
    for prefixes, exponent in _PREFIXES.items():
        for prefix in prefixes.split():
            rest = name.removeprefix(prefix)
            known = _PREFIXED if len(prefix) == 1 else _PREFIXED_WORDS
            if rest == name or rest not in known.split() or (prefix in "cd" and rest not in "mLl"):
                continue
            unit = _find_unit(rest, letters=True)
            return unit and replace(unit, size=unit.size * Fraction(10) ** exponent)
    return None
