"""Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
from driver import ADD, AGAIN, QUESTION, SCHEMA, drive

PARAMETERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}


def ask(
    url: str, how: str = "", turns: Any = None, stream: bool = False, idle: float | None = None,
    model: str = "conductor", conductor: Any = None, **options: Any,
) -> Any:  # fmt: skip
    limits: Any = {} if idle is None else {"timeout": anthropic.Timeout(60, read=idle)}
    at = anthropic.Anthropic(base_url=url, api_key="none", **limits)
    options |= {"model": model, "messages": turns or [user(QUESTION)], "max_tokens": 500}
    options |= {"extra_body": {"conductor": conductor}} if conductor else {}
    pieces: list[str] = []
    if stream:
        with at.messages.stream(**options) as events:
            pieces = [event.text for event in events if event.type == "text"]
            answer: Any = events.get_final_message()
    else:
        answer = at.messages.create(**options)
    used = answer.usage
    read = used.input_tokens + used.cache_read_input_tokens
    return {
        "text": "".join(block.text for block in answer.content if block.type == "text"),
        "pieces": len(pieces),
        "thoughts": "\n".join(
            block.thinking for block in answer.content if block.type == "thinking"
        ),
        "usage": [read, used.output_tokens, read + used.output_tokens],
        "calls": [[block.id, block.input] for block in answer.content if block.type == "tool_use"],
        "said": [
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in answer.content],
            }
        ],
        "details": used.model_dump(),
    }


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def tools(url: str, how: str = "", stream: bool = False) -> Any:
    turns = [user(QUESTION)]
    for _ in range(3):
        told = ask(
            url,
            turns=turns,
            stream=stream,
            tools=[{"name": "add", "description": ADD, "input_schema": PARAMETERS}],
        )
        if not told["calls"]:
            return told
        results = [
            {"type": "tool_result", "tool_use_id": identifier, "content": str(sum(given.values()))}
            for identifier, given in told["calls"]
        ]
        turns += [*told["said"], user(results)]
    raise AssertionError("it calls tools for ever")


def structured(url: str, how: str = "") -> Any:
    return json.loads(
        ask(url, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})["text"]
    )


def turns(url: str, how: str = "") -> Any:
    first = ask(url)
    return [first, ask(url, turns=[user(QUESTION), *first["said"], user(AGAIN)])]


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns}, anthropic.AnthropicError
)
