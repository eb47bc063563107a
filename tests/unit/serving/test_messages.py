"""The Messages API: what its bodies ask, and answers that Anthropic's own client reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount

from openconductor.serving.apis.messages import IMAGE_TOKENS, MESSAGES, SIGNATURE, count_tokens
from openconductor.serving.apis.wire import ClientRequest, RequestFailed, ServedAnswer, call_id
from openconductor.types import Episode, Usage

CASES: Any = json.loads(Path(__file__).with_name("messages.json").read_text())
EPISODE = "0123456789abcdef0123456789abcdef"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
ADD = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search_20260318", "name": "web_search"}
USAGE = Usage(100, 40, 30, 20, Decimal("0.5"))
BILL = {"episode": EPISODE, "dollars": "0.5"}


def read(*messages: object, **fields: object) -> ClientRequest:
    turns = [
        message if isinstance(message, dict) else {"role": "user", "content": message}
        for message in messages
    ]
    return MESSAGES.read({"model": "conductor", "max_tokens": 100, "messages": turns} | fields)


def turns(*messages: object, **fields: object) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in read(*messages, **fields).turns]


def said(*blocks: dict[str, object]) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def result(content: object, call: str = "call_1", **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call, "content": content} | more


def answered(words: str = "Four.", **fields: Any) -> ServedAnswer:
    episode = Episode("2 + 2?", (), words, None, USAGE, 1.0, EPISODE)
    return ServedAnswer(episode, words, orchestration=BILL, **fields)


def body_of(answer: ServedAnswer) -> dict[str, Any]:
    return MESSAGES.answer(read("Hi"), answer, created=0)


def call(index: int, arguments: str) -> dict[str, object]:
    return {
        "id": call_id(EPISODE, index),
        "type": "function",
        "function": {"name": "add", "arguments": arguments},
    }


def client(respond: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    """Anthropic's client, over no network."""
    http = httpx2.Client(transport=httpx2.MockTransport(respond))
    return anthropic.Anthropic(
        api_key="none", base_url="http://none", http_client=http, max_retries=0
    )


def streamed(events: bytes) -> dict[str, Any]:
    """The message that Anthropic's client puts together of a stream."""
    headers = {"content-type": "text/event-stream"}
    talk = client(lambda _: httpx2.Response(200, headers=headers, content=events))
    with talk.messages.stream(
        model="c", max_tokens=9, messages=[{"role": "user", "content": "?"}]
    ) as stream:
        return stream.get_final_message().to_dict()


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────
def test_a_request_is_read_with_all_that_it_says_of_sampling() -> None:
    asked = read(
        "Hi",
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        stream=True,
        thinking={"type": "x"},
    )
    assert (asked.model, asked.stream, asked.options.temperature, asked.options.max_tokens) == (
        "conductor",
        True,
        0.5,
        100,
    )
    assert asked.options.body == {"top_p": 0.9, "stop": ["END"]}
    assert not read("Hi").stream and read("Hi").options.body == {}


def test_what_the_system_says_comes_first_wherever_it_stands() -> None:
    later = {
        "role": "system",
        "content": [text("Three.") | {"cache_control": {"type": "ephemeral"}}],
    }
    system = [text("x-anthropic-billing-header: cc_version=2;"), text("One."), text("Two.")]
    expected = [("system", "One.\n\nTwo.\n\nThree."), ("user", "Hi")]
    assert turns("Hi", later, system=system) == expected
    assert turns("Hi", system="Short.") == [("system", "Short."), ("user", "Hi")]


