"""What can be done to a list in the gym: eight operations of four skills, each with a formal and a plain wording.

In: texts and values. Out: the operations that a text names, and what they make of a value. A value
is a tuple of items (``("4", "17")``), written as its items with blanks between. Every operation is
injective on multisets of items, so a mistake never heals by itself.
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
    """One thing to do to a list; ``numeric`` operations need a list of numbers."""

    name: str
    skill: Skill
    formal: str
    plain: str
    apply: Callable[[Value], Value]
    numeric: bool = True

    def phrase(self, wording: Wording) -> str:
        """The operation's name in one of its two wordings."""
        return self.formal if wording == "formal" else self.plain


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def is_numeric(value: Value) -> bool:
    """Whether every item is a number."""
    return all(item.isascii() and item.isdigit() for item in value)


def _sorted(value: Value) -> Value:
    return tuple(sorted(value, key=int)) if is_numeric(value) else tuple(sorted(value))


def _each(change: Callable[[int], object]) -> Callable[[Value], Value]:
    return lambda value: tuple(str(change(int(item))) for item in value)


def _spell(number: int) -> str:
    return "-".join(_DIGITS[int(digit)] for digit in str(number))


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "reverse",
            "order",
            "reverse the list",
            "turn it around",
            lambda v: v[::-1],
            numeric=False,
        ),
        Operation("sort", "order", "sort the list", "put it in order", _sorted, numeric=False),
        Operation(
            "double",
            "sums",
            "double every number",
            "make each twice as big",
            _each(lambda n: 2 * n),
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
}

COMPARE: tuple[str, ...] = ("compare the answers", "check the answers")
"""How a comparison is asked for: any worker counts votes, only a referee checks."""

_BY_PHRASE: dict[str, tuple[Operation, Wording]] = {
    operation.phrase(wording): (operation, wording)
    for operation in OPERATIONS.values()
    for wording in WORDINGS
}
_PHRASE = re.compile("|".join(sorted(map(re.escape, _BY_PHRASE), key=len, reverse=True)))
_COMPARE = re.compile("|".join(COMPARE))


def find_operations(text: str) -> tuple[tuple[Operation, Wording], ...]:
    """The operations that a text names, in order, each with the wording used."""
    return tuple(_BY_PHRASE[match] for match in _PHRASE.findall(text))


def perform(operations: Iterable[Operation], value: Value | None) -> Value | None:
    """What operations make of a value; None where there is none, or one of them cannot be applied."""
    for operation in operations:
        if value is None or (
            operation.numeric and not (is_numeric(value) and sum(map(len, value)) < 100)
        ):
            return None
        value = operation.apply(value)
    return value


def asks_to_compare(text: str) -> bool:
    """Whether a text asks for the answers to be compared."""
    return _COMPARE.search(text) is not None


def write_value(value: Value) -> str:
    """The text of a value."""
    return " ".join(value)


def read_value(text: str) -> Value | None:
    """The value that a text is, or None where it is prose.

    >>> read_value("4 17 9"), read_value("Sorry, I could not do that.")
    (('4', '17', '9'), None)
    """
    items = tuple(text.split())
    return items if items and all(_ITEM.fullmatch(item) for item in items) else None


_ITEM = re.compile(
    r"x*(?:[0-9]+|[01]+b|(?:zero|one|two|three|four|five|six|seven|eight|nine)(?:-[a-z]+)*)"
)
