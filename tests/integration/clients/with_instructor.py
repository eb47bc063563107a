"""instructor over OpenAI's client, in the modes that it is used in."""

from __future__ import annotations

import functools
from typing import Any

import instructor
import openai
from driver import QUESTION, Job, converse, drive, user
from instructor.core.exceptions import InstructorError
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


def make(job: Job) -> Any:
    plain = openai.OpenAI(base_url=f"{job.url}/v1", api_key="none")
    if job.idle is not None:
        plain = plain.with_options(timeout=openai.Timeout(60, read=job.idle))
    return instructor.from_openai(plain, mode=instructor.Mode[job.mode or "TOOLS"])


def ask(job: Job, turns: Any = None) -> Any:
    options: Any = {"model": job.model, "extra_body": job.extra}
    options["messages"] = turns or [user(QUESTION)]
    if job.stream:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = make(job).chat.completions.create(response_model=None, **options)
    pieces: list[str] = []
    if job.stream:
        *chunks, last = answer
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        text, used = "".join(pieces), last.usage
    else:
        text, used = answer.choices[0].message.content, answer.usage
    return {
        "text": text,
        "pieces": sum(map(bool, pieces)),
        "usage": [used.prompt_tokens, used.completion_tokens, used.total_tokens],
        "said": [{"role": "assistant", "content": text}],
    }


def structured(job: Job) -> Any:
    options: Any = {"model": job.model, "messages": [user(QUESTION)]}
    return make(job).chat.completions.create(response_model=Place, **options).model_dump()


def turns(job: Job) -> Any:
    return converse(functools.partial(ask, job))


drive({"ask": ask, "structured": structured, "turns": turns}, openai.OpenAIError, InstructorError)
