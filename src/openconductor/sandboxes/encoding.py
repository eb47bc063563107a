"""Plain values as tagged JSON, so that no object of an untrusted program reaches the judge.

``encode`` takes None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, and
subclasses of these (taken as what they extend, by the methods of the base class). It writes a line
of JSON, in which an object of one key stands for what JSON lacks, such as ``{"tuple": [1, 2]}``.
``decode`` returns plain builtins. ``canonical`` brings two texts into a form that is equal if the
values are; it hashes nothing, so values chosen to collide cost nothing.

The text of this file is also sent into the sandbox, where each import costs: ``json`` is imported
outside alone.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# (``cast`` is in ``typing``, which would take 3 ms to import in every sandbox.)

from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 100
# The most set elements and dict keys that ``decode`` makes, because values chosen to collide would
# take quadratic time.
MAX_HASHED = 5_000
# Integers from here on are written in base 16, because Python refuses to read long decimals.
LONG = 1 << 64

_TAG_OF = {tuple: "tuple", set: "set", frozenset: "frozenset"}
_NO_NUMBER = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class NotPlain(ValueError):
    """A value or a text that the encoding cannot hold; the message names the type or the fault."""


def encode(value: object, depth: int = 0) -> str:
    """Return the text of a value, on one line; dicts keep their order.

    Raises:
        NotPlain: another type, or more than ``MAX_DEPTH`` levels (so that a list that holds itself
            ends).
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotPlain(f"more than {MAX_DEPTH} levels deep")
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if issubclass(kind, int):
        number = int.__add__(value, 0)  # type: ignore[operator]
        return int.__repr__(number) if -LONG < number < LONG else f'{{"int": "{number:x}"}}'
    if issubclass(kind, float):
        text = float.__repr__(value)  # type: ignore[arg-type]
        return _NO_NUMBER.get(text, text)
    if issubclass(kind, str):
        return encode_basestring_ascii(str.__str__(value))  # type: ignore[arg-type]
    if issubclass(kind, bytes):
        return f'{{"bytes": "{bytes.hex(value)}"}}'  # type: ignore[arg-type]
    if issubclass(kind, complex):
        real = complex.real.__get__(value)  # type: ignore[attr-defined]
        imag = complex.imag.__get__(value)  # type: ignore[attr-defined]
        return f'{{"complex": [{encode(real)}, {encode(imag)}]}}'
    if issubclass(kind, list):
        items = [encode(item, depth + 1) for item in list.__iter__(value)]  # type: ignore[arg-type]
        return f"[{', '.join(items)}]"
    if issubclass(kind, dict):
        entries = dict.items(value)  # type: ignore[arg-type]
        pairs = [f"[{encode(key, depth + 1)}, {encode(item, depth + 1)}]" for key, item in entries]
        return f'{{"dict": [{", ".join(pairs)}]}}'
    for base, tag in _TAG_OF.items():
        if issubclass(kind, base):
            return f'{{"{tag}": {encode(list(base.__iter__(value)), depth)}}}'  # type: ignore[arg-type]
    if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return encode(value.item(), depth + 1)  # type: ignore[attr-defined]
    raise NotPlain(f"a value of type {kind.__name__}")


def decode(text: str) -> object:
    """Return the value of ``encode``'s text, in builtins only.

    Raises:
        NotPlain: it is not such a text (any may be passed), or holds more than ``MAX_HASHED``
            elements of sets and keys of dicts in all.
    """
    try:
        return _value(_read(text), [])
    except NotPlain:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain(f"what cannot be a value: {error}") from error


def canonical(text: str, *, by_value: bool = False) -> str:
    """Return a text's normal form: two are equal if the values are.

    Sets and dicts are put in order, and 0.0 and -0.0 are one. Every NaN equals every other.

    Args:
        text: an encoding; any text may be passed.
        by_value: as for Python's ``==``, 1, 1.0, True and 1+0j are equal, and so are a set and a
            frozenset.

    Raises:
        NotPlain: the text is not an encoding.
    """
    try:
        return _form(_read(text), by_value)
    except RecursionError as error:
        raise NotPlain("too many levels") from error


def _read(text: str) -> "Any":
    """Return a tree, in which everything that JSON lacks is a pair of its tag and a list."""
    import json

    try:
        return json.loads(text, object_pairs_hook=_tagged)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotPlain(f"no tagged JSON: {error}"[:200]) from error


def _tagged(pairs: "list[tuple[str, Any]]") -> "Any":
    ((tag, content),) = pairs
    if isinstance(content, str):
        if tag == "int":
            return int(content, 16)
        if tag == "bytes":
            return bytes.fromhex(content)
    if isinstance(content, list):
        if tag == "complex":
            return complex(*content)
        if tag == "dict" or tag in _TAG_OF.values():
            return tag, content
    raise ValueError(f"the tag {tag!r}")


def _value(node: "Any", hashed: "list[Any]") -> object:
    if isinstance(node, list):
        return [_value(item, hashed) for item in node]
    if not isinstance(node, tuple):
        return node
    tag, items = node
    if tag == "tuple":
        return tuple(_value(item, hashed) for item in items)
    hashed += items
    if len(hashed) > MAX_HASHED:
        raise NotPlain(f"more than {MAX_HASHED} elements of sets and keys of dicts")
    if tag == "dict":
        return {_value(key, hashed): _value(item, hashed) for key, item in items}
    values = {_value(item, hashed) for item in items}
    return values if tag == "set" else frozenset(values)


def _form(node: "Any", by_value: bool) -> str:
    if isinstance(node, (list, tuple)):
        return _container_form(node, by_value)
    if by_value:
        if isinstance(node, complex) and node.imag == 0:
            node = node.real
        if isinstance(node, bool) or (isinstance(node, float) and node.is_integer()):
            node = int(node)
    # `+ 0.0` makes 0.0 of -0.0
    if isinstance(node, complex):
        return f"complex({node.real + 0.0!r},{node.imag + 0.0!r})"
    if isinstance(node, float):
        return repr(node + 0.0)
    if isinstance(node, int) and not isinstance(node, bool):
        return f"int {node:x}"
    return repr(node)


def _container_form(node: "Any", by_value: bool) -> str:
    tag, items = ("list", node) if isinstance(node, list) else node
    forms = [_form(item, by_value) for item in items]
    if tag not in {"list", "tuple"}:
        forms.sort()
    if by_value and tag == "frozenset":
        tag = "set"
    return f"{tag}[{','.join(forms)}]"
