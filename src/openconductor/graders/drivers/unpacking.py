"""Makes values anew from the trees of ``packing``, in the trusted process of the tests.

Whatever the text says, the result is made of builtins and of classes that this process has
imported from the standard library or from ``LIBRARIES``. Nothing of the text is run. An object that
stayed in the answer's process is a ``Remote``.
"""

# ruff: noqa: ARG001, ARG005 - all makers are called alike
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import binascii
import collections
import datetime  # noqa: ICN001 - as in the other drivers
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DTYPE = re.compile(r"[<>|=]?[?biufcSUVmM]\d*(?:\[\w+\])?")
TYPED = re.compile(r"str|string(?:\[\w+\])?|U?Int\d+|Float\d+|boolean")
JUDGES = {"unittest", "test", "doctest", "pytest", "_pytest", "__test__", "program"}
"""Packages of which no class may be claimed, because tests give their classes a meaning."""
SENT_WHOLE = {
    *("builtins", "collections", "datetime", "decimal", "fractions", "numbers", "typing"),
    *("abc", "enum", "numpy", "pandas", "pathlib", "uuid"),
}
"""Packages of kinds that are sent whole, so that no handle is one of them."""
ENDS_LOOPS = (StopIteration, StopAsyncIteration, GeneratorExit)


class Forged(ValueError):
    """A tree that is of no known form."""


def unpack(tree: Any, link: Any) -> Any:
    """Return the value of a tree.

    Args:
        tree: as ``json`` reads it.
        link: makes the handles of objects that stayed where they are.

    Raises:
        Forged: it is no such tree.
    """
    if not isinstance(tree, list):
        return tree
    try:
        tag, *parts = tree
        if tag in {"handle", "iterator", "argument"}:
            return getattr(link, tag)(*parts)
        if tag in CLASSES:
            kind = getattr(__import__(CLASSES[tag]), tag)
            return kind(*(unpack(part, link) for part in parts))
        return MAKERS[tag](lambda part: unpack(part, link), *parts)
    except Forged:
        raise
    except Exception as error:
        raise Forged(f"{type(error).__name__}: {error}"[:200]) from error


def class_of(names: Any, base: type, refused: set[str]) -> type | None:
    """Return the first of some classes that this process has imported; None: it has none.

    Args:
        names: the module and name of each.
        base: the class must be this or a subclass of it.
        refused: the packages of classes that may not be claimed.
    """
    for module, name in names:
        if str(module).split(".")[0] in refused:
            continue
        kind: Any = sys.modules.get(module)
        for part in str(name).split("."):
            kind = getattr(kind, part, None)
        if isinstance(kind, type) and issubclass(kind, base):
            return kind
    return None


def unpack_error(tree: Any, link: Any) -> BaseException:
    """Return an exception of a class of this process, with the text that the answer's had."""
    names, arguments, text, attributes = tree
    kind: Any = class_of(names, BaseException, JUDGES) or Exception
    if issubclass(kind, ENDS_LOOPS):  # it would end a loop of the tests unseen
        kind = RuntimeError
    values = unpack(arguments, link)
    error: Any = None
    try:
        error = kind(*values)
        same = str(error) == text
    except Exception:  # noqa: BLE001 - a class with arguments of its own
        same = False
    if not same:
        shown = {"__str__": lambda self: text, "__module__": kind.__module__}
        kind = type(kind.__name__, (kind,), shown)
        error = kind.__new__(kind)
        error.args = tuple(values)
    for name, value in unpack(attributes, link).items():
        if isinstance(name, str) and not name.startswith("__"):
            vars(error)[name] = value
    return error


# ── the kinds ─────────────────────────────────────────────────────────────────────────────────────
def make_tuple(part: Any, items: Any, name: str = "", fields: Any = ()) -> object:
    """Make a tuple, or one with names for its items."""
    values = [part(item) for item in items]
    if not name:
        return tuple(values)
    named_tuple: Any = collections.namedtuple(name, fields)  # pyright: ignore[reportUntypedNamedTuple]
    return named_tuple(*values)


def make_dict(part: Any, name: str, pairs: Any) -> object:
    """Make a dict, or one of the kinds of ``collections``."""
    items = {part(key): part(item) for key, item in pairs}
    match name:
        case "Counter":
            return collections.Counter(items)
        case "OrderedDict":
            return collections.OrderedDict(items)
        case "defaultdict":
            return collections.defaultdict(None, items)
        case _:
            return items


def make_zone(part: Any, module: str, key: str | None, seconds: Any, name: Any) -> Any:
    """Make a time zone."""
    if module == "pytz" and key:
        return __import__("pytz").timezone(str(key))
    if module in {"zoneinfo", "backports"} and key:
        return __import__("zoneinfo").ZoneInfo(str(key))
    if seconds == 0 and name == "UTC":
        return datetime.UTC
    offset = datetime.timedelta(seconds=seconds)
    return datetime.timezone(offset, name) if name else datetime.timezone(offset)


def make_datetime(part: Any, parts: Any, fold: int, zone: Any) -> object:
    """Make a date with a time."""
    moment = datetime.datetime(*parts, fold=fold)
    if not zone:
        return moment
    made = make_zone(part, *zone)
    if zone[0] != "pytz":
        return moment.replace(tzinfo=made)
    return made.fromutc(moment - datetime.timedelta(seconds=zone[2]))


