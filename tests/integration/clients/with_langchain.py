"""LangChain over chat completions (``chat``), Responses (``responses``) and Messages
(``anthropic``).
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import anthropic
import openai
from driver import QUESTION, SCHEMA, Job, add, call_tools, converse, drive, user
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

LOOP = asyncio.new_event_loop()  # one: clients keep their connections


def make(job: Job) -> Any:
    options: Any = {"model": job.model, "api_key": "none", "timeout": job.idle}
    if job.how == "anthropic":
        if job.extra:
            options["model_kwargs"] = {"extra_body": job.extra}
        return ChatAnthropic(base_url=job.url, max_tokens=500, **options)
    options |= {"stream_usage": True, "stream_chunk_timeout": job.idle}
    options |= {"extra_body": job.extra, "use_responses_api": job.how == "responses"}
    return ChatOpenAI(base_url=f"{job.url}/v1", **options)


async def streamed(model: Any, turns: Any) -> tuple[BaseMessage, int]:
    """Return the message, and the number of pieces that its text came in."""
    chunks = [chunk async for chunk in model.astream(turns)]
    message = chunks[0]
    for chunk in chunks[1:]:
        message += chunk
    return message, sum(bool(chunk.text) for chunk in chunks)


def ask(job: Job, turns: Any = QUESTION, model: Any = None) -> Any:
    model = model or make(job)
    message, pieces = None, 0
    if job.stream:
        message, pieces = LOOP.run_until_complete(streamed(model, turns))
    else:
        message = model.invoke(turns)
    used = message.usage_metadata
    told = {
        "text": message.text,
        "pieces": pieces,
        "details": used,
        "usage": [used[f"{name}_tokens"] for name in ("input", "output", "total")],
        "calls": [(call["id"], call["args"]) for call in message.tool_calls],
        "said": [message],
    }
    if job.how != "chat":
        blocks = [block for block in message.content_blocks if block["type"] == "reasoning"]
        told["thoughts"] = "\n".join(block["reasoning"] for block in blocks)
    return told


def results(calls: Any) -> list[ToolMessage]:
    return [ToolMessage(str(add(**given)), tool_call_id=call) for call, given in calls]


def tools(job: Job) -> Any:
    model = make(job).bind_tools([tool(add)])
    return call_tools(functools.partial(ask, job, model=model), results)


def structured(job: Job) -> Any:
    schema = {"title": "Place", "description": "A place.", **SCHEMA}
    model = make(job).with_structured_output(schema, method=job.mode or "json_schema")
    return model.invoke([user(QUESTION)])


def turns(job: Job) -> Any:
    return converse(functools.partial(ask, job, model=make(job)))


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns},
    openai.OpenAIError,
    anthropic.AnthropicError,
    ValueError,
)
