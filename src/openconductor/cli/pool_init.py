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
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit

import typer

from openconductor.calls.prices import (
    FoundPrice,
    describe_model,
    find_description,
    find_price,
    price_line,
)
from openconductor.cli import console
from openconductor.cli.options import AsJson
from openconductor.cli.pool_check import price_text
from openconductor.config import dump_toml, validate
from openconductor.errors import AuthFailed, ConfigError
from openconductor.pool import PoolFile
from openconductor.providers import PROVIDERS
from openconductor.providers.wire.failures import excerpt, key_of
from openconductor.providers.wire.http import checked_url, checked_variable

LOCAL_SECONDS = 1.0  # that a local server may take to answer
URL_SECONDS = 10.0
LOCAL_MODELS = 3  # of a local server that are taken
URL_MODELS = 10  # of the server of ``--url``
MOST_BYTES = 5_000_000  # of a server's list of models
MAX_TOKENS = 8192
_MODEL_NAME = re.compile(r"[/.~A-Za-z0-9][\w.:/@+ -]{0,199}", re.ASCII)
_NO_CHAT = re.compile(
    r"embed|rerank|whisper|transcribe|tts|speech|moderation|dall-e|image|diffusion|sora|realtime"
    r"|babbage|davinci",
    re.IGNORECASE,
)
_CONTEXT_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")


@dataclass(frozen=True, slots=True)
class Vendor:
    """A service that is known by its key.

    Attributes:
        name: the service.
        keys: environment variables; the file names the first that is set.
        base_url: the address of its API.
        models: the models of a draft; any other model of the service can take their place.
        provider: a provider that knows the address, or ``openai_compatible``.
        tags: what these models can do.
    """

    name: str
    keys: tuple[str, ...]
    base_url: str
    models: tuple[str, ...]
    provider: str = "openai_compatible"
    tags: tuple[str, ...] = ("tools", "images")


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
        tags=("tools",),
        provider="openrouter",
    ),
)

LOCAL = {
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
    "llama.cpp": "http://localhost:8080/v1",
    "lm studio": "http://localhost:1234/v1",
    "sglang": "http://localhost:30000/v1",
}
"""The default addresses of local servers."""

SETTINGS = ("name", "provider", "model", "base_url", "api_key_env", "description", "tags")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
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
    description: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """The models of a server that can be workers, and how many were left out, by reason."""

    drafts: list[Draft]
    left_out: dict[str, int]


