"""pydantic-ai over chat completions (``chat``), Responses (``responses``) and Messages
(``anthropic``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from driver import AGAIN, QUESTION, Job, add, drive
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


def make(job: Job, output: Any = str) -> Agent[None, Any]:
    if job.how == "anthropic":
        client = AsyncAnthropic(base_url=job.url, api_key="none")
        model = AnthropicModel(job.model, provider=AnthropicProvider(anthropic_client=client))
        return Agent(model, output_type=output)
    kind = OpenAIChatModel if job.how == "chat" else OpenAIResponsesModel
    client = AsyncOpenAI(base_url=f"{job.url}/v1", api_key="none")
    return Agent(kind(job.model, provider=OpenAIProvider(openai_client=client)), output_type=output)


def tell(result: Any, text: str, pieces: int = 0) -> Any:
    parts = [part for message in result.all_messages() for part in message.parts]
    thoughts = [part.content for part in parts if isinstance(part, ThinkingPart)]
    used = result.usage() if callable(result.usage) else result.usage
    return {
        "text": text,
        "pieces": pieces,
        "thoughts": "\n".join(thoughts),
        "usage": [used.input_tokens, used.output_tokens, used.input_tokens + used.output_tokens],
        "details": repr(used),
    }


def ask(job: Job) -> Any:
    settings: Any = {"extra_body": job.extra}
    if job.idle is not None:
        settings["timeout"] = httpx2.Timeout(60, read=job.idle)
    agent = make(job)
    if not job.stream:
        result = agent.run_sync(QUESTION, model_settings=settings)
        return tell(result, result.output)
    result = agent.run_stream_sync(QUESTION, model_settings=settings)
    pieces = list(result.stream_text(delta=True, debounce_by=None))
    return tell(result, "".join(pieces), len(pieces))


def tools(job: Job) -> Any:
    agent = make(job)
    agent.tool_plain(add)
    if job.stream:
        return asyncio.run(run_events(agent))
    result = agent.run_sync(QUESTION)
    return tell(result, result.output)


async def run_events(agent: Agent[None, Any]) -> Any:
    """Stream an answer whose first part has text and calls of tools: ``run_stream`` would end with
    that text.
    """
    async with agent.run_stream_events(QUESTION) as events:
        *_, last = [event async for event in events]
    return tell(last.result, last.result.output)


def structured(job: Job) -> Any:
    output: Any = Place if job.how == "anthropic" else NativeOutput(Place)  # a tool, or a format
    return make(job, output).run_sync(QUESTION).output.model_dump()


def turns(job: Job) -> Any:
    agent = make(job)
    first = agent.run_sync(QUESTION)
    second = agent.run_sync(AGAIN, message_history=first.all_messages())
    return [tell(first, first.output), tell(second, second.output)]


drive({"ask": ask, "tools": tools, "structured": structured, "turns": turns}, AgentRunError)
