"""Strict TOML, for pool files and recipes, and the names on shelves.

Nothing is guessed: an unknown key or name is a ConfigError that names the nearest known one, and a
string is not a number. A value that looks like an API key is rejected, because keys come from the
environment only. pydantic is imported when a file is read.
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
    from pydantic_core import ErrorDetails

T = TypeVar("T")
N = TypeVar("N", bound=str)
Table = dict[str, object]

SHOWN_PROBLEMS = 5
SHOWN_CHARACTERS = 80

_KEY_NAME = re.compile(
    r"(?:x[-_])?(?:api[-_]?key|secret(?:[-_]key)?|password"
    r"|(?:access|auth|bearer)[-_]?token|token|authorization)",
    re.IGNORECASE,
)
# The prefixes of the keys of well-known services, with enough characters after them.
_KEY_VALUE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|r8|AIza)[-_]?[A-Za-z0-9_-]{20,}")
_UNREADABLE: Mapping[type, str] = {
    FileNotFoundError: "no such file",
    IsADirectoryError: "is a folder",
    RecursionError: "nested too deeply",
}
# What pydantic expects, in the words of TOML.
_TOML_WORDS: Mapping[str, str] = {
    "a valid integer": "a whole number, without quotes",
    "a valid number": "a number, without quotes",
    "a valid decimal": "a number",
    "a valid boolean": "true or false, without quotes",
    "a valid string": "a text in quotes",
    "a valid array": 'a list, such as ["a", "b"]',
    "an object": "a table, such as { key = value }",
}
_NO_VALUE = ": missing; expected a value"
_MISSING = ("missing", "missing_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def nearest(name: str, known: Iterable[str], *, at_least: float = 0.0) -> str | None:
    """Return the known name that is most like ``name``; None: nothing is known, or alike.

    Dotted names also match by their last part, so ``lr`` finds ``optim.lr``. The likeness of two
    names is between 0 and 1.

    >>> nearest("max_concurency", ["max_rounds", "max_concurrency"])
    'max_concurrency'
    """

    def likeness(candidate: str) -> float:
        whole = _similarity(name, candidate)
        leaf = _similarity(name.rpartition(".")[2], candidate.rpartition(".")[2])
        return max(whole, leaf - 0.05)

    best = max(sorted(known), key=likeness, default=None)
    return best if best is not None and likeness(best) >= at_least else None


def _similarity(name: str, other: str) -> float:
    return SequenceMatcher(None, name.lower(), other.lower()).ratio()


def registered(shelf: Mapping[str, str], what: str) -> dict[str, str]:
    """Return the names on a shelf and of entry points, with what they stand for.

    The entry points are those of other packages, of the group ``openconductor.<what>s``.
    """
    from importlib.metadata import entry_points

    names = {entry.name: entry.value for entry in entry_points(group=f"openconductor.{what}s")}
    return names | dict(shelf)


def load_registered(shelf: Mapping[str, str], name: str, *, what: str) -> object:
    """Import what a name stands for: on a shelf, an entry point, or ``module:attribute`` itself.

    A module that is named is searched on the import path, and last in the current directory, which
    stays on the path.

    Args:
        shelf: by name, ``module:attribute``; it goes before the entry points.
        name: the name.
        what: its kind, in the singular (``task``, ``baseline`` …).

    Raises:
        ConfigError: there is no such name, module or attribute (names the nearest), or a module
            that is not on the shelf raised an error when it was imported.
        ImportError: a module on the shelf cannot be imported.
    """
    if name in shelf:
        module, _, attribute = shelf[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    known = registered(shelf, what)
    expected = f"expected one of {', '.join([*sorted(known), 'module:attribute'])}"
    if known:
        expected += f"; nearest: {nearest(name.partition(':')[0], known)!r}"
    module, colon, attribute = known.get(name, name).partition(":")
    if not colon:
        raise ConfigError(f"{what}: got {name!r}, {expected}")
    here = str(Path.cwd())
    if name not in known and here not in sys.path:
        sys.path.append(here)
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # other people's code may raise anything
        message = f"{what} {name!r}: importing {module!r} (also from {here}): "
        message += f"{type(error).__name__}: {error}; {expected}"
        raise ConfigError(message) from error
    if not hasattr(imported, attribute):
        near = nearest(attribute, vars(imported))
        raise ConfigError(f"{what} {name!r}: no such attribute; nearest: {near!r}")
    return getattr(imported, attribute)


@contextmanager
def needing(where: str, extra: str = "") -> Generator[None]:
    """Turn a failed import into an error that says what to install.

    Args:
        where: what needs it.
        extra: the extra of this package; "": the package that the error names.

    Raises:
        ConfigError: something is not installed.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("openconductor"):
            raise  # a fault of ours, not something that the user lacks
        if extra:
            needed = f'requires the extra {extra!r} ({error}): pip install "openconductor[{extra}]"'
        else:
            package = error.name or "what the error names"
            needed = f"requires a package that is not installed ({error}): pip install {package}"
        raise ConfigError(f"{where} {needed}") from error


