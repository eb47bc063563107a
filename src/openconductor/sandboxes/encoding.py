"""Plain values as bytes, so that no object of an untrusted program ever reaches the process that judges it.

In: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, and subclasses of these (taken as
what they extend, by the methods of the base class). Out: tagged bytes; and back, plain builtins only. ``canonical``
brings two encodings into a form that is equal, byte for byte, where the values are; it hashes nothing, so values chosen
to collide cost nothing.

The text of this file is also sent into the sandbox: it imports the standard library only, and little of it.
"""

# No ``from __future__`` and no ``struct`` where they can be done without: each import costs every sandbox 0.2 ms.

TYPE_CHECKING = False  # ``typing`` itself would take 3 ms to import, in every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_DEPTH = 100
MAX_HASHED = 5_000
"""Elements of sets and keys of dicts that ``decode`` makes: values chosen to collide would take it quadratic time."""

_ATOMS = {b"i", b"s", b"b"}
_MANY: "dict[bytes, Callable[[Iterator[object]], object]]" = {b"l": list, b"t": tuple, b"S": set, b"Z": frozenset}
_TAG_OF: "dict[Any, bytes]" = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}


class NotPlain(ValueError):
    """A value, or bytes, outside of what the encoding holds; the message names the type or the fault."""


def encode(value: object) -> bytes:
    """The bytes of a value; dicts keep their order.

    Raises:
        NotPlain: another type, or more than ``MAX_DEPTH`` levels (so that a list that holds itself ends).
    """
    out: list[bytes] = []
    _encode(value, out, 0)
    return b"".join(out)


