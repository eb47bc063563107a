"""Data files, row by row: JSON Lines (also gzipped), CSV, Parquet. In: a path. Out: rows, and the SHA-256 of the bytes.

A file is read as a stream, so only one row at a time is in memory. A byte order mark, CRLF line ends and blank lines
do no harm; everything else that is not one JSON object a line is a TaskError with its line.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import json
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, cast

from openconductor.config import shorten
from openconductor.errors import ConfigError, TaskError
from openconductor.tasks.rows import Row

INSTALL = 'pip install "openconductor[tasks]"'
_BOM = b"\xef\xbb\xbf"


def read_rows(path: Path, *, name: str, start: int = 0) -> Iterator[Row]:
    """The rows of a file.

    Args:
        path: the file; ``.parquet``, ``.csv`` and ``.gz`` are told by their ends, all else is JSON Lines.
        name: what errors call it.
        start: the number of its first row.

    Raises:
        TaskError: it cannot be read, or a line is no JSON object.
        ConfigError: reading Parquet needs an extra that is not installed.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet(path, name, start)
        elif suffix == ".csv":
            yield from _csv(path, name, start)
        elif suffix == ".gz":
            with gzip.open(path, "rb") as unzipped:
                yield from json_lines(cast("BinaryIO", unzipped), name=name, start=start)
        else:
            with path.open("rb") as file:
                yield from json_lines(file, name=name, start=start)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, name, error) from error


def json_lines(lines: Iterable[bytes], *, name: str, start: int = 0) -> Iterator[Row]:
    """The JSON objects of lines of bytes; blank lines count for line numbers only."""
    number = start
    for line, data in enumerate(lines, start=1):
        row = json_row(data, where=f"{name}, line {line}", number=number, first=line == 1)
        if row is not None:
            number += 1
            yield row


def json_row(data: bytes, *, where: str, number: int = 0, first: bool = False) -> Row | None:
    """The JSON object of one line; None where the line is blank.

    Args:
        data: the line, with or without its end.
        where: what errors call it.
        number: the row's number.
        first: whether a byte order mark may stand before it.

    Raises:
        TaskError: it is not UTF-8, not JSON, or no object.
    """
    if first:
        data = data.removeprefix(_BOM)
    if not data.strip():
        return None
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: byte {error.start} is not UTF-8; expected a JSON object in UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: not JSON: {error}; expected one JSON object a line") from error
    if not isinstance(value, dict):
        raise TaskError(f"{where}: got {shorten(value)}, expected a JSON object")
    return Row(cast("Mapping[str, object]", value), where, number)


def sha256_of(path: Path, *, name: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        TaskError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, name, error) from error


def needs(module: str) -> ModuleType:
    """Import a module that the extra ``tasks`` brings.

    Raises:
        ConfigError: it is not installed; says which command installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"tasks: {module} is not installed; {INSTALL}") from error


def _csv(path: Path, name: str, start: int) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for number, values in enumerate(reader, start=start):
                fields = {str(key): value for key, value in cast("dict[str | None, object]", values).items() if key}
                yield Row(fields, f"{name}, line {reader.line_num}", number)
    except (UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{name}: not CSV in UTF-8: {error}") from error


def _parquet(path: Path, name: str, start: int) -> Iterator[Row]:
    datasets: Any = needs("datasets")
    with tempfile.TemporaryDirectory(prefix="openconductor-") as folder:
        try:
            table = datasets.Dataset.from_parquet(str(path), cache_dir=folder, keep_in_memory=True)
        except (ValueError, datasets.exceptions.DatasetsError) as error:
            raise TaskError(f"{name}: not Parquet: {error}") from error
        for number, values in enumerate(table):
            yield Row(cast("Mapping[str, object]", values), f"{name}, row {number}", start + number)


def _unreadable(path: Path, name: str, error: Exception) -> TaskError:
    if isinstance(error, FileNotFoundError):
        return TaskError(f"{name}: no such file; expected JSON Lines")
    if path.is_dir():
        return TaskError(f"{name}: is a folder; expected a file of JSON Lines")
    return TaskError(f"{name}: cannot be read: {error}; expected JSON Lines")
