"""Anthropic's own client."""

from __future__ import annotations

import functools
import json
from typing import Any

import anthropic
from driver import INTEGERS, QUESTION, SCHEMA, Job, add, call_tools, converse, drive, user

TOOL: Any = {"name": "add", "description": add.__doc__, "input_schema": INTEGERS}


def ask(job: Job, turns: Any = None, **options: Any) -> Any:
    client = anthropic.Anthropic(base_url=job.url, api_key="none")
    if job.idle is not None:
        client = client.with_options(timeout=anthropic.Timeout(60, read=job.idle))
    options |= {"model": job.model, "max_tokens": 500, "extra_body": job.extra}
    options["messages"] = turns or [user(QUESTION)]
    pieces: list[str] = []
    if job.stream:
        with client.messages.stream(**options) as events:
            pieces = [event.text for event in events if event.type == "text"]
            answer: Any = events.get_final_message()
    else:
        answer = client.messages.create(**options)
    blocks, used = answer.content, answer.usage
    read = used.input_tokens + used.cache_read_input_tokens
    content = [block.model_dump(exclude_none=True) for block in blocks]
    return {
        "text": "".join(block.text for block in blocks if block.type == "text"),
        "pieces": len(pieces),
        "thoughts": "\n".join(block.thinking for block in blocks if block.type == "thinking"),
        "usage": [read, used.output_tokens, read + used.output_tokens],
        "calls": [(block.id, block.input) for block in blocks if block.type == "tool_use"],
        "said": [{"role": "assistant", "content": content}],
        "details": used.model_dump(),
    }


def results(calls: Any) -> list[Any]:
    blocks = [
        {"type": "tool_result", "tool_use_id": identifier, "content": str(add(**given))}
        for identifier, given in calls
    ]
    return [user(blocks)]


def tools(job: Job) -> Any:
    return call_tools(functools.partial(ask, job, tools=[TOOL]), results)


def structured(job: Job) -> Any:
    form = {"type": "json_schema", "schema": SCHEMA}
    return json.loads(ask(job, output_config={"format": form})["text"])


def turns(job: Job) -> Any:
    return converse(functools.partial(ask, job))


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns}, anthropic.AnthropicError
)
