"""A request's own options (``CallContext.options``), laid over a worker's; guesses of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from openconductor.protocols import CallContext
from openconductor.types import Call, Completion, Message, Sampling, Usage

CHARACTERS_A_TOKEN = 4
"""A guess for English, used until the provider says how many tokens there were."""

LONGEST_ANSWER = 262_144
"""More tokens than any model writes in one call."""

_OVERHEAD_TOKENS = 8_192  # of a chat template, and of the server's own instructions
_MEDIA_TOKENS = 65_536  # of an image, at the vendor that counts the most
N = TypeVar("N", int, float, Decimal)

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
    limit = least(sampling.max_tokens, options.max_tokens)
    body = {**sampling.body, **options.body}
    for key in _LIMIT_KEYS:  # a worker may set its limit in its body
        own = body.get(key)
        if type(own) is int:
            body[key] = least(own, options.max_tokens)
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


def bound_usage(call: Call) -> Usage:
    """Return the usage that a worker claims for a call, as far as the call can have used it.

    It can write no more than its token limit, and reads at most a token for each byte of its
    request. In place of a higher claim stands what is reserved for such a call.
    """
    claimed = call.usage
    if call.nested or not call.messages:  # its own calls are counted; the request is not kept
        return claimed
    reserved, limit = guess_tokens(call.messages, call.sampling)
    read = claimed.input_tokens
    if read > max(reserved, _OVERHEAD_TOKENS) and read > _most_read(call):
        read = reserved
    written = claimed.output_tokens
    if written > (limit or LONGEST_ANSWER):
        text = "" if call.completion is None else call.completion.text
        written = limit or len(text) // CHARACTERS_A_TOKEN
    if (read, written) == (claimed.input_tokens, claimed.output_tokens):
        return claimed
    cached = min(claimed.cached_tokens, read)
    bounded = replace(claimed, input_tokens=read, cached_tokens=cached, output_tokens=written)
    return bounded if call.price is None else replace(bounded, dollars=call.price.dollars(bounded))


def _most_read(call: Call) -> int:
    """Return the most tokens that a call can have read."""
    most = _OVERHEAD_TOKENS + len(json.dumps(dict(call.sampling.body), default=str))
    for message in call.messages:
        most += len(message.content.encode("utf-8", "replace"))
        for part in message.parts:
            most += _MEDIA_TOKENS + len(json.dumps(dict(part), default=str))
    return most


def least(*limits: N | None) -> N | None:
    """Return the lowest limit. None: unlimited."""
    return min((limit for limit in limits if limit is not None), default=None)


def _function(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("function") or {}
