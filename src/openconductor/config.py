"""Strict TOML, for pool files and recipes. In: a file and ``key=value`` overrides. Out: a value, or a ConfigError.

Nothing is guessed: an unknown key is an error that names the nearest known one, a string is no number, and whatever
looks like an API key is refused (keys come from the environment only). pydantic is imported when a file is read.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T")
Table = dict[str, object]

SHOWN_PROBLEMS = 5
SHOWN_CHARACTERS = 80
SCHEMA_DEPTH = 8  # how deep tables nest before their keys are no longer suggested

_KEY_NAME = re.compile(
    r"(?:x[-_])?(?:api[-_]?key|secret(?:[-_]key)?|password|(?:access|auth|bearer)[-_]?token|token|authorization)",
    re.IGNORECASE,
)
# What the keys of well-known services begin with, followed by enough characters to be one.
_KEY_VALUE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|r8|AIza)[-_]?[A-Za-z0-9_-]{20,}")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``; None where nothing is known.

    Dotted names also match by their last part, so ``lr`` finds ``optim.lr``.

    >>> nearest("max_concurency", ["max_rounds", "max_concurrency"])
    'max_concurrency'
    """

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, name.lower(), candidate.lower()).ratio()
        leaf = SequenceMatcher(None, name.lower().rpartition(".")[2], candidate.lower().rpartition(".")[2]).ratio()
        return max(whole, leaf - 0.05)

    return max(sorted(known), key=likeness, default=None)


def load_toml(path: str | Path, model: type[T], overrides: Sequence[str] = ()) -> T:
    """Read a TOML file into a dataclass or a pydantic model, strictly.

    Args:
        path: the file.
        model: a (frozen) dataclass or a pydantic model; nested ones are tables, tuples of them arrays of tables.
        overrides: ``key=value`` each, applied in order; keys are dotted (``worker.0.timeout_s=5``), values are TOML,
            and what is no TOML value is taken as a string (``name=fast``).

    Returns:
        The file's values, the overrides and the model's defaults together.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8 or not TOML; a key is unknown, missing or of the wrong
            type; an override is none; something looks like an API key.
    """
    where = str(path)
    data = read_toml(path)
    for override in overrides:
        _override(data, override)
    return validate(data, model, where=where)


def read_toml(path: str | Path) -> Table:
    """The tables of a TOML file as they stand there.

    Raises:
        ConfigError: the file is missing, a folder, unreadable, not UTF-8 or not TOML.
    """
    source = Path(path)
    try:
        text = source.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; expected a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; expected a TOML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected a TOML file in UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ConfigError(f"{path}: cannot be read: {error}; expected a TOML file") from error
    try:
        return cast(Table, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply; expected a TOML file") from None


def validate(data: Mapping[str, object], model: type[T], *, where: str) -> T:
    """Turn plain data into a dataclass or pydantic model, strictly; ``where`` names the source in errors.

    Raises:
        ConfigError: as in ``load_toml``.
    """
    from pydantic import TypeAdapter, ValidationError

    _refuse_keys(data, where, "")
    adapter = TypeAdapter(model)
    # By way of JSON, because that is pydantic's strict mode in which an array is a tuple and a string a path or a
    # Decimal, but "4" is no number and true is no 1.
    document = json.dumps(data, default=str)
    try:
        return adapter.validate_json(document, strict=True, extra="forbid")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
    lines = [_problem(problem, adapter) for problem in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - SHOWN_PROBLEMS} more")
    raise ConfigError(f"{where}: " + "; ".join(lines))


def _override(data: Table, override: str) -> None:
    """Set one ``key=value`` in ``data``, in place."""
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"override {shorten(override)}: expected key=value, with dots in the key for tables")
    _refuse_keys({parts[-1]: text.strip()}, "command line", "")
    node = cast(object, data)
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        here = ".".join(parts[:depth]) or "the file"
        if isinstance(node, list):
            items = cast("list[object]", node)
            if not part.isdecimal() or int(part) >= len(items):
                raise ConfigError(f"override {key}: {here} has entries 0 to {len(items) - 1}, got {part!r}")
            if last:
                items[int(part)] = _toml_value(text)
            node = items[int(part)]
        elif isinstance(node, dict):
            table = cast(Table, node)
            node = table.setdefault(part, {})
            if last:
                table[part] = _toml_value(text)
        else:
            raise ConfigError(f"override {key}: {here} holds {shorten(node)}, expected a table")


def _toml_value(text: str) -> object:
    """A TOML value, or else the text itself (a word without quotes, as one types it on a command line)."""
    text = text.strip()
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _refuse_keys(node: object, where: str, path: str) -> None:
    """Raise where an API key seems to stand in the file; the message never shows it."""
    if isinstance(node, Mapping):
        for name, value in cast("Mapping[str, object]", node).items():
            here = f"{path}.{name}" if path else str(name)
            if isinstance(value, str) and _KEY_NAME.fullmatch(name):
                raise ConfigError(
                    f"{where}: {here}: looks like a key (not shown); keys come from the environment only: expected "
                    "api_key_env with the name of an environment variable"
                )
            _refuse_keys(value, where, here)
    elif isinstance(node, list):
        for index, value in enumerate(cast("list[object]", node)):
            _refuse_keys(value, where, f"{path}.{index}")
    elif isinstance(node, str) and _KEY_VALUE.search(node):
        raise ConfigError(
            f"{where}: {path}: holds what looks like an API key (not shown); keys come from the environment only"
        )


def _problem(problem: ErrorDetails, adapter: TypeAdapter[T]) -> str:
    """One of pydantic's problems as a sentence: where, what was got, what was expected."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] in _UNKNOWN:
        return f"unknown key {key!r}{_suggestion(problem['loc'], adapter)}"
    if problem["type"] in ("missing", "missing_argument"):
        return f"{key}: missing; expected a value"
    expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{key or 'the file'}: got {shorten(problem['input'])}, expected {expected}"


def _suggestion(location: tuple[int | str, ...], adapter: TypeAdapter[T]) -> str:
    names = [str(part) for part in location if not isinstance(part, int)]
    schema = cast("Mapping[str, object]", adapter.json_schema())
    best = nearest(".".join(names), _known_keys(schema, schema, "", 0))
    if best is None:
        return ""
    same_table = best.rpartition(".")[0] == ".".join(names[:-1])
    return f"; the nearest known key is {best.rpartition('.')[2] if same_table else best!r}"


def _known_keys(node: Mapping[str, object], root: Mapping[str, object], prefix: str, depth: int) -> Iterator[str]:
    """Every key of a JSON schema, dotted, the indices of arrays left out."""
    if depth > SCHEMA_DEPTH:
        return
    reference = node.get("$ref")
    if isinstance(reference, str):
        definitions = cast("Mapping[str, Mapping[str, object]]", root.get("$defs", {}))
        yield from _known_keys(definitions[reference.rpartition("/")[2]], root, prefix, depth + 1)
    for name, child in cast("Mapping[str, Mapping[str, object]]", node.get("properties", {})).items():
        yield f"{prefix}{name}"
        yield from _known_keys(child, root, f"{prefix}{name}.", depth + 1)
    children = cast("list[Mapping[str, object]]", node.get("anyOf", []))
    if isinstance(items := node.get("items"), dict):
        children = [*children, cast("Mapping[str, object]", items)]
    for child in children:
        yield from _known_keys(child, root, prefix, depth + 1)


def shorten(value: object) -> str:
    """The value as it would be written in Python, cut to a length that fits into a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
