"""A request's own options (``CallContext.options``), laid over a worker's; guesses of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from openconductor.protocols import CallContext
from openconductor.types import Completion, Message, Sampling

CHARACTERS_A_TOKEN = 4
"""A guess for English, used until the provider says how many tokens there were."""

_LIMIT_KEYS = ("max_completion_tokens", "max_tokens")


def with_options(sampling: Sampling, call: CallContext) -> Sampling:
    """Return how a call samples: as its worker does, with the request's options on top.

    The request's seed holds for every call. Its other options (tools, output format, token limit)
    hold for the call whose response is the answer. Of two token limits the lower one holds.
    """
    options = call.options
    if options is None:
        return sampling
    seed = sampling.seed if options.seed is None else options.seed
    if not call.last:
        return replace(sampling, seed=seed)
    temperature = sampling.temperature if options.temperature is None else options.temperature
    limit = _lower(sampling.max_tokens, options.max_tokens)
    body = {**sampling.body, **options.body}
    for key in _LIMIT_KEYS:  # a worker may set its limit in its body
        if type(body.get(key)) is int:
            body[key] = _lower(body[key], options.max_tokens)
    return Sampling(temperature, limit, seed, body)


def keep_offered_calls(completion: Completion, options: Sampling | None) -> Completion:
    """Return the answer to a request without calls of tools that the request did not offer."""
    if not completion.tool_calls:
        return completion
    offered = () if options is None else offered_calls(completion.tool_calls, options.body)
    return replace(completion, tool_calls=offered)


def offered_calls(
    calls: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ...]:
    """Return the calls of tools that a request's ``tools`` and ``tool_choice`` allow."""
    if body.get("tool_choice") == "none":
        return ()
    names = {_function(tool).get("name") for tool in body.get("tools") or ()}
    return tuple(call for call in calls if _function(call).get("name") in names)


def guess_tokens(messages: Sequence[Message], sampling: Sampling) -> tuple[int, int]:
    """Return the tokens that a call reads (a guess) and the most that it may write (0: unknown)."""
    limit = sampling.max_tokens
    for key in _LIMIT_KEYS:
        in_body = sampling.body.get(key)
        if type(in_body) is int:
            limit = in_body
            break
    characters = sum(len(message.content) for message in messages)
    return characters // CHARACTERS_A_TOKEN, limit or 0


def _lower(limit: Any, other: int | None) -> int | None:
    """Return the lower one of two limits; None: no limit."""
    limits = [value for value in (limit, other) if value is not None]
    return min(limits, default=None)


def _function(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("function") or {}
