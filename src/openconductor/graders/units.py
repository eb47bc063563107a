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
# "names = size unit": units that are made of those above them.
_COMPOSED = """
mph = 1 mi/h
kmph kph = 1 km/h
fps = 1 ft/s
L l litre liter = 1 dm^3
cc = 1 cm^3
hectare ha = 1 hm^2
M molar = 1 mol/dm^3
N newton = 1 kg m/s^2
J joule = 1 N m
W watt = 1 J/s
Pa pascal = 1 N/m^2
Hz hertz = 1 1/s
C coulomb = 1 A s
V volt = 1 W/A
Ω ohm = 1 V/A
F farad = 1 C/V
Wb weber = 1 V s
T tesla = 1 Wb/m^2
H henry = 1 Wb/A
eV = 1.602176634e-19 J
atm = 101325 Pa
bar = 100000 Pa
"""
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
    """Return all units by name."""
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().replace(",\n", ",").splitlines():
        basic, _, entries = line.partition(":")
        for entry in entries.split(","):
            names, _, size = entry.partition("=")
            unit = Unit(((basic, 1),), Fraction(size.strip()))
            units |= dict.fromkeys(names.split(), unit)
    units = _with_prefixes(units)
    for line in _COMPOSED.strip().splitlines():
        names, _, definition = line.partition(" = ")
        size, _, factors = definition.partition(" ")
        unit = _combine(factors, units, letters=True)
        assert unit is not None  # units above it make it
        unit = replace(unit, size=unit.size * Fraction(size))
        units |= dict.fromkeys(names.split(), unit)
    return _with_prefixes(units)


def _with_prefixes(units: dict[str, Unit]) -> dict[str, Unit]:
    """Return units and the same with prefixes; a name without a prefix wins."""
    prefixed: dict[str, Unit] = {}
    for prefixes, exponent in _PREFIXES.items():
        for prefix in prefixes.split():
            names = _PREFIXED if len(prefix) == 1 else _PREFIXED_WORDS
            if prefix in "cd":
                names = "m L l"
            for name in units.keys() & set(names.split()):
                unit = units[name]
                prefixed[prefix + name] = replace(unit, size=unit.size * Fraction(10) ** exponent)
    return prefixed | units


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
    return _combine(text.strip(" ."), _units(), letters=letters)


def _combine(text: str, units: dict[str, Unit], *, letters: bool) -> Unit | None:
    """Return the product of the units that a text names."""
    powers: Counter[str] = Counter()
    size = Fraction(1)
    place = 0
    sign = 1
    while place < len(text):
        factor = _FACTOR.match(text, place)
        if factor is None:
            return None
        unit = _find_unit(factor["name"], units, letters=letters or place > 0)
        if unit is None:
            return None
        if factor["per"]:
            if sign < 0 or place == 0:
                return None
            sign = -1
        power = _POWERS.get(factor["prefix"]) or int(factor["power"] or 1)
        power *= sign
        for basic, exponent in unit.dimension:
            powers[basic] += exponent * power
        size *= unit.size**power
        place = factor.end()
    if place == 0:
        return None
    dimension = sorted((basic, power) for basic, power in powers.items() if power)
    return Unit(tuple(dimension), size)


def _find_unit(name: str, units: dict[str, Unit], *, letters: bool) -> Unit | None:
    if name == "1":
        return Unit((), Fraction(1))
    if len(name) == 1 and name.isalpha() and name != "Ω" and not letters:
        return None
    if name in units:
        return units[name]
    lower = name.lower()
    for form in (lower, lower.removesuffix("s"), lower.removesuffix("es")):
        if len(form) > 2 and form in units:
            return units[form]
    return None
