"""The Messages API: what its bodies ask, and answers that Anthropic's own client reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount

from openconductor.serving.apis.messages import (
    IMAGE_TOKENS,
    INVALID,
    MESSAGES,
    SIGNATURE,
    count_tokens,
)
from openconductor.serving.apis.wire import ClientRequest, RequestFailed, ServedAnswer, call_id
from openconductor.types import Episode, Usage

CASES: Any = json.loads(Path(__file__).with_name("messages.json").read_text())
EPISODE = "0123456789abcdef0123456789abcdef"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
ADD = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}
USAGE = Usage(100, 40, 30, 20, Decimal("0.5"))
BILL = {"episode": EPISODE, "dollars": "0.5"}


def read(**fields: object) -> ClientRequest:
    messages = [{"role": "user", "content": "Hi"}]
    return MESSAGES.read({"model": "conductor", "max_tokens": 100, "messages": messages} | fields)


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def answered(words: str = "Four.", **fields: Any) -> ServedAnswer:
    episode = Episode("2 + 2?", (), words, None, USAGE, 1.0, EPISODE)
    return ServedAnswer(episode, words, orchestration=BILL, **fields)


def body_of(answer: ServedAnswer) -> dict[str, Any]:
    return MESSAGES.answer(read(), answer, created=0)


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
@pytest.mark.parametrize("case", CASES["requests"], ids=itemgetter("case"))
def test_a_request_is_read_as_its_case_says(case: dict[str, Any]) -> None:
    asked = read(**case["body"])
    values = {
        "turns": [[turn.role, turn.content, *turn.parts] for turn in asked.turns],
        "options": dict(asked.options.body),
        "temperature": asked.options.temperature,
        "max_tokens": asked.options.max_tokens,
        "stream": asked.stream,
    }
    checked = {name: values[name] for name in case["read"]}
    assert json.loads(json.dumps(checked)) == case["read"]


@pytest.mark.parametrize(("fields", "place", "words"), CASES["refused"])
def test_a_wrong_or_unsupported_value_is_refused_with_its_place(
    fields: dict[str, object], place: str, words: str
) -> None:
    with pytest.raises(RequestFailed, match=words) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, place)
    assert caught.value.message.startswith(place)


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
    arguments = ('{"a": 2}', "[1]", '{"a": NaN}', "{")
    calls = tuple(call(index, text) for index, text in enumerate(arguments))
    body = body_of(answered(thoughts=("A plan.", ""), tool_calls=calls))
    message = Message.model_validate(body, strict=True)
    assert message.id == f"msg_{EPISODE}"
    assert message.model == "conductor"
    assert message.stop_reason == "tool_use"
    thought, said, *uses = body["content"]
    assert thought == {"type": "thinking", "thinking": "A plan.", "signature": SIGNATURE}
    assert said == text("Four.")
    assert [block["input"] for block in uses] == [
        {"a": 2},
        *({INVALID: text} for text in arguments[1:]),
    ]
    assert uses[0]["id"] == call_id(EPISODE, 0)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (60, 40, 30)
    assert usage.to_dict()["orchestration"] == BILL


@pytest.mark.parametrize(("finish", "calls", "reason"), CASES["ends"])
def test_why_an_answer_ended_is_said_in_anthropics_words(
    finish: Any, calls: Any, reason: str
) -> None:
    body = body_of(answered("", finish_reason=finish, tool_calls=calls))
    message = Message.model_validate(body, strict=True)
    assert message.stop_reason == reason
    assert (message.stop_details is not None) == (reason == "refusal")


def stream_of(*steps: tuple[Any, ...]) -> bytes:
    """Return the events of a stream that takes these steps, each a method and its arguments."""
    stream = MESSAGES.stream(read(), EPISODE, created=0)
    sent = stream.begin()
    for name, *arguments in steps:
        sent += getattr(stream, name)(*arguments)
    return sent


def test_a_stream_puts_together_what_the_body_says() -> None:
    calls = (call(0, '{"a": "é"}'),)
    answer = answered("Four – 4.", thoughts=("A plan.", "A step."), tool_calls=calls)
    sent = stream_of(
        ("heartbeat",),
        ("add_reasoning", 0, "A "),
        ("add_reasoning", 0, "plan."),
        ("add_reasoning", 1, "A step."),
        ("add_reasoning", 1, ""),
        ("add_text", ""),
        ("add_text", "Fo"),
        ("heartbeat",),
        ("add_text", "ur – 4."),
        ("end", answer),
    )
    body = body_of(answer)
    bill = body["usage"].pop("orchestration")
    assert without_nulls(streamed(sent)) == without_nulls(body)
    events = sent.decode().strip().split("\n\n")
    assert events[1] == 'event: ping\ndata: {"type":"ping"}'
    assert json.loads(events[-2].split("data: ")[1])["usage"]["orchestration"] == bill


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def test_a_thought_after_text_opens_a_block_of_its_own() -> None:
    sent = stream_of(
        ("add_reasoning", 0, "a"),
        ("add_text", "One."),
        ("add_reasoning", 0, "b"),
        ("add_text", "Two."),
        ("end", answered("One.Two.", thoughts=("ab",))),
    )
    blocks = streamed(sent)["content"]
    texts = [block.get("thinking") or block["text"] for block in blocks]
    assert texts == ["a", "One.", "b", "Two."]


@pytest.mark.parametrize("told", ["", "Fo"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (502, "broke"), (504, "broke")],
)
def test_a_stream_that_fails_says_so_after_a_block_and_clients_do_not_ask_again(
    status: int, kind: str, told: str
) -> None:
    sent = stream_of(("add_text", told), ("fail", RequestFailed(status, "broke", "it broke")))
    with pytest.raises(anthropic.APIStatusError, match="it broke") as caught:
        streamed(sent)
    error = {"type": kind, "message": "it broke", "code": "broke"}
    assert caught.value.body == {"type": "error", "error": error}
    assert sent.count(b"event: content_block_start") == 1
    assert sent.count(b"event: content_block_stop") == 1


def test_a_failure_is_an_error_of_anthropics() -> None:
    for status, kind in CASES["types of failures"].items():
        body = MESSAGES.failure(RequestFailed(int(status), "some_code", "what failed"))
        assert body["error"] == {"type": kind, "message": "what failed", "code": "some_code"}
        if kind != "request_too_large":  # the API says it, its own types do not know it
            ErrorResponse.model_validate(body | {"request_id": None}, strict=True)


def test_a_conversation_that_is_too_long_is_called_so_in_the_words_that_clients_look_for() -> None:
    error = MESSAGES.failure(RequestFailed(400, "context_length_exceeded", "9 tokens"))["error"]
    assert error["message"] == "prompt is too long: 9 tokens"
