"""instructor over OpenAI's client, in the modes that it is used in."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from driver import AGAIN, QUESTION, drive
from instructor.core.exceptions import InstructorError
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


def client(url: str, idle: float | None = None, mode: str = "TOOLS") -> Any:
    limits: Any = {} if idle is None else {"timeout": openai.Timeout(60, read=idle)}
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", **limits)
    return instructor.from_openai(plain, mode=instructor.Mode[mode])


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(
    url: str,
    how: str = "",
    model: str = "conductor",
    stream: bool = False,
    idle: float | None = None,
    turns: Any = (),
    **extra: Any,
) -> Any:
    options: Any = {
        "model": model,
        "messages": [*turns, user(AGAIN if turns else QUESTION)],
        "extra_body": extra,
    }
    options |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer = client(url, idle).chat.completions.create(response_model=None, **options)
    if stream:
        chunks = list(answer)
        pieces = [
            chunk.choices[0].delta.content
            for chunk in chunks
            if chunk.choices and chunk.choices[0].delta.content
        ]
        text, used = "".join(pieces), chunks[-1].usage
    else:
        text, pieces, used = answer.choices[0].message.content, [], answer.usage
    return {
        "text": text,
        "pieces": len(pieces),
        "usage": [used.prompt_tokens, used.completion_tokens, used.total_tokens],
    }


def structured(url: str, how: str = "", mode: str = "TOOLS", stream: bool = False) -> Any:
    at, options = client(url, mode=mode), {"model": "conductor", "messages": [user(QUESTION)]}
    if not stream:
        return at.chat.completions.create(response_model=Place, **options).model_dump()
    parts = [
        part.model_dump()
        for part in at.chat.completions.create_partial(response_model=Place, **options)
    ]
    assert len(parts) > 1
    return parts[-1]


def turns(url: str, how: str = "") -> Any:
    first = ask(url)
    return [
        first,
        ask(url, turns=[user(QUESTION), {"role": "assistant", "content": first["text"]}]),
    ]


drive({"ask": ask, "structured": structured, "turns": turns}, openai.OpenAIError, InstructorError)
