"""Strict TOML, for pool files and recipes, and the names on shelves. In: a file and overrides, or a name. Out: a value.

Nothing is guessed: an unknown key or name is a ConfigError that names the nearest known one, a
string is not a number. What looks like an API key is refused (keys come from the environment only).
pydantic is imported when a file is read.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T")
Table = dict[str, object]

SHOWN_PROBLEMS = 5
SHOWN_CHARACTERS = 80

_KEY_NAME = re.compile(
    r"(?:x[-_])?(?:api[-_]?key|secret(?:[-_]key)?|password|(?:access|auth|bearer)[-_]?token|token|authorization)",
    re.IGNORECASE,
)
# What the keys of well-known services begin with, followed by enough characters to be one.
_KEY_VALUE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|r8|AIza)[-_]?[A-Za-z0-9_-]{20,}")
_UNREADABLE: Mapping[type, str] = {
    FileNotFoundError: "no such file",
    IsADirectoryError: "is a folder",
    RecursionError: "nested too deeply",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``; None where nothing is known.

    Dotted names also match by their last part, so ``lr`` finds ``optim.lr``.

    >>> nearest("max_concurency", ["max_rounds", "max_concurrency"])
    'max_concurrency'
    """

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, name.lower(), candidate.lower()).ratio()
        leaf = SequenceMatcher(
            None, name.lower().rpartition(".")[2], candidate.lower().rpartition(".")[2]
        ).ratio()
        return max(whole, leaf - 0.05)

    return max(sorted(known), key=likeness, default=None)


def registered(shelf: Mapping[str, str], what: str) -> dict[str, str]:
    """What has a name: all on a shelf, and the entry points of other packages (group ``openconductor.<what>s``)."""
    from importlib.metadata import entry_points

    return {
        **{one.name: one.value for one in entry_points(group=f"openconductor.{what}s")},
        **shelf,
    }


def load_registered(shelf: Mapping[str, str], name: str, *, what: str) -> object:
    """Import what a name stands for: on a shelf, an entry point of another package, or ``module:attribute`` itself.

    A module that is named is looked for on the import path, and last in the current directory,
    which stays on the path.

    Args:
        shelf: by name, ``module:attribute``; it goes before the entry points.
        name: what was asked for.
        what: what it is, in the singular (``task``, ``baseline`` …).

    Raises:
        ConfigError: there is no such name, module or attribute (names the nearest), or a module
            that is not on the shelf raised an error when it was imported.
        ImportError: one on the shelf cannot be imported.
    """
    if name in shelf:
        module, _, attribute = shelf[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    known, here = registered(shelf, what), str(Path.cwd())
    near = f"; nearest: {nearest(name.partition(':')[0], known)!r}" if known else ""
    expected = f"expected one of {', '.join([*sorted(known), 'module:attribute'])}{near}"
    module, colon, attribute = known.get(name, name).partition(":")
    if not colon:
        raise ConfigError(f"{what}: got {name!r}, {expected}")
    if name not in known and here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except Exception as error:  # what others wrote may raise anything
        said = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{what} {name!r}: importing {module!r} (also from {here}): {said}; {expected}"
        ) from error
    if not hasattr(found, attribute):
        raise ConfigError(
            f"{what} {name!r}: no such attribute; nearest: {nearest(attribute, vars(found))!r}"
        )
    return getattr(found, attribute)


