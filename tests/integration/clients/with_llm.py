"""The library of the command ``llm``, with models from its own file, over chat completions and
Responses.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import llm
import openai
from driver import AGAIN, QUESTION, SCHEMA, Job, add, drive


def make(job: Job) -> Any:
    entry = {
        "model_id": f"ours/{job.model}",
        "model_name": job.model,
        "api_base": f"{job.url}/v1",
        "supports_schema": True,
        "supports_tools": True,
        "responses": job.how == "responses",
    }
    llm.user_dir().mkdir(parents=True, exist_ok=True)
    (llm.user_dir() / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    model: Any = llm.get_model(f"ours/{job.model}")
    plain = model.get_client

    def get_client(*given: Any, **more: Any) -> Any:
        """Set what the library has no settings for: the timeout, and fields of the body."""
        client = plain(*given, **more)
        if job.idle is not None:
            client = client.with_options(timeout=openai.Timeout(60, read=job.idle))
        for resource in (client.chat.completions, client.responses):
            resource.create = functools.partial(resource.create, extra_body=job.extra)
        return client

    model.get_client = get_client
    return model


def tell(response: Any) -> Any:
    pieces = list(response)
    used = response.usage()
    sums = [used.input, used.output, used.input + used.output]
    return {"text": "".join(pieces), "pieces": len(pieces), "usage": sums, "details": used.details}


def ask(job: Job) -> Any:
    return tell(make(job).prompt(QUESTION, stream=job.stream))


def tools(job: Job) -> Any:
    *_, last = make(job).chain(QUESTION, tools=[add], stream=job.stream).responses()
    return tell(last)


def structured(job: Job) -> Any:
    return json.loads(make(job).prompt(QUESTION, schema=SCHEMA, stream=False).text())


def turns(job: Job) -> Any:
    conversation = make(job).conversation()
    return [tell(conversation.prompt(text, stream=False)) for text in (QUESTION, AGAIN)]


drive(
    {"ask": ask, "tools": tools, "structured": structured, "turns": turns},
    openai.OpenAIError,
    llm.ModelError,
)
