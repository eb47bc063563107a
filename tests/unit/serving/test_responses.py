"""The Responses API: what its bodies ask, and answers and streams that the vendor's own types and
client read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import (
    ClientRequest,
    RequestFailed,
    ServedAnswer,
    call_id,
    event,
)
from openconductor.types import Episode, Message, Usage

CASES: Any = json.loads(Path(__file__).with_name("responses.json").read_text())
EPISODE = "0123456789abcdef0123456789abcdef"
TOOLS = CASES["tools"]
ADD, PATCH, SUMS = TOOLS
HOSTED = {"type": "web_search"}
USAGE = Usage(100, 40, 30, 20, Decimal("0.5"))
CODES_OF_CODEX = ("context_length_exceeded", "insufficient_quota")  # unknown to OpenAI's types
BILL = {"episode": EPISODE, "dollars": "0.5"}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def read(**fields: object) -> ClientRequest:
    return RESPONSES.read({"model": "conductor", "input": "2 + 2?"} | fields)


def call(index: int, name: str = "add", arguments: str = '{"a": 1}') -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id(EPISODE, index), "type": "function", "function": function}


def answered(text: str = "Four.", **fields: Any) -> ServedAnswer:
    episode = Episode("2 + 2?", (), text, None, USAGE, 1.6, EPISODE)
    return ServedAnswer(episode, text, orchestration=BILL, **fields)


def refused(**fields: object) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        read(**fields)
    return caught.value


def body(answer: ServedAnswer, **fields: object) -> dict[str, Any]:
    """Return the body of an answer, which the vendor's type accepts."""
    written = json.loads(json.dumps(RESPONSES.answer(read(**fields), answer, created=1000)))
    Response.model_validate(written)
    return written


def read_events(stream: bytes) -> list[dict[str, Any]]:
    """Return a stream's events: named by their types, numbered in order, of the vendor's types."""
    events: list[dict[str, Any]] = []
    for number, block in enumerate(stream.decode().removesuffix("\n\n").split("\n\n")):
        name, data = block.split("\n")
        entry = json.loads(data.removeprefix("data: "))
        assert name == f"event: {entry['type']}"
        assert entry["sequence_number"] == number
        parsed = EVENTS.validate_python(entry)
        assert type(parsed).__name__.startswith("Response")
        assert parsed.type == entry["type"]
        events.append(entry)
    return events


