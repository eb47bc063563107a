"""Chat completions: the options that reach the worker that answers, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from openconductor.serving.apis.chat import CHAT
from openconductor.serving.apis.wire import ClientRequest, RequestFailed

ADD = {"type": "function", "function": {"name": "add"}}
SUB = {"type": "function", "function": {"name": "sub"}}
HOSTED = {"type": "web_search"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def read(**fields: object) -> ClientRequest:
    messages = [{"role": "user", "content": "Hi"}]
    return CHAT.read({"model": "conductor", "messages": messages} | fields)


def allowed(*tools: object, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    "options",
    [
        {"logit_bias": {"50256": -100}},
        {"reasoning_effort": "high"},
        {"presence_penalty": 0.5, "frequency_penalty": -0.5, "top_p": 0.9, "stop": ["x"]},
        {"response_format": SCHEMA},
        {"response_format": {"type": "json_object"}},
        {"tools": [ADD, SUB], "tool_choice": ADD},
        {"tools": [ADD], "tool_choice": "required", "parallel_tool_calls": False},
    ],
    ids=str,
)
def test_an_option_reaches_the_worker_that_answers(options: dict[str, Any]) -> None:
    assert read(**options).options.body == options


def test_only_the_tools_that_a_choice_allows_are_offered() -> None:
    body = read(tools=[ADD, SUB, HOSTED], tool_choice=allowed(SUB, mode="required")).options.body
    assert body == {"tools": [SUB], "tool_choice": "required"}


@pytest.mark.parametrize(
    "options",
    [
        {"logprobs": False, "top_logprobs": 0},
        {"stream_options": None},
        {"stream_options": {"include_usage": True}, "stream": True},
        {"tools": [HOSTED], "tool_choice": "auto"},
    ],
    ids=str,
)
def test_an_option_that_asks_for_nothing_is_accepted(options: dict[str, Any]) -> None:
    assert read(**options).options.body == {}


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("logprobs", {"logprobs": True}),
        ("top_logprobs", {"top_logprobs": 2}),
        ("logit_bias", {"logit_bias": [1]}),
        ("stream_options", {"stream_options": {"include_usage": True}}),
        ("response_format.type", {"response_format": {"type": "grammar"}}),
        ("response_format.type", {"response_format": {}}),
        ("response_format.json_schema.name", {"response_format": {"type": "json_schema"}}),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        ),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 1}}},
        ),
        ("tool_choice", {"tool_choice": "auto"}),
        ("tool_choice", {"tool_choice": ADD}),
        ("tool_choice", {"tools": [], "tool_choice": "none"}),
        ("tool_choice", {"tools": [ADD], "tool_choice": SUB}),
        ("tool_choice", {"tools": [HOSTED], "tool_choice": "required"}),
        ("tool_choice", {"tools": [ADD], "tool_choice": allowed(ADD, SUB)}),
        ("tool_choice", {"tools": [ADD], "tool_choice": allowed({"function": {"name": [1]}})}),
        ("tool_choice.type", {"tools": [ADD], "tool_choice": {"type": "custom"}}),
        ("tool_choice.allowed_tools.mode", {"tools": [ADD], "tool_choice": allowed(mode="x")}),
        ("tool_choice.allowed_tools.tools", {"tools": [ADD], "tool_choice": allowed()}),
    ],
)
def test_an_option_that_nobody_could_meet_is_refused(place: str, options: dict[str, Any]) -> None:
    with pytest.raises(RequestFailed) as caught:
        read(**options)
    assert (caught.value.status, caught.value.param) == (400, place)
    assert caught.value.message.startswith(place)
