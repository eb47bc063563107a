"""OpenAI's own client: chat completions (``chat``) and Responses (``responses``)."""

from __future__ import annotations

import functools
import json
from typing import Any

import openai
from driver import AGAIN, INTEGERS, QUESTION, SCHEMA, Job, add, call_tools, converse, drive, user

FUNCTION: Any = {"name": "add", "description": add.__doc__, "parameters": INTEGERS}


def make(job: Job) -> openai.OpenAI:
    client = openai.OpenAI(base_url=f"{job.url}/v1", api_key="none")
    if job.idle is None:
        return client
    return client.with_options(timeout=openai.Timeout(60, read=job.idle))


# ── chat completions ──────────────────────────────────────────────────────────────────────────────
def chat(job: Job, turns: Any, **options: Any) -> Any:
    completions = make(job).chat.completions
    options |= {"model": job.model, "messages": turns, "extra_body": job.extra}
    if job.stream:
        told = chat_stream(completions, options)
    else:
        answer = completions.create(**options)
        message = answer.choices[0].message
        told = {
            "text": message.content or "",
            "thoughts": getattr(message, "reasoning_content", ""),
            "message": message,
            "used": answer.usage,
        }
    message = told.pop("message")
    used = told.pop("used")
    calls = message.tool_calls or ()
    told["calls"] = [(call.id, json.loads(call.function.arguments)) for call in calls]
    told["usage"] = [used.prompt_tokens, used.completion_tokens, used.total_tokens]
    told["details"] = used.model_dump()
    said = {"role", "content", "tool_calls"}
    told["said"] = [message.model_dump(exclude_none=True, include=said)]
    return told


def chat_stream(completions: Any, options: Any) -> Any:
    with completions.stream(**options, stream_options={"include_usage": True}) as events:
        chunks = [event.chunk for event in events if event.type == "chunk"]
        message = events.get_final_completion().choices[0].message
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    pieces = [delta.content for delta in deltas if delta.content]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    text = "".join(pieces)
    assert message.content == (text or None)
    return {
        "text": text,
        "pieces": len(pieces),
        "thoughts": "".join(thoughts),
        "message": message,
        "used": chunks[-1].usage,
    }


def tool_turns(calls: Any) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": identifier, "content": str(add(**given))}
        for identifier, given in calls
    ]


# ── Responses ─────────────────────────────────────────────────────────────────────────────────────
def respond(job: Job, turns: Any, **options: Any) -> Any:
    responses = make(job).responses
    options |= {"model": job.model, "input": turns, "extra_body": job.extra}
    pieces: list[str] = []
    if job.stream:
        with responses.stream(**options) as events:
            pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
            answer = events.get_final_response()
    else:
        answer = responses.create(**options)
    thoughts = [item.summary for item in answer.output if item.type == "reasoning"]
    calls = [item for item in answer.output if item.type == "function_call"]
    used = answer.usage
    told: dict[str, Any] = {"id": answer.id, "text": answer.output_text, "pieces": len(pieces)}
    told["thoughts"] = "\n".join(part.text for summary in thoughts for part in summary)
    told["calls"] = [(call.call_id, json.loads(call.arguments)) for call in calls]
    told["usage"] = [used.input_tokens, used.output_tokens, used.total_tokens]
    told["details"] = used.model_dump()
    told["said"] = [item.model_dump(exclude_none=True) for item in answer.output]
    return told


def outputs(calls: Any) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": identifier, "output": str(add(**given))}
        for identifier, given in calls
    ]


# ── what both do ──────────────────────────────────────────────────────────────────────────────────
def ask(job: Job) -> Any:
    if job.how == "responses":
        return respond(job, QUESTION)
    return chat(job, [user(QUESTION)])


def tools(job: Job) -> Any:
    if job.how == "responses":
        tool = {"type": "function", "strict": False, **FUNCTION}
        return call_tools(functools.partial(respond, job, tools=[tool]), outputs)
    tool = {"type": "function", "function": FUNCTION}
    return call_tools(functools.partial(chat, job, tools=[tool]), tool_turns)


def structured(job: Job) -> Any:
    form: Any = {"name": "place", "schema": SCHEMA, "strict": True}
    if job.how == "responses":
        told = respond(job, QUESTION, text={"format": {"type": "json_schema", **form}})
    else:
        form = {"type": "json_schema", "json_schema": form}
        told = chat(job, [user(QUESTION)], response_format=form)
    return json.loads(told["text"])


def turns(job: Job) -> Any:
    if job.how == "chat":
        return converse(functools.partial(chat, job))
    first = respond(job, QUESTION)
    return [first, respond(job, AGAIN, previous_response_id=first["id"])]


drive({"ask": ask, "tools": tools, "structured": structured, "turns": turns}, openai.OpenAIError)
