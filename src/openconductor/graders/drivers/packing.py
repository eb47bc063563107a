"""Packs values as trees of JSON, in the process of the answer.

A value of a closed set of kinds is packed whole, as a list of its tag and its parts; values of
subclasses are packed as what they extend. Every other object is kept here and packed as a handle: a
number, and the names of its classes. ``unpacking`` is the other side.
"""

# ruff: noqa: ARG005 - the functions of all kinds are called alike
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
from __future__ import annotations

import binascii
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
            for module, name, tag, *attributes in KINDS:
                known: Any = getattr(sys.modules.get(module), name, ())
                if isinstance(value, known) and (name not in EXACT or kind is known):
                    return [tag, *self._parts_of(value, attributes)]
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

    def _parts_of(self, value: Any, attributes: Sequence[str]) -> list[object]:
        if attributes and attributes[0].startswith("*"):
            return PARTS[attributes[0][1:]](self.pack, value)
        return [self.pack(getattr(value, name)) for name in attributes]

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


def parts_of_timestamp(pack: Pack, value: Any) -> list[object]:
    """Pack a moment of pandas."""
    return [pack(value.asm8), parts_of_zone(pack, value.tzinfo, value)]


def parts_of_deque(pack: Pack, value: Any) -> list[object]:
    """Pack a queue with its longest length."""
    return [[pack(item) for item in value], value.maxlen]


def items_of(pack: Pack, value: Any) -> list[object]:
    """Pack the items of a list or a set, by the methods of these."""
    for base in (list, set, frozenset):
        if isinstance(value, base):
            each: Any = base.__iter__
            return [[pack(item) for item in each(value)]]
    return [[pack(item) for item in value]]


def plainly(anew: Callable[[Any], object]) -> Callable[[Pack, Any], list[object]]:
    """Return a function that packs a scalar as what a method of its base class makes of it."""
    return lambda pack, value: [anew(value)]


def parts_of_scalar(pack: Pack, value: Any) -> list[object]:
    """Pack a scalar of numpy as an array without dimensions."""
    return parts_of_array(pack, value.reshape(()))


def parts_of_masked(pack: Pack, value: Any) -> list[object]:
    """Pack an array with a mask."""
    return [pack(value.filled()), pack(value.mask)]


def text_of_integer(value: Any) -> str:
    """Return an integer in base 16, because Python refuses to read long decimals."""
    return f"{int.__add__(value, 0):x}"


PARTS: dict[str, Callable[[Pack, Any], list[object]]] = {
    "Timestamp": parts_of_timestamp,
    "DataFrame": parts_of_frame,
    "MultiIndex": parts_of_levels,
    "Index": parts_of_index,
    "column": parts_of_column,
    "masked": parts_of_masked,
    "ndarray": parts_of_array,
    "scalar": parts_of_scalar,
    "datetime": parts_of_datetime,
    "zone": parts_of_zone,
    "deque": parts_of_deque,
    "int": plainly(text_of_integer),
    "float": plainly(float.__pos__),
    "complex": plainly(complex.__repr__),
    "str": plainly(str.__str__),
    "bytes": plainly(bytes.hex),
    "bytearray": plainly(bytearray.hex),
    "list": items_of,
    "set": items_of,
    "frozenset": items_of,
    "tuple": parts_of_tuple,
    "dict": parts_of_dict,
    "text": plainly(str),
}
"""The function that packs the parts of a kind."""
TABLE = """
    pandas Timestamp Timestamp *Timestamp
    pandas Timedelta Timedelta asm8
    pandas Period Period ordinal freqstr
    pandas Interval Interval left right closed
    pandas._libs.tslibs.nattype NaTType NaT
    pandas._libs.missing NAType NA
    pandas DataFrame DataFrame *DataFrame
    pandas Series Series index array name
    pandas RangeIndex RangeIndex start stop step name
    pandas MultiIndex MultiIndex *MultiIndex
    pandas Index Index *Index
    pandas.api.extensions ExtensionArray column *column
    pandas.api.extensions ExtensionDtype dtype *text
    numpy.ma MaskedArray masked *masked
    numpy ndarray ndarray *ndarray
    numpy generic scalar *scalar
    numpy dtype dtype *text
    datetime datetime datetime *datetime
    datetime date date year month day
    datetime time time *text
    datetime timedelta timedelta days seconds microseconds
    datetime tzinfo zone *zone
    decimal Decimal Decimal *text
    fractions Fraction Fraction *text
    pathlib PurePath Path *text
    uuid UUID UUID *text
    collections deque deque *deque
    builtins int int *int
    builtins float float *float
    builtins complex complex *complex
    builtins str str *str
    builtins bytes bytes *bytes
    builtins bytearray bytearray *bytearray
    builtins range range start stop step
    builtins list list *list
    builtins tuple tuple *tuple
    builtins set set *set
    builtins frozenset frozenset *frozenset
    builtins dict dict *dict
    collections.abc Sequence list *list
"""
KINDS = [line.split() for line in TABLE.strip().splitlines()]
"""The module and name of each kind, its tag, and its attributes or a function of ``PARTS``."""
EXACT = {"DataFrame", "Series"}
"""Kinds whose subclasses (of geopandas, for example) have more to them than is packed."""
