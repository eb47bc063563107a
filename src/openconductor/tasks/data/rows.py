"""Rows of data files as typed values: JSON Lines (also gzipped), CSV, Parquet.

A file is read as a stream, so only one row at a time is in memory. A byte order mark, CRLF line
ends and blank lines do no harm; everything else that is not one JSON object a line is a TaskError
with its line. Nothing is converted silently. A value of another type than expected is an error that
names the file, the line, the field and both.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import json
import sys
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, cast

from openconductor.config import needing, shorten
from openconductor.errors import TaskError
from openconductor.tasks.data.items import Item
from openconductor.types import Problem

_Rows = Iterator[tuple[Mapping[str, object], str]]


class Unusable(Exception):
    """A row of published data without a problem that can be graded; it is left out and listed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        values: its fields.
        where: the file and the line, for errors.
        number: its place among the rows of all files of a split, from 0.
        task, id: the task and the id of its problem.
        seed: draws the order of choices; None: the published order.
    """

    values: Mapping[str, object]
    where: str
    number: int = 0
    task: str = ""
    id: str = ""
    seed: int | None = None

    def item(
        self, question: str, reference: object, canonical: str | None, subject: str = ""
    ) -> Item:
        """Return an item of this row, whose kind is its subject."""
        problem = Problem(self.id, question, reference, self.task, kind=subject)
        return Item(problem, canonical, subject)

    def has(self, field: str) -> bool:
        """Return True if a field is there and is not null."""
        return self.values.get(field) is not None

    def text(self, field: str, *, blank: bool = False) -> str:
        """Return a text, which may be blank only with ``blank``."""
        value = cast(str, self._value(field, str, "a text"))
        if not blank and not value.strip():
            raise self.wrong(field, value, "a text that is not blank")
        return value

    def text_or(self, field: str, default: str = "") -> str:
        """Return a text (it may be blank); the default if the field is absent or null."""
        return self.text(field, blank=True) if self.has(field) else default

    def text_or_number(self, field: str) -> str:
        """Return a text that is not blank, or a number as JSON writes it."""
        value = self._value(field, str | int | float, "a text or a number")
        return self.text(field) if isinstance(value, str) else str(value)

    def identity(self, field: str) -> str | int:
        """Return a text that is not blank, or an integer."""
        value = self._value(field, str | int, "a text or an integer")
        return value if isinstance(value, int) else self.text(field)

    def amount(self, field: str) -> float | None:
        """Return a number; None if the field is absent or null."""
        if not self.has(field):
            return None
        return float(cast(float, self._value(field, int | float, "a number")))

    def texts(self, field: str) -> list[str]:
        """Return a list of texts; each may be blank."""
        return cast("list[str]", self._list(field, str, "texts"))

    def objects(self, field: str) -> list[Mapping[str, object]]:
        """Return a list of objects, of at least one."""
        objects = self._list(field, dict, "objects")
        if not objects:
            raise self.wrong(field, objects, "a list of objects, of at least one")
        return cast("list[Mapping[str, object]]", objects)

    def wrong(self, field: str, got: object, expected: str) -> TaskError:
        """Return the error of a field."""
        return TaskError(f"{self.where}: field {field!r}: got {shorten(got)}, expected {expected}")

    @contextmanager
    def of_field(self, field: str) -> Generator[None]:
        """Make errors of the block name the row and this field."""
        try:
            yield
        except (TaskError, ValueError, RecursionError) as error:
            raise TaskError(f"{self.where}: field {field!r}: {error}") from error

    def _value(self, field: str, kind: type | UnionType, expected: str) -> object:
        if field not in self.values:
            names = ", ".join(sorted(self.values)) or "none"
            message = f"{self.where}: field {field!r}: missing; got the fields {names}"
            raise TaskError(f"{message}, expected {expected}")
        value = self.values[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(field, value, expected)
        return value

    def _list(self, field: str, kind: type, what: str) -> list[object]:
        items = cast("list[object]", self._value(field, list, f"a list of {what}"))
        for item in items:
            if not isinstance(item, kind):
                raise self.wrong(field, item, f"only {what} in the list")
        return items


# ── files ─────────────────────────────────────────────────────────────────────────────────────────
def read_rows(path: Path, *, name: str, start: int = 0) -> Iterator[Row]:
    """Yield the rows of a file.

    Args:
        path: the file; ``.parquet``, ``.csv`` and ``.gz`` are known by their ends, all else is JSON
            Lines.
        name: its name in errors.
        start: the number of its first row.

    Raises:
        TaskError: it cannot be read, or a line is no JSON object.
        ConfigError: reading Parquet needs an extra that is not installed.
    """
    read = {".parquet": _parquet, ".csv": _csv}.get(path.suffix.lower(), _json_lines)
    try:
        for number, (values, where) in enumerate(read(path, name), start=start):
            yield Row(values, where, number)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from error


def json_row(data: bytes, name: str, line: int) -> Row | None:
    """Return the JSON object of one line; None if the line is blank.

    Args:
        data: the line, with or without its end; the first one may have a byte order mark.
        name: the file's name in errors.
        line: its number, from 1.

    Raises:
        TaskError: it is not UTF-8, not JSON, or no object.
    """
    where = f"{name}, line {line}"
    try:
        text = data.decode("utf-8-sig" if line == 1 else "utf-8")
        if not text.strip():
            return None
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{where}: byte {error.start} is not UTF-8; expected a JSON object in UTF-8"
        ) from error
    except json.JSONDecodeError as error:  # its own line number begins anew with each line
        message = f"{where}: not JSON: {error.msg} at character {error.pos + 1}"
        raise TaskError(f"{message}; expected one JSON object a line") from error
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: not JSON: {error}; expected one JSON object a line") from error
    if not isinstance(value, dict):
        raise TaskError(f"{where}: got {shorten(value)}, expected a JSON object")
    return Row(cast("Mapping[str, object]", value), where)


def sha256_of(path: Path, *, name: str) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        TaskError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(name, error) from error


def needs(module: str) -> ModuleType:
    """Import a module that the extra ``tasks`` brings.

    Raises:
        ConfigError: it is not installed; says which command installs it.
    """
    with needing("tasks", "tasks"):
        return importlib.import_module(module)


def _json_lines(path: Path, name: str) -> _Rows:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for line, data in enumerate(file, start=1):
            row = json_row(data, name, line)
            if row is not None:
                yield row.values, row.where


def _csv(path: Path, name: str) -> _Rows:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for values in reader:
                fields = {str(key): value for key, value in values.items() if key}
                yield fields, f"{name}, line {reader.line_num}"
    except (UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{name}: not CSV in UTF-8: {error}") from error


def _parquet(path: Path, name: str) -> _Rows:
    parquet: Any = needs("pyarrow.parquet")
    try:
        batches = parquet.ParquetFile(path).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, values in enumerate(rows):
            yield values, f"{name}, row {number}"
    except ValueError as error:
        raise TaskError(f"{name}: not Parquet: {error}") from error


def _unreadable(name: str, error: Exception) -> TaskError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
    return TaskError(f"{name}: {reason}; expected JSON Lines")
