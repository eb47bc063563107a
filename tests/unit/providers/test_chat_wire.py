"""The chat wire as pure functions: bodies, usage, event streams cut anywhere."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.errors import ConfigError, TruncatedResponse, WorkerError
from openconductor.providers.chat_failures import excerpt, failure
from openconductor.providers.chat_wire import (
    EventStream,
    StreamedReply,
    encode,
    finish_reason,
    read_body,
    read_usage,
    request_body,
)
from openconductor.types import Message, Sampling


def test_the_body_on_record_is_made_of_plain_json_types() -> None:
    body = MappingProxyType({"budget": Decimal(128), "top_p": Decimal("0.5"), "stop": ("a", "b"), "x": None})
    made = request_body("m", (), Sampling(body=body), stream=False)
    assert made == {"model": "m", "messages": [], "budget": 128, "top_p": 0.5, "stop": ["a", "b"], "x": None}
    assert json.loads(encode(made)) == made


def test_a_limit_in_the_body_replaces_the_samplings() -> None:
    made = request_body("m", (), Sampling(max_tokens=5, body={"max_completion_tokens": 9}), stream=False)
    assert "max_tokens" not in made
    assert made["max_completion_tokens"] == 9


def test_a_turn_of_images_alone_has_no_text_part() -> None:
    made = request_body("m", (Message("user", "", ({"type": "image_url"},)),), Sampling(), stream=False)
    assert made["messages"] == [{"role": "user", "content": [{"type": "image_url"}]}]


def test_a_lone_surrogate_can_be_sent() -> None:
    assert b"\\ud800" in encode(request_body("m", (Message("user", "\ud800"),), Sampling(), stream=False))


@pytest.mark.parametrize("value", [object(), {1, 2}, float("inf"), b"x"], ids=repr)
def test_a_value_that_json_does_not_know_is_a_config_error(value: object) -> None:
    with pytest.raises(ConfigError):
        encode({"x": value})


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, (0, 0, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 4}, (10, 0, 4, 0)),
        # reasoning left out of completion_tokens: the total knows
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 6},
            },
            (10, 0, 10, 6),
        ),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}, (10, 8, 0, 0)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, (10, 10, 0, 0)),
        ({"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": None}, (0, 0, 0, 0)),
        ({"prompt_tokens": "10", "completion_tokens": 1.5}, (0, 0, 0, 0)),
    ],
)
def test_usage_is_read_and_made_consistent(usage: dict[str, object], expected: tuple[int, ...]) -> None:
    read = read_usage(usage)
    assert (read.input_tokens, read.cached_tokens, read.output_tokens, read.reasoning_tokens) == expected


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
        ("content_filter: SAFETY", "content_filter"),
    ],
)
def test_documented_finish_reasons_have_our_word(reason: str, ours: str) -> None:
    assert finish_reason(reason, 0) == ours


def test_no_finish_reason_is_a_cut_and_an_unknown_one_a_failure() -> None:
    with pytest.raises(TruncatedResponse):
        finish_reason(None, 10)
    with pytest.raises(WorkerError, match="mystery"):
        finish_reason("mystery", 10)


def test_content_in_typed_parts_is_text_and_reasoning() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
        {"type": "reference", "ids": [1]},
    ]
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    said = read_body(json.dumps(body).encode())
    assert (said.text, said.reasoning) == ("4", "hm")


def test_a_tool_call_whose_function_is_no_object_breaks_nothing() -> None:
    reply = StreamedReply(None)
    for function in ("f", None, {"name": "f", "arguments": 3}, {"arguments": "{}"}, 7):
        call = {"index": 0, "id": "a", "function": function}
        choice = {"delta": {"tool_calls": [call, "nonsense"]}, "finish_reason": "tool_calls"}
        reply.add(json.dumps({"choices": [choice]}).encode())
    assert reply.completion().tool_calls == ({"id": "a", "function": {"name": "f", "arguments": "{}"}},)


def test_only_the_first_choice_is_read() -> None:
    reply = StreamedReply(None)
    for index, text in ((1, "other"), (0, "mine")):
        choice = {"index": index, "delta": {"content": text}, "finish_reason": "stop"}
        assert not reply.add(json.dumps({"choices": [choice]}).encode())
    assert reply.completion().text == "mine"


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


def test_a_key_is_scrubbed_before_the_words_are_cut() -> None:
    secret = "k" * 40
    said = excerpt("x" * 280 + secret, secret)
    assert "kk" not in said
    assert len(said) <= 300
    assert "kk" not in str(failure(500, f"<p>{secret}".encode(), secret=secret))


@given(raw=st.binary(max_size=60), status=st.integers(min_value=300, max_value=599))
def test_any_body_of_a_failure_is_a_typed_error(raw: bytes, status: int) -> None:
    error = failure(status, raw)
    assert isinstance(error, WorkerError)
    assert error.status == status


KEYS = st.sampled_from(
    ["choices", "message", "delta", "content", "finish_reason", "usage", "error", "index", "tool_calls", "function"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(data=JSON)
def test_any_json_is_a_completion_or_a_typed_error(data: object) -> None:
    raw = json.dumps(data).encode()
    for read in (read_body, lambda data: (reply := StreamedReply(None)).add(data) or reply.completion()):
        try:
            read(raw)
        except WorkerError:
            continue