def streamed(answer: ServedAnswer, *steps: Sequence[Any], **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a stream that took these steps; its end is what was streamed."""
    stream = RESPONSES.stream(read(stream=True, **fields), EPISODE, created=1000)
    sent = stream.begin()
    for name, *arguments in steps:
        sent += getattr(stream, name)(*arguments)
    events = read_events(sent + stream.end(answer))
    output = events[-1]["response"]["output"]
    added = [entry["output_index"] for entry in events if entry["type"].endswith("item.added")]
    done = {
        entry["output_index"]: entry["item"]
        for entry in events
        if entry["type"].endswith("output_item.done")
    }
    assert added == list(range(len(added)))
    assert [done[index] for index in added] == output
    assert len({item["id"] for item in output}) == len(added)
    assert pieces(events) == [text for item in output for text in words(item)]
    return events


def pieces(events: list[dict[str, Any]]) -> list[str]:
    """Return the text of each part, put together from its deltas."""
    parts: dict[tuple[int, int], str] = {}
    for entry in events:
        if "item_id" in entry:
            part = entry.get("summary_index", entry.get("content_index", 0))
            place = (entry["output_index"], part)
            parts[place] = parts.get(place, "") + entry.get("delta", "")
    return [parts[place] for place in sorted(parts)]


def words(item: dict[str, Any]) -> list[str]:
    """Return the text of each part of an item."""
    if item["type"] == "reasoning":
        return [part["text"] for part in item["summary"]]
    if item["type"] == "message":
        return [part["text"] for part in item["content"]]
    return [item.get("arguments", item.get("input"))]


def names(events: list[dict[str, Any]]) -> list[str]:
    return [entry["type"].removeprefix("response.") for entry in events]


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("case", CASES["requests"], ids=itemgetter("case"))
def test_a_request_is_read_as_its_case_says(case: dict[str, Any]) -> None:
    asked = read(**case["body"])
    values = {
        "turns": [[turn.role, turn.content, *turn.parts] for turn in asked.turns],
        "options": dict(asked.options.body),
        "temperature": asked.options.temperature,
        "max_tokens": asked.options.max_tokens,
        "stream": asked.stream,
        "previous": asked.previous,
        "instructed": asked.instructed,
        "max_steps": asked.control.max_steps,
        "reasoning": asked.control.reasoning,
    }
    checked = {name: values[name] for name in case["read"]}
    assert json.loads(json.dumps(checked)) == case["read"]


@pytest.mark.parametrize(("fields", "place"), CASES["refused"])
def test_a_wrong_or_unsupported_value_is_refused_with_its_place(fields: Any, place: str) -> None:
    failure = refused(**fields)
    assert (failure.status, failure.param) == (400, place)
    assert place.split(".", maxsplit=1)[0] in failure.message


@pytest.mark.parametrize("wrong", ["resp_1", EPISODE, f"resp_{EPISODE}\n", f"resp_{EPISODE}0"])
def test_an_id_that_no_answer_has_is_not_found(wrong: str) -> None:
    failure = refused(previous_response_id=wrong)
    assert (failure.status, failure.code) == (404, "previous_response_not_found")


def test_long_names_of_namespaces_are_cut_to_names_that_differ() -> None:
    tools: Any = read(tools=[SUMS | {"name": "mcp__" + "x" * 60}]).options.body["tools"]
    first, second = (tool["function"]["name"] for tool in tools)
    assert first != second
    assert len(first) == len(second) == 64


# ── whole answers ─────────────────────────────────────────────────────────────────────────────────
def test_an_answer_has_its_thoughts_its_text_and_its_bill() -> None:
    whole = body(answered(thoughts=("A plan.", "A step.")))
    assert whole["id"] == f"resp_{EPISODE}"
    assert whole["status"] == "completed"
    assert (whole["created_at"], whole["completed_at"]) == (1000, 1002)
    assert whole["output"] == CASES["output"]
    assert whole["usage"] == CASES["usage"]


def test_an_answer_says_what_it_was_asked() -> None:
    asked = CASES["echoed"]
    whole = body(answered(), tools=[*TOOLS, HOSTED], **asked)
    assert whole["tools"] == TOOLS
    assert whole["model"] == "conductor"
    assert asked.items() <= whole.items()


def test_an_answer_to_a_plain_request_has_the_vendors_defaults() -> None:
    tool = {"type": "function", "name": "add"}
    whole = body(answered(), tools=[tool])
    assert CASES["defaults"].items() <= whole.items()
    assert whole["tools"] == [tool | {"description": None, "parameters": None, "strict": False}]
    required = {name for name, field in Response.model_fields.items() if field.is_required()}
    assert required <= set(whole)


def test_calls_go_out_in_the_form_that_their_tools_came_in_and_are_read_again() -> None:
    patch = call(1, "apply_patch", '{"input": "*** Begin\\n"}')
    calls = [call(0), patch, call(2, "mcp__sums__sub", "{}")]
    answer = answered("", tool_calls=tuple(calls), finish_reason="tool_calls")
    whole = body(answer, tools=TOOLS)
    assert whole["status"] == "completed"
    assert whole["output"] == CASES["calls"]
    again = read(input=whole["output"], tools=TOOLS)
    assert again.turns == (Message("assistant", "", ({"tool_calls": calls},)),)


@pytest.mark.parametrize("arguments", [*CASES["free-form arguments"], "[" * 100_000])
def test_a_free_form_tool_that_is_called_in_another_way_gets_what_was_written(
    arguments: str,
) -> None:
    answer = answered("", tool_calls=(call(0, "apply_patch", arguments),))
    (item,) = body(answer, tools=[PATCH])["output"]
    assert item["input"] == arguments


def test_text_beside_calls_comes_before_them() -> None:
    output = body(answered(tool_calls=(call(0),)))["output"]
    assert [item["type"] for item in output] == ["message", "function_call"]


def test_an_answer_that_was_cut_is_incomplete_and_may_be_empty() -> None:
    (message,) = body(answered("", finish_reason="length"))["output"]
    assert message["content"][0]["text"] == ""
    assert message["status"] == "incomplete"


def test_an_answer_that_a_client_sends_back_is_read_as_what_was_said() -> None:
    answer = answered("I add.", thoughts=("A plan.",), tool_calls=(call(0),))
    output = body(answer, tools=[ADD])["output"]
    again = read(input=[{"role": "user", "content": "1 + 2?"}, *output])
    assert again.turns[1:] == (Message("assistant", "I add.", ({"tool_calls": [call(0)]},)),)


# ── streams ───────────────────────────────────────────────────────────────────────────────────────
def test_a_stream_tells_of_each_item_and_ends_with_the_whole_response() -> None:
    thoughts = [("add_reasoning", 0, "A "), ("add_reasoning", 0, "plan.")]
    thoughts.append(("add_reasoning", 1, "A step."))
    events = streamed(answered(), *thoughts, ("add_text", "Fo"), ("add_text", "ur."))
    assert names(events) == CASES["events"]
    first, last = events[0]["response"], events[-1]["response"]
    assert [words(item) for item in last["output"]] == [["A plan.", "A step."], ["Four."]]
    assert first["status"] == "in_progress"
    assert first["output"] == []


def test_calls_are_streamed_with_their_arguments_and_the_end_is_the_whole_answer() -> None:
    calls = (call(0), call(1, "apply_patch", '{"input": "*** Begin"}'), call(2, "mcp__sums__add"))
    answer = answered("", tool_calls=calls, finish_reason="tool_calls")
    events = streamed(answer, tools=TOOLS)
    assert events[-1]["response"] == body(answer, tools=TOOLS)
    assert names(events) == CASES["events of calls"]
    assert events[2]["item"]["arguments"] == ""
    assert events[2]["item"]["status"] == "in_progress"
    assert events[-2]["item"]["namespace"] == "mcp__sums"
    done = [entry for entry in events if entry["type"].endswith("call_arguments.done")]
    assert [entry["name"] for entry in done] == ["add", "add"]


def test_arguments_that_are_no_json_are_sent_on_as_they_are() -> None:
    (item,) = body(answered("", tool_calls=(call(0, arguments='{"a": 1'),)))["output"]
    assert item["arguments"] == '{"a": 1'


@pytest.mark.parametrize("case", CASES["streams"], ids=itemgetter("case"))
def test_pieces_of_a_stream_are_items_as_its_case_says(case: dict[str, Any]) -> None:
    events = streamed(answered(case["text"]), *case["steps"])
    output = events[-1]["response"]["output"]
    assert [[item["type"], words(item)] for item in output] == case["items"]
    if "empty" in case:
        assert names([entry for entry in events if entry.get("delta") == ""]) == case["empty"]


def test_a_stream_that_was_cut_is_incomplete() -> None:
    events = streamed(answered(finish_reason="length"), ("add_text", "Fo"))
    assert names(events)[-2:] == ["output_item.done", "incomplete"]
    assert events[-2]["item"]["status"] == "incomplete"


@pytest.mark.parametrize(("status", "code", "sent"), CASES["failures"])
def test_a_failure_is_told_under_a_code_that_clients_act_on(
    status: int, code: str, sent: str
) -> None:
    stream = RESPONSES.stream(read(), EPISODE, created=1000)
    begun = stream.begin() + stream.add_reasoning(0, "A plan.") + stream.add_text("Fo")
    last = stream.fail(RequestFailed(status, code, "It failed.", retry_after=3.0))
    if sent not in CODES_OF_CODEX:
        read_events(begun + last)
    raised, failure = (json.loads(data) for data in re.findall("data: (.*)", last.decode()))
    response = failure["response"]
    assert (failure["type"], response["status"]) == ("response.failed", "failed")
    message = "It failed. Please try again in 3s." if status == 429 else "It failed."
    error = {"code": sent, "message": message, "param": None, "type": code}
    assert response["error"] == error
    assert raised["type"] == "error", "what OpenAI's clients raise comes first"
    assert raised["error"] == error
    assert [words(item) for item in response["output"]] == [["A plan."], ["Fo"]]
    assert response["output"][1]["status"] == "incomplete"


@pytest.mark.parametrize(("status", "kind"), CASES["types of failures"].items())
def test_the_body_of_a_failure_has_a_type_by_its_status(status: str, kind: str) -> None:
    failure = RESPONSES.failure(RequestFailed(int(status), "a_code", "It failed.", param="input"))
    error = {"message": "It failed.", "type": kind, "param": "input", "code": "a_code"}
    assert failure == {"error": error}


def test_what_ends_a_line_in_unicode_alone_is_escaped() -> None:
    assert event({"text": "a\u2028b"}) == b'data: {"text":"a\\u2028b"}\n\n'
