"""The chat wire as pure functions: bodies, usage, replies in one piece and in chunks."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from openconductor import errors
from openconductor.providers.wire.chat import (
    EventStream,
    Reply,
    encode,
    read_object,
    read_usage,
    request_body,
)
from openconductor.types import Completion, Message, Sampling, Usage

CASES: Any = json.loads(Path(__file__).with_name("chat_wire.json").read_text())
USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def read_body(raw: bytes) -> Completion:
    reply = Reply()
    reply.body(raw)
    return reply.completion()


def reply_of(*chunks: object) -> Reply:
    reply = Reply()
    for chunk in chunks:
        assert not reply.event(json.dumps(chunk).encode())
    return reply


def read_stream(*chunks: object) -> Completion:
    return reply_of(*chunks).completion()


def delta(said: object, finish: str | None = None, **top: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}], **top}


def body_of(*turns: Message, stream: bool = False, **sampling: Any) -> dict[str, Any]:
    return request_body("m", turns, Sampling(**sampling), stream=stream)


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────
def test_the_body_on_record_is_made_of_plain_json_types() -> None:
    body = {"budget": Decimal(128), "top_p": Decimal("0.5"), "stop": ("a", "b"), "x": None}
    made = body_of(body=MappingProxyType(body))
    plain = {"budget": 128, "top_p": 0.5, "stop": ["a", "b"], "x": None}
    assert made == {"model": "m", "messages": [], **plain}
    assert json.loads(encode(made)) == made


def test_a_limit_in_the_body_replaces_the_samplings() -> None:
    made = body_of(max_tokens=5, body={"max_completion_tokens": 9})
    assert "max_tokens" not in made
    assert made["max_completion_tokens"] == 9


@pytest.mark.parametrize(("turn", "sent"), CASES["turns"])
def test_a_part_without_a_type_holds_fields_of_the_turn_itself(turn: Any, sent: object) -> None:
    role, content, *parts = turn
    assert body_of(Message(role, content, tuple(parts)))["messages"] == [sent]


def test_what_is_changed_after_the_call_does_not_change_its_record() -> None:
    stop = ["a"]
    image = {"url": "data:,"}
    part = {"type": "image_url", "image_url": image}
    made = body_of(Message("user", "", (part,)), body={"stop": stop})
    sent = encode(made)
    stop.append("b")
    image["url"] = "other"
    assert encode(made) == sent


@pytest.mark.parametrize("body", [{"stream": False}, {"stream": True, "stream_options": None}])
def test_a_body_that_forbids_a_stream_is_not_asked_for_its_usage(body: dict[str, object]) -> None:
    assert body_of(stream=True, body=body) == {"model": "m", "messages": [], **body}


def test_a_lone_surrogate_can_be_sent() -> None:
    assert b"\\ud800" in encode(body_of(Message("user", "\ud800")))


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("inf"), Decimal("nan"), b"x"],
    ids=lambda value: repr(value).split(" at 0x")[0],
)
def test_a_value_that_json_does_not_know_is_a_config_error(value: object) -> None:
    with pytest.raises(errors.ConfigError):
        encode({"x": value})


# ── what comes back ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("case", "usage", "expected"), CASES["usage"])
def test_usage_is_read_and_made_consistent(
    case: str, usage: dict[str, object], expected: list[int]
) -> None:
    read = read_usage(usage)
    tokens = [read.input_tokens, read.cached_tokens, read.output_tokens, read.reasoning_tokens]
    assert tokens == expected, case


@pytest.mark.parametrize(("reason", "ours"), CASES["finish reasons"])
def test_a_documented_finish_reason_has_our_word(reason: str, ours: str) -> None:
    assert read_stream(delta({"content": "4"}, reason)).finish_reason == ours


@pytest.mark.parametrize("reason", ["error", "abort", None])
def test_a_reason_of_a_break_is_a_cut(reason: str | None) -> None:
    with pytest.raises(errors.TruncatedResponse):
        read_stream(delta({"content": "4"}, reason))


def test_an_unknown_finish_reason_is_malformed_and_not_tried_again() -> None:
    with pytest.raises(errors.MalformedResponse, match="mystery") as caught:
        read_stream(delta({"content": "4"}, "mystery"))
    assert not caught.value.retryable


def test_content_in_typed_parts_is_text_and_reasoning() -> None:
    message = {"content": CASES["content in typed parts"]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    completion = read_body(json.dumps(body).encode())
    assert (completion.text, completion.reasoning) == ("4", "hm")


def test_only_the_first_choice_is_read() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    mine = {"index": 0, "delta": {"content": "mine"}, "finish_reason": "stop"}
    assert read_stream({"choices": [other, mine]}).text == "mine"
    assert read_stream({"choices": [other]}, {"choices": [mine]}).text == "mine"


def test_calls_under_one_index_are_told_apart_by_id_and_name() -> None:
    chunks = [delta({"tool_calls": [piece]}) for piece in CASES["calls under one index"]]
    calls: Any = read_stream(*chunks, delta({}, "tool_calls")).tool_calls
    arguments = [call["function"]["arguments"] for call in calls]
    assert arguments == ["{}", '{"x":1}', '{"y": 2}']


def test_a_character_that_comes_in_two_halves_is_put_together_and_a_half_alone_replaced() -> None:
    heard: list[str] = []
    reply = Reply(on_text=heard.append)
    for data in (rb"a\ud83d", rb"\ude00b", rb"\ude00", rb"\ud83d", "é".encode()):
        reply.event(b'{"choices": [{"delta": {"content": "%s", "reasoning": "\\ud83d"}}]}' % data)
    reply.event(b'{"choices": [{"delta": {"content": "\\ud83d"}, "finish_reason": "stop"}]}')
    said = reply.completion()
    assert said.text == "a😀b\ufffd\ufffdé\ufffd"
    assert "".join(heard) == said.text
    assert said.reasoning == "\ufffd" * 5
    (said.text + said.reasoning).encode()


# ── failures, and what they are known to have used ────────────────────────────────────────────────
def test_the_last_usage_counts_and_one_of_nothing_is_none() -> None:
    first = delta({"content": "4"}, "stop", usage=USAGE | {"completion_tokens": 1})
    empty = dict.fromkeys(USAGE, 0)
    reply = reply_of(first, {"choices": [], "usage": USAGE}, {"choices": [], "usage": empty})
    assert reply.completion(seconds=2.0).usage == Usage(12, output_tokens=5, seconds=2.0)
    assert reply_of(delta({"content": "4"}, usage=empty)).usage is None


@pytest.mark.parametrize(("error", "at_first", "later"), CASES["errors in streams"])
def test_an_error_in_a_stream_is_a_refusal_of_the_call_or_a_cut_of_the_answer(
    error: dict[str, Any], at_first: str, later: str
) -> None:
    data = json.dumps({"error": error}).encode()
    for reply, kind in ((Reply(), at_first), (reply_of(delta({"content": "4"})), later)):
        with pytest.raises(errors.WorkerError, match=error["message"]) as caught:
            reply.event(data)
        assert type(caught.value).__name__ == kind
    assert caught.value.status == 200  # what had come is paid for


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_a_piece_of_a_tool_call_has_a_hundred_levels_at_most(opening: str, closing: str) -> None:
    def read(levels: int) -> Completion:
        value = json.loads(opening * levels + "0" + closing * levels)
        call = {"id": "c", "function": {"name": "look", "arguments": "{}"}, "more": value}
        return read_stream(delta({"tool_calls": [call]}, "tool_calls"))

    assert read(90).tool_calls
    with pytest.raises(errors.MalformedResponse, match="without end"):
        read(110)


def test_json_that_is_cut_anywhere_is_called_so() -> None:
    whole = b'{"choices": [{"message": {"content": "4"}}], "n": -1.5e3}'
    for end in range(1, len(whole)):
        with pytest.raises(errors.TruncatedResponse):
            read_body(whole[:end])


@pytest.mark.parametrize(
    "raw",
    [
        b"{'a': 1}",
        b'{"a": 1} x',
        b"[1]",
        b"7",
        b"nonsense",
        b"\xff{}",
        b"{" + b"[" * 100_000 + b"}",
        b'{"a": }',
    ],
)
def test_what_is_no_object_is_malformed_and_drags_nothing_along(raw: bytes) -> None:
    with pytest.raises(errors.MalformedResponse) as caught:
        read_object(raw)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("shape", CASES["other shapes"], ids=str)
def test_what_has_another_shape_is_malformed(shape: object) -> None:
    with pytest.raises(errors.MalformedResponse, match="expected"):
        read_body(json.dumps(shape).encode())


def test_an_object_may_stand_between_blanks_and_after_a_mark() -> None:
    assert read_object(b' \r\n{"a": 1}\n') == {"a": 1}
    assert read_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


KEYS = ["choices", "message", "delta", "content", "finish_reason", "usage", "error", "index"]
KEYS += ["tool_calls", "function"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(data=JSON)
def test_any_json_is_a_completion_or_a_typed_error(data: object) -> None:
    with suppress(errors.WorkerError):
        read_body(json.dumps(data).encode())
    with suppress(errors.WorkerError):
        read_stream(data)


# ── events ────────────────────────────────────────────────────────────────────────────────────────
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
        data = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if comments:
            wire += b": ping" + newline + b"event: x" + newline
        wire += b"data:" + space + data + newline * 2
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    events = EventStream()
    found = [data for start, end in pairwise(edges) for data in events.feed(wire[start:end])]
    assert [json.loads(data.decode("utf-8", "surrogatepass")) for data in found] == texts
    assert events.feed(b"\n\n") == []


def test_events_come_as_they_end_with_their_lines_joined_and_nothing_twice() -> None:
    events = EventStream()
    assert events.feed(b'data: {"a":\ndata: 1}\n\ndata: x') == [b'{"a":\n1}']
    assert events.feed(b"\n") == []
    assert events.feed(b"\n\n\ndata:2\r\n\r\ndata: 3\n\nda") == [b"x", b"2", b"3"]
    assert events.feed(b"ta: 4\n\n\n") == [b"4"]
    assert events.feed(b"id: 7\nretry: 3\n\n") == []
    events.feed(b"data: ")
    for _ in range(50_000):  # a long line in small pieces is joined once
        events.feed(b"y")
    assert events.feed(b"\n\n") == [b"y" * 50_000]
