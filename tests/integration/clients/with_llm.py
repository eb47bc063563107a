"""The library of the command ``llm``, with models from its own file, over chat completions and
Responses.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import llm
import openai
from driver import AGAIN, QUESTION, SCHEMA, drive


def model(url: str, how: str, name: str = "conductor", idle: float | None = None) -> Any:
    entry = {
        "model_id": f"ours/{name}",
        "model_name": name,
        "api_base": f"{url}/v1",
        "supports_schema": True,
        "supports_tools": True,
        "responses": how == "responses",
    }
    llm.user_dir().mkdir(parents=True, exist_ok=True)
    (llm.user_dir() / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    found: Any = llm.get_model(f"ours/{name}")
    if idle is not None:  # it has no setting for that
        plain = found.get_client
        found.get_client = lambda *given, **more: plain(*given, **more).with_options(
            timeout=openai.Timeout(60, read=idle)
        )
    return found


def told(response: Any) -> Any:
    pieces = list(response)
    used = response.usage()
    sums = [used.input, used.output, used.input + used.output]
    return {"text": "".join(pieces), "pieces": len(pieces), "usage": sums, "details": used.details}


def ask(
    url: str,
    how: str,
    model: str = "conductor",
    stream: bool = False,
    idle: float | None = None,
    **extra: Any,
) -> Any:
    of = make(url, how, model, idle)
    if extra:  # nor for fields of the body
        plain = of.get_client

        def with_body(*given: Any, **more: Any) -> Any:
            made = plain(*given, **more)
            for resource in (made.chat.completions, made.responses):
                resource.create = functools.partial(resource.create, extra_body=extra)
            return made

        of.get_client = with_body
    return told(of.prompt(QUESTION, stream=stream))


make = model


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def tools(url: str, how: str, stream: bool = False) -> Any:
    chain = model(url, how).chain(QUESTION, tools=[add], stream=stream)
    *_, last = chain.responses()
    return told(last)


def structured(url: str, how: str) -> Any:
    return json.loads(model(url, how).prompt(QUESTION, schema=SCHEMA, stream=False).text())


def turns(url: str, how: str) -> Any:
    talk = model(url, how).conversation()
    return [told(talk.prompt(text, stream=False)) for text in (QUESTION, AGAIN)]


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns},
    openai.OpenAIError,
    llm.ModelError,
)
