"""The gym's operations on lists: eight operations of four skills, each with two wordings.

A value is a tuple of items (``("4", "17")``), written as its items with blanks between. Every
operation is injective on multisets of items, so a mistake never heals by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Skill = Literal["order", "sums", "units", "writing"]
Wording = Literal["formal", "plain"]
Value = tuple[str, ...]

SKILLS: tuple[Skill, ...] = ("order", "sums", "units", "writing")
WORDINGS: tuple[Wording, ...] = ("formal", "plain")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on a list; a ``numeric`` one needs a list of numbers."""

    name: str
    skill: Skill
    formal: str
    plain: str
    apply: Callable[[Value], Value]
    numeric: bool = True

    def phrase(self, wording: Wording) -> str:
        """Return the operation's name in one of its two wordings."""
        return self.formal if wording == "formal" else self.plain


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def is_numeric(value: Value) -> bool:
    """Return True if every item is a number."""
    return all(item.isascii() and item.isdigit() for item in value)


def _sorted(value: Value) -> Value:
    key = int if is_numeric(value) else str
    return tuple(sorted(value, key=key))


def _each(change: Callable[[int], object]) -> Callable[[Value], Value]:
    return lambda value: tuple(str(change(int(item))) for item in value)


def _spell(number: int) -> str:
    return "-".join(_DIGITS[int(digit)] for digit in str(number))


_ALL = (
    Operation(
        "reverse", "order", "reverse the list", "turn it around", lambda v: v[::-1], numeric=False
    ),
    Operation("sort", "order", "sort the list", "put it in order", _sorted, numeric=False),
    Operation(
        "double", "sums", "double every number", "make each twice as big", _each(lambda n: 2 * n)
    ),
    Operation(
        "increment", "sums", "increment every number", "add one to each", _each(lambda n: n + 1)
    ),
    Operation(
        "minutes",
        "units",
        "convert hours to minutes",
        "say the hours in minutes",
        _each(lambda n: 60 * n),
    ),
    Operation(
        "centimetres",
        "units",
        "convert metres to centimetres",
        "say the metres in centimetres",
        _each(lambda n: 100 * n),
    ),
    Operation("spell", "writing", "spell every digit", "read the digits aloud", _each(_spell)),
    Operation(
        "binary",
        "writing",
        "write in binary",
        "use only zeros and ones",
        _each(lambda n: f"{n:b}b"),
    ),
)
OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}

COMPARE: tuple[str, ...] = ("compare the answers", "check the answers")
"""The two requests for a comparison; any worker counts votes, only a referee checks."""

_BY_PHRASE: dict[str, tuple[Operation, Wording]] = {
    operation.phrase(wording): (operation, wording) for operation in _ALL for wording in WORDINGS
}
_LONGEST_FIRST = sorted(map(re.escape, _BY_PHRASE), key=len, reverse=True)
_PHRASE = re.compile("|".join(_LONGEST_FIRST))
_COMPARE = re.compile("|".join(COMPARE))


def find_operations(text: str) -> tuple[tuple[Operation, Wording], ...]:
    """Return the operations that a text names, in order, each with the wording used."""
    return tuple(_BY_PHRASE[match] for match in _PHRASE.findall(text))


def perform(operations: Iterable[Operation], value: Value | None) -> Value | None:
    """Apply operations to a value. None: no value, or an operation cannot be applied."""
    for operation in operations:
        if value is None:
            return None
        if operation.numeric and not _can_compute(value):
            return None
        value = operation.apply(value)
    return value


def _can_compute(value: Value) -> bool:
    """Return True if the items are numbers, and not too long to compute with."""
    length = sum(map(len, value))
    return is_numeric(value) and length < 100


def asks_to_compare(text: str) -> bool:
    """Return True if a text asks for the answers to be compared."""
    return _COMPARE.search(text) is not None


def write_value(value: Value) -> str:
    """Return the text of a value."""
    return " ".join(value)


def read_value(text: str) -> Value | None:
    """Return the value that a text is. None: it is prose.

    >>> read_value("4 17 9"), read_value("Sorry, I could not do that.")
    (('4', '17', '9'), None)
    """
    items = tuple(text.split())
    if not items or not all(_ITEM.fullmatch(item) for item in items):
        return None
    return items


_ITEM = re.compile(
    r"x*(?:[0-9]+|[01]+b|(?:zero|one|two|three|four|five|six|seven|eight|nine)(?:-[a-z]+)*)"
)
