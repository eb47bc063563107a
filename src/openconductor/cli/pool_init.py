"""The first draft of a pool file. In: the names of the keys in the environment, and local servers. Out: TOML.

No key is ever read beyond whether it is there, and none is written. The models are well-known ones from one small
table, to be changed by hand; prices are those of ``prices.py``, a comment where none is known.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import cast

from openconductor.errors import WorkerError
from openconductor.prices import FoundPrice, find_price, price_line
from openconductor.providers.http_session import Sessions

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
    known: FoundPrice
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
    served = await asyncio.gather(*(_served(url) for url in LOCAL.values()))
    for (provider, url), models in zip(LOCAL.items(), served, strict=True):
        for model in models[:LOCAL_MODELS]:
            mine = FoundPrice(None, "a server of your own")
            found.append(Draft(_free_name(model, found), provider, model, url, None, mine, f"served at {url}"))
    return found


def pool_text(workers: list[Draft], *, today: date) -> str:
    """The pool file; its comments say what each line is for."""
    head = (
        f"# A pool of workers, drafted by `openconductor pool init` on {today.isoformat()}. It is yours to change.\n"
        "# The Conductor sees a worker only as its place in this file, counted from 0: names and prices are for you.\n"
        "# No key stands here, only the name of the environment variable that holds it.\n"
        "# `openconductor pool check` with this file's name asks each of them whether it works.\n"
    )
    return head + "".join(_table(ordinal, worker) for ordinal, worker in enumerate(workers))


def _table(ordinal: int, worker: Draft) -> str:
    lines = [
        (f"name = {_quoted(worker.name)}", "how tables and errors call it"),
        (f"provider = {_quoted(worker.provider)}", "which client speaks to it"),
        (f"model = {_quoted(worker.model)}", "its name at the server; any other model there will do"),
    ]
    if worker.base_url is not None:
        lines.append((f"base_url = {_quoted(worker.base_url)}", "where its API begins"))
    if worker.api_key_env is not None:
        lines.append((f"api_key_env = {_quoted(worker.api_key_env)}", "the environment variable that holds its key"))
    known = worker.known
    if known.price is None:
        lines.append(("# price = { input = 0, output = 0 }", f"US dollars a million tokens; not known: {known.reason}"))
    else:
        lines.append((price_line(known.price), "US dollars a million tokens"))
    lines.append((f"sampling = {{ max_tokens = {MAX_TOKENS} }}", "the most that one call writes; a budget reserves it"))
    lines.append(("# max_concurrency = 8", "calls at once; rpm and tpm: calls and tokens a minute"))
    width = max(len(line) for line, _ in lines)
    priced = "" if known.price is None else f"# price: {'; '.join((known.source, *known.notes))}\n"
    # What a line means is said once; what is particular is said each time.
    body = "".join(
        f"{line:<{width}}  # {comment}\n" if ordinal == 0 or "not known" in comment else f"{line}\n"
        for line, comment in lines
    )
    return f"\n[[worker]]  # {ordinal}: {worker.origin}\n{priced}{body}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string without control characters is a TOML string


def _free_name(model: str, taken: list[Draft]) -> str:
    """The last part of the model's name, or the next that is free."""
    name = model.rpartition("/")[2]
    names = {worker.name for worker in taken}
    number = 2
    while name in names:
        name = f"{model.rpartition('/')[2]}-{number}"
        number += 1
    return name


async def _served(url: str) -> list[str]:
    """The models that a local server says it has; none where nothing answers in time, or something else does."""
    started = asyncio.get_running_loop().time()
    sessions = Sessions(url, None)
    try:
        with await sessions.send(f"{url}/models", started=started, deadline=started + LOCAL_SECONDS) as response:
            if response.status != 200:
                return []
            data = b""
            while len(data) < MOST_BYTES and (chunk := await response.piece()):
                data += chunk
            body: object = json.loads(data)
    except (WorkerError, ValueError, RecursionError):
        return []
    finally:
        await sessions.aclose()
    listed: object = cast("dict[str, object]", body).get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return []
    entries = [cast("dict[str, object]", one) for one in cast("list[object]", listed) if isinstance(one, dict)]
    names = [name for entry in entries if isinstance(name := entry.get("id"), str)]
    return [name for name in names if _MODEL_NAME.fullmatch(name)]
