"""The shelf of providers, and ``resolve``, which makes a Provider of whatever a user names.

``PROVIDERS`` maps a name to ``module:attribute``, which is imported on first use. Packages outside
this one add theirs with the entry-point group ``openconductor.providers``, or are named as
``module:attribute``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

from openconductor.config import (
    check_option,
    load_registered,
    nearest,
    needing,
    registered,
    split_name,
)
from openconductor.errors import ConfigError
from openconductor.protocols import Orchestrator, Provider, SupportsComplete
from openconductor.types import Message

PROVIDERS: dict[str, str] = {
    "anthropic": "openconductor.providers.pydantic_ai:anthropic",
    "google": "openconductor.providers.pydantic_ai:google",
    "mcp": "openconductor.providers.mcp_tool:McpToolProvider",
    "ollama": "openconductor.providers.openai_compatible:ollama",
    "openai": "openconductor.providers.openai_compatible:OpenAICompatibleProvider",
    "openai_compatible": "openconductor.providers.openai_compatible:OpenAICompatibleProvider",
    "openrouter": "openconductor.providers.openai_compatible:openrouter",
    "pydantic_ai": "openconductor.providers.pydantic_ai:PydanticAIProvider",
    "replay_pool": "openconductor.providers.replay_pool:ReplayPoolProvider",
    "tiny": "openconductor.providers.tiny:TinyProvider",
    "transformers": "openconductor.providers.transformers_lm:TransformersProvider",
    "vllm": "openconductor.providers.openai_compatible:vllm",
}

# The extra that each module needs installed.
_EXTRAS = {"pydantic_ai": "providers", "mcp_tool": "mcp", "tiny": "gym", "transformers_lm": "local"}

WorkerFunction = Callable[[list[Message]], str | Awaitable[str]]
ProviderLike = Provider | SupportsComplete | Orchestrator | WorkerFunction | str | Path


def resolve(
    provider: ProviderLike, *, timeout_s: float | None = None, read_timeout_s: float | None = None
) -> Provider:
    """Return the Provider that a user names.

    Args:
        provider: a Provider (returned as it is), another object with ``complete``, an Orchestrator,
            ``"provider:model"`` or ``"module:attribute:model"``, a checkpoint folder, or a plain or
            async function ``(list[Message]) -> str``.
        timeout_s: total deadline of a call, in seconds, for a provider that is made here and takes
            one.
        read_timeout_s: the longest silence of its server, in seconds, likewise.

    Raises:
        ConfigError: ``provider`` is none of these, its name is unknown, the folder holds no
            checkpoint, or an extra is not installed.
    """
    if isinstance(provider, Provider):
        return provider
    if isinstance(provider, str | Path):
        return _from_text(provider, {"timeout_s": timeout_s, "read_timeout_s": read_timeout_s})
    if not inspect.isclass(provider):
        from openconductor.providers.adapted import FunctionProvider, OrchestratorProvider, adapt

        if callable(getattr(provider, "complete", None)):
            return adapt(cast(SupportsComplete, provider))
        if callable(getattr(provider, "ask", None)):
            return OrchestratorProvider(cast(Orchestrator, provider))
        if callable(provider):
            return FunctionProvider(provider)
    raise ConfigError(
        f"provider: got {provider!r}; expected an object with `complete`, an orchestrator, "
        "a function (list[Message]) -> str, 'provider:model', or a checkpoint folder"
    )


def create(name: str, model: str, /, **options: object) -> Provider:
    """Return a new provider of the kind that is registered under ``name``.

    Args:
        name: a key of ``PROVIDERS``, an entry point, or ``module:attribute``. It stands for a
            factory: a class or function that takes the model and the options, and returns a
            Provider or anything else that ``resolve`` accepts.
        model: the model's name, or the folder for a provider that reads one.
        options: keyword arguments of the factory (``base_url``, ``api_key_env``, ``timeout_s`` …).

    Raises:
        ConfigError: the name is unknown, its extra is missing, or an option is unknown (the nearest
            is named) or missing.
    """
    factory = _load_factory(name)
    signature = inspect.signature(factory)
    known = _options_of(signature)
    if known is not None:
        for option in options:
            check_option(option, known, f"provider {name!r}")
    try:
        signature.bind(model, **options)
    except TypeError as error:
        raise ConfigError(f"provider {name!r}: {error}") from error
    with needing(f"provider {name!r}", _extra_of(name)):
        return resolve(cast("ProviderLike", factory(model, **options)))


def takes(name: str, option: str) -> bool:
    """Return True if the provider registered under ``name`` has a parameter ``option``."""
    return option in inspect.signature(_load_factory(name)).parameters


def _options_of(signature: inspect.Signature) -> list[str] | None:
    """Return the options of a factory, which are its parameters but the first. None: any."""
    parameters = list(signature.parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters[1:]]


def _from_text(text: str | Path, timeouts: Mapping[str, float | None]) -> Provider:
    if str(text).strip() and Path(text).is_dir():
        from openconductor.providers.conductor_file import find_checkpoint, read_conductor_file

        folder = find_checkpoint(Path(text))
        name = "tiny" if read_conductor_file(folder).chat == "plain" else "transformers"
        return create(name, str(folder))
    name, colon, model = split_name(str(text), PROVIDERS, "provider")
    is_path = isinstance(text, Path) or os.sep in name or name in ("", ".", "..")
    if is_path or not colon:
        message = f"provider {str(text)!r}: no such folder; expected 'provider:model' or a folder"
        if not is_path:
            near = nearest(name.partition(":")[0], registered(PROVIDERS, "provider"))
            message += f" (the nearest provider is {near!r}, as in '{near}:model')"
        raise ConfigError(message)
    if not model.strip():
        raise ConfigError(f"provider {text!r}: no model; expected '{name}:model'")
    given = {option: seconds for option, seconds in timeouts.items() if seconds is not None}
    return create(name, model, **{option: given[option] for option in given if takes(name, option)})


def _load_factory(name: str) -> Callable[..., object]:
    with needing(f"provider {name!r}", _extra_of(name)):
        factory = load_registered(PROVIDERS, name, what="provider")
    if not callable(factory):
        raise ConfigError(
            f"provider {name!r}: got {factory!r}, expected a class or function that makes one"
        )
    return factory


def _extra_of(name: str) -> str:
    module = PROVIDERS.get(name, "").partition(":")[0]
    return _EXTRAS.get(module.rpartition(".")[2], "")
