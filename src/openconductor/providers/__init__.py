"""The shelf of providers. In: whatever a user may call a worker's provider. Out: a Provider.

``PROVIDERS`` maps a name to ``module:attribute``; nothing is imported before it is asked for.
Packages outside this one add theirs with the entry-point group ``openconductor.providers``, or are
named as ``module:attribute``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

from openconductor.config import load_registered, nearest, needing, registered, split_name
from openconductor.errors import ConfigError
from openconductor.protocols import Orchestrator, Provider, SupportsComplete
from openconductor.types import Message

PROVIDERS: dict[str, str] = {
    "anthropic": "openconductor.providers.pydantic_ai:anthropic",
    "google": "openconductor.providers.pydantic_ai:google",
    "mcp": "openconductor.providers.mcp_tool:McpToolProvider",
    "ollama": "openconductor.providers.openai_compatible:ollama",
    "onnx": "openconductor.providers.tiny:TinyProvider",  # what `tiny` was called
    "openai": "openconductor.providers.openai_compatible:OpenAICompatibleProvider",
    "openai_compatible": "openconductor.providers.openai_compatible:OpenAICompatibleProvider",
    "openrouter": "openconductor.providers.openai_compatible:openrouter",
    "pydantic_ai": "openconductor.providers.pydantic_ai:PydanticAIProvider",
    "replay_pool": "openconductor.providers.replay_pool:ReplayPoolProvider",
    "tiny": "openconductor.providers.tiny:TinyProvider",
    "transformers": "openconductor.providers.transformers_lm:TransformersProvider",
    "vllm": "openconductor.providers.openai_compatible:vllm",
}

_EXTRAS = {"pydantic_ai": "providers", "mcp_tool": "mcp", "tiny": "gym", "transformers_lm": "local"}
"""What each module needs installed."""

WorkerFunction = Callable[[list[Message]], str | Awaitable[str]]
ProviderLike = Provider | SupportsComplete | Orchestrator | WorkerFunction | str | Path


def resolve(
    provider: ProviderLike, *, timeout_s: float | None = None, read_timeout_s: float | None = None
) -> Provider:
    """Make a Provider of what a user named.

    Args:
        provider: a Provider (returned as it is), another object with ``complete``, ``"provider:model"`` or
            ``"module:attribute:model"``, a checkpoint folder, an Orchestrator, or a plain or async
            function ``(list[Message]) -> str``.
        timeout_s: total deadline of a call, in seconds, for a provider that is made here and takes
            one.
        read_timeout_s: the longest silence of its server, in seconds, likewise.

    Raises:
        ConfigError: it is none of these; the provider's name is not known (the nearest is named);
            the folder holds no checkpoint; the provider's extra is not installed.
    """
    if isinstance(provider, str | Path):
        return _from_text(provider, {"timeout_s": timeout_s, "read_timeout_s": read_timeout_s})
    if not inspect.isclass(provider):
        if isinstance(provider, Provider):
            return provider
        if callable(getattr(provider, "complete", None)):
            from openconductor.providers.adapted import adapt

            return adapt(cast(SupportsComplete, provider))
        if callable(getattr(provider, "ask", None)):
            from openconductor.providers.orchestrator import OrchestratorProvider

            return OrchestratorProvider(cast(Orchestrator, provider))
        if callable(provider):
            from openconductor.providers.function import FunctionProvider

            return FunctionProvider(provider)
    raise ConfigError(
        f"provider: got {provider!r}; expected an object with `complete`, an orchestrator, a function "
        "(list[Message]) -> str, 'provider:model', or a checkpoint folder"
    )


def create(name: str, model: str, **options: object) -> Provider:
    """Make the provider that is registered under ``name``.

    Args:
        name: a key of ``PROVIDERS``, an entry point, or ``module:attribute``: what makes a
            Provider, or anything that ``resolve`` makes one of, of the model and options.
        model: the model's name, or the folder for a provider that reads one.
        options: what the provider takes by keyword (``base_url``, ``api_key_env``, ``timeout_s``
            …).

    Raises:
        ConfigError: the name is not known, its extra is missing, or it does not take an option.
    """
    factory = _factory(name)
    try:
        inspect.signature(factory).bind(model, **options)
    except TypeError as error:
        taken = (
            ", ".join(list(inspect.signature(factory).parameters)[1:]) or "nothing but the model"
        )
        raise ConfigError(f"provider {name!r}: {error}; expected options among: {taken}") from error
    with needing(f"provider {name!r}", _extra(name)):
        return resolve(cast("ProviderLike", factory(model, **options)))


def takes(name: str, option: str) -> bool:
    """Whether the provider registered under ``name`` takes an option."""
    return option in inspect.signature(_factory(name)).parameters


def _from_text(text: str | Path, seconds: Mapping[str, float | None]) -> Provider:
    if str(text).strip() and Path(text).is_dir():
        from openconductor.providers.conductor_file import read_conductor_file

        kind = (
            "tiny" if read_conductor_file(Path(text)).chat == "plain" else "transformers"
        )  # how it learnt to be asked
        return create(kind, str(Path(text)))
    name, colon, model = split_name(str(text), PROVIDERS, "provider")
    looks_like_path = isinstance(text, Path) or os.sep in name or name in ("", ".", "..")
    if looks_like_path or not colon:
        near = nearest(name.partition(":")[0], registered(PROVIDERS, "provider"))
        hint = (
            "" if looks_like_path else f" (the nearest provider is {near!r}, as in '{near}:model')"
        )
        raise ConfigError(
            f"provider {str(text)!r}: no such folder; expected 'provider:model' or a folder{hint}"
        )
    if not model.strip():
        raise ConfigError(f"provider {text!r}: no model; expected '{name}:model'")
    options = {
        key: value for key, value in seconds.items() if value is not None and takes(name, key)
    }
    return create(name, model, **options)


def _factory(name: str) -> Callable[..., object]:
    """What makes the provider: a class or a function."""
    with needing(f"provider {name!r}", _extra(name)):
        found = load_registered(PROVIDERS, name, what="provider")
    if not callable(found):
        raise ConfigError(
            f"provider {name!r}: got {found!r}, expected what makes a provider of a model"
        )
    return found


def _extra(name: str) -> str:
    return _EXTRAS.get(PROVIDERS.get(name, "").partition(":")[0].rpartition(".")[2], "")
