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
from dataclasses import asdict, dataclass, field
from datetime import date
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
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
class DraftedWorker:
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
class Draft:
    """The workers of a pool file to be written.

    Attributes:
        workers: in the order of the file.
        left_out: how many models of a server were left out, by server and reason.
    """

    workers: list[DraftedWorker] = field(default_factory=list[DraftedWorker])
    left_out: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(
        self, model: str, url: str, entry: Mapping[str, Any] = MappingProxyType({}), **settings: Any
    ) -> None:
        """Add a worker, with what the server's ``entry`` or else the price list says of it."""
        price = find_price(model, base_url=url)
        if price.reason.startswith("no price list"):
            price = FoundPrice(None, "a server of your own")
        description = _describe(model, entry, url)
        worker = DraftedWorker(
            self._free_name(model), model=model, price=price, description=description, **settings
        )
        self.workers.append(worker)

    def add_vendor(self, vendor: Vendor, key: str) -> None:
        """Add the models of a service whose key is in the environment variable ``key``."""
        knows_address = vendor.provider != "openai_compatible"
        for model in vendor.models:
            self.add(
                model,
                vendor.base_url,
                provider=vendor.provider,
                base_url=None if knows_address else vendor.base_url,
                api_key_env=key,
                origin=f"{vendor.name}, because {key} is set",
                tags=vendor.tags,
            )

    def add_server(
        self,
        url: str,
        entries: Sequence[object],
        most: int,
        *,
        provider: str = "openai_compatible",
        key_env: str | None = None,
    ) -> None:
        """Add at most ``most`` models of a server's list, and count those that are left out."""
        added = 0
        left_out = self.left_out[url] = Counter()
        for entry in entries:
            details = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
            model = details.get("id")
            if not isinstance(model, str) or not _MODEL_NAME.fullmatch(model):
                left_out["without a usable name"] += 1
            elif not _can_chat(model, details):
                left_out["not meant for chat"] += 1
            elif added == most:
                left_out[f"beyond the first {most}"] += 1
            else:
                added += 1
                self.add(
                    model,
                    url,
                    details,
                    provider=provider,
                    base_url=url,
                    api_key_env=key_env,
                    origin=f"served at {url}",
                    tags=_abilities(details),
                )

    def _free_name(self, model: str) -> str:
        """Return the last part of a model's name, with a number if it is taken."""
        taken = {worker.name for worker in self.workers}
        short = name = model.rpartition("/")[2].removesuffix(".gguf")
        number = 1
        while name in taken:
            number += 1
            name = f"{short}-{number}"
        return name


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
    draft = Draft()
    if url is None:
        _add_all(draft, os.environ)
    else:
        url = checked_url(url)
        _add_endpoint(draft, url, checked_variable(key_env))
    for server, reasons in draft.left_out.items():
        for reason, count in reasons.items():
            console.say(f"{server}: left out {console.counted(count, 'model')} {reason}")
    if not draft.workers and url is not None:
        console.fail(f"{url}/models lists no model that can be a worker")
    if not draft.workers:
        console.fail(
            f"found no workers: none of {', '.join(KEYS)} is set, and no local server answered",
            hint=f"export one of these keys, start a server at {' or '.join(LOCAL.values())}, "
            "or name your server: --url http://HOST:PORT/v1",
        )
    text = pool_text(draft.workers, today=date.today())
    validate(tomllib.loads(text), PoolFile, where=str(path))  # the file will load
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    if as_json:
        workers, left_out = draft.workers, draft.left_out
        console.show_json({"path": str(path), "workers": workers, "left_out": left_out})
        return
    head = ("", "worker", "model", "key or server", "price in / out")
    rows: list[tuple[str, ...]] = []
    for ordinal, worker in enumerate(draft.workers):
        key_or_server = worker.api_key_env or worker.base_url or ""
        price = price_text(worker.price.price)
        rows.append((str(ordinal), worker.name, worker.model, key_or_server, price))
    console.show_table(head, rows, words=range(len(head)), names=2)
    console.say(f"wrote {path}; next: openconductor pool check {path}")


def _add_all(draft: Draft, environment: Mapping[str, str]) -> None:
    """Add the workers of services whose key is set, and of local servers that answer."""
    for vendor in VENDORS:
        set_keys = [name for name in vendor.keys if environment.get(name, "").strip()]
        if set_keys:
            draft.add_vendor(vendor, set_keys[0])
    for server, url in LOCAL.items():
        with suppress(ConfigError):
            entries = _fetch_models(url, "", LOCAL_SECONDS)
            provider = server if server in PROVIDERS else "openai_compatible"
            draft.add_server(url, entries, LOCAL_MODELS, provider=provider)


def _add_endpoint(draft: Draft, url: str, key_env: str | None) -> None:
    """Add the models of the server of ``--url``."""
    if key_env is None:
        for vendor in VENDORS:
            if vendor.base_url == url:
                key_env = vendor.keys[0]
    try:
        key = key_of(key_env)
    except AuthFailed as error:
        raise ConfigError(f"--url: {error.message}") from None
    entries = _fetch_models(url, key, URL_SECONDS)
    draft.add_server(url, entries, URL_MODELS, key_env=key_env)


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


# ── what a server's list says of a model ──────────────────────────────────────────────────────────
def _part(entry: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    """Return a value of an entry; an empty one if it is absent or of another type."""
    value = entry.get(key)
    return value if isinstance(value, kind) else kind()


def _can_chat(model: str, entry: Mapping[str, Any]) -> bool:
    written = _part(_part(entry, "architecture", dict), "output_modalities", list)
    if written:
        return "text" in written
    return not _NO_CHAT.search(model)


def _describe(model: str, entry: Mapping[str, Any], url: str) -> str:
    """Return what the server says of a model, or else the price list."""
    details = {**_part(entry, "meta", dict), **entry}
    contexts = [details[key] for key in _CONTEXT_KEYS if type(details.get(key)) is int]
    use = _part(entry, "description", str)
    if not contexts and not use:
        return find_description(model, url)
    return describe_model(_part(entry, "name", str), use, next(iter(contexts), None))


def _abilities(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return tags for the abilities that OpenRouter's and Mistral's lists name."""
    known = _part(entry, "capabilities", dict)
    read = _part(_part(entry, "architecture", dict), "input_modalities", list)
    tags: list[str] = []
    parameters = _part(entry, "supported_parameters", list)
    if known.get("function_calling") is True or "tools" in parameters:
        tags.append("tools")
    if known.get("vision") is True or "image" in read:
        tags.append("images")
    return tuple(tags)


# ── the file ──────────────────────────────────────────────────────────────────────────────────────
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


def pool_text(workers: Sequence[DraftedWorker], *, today: date) -> str:
    """Return the pool file; its comments explain each line."""
    parts = [HEAD.format(today=today.isoformat())]
    for ordinal, worker in enumerate(workers):
        values = asdict(worker)
        given = {name: values[name] for name in SETTINGS if values[name]}
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
