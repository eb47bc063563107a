"""Values survive the encoding, and only plain values come out of it, whatever bytes go in."""

from __future__ import annotations

import json
import math
import time
from ast import literal_eval
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, strategies as st

from openconductor.sandboxes.encoding import MAX_HASHED, NotPlain, canonical, decode, encode

Strategy = st.SearchStrategy[Any]
SIMPLE: Strategy = st.none() | st.booleans() | st.integers()


def frozen(inner: Strategy) -> Strategy:
    return st.tuples(inner, inner) | st.frozensets(inner, max_size=4)


atoms = SIMPLE | st.floats(allow_nan=False) | st.text() | st.binary()
hashable = st.recursive(atoms, frozen, max_leaves=6)


def containers(inner: Strategy) -> Strategy:
    sequences = st.lists(inner, max_size=4) | st.tuples(inner, inner)
    sets = st.sets(hashable, max_size=4)
    return sequences | sets | st.dictionaries(hashable, inner, max_size=4)


numbers = st.complex_numbers(allow_nan=False)
values = st.recursive(hashable | numbers, containers, max_leaves=12)


def same(value: object, other: object, **rules: bool) -> bool:
    return canonical(encode(value), **rules) == canonical(encode(other), **rules)


@given(values)
def test_a_plain_value_is_one_line_of_json_and_comes_back_as_it_was(value: object) -> None:
    text = encode(value)
    assert "\n" not in text
    assert text.isascii()
    json.loads(text)
    back = decode(text)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))
    assert same(value, value)


@given(values, values)
def test_by_value_the_normal_forms_are_equal_exactly_where_python_says_so(
    value: object, other: object
) -> None:
    assert same(value, other, by_value=True) is (value == other)


NAMES = st.sampled_from(["dict", "set", "tuple", "int", "bytes", "complex", "x"])


def branches(inner: Strategy) -> Strategy:
    return st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2)


leaves = SIMPLE | st.floats() | st.text(max_size=5)
TREES = st.recursive(leaves, branches, max_leaves=8)


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
    assert isinstance(back, float)
    assert math.isnan(back)
    assert same([math.nan], [-math.nan])


def read_values(text: str) -> list[Any]:
    """Read a Python literal a line."""
    return [literal_eval(line) for line in text.strip().splitlines()]


ALIKE = """
[1, 2]
(1, 2)
{1, 2}
{1: 2}
[1.0, 2.0]
[True, 2]
"12"
b"12"
[2, 1]
"""


def test_types_and_the_order_of_sequences_are_told_apart() -> None:
    alike = [frozenset({1, 2}), *read_values(ALIKE)]
    forms = {canonical(encode(value)) for value in alike}
    assert len(forms) == len(alike) == 10
    assert same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same({3, 1, 2}, {1, 2, 3})
    assert same([0.0, 0j], [-0.0, complex(-0.0, -0.0)]), "zero has no sign in normal form"
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]  # type: ignore[call-overload]


EQUAL = """
1, 1.0
1, True
0.0, -0.0
2, 2 + 0j
{1: "a"}, {True: "a"}
"""
DIFFERENT = """
9007199254740992, 9007199254740994.0
1.5, 1
(1,), [1]
"1", 1
None, 0
1j, 1
"""


def test_by_value_numbers_and_kinds_of_sets_are_one() -> None:
    assert same({1}, frozenset({1.0}), by_value=True)
    for value, other in read_values(EQUAL):
        assert same(value, other, by_value=True)
    for value, other in read_values(DIFFERENT):
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
    check_plain(Liar([1, 2]), [1, 2])
    check_plain(Number(5), 5)
    check_plain(Colour.RED, 3)
    check_plain(point, (1, 2))
    check_plain(Counter("aab"), {"a": 2, "b": 1})
    check_plain(OrderedDict(a=1), {"a": 1})
    check_plain(defaultdict(list, {1: [2]}), {1: [2]})


def check_plain(value: object, plain: object) -> None:
    """Check that a value comes back as this plain one."""
    back = decode(encode(value))
    assert back == plain
    assert type(back) is type(plain)


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
