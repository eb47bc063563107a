"""Values survive the encoding, and only plain values come out of it, whatever bytes go in."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from openconductor.sandboxes.encoding import MAX_HASHED, NotPlain, canonical, decode, encode

hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)
values = st.recursive(
    hashable | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(hashable, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(value: object, other: object, **rules: bool) -> bool:
    return canonical(encode(value), **rules) == canonical(encode(other), **rules)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(values)
def test_a_plain_value_is_one_line_of_json_and_comes_back_as_it_was(value: object) -> None:
    text = encode(value)
    assert "\n" not in text and text.isascii()
    json.loads(text)
    back = decode(text)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))
    assert same(value, value)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(values, values)
def test_by_value_the_normal_forms_are_equal_exactly_where_python_says_so(
    value: object, other: object
) -> None:
    assert same(value, other, by_value=True) is (value == other)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dict", "set", "tuple", "int", "bytes", "complex", "x"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


@given(st.text(max_size=60) | TREES.map(json.dumps))
def test_any_text_is_a_value_or_is_refused(text: str) -> None:
    for read in (decode, canonical):
        try:
            read(text)
        except NotPlain:
            continue


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, 10**4000, -(2**64), -1, "\ud800", "é\0", b"\0", -0.0, 1e-320]
)
def test_a_value_at_an_edge_comes_back(value: object) -> None:
    assert repr(decode(encode(value))) == repr(value)


def test_what_python_cannot_print_or_compare_comes_back() -> None:
    assert decode(encode(-(10**20_000))) == -(10**20_000)
    back = decode(encode(math.nan))
    assert isinstance(back, float) and math.isnan(back)
    assert same([math.nan], [-math.nan])


def test_types_and_the_order_of_sequences_are_told_apart() -> None:
    alike = [
        [1, 2],
        (1, 2),
        {1, 2},
        frozenset({1, 2}),
        {1: 2},
        [1.0, 2.0],
        [True, 2],
        "12",
        b"12",
        [2, 1],
    ]
    assert len({canonical(encode(value)) for value in alike}) == len(alike)
    assert same({"a": 1, "b": 2}, {"b": 2, "a": 1}) and same({3, 1, 2}, {1, 2, 3})
    assert same([0.0, 0j], [-0.0, complex(-0.0, -0.0)]), "zero has no sign in normal form"
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]  # type: ignore[call-overload]


def test_by_value_numbers_and_kinds_of_sets_are_one() -> None:
    for value, other in [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (2, 2 + 0j),
        ({1}, frozenset({1.0})),
        ({1: "a"}, {True: "a"}),
    ]:
        assert same(value, other, by_value=True)
    different = [(2**53, 2.0**53 + 2), (1.5, 1), ((1,), [1]), ("1", 1), (None, 0), (1j, 1)]
    for value, other in different:
        assert not same(value, other, by_value=True)


def test_a_subclass_counts_as_what_it_extends_by_the_base_classs_methods() -> None:
    class Liar(list):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(["lies"])

        def __eq__(self, other: object) -> bool:
            return True

        def __len__(self) -> int:
            return 7

        __hash__ = None  # type: ignore[assignment]

    class Number(int):
        def __add__(self, other: int) -> int:
            return 42

    class Colour(IntEnum):
        RED = 3

    point = namedtuple("Point", "x y")(1, 2)  # type: ignore[misc]
    for value, plain in [
        (Liar([1, 2]), [1, 2]),
        (Number(5), 5),
        (Colour.RED, 3),
        (point, (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
    ]:
        back = decode(encode(value))
        assert back == plain and type(back) is type(plain)


class Claims:
    """A class that claims to be an int."""

    __class__ = int  # type: ignore[assignment]

    def __index__(self) -> int:
        return 1


OBJECTS = [object(), range(3), iter([]), len, [object()], {1: set}, bytearray(b"x"), ..., Claims()]


@pytest.mark.parametrize("value", OBJECTS, ids=range(9))
def test_what_is_no_plain_value_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(NotPlain, match=r"type|Not"):
        encode(value)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(NotPlain, match="levels"):
        encode(endless)


def test_values_chosen_to_collide_cost_nothing() -> None:
    prime = 2**61 - 1  # all its multiples have the hash 0
    forged = f'{{"set": {encode([index * prime for index in range(50_000)])}}}'
    begun = time.monotonic()
    canonical(forged)
    with pytest.raises(NotPlain, match=str(MAX_HASHED)):
        decode(forged)
    assert time.monotonic() - begun < 20, "quadratic: as a set this would take minutes"


NO_ENCODINGS = """
1 2
nul
'a'
{"set": 5}
{"set": [1], "tuple": []}
{}
{"list": [1]}
{"int": 7}
{"int": "x"}
{"bytes": "xx"}
{"complex": ["1", "2"]}
{"tuple": {"dict": [[1, 2]]}}
"""
DEEP = 100_000
TOO_LARGE = ["9" * 5000, "[" * DEEP, '{"tuple": [' * DEEP, "[" * DEEP + "]" * DEEP]


@pytest.mark.parametrize("text", [*NO_ENCODINGS.split("\n"), *TOO_LARGE], ids=range(18))
def test_a_text_that_is_no_encoding_or_too_deep_is_refused(text: str) -> None:
    for read in (decode, canonical):
        with pytest.raises(NotPlain):
            read(text)


@pytest.mark.parametrize("text", ['{"dict": [[[1], 1]]}', '{"set": [[1]]}', '{"dict": [1]}'])
def test_a_key_that_cannot_be_hashed_is_refused(text: str) -> None:
    with pytest.raises(NotPlain, match="cannot be a value"):
        decode(text)
