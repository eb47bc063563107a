"""The first draft of a pool file.

In: the names of the keys in the environment, and local servers. Out: TOML. No key is ever read beyond whether it is
there, and none is written. The models are well-known ones from one small table, to be changed by hand; prices are
those of ``prices.py``, a comment where none is known.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from openconductor.prices import FoundPrice, find_price, price_line

LOCAL_SECONDS = 1.0
LOCAL_MODELS = 3
"""How long a local server is waited for, and how many of its models are taken."""

MOST_BYTES = 1_000_000  # of a local server's list of models
MAX_TOKENS = 8192
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A service that is known by its key: the first of ``keys`` that is set is named in the file."""

    name: str
    keys: tuple[str, ...]
    provider: str
    base_url: str
    models: tuple[str, ...]


VENDORS = (
    Vendor("OpenAI", ("OPENAI_API_KEY",), "openai", "https://api.openai.com/v1", ("gpt-5", "gpt-5-mini")),
    Vendor(
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        "openai_compatible",
        "https://api.anthropic.com/v1",
        ("claude-sonnet-4-6", "claude-haiku-4-5"),
    ),
    Vendor(
        "Google",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "openai_compatible",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("gemini-2.5-flash",),
    ),
    Vendor(
        "OpenRouter",
        ("OPENROUTER_API_KEY",),
        "openrouter",
        "https://openrouter.ai/api/v1",
        ("deepseek/deepseek-v3.2", "qwen/qwen3-235b-a22b-2507"),
    ),
)
"""The models that a draft begins with; any other model of the same service will do."""

LOCAL = {"ollama": "http://localhost:11434/v1", "vllm": "http://localhost:8000/v1"}
"""Where local servers listen by default, by the name of their provider."""

KEYS = tuple(key for vendor in VENDORS for key in vendor.keys)


@dataclass(frozen=True, slots=True)
class Draft:
    """One worker of the draft; ``origin`` says why it is there."""

    name: str
    provider: str
    model: str
    base_url: str | None
    api_key_env: str | None
    price: FoundPrice
    origin: str


async def find_workers(environment: Mapping[str, str]) -> list[Draft]:
    """The workers that can be had: those whose key is set, and those of local servers that answer within a second."""
    found: list[Draft] = []
    for vendor in VENDORS:
        key = next((name for name in vendor.keys if environment.get(name, "").strip()), None)
        if key is None:
            continue
        # The provider knows its address by itself, but for the general one.
        address = vendor.base_url if vendor.provider == "openai_compatible" else None
        for model in vendor.models:
            price = find_price(model, base_url=vendor.base_url)
            name = _free_name(model, found)
            found.append(Draft(name, vendor.provider, model, address, key, price, f"{vendor.name}, for {key} is set"))
    served = await asyncio.gather(*(asyncio.to_thread(_served, url) for url in LOCAL.values()))
    for (provider, url), models in zip(LOCAL.items(), served, strict=True):
        for model in models[:LOCAL_MODELS]:
            mine = FoundPrice(None, "a server of your own")
            found.append(Draft(_free_name(model, found), provider, model, url, None, mine, f"served at {url}"))
    return found


HEAD = """\
# A pool of workers, drafted by `openconductor pool init` on {today}. It is yours to change.
# The Conductor sees a worker only as its place in this file, counted from 0: names and prices are for you.
# `openconductor pool check` with this file's name asks each of them whether it works. The lines of a worker:
#   name         how tables and errors call it
#   provider     which client speaks to it
#   model        its name at the server; any other model there will do
#   base_url     where its API begins
#   api_key_env  the environment variable that holds its key; no key is ever in this file
#   price        US dollars a million tokens
#   sampling     max_tokens: the most that one call writes; a budget reserves it
#   and, where they help, max_concurrency (calls at once), rpm and tpm (calls and tokens a minute)
"""


def pool_text(workers: list[Draft], *, today: date) -> str:
    """The pool file; its comments say what each line is for."""
    parts = [HEAD.format(today=today.isoformat())]
    for ordinal, worker in enumerate(workers):
        found = worker.price
        lines = [f"[[worker]]  # {ordinal}: {worker.origin}"]
        values = {name: getattr(worker, name) for name in ("name", "provider", "model", "base_url", "api_key_env")}
        # A JSON string without control characters is a TOML string.
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items() if value]
        if found.price is None:
            lines.append(f"# price = {{ input = 0, output = 0 }}  # not known: {found.reason}")
        else:
            lines += [f"# price: {'; '.join((found.source, *found.notes))}", price_line(found.price)]
        parts.append("\n".join([*lines, f"sampling = {{ max_tokens = {MAX_TOKENS} }}", ""]))
    return "\n".join(parts)


def _free_name(model: str, taken: list[Draft]) -> str:
    """The last part of the model's name, or the next that is free."""
    name = model.rpartition("/")[2]
    names = {worker.name for worker in taken}
    number = 2
    while name in names:
        name = f"{model.rpartition('/')[2]}-{number}"
        number += 1
    return name


def _served(url: str) -> list[str]:
    """The models that a local server says it has; none where nothing answers in time, or something else does."""
    import urllib.request

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/models", timeout=LOCAL_SECONDS) as response:
            body: Any = json.loads(response.read(MOST_BYTES))
        names = [entry["id"] for entry in body["data"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return []
    return [name for name in names if isinstance(name, str) and _MODEL_NAME.fullmatch(name)]
