"""Reads the tests of a programming problem in the shapes that people have them in.

- a text: assertions, a function ``check(candidate)``, classes of ``unittest``, or functions and
  classes of pytest; also as a list of assertions, as MBPP has them;
- rows: ``{input, output}`` or ``{args, expected}`` each;
- LiveCodeBench's: ``{input, output, testtype}`` each, or ``{inputs, outputs, fn_name?}``, as
  objects or as a JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from openconductor.config import shorten
from openconductor.errors import TaskError
from openconductor.graders.code_tests import (
    CodeTests,
    IoTest,
    from_asserts,
    from_json_lines,
    from_rows,
)
from openconductor.tasks.data.rows import Row

Fields = Mapping[str, object]

SHAPES = (
    "a text of assertions or of a unittest class; rows of {input, output} or of {args, expected} "
    "with an entry_point; or LiveCodeBench's tests, {input, output, testtype} each or "
    "{inputs, outputs, fn_name}"
)


def read_tests(row: Row, entry_point: str | None) -> CodeTests:
    """Return the tests in the field ``tests`` of a row.

    Raises:
        TaskError: they are missing or of another shape; the message names the three.
    """
    if not row.has("tests"):
        return from_rows(row.objects("tests"))  # raises the error of a missing field
    try:
        return _read(row.values["tests"], entry_point)
    except (TaskError, ValueError, RecursionError) as error:
        message = f"{row.where}: field 'tests': {error}"
        if SHAPES not in message:
            message += f". Expected {SHAPES}"
        raise TaskError(message) from error


def _read(value: object, entry_point: str | None) -> CodeTests:
    if isinstance(value, str):
        if value.strip().startswith(("[", "{")):
            return _read(json.loads(value), entry_point)
        return _read_program(value, entry_point)
    if isinstance(value, dict):
        return _read_columns(cast("Fields", value), entry_point)
    if isinstance(value, list) and value:
        items = cast("list[object]", value)
        if all(isinstance(item, str) for item in items):
            return _read_program("\n".join(cast("list[str]", items)), entry_point)
        if all(isinstance(item, dict) for item in items):
            return _read_rows(cast("list[Fields]", items), entry_point)
    raise TaskError(f"got {shorten(cast(object, value))}, expected {SHAPES}")


def _read_program(text: str, entry_point: str | None) -> CodeTests:
    """Return the tests of a program that asserts, or that has classes of ``unittest``."""
    if not text.strip():
        raise TaskError(f"got a blank text, expected {SHAPES}")
    return from_asserts(text, entry_point)


def _read_rows(rows: Sequence[Fields], entry_point: str | None) -> CodeTests:
    kinds = {row.get("testtype") for row in rows}
    if kinds <= {None, "stdin"}:
        return from_rows(rows, entry_point)
    if kinds != {"functional"}:
        names = sorted(str(kind) for kind in kinds)
        raise TaskError(f"got the testtypes {', '.join(names)}; expected stdin or functional")
    if entry_point is None:
        raise TaskError("functional tests require an entry_point; got none")
    inputs = [str(row.get("input", "")) for row in rows]
    outputs = [str(row.get("output", "")) for row in rows]
    return from_json_lines(inputs, outputs, entry_point)


def _read_columns(fields: Fields, entry_point: str | None) -> CodeTests:
    inputs = fields.get("inputs")
    outputs = fields.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise TaskError(f"got an object with the fields {sorted(fields)}, expected {SHAPES}")
    texts = [_text(item) for item in cast("list[object]", inputs)]
    expected = [_text(item) for item in cast("list[object]", outputs)]
    name = fields.get("fn_name") or entry_point
    if name is not None:
        return from_json_lines(texts, expected, str(name))
    if len(texts) != len(expected):
        raise TaskError(f"got {len(texts)} inputs and {len(expected)} outputs")
    pairs = zip(texts, expected, strict=True)
    return CodeTests(tuple(IoTest(stdin, stdout) for stdin, stdout in pairs))


def _text(value: object) -> str:
    """Return a text as it is, a list of arguments as a JSON value a line, else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(json.dumps(item) for item in cast("list[object]", value))
    return json.dumps(value)