def make_array(part: Any, shape: Any, dtype: str, content: Any) -> Any:
    """Make an array of numpy."""
    numpy: Any = __import__("numpy")
    if dtype == "O":
        array = numpy.empty(len(content), dtype=object)
        for place, item in enumerate(content):
            array[place] = part(item)
        return array.reshape(shape)
    if not DTYPE.fullmatch(dtype):
        raise Forged(f"the type {dtype!r}")
    return numpy.frombuffer(binascii.a2b_base64(content), dtype).reshape(shape).copy()


def make_masked(part: Any, content: Any, mask: Any) -> Any:
    """Make an array with a mask."""
    return __import__("numpy").ma.MaskedArray(part(content), mask=part(mask))


def make_dtype(part: Any, name: str) -> Any:
    """Make a type of numpy or pandas."""
    if "object" in name and name != "object":
        raise Forged(f"the type {name!r}")
    return pandas().api.types.pandas_dtype(name)


def pandas() -> Any:
    """Return pandas; it is imported where a value needs it."""
    return __import__("pandas")


def make_column(part: Any, kind: str, *parts: Any) -> Any:
    """Make an array of pandas."""
    match kind:
        case "Categorical":
            codes, categories, ordered = parts
            make = pandas().Categorical.from_codes
            return make(part(codes), categories=part(categories), ordered=ordered is True)
        case "DatetimeArray":
            moments = pandas().DatetimeIndex(part(parts[0]))
            if parts[1]:
                moments = moments.tz_localize("UTC").tz_convert(make_zone(part, *parts[1]))
            return moments.array
        case "PeriodArray":
            return pandas().PeriodIndex.from_ordinals(part(parts[0]), freq=str(parts[1])).array
        case "IntervalArray":
            left, right, closed = parts
            make = pandas().arrays.IntervalArray.from_arrays
            return make(part(left), part(right), closed=closed)
        case "numpy":
            return part(parts[0])
        case "typed" if TYPED.fullmatch(parts[0]):
            return pandas().array([part(item) for item in parts[1]], dtype=parts[0])
        case _:
            raise Forged(f"a column of the kind {kind!r}")


def make_series(part: Any, index: Any, column: Any, name: Any = None) -> Any:
    """Make a series."""
    values = part(column)
    return pandas().Series(values, index=part(index), dtype=values.dtype, name=part(name))


def make_frame(part: Any, columns: Any, index: Any, arrays: Any) -> Any:
    """Make a frame of the array of each column."""
    rows = part(index)
    made: dict[int, Any] = {}
    for place, column in enumerate(arrays):
        values = part(column)
        made[place] = pandas().Series(values, index=rows, dtype=values.dtype)
    frame = pandas().DataFrame(made, index=None if made else rows)
    frame.columns = part(columns)
    return frame


def make_index(part: Any, column: Any, name: Any, frequency: Any = None) -> Any:
    """Make an index."""
    values = part(column)
    index = pandas().Index(values, dtype=values.dtype, name=part(name))
    if isinstance(frequency, str) and hasattr(index, "freq") and index.freq is None:
        try:
            index.freq = frequency
        except ValueError:
            return index  # the values do not keep to it
    return index


def make_levels(part: Any, levels: Any, names: Any) -> Any:
    """Make an index of several levels."""
    arrays = [part(level) for level in levels]
    return pandas().MultiIndex.from_arrays(arrays, names=part(names))


def make_timestamp(part: Any, moment: Any, zone: Any) -> Any:
    """Make a moment of pandas."""
    stamp = pandas().Timestamp(part(moment))
    return stamp.tz_localize("UTC").tz_convert(make_zone(part, *zone)) if zone else stamp


CLASSES = {
    "range": "builtins",
    "float": "builtins",
    "complex": "builtins",
    "str": "builtins",
    "Decimal": "decimal",
    "Fraction": "fractions",
    "Path": "pathlib",
    "UUID": "uuid",
    "date": "datetime",
    "timedelta": "datetime",
    "Timedelta": "pandas",
    "Interval": "pandas",
}
"""Kinds whose class makes the value of their parts, with the module of that class."""
MAKERS: dict[str, Callable[..., Any]] = {
    "int": lambda part, text: int(text, 16),
    "bytes": lambda part, text: bytes.fromhex(text),
    "bytearray": lambda part, text: bytearray.fromhex(text),
    "list": lambda part, items: [part(item) for item in items],
    "tuple": make_tuple,
    "set": lambda part, items: {part(item) for item in items},
    "frozenset": lambda part, items: frozenset(part(item) for item in items),
    "deque": lambda part, items, most: collections.deque(map(part, items), most),
    "dict": make_dict,
    "time": lambda part, text: datetime.time.fromisoformat(text),
    "datetime": make_datetime,
    "zone": make_zone,
    "ndarray": make_array,
    "scalar": lambda part, *parts: make_array(part, *parts)[()],
    "masked": make_masked,
    "dtype": make_dtype,
    "column": make_column,
    "Series": make_series,
    "DataFrame": make_frame,
    "Index": make_index,
    "RangeIndex": lambda part, *bounds: pandas().RangeIndex(*bounds[:3], name=part(bounds[3])),
    "MultiIndex": make_levels,
    "Timestamp": make_timestamp,
    "Period": lambda part, ordinal, freq: pandas().Period(ordinal=ordinal, freq=freq),
    "NaT": lambda part: pandas().NaT,
    "NA": lambda part: pandas().NA,
}
"""The function that makes each kind, by its tag."""
