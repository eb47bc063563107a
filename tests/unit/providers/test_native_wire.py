"""Anthropic's and Google's wires as pure functions: bodies, addresses, usage, finish reasons."""

from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

from openconductor.errors import EmptyResponse, MalformedResponse, Refused, TruncatedResponse
from openconductor.providers.chat_failures import Secret
from openconductor.providers.native_wire import (
    WIRES,
    AnthropicWatch,
    GoogleWatch,
    Watch,
    anthropic_usage,
    google_usage,
)
from openconductor.types import Sampling, Usage

TURNS = {
    "anthropic": {"model": "other", "max_tokens": 1, "messages": ["m"], "system": "s", "tools": ["t"], "stream": True},
    "google": {"contents": ["c"], "systemInstruction": "s", "generationConfig": {"responseModalities": ["TEXT"]}},
}


def body(vendor: str, sampling: Sampling, *, stream: bool = False) -> dict[str, Any]:
    return WIRES[vendor].body("m", TURNS[vendor], sampling, stream=stream)


def test_of_a_librarys_body_only_the_turns_are_taken() -> None:
    assert body("anthropic", Sampling(max_tokens=9)) == {
        "model": "m",
        "max_tokens": 9,
        "system": "s",
        "messages": ["m"],
    }
    assert body("google", Sampling()) == {"contents": ["c"], "systemInstruction": "s"}


def test_the_users_body_has_the_last_word_in_json_s_own_types() -> None:
    over = MappingProxyType({"max_tokens": 7, "thinking": {"budget": Decimal(1024)}, "stop": ("a",), "stream": False})
    got = body("anthropic", Sampling(temperature=0.2, max_tokens=9, body=over), stream=True)
    assert (got["max_tokens"], got["thinking"], got["stop"]) == (7, {"budget": 1024}, ["a"])
    assert got["stream"] is False
    assert not WIRES["anthropic"].streams(Sampling(body=over), wanted=True)
    got = body(
        "google", Sampling(temperature=0.2, body={"generationConfig": {"thinkingConfig": {"thinkingBudget": 128}}})
    )
    assert got["generationConfig"] == {"temperature": 0.2, "thinkingConfig": {"thinkingBudget": 128}}


def test_a_request_goes_to_the_models_own_address() -> None:
    google = WIRES["google"]
    assert (
        google.url("https://g", "gemini-2.5-pro", stream=False)
        == "https://g/v1beta/models/gemini-2.5-pro:generateContent"
    )
    assert google.url("https://g", "tunedModels/x", stream=True).endswith(
        "/tunedModels/x:streamGenerateContent?alt=sse"
    )
    assert google.url("https://g", "a?b#c", stream=False) == "https://g/v1beta/models/a%3Fb%23c:generateContent"
    assert WIRES["anthropic"].url("https://a", "claude", stream=True) == "https://a/v1/messages"


