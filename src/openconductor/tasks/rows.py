"""A row of a data file, read field by field. In: a JSON object and where it stood. Out: typed values, or a TaskError.

Nothing is converted silently: what is not of the expected type is an error that names the file, the line, the field,
what was got and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from openconductor.config import shorten
from openconductor.errors import TaskError


class Unusable(Exception):
    """A row of published data that holds no problem that can be graded; it is left out and listed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        values: its fields.
        where: the file and the line, for errors.
        number: its place among the rows of all files of a split, from 0.
    """

    values: Mapping[str, object]
    where: str
    number: int = 0

    def has(self, *fields: str) -> bool:
        """Whether all these fields are there and are not null."""
        return all(self.values.get(field) is not None for field in fields)

    def text(self, field: str, *, blank: bool = False) -> str:
        """A text; a blank one only where ``blank``."""
        value = self._value(field, "a text")
        if not isinstance(value, str):
            raise self.wrong(field, value, "a text")
        if not blank and not value.strip():
            raise self.wrong(field, value, "a text that is not blank")
        return value

    def text_or(self, field: str, default: str) -> str:
        """A text (it may be blank), or the default where the field is absent or null."""
        return self.text(field, blank=True) if self.has(field) else default

    def text_or_number(self, field: str) -> str:
        """A text, or a number as JSON writes it."""
        value = self._value(field, "a text or a number")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        return self.text(field)

    def integer(self, field: str) -> int:
        """An integer; true is none."""
        value = self._value(field, "an integer")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(field, value, "an integer")
        return value

    def number_or(self, field: str, default: float | None) -> float | None:
        """A number, or the default where the field is absent or null."""
        if not self.has(field):
            return default
        value = self.values[field]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong(field, value, "a number")
        return float(value)

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts; each may be blank."""
        value = self._value(field, "a list of texts")
        if not isinstance(value, (list, tuple)):
            raise self.wrong(field, value, "a list of texts")
        items = cast("list[object]", value)
        for item in items:
            if not isinstance(item, str):
                raise self.wrong(field, item, "nothing but texts in the list")
        return tuple(cast("list[str]", items))

    def objects(self, field: str) -> list[Mapping[str, object]]:
        """A list of objects, of at least one."""
        value = self._value(field, "a list of objects")
        items = cast("list[object]", value) if isinstance(value, (list, tuple)) else []
        if not items:
            raise self.wrong(field, self.values[field], "a list of objects, of at least one")
        for item in items:
            if not isinstance(item, dict):
                raise self.wrong(field, item, "nothing but objects in the list")
        return cast("list[Mapping[str, object]]", items)

    def identity(self, field: str) -> str | int:
        """A text that is not blank, or an integer."""
        value = self._value(field, "a text or an integer")
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self.text(field)

    def wrong(self, field: str, got: object, expected: str) -> TaskError:
        """The error of a field."""
        return TaskError(f"{self.where}: field {field!r}: got {shorten(got)}, expected {expected}")

    def _value(self, field: str, expected: str) -> object:
        if field not in self.values:
            names = ", ".join(sorted(self.values)) or "none"
            raise TaskError(f"{self.where}: field {field!r}: missing; got the fields {names}, expected {expected}")
        return self.values[field]
