r"""Units behind a number: which they are, and how many of the basic one they make.

In: what stands behind a number ("cm", "\text{ square inches}", "m/s^2"). Out: a Unit, or None where
it is not known.

A closed list, because the units that answers carry are few. A library of units (pint) would be one
more dependency of the core's graders, reads every letter as a unit (``5t`` is no 5 tonnes but 5
times t), and knows neither "people" nor "apples". What is not in the list is no unit here: callers
treat it as a name of what was counted.
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
    """How many of a unit another one is: 1 where either is not known, None where they are of different kinds."""
    if unit is None or other is None:
        return Fraction(1)
    return other.size / unit.size if unit.dimension == other.dimension else None


# "basic unit: names = size, …". Sizes are exact; what has none (months, currencies against each
# other) is basic itself.
_TABLE = """
metre: m metre meter = 1, mm millimetre millimeter = 1/1000, cm centimetre centimeter = 1/100, dm = 1/10,
 km kilometre kilometer = 1000, nm nanometre nanometer = 1/1000000000, μm µm um micrometre micrometer = 1/1000000,
 micron = 1/1000000,
 in inch inches = 254/10000, ft foot feet = 3048/10000, yd yard = 9144/10000, mi mile = 1609344/1000
gram: g gram = 1, mg milligram = 1/1000, kg kilogram kilo = 1000, lb lbs pound = 45359237/100000,
 oz ounce = 45359237/1600000, tonne = 1000000
second: s sec second = 1, ms millisecond = 1/1000, μs µs us microsecond = 1/1000000, ns nanosecond = 1/1000000000,
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
            for name in names.split():
                units[name] = Unit(((basic, 1),), Fraction(size.strip()))
    return units


def read_unit(text: str, *, letters: bool = False) -> Unit | None:
    r"""What unit a text names; None where it names none that is known.

    Args:
        text: what stands behind a number.
        letters: whether a single letter is a unit (in a formula it is a variable).

    >>> read_unit(r"\text{ square inches}") == read_unit("in^2"), read_unit("m"), read_unit("m", letters=True).size
    (True, None, Fraction(1, 1))
    """
    letters = letters or _MARKED.search(text) is not None
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip(" .")
    powers: Counter[str] = Counter()
    size = Fraction(1)
    place, sign = 0, 1
    while place < len(text):
        factor = _FACTOR.match(text, place)
        unit = None if factor is None else _named(factor["name"], letters=letters or place > 0)
        if factor is None or unit is None or (factor["per"] and (sign < 0 or not place)):
            return None
        sign = -1 if factor["per"] else sign
        power = sign * _PREFIXES.get(factor["prefix"], int(factor["power"] or 1))
        for basic, exponent in unit.dimension:
            powers[basic] += exponent * power
        size *= unit.size**power
        place = factor.end()
    dimension = tuple(sorted((basic, power) for basic, power in powers.items() if power))
    return Unit(dimension, size) if place else None


def _named(name: str, *, letters: bool) -> Unit | None:
    if len(name) == 1 and name.isalpha() and not letters:
        return None
    if name in _SPEEDS:
        return read_unit(_SPEEDS[name], letters=True)
    units = _units()
    for form in (
        name,
        name.lower(),
        name.lower().removesuffix("s"),
        name.lower().removesuffix("es"),
    ):
        if form in units and (form == name or len(form) > 2):
            return units[form]
    return None
