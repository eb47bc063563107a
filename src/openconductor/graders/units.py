r"""Units behind a number: reads their names, and converts between units of one kind.

``read_unit`` takes the text behind a number ("cm", "\text{ square inches}", "m/s^2"). It knows a
closed list, because answers carry few units. A library of units (pint) would be one more dependency
of the core's graders, reads every letter as a unit (``5t`` is 5 times t, not 5 tonnes), and knows
neither "people" nor "apples". Callers treat an unknown unit as a name of what was counted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Dimension = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its dimension, as powers of basic units in order of name, and its size in them."""

    dimension: Dimension
    size: Fraction


def ratio(unit: Unit | None, other: Unit | None) -> Fraction | None:
    """Return the size of ``other`` in ``unit``; 1: either is unknown, None: their kinds differ."""
    if unit is None or other is None:
        return Fraction(1)
    if unit.dimension != other.dimension:
        return None
    return other.size / unit.size


# "basic unit: names = size, …". Sizes are exact. Units without an exact size (months, currencies)
# are basic.
_TABLE = """
metre: m metre meter = 1, mm millimetre millimeter = 1/1000, cm centimetre centimeter = 1/100,
 dm = 1/10, km kilometre kilometer = 1000, nm nanometre nanometer = 1/1000000000,
 μm µm um micrometre micrometer micron = 1/1000000,
 in inch inches = 254/10000, ft foot feet = 3048/10000, yd yard = 9144/10000, mi mile = 1609344/1000
gram: g gram = 1, mg milligram = 1/1000, kg kilogram kilo = 1000, lb lbs pound = 45359237/100000,
 oz ounce = 45359237/1600000, tonne = 1000000
second: s sec second = 1, ms millisecond = 1/1000, μs µs us microsecond = 1/1000000,
 ns nanosecond = 1/1000000000,
 min minute = 60, h hr hour = 3600, day = 86400, week = 604800
month: month = 1, yr year = 12
litre: L litre liter = 1, mL ml millilitre milliliter = 1/1000
gallon: gal gallon = 1
degree: degree deg ° = 1
radian: rad radian = 1
dollar: dollar USD = 1, cent = 1/100
euro: euro € EUR = 1
sterling: £ GBP = 1
ampere: A amp ampere = 1, mA = 1/1000
kelvin: K kelvin = 1
celsius: °C celsius = 1
fahrenheit: °F fahrenheit = 1
mole: mol mole = 1, mmol = 1/1000
newton: N newton = 1, kN = 1000
joule: J joule = 1, kJ = 1000, MJ = 1000000, eV = 1602176634/10000000000000000000000000000
calorie: cal calorie = 1, kcal = 1000
watt: W watt = 1, kW = 1000, mW = 1/1000, MW = 1000000
volt: V volt = 1, mV = 1/1000, kV = 1000
ohm: Ω ohm = 1, kΩ = 1000
coulomb: C coulomb = 1, μC µC = 1/1000000, nC = 1/1000000000
farad: F farad = 1, μF µF = 1/1000000, pF = 1/1000000000000
tesla: T tesla = 1
hertz: Hz hertz = 1, kHz = 1000, MHz = 1000000, GHz = 1000000000
pascal: Pa pascal = 1, kPa = 1000, MPa = 1000000, atm = 101325, bar = 100000
"""
_SPEEDS = {"mph": "mi/h", "kmph": "km/h", "kph": "km/h", "fps": "ft/s"}
_PREFIXES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_FACTOR = re.compile(
    r"[ *·]*(?P<per>/)?[ *·]*(?:(?P<prefix>square|sq|cubic|cu)\s*)?"
    r"(?P<name>°?[A-Za-zµμΩ€£]+|°)(?:\^(?P<power>-?\d))?[ *·]*"
)
_MARKED = re.compile(r"\\(?:text|mathrm|mbox)")
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{", r"\1/{"),
        (r"\\circ", "°"),
        (r"\\cdot", "·"),
        (r"\\(?:text|mathrm|mbox)|[{}\\]", " "),
        (r"\^\s*°", "°"),
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
        power = sign * _PREFIXES.get(factor["prefix"], int(factor["power"] or 1))
        for basic, exponent in unit.dimension:
            powers[basic] += exponent * power
        size *= unit.size**power
        place = factor.end()
    if place == 0:
        return None
    dimension = sorted((basic, power) for basic, power in powers.items() if power)
    return Unit(tuple(dimension), size)


def _find_unit(name: str, *, letters: bool) -> Unit | None:
    if len(name) == 1 and name.isalpha() and not letters:
        return None
    if name in _SPEEDS:
        return read_unit(_SPEEDS[name], letters=True)
    units = _units()
    if name in units:
        return units[name]
    lower = name.lower()
    for form in (lower, lower.removesuffix("s"), lower.removesuffix("es")):
        if form in units and len(form) > 2:
            return units[form]
    return None
