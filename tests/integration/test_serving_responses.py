"""The Responses API as OpenAI's own client meets it: answers, streams, tools, conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from integration.orchestra import USED, Orchestra, orchestra
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable

ADD: Any = {"type": "function", "name": "add", "strict": False,
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}  # fmt: skip
PATCH: Any = {"type": "custom", "name": "patch", "description": "Edits files."}


def client(server: Orchestra, key: str = "none") -> openai.OpenAI:
    return server.closing.enter_context(openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0))


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def reads(messages: Any, sampling: Any) -> str:
    """A worker that says how it was asked."""
    return " | ".join(f"{turn.role}: {turn.content}" for turn in messages[:-1])


def test_an_answer_shows_its_steps_and_says_what_it_cost(tmp_path: Path) -> None:
    with orchestra(tmp_path, "thought", "42") as server:
        answer = client(server).responses.create(model="conductor", input="What is 6 * 7?")
    reasoning, message = answer.output[:2]
    assert reasoning.type == "reasoning" and message.type == "message"
    assert [part.text.splitlines()[0] for part in reasoning.summary] == [
        "1. anna: Think about it.", "Step 1: anna is at work.", "Step 2: bert is at work."]  # fmt: skip
    assert answer.output_text == "42" and answer.id == f"resp_{answer._request_id}"
    assert answer.usage is not None and answer.usage.total_tokens == 3 * USED.tokens
    assert [one["worker"] for one in answer.usage.orchestration["calls"]] == ["conductor", "anna", "bert"]  # type: ignore[attr-defined]


def test_a_stream_lives_through_silence_and_comes_to_the_whole_answer(tmp_path: Path) -> None:
    with (
        orchestra(tmp_path, [0.7, "thought"], ["4", 0.7, "2"]) as server,
        client(server).responses.stream(model="conductor", input="What is 6 * 7?") as stream,
    ):
        events: Any = list(stream)
        answer = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert answer.output_text == "42" == "".join(deltas) and "" in deltas
    shown = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert "" in shown and answer.status == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_come_back_to_the_worker_that_made_them(tmp_path: Path, stream: bool) -> None:
    def bert(messages: Any, sampling: Any) -> Any:
        results = [turn.content for turn in messages if turn.role == "tool"]
        return f"it is {results}" if results else ["let me see", {"add": {"a": 6}, "patch": {"input": "*** Begin"}}]

    def ask(server: Orchestra, turns: Any) -> Any:
        asked: Any = {"model": "conductor", "input": turns, "tools": [ADD, PATCH]}
        if not stream:
            return client(server).responses.create(**asked)
        with client(server).responses.stream(**asked) as events:
            return events.get_final_response()

    with orchestra(tmp_path, "thought", bert) as server:
        turns: Any = [{"role": "user", "content": "Add."}]
        first = ask(server, turns)
        _, message, add, patch = first.output
        assert message.content[0].text == "let me see"
        assert (add.type, add.name, add.arguments) == ("function_call", "add", '{"a": 6}')
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "*** Begin")
        turns += [item.to_dict() for item in first.output]
        turns += [{"type": "function_call_output", "call_id": add.call_id, "output": "13"},
                  {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "done"}]  # fmt: skip
        second = ask(server, turns)
        asked = len(server.planner.sent)
    assert second.output_text == "it is ['13', 'done']"
    assert asked == 1, "the worker goes on by itself"


def test_a_conversation_goes_on_from_an_answer_or_from_its_parts_by_name(tmp_path: Path) -> None:
    keys = [KeyTable(name, hash_key(name)) for name in ("ann", "ben")]
    with orchestra(tmp_path, "thought", reads, key=keys) as server:
        ask = client(server, "ann").responses.create
        first = ask(model="direct:bert", input="One.", instructions="Be short.")
        said = first.output_text
        after = ask(model="direct:bert", input="Two.", previous_response_id=first.id)
        named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
        again = ask(model="direct:bert", input=[{"role": "user", "content": "One."}, *named, user("Two.")])
        for wrong in ({"previous_response_id": first.id, "input": "Two."}, {"input": [*named, user("Two.")]}):
            with pytest.raises(openai.NotFoundError):
                client(server, "ben").responses.create(model="direct:bert", **wrong)
    assert after.output_text == again.output_text == f"user: One. | assistant: {said}"