def one_of(where: str, value: str, known: Iterable[N]) -> N:
    """Return the known name that a value is.

    Raises:
        ConfigError: it is not; names the nearest.
    """
    names = list(known)
    if value not in names:
        raise ConfigError(f"{where}: got {value!r}, {_expect(names, str(value))}")
    return cast("N", value)


def check_option(option: str, known: Iterable[str], where: str) -> None:
    """Check that an option is one of those that are known.

    Raises:
        ConfigError: it is not; names the nearest.
    """
    names = list(known)
    if option not in names:
        raise ConfigError(f"{where}: got the option {option!r}, {_expect(names, option)}")


def _expect(names: Sequence[str], got: str) -> str:
    """Return the part of a message that lists the known names, and names the nearest."""
    if not names:
        return "expected one of none"
    return f"expected one of {', '.join(names)}; nearest: {nearest(got, names)!r}"


def split_name(text: str, shelf: Container[str], what: str) -> tuple[str, str, str]:
    """Return a name, its colon and the rest. A name that is not known goes on to the second colon.

    >>> split_name("moa:gpt-5", {"moa"}, "baseline")
    ('moa', ':', 'gpt-5')
    >>> split_name("mine:Vote:gpt-5", {"moa"}, "baseline")
    ('mine:Vote', ':', 'gpt-5')
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
            values are TOML, and anything else is a string (``name=fast``).

    Returns:
        The file's values, the overrides and the model's defaults together.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8 or not TOML; a key is unknown, missing
            or of the wrong type; an override is not ``key=value``; a value looks like an API key.
    """
    data = read_toml(path)
    apply_overrides(data, overrides)
    return validate(data, model, where=str(path))


