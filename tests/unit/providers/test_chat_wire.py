"""The chat wire as pure functions: bodies, usage, replies in one piece and in chunks."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType

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

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def read_body(raw: bytes) -> Completion:
    reply = Reply()
    reply.body(raw)
    return reply.completion()


def read_stream(*chunks: object) -> Completion:
    reply = Reply()
    for chunk in chunks:
        assert not reply.event(json.dumps(chunk).encode())
    return reply.completion()


def delta(said: object, finish: str | None = None, **top: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}], **top}


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────
def test_the_body_on_record_is_made_of_plain_json_types() -> None:
    body = MappingProxyType(
        {"budget": Decimal(128), "top_p": Decimal("0.5"), "stop": ("a", "b"), "x": None}
    )
    made = request_body("m", (), Sampling(body=body), stream=False)
    assert made == {
        "model": "m",
        "messages": [],
        "budget": 128,
        "top_p": 0.5,
        "stop": ["a", "b"],
        "x": None,
    }
    assert json.loads(encode(made)) == made


def test_a_limit_in_the_body_replaces_the_samplings() -> None:
    made = request_body(
        "m", (), Sampling(max_tokens=5, body={"max_completion_tokens": 9}), stream=False
    )
    assert "max_tokens" not in made
    assert made["max_completion_tokens"] == 9


def test_a_part_without_a_type_holds_fields_of_the_turn_itself() -> None:
    calls = ({"id": "t1", "type": "function", "function": {"name": "add", "arguments": "{}"}},)
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    turns = (
        Message("user", "See:", (image, {"name": "ada"})),
        Message("assistant", "", ({"tool_calls": calls, "reasoning_content": "hm"},)),
        Message("tool", "4", ({"tool_call_id": "t1"},)),
        Message("system", "Be brief.", ({"role": "developer"},)),
        Message("assistant", "", ()),
    )
    assert request_body("m", turns, Sampling(), stream=False)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "See:"}, image], "name": "ada"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": list(calls),
            "reasoning_content": "hm",
        },
        {"role": "tool", "content": "4", "tool_call_id": "t1"},
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": ""},
    ]


def test_what_is_changed_after_the_call_does_not_change_its_record() -> None:
    body: dict[str, object] = {"stop": ["a"]}
    part: dict[str, object] = {"type": "image_url", "image_url": {"url": "data:,"}}
    made = request_body("m", (Message("user", "", (part,)),), Sampling(body=body), stream=False)
    sent = encode(made)
    body["stop"].append("b")  # type: ignore[attr-defined]
    part["image_url"]["url"] = "other"  # type: ignore[index]
    assert encode(made) == sent


def test_a_body_that_forbids_a_stream_is_not_asked_for_its_usage() -> None:
    made = request_body("m", (), Sampling(body={"stream": False}), stream=True)
    assert made == {"model": "m", "messages": [], "stream": False}
    made = request_body("m", (), Sampling(body={"stream_options": None}), stream=True)
    assert made == {"model": "m", "messages": [], "stream": True, "stream_options": None}


def test_a_lone_surrogate_can_be_sent() -> None:
    assert b"\\ud800" in encode(
        request_body("m", (Message("user", "\ud800"),), Sampling(), stream=False)
    )


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("inf"), Decimal("nan"), b"x"],
    ids=lambda value: repr(value).split(" at 0x")[0],
)
def test_a_value_that_json_does_not_know_is_a_config_error(value: object) -> None:
    with pytest.raises(errors.ConfigError):
        encode({"x": value})


# ── what comes back ───────────────────────────────────────────────────────────────────────────────
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
        (
            {"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": None},
            (0, 0, 0, 0),
        ),
        ({"prompt_tokens": "10", "completion_tokens": 1.5}, (0, 0, 0, 0)),
        # one figure that cannot be: the others are no bill
        ({"prompt_tokens": 10**30, "completion_tokens": 7, "total_tokens": 10**30}, (0, 0, 0, 0)),
        ({"prompt_tokens": 12, "completion_tokens": -3}, (0, 0, 0, 0)),
        ({"prompt_tokens": 12, "completion_tokens": "3", "total_tokens": 15}, (0, 0, 0, 0)),
    ],
)
def test_usage_is_read_and_made_consistent(
    usage: dict[str, object], expected: tuple[int, ...]
) -> None:
    read = read_usage(usage)
    assert (
        read.input_tokens,
        read.cached_tokens,
        read.output_tokens,
        read.reasoning_tokens,
    ) == expected


def test_documented_finish_reasons_have_our_word_and_those_of_a_break_are_a_cut() -> None:
    words = {
        "stop": "stop",
        "end_turn": "stop",
        "STOP": "stop",
        "length": "length",
        "max_tokens": "length",
    }
    words |= {"function_call": "tool_calls", "content_filter: SAFETY": "content_filter"}
    for reason, ours in words.items():
        assert read_stream(delta({"content": "4"}, reason)).finish_reason == ours
    for cut in ("error", "abort", None):
        with pytest.raises(errors.TruncatedResponse):
            read_stream(delta({"content": "4"}, cut))
    with pytest.raises(errors.MalformedResponse, match="mystery") as caught:
        read_stream(delta({"content": "4"}, "mystery"))
    assert not caught.value.retryable


def test_content_in_typed_parts_is_text_and_reasoning() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
        {"type": "reference", "ids": [1]},
    ]
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    said = read_body(json.dumps(body).encode())
    assert (said.text, said.reasoning) == ("4", "hm")


def test_only_the_first_choice_is_read() -> None:
    choices = [
        {"index": index, "delta": {"content": text}, "finish_reason": "stop"}
        for index, text in ((1, "other"), (0, "mine"))
    ]
    assert read_stream({"choices": choices}).text == "mine"
    assert read_stream(*({"choices": [choice]} for choice in choices)).text == "mine"


def test_calls_under_one_index_are_told_apart_by_id_and_name() -> None:
    pieces = [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"index": 0, "id": "a", "function": {"name": "", "arguments": ""}},
        {"id": "b", "function": {"name": "f", "arguments": '{"x":'}},
        {"id": None, "function": {"arguments": "1}"}},
        {
            "index": 2,
            "id": "c",
            "function": {"name": "f", "arguments": {"y": 2}},
        },  # as some servers send them
    ]
    said = read_stream(
        *(delta({"tool_calls": [piece]}) for piece in pieces), delta({}, "tool_calls")
    )
    assert [call["function"]["arguments"] for call in said.tool_calls] == [
        "{}",
        '{"x":1}',
        '{"y": 2}',
    ]  # type: ignore[index]


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
    reply = Reply()
    reply.event(
        json.dumps(
            delta({"content": "4"}, "stop", usage={**USAGE, "completion_tokens": 1})
        ).encode()
    )
    reply.event(json.dumps({"choices": [], "usage": USAGE}).encode())
    reply.event(
        json.dumps({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}).encode()
    )
    assert reply.completion(seconds=2.0).usage == Usage(
        input_tokens=12, output_tokens=5, seconds=2.0
    )
    reply = Reply()
    reply.event(json.dumps(delta({"content": "4"}, usage=dict.fromkeys(USAGE, 0))).encode())
    assert reply.usage is None


@pytest.mark.parametrize(
    ("error", "at_first", "later"),
    [
        ({"message": "busy", "code": 503}, errors.ServerFailed, errors.TruncatedResponse),
        ({"message": "slow down", "code": 429}, errors.RateLimited, errors.TruncatedResponse),
        ({"message": "filtered", "code": "content_filter"}, errors.Refused, errors.Refused),
        (
            {"message": "no", "code": "context_length_exceeded"},
            errors.ContextTooLong,
            errors.ContextTooLong,
        ),
    ],
)
def test_an_error_in_a_stream_is_a_refusal_of_the_call_or_a_cut_of_the_answer(
    error, at_first, later
) -> None:
    data = json.dumps({"error": error}).encode()
    with pytest.raises(at_first) as caught:
        Reply().event(data)
    assert type(caught.value) is at_first
    reply = Reply()
    reply.event(json.dumps(delta({"content": "4"})).encode())
    with pytest.raises(later) as caught:
        reply.event(data)
    assert type(caught.value) is later
    assert caught.value.status == 200  # what had come is paid for
    assert str(error["message"]) in str(caught.value)


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


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"choices": []},
        {"choices": ["4"]},
        {"choices": [{"message": "4"}]},
        {"choices": [{"message": {"content": 4}}]},
    ],
    ids=str,
)
def test_what_has_another_shape_is_malformed(shape: object) -> None:
    with pytest.raises(errors.MalformedResponse, match="expected"):
        read_body(json.dumps(shape).encode())


def test_an_object_may_stand_between_blanks_and_after_a_mark() -> None:
    assert read_object(b' \r\n{"a": 1}\n') == {"a": 1}
    assert read_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


KEYS = st.sampled_from(
    [
        "choices",
        "message",
        "delta",
        "content",
        "finish_reason",
        "usage",
        "error",
        "index",
        "tool_calls",
        "function",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(data=JSON)
def test_any_json_is_a_completion_or_a_typed_error(data: object) -> None:
    raw = json.dumps(data).encode()
    for read in (read_body, lambda raw: (reply := Reply()).event(raw) or reply.completion()):
        try:
            read(raw)
        except errors.WorkerError:
            continue


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
        wire += (b": ping" + newline + b"event: x" + newline) if comments else b""
        wire += (
            b"data:"
            + space
            + json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
            + newline * 2
        )
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
