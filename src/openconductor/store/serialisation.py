"""Values as JSON, and back: one form for the store, the records of an evaluation and ``--json``.

A value is an object of its fields. A Decimal is a decimal string, so that nothing is lost to binary
fractions; an unknown price is null. An error has its class, its message and what else it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from openconductor import errors
from openconductor.errors import OpenConductorError, WorkerError, WorkflowError, WorkflowReason
from openconductor.types import StepResult

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_UNICODE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_ASCII = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

T = TypeVar("T")


def plain(value: object) -> object:
    """Return the value in JSON's types: dict, list, str, int, float, bool, None."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[object]", value)]
    if not isinstance(value, dict):
        return plain(_simplify(value))
    return {str(name): plain(item) for name, item in cast("dict[object, object]", value).items()}


def dumps(value: object) -> str:
    """Return canonical JSON: names sorted, no spaces; ASCII only if it holds a lone surrogate."""
    value = plain(value)
    text = _UNICODE(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII(value)
    return text


def compact(value: object) -> str:
    """Return JSON in the order of the fields; many times as fast as ``dumps``."""
    from pydantic_core import to_json

    try:
        return to_json(value, fallback=_simplify).decode()
    except ValueError:  # a lone surrogate
        return dumps(value)


def _simplify(value: object) -> object:
    """Return a value nearer to JSON's types, one level deep; for an unknown type its ``repr``."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=repr)
    if isinstance(value, OpenConductorError):
        return _describe_error(value)
    return repr(value)


def _describe_error(error: OpenConductorError) -> dict[str, object]:
    described: dict[str, object] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, WorkflowError):
        described["reason"] = error.reason.value
    if isinstance(error, WorkerError):
        described["worker"] = error.worker
        described["status"] = error.status
    return described


def load(kind: type[T], data: object) -> T:
    """Return the value of which ``data`` is the ``plain`` form; missing fields have defaults.

    Raises:
        ValueError: it is not the form of such a value (pydantic's ValidationError).
    """
    return cast("TypeAdapter[T]", _adapter(kind)).validate_python(data)


def load_error(data: Mapping[str, Any] | None) -> OpenConductorError | None:
    """Return the error of which ``data`` is the ``plain`` form; None stays None.

    An error of a class that this package does not define becomes an OpenConductorError.
    """
    if data is None:
        return None
    message = str(data["message"] or "")
    kind = getattr(errors, data["type"], OpenConductorError)
    if kind is WorkflowError:
        reason = WorkflowReason(data["reason"])
        return WorkflowError(reason, message.removeprefix(f"{reason.value}: "))
    if issubclass(kind, WorkerError):
        worker = data["worker"]
        message = message.removeprefix(f"worker {worker!r}: ")
        return kind(message, worker=worker, status=data["status"])
    if kind is errors.BudgetExceeded:
        return kind(message, limit="")  # which limit it was is not kept
    return kind(message)


@cache
def _adapter(kind: type) -> TypeAdapter[object]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def outcome_of(result: StepResult) -> str:
    """Return ``answered``, ``failed``, ``cancelled`` or ``not_reached``."""
    if result.completion is not None:
        return "answered"
    if result.error is not None:
        return "failed"
    return "cancelled" if result.started is not None else "not_reached"