def init(
    path: Annotated[Path, typer.Argument(help="The new file.")] = Path("pool.toml"),
    url: Annotated[
        str | None,
        typer.Option("--url", help="Take the models of this OpenAI-compatible API (with /v1)."),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option("--key-env", help="The environment variable with the key of --url."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a pool file from your API keys and servers."""
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists; name another path, or use --force")
    if key_env is not None and url is None:
        raise ConfigError("--key-env requires --url")
    workers: list[Draft] = []
    left_out: dict[str, dict[str, int]] = {}
    if url is None:
        workers, left_out = find_workers(os.environ)
    else:
        url = checked_url(url)
        listed = _read_server(url, checked_variable(key_env))
        workers, left_out[url] = listed.drafts, listed.left_out
    for server, reasons in left_out.items():
        for reason, count in reasons.items():
            console.say(f"{server}: left out {console.counted(count, 'model')} {reason}")
    if not workers and url is not None:
        console.fail(f"{url}/models lists no model that can be a worker")
    if not workers:
        console.fail(
            f"found no workers: none of {', '.join(KEYS)} is set, and no local server answered",
            hint=f"export one of these keys, start a server at {' or '.join(LOCAL.values())}, "
            "or name your server: --url http://HOST:PORT/v1",
        )
    text = pool_text(workers, today=date.today())
    validate(tomllib.loads(text), PoolFile, where=str(path))  # the file will load
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if as_json:
        drafts = [
            {name: getattr(worker, name) for name in (*SETTINGS, "price")} for worker in workers
        ]
        console.show_json({"path": str(path), "workers": drafts, "left_out": left_out})
        return
    head = ("", "worker", "model", "key or server", "price in / out")
    rows: list[tuple[str, ...]] = []
    for ordinal, worker in enumerate(workers):
        key_or_server = worker.api_key_env or worker.base_url or ""
        price = price_text(worker.price.price)
        rows.append((str(ordinal), worker.name, worker.model, key_or_server, price))
    console.show_table(head, rows, words=range(len(head)), names=2)
    console.say(f"wrote {path}; next: openconductor pool check {path}")


def find_workers(environment: Mapping[str, str]) -> tuple[list[Draft], dict[str, dict[str, int]]]:
    """Return the workers of services whose key is set, and of local servers that answer.

    Beside them stand the models that were left out: by server and reason, how many.
    """
    found: list[Draft] = []
    for vendor in VENDORS:
        set_keys = [name for name in vendor.keys if environment.get(name, "").strip()]
        if set_keys:
            for model in vendor.models:
                name = _free_name(model, found)
                found.append(_vendor_draft(vendor, model, name, set_keys[0]))
    left_out: dict[str, dict[str, int]] = {}
    for server, url in LOCAL.items():
        with suppress(ConfigError):
            entries = _fetch_models(url, "", LOCAL_SECONDS)
            provider = server if server in PROVIDERS else "openai_compatible"
            listed = _draft_models(entries, url, LOCAL_MODELS, found, provider=provider)
            found += listed.drafts
            left_out[url] = listed.left_out
    return found, left_out


def _read_server(url: str, key_env: str | None) -> Listed:
    """Return the models of the server of ``--url``."""
    if key_env is None:
        for vendor in VENDORS:
            if vendor.base_url == url:
                key_env = vendor.keys[0]
    try:
        key = key_of(key_env)
    except AuthFailed as error:
        raise ConfigError(f"--url: {error.message}") from None
    entries = _fetch_models(url, key, URL_SECONDS)
    return _draft_models(entries, url, URL_MODELS, [], key_env=key_env)


def _fetch_models(url: str, key: str, seconds: float) -> list[object]:
    """Return a server's list of models.

    Raises:
        ConfigError: it does not answer in time and form.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if not key and urlsplit(url).hostname in LOCAL_HOSTS:
        handlers.append(urllib.request.ProxyHandler({}))
    headers = {"User-Agent": "openconductor"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{url}/models", headers=headers)  # noqa: S310 - checked
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as response:
            body: Any = json.loads(response.read(MOST_BYTES))
        entries: Any = body["data"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError, HTTPException) as error:
        words = excerpt(f"{type(error).__name__}: {error}")
        advice = "expected the address of an OpenAI-compatible API; most end in /v1"
        if isinstance(error, HTTPError) and error.code in (401, 403):
            advice = "expected --key-env with the variable that holds its key"
        raise ConfigError(f"{url}/models: {words}; {advice}") from None
    if not isinstance(entries, list):
        raise ConfigError(f"{url}/models: got no list of models, expected OpenAI's form")
    return cast("list[object]", entries)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because the key would go to a host that it was not named for."""

    def redirect_request(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


def _draft_models(
    entries: Sequence[object],
    url: str,
    most: int,
    others: Sequence[Draft],
    *,
    provider: str = "openai_compatible",
    key_env: str | None = None,
) -> Listed:
    """Make workers of a server's models, and count those that are left out.

    Args:
        entries: the server's list.
        url: its address.
        most: the most models that are taken.
        others: workers whose names are taken.
        provider: the provider of the workers.
        key_env: the environment variable with the server's key.
    """
    drafts: list[Draft] = []
    left_out: Counter[str] = Counter()
    for entry in entries:
        model = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        name = model.get("id")
        if not isinstance(name, str) or not _MODEL_NAME.fullmatch(name):
            left_out["without a usable name"] += 1
        elif not _can_chat(name, model):
            left_out["not meant for chat"] += 1
        elif len(drafts) == most:
            left_out[f"beyond the first {most}"] += 1
        else:
            price = find_price(name, base_url=url)
            if price.reason.startswith("no price list"):
                price = FoundPrice(None, "a server of your own")
            draft = Draft(
                name=_free_name(name, [*others, *drafts]),
                provider=provider,
                model=name,
                price=price,
                origin=f"served at {url}",
                base_url=url,
                api_key_env=key_env,
                description=_describe(name, model, url),
                tags=_abilities(model),
            )
            drafts.append(draft)
    return Listed(drafts, dict(left_out))


def _table(model: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table in a server's entry of a model; an empty one if there is none."""
    value = model.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _words(table: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of words likewise."""
    value = table.get(key)
    return cast("list[str]", value) if isinstance(value, list) else []


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _can_chat(name: str, model: Mapping[str, Any]) -> bool:
    written = _words(_table(model, "architecture"), "output_modalities")
    if written:
        return "text" in written
    return not _NO_CHAT.search(name)


def _describe(name: str, model: Mapping[str, Any], url: str) -> str:
    """Return what the server says of a model, or else the price list."""
    details = {**_table(model, "meta"), **model}
    contexts = [details[key] for key in _CONTEXT_KEYS if type(details.get(key)) is int]
    use = _text(model, "description")
    if not contexts and not use:
        return find_description(name, url)
    return describe_model(_text(model, "name"), use, next(iter(contexts), None))


def _abilities(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Return tags for the abilities that OpenRouter's and Mistral's lists name."""
    known = _table(model, "capabilities")
    read = _words(_table(model, "architecture"), "input_modalities")
    tags: list[str] = []
    if known.get("function_calling") is True or "tools" in _words(model, "supported_parameters"):
        tags.append("tools")
    if known.get("vision") is True or "image" in read:
        tags.append("images")
    return tuple(tags)


def _vendor_draft(vendor: Vendor, model: str, name: str, key: str) -> Draft:
    return Draft(
        name=name,
        provider=vendor.provider,
        model=model,
        base_url=vendor.base_url if vendor.provider == "openai_compatible" else None,
        api_key_env=key,
        price=find_price(model, base_url=vendor.base_url),
        origin=f"{vendor.name}, because {key} is set",
        description=find_description(model, vendor.base_url),
        tags=vendor.tags,
    )


def _free_name(model: str, taken: list[Draft]) -> str:
    """Return the last part of a model's name, with a number if it is taken."""
    names = {worker.name for worker in taken}
    short = name = model.rpartition("/")[2].removesuffix(".gguf")
    number = 1
    while name in names:
        number += 1
        name = f"{short}-{number}"
    return name


HEAD = """\
# A pool of workers, drafted by `openconductor pool init` on {today}. It is yours to change.
# The Conductor numbers the workers by their place in this file, counted from 0.
# `openconductor pool check` with this file's name asks each worker whether it works.
# The lines of a worker:
#   name         its name in tables and errors
#   provider     the client that speaks to it
#   model        its name at the server; any other model there can take its place
#   base_url     the address of the API
#   api_key_env  the environment variable that holds its key; no key is ever in this file
#   description  what it is good at; a Conductor that is shown cards reads it
#   tags         what it can do, or any words of yours
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