def apply_overrides(data: Table, overrides: Sequence[str]) -> None:
    """Set the values of overrides (``load_toml``) in a file's tables, in place.

    Raises:
        ConfigError: one is not ``key=value``, or its value looks like an API key.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise ConfigError(
                f"override {shorten(override)}: expected key=value, with dots in the key for tables"
            )
        _reject_api_keys({parts[-1]: text.strip()}, "command line")
        _override(data, parts, _toml_value(text.strip()), key)


def read_toml(path: str | Path) -> Table:
    """Return the tables of a TOML file.

    Raises:
        ConfigError: the file is missing, a folder, unreadable, not UTF-8 or not TOML.
    """
    try:
        return cast(Table, tomllib.loads(Path(path).read_bytes().decode("utf-8")))
    except UnicodeDecodeError as error:
        message = f"{path}: byte {error.start} is not UTF-8; expected a TOML file in UTF-8"
        raise ConfigError(message) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: a NUL in the path
        reason = _UNREADABLE.get(type(error), f"cannot be read: {error}")
        message = f"{path}: {reason}; expected a TOML file"
        if isinstance(error, FileNotFoundError):
            names = [file.stem for file in Path(path).parent.glob("*.toml")]
            near = nearest(Path(path).stem, names, at_least=0.6)
            message += f"; the nearest there is '{near}.toml'" if near else ""
        raise ConfigError(message) from error


def dump_toml(values: Mapping[str, object]) -> str:
    """Return plain values as TOML that reads back as the same.

    Raises:
        ConfigError: TOML has no form for a value.
    """
    import tomlkit

    try:
        return tomlkit.dumps(values)
    except (TypeError, ValueError) as error:
        message = f"recipe: {error}; expected texts, numbers, switches, lists and tables"
        raise ConfigError(message) from error


def validate(data: Mapping[str, object], model: type[T], *, where: str) -> T:
    """Turn plain data into a dataclass or pydantic model, strictly; errors name ``where``.

    Raises:
        ConfigError: as in ``load_toml``.
    """
    from pydantic import TypeAdapter, ValidationError

    _reject_api_keys(data, where)
    adapter = TypeAdapter(model)
    # By way of JSON, because that is pydantic's strict mode in which an array is a tuple and a
    # string a path or a Decimal, but "4" is not a number and true is not 1.
    document = json.dumps(data, default=str)
    try:
        return adapter.validate_json(document, strict=True, extra="forbid")
    except ValidationError as error:
        problems = error.errors(include_url=False)
    schema = adapter.json_schema()
    problems = _without_repeats(problems, schema)
    lines = _join_missing([_problem(problem, schema) for problem in problems])
    raise ConfigError(f"{where}: " + "; ".join(_first(lines)))


def _join_missing(lines: Sequence[str]) -> list[str]:
    """Name the keys without a value together, the last of all problems."""
    places = [line.removesuffix(_NO_VALUE) for line in lines if line.endswith(_NO_VALUE)]
    joined = [line for line in lines if not line.endswith(_NO_VALUE)]
    if places:
        joined.append(", ".join(_first(places)) + _NO_VALUE)
    return joined


def _first(texts: Sequence[str]) -> list[str]:
    """Return the first of many texts, and the number of the others."""
    if len(texts) <= SHOWN_PROBLEMS:
        return list(texts)
    return [*texts[:SHOWN_PROBLEMS], f"and {len(texts) - SHOWN_PROBLEMS} more"]


def _override(node: object, parts: Sequence[str], value: object, key: str) -> object:
    """Set what ``parts`` lead to, in place; return the node, or ``value`` itself at the end."""
    if not parts:
        return value
    part = parts[0]
    above = ".".join(key.split(".")[: -len(parts)]) or "the file"
    if isinstance(node, dict):
        table = cast(Table, node)
        table[part] = _override(table.get(part, {}), parts[1:], value, key)
        return table
    if isinstance(node, list):
        items = cast("list[object]", node)
        if not part.isdecimal() or int(part) >= len(items):
            last = len(items) - 1
            raise ConfigError(f"override {key}: {above} has entries 0 to {last}, got {part!r}")
        items[int(part)] = _override(items[int(part)], parts[1:], value, key)
        return items
    raise ConfigError(f"override {key}: {above} holds a {type(node).__name__}, expected a table")


def _toml_value(text: str) -> object:
    """Return a TOML value, or else the text itself: a word without quotes, from a command line."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _reject_api_keys(node: object, where: str, path: str = "") -> None:
    """Raise ConfigError if an API key seems to be in the file; the message never shows it."""
    if isinstance(node, Mapping):
        items: Iterable[tuple[object, object]] = cast("Mapping[object, object]", node).items()
    elif isinstance(node, list):
        items = enumerate(cast("list[object]", node))
    else:
        return
    for name, value in items:
        here = f"{path}.{name}" if path else str(name)
        if isinstance(value, str) and _looks_like_key(str(name), value):
            message = f"{where}: {here}: looks like a key (not shown); keys come from the "
            message += (
                "environment only: expected api_key_env with the name of an environment variable, "
                'or "$NAME" of one in headers or query'
            )
            raise ConfigError(message)
        _reject_api_keys(value, where, here)


