"""``openconductor pool init``: draft a pool file from the API keys and local servers of a machine.

Only the presence of a key is checked, and none is written. The models are well-known ones, to be
changed by hand; a price that is unknown is a comment.
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

LOCAL_SECONDS = 1.0  # that a local server may take to answer
LOCAL_MODELS = 3  # of a local server that are taken
MOST_BYTES = 1_000_000  # of a local server's list of models
MAX_TOKENS = 8192
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A service that is known by its key.

    Attributes:
        name: the service.
        keys: environment variables; the file names the first that is set.
        base_url: the address of its API.
        models: the models of a draft; any other model of the service can take their place.
        provider: a provider that knows the address, or ``openai_compatible``.
    """

    name: str
    keys: tuple[str, ...]
    base_url: str
    models: tuple[str, ...]
    provider: str = "openai_compatible"


VENDORS = (
    Vendor(
        name="OpenAI",
        keys=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        models=("gpt-5", "gpt-5-mini"),
        provider="openai",
    ),
    Vendor(
        name="Anthropic",
        keys=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        models=("claude-sonnet-4-6", "claude-haiku-4-5"),
    ),
    Vendor(
        name="Google",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        models=("gemini-2.5-flash",),
    ),
    Vendor(
        name="OpenRouter",
        keys=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        models=("deepseek/deepseek-v3.2", "qwen/qwen3-235b-a22b-2507"),
        provider="openrouter",
    ),
)

LOCAL = {"ollama": "http://localhost:11434/v1", "vllm": "http://localhost:8000/v1"}
"""The default addresses of local servers, by provider."""

SETTINGS = ("name", "provider", "model", "base_url", "api_key_env")
KEYS = tuple(key for vendor in VENDORS for key in vendor.keys)


@dataclass(frozen=True, slots=True)
class Draft:
    """A worker of the draft; ``origin`` says why it is there."""

    name: str
    provider: str
    model: str
    price: FoundPrice
    origin: str
    base_url: str | None = None
    api_key_env: str | None = None


def init(
    path: Annotated[Path, typer.Argument(help="The new file.")] = Path("pool.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a pool file from your API keys and local servers."""
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists; name another path, or use --force")
    workers = find_workers(os.environ)
    if not workers:
        console.fail(
            f"found no workers: none of {', '.join(KEYS)} is set, and no local server answered",
            hint=f"export one of these keys, or start a server at {' or '.join(LOCAL.values())}.",
        )
    text = pool_text(workers, today=date.today())
    validate(tomllib.loads(text), PoolFile, where=str(path))  # the file will load
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if as_json:
        drafts = [
            {name: getattr(worker, name) for name in (*SETTINGS, "price")} for worker in workers
        ]
        console.show_json({"path": str(path), "workers": drafts})
        return
    head = ("", "worker", "model", "key or server", "price in / out")
    rows: list[tuple[str, ...]] = []
    for ordinal, worker in enumerate(workers):
        key_or_server = worker.api_key_env or worker.base_url or ""
        price = price_text(worker.price.price)
        rows.append((str(ordinal), worker.name, worker.model, key_or_server, price))
    console.show_table(head, rows, words=range(len(head)), names=2)
    console.say(f"wrote {path}; next: openconductor pool check {path}")


def find_workers(environment: Mapping[str, str]) -> list[Draft]:
    """Return the workers of services whose key is set, and of local servers that answer."""
    found: list[Draft] = []
    for vendor in VENDORS:
        set_keys = [name for name in vendor.keys if environment.get(name, "").strip()]
        if set_keys:
            for model in vendor.models:
                name = _free_name(model, found)
                found.append(_vendor_draft(vendor, model, name, set_keys[0]))
    for provider, url in LOCAL.items():
        for model in _list_models(url)[:LOCAL_MODELS]:
            draft = Draft(
                name=_free_name(model, found),
                provider=provider,
                model=model,
                price=FoundPrice(None, "a server of your own"),
                origin=f"served at {url}",
                base_url=url,
            )
            found.append(draft)
    return found


def _vendor_draft(vendor: Vendor, model: str, name: str, key: str) -> Draft:
    return Draft(
        name=name,
        provider=vendor.provider,
        model=model,
        base_url=vendor.base_url if vendor.provider == "openai_compatible" else None,
        api_key_env=key,
        price=find_price(model, base_url=vendor.base_url),
        origin=f"{vendor.name}, because {key} is set",
    )


def _free_name(model: str, taken: list[Draft]) -> str:
    """Return the last part of a model's name, with a number if it is taken."""
    names = {worker.name for worker in taken}
    short = name = model.rpartition("/")[2]
    number = 1
    while name in names:
        number += 1
        name = f"{short}-{number}"
    return name


def _list_models(url: str) -> list[str]:
    """Return the models of a local server; none if it does not answer in time and form."""
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
# The Conductor knows a worker only by its place in this file, counted from 0; names and prices are
# for you. `openconductor pool check` with this file's name asks each worker whether it works.
# The lines of a worker:
#   name         its name in tables and errors
#   provider     the client that speaks to it
#   model        its name at the server; any other model there can take its place
#   base_url     the address of the API
#   api_key_env  the environment variable that holds its key; no key is ever in this file
#   price        US dollars a million tokens
#   sampling     max_tokens: the most that one call writes; a budget reserves it
# Optional: max_concurrency (calls at once), rpm and tpm (calls and tokens a minute).
"""


def pool_text(workers: list[Draft], *, today: date) -> str:
    """Return the pool file; its comments explain each line."""
    parts = [HEAD.format(today=today.isoformat())]
    for ordinal, worker in enumerate(workers):
        settings = {name: getattr(worker, name) for name in SETTINGS}
        given = {name: value for name, value in settings.items() if value}
        parts.append(
            f"[[worker]]  # {ordinal}: {worker.origin}\n{dump_toml(given)}"
            f"{_price_text(worker.price)}\nsampling = {{ max_tokens = {MAX_TOKENS} }}\n"
        )
    return "\n".join(parts)


def _price_text(known: FoundPrice) -> str:
    if known.price is None:
        return f"# price = {{ input = 0, output = 0 }}  # not known: {known.reason}"
    remarks = "; ".join((known.source, *known.notes))
    return f"# price: {remarks}\n{price_line(known.price)}"