def decode(data: bytes) -> object:
    """The value of ``encode``'s bytes, in builtins only.

    Raises:
        NotPlain: the bytes are not an encoding (any bytes may be passed), or hold more than ``MAX_HASHED`` elements of
            sets and keys of dicts in all.
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise NotPlain(f"{len(data) - reader.at} bytes after the value")
    return value


def canonical(data: bytes, *, numbers_by_value: bool = False, tuples_as_lists: bool = False) -> bytes:
    """An encoding's normal form: two are equal where the values are.

    Sets and dicts are put in order, and 0.0 and -0.0 are one. Every NaN equals every other.

    Args:
        data: an encoding; any bytes may be passed.
        numbers_by_value: 1, 1.0, True and 1+0j are equal, and so are a set and a frozenset, as Python's ``==`` says.
        tuples_as_lists: a tuple equals the list of its items, at every depth.

    Raises:
        NotPlain: the bytes are not an encoding.
    """
    reader = _Reader(data)
    form = _Form(reader, numbers_by_value, tuples_as_lists).value(0)
    if reader.at != len(data):
        raise NotPlain(f"{len(data) - reader.at} bytes after the value")
    return form


def _encode(value: object, out: list[bytes], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotPlain(f"more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if value is None:
        out.append(b"N")
    elif kind is bool:
        out.append(b"T" if value else b"F")
    elif issubclass(kind, int):
        number = int.__add__(value, 0)  # type: ignore[operator]
        _sized(b"i", number.to_bytes((number.bit_length() + 8) // 8, "little", signed=True), out)
    elif issubclass(kind, float):
        out.append(b"d" + _packed(float.__float__(value)))  # type: ignore[arg-type]
    elif issubclass(kind, complex):
        out.append(b"c" + _packed(complex.real.__get__(value)) + _packed(complex.imag.__get__(value)))  # type: ignore[attr-defined]
    elif issubclass(kind, str):
        _sized(b"s", str.encode(value, "utf-8", "surrogatepass"), out)  # type: ignore[arg-type]
    elif issubclass(kind, bytes):
        _sized(b"b", bytes.__getitem__(value, slice(None)), out)  # type: ignore[index]
    elif issubclass(kind, dict):
        pairs: list[tuple[object, object]] = list(dict.items(value))  # type: ignore[arg-type]
        out.append(b"m" + len(pairs).to_bytes(4, "little"))
        for key, item in pairs:
            _encode(key, out, depth + 1)
            _encode(item, out, depth + 1)
    else:
        _encode_many(value, kind, out, depth)


def _encode_many(value: object, kind: type, out: list[bytes], depth: int) -> None:
    for base, tag in _TAG_OF.items():
        if issubclass(kind, base):
            items: list[object] = list(base.__iter__(value))  # type: ignore[arg-type]
            out.append(tag + len(items).to_bytes(4, "little"))
            for item in items:
                _encode(item, out, depth + 1)
            return
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        _encode(value.item(), out, depth + 1)  # type: ignore[attr-defined]
        return
    raise NotPlain(f"a value of type {kind.__name__}")


def _packed(number: float) -> bytes:
    import struct

    return struct.pack("<d", number)


def _unpacked(content: bytes) -> float:
    import struct

    return struct.unpack("<d", content)[0]


def _sized(tag: bytes, content: bytes, out: list[bytes]) -> None:
    out.append(tag + len(content).to_bytes(4, "little"))
    out.append(content)


class _Reader:
    """Takes an encoding apart from its beginning; ``at`` is where it stands."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._hashed = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise NotPlain("the bytes end before the value does")
        self.at += count
        return self.data[self.at - count : self.at]

    def count(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def tag(self, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise NotPlain(f"more than {MAX_DEPTH} levels deep")
        return self.take(1)

    def atom(self, tag: bytes) -> object:
        """The value of a tag that holds no others."""
        if tag in b"NTF":
            return {b"N": None, b"T": True, b"F": False}[tag]
        if tag == b"d":
            return _unpacked(self.take(8))
        if tag == b"c":
            return complex(_unpacked(self.take(8)), _unpacked(self.take(8)))
        if tag not in _ATOMS:
            raise NotPlain(f"the tag {tag!r}")
        content = self.take(self.count())
        if tag == b"i":
            return int.from_bytes(content, "little", signed=True)
        if tag == b"b":
            return content
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise NotPlain("text that is no UTF-8") from error

    def value(self, depth: int) -> object:
        tag = self.tag(depth)
        if tag != b"m" and tag not in _MANY:
            return self.atom(tag)
        count = self.count()
        if tag in b"mSZ":
            self._hashed += count
            if self._hashed > MAX_HASHED:
                raise NotPlain(f"more than {MAX_HASHED} elements of sets and keys of dicts")
        try:
            if tag == b"m":
                return {self.value(depth + 1): self.value(depth + 1) for _ in range(count)}
            return _MANY[tag](self.value(depth + 1) for _ in range(count))
        except TypeError as error:
            raise NotPlain("a key or element that cannot be hashed") from error


class _Form:
    """Writes what a reader reads in its normal form."""

    def __init__(self, reader: _Reader, numbers_by_value: bool, tuples_as_lists: bool) -> None:
        self._reader = reader
        self._numbers_by_value = numbers_by_value
        self._tuples_as_lists = tuples_as_lists

    def value(self, depth: int) -> bytes:
        tag = self._reader.tag(depth)
        if tag == b"m":
            pairs = [self.value(depth + 1) + self.value(depth + 1) for _ in range(self._reader.count())]
            return self._many(tag, sorted(pairs))
        if tag in _MANY:
            items = [self.value(depth + 1) for _ in range(self._reader.count())]
            if tag == b"t" and self._tuples_as_lists:
                tag = b"l"
            if tag == b"Z" and self._numbers_by_value:
                tag = b"S"
            return self._many(tag, sorted(items) if tag in b"SZ" else items)
        return self._atom(self._reader.atom(tag))

    @staticmethod
    def _many(tag: bytes, items: list[bytes]) -> bytes:
        return tag + len(items).to_bytes(4, "little") + b"".join(items)

    def _atom(self, value: object) -> bytes:
        if self._numbers_by_value and isinstance(value, (bool, float, complex)):
            value = _simplest(value)
        if isinstance(value, float):
            value = float("nan") if value != value else value + 0.0  # noqa: PLR0124 - ``math`` is one more import
        if isinstance(value, complex):
            value = complex(value.real + 0.0, value.imag + 0.0)
        return encode(value)


def _simplest(value: complex) -> complex:
    """The integer, else the float, that equals a number; itself where there is none."""
    if isinstance(value, complex):
        if value.imag != 0:
            return value
        value = value.real
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return int(value)
