"""Server-sent events, cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from openconductor.providers.event_stream import EventStream


@given(
    texts=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6),
    cuts=st.lists(st.integers(min_value=0, max_value=2000), max_size=30),
    newline=st.sampled_from([b"\n", b"\r\n"]),
    space=st.sampled_from([b"", b" "]),
    comments=st.booleans(),
)
def test_an_event_stream_is_the_same_wherever_it_is_cut(
    texts: list[str], cuts: list[int], newline: bytes, space: bytes, comments: bool
) -> None:
    wire = b""
    for text in texts:
        wire += (b": ping" + newline + b"event: x" + newline) if comments else b""
        wire += b"data:" + space + json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass") + newline * 2
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    events = EventStream()
    pieces = [wire[start:end] for start, end in pairwise(edges)]
    found = [data for piece in pieces for data in events.feed(piece)]
    assert [json.loads(data.decode("utf-8", "surrogatepass")) for data in found] == texts
    assert events.end() is None


def test_lines_of_one_event_are_joined_and_the_last_needs_no_blank_line() -> None:
    events = EventStream()
    assert events.feed(b'data: {"a":\ndata: 1}\n\ndata: x') == [b'{"a":\n1}']
    assert events.end() == b"x"
    assert events.end() is None


def test_a_long_line_in_small_pieces_is_joined_once() -> None:
    events = EventStream()
    for _ in range(50_000):
        assert events.feed(b"y") == []
    assert events.end() is None
    events = EventStream()
    events.feed(b"data: ")
    for _ in range(50_000):
        events.feed(b"y")
    assert events.feed(b"\n\n") == [b"y" * 50_000]


def test_a_stream_gives_its_events_as_they_end_and_nothing_twice() -> None:
    events = EventStream()
    assert events.feed(b"data: 1\n") == []
    assert events.feed(b"\n") == [b"1"]
    assert events.feed(b"\n\ndata:2\r\n\r\ndata: 3\n\nda") == [b"2", b"3"]
    assert events.feed(b"ta: 4\n\n\n") == [b"4"]
    assert events.feed(b"id: 7\nretry: 3\n\n") == []
    assert events.end() is None
