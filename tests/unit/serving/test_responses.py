"""The Responses API: what its bodies ask, and answers and streams that the vendor's own types and
client read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import (
    AnswerStream,
    ClientRequest,
    RequestFailed,
    ServedAnswer,
    call_id,
    event,
)
from openconductor.types import Episode, Message, Usage

CASES: Any = json.loads(Path(__file__).with_name("responses.json").read_text())
EPISODE = "0123456789abcdef0123456789abcdef"
PNG = "data:image/png;base64,aGk="
ADD, PATCH, SUMS = CASES["tools"]
HOSTED = {"type": "web_search"}
USAGE = Usage(100, 40, 30, 20, Decimal("0.5"))
BILL = {"episode": EPISODE, "dollars": "0.5"}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def read(given: object = "2 + 2?", **fields: object) -> ClientRequest:
    return RESPONSES.read({"model": "conductor", "input": given} | fields)


def turns(*items: object, **fields: object) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in read(list(items), **fields).turns]


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def said(text: str) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def called(index: int, **more: object) -> dict[str, object]:
    call = {
        "type": "function_call",
        "call_id": call_id(EPISODE, index),
        "name": "add",
        "arguments": "{}",
    }
    return call | more


def result(index: int, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id(EPISODE, index), "output": output}


def call(index: int, name: str = "add", arguments: str = '{"a": 1}') -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id(EPISODE, index), "type": "function", "function": function}


def answered(text: str = "Four.", **fields: Any) -> ServedAnswer:
    return ServedAnswer(
        Episode("2 + 2?", (), text, None, USAGE, 1.6, EPISODE), text, orchestration=BILL, **fields
    )


def refused(given: object = "Hi", **fields: object) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        read(given, **fields)
    return caught.value


def body(answer: ServedAnswer, **fields: object) -> dict[str, Any]:
    """The body of an answer, which the vendor's type accepts."""
    written = json.loads(json.dumps(RESPONSES.answer(read(**fields), answer, created=1000)))
    Response.model_validate(written)
    return written


