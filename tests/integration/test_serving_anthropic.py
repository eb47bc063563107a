"""Anthropic's own client against our server: text, streams, tools, structured answers, failures, usage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from integration.orchestra import USED, Orchestra, orchestra
from openconductor.errors import ContextTooLong, RateLimited, Refused, ServerFailed

ADD: Any = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}
ASK: Any = [{"role": "user", "content": "6 + 7?"}]
ELSEWHERE = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}
FRESH = 3 * (USED.input_tokens - USED.cached_tokens)  # the plan, anna, bert


class Sum(BaseModel):
    """What a structured answer is to be."""

    total: int


def streamed(asked: anthropic.Anthropic, **fields: Any) -> Any:
    """The message that a stream comes to."""
    with asked.messages.stream(**{"model": "conductor", "max_tokens": 90, "messages": ASK, **fields}) as events:
        return events.get_final_message()


def whole(asked: anthropic.Anthropic, **fields: Any) -> Any:
    return asked.messages.create(**{"model": "conductor", "max_tokens": 90, "messages": ASK, **fields})


def client(server: Orchestra, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="none", base_url=server.url, timeout=options.pop("timeout", 20), **options)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Orchestra]:
    with orchestra(tmp_path, "thought", ["thir", 0.1, "teen"]) as server:
        yield server


def test_an_answer_is_whole_with_its_bill(served: Orchestra) -> None:
    message = whole(client(served), system="Be short.")
    *thoughts, text = message.content
    assert (text.type, message.stop_reason) == ("text", "end_turn") and text.text == "thirteen"
    assert [block.type for block in thoughts] == ["thinking"] * len(thoughts) and thoughts
    assert (message.usage.input_tokens, message.usage.output_tokens) == (FRESH, 3 * USED.output_tokens)
    assert message.usage.to_dict()["orchestration"]["episode"] == message.id.removeprefix("msg_")
    messages, sampling = served.workers["bert"].sent[0]
    assert (messages[0].role, messages[0].content, sampling.max_tokens) == ("system", "Be short.", 90)


def test_a_stream_comes_to_the_same(served: Orchestra) -> None:
    asked = client(served)
    with asked.messages.stream(model="conductor", max_tokens=90, messages=ASK) as stream:
        pieces = list(stream.text_stream)
        got = stream.get_final_message()
    other = whole(asked)
    assert pieces == ["thir", "teen"]
    assert (got.content[-1].to_dict(), got.stop_reason) == (other.content[-1].to_dict(), other.stop_reason)
    assert [block.type for block in got.content] == [block.type for block in other.content]
    mine, theirs = got.usage.to_dict(), other.usage.to_dict()
    assert mine == {name: value for name, value in theirs.items() if name != "orchestration"}


@pytest.mark.parametrize("way", [whole, streamed])
def test_tools_are_called_and_their_results_go_back_to_who_called_them(tmp_path: Path, way: Any) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        told = [turn.content for turn in messages if turn.role == "tool"]
        return f"It is {told[0]}." if told else ["I add.", {"add": {"a": 6, "b": 7}}]

    with orchestra(tmp_path, "thought", bert) as server:
        asked, turns = client(server), list(ASK)
        for _ in range(2):
            message = way(asked, messages=turns, tools=[ADD])
            turns.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if calls:
                assert (message.stop_reason, calls[0].input) == ("tool_use", {"a": 6, "b": 7})
                result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "13"}
                turns.append({"role": "user", "content": [result, {"type": "text", "text": "Well?"}]})
        assert (message.content[-1].type, message.stop_reason) == ("text", "end_turn")
        assert message.content[-1].text == "It is 13."
        assert len(server.planner.sent) == 1
        assert [turn.role for turn in server.workers["bert"].sent[1][0]][-3:] == ["assistant", "tool", "user"]


def test_an_answer_in_a_form_is_read_into_it(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", '{"total": 13}') as server:
        parsed = client(server).messages.parse(model="conductor", max_tokens=90, messages=ASK, output_format=Sum)
        form: Any = server.workers["bert"].sent[0][1].body["response_format"]
        assert "response_format" not in server.workers["anna"].sent[0][1].body
    assert parsed.parsed_output == Sum(total=13)
    assert form["json_schema"]["schema"]["properties"]["total"]["type"] == "integer"


@pytest.mark.parametrize("way", [whole, streamed])
@pytest.mark.parametrize(
    ("error", "status", "kind", "words"),
    [
        (RateLimited("slow down"), 429, "rate_limit_error", "slow down"),
        (ContextTooLong("9 tokens"), 400, "invalid_request_error", "prompt is too long"),
        (Refused("no"), 400, "invalid_request_error", "no"),
        (ServerFailed("it broke", status=500), 502, "api_error", "it broke"),
    ],
)
def test_a_failure_is_an_error_that_is_asked_for_once(
    tmp_path: Path, error: Exception, status: int, kind: str, words: str, way: Any
) -> None:
    with orchestra(tmp_path, "thought", error) as server:
        with pytest.raises(anthropic.APIStatusError, match=words) as caught:
            way(client(server))
        assert len(server.planner.sent) == 1
    told: Any = caught.value.body
    assert told["error"]["type"] == (told["error"]["code"] if way is streamed and status == 502 else kind)
    assert way is streamed or caught.value.status_code == status


def test_what_is_wrong_with_a_request_is_said_before_anybody_is_asked(served: Orchestra) -> None:
    asked = client(served)
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.0\.source"):
        whole(asked, messages=[{"role": "user", "content": [ELSEWHERE]}])
    with pytest.raises(anthropic.NotFoundError, match="conductor"):
        whole(asked, model="conducter")
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        asked.messages.count_tokens(model="conductor", messages=[])
    assert asked.messages.count_tokens(model="conductor", messages=ASK).input_tokens > 0
    assert not served.planner.sent


def test_silence_longer_than_the_clients_patience_is_survived(tmp_path: Path) -> None:
    with orchestra(tmp_path, [1.2, "thought"], [1.2, "late"]) as server:
        assert streamed(client(server, timeout=0.8, max_retries=0)).content[-1].text == "late"
        assert len(server.planner.sent) == 1