def _looks_like_key(name: str, value: str) -> bool:
    """Return True if a value is an API key by its name, unless it names a variable, or its form."""
    named = _KEY_NAME.fullmatch(name) and "$" not in value
    return bool(named or _KEY_VALUE.search(value))


Schema = Mapping[str, Any]


def _without_repeats(problems: Sequence[ErrorDetails], schema: Schema) -> list[ErrorDetails]:
    """Return the problems without those that only follow from others.

    They are missing keys that an unknown key is a misspelling of, and lists that are called too
    short because an entry of theirs is wrong.
    """
    misspelt: set[str] = set()
    for problem in problems:
        if problem["type"] in _UNKNOWN:
            near = _nearest_key(problem["loc"], schema) or ""
            table = [str(part) for part in problem["loc"][:-1]]
            misspelt.add(".".join([*table, near.rpartition(".")[2]]))
    entries = {str(problem["loc"][0]) for problem in problems if len(problem["loc"]) > 1}
    first: list[ErrorDetails] = []
    for problem in problems:
        repeats_key = problem["type"] in _MISSING and _place(problem) in misspelt
        repeats_entry = problem["type"] == "too_short" and _place(problem) in entries
        if not repeats_key and not repeats_entry:
            first.append(problem)
    return first


def _place(problem: ErrorDetails) -> str:
    return ".".join(str(part) for part in problem["loc"])


def _problem(problem: ErrorDetails, schema: Schema) -> str:
    """Return one of pydantic's problems as a sentence: where, what was got, what was expected."""
    key = _place(problem)
    if problem["type"] in _UNKNOWN:
        if key == "worker":
            return "[[worker]] belongs in a pool file, which --pool or the key 'pool' names"
        return f"unknown key {key!r}{suggest_key(problem['loc'], schema)}"
    items = schema.get("properties", {}).get(key, {}).get("items", {})
    if problem["type"] in _MISSING:
        if "$ref" in items:
            return f"{key}: missing; expected at least one table [[{key}]]"
        return f"{key}{_NO_VALUE}"
    if "$ref" in items and isinstance(problem["input"], dict):
        return f"{key}: got one table [{key}], expected an array of tables: write [[{key}]]"
    expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "value_error" and not key:
        return expected  # of several keys, which it names
    expected = _TOML_WORDS.get(expected, expected)
    table = schema.get("$defs", {}).get(problem.get("ctx", {}).get("class_name"), {})
    keys = table.get("required") or list(table.get("properties", {}))[:2]
    if keys:
        values = ", ".join(f"{name} = …" for name in keys)
        expected = f"a table, such as {{ {values} }}"
    return f"{key or 'the file'}: got {shorten(problem['input'])}, expected {expected}"


def suggest_key(location: Sequence[int | str], schema: Schema) -> str:
    """Return the end of a message on an unknown key: the known key that is nearest to it."""
    near = _nearest_key(location, schema)
    if near is None:
        return ""
    table, _, key = near.rpartition(".")
    if table == ".".join(_names(location)[:-1]):
        return f"; the nearest known key is {key!r}"
    return f"; the nearest known key is {near!r}"


def _nearest_key(location: Sequence[int | str], schema: Schema) -> str | None:
    """Return the known key, dotted and without indices, that is nearest to an unknown one."""
    keys = _known_keys(schema, schema.get("$defs", {}))
    return nearest(".".join(_names(location)), keys)


def _names(location: Sequence[int | str]) -> list[str]:
    return [str(part) for part in location if not isinstance(part, int)]


def _known_keys(
    node: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Yield every key of a JSON schema, dotted, without the indices of arrays."""
    for name, child in node.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _known_keys(child, definitions, f"{prefix}{name}.")
    reference = node.get("$ref", "").rpartition("/")[2]
    children = [definitions.get(reference), node.get("items"), *node.get("anyOf", ())]
    for child in children:
        if child:
            yield from _known_keys(child, definitions, prefix)


def shorten(value: object) -> str:
    """Return the value as Python writes it, cut to a length that fits into a message."""
    text = repr(value)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - 1] + "…"