def test_the_key_is_in_one_header_or_in_none() -> None:
    for wire in WIRES.values():
        assert list(wire.headers(Secret("k" * 20)).values()).count("k" * 20) == 1
        assert "k" * 20 not in wire.headers(Secret()).values()


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({}, Usage()),
        ({"input_tokens": 10, "output_tokens": 7}, Usage(10, 0, 7)),
        ({"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}, Usage(9, 5)),
        ({"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 4}}, Usage(0, 0, 7, 4)),
        ({"input_tokens": "x", "output_tokens": None, "cache_read_input_tokens": -3}, Usage()),
        ({"input_tokens": True, "output_tokens": 10**12}, Usage()),
    ],
    ids=str,
)
def test_the_usage_of_anthropic_counts_what_was_cached_as_input(counts: dict[str, Any], usage: Usage) -> None:
    assert anthropic_usage(counts) == usage


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({}, Usage()),
        ({"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 30}, Usage(10, 0, 32, 30)),
        ({"promptTokenCount": 10, "toolUsePromptTokenCount": 4, "cachedContentTokenCount": 20}, Usage(14, 14)),
        ({"promptTokenCount": "x"}, Usage()),
    ],
    ids=str,
)
def test_the_usage_of_google_counts_thoughts_as_output(counts: dict[str, Any], usage: Usage) -> None:
    assert google_usage(counts) == usage


@pytest.mark.parametrize("reason", sorted(AnthropicWatch.finish_reasons))
def test_every_finish_reason_of_anthropic_means_something(reason: str) -> None:
    watch = AnthropicWatch()
    watch.body({"type": "message", "content": [], "stop_reason": reason, "usage": {"output_tokens": 2}})
    assert watch.finish_reason(1, calls=False) == AnthropicWatch.finish_reasons[reason]
    assert watch.usage == Usage(output_tokens=2)


@pytest.mark.parametrize("reason", sorted(GoogleWatch.finish_reasons))
def test_every_finish_reason_of_google_means_something(reason: str) -> None:
    watch = GoogleWatch()
    watch.body({"candidates": [{"finishReason": reason}], "usageMetadata": {"promptTokenCount": 2}})
    assert watch.finish_reason(1, calls=False) == GoogleWatch.finish_reasons[reason]
    assert watch.usage == Usage(input_tokens=2)


def test_an_answer_of_google_that_calls_tools_says_so() -> None:
    watch = GoogleWatch()
    watch.body({"candidates": [{"finishReason": "STOP"}]})
    assert watch.finish_reason(0, calls=True) == "tool_calls"


def test_a_finish_reason_that_is_not_known_fails_and_is_not_asked_for_again() -> None:
    for watch, data in (
        (AnthropicWatch(), {"type": "message", "content": [], "stop_reason": "martian"}),
        (GoogleWatch(), {"candidates": [{"finishReason": "MARTIAN"}], "usageMetadata": {"promptTokenCount": 2}}),
    ):
        with pytest.raises(MalformedResponse, match=r"(?i)unknown finish reason 'martian'; expected one of") as caught:
            watch.body(data)
        assert not caught.value.retryable
    assert watch.usage == Usage(input_tokens=2)


@pytest.mark.parametrize("reason", GoogleWatch.spoilt)
def test_an_answer_that_came_to_nothing_may_be_asked_for_again(reason: str) -> None:
    with pytest.raises(MalformedResponse, match="came to nothing") as caught:
        GoogleWatch().event({"candidates": [{"finishReason": reason}]})
    assert caught.value.retryable


def test_what_a_stream_used_is_known_from_its_end_on() -> None:
    watch = AnthropicWatch()
    watch.event({"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}})
    assert watch.usage is None
    watch.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}})
    assert watch.usage == Usage(10, 0, 7)
    google = GoogleWatch()
    google.event({"candidates": [{"content": {"parts": [{"text": "4"}]}}], "usageMetadata": {"promptTokenCount": 10}})
    assert google.usage is None
    google.event({"candidates": [{"finishReason": "STOP"}]})
    google.event({"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1}})
    assert google.usage == Usage(10, 0, 1)


def test_a_stream_needs_its_reason_and_its_last_event() -> None:
    watch = AnthropicWatch()
    assert not watch.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    with pytest.raises(TruncatedResponse, match="without its last event, after 3 characters"):
        watch.finish_reason(3, calls=False)
    assert watch.event({"type": "message_stop"})
    assert watch.finish_reason(3, calls=False) == "stop"
    with pytest.raises(TruncatedResponse, match="without a finish reason"):
        GoogleWatch().finish_reason(3, calls=False)


def test_nothing_said_is_a_refusal_a_limit_or_an_empty_response() -> None:
    def nothing(reason: str) -> Watch:
        watch = AnthropicWatch()
        watch.body({"type": "message", "content": [], "stop_reason": reason})
        return watch

    with pytest.raises(Refused):
        nothing("refusal").finish_reason(0, calls=False)
    with pytest.raises(EmptyResponse):
        nothing("end_turn").finish_reason(0, calls=False)
    assert nothing("max_tokens").finish_reason(0, calls=False) == "length"


@pytest.mark.parametrize(
    ("watch", "data"),
    [
        (AnthropicWatch(), {"type": "message", "content": [], "usage": {"input_tokens": 1}}),
        (AnthropicWatch(), {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}),
        (AnthropicWatch(), {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}),
        (AnthropicWatch(), {"type": "ping"}),
        (GoogleWatch(), {"candidates": [], "usageMetadata": {"promptTokenCount": 1}}),
    ],
    ids=lambda value: str(value).split(" object at")[0],
)
def test_a_library_gets_everything_but_the_usage(watch: Watch, data: dict[str, Any]) -> None:
    read = repr(watch.for_the_library(data))
    assert "1" not in read
    assert data["type"] in read if "type" in data else "candidates" in read
