"""LangChain over chat completions (``chat``), Responses (``responses``) and Messages
(``anthropic``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
from driver import AGAIN, QUESTION, SCHEMA, drive
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

LOOP = asyncio.new_event_loop()  # one: clients keep their connections


def make(
    url: str, how: str, name: str = "conductor", idle: float | None = None, **extra: Any
) -> Any:
    if how == "anthropic":
        more: Any = {"model_kwargs": {"extra_body": extra}} if extra else {}
        return ChatAnthropic(
            model=name, base_url=url, api_key="none", timeout=idle, max_tokens=500, **more
        )
    more = {
        "extra_body": extra,
        "use_responses_api": how == "responses",
        "stream_chunk_timeout": idle,
    }
    return ChatOpenAI(
        model=name, base_url=f"{url}/v1", api_key="none", stream_usage=True, timeout=idle, **more
    )


def told(message: BaseMessage, pieces: int = 0, how: str = "") -> Any:
    blocks, used = message.content_blocks, message.usage_metadata  # type: ignore[attr-defined]
    shown = {
        "thoughts": "\n".join(
            block["reasoning"] for block in blocks if block["type"] == "reasoning"
        )
    }
    return {
        "text": message.text,
        "pieces": pieces,
        "details": used,
        **(shown if how != "chat" else {}),
        "usage": [used[f"{name}_tokens"] for name in ("input", "output", "total")],
    }


async def streamed(of: Any, turns: Any) -> tuple[BaseMessage, int]:
    chunks = [chunk async for chunk in of.astream(turns)]
    whole, pieces = chunks[0], sum(bool(chunk.text) for chunk in chunks)
    for chunk in chunks[1:]:
        whole += chunk
    return whole, pieces


def ask(
    url: str,
    how: str,
    model: str = "conductor",
    stream: bool = False,
    idle: float | None = None,
    turns: Any = QUESTION,
    **extra: Any,
) -> Any:
    of = make(url, how, model, idle, **extra)
    if stream:
        return told(*LOOP.run_until_complete(streamed(of, turns)), how)
    return told(of.invoke(turns), 0, how)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def tools(url: str, how: str, stream: bool = False) -> Any:
    of, turns = make(url, how).bind_tools([add]), [HumanMessage(QUESTION)]
    for _ in range(3):
        message = LOOP.run_until_complete(streamed(of, turns))[0] if stream else of.invoke(turns)
        if not message.tool_calls:
            return told(message, 0, how)
        turns += [
            message,
            *(
                ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"])
                for call in message.tool_calls
            ),
        ]
    raise AssertionError("it calls tools for ever")


def structured(url: str, how: str, mode: str = "json_schema") -> Any:
    schema = {"title": "Place", "description": "A place.", **SCHEMA}
    return make(url, how).with_structured_output(schema, method=mode).invoke(QUESTION)


def turns(url: str, how: str) -> Any:
    of, first = make(url, how), HumanMessage(QUESTION)
    answer = of.invoke([first])
    return [told(answer), told(of.invoke([first, answer, HumanMessage(AGAIN)]))]


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns},
    openai.OpenAIError,
    anthropic.AnthropicError,
    ValueError,
)