@contextmanager
def needing(where: str, extra: str = "") -> Generator[None]:
    """Say what is to be installed where an import fails: an extra of this package, or else what the error names.

    Raises:
        ConfigError: something is not installed.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("openconductor"):
            raise  # a fault of ours, not something that the user lacks
        wanted = f'"openconductor[{extra}]"' if extra else error.name or "what the error names"
        raise ConfigError(
            f"{where}: {error}; expected its extra to be installed: pip install {wanted}"
        ) from error


def one_of(where: str, value: str, known: Iterable[str]) -> str:
    """A value that is one of those that are known.

    Raises:
        ConfigError: it is another one; the message names the nearest.
    """
    names = list(known)
    if value not in names:
        near = nearest(str(value), names)
        raise ConfigError(
            f"{where}: got {value!r}, expected one of {', '.join(names)}; nearest: {near!r}"
        )
    return value


def check_option(option: str, known: Iterable[str], where: str) -> None:
    """Make sure that an option is one of those that are known.

    Raises:
        ConfigError: it is not; names the nearest.
    """
    if option not in (names := list(known)):
        near = f"; nearest: {nearest(option, names)!r}" if names else ""
        raise ConfigError(
            f"{where}: got the option {option!r}, expected one of {', '.join(names) or 'none'}{near}"
        )


def split_name(text: str, shelf: Container[str], what: str) -> tuple[str, str, str]:
    """A name, a colon and what is behind it. Where the name is not known, it goes on to the second colon.

    >>> split_name("moa:gpt-5", {"moa"}, "baseline"), split_name("mine:Vote:gpt-5", {"moa"}, "baseline")
    (('moa', ':', 'gpt-5'), ('mine:Vote', ':', 'gpt-5'))
    """
    name, colon, rest = text.partition(":")
    if colon and name.strip() not in shelf and name.strip() not in registered({}, what):
        attribute, colon, rest = rest.partition(":")
        name = f"{name.strip()}:{attribute.strip()}"
    return name, colon, rest


def load_toml(path: str | Path, model: type[T], overrides: Sequence[str] = ()) -> T:
    """Read a TOML file into a dataclass or a pydantic model, strictly.

    Args:
        path: the file.
        model: a (frozen) dataclass or a pydantic model; nested ones are tables, tuples of them
            arrays of tables.
        overrides: ``key=value`` each, applied in order; keys are dotted (``worker.0.timeout_s=5``),
            values are TOML, and what is no TOML value is taken as a string (``name=fast``).

    Returns:
        The file's values, the overrides and the model's defaults together.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8 or not TOML; a key is unknown, missing
            or of the wrong type; an override is none; something looks like an API key.
    """
    data = read_toml(path)
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise ConfigError(
                f"override {shorten(override)}: expected key=value, with dots in the key for tables"
            )
        _refuse_keys({parts[-1]: text.strip()}, "command line")
        _override(data, parts, _toml_value(text.strip()), key)
    return validate(data, model, where=str(path))


def read_toml(path: str | Path) -> Table:
    """The tables of a TOML file as they stand there.

    Raises:
        ConfigError: the file is missing, a folder, unreadable, not UTF-8 or not TOML.
    """
    try:
        return cast(Table, tomllib.loads(Path(path).read_bytes().decode("utf-8")))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is not UTF-8; expected a TOML file in UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: a NUL in the path
        reason = _UNREADABLE.get(type(error), f"cannot be read: {error}")
        raise ConfigError(f"{path}: {reason}; expected a TOML file") from error


def dump_toml(values: Mapping[str, object]) -> str:
    """Plain values as TOML that reads as the same.

    Raises:
        ConfigError: a value is one that TOML cannot say.
    """
    import tomlkit

    try:
        return tomlkit.dumps(values)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"recipe: {error}; expected texts, numbers, switches, lists and tables"
        ) from error


def validate(data: Mapping[str, object], model: type[T], *, where: str) -> T:
    """Turn plain data into a dataclass or pydantic model, strictly; ``where`` names the source in errors.

    Raises:
        ConfigError: as in ``load_toml``.
    """
    from pydantic import TypeAdapter, ValidationError

    _refuse_keys(data, where)
    adapter = TypeAdapter(model)
    # By way of JSON, because that is pydantic's strict mode in which an array is a tuple and a
    # string a path or a Decimal, but "4" is not a number and true is not 1.
    document = json.dumps(data, default=str)
    try:
        return adapter.validate_json(document, strict=True, extra="forbid")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
    lines = [_problem(problem, adapter) for problem in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - SHOWN_PROBLEMS} more")
    raise ConfigError(f"{where}: " + "; ".join(lines))


def _override(node: object, parts: Sequence[str], value: object, key: str) -> object:
    """The node, changed in place: what ``parts`` lead to is ``value``."""
    if not parts:
        return value
    here, part = ".".join(key.split(".")[: -len(parts)]) or "the file", parts[0]
    if isinstance(node, dict):
        table = cast(Table, node)
        table[part] = _override(table.get(part, {}), parts[1:], value, key)
    elif isinstance(node, list):
        items = cast("list[object]", node)
        if not part.isdecimal() or int(part) >= len(items):
            raise ConfigError(
                f"override {key}: {here} has entries 0 to {len(items) - 1}, got {part!r}"
            )
        items[int(part)] = _override(items[int(part)], parts[1:], value, key)
    else:
        raise ConfigError(f"override {key}: {here} holds a {type(node).__name__}, expected a table")
    return cast(object, node)


def _toml_value(text: str) -> object:
    """A TOML value, or else the text itself (a word without quotes, as one types it on a command line)."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _refuse_keys(node: object, where: str, path: str = "") -> None:
    """Raise where an API key seems to be in the file; the message never shows it."""
    inside: Iterable[tuple[object, object]] = ()
    if isinstance(node, Mapping):
        inside = cast("Mapping[object, object]", node).items()
    elif isinstance(node, list):
        inside = enumerate(cast("list[object]", node))
    for name, value in inside:
        here = f"{path}.{name}" if path else str(name)
        if isinstance(value, str) and (_KEY_NAME.fullmatch(str(name)) or _KEY_VALUE.search(value)):
            raise ConfigError(
                f"{where}: {here}: looks like a key (not shown); keys come from the environment only: expected "
                "api_key_env with the name of an environment variable"
            )
        _refuse_keys(value, where, here)


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
    schema = adapter.json_schema()
    best = nearest(".".join(names), _known_keys(schema, schema.get("$defs", {})))
    if best is None:
        return ""
    same_table = best.rpartition(".")[0] == ".".join(names[:-1])
    return f"; the nearest known key is {best.rpartition('.')[2] if same_table else best!r}"


def _known_keys(
    node: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Every key of a JSON schema, dotted, the indices of arrays left out."""
    for name, child in node.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _known_keys(child, definitions, f"{prefix}{name}.")
    named = definitions.get(node.get("$ref", "").rpartition("/")[2], {})
    for child in filter(None, (named, node.get("items"), *node.get("anyOf", ()))):
        yield from _known_keys(child, definitions, prefix)


def shorten(value: object) -> str:
    """The value as it would be written in Python, cut to a length that fits into a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