def told(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream: each named by its type, numbered in order, and as the vendor's types
    have it.
    """
    events: list[dict[str, Any]] = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        parsed = EVENTS.validate_python(events[-1])
        assert type(parsed).__name__.startswith("Response") and parsed.type == events[-1]["type"]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events


def streamed(
    answer: ServedAnswer, *steps: Callable[[AnswerStream], bytes], **fields: object
) -> list[dict[str, Any]]:
    """The events of a stream that took these steps; its end is what was streamed."""
    stream = RESPONSES.stream(read(stream=True, **fields), EPISODE, created=1000)
    events = told(stream.begin() + b"".join(step(stream) for step in steps) + stream.end(answer))
    final = events[-1]["response"]
    done = {
        one["output_index"]: one["item"]
        for one in events
        if one["type"] == "response.output_item.done"
    }
    added = [one["output_index"] for one in events if one["type"] == "response.output_item.added"]
    assert added == list(range(len(added)))
    assert [done[index] for index in added] == final["output"]
    assert len({item["id"] for item in final["output"]}) == len(added)
    assert pieces(events) == [text for item in final["output"] for text in words(item)]
    return events


def pieces(events: list[dict[str, Any]]) -> list[str]:
    """The deltas of each part, put together."""
    parts: dict[tuple[int, int], str] = {}
    for one in events:
        if "item_id" in one:
            place = (one["output_index"], one.get("summary_index", one.get("content_index", 0)))
            parts[place] = parts.get(place, "") + one.get("delta", "")
    return [parts[place] for place in sorted(parts)]


def words(item: dict[str, Any]) -> list[str]:
    """The text of each part of an item."""
    if item["type"] in ("reasoning", "message"):
        return [
            part["text"] for part in item["summary" if item["type"] == "reasoning" else "content"]
        ]
    return [item.get("arguments", item.get("input"))]


def items(events: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(item["type"], words(item)) for item in events[-1]["response"]["output"]]


def names(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"].removeprefix("response.") for one in events]


def think(part: int, text: str) -> Callable[[AnswerStream], bytes]:
    return lambda stream: stream.add_reasoning(part, text)


def say(text: str) -> Callable[[AnswerStream], bytes]:
    return lambda stream: stream.add_text(text)


def beat(stream: AnswerStream) -> bytes:
    return stream.heartbeat()


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
def test_a_text_is_a_turn_and_what_is_said_of_sampling_is_passed_on() -> None:
    asked = read(
        "Hi",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        stream=True,
        conductor={"max_steps": 2},
    )
    assert asked.turns == (Message("user", "Hi"),) and asked.stream and asked.control.max_steps == 2
    assert (asked.options.temperature, asked.options.max_tokens, dict(asked.options.body)) == (
        0.5,
        7,
        {"top_p": 0.9},
    )
    assert not read("Hi").stream and not read("Hi").options.body


def test_what_the_system_says_comes_first_wherever_it_stands_and_instructions_before() -> None:
    given = [user("Hi"), said("Yes?"), {"role": "developer", "content": "Be kind."}, said("Well?")]
    asked = read(given, instructions="Be short.")
    assert [(turn.role, turn.content) for turn in asked.turns] == [
        ("system", "Be short."),
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "Yes?\n\nWell?"),
    ]
    assert asked.instructed == 1 and read("Hi").instructed == 0


def test_messages_are_read_with_and_without_a_type_and_in_parts() -> None:
    parts = [{"type": "input_text", "text": "One."}, {"type": "input_text", "text": "Two."}]
    assert turns(user(parts), said("Three."), {"type": "message"} | user("Four?")) == [
        ("user", "One.\nTwo."),
        ("assistant", "Three."),
        ("user", "Four?"),
    ]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert turns(user("Hi"), refusal) == [("user", "Hi"), ("assistant", "No.")]


def test_images_come_as_data_urls_only() -> None:
    image = {"type": "input_image", "image_url": PNG, "detail": "high"}
    (turn,) = read([user([{"type": "input_text", "text": "What?"}, image])]).turns
    assert turn == Message(
        "user", "What?", ({"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},)
    )
    (turn,) = read([user([image | {"detail": "original"}])]).turns
    assert turn.parts == ({"type": "image_url", "image_url": {"url": PNG}},)
    for wrong in (
        image | {"image_url": "https://there/a.png"},
        {"type": "input_image", "file_id": "file-1"},
    ):
        error = refused([user([wrong])])
        assert (error.status, error.param) == (400, "input.0.content.0.image_url")


def test_what_an_assistant_says_and_calls_in_one_go_is_one_turn() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    shown = [{"type": "input_text", "text": "4"}, {"type": "input_image", "image_url": PNG}]
    calls = [called(0), called(1, arguments='{"a": 1}')]
    asked = read(
        [user("Add."), said("I add."), reasoning, *calls, result(0, "3"), result(1, shown)]
    )
    first, turn, three, four = asked.turns
    assert (first.role, turn.role, turn.content) == ("user", "assistant", "I add.")
    assert turn.parts == ({"tool_calls": [call(0, arguments="{}"), call(1)]},)
    assert three == Message("tool", "3", ({"tool_call_id": call_id(EPISODE, 0)},))
    image = {"type": "image_url", "image_url": {"url": PNG}}
    assert four == Message("tool", "4", (image, {"tool_call_id": call_id(EPISODE, 1)}))
    kept = [user("Add."), said("I add."), calls[0], result(0, "3"), calls[1], result(1, shown)]
    assert read(kept).turns == asked.turns, "a result may stand before the next call"


def test_calls_of_free_form_tools_and_of_namespaces_are_calls_of_functions() -> None:
    custom = {
        "type": "custom_tool_call",
        "call_id": "c",
        "name": "apply_patch",
        "input": "*** Begin",
    }
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}
    turn, came = read([custom, called(0, namespace="mcp__sums"), output]).turns
    made = [one["function"] for one in turn.parts[0]["tool_calls"]]  # type: ignore[attr-defined]
    assert made == [
        {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'},
        {"name": "mcp__sums__add", "arguments": "{}"},
    ]
    assert came == Message("tool", "Done.", ({"tool_call_id": "c"},))


def test_items_of_the_vendors_own_are_dropped_and_others_refused() -> None:
    hosted = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert turns(user("Hi"), hosted, said(""), user("So?")) == [("user", "Hi"), ("user", "So?")]
    for wrong in ({"type": "shell_call"}, {"type": ["x"]}, {}, "text", 5):
        assert refused([user("Hi"), wrong]).param == "input.1.type"


def test_what_an_earlier_answer_said_can_be_named() -> None:
    named = [{"type": "item_reference", "id": one} for one in (f"rs_{EPISODE}_0", f"msg_{EPISODE}")]
    turn = read([user("Hi"), *named, called(0), result(0, "3")]).turns[1]
    assert turn == Message(
        "assistant", "", ({"recalls": EPISODE}, {"tool_calls": [call(0, arguments="{}")]})
    )
    for wrong in ("msg_1", f"fc_{EPISODE}00", f"msg_{EPISODE}x", None):
        assert refused([user("Hi"), {"type": "item_reference", "id": wrong}]).param == "input.1.id"


def test_a_request_without_a_turn_is_refused() -> None:
    for nothing in (None, [], 5, [{"type": "reasoning", "summary": []}]):
        assert (refused(nothing).status, refused(nothing).param) == (400, "input")


@pytest.mark.parametrize(("item", "where"), CASES["wrong items"])
def test_an_item_that_is_wrong_is_refused_with_its_place(
    item: dict[str, object], where: str
) -> None:
    assert refused([item]).param == f"input.0.{where}"


@pytest.mark.parametrize(("field", "value"), CASES["wrong fields"])
def test_a_field_that_is_wrong_or_not_offered_is_named(field: str, value: object) -> None:
    error = refused(**{field: value})
    assert error.status == 400 and (error.param or "").startswith(field) and field in error.message


def test_fields_that_say_nothing_to_us_are_tolerated() -> None:
    codex = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "client_metadata": {"a": "b"},
    }
    asked = read(
        service_tier="flex",
        reasoning={"effort": "high", "summary": "auto"},
        background=False,
        text={"verbosity": "low"},
        **codex,
    )
    assert not asked.options.body and asked.control.reasoning is None


def test_an_answer_is_followed_on_by_its_id() -> None:
    assert (
        read(previous_response_id=f"resp_{EPISODE}").previous == EPISODE and read().previous is None
    )
    for wrong in ("resp_1", EPISODE, f"resp_{EPISODE}\n", f"resp_{EPISODE}0"):
        error = refused(previous_response_id=wrong)
        assert (error.status, error.code) == (404, "previous_response_not_found")


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────
def test_functions_are_passed_on_in_the_form_of_chat_completions_and_hosted_tools_left_out() -> (
    None
):
    options = read(
        tools=[ADD, HOSTED], tool_choice="required", parallel_tool_calls=False
    ).options.body
    function = {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object"},
        "strict": True,
    }
    assert options == {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    assert not read(
        tools=[HOSTED, {"type": "local_shell"}], tool_choice="auto", parallel_tool_calls=True
    ).options.body


def test_a_free_form_tool_is_offered_as_a_function_of_one_text() -> None:
    (tool,) = read(tools=[PATCH]).options.body["tools"]  # type: ignore[misc]
    function = tool["function"]
    assert function["name"] == "apply_patch" and list(function["parameters"]["properties"]) == [
        "input"
    ]
    assert (
        function["description"].startswith("Edits files.")
        and "(lark):\nstart: LF" in function["description"]
    )


def test_tools_of_a_namespace_are_offered_under_its_name() -> None:
    offered = read(
        tools=[HOSTED, SUMS, {"type": "mcp", "server_label": "x"}, {"type": "later"}]
    ).options.body["tools"]
    assert [one["function"]["name"] for one in offered] == ["mcp__sums__add", "mcp__sums__sub"]  # type: ignore[attr-defined]
    long = SUMS | {"name": "mcp__" + "x" * 60}
    names = [one["function"]["name"] for one in read(tools=[long]).options.body["tools"]]  # type: ignore[attr-defined]
    assert len(set(names)) == 2 and {len(name) for name in names} == {64}


def test_a_tool_can_be_demanded_and_tools_be_narrowed_down() -> None:
    for chosen in ({"type": "function", "name": "add"}, {"type": "custom", "name": "apply_patch"}):
        options = read(tools=[ADD, PATCH], tool_choice=chosen).options.body
        assert options["tool_choice"] == {"type": "function", "function": {"name": chosen["name"]}}
    tools = [{"type": "custom", "name": "apply_patch"}, HOSTED]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": tools}
    options = read(tools=[ADD, PATCH, HOSTED], tool_choice=allowed).options.body
    assert [one["function"]["name"] for one in options["tools"]] == ["apply_patch"]  # type: ignore[attr-defined]
    assert options["tool_choice"] == "required"


@pytest.mark.parametrize("choice", CASES["choices of what is not offered"])
def test_a_tool_that_is_not_offered_cannot_be_demanded(choice: object) -> None:
    assert refused(tools=[ADD, HOSTED], tool_choice=choice).param == "tool_choice"
    assert refused(tools=[HOSTED], tool_choice="required").param == "tool_choice"


@pytest.mark.parametrize(("tool", "where"), CASES["wrong tools"])
def test_a_tool_that_is_wrong_is_refused_with_its_place(
    tool: dict[str, object], where: str
) -> None:
    assert refused(tools=[tool]).param == where


def test_the_form_of_the_answer_is_passed_on() -> None:
    form = {"type": "json_schema", "name": "sum", "schema": {"type": "object"}, "strict": True}
    formats = [
        read(text={"format": one}).options.body.get("response_format")
        for one in (form, {"type": "json_object"})
    ]
    schema = {"name": "sum", "schema": {"type": "object"}, "strict": True}
    assert formats == [{"type": "json_schema", "json_schema": schema}, {"type": "json_object"}]
    assert (
        not read(text={"format": {"type": "text"}}).options.body
        and not read(text={"format": None}).options.body
    )
    assert refused(text={"format": form | {"schema": None}}).param == "text.format.schema"
    assert refused(text={"format": {"type": ["x"]}}).param == "text.format.type"


# ── whole answers ─────────────────────────────────────────────────────────────────────────────────
def test_an_answer_has_its_thoughts_its_text_and_its_bill() -> None:
    whole = body(answered(thoughts=("A plan.", "A step.")))
    assert (whole["id"], whole["status"], whole["created_at"], whole["completed_at"]) == (
        f"resp_{EPISODE}",
        "completed",
        1000,
        1002,
    )
    assert whole["output"] == CASES["output"]
    assert whole["usage"] == CASES["usage"]


def test_an_answer_says_what_it_was_asked() -> None:
    asked = CASES["echoed"]
    whole = body(answered(), tools=[ADD, PATCH, SUMS, HOSTED], **asked)
    assert {key: whole[key] for key in asked} == asked
    assert whole["tools"] == [ADD, PATCH, SUMS] and whole["model"] == "conductor"


def test_an_answer_to_a_plain_request_has_the_vendors_defaults() -> None:
    whole = body(answered(), tools=[{"type": "function", "name": "add"}])
    expected = CASES["defaults"]
    assert {key: whole[key] for key in expected} == expected
    assert whole["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": None,
            "parameters": None,
            "strict": False,
        }
    ]
    assert set(whole) >= {name for name, one in Response.model_fields.items() if one.is_required()}


def test_calls_go_out_in_the_form_that_their_tools_came_in() -> None:
    calls = (
        call(0),
        call(1, "apply_patch", '{"input": "*** Begin\\n"}'),
        call(2, "mcp__sums__sub", "{}"),
    )
    whole = body(
        answered("", tool_calls=calls, finish_reason="tool_calls"), tools=[ADD, PATCH, SUMS]
    )
    assert whole["status"] == "completed"
    assert whole["output"] == CASES["calls"]
    again = read(whole["output"], tools=[ADD, PATCH, SUMS])
    assert again.turns == (
        Message(
            "assistant",
            "",
            (
                {
                    "tool_calls": [
                        calls[0],
                        calls[1]
                        | {
                            "function": {
                                "name": "apply_patch",
                                "arguments": '{"input": "*** Begin\\n"}',
                            }
                        },
                        calls[2],
                    ]
                },
            ),
        ),
    )


@pytest.mark.parametrize(
    "arguments", ["*** Begin", '"*** Begin"', '{"text": "x"}', '{"input": 5}', "[" * 100_000]
)
def test_a_free_form_tool_that_is_called_in_another_way_gets_what_was_written(
    arguments: str,
) -> None:
    calls = (call(0, "apply_patch", arguments),)
    (item,) = body(answered("", tool_calls=calls), tools=[PATCH])["output"]
    assert item["input"] == arguments


def test_text_beside_calls_comes_before_them_and_an_empty_answer_is_an_empty_message() -> None:
    assert [one["type"] for one in body(answered(tool_calls=(call(0),)))["output"]] == [
        "message",
        "function_call",
    ]
    (message,) = body(answered("", finish_reason="length"))["output"]
    assert message["content"][0]["text"] == "" and message["status"] == "incomplete"


def test_an_answer_that_a_client_sends_back_is_read_as_what_was_said() -> None:
    output = body(answered("I add.", thoughts=("A plan.",), tool_calls=(call(0),)), tools=[ADD])[
        "output"
    ]
    asked = read([user("1 + 2?"), *output, result(0, "3")])
    turn = Message("assistant", "I add.", ({"tool_calls": [call(0)]},))
    assert asked.turns[1] == turn


# ── streams ───────────────────────────────────────────────────────────────────────────────────────
def test_a_stream_tells_of_each_item_and_ends_with_the_whole_response() -> None:
    events = streamed(
        answered(), think(0, "A "), think(0, "plan."), think(1, "A step."), say("Fo"), say("ur.")
    )
    assert names(events) == CASES["events"]
    assert items(events) == [("reasoning", ["A plan.", "A step."]), ("message", ["Four."])]
    assert (
        events[0]["response"]["status"] == "in_progress" and events[0]["response"]["output"] == []
    )


def test_calls_are_streamed_with_their_arguments_and_the_end_is_the_whole_answer() -> None:
    calls = (call(0), call(1, "apply_patch", '{"input": "*** Begin"}'), call(2, "mcp__sums__add"))
    answer = answered("", tool_calls=calls, finish_reason="tool_calls")
    events = streamed(answer, tools=[ADD, PATCH, SUMS])
    assert events[-1]["response"] == body(answer, tools=[ADD, PATCH, SUMS]), (
        "it ends with the whole"
    )
    inner = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    free = [name.replace("function_call_arguments", "custom_tool_call_input") for name in inner]
    assert names(events)[2:-1] == [*inner, *free, *inner]
    assert [event["item"].get("namespace") for event in events if "item" in event][
        -1
    ] == "mcp__sums"
    assert events[2]["item"]["arguments"] == "" and events[2]["item"]["status"] == "in_progress"


def test_reasoning_after_text_is_a_new_item_and_more_text_another_message() -> None:
    events = streamed(
        answered("Five."), think(0, "A plan."), say("Four."), think(0, "Again."), say("Five.")
    )
    assert items(events)[:2] == [("reasoning", ["A plan."]), ("message", ["Four."])]
    assert items(events)[2:] == [("reasoning", ["Again."]), ("message", ["Five."])]


def test_a_beat_is_an_empty_piece_of_what_is_open_and_a_step_that_has_begun_opens_its_part() -> (
    None
):
    assert items(streamed(answered(), think(0, ""), beat, think(1, ""), say(""), say("Four."))) == [
        ("reasoning", ["", ""]),
        ("message", ["Four."]),
    ]
    events = streamed(
        answered(), beat, beat, think(0, "A plan."), beat, think(1, "A step."), say("Four."), beat
    )
    assert items(events) == [("reasoning", ["A plan.", "A step."]), ("message", ["Four."])]
    beats = [event for event in events if event.get("delta") == ""]
    assert [event["type"] for event in beats] == 3 * ["response.reasoning_summary_text.delta"] + [
        "response.output_text.delta"
    ]
    assert items(streamed(answered(), beat, say("Four."))) == [
        ("reasoning", [""]),
        ("message", ["Four."]),
    ]


def test_a_stream_that_was_cut_is_incomplete_and_one_of_nothing_has_an_empty_message() -> None:
    events = streamed(answered(finish_reason="length"), say("Fo"))
    assert events[-1]["type"] == "response.incomplete"
    assert [
        one["item"]["status"] for one in events if one["type"] == "response.output_item.done"
    ] == ["incomplete"]
    assert items(streamed(answered(""))) == [("message", [""])]


@pytest.mark.parametrize(("status", "code", "sent"), CASES["failures"])
def test_a_failure_is_told_under_a_code_that_clients_act_on(
    status: int, code: str, sent: str
) -> None:
    stream = RESPONSES.stream(read(), EPISODE, created=1000)
    begun = stream.begin() + stream.add_reasoning(0, "A plan.") + stream.add_text("Fo")
    last = stream.fail(RequestFailed(status, code, "It failed.", retry_after=3.0))
    failure = json.loads(last.decode().split("data: ")[-1])
    if sent not in (
        "context_length_exceeded",
        "insufficient_quota",
    ):  # which Codex knows, and the vendor's types do not
        failure = told(begun + last)[-1]
    error, output = failure["response"]["error"], failure["response"]["output"]
    assert (failure["type"], failure["response"]["status"]) == ("response.failed", "failed")
    message = "It failed. Please try again in 3s." if status == 429 else "It failed."
    assert error == {"code": sent, "message": message, "param": None, "type": code}
    raised = json.loads(last.decode().split("\n")[1].removeprefix("data: "))
    assert raised["type"] == "error" and raised["error"] == error, (
        "what OpenAI's clients raise comes first"
    )
    assert [words(item) for item in output] == [["A plan."], ["Fo"]] and output[1][
        "status"
    ] == "incomplete"


def test_the_body_of_a_failure_has_a_type_by_its_status() -> None:
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "insufficient_quota",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
        502: "server_error",
    }
    for status, kind in kinds.items():
        assert RESPONSES.failure(RequestFailed(status, "a_code", "It failed.", param="input")) == {
            "error": {"message": "It failed.", "type": kind, "param": "input", "code": "a_code"}
        }


def test_what_ends_a_line_in_unicode_alone_is_escaped() -> None:
    assert event({"text": "a\u2028b"}) == b'data: {"text":"a\\u2028b"}\n\n'
