"""Packs values as trees of JSON, in the process of the answer.

A value of a closed set of kinds is packed whole, as a list of its tag and its parts; values of
subclasses are packed as what they extend. Every other object is kept here and packed as a handle: a
number, and the names of its classes. ``unpacking`` is the other side.
"""

# ruff: noqa: ARG001, ARG005 - the functions of all kinds are called alike
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
from __future__ import annotations

import binascii
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Pack = Callable[[Any], object]
    """Packs a part of a value."""

MAX_DEPTH = 100
LONG = 1 << 63
EACH: Any = tuple.__iter__
ENTRIES: Any = dict.items


class Unsendable(ValueError):
    """A value that is nested too deep, or that holds itself."""


class Packer:
    """Packs values, and keeps the objects that stay here."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._depth = 0

    def pack(self, value: Any) -> object:
        """Return the tree of a value.

        Raises:
            Unsendable: it is nested too deep.
        """
        kind: Any = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int and -LONG < value < LONG:
            return value
        if self._depth > MAX_DEPTH:
            raise Unsendable(f"more than {MAX_DEPTH} levels deep")
        self._depth += 1
        try:
            for module, name, tag, parts_of in KINDS:
                known: Any = getattr(sys.modules.get(module), name, ())
                if isinstance(value, known) and (name not in EXACT or kind is known):
                    return [tag, *parts_of(self.pack, value)]
        finally:
            self._depth -= 1
        return self._keep(value, kind)

    def pack_error(self, error: BaseException) -> object:
        """Pack an exception: the names of its classes, its arguments, text and attributes."""
        arguments = list(error.args)
        if isinstance(error, OSError) and error.filename is not None and len(arguments) > 1:
            arguments.append(error.filename)
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - of the answer's own class
            text = ""
        attributes = dict(getattr(error, "__dict__", {}))
        names = names_of(type(error))
        try:
            return [names, self.pack(arguments), text, self.pack(attributes)]
        except Exception:  # noqa: BLE001 - of the answer's own class
            nothing: list[object] = []
            return [names, ["list", nothing], text, ["dict", "dict", nothing]]

    def _keep(self, value: object, kind: type) -> object:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        if hasattr(kind, "__next__"):
            return ["iterator", number]
        return ["handle", number, names_of(kind)]


def names_of(kind: type) -> list[object]:
    """Return the module and name of a class and of its bases."""
    return [[base.__module__, base.__qualname__] for base in kind.__mro__]


# ── the parts of each kind ────────────────────────────────────────────────────────────────────────
def items_of(base: Any) -> Callable[[Pack, Any], list[object]]:
    """Return a function that packs the items of a container, by the methods of its base class."""
    return lambda pack, value: [[pack(item) for item in base.__iter__(value)]]


def parts_of_tuple(pack: Pack, value: Any) -> list[object]:
    """Pack a tuple; one with names for its items is packed with them."""
    kind: Any = type(value)
    items = [pack(item) for item in EACH(value)]
    names: Any = getattr(kind, "_fields", ())
    if items and len(names) == len(items):
        return [items, kind.__name__, list(names)]
    return [items]


def parts_of_dict(pack: Pack, value: Any) -> list[object]:
    """Pack a dict, with the name of its kind if that is of ``collections``."""
    kind: Any = type(value)
    name = kind.__name__ if kind.__module__ == "collections" else "dict"
    return [name, [[pack(key), pack(item)] for key, item in ENTRIES(value)]]


def parts_of_zone(pack: Pack, zone: Any, moment: Any = None) -> list[object]:
    """Pack a time zone: its module, key, seconds from UTC and name at a moment."""
    if zone is None:
        return []
    offset = zone.utcoffset(moment)
    key = getattr(zone, "key", None) or getattr(zone, "zone", None)
    seconds = None if offset is None else offset.total_seconds()
    return [type(zone).__module__.split(".")[0], pack(key), seconds, pack(zone.tzname(moment))]


def parts_of_datetime(pack: Pack, value: Any) -> list[object]:
    """Pack a date with a time."""
    parts = [value.year, value.month, value.day, value.hour, value.minute, value.second]
    return [[*parts, value.microsecond], value.fold, parts_of_zone(pack, value.tzinfo, value)]


def parts_of_array(pack: Pack, value: Any) -> list[object]:
    """Pack an array of numpy: its shape and type, and its bytes or objects."""
    if value.dtype.hasobject or value.dtype.names:
        return [list(value.shape), "O", [pack(item) for item in value.ravel().tolist()]]
    content = binascii.b2a_base64(value.tobytes(), newline=False).decode()
    return [list(value.shape), value.dtype.str, content]


def parts_of_column(pack: Pack, value: Any) -> list[object]:
    """Pack an array of pandas by the name of its kind."""
    name = type(value).__name__
    match name:
        case "Categorical":
            return [name, pack(value.codes), pack(value.categories), value.ordered]
        case "DatetimeArray":
            zone = parts_of_zone(pack, value.dtype.tz) if value.tz is not None else []
            return [name, pack(value.asi8.view(f"M8[{value.unit}]")), zone]
        case "PeriodArray":
            return [name, pack(value.asi8), value.freqstr]
        case "IntervalArray":
            return [name, pack(value.left), pack(value.right), value.closed]
        case "NumpyExtensionArray" | "PandasArray" | "TimedeltaArray":
            return ["numpy", pack(value.to_numpy())]
        case _:
            return ["typed", str(value.dtype), [pack(item) for item in value]]


def parts_of_frame(pack: Pack, value: Any) -> list[object]:
    """Pack a frame: its columns, its index, and the array of each column."""
    arrays = [pack(value.iloc[:, place].array) for place in range(value.shape[1])]
    return [pack(value.columns), pack(value.index), arrays]


def parts_of_index(pack: Pack, value: Any) -> list[object]:
    """Pack an index: its array, name and frequency."""
    return [pack(value.array), pack(value.name), getattr(value, "freqstr", None)]


def parts_of_levels(pack: Pack, value: Any) -> list[object]:
    """Pack an index of several levels."""
    levels = [pack(value.get_level_values(level).array) for level in range(value.nlevels)]
    return [levels, pack(list(value.names))]


def text_of(pack: Pack, value: Any) -> list[object]:
    """Pack what can be made again from its text."""
    return [str(value)]


KINDS: tuple[tuple[str, str, str, Callable[[Pack, Any], list[object]]], ...] = (
    (
        "pandas",
        "Timestamp",
        "Timestamp",
        lambda pack, v: [pack(v.asm8), parts_of_zone(pack, v.tzinfo, v)],
    ),
    ("pandas", "Timedelta", "Timedelta", lambda pack, v: [pack(v.asm8)]),
    ("pandas", "Period", "Period", lambda pack, v: [v.ordinal, v.freqstr]),
    ("pandas", "Interval", "Interval", lambda pack, v: [pack(v.left), pack(v.right), v.closed]),
    ("pandas._libs.tslibs.nattype", "NaTType", "NaT", lambda pack, v: []),
    ("pandas._libs.missing", "NAType", "NA", lambda pack, v: []),
    ("pandas", "DataFrame", "DataFrame", parts_of_frame),
    ("pandas", "Series", "Series", lambda pack, v: [pack(v.index), pack(v.array), pack(v.name)]),
    ("pandas", "RangeIndex", "RangeIndex", lambda pack, v: [v.start, v.stop, v.step, pack(v.name)]),
    ("pandas", "MultiIndex", "MultiIndex", parts_of_levels),
    ("pandas", "Index", "Index", parts_of_index),
    ("pandas.api.extensions", "ExtensionArray", "column", parts_of_column),
    ("pandas.api.extensions", "ExtensionDtype", "dtype", text_of),
    ("numpy.ma", "MaskedArray", "masked", lambda pack, v: [pack(v.filled()), pack(v.mask)]),
    ("numpy", "ndarray", "ndarray", parts_of_array),
    ("numpy", "generic", "scalar", lambda pack, v: parts_of_array(pack, v.reshape(()))),
    ("numpy", "dtype", "dtype", text_of),
    ("datetime", "datetime", "datetime", parts_of_datetime),
    ("datetime", "date", "date", lambda pack, v: [[v.year, v.month, v.day]]),
    ("datetime", "time", "time", text_of),
    ("datetime", "timedelta", "timedelta", lambda pack, v: [v.days, v.seconds, v.microseconds]),
    ("datetime", "tzinfo", "zone", parts_of_zone),
    ("decimal", "Decimal", "Decimal", text_of),
    ("fractions", "Fraction", "Fraction", text_of),
    ("pathlib", "PurePath", "Path", text_of),
    ("uuid", "UUID", "UUID", text_of),
    ("collections", "deque", "deque", lambda pack, v: [[pack(item) for item in v], v.maxlen]),
    ("builtins", "int", "int", lambda pack, v: [f"{int.__add__(v, 0):x}"]),
    ("builtins", "float", "float", lambda pack, v: [float.__add__(v, 0.0)]),
    ("builtins", "complex", "complex", lambda pack, v: [complex.__repr__(v)]),
    ("builtins", "str", "str", lambda pack, v: [str.__str__(v)]),
    ("builtins", "bytes", "bytes", lambda pack, v: [bytes.hex(v)]),
    ("builtins", "bytearray", "bytearray", lambda pack, v: [bytearray.hex(v)]),
    ("builtins", "range", "range", lambda pack, v: [v.start, v.stop, v.step]),
    ("builtins", "list", "list", items_of(list)),
    ("builtins", "tuple", "tuple", parts_of_tuple),
    ("builtins", "set", "set", items_of(set)),
    ("builtins", "frozenset", "frozenset", items_of(frozenset)),
    ("builtins", "dict", "dict", parts_of_dict),
    ("collections.abc", "Sequence", "list", lambda pack, v: [[pack(item) for item in v]]),
)
"""The module and name of each kind, its tag, and the function that packs its parts; in order."""
EXACT = {"DataFrame", "Series"}
"""Kinds whose subclasses (of geopandas, for example) have more to them than is packed."""