def test_a_turn_with_results_of_tools_becomes_a_turn_each_and_then_the_users() -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": "é"}}
    blocks = [result("4"), result([text("No."), PNG], "call_2", is_error=True), text("Go on.")]
    asked = read(
        "2 + 2?",
        said({"type": "thinking", "thinking": "…", "signature": "s"}, text("I add."), use),
        blocks,
    )
    assert [(turn.role, turn.content) for turn in asked.turns] == [
        ("user", "2 + 2?"),
        ("assistant", "I add."),
        ("tool", "4"),
        ("tool", "Error: No."),
        ("user", "Go on."),
    ]
    function = {"name": "add", "arguments": '{"a": "é"}'}
    assert asked.turns[1].parts == (
        {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
    )
    assert [turn.parts for turn in asked.turns[2:4]] == [
        ({"tool_call_id": "call_1"},),
        ({"tool_call_id": "call_2"},),
    ]
    assert asked.turns[4].parts == (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    )


def test_a_turn_of_results_alone_is_followed_by_what_they_show_if_anything() -> None:
    assert turns("Hi", said(text("")), [result("4")])[1:] == [("tool", "4")]
    assert turns("Hi", [result([PNG])])[1:] == [("tool", "(It is shown next.)"), ("user", "")]


def test_documents_of_text_are_text() -> None:
    plain = {
        "type": "document",
        "title": "T",
        "source": {"type": "text", "media_type": "text/plain", "data": "D"},
    }
    mixed = {"type": "document", "source": {"type": "content", "content": [text("E"), text("F")]}}
    (turn,) = read([plain, mixed, text("Sum up.")]).turns
    assert turn.content == "T\n\nD\n\nE\n\nF\n\nSum up."


def test_tools_of_the_client_are_offered_and_anthropics_own_are_not() -> None:
    options = read(
        "Hi", tools=[ADD | {"type": "custom", "strict": True}, SEARCH, {"type": "not_yet_invented"}]
    ).options.body
    function = {
        "name": "add",
        "parameters": ADD["input_schema"],
        "description": "Adds.",
        "strict": True,
    }
    assert options == {"tools": [{"type": "function", "function": function}]}
    assert read("Hi", tools=[SEARCH], tool_choice={"type": "auto"}).options.body == {}


def test_a_deferred_tool_is_offered_once_a_search_has_found_it() -> None:
    deferred = ADD | {"defer_loading": True}
    found = result([{"type": "tool_reference", "tool_name": "add"}])
    assert read("Hi", tools=[deferred]).options.body == {}
    assert "tools" in read("Hi", [found, text("Tool loaded.")], tools=[deferred]).options.body


@pytest.mark.parametrize(("choice", "expected"), CASES["choices"])
def test_a_choice_of_tools_is_told_as_chat_completions_do(
    choice: object, expected: dict[str, object]
) -> None:
    options = dict(read("Hi", tools=[ADD], tool_choice=choice).options.body)
    assert options.pop("tools") and options == expected


@pytest.mark.parametrize("where", ["output_config", "output_format"])
def test_a_schema_of_the_answer_is_passed_on(where: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    options = read(
        "Hi", **{where: {"effort": "low", "format": form} if where == "output_config" else form}
    ).options.body
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    assert options == {"response_format": {"type": "json_schema", "json_schema": schema}}
    assert read("Hi", output_config={"effort": "high"}).options.body == {}


@pytest.mark.parametrize(("fields", "named"), CASES["wrong values"])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    fields: dict[str, object], named: str
) -> None:
    with pytest.raises(RequestFailed) as caught:
        read("Hi", **fields)
    assert (caught.value.status, caught.value.param) == (400, named)
    assert caught.value.message.startswith(named)


@pytest.mark.parametrize(("block", "where", "words"), CASES["not rendered"])
def test_what_would_have_to_be_fetched_or_rendered_is_refused(
    block: object, where: str, words: str
) -> None:
    with pytest.raises(RequestFailed, match=words) as caught:
        read([block])
    assert caught.value.param == f"messages.0.content.{where}"


def test_tokens_are_counted_by_a_guess_that_grows_with_everything() -> None:
    def count(content: object, **fields: object) -> int:
        body = {"model": "c", "messages": [{"role": "user", "content": content}], **fields}
        return MessageTokensCount.model_validate(count_tokens(body)).input_tokens

    assert count("x" * 4000) == 1000
    assert count("x" * 4000, system="y" * 400) == 1100
    assert count([text("x" * 4000), PNG]) == 1000 + IMAGE_TOKENS
    assert count("x", tools=[ADD]) > count("x") == 1
    with pytest.raises(RequestFailed, match=r"messages"):
        count_tokens({"model": "c"})


# ── what is told ──────────────────────────────────────────────────────────────────────────────────
def test_an_answer_is_a_message_of_anthropics() -> None:
    answer = answered(
        thoughts=("A plan.", ""),
        tool_calls=(call(0, '{"a": 2}'), call(1, "[1]"), call(2, '{"a": NaN}'), call(3, "{")),
    )
    body = body_of(answer)
    message = Message.model_validate(body, strict=True)
    assert (message.id, message.model, message.stop_reason) == (
        f"msg_{EPISODE}",
        "conductor",
        "tool_use",
    )
    assert body["content"][:2] == [
        {"type": "thinking", "thinking": "A plan.", "signature": SIGNATURE},
        text("Four."),
    ]
    assert [block["input"] for block in body["content"][2:]] == [{"a": 2}, {}, {}, {}]
    assert body["content"][2]["id"] == call_id(EPISODE, 0)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (60, 40, 30)
    assert usage.to_dict()["orchestration"] == BILL


@pytest.mark.parametrize(("finish", "calls", "reason"), CASES["ends"])
def test_why_an_answer_ended_is_said_in_anthropics_words(
    finish: Any, calls: Any, reason: str
) -> None:
    body = body_of(answered("", finish_reason=finish, tool_calls=calls))
    message = Message.model_validate(body, strict=True)
    assert message.stop_reason == reason and (message.stop_details is not None) == (
        reason == "refusal"
    )


def test_a_stream_puts_together_what_the_body_says() -> None:
    answer = answered(
        "Four – 4.", thoughts=("A plan.", "A step."), tool_calls=(call(0, '{"a": "é"}'),)
    )
    stream = MESSAGES.stream(read("Hi"), EPISODE, created=0)
    whole = stream.begin() + stream.heartbeat()
    for part, words in ((0, "A "), (0, "plan."), (1, "A step."), (1, "")):
        whole += stream.add_reasoning(part, words)
    whole += b"".join(
        [
            stream.add_text(""),
            stream.add_text("Fo"),
            stream.heartbeat(),
            stream.add_text("ur – 4."),
            stream.end(answer),
        ]
    )
    body = body_of(answer)
    bill = body["usage"].pop("orchestration")
    told = [
        {name: value for name, value in one.items() if value is not None}
        for one in (streamed(whole), body)
    ]
    assert told[0] == told[1]
    events = [line for line in whole.decode().split("\n\n") if line]
    assert json.loads(events[-2].split("data: ")[1])["usage"]["orchestration"] == bill
    assert events[1] == 'event: ping\ndata: {"type":"ping"}'


def test_a_thought_after_text_opens_a_block_of_its_own() -> None:
    stream = MESSAGES.stream(read("Hi"), EPISODE, created=0)
    pieces = [
        stream.begin(),
        stream.add_reasoning(0, "a"),
        stream.add_text("One."),
        stream.add_reasoning(0, "b"),
        stream.add_text("Two."),
    ]
    got = streamed(b"".join([*pieces, stream.end(answered("One.Two.", thoughts=("ab",)))]))
    told = [block.get("thinking") or block["text"] for block in got["content"]]
    assert told == ["a", "One.", "b", "Two."]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (502, "broke"), (504, "broke")],
)
def test_a_stream_that_fails_says_so_after_a_block_and_clients_do_not_ask_again(
    status: int, kind: str
) -> None:
    for told in ("", "Fo"):
        stream = MESSAGES.stream(read("Hi"), EPISODE, created=0)
        whole = (
            stream.begin()
            + stream.add_text(told)
            + stream.fail(RequestFailed(status, "broke", "it broke"))
        )
        with pytest.raises(anthropic.APIStatusError, match="it broke") as caught:
            streamed(whole)
        assert caught.value.body == {
            "type": "error",
            "error": {"type": kind, "message": "it broke", "code": "broke"},
        }
        assert (
            whole.count(b"event: content_block_stop")
            == whole.count(b"event: content_block_start")
            == 1
        )


def test_a_failure_is_an_error_of_anthropics() -> None:
    for status, kind in CASES["types of failures"].items():
        body = MESSAGES.failure(RequestFailed(int(status), "some_code", "what failed"))
        assert body["error"] == {"type": kind, "message": "what failed", "code": "some_code"}
        if kind != "request_too_large":  # the API says it, its own types do not know it
            ErrorResponse.model_validate(body | {"request_id": None}, strict=True)


def test_a_conversation_that_is_too_long_is_called_so_in_the_words_that_clients_look_for() -> None:
    error = MESSAGES.failure(RequestFailed(400, "context_length_exceeded", "9 tokens"))["error"]
    assert error["message"] == "prompt is too long: 9 tokens"
