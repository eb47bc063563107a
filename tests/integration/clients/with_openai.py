"""OpenAI's own client: chat completions (``chat``) and Responses (``responses``)."""

from __future__ import annotations

import json
from typing import Any

import openai
from driver import ADD, AGAIN, QUESTION, SCHEMA, drive

PARAMETERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}
FUNCTION: Any = {"name": "add", "description": ADD, "parameters": PARAMETERS}


def client(url: str, idle: float | None = None) -> openai.OpenAI:
    limits: Any = {} if idle is None else {"timeout": openai.Timeout(60, read=idle)}
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", **limits)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(
    url: str,
    how: str,
    model: str = "conductor",
    stream: bool = False,
    idle: float | None = None,
    **extra: Any,
) -> Any:
    options: Any = {"model": model, "extra_body": extra}
    if how == "responses":
        return respond(client(url, idle), stream, input=QUESTION, **options)
    return chat(client(url, idle), stream, messages=[user(QUESTION)], **options)


def chat(at: openai.OpenAI, stream: bool, **options: Any) -> Any:
    if not stream:
        answer = at.chat.completions.create(**options)
        message, usage = answer.choices[0].message, answer.usage
        pieces, thoughts = [message.content or ""], [getattr(message, "reasoning_content", "")]
    else:
        with at.chat.completions.stream(
            **options, stream_options={"include_usage": True}
        ) as events:
            chunks = [event.chunk for event in events if event.type == "chunk"]
            answer = events.get_final_completion()
        message, usage = answer.choices[0].message, chunks[-1].usage
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        pieces = [delta.content for delta in deltas if delta.content]
        thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
        assert message.content == ("".join(pieces) or None)
    calls = [[call.id, call.function.arguments] for call in message.tool_calls or ()]  # type: ignore[union-attr]
    said = message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
    used = [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "thoughts": "".join(thoughts),
        "calls": calls,
        "usage": used,
        "said": [said],
        "details": usage.model_dump(),
    }


def respond(at: openai.OpenAI, stream: bool, **options: Any) -> Any:
    pieces: list[str] = []
    if not stream:
        answer = at.responses.create(**options)
    else:
        with at.responses.stream(**options) as events:
            pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
            answer = events.get_final_response()
    thoughts = [
        part.text for item in answer.output if item.type == "reasoning" for part in item.summary
    ]
    calls = [
        [item.call_id, item.arguments] for item in answer.output if item.type == "function_call"
    ]
    used = [answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens]
    said = [item.model_dump(exclude_none=True) for item in answer.output]
    return {
        "text": answer.output_text,
        "pieces": len(pieces),
        "thoughts": "\n".join(thoughts),
        "calls": calls,
        "usage": used,
        "said": said,
        "id": answer.id,
        "details": answer.usage.model_dump(),
    }


def tools(url: str, how: str, stream: bool = False) -> Any:
    at, turns, options = client(url), [user(QUESTION)], {"model": "conductor"}
    for _ in range(3):
        if how == "responses":
            told = respond(
                at,
                stream,
                input=turns,
                tools=[{"type": "function", "strict": False, **FUNCTION}],
                **options,
            )
        else:
            told = chat(
                at,
                stream,
                messages=turns,
                tools=[{"type": "function", "function": FUNCTION}],
                **options,
            )
        turns += told["said"]
        for identifier, arguments in told["calls"]:
            result = str(sum(json.loads(arguments).values()))
            turns.append(
                {"type": "function_call_output", "call_id": identifier, "output": result}
                if how == "responses"
                else {"role": "tool", "tool_call_id": identifier, "content": result}
            )
        if not told["calls"]:
            return told
    raise AssertionError("it calls tools for ever")


def structured(url: str, how: str) -> Any:
    form: Any = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
    if how == "responses":
        told = respond(client(url), False, input=QUESTION, model="conductor", text={"format": form})
    else:
        form = {"type": form.pop("type"), "json_schema": form}
        told = chat(
            client(url), False, messages=[user(QUESTION)], model="conductor", response_format=form
        )
    return json.loads(told["text"])


def turns(url: str, how: str) -> Any:
    at = client(url)
    if how == "responses":
        first = respond(at, False, input=QUESTION, model="conductor")
        return [
            first,
            respond(at, False, input=AGAIN, model="conductor", previous_response_id=first["id"]),
        ]
    first = chat(at, False, messages=[user(QUESTION)], model="conductor")
    return [
        first,
        chat(at, False, messages=[user(QUESTION), *first["said"], user(AGAIN)], model="conductor"),
    ]


drive({"ask": ask, "tools": tools, "structured": structured, "turns": turns}, openai.OpenAIError)
