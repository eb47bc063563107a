"""pydantic-ai over chat completions (``chat``), Responses (``responses``) and Messages
(``anthropic``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from driver import AGAIN, QUESTION, drive
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Place(BaseModel):
    city: str
    people: int


def agent(url: str, how: str, name: str = "conductor", output: Any = str) -> Agent[None, Any]:
    if how == "anthropic":
        provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=url, api_key="none"))
        return Agent(AnthropicModel(name, provider=provider), output_type=output)
    kind = OpenAIChatModel if how == "chat" else OpenAIResponsesModel
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
    return Agent(kind(name, provider=provider), output_type=output)


def told(result: Any, text: str, pieces: int = 0) -> Any:
    thoughts = [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]
    used = result.usage() if callable(result.usage) else result.usage
    sums = [used.input_tokens, used.output_tokens, used.input_tokens + used.output_tokens]
    return {
        "text": text,
        "pieces": pieces,
        "thoughts": "\n".join(thoughts),
        "usage": sums,
        "details": repr(used),
    }


def run(of: Agent[None, Any], stream: bool, question: str = QUESTION, **options: Any) -> Any:
    if not stream:
        result = of.run_sync(question, **options)
        return told(result, result.output)
    result = of.run_stream_sync(question, **options)
    pieces = list(result.stream_text(delta=True, debounce_by=None))
    return told(result, "".join(pieces), len(pieces))


def ask(
    url: str,
    how: str,
    model: str = "conductor",
    stream: bool = False,
    idle: float | None = None,
    **extra: Any,
) -> Any:
    settings: Any = {"extra_body": extra} if extra else {}
    settings |= {} if idle is None else {"timeout": httpx2.Timeout(60, read=idle)}
    return run(agent(url, how, model), stream, model_settings=settings)


def tools(url: str, how: str, stream: bool = False) -> Any:
    one = agent(url, how)

    @one.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return asyncio.run(run_events(one)) if stream else run(one, False)


async def run_events(one: Agent[None, Any]) -> Any:
    """A stream whose first answer has text and calls of tools: ``run_stream`` would end with that
    text.
    """
    async with one.run_stream_events(QUESTION) as events:
        *_, last = [event async for event in events]
    return told(last.result, last.result.output)


def structured(url: str, how: str) -> Any:
    output: Any = Place if how == "anthropic" else NativeOutput(Place)  # a tool, or a format
    return agent(url, how, output=output).run_sync(QUESTION).output.model_dump()


def turns(url: str, how: str) -> Any:
    one = agent(url, how)
    first = one.run_sync(QUESTION)
    second = one.run_sync(AGAIN, message_history=first.all_messages())
    return [told(first, first.output), told(second, second.output)]


drive({"ask": ask, "tools": tools, "structured": structured, "turns": turns}, AgentRunError)
