"""``openconductor pool init``: the first draft of a pool file.

In: the names of the keys in the environment, and local servers. Out: TOML. No key is ever read
beyond whether it is there, and none is written. The models are well-known ones from one small
table, to be changed by hand; prices are those of ``prices.py``, a comment where none is known.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

import typer

from openconductor.calls.prices import FoundPrice, find_price, price_line
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.cli.pool_check import price_text
from openconductor.config import dump_toml, validate
from openconductor.errors import ConfigError
from openconductor.pool import PoolFile

LOCAL_SECONDS = 1.0
LOCAL_MODELS = 3
"""How long a local server is waited for, and how many of its models are taken."""

MOST_BYTES = 1_000_000  # of a local server's list of models
MAX_TOKENS = 8192
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A service that is known by its key: the first of ``keys`` that is set is named in the file.

    ``provider`` knows its address by itself, unless it is the general ``openai_compatible``.
    """

    name: str
    keys: tuple[str, ...]
    base_url: str
    models: tuple[str, ...]
    provider: str = "openai_compatible"


_GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
_CLAUDE = ("claude-sonnet-4-6", "claude-haiku-4-5")
_OPEN = ("deepseek/deepseek-v3.2", "qwen/qwen3-235b-a22b-2507")
VENDORS = (
    Vendor(
        "OpenAI",
        ("OPENAI_API_KEY",),
        "https://api.openai.com/v1",
        ("gpt-5", "gpt-5-mini"),
        "openai",
    ),
    Vendor("Anthropic", ("ANTHROPIC_API_KEY",), "https://api.anthropic.com/v1", _CLAUDE),
    Vendor("Google", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), _GEMINI, ("gemini-2.5-flash",)),
    Vendor(
        "OpenRouter", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1", _OPEN, "openrouter"
    ),
)
"""The models that a draft begins with; any other model of the same service will do."""

LOCAL = {"ollama": "http://localhost:11434/v1", "vllm": "http://localhost:8000/v1"}
"""Where local servers listen by default, by the name of their provider."""

SETTINGS = ("name", "provider", "model", "base_url", "api_key_env")
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


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("pool.toml"),
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a pool file from your API keys and local servers."""
    if path.exists() and not force:
        raise ConfigError(
            f"{path}: is there already; expected another path, or --force to write over it"
        )
    workers = find_workers(os.environ)
    if not workers:
        console.fail(
            f"found nothing to make a pool of: none of {', '.join(KEYS)} is set, and no local server answered",
            hint=f"export one of these keys, or start a server at {' or '.join(LOCAL.values())}.",
        )
    text = pool_text(workers, today=date.today())
    validate(tomllib.loads(text), PoolFile, where=str(path))  # what is written will load
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if as_json:
        drafts = [{name: getattr(one, name) for name in (*SETTINGS, "price")} for one in workers]
        console.show_json({"path": str(path), "workers": drafts})
        return
    head = ("", "worker", "model", "key or server", "price in / out")
    rows = [
        (
            str(ordinal),
            one.name,
            one.model,
            one.api_key_env or one.base_url or "",
            price_text(one.price.price),
        )
        for ordinal, one in enumerate(workers)
    ]
    console.show_table(head, rows, words=range(len(head)), names=2)
    console.say(f"wrote {path}; next: openconductor pool check {path}")


def find_workers(environment: Mapping[str, str]) -> list[Draft]:
    """The workers that can be had: those whose key is set, and those of local servers that answer within a second."""
    found: list[Draft] = []
    for vendor in VENDORS:
        key = next((name for name in vendor.keys if environment.get(name, "").strip()), None)
        address = vendor.base_url if vendor.provider == "openai_compatible" else None
        for model in vendor.models if key else ():
            price, origin = (
                find_price(model, base_url=vendor.base_url),
                f"{vendor.name}, for {key} is set",
            )
            found.append(
                Draft(_free_name(model, found), vendor.provider, model, address, key, price, origin)
            )
    mine = FoundPrice(None, "a server of your own")
    for provider, url in LOCAL.items():
        for model in _served(url)[:LOCAL_MODELS]:
            found.append(
                Draft(
                    _free_name(model, found), provider, model, url, None, mine, f"served at {url}"
                )
            )
    return found


def _free_name(model: str, taken: list[Draft]) -> str:
    """The last part of the model's name, or the next that is free."""
    name = model.rpartition("/")[2]
    names = {worker.name for worker in taken}
    return next(
        one
        for one in chain([name], (f"{name}-{number}" for number in count(2)))
        if one not in names
    )


def _served(url: str) -> list[str]:
    """The models that a local server says it has; none where nothing answers in time, or something else does."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/models", timeout=LOCAL_SECONDS) as response:
            body: Any = json.loads(response.read(MOST_BYTES))
        names = [entry["id"] for entry in body["data"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return []
    return [name for name in names if isinstance(name, str) and _MODEL_NAME.fullmatch(name)]


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
        known = worker.price
        price = f"# price = {{ input = 0, output = 0 }}  # not known: {known.reason}"
        if known.price is not None:
            price = f"# price: {'; '.join((known.source, *known.notes))}\n{price_line(known.price)}"
        settings = dump_toml({name: value for name in SETTINGS if (value := getattr(worker, name))})
        sampling = f"sampling = {{ max_tokens = {MAX_TOKENS} }}\n"
        parts.append(f"[[worker]]  # {ordinal}: {worker.origin}\n{settings}{price}\n{sampling}")
    return "\n".join(parts)
