"""Published prices of models, as a ``Price``, or the reason why one is unknown.

The data are those of ``genai-prices`` (MIT, 1.6 MB), which is imported when a price is first looked
up, and is never updated over the network. A price is known only if ``Price`` can say all of it: a
price that depends on the length of the prompt or on the hour is not, because a bill that is wrong
now and then is worse than none. Nothing is looked up while questions are answered: the pool file
holds the price, so that a bill can be drawn up again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from openconductor.types import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider as Seller

MOST_DESCRIPTION = 300  # characters of a sentence about a model
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s")

_BY_THE_TOKEN = ("input_mtok", "output_mtok", "cache_read_mtok")
# Charged only if a request asks for it.
_EXTRAS = {
    "cache_write_mtok": "writing to the cache",
    "cache_write_1h_mtok": "writing to the cache",
    "web_searches_kcount": "web searches",
    "storage_searches_kcount": "searches of files",
    "input_audio_mtok": "sound",
    "output_audio_mtok": "sound",
    "cache_audio_read_mtok": "sound",
}


@dataclass(frozen=True, slots=True)
class FoundPrice:
    """A published price, or the reason why it is unknown.

    Attributes:
        price: US dollars a million tokens; None: unknown.
        reason: why it is unknown; "": it is known.
        notes: what the price does not cover, and when it changes.
        source: the data that say so.
    """

    price: Price | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""


def find_price(
    model: str,
    *,
    base_url: str | None = None,
    vendor: str | None = None,
    body: Mapping[str, object] = MappingProxyType({}),
    at: datetime | None = None,
) -> FoundPrice:
    """Look up the price of a model at its server.

    Args:
        model: the model's name at its server.
        base_url: where its API begins.
        vendor: the name of the service (``"anthropic"``), for a client that has no URL; ignored if
            there is a ``base_url``.
        body: the fields of each request beside the messages; one that has a price of its own
            (``service_tier``) makes the price unknown.
        at: the moment of the price; None: now.

    Returns:
        The price, or None and the reason. A price of 0 counts as unknown, because only the user
        knows whether something is free.
    """
    from genai_prices import __version__
    from genai_prices.types import StartDateConstraint

    if base_url is None and vendor is None:
        return FoundPrice(None, "it is not served by the token")
    seller, entry = _find_entry(model, base_url, vendor)
    if seller is None:
        return FoundPrice(None, f"no price list is known for {base_url or vendor}")
    source = f"genai-prices {__version__}, {seller.id}"
    if entry is None:
        return FoundPrice(None, f"{model!r} is not on the price list of {seller.id}", source=source)
    moment = at or datetime.now(UTC)
    current = entry.get_prices(moment)
    listed = {name: value for name, value in vars(current).items() if value is not None}
    reason = _why_unknown(entry, body, listed)
    if reason:
        return FoundPrice(None, reason, source=source)
    notes: list[str] = []
    extras = sorted({_EXTRAS[name] for name in listed if name in _EXTRAS})
    if extras:
        notes.append(f"not covered, if you ask for it: {', '.join(extras)}")
    for start, prices in _dated_prices(entry):
        if not isinstance(start, StartDateConstraint):
            continue
        if prices != current and not start.active(moment):
            notes.append(f"changes on {start.start_date.isoformat()}")
    amounts = (cast("Decimal", listed.get(name)) for name in _BY_THE_TOKEN)
    return FoundPrice(Price(*amounts), notes=tuple(notes), source=source)


def find_description(model: str, base_url: str) -> str:
    """Return what the price list of a server says of a model: name, use and context; "": nothing.

    >>> find_description("claude-haiku-4-5", "https://api.anthropic.com/v1")
    'Claude Haiku 4.5: Fastest and most intelligent Haiku model; context of 200,000 tokens'
    """
    _, entry = _find_entry(model, base_url)
    if entry is None:
        return ""
    return describe_model(entry.name or "", entry.description or "", entry.context_window)


def _find_entry(
    model: str, base_url: str | None, vendor: str | None = None
) -> tuple[Seller | None, ModelInfo | None]:
    """Return the price list of a server, and its entry of a model. None: unknown."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    try:
        seller = snapshot.find_provider(None, None if base_url else vendor, base_url)
    except LookupError:
        return None, None
    return seller, seller.find_model(model, all_providers=snapshot.providers)


def describe_model(name: str, use: str, context: int | None) -> str:
    """Return a worker's description: a model's name, the first sentence of its use, its context."""
    printable = "".join(letter if letter.isprintable() else " " for letter in f"{use} ")
    sentence = _END_OF_SENTENCE.split(" ".join(printable.split()), 1)[0].rstrip(".")
    sentence = sentence[:MOST_DESCRIPTION]
    parts = [sentence or name]
    if sentence and name and not sentence.startswith(name):
        parts = [f"{name}: {sentence}"]
    if context:
        parts.append(f"context of {context:,} tokens")
    return "; ".join(part for part in parts if part)


def price_line(price: Price) -> str:
    """Return the price as a line of a pool file.

    >>> price_line(Price(Decimal("1.25"), Decimal(10), Decimal("0.125")))
    'price = { input = 1.25, cached = 0.125, output = 10 }'
    """
    cached = "" if price.cached is None else f"cached = {price.cached:f}, "
    return f"price = {{ input = {price.input:f}, {cached}output = {price.output:f} }}"


def _dated_prices(entry: ModelInfo) -> list[tuple[object, ModelPrice]]:
    """Return the prices of a list's entry, each with the condition under which it holds."""
    if not isinstance(entry.prices, list):
        return []
    return [(conditional.constraint, conditional.prices) for conditional in entry.prices]


def _why_unknown(entry: ModelInfo, body: Mapping[str, object], listed: Mapping[str, object]) -> str:
    """Return why a list's entry is not a Price; "": it is one."""
    from genai_prices.types import StartDateConstraint

    for condition, _ in _dated_prices(entry):
        if condition is not None and not isinstance(condition, StartDateConstraint):
            return "it depends on the hour"
    for variant in entry.price_variants or ():
        for name in variant.when:
            if name in body:
                return f"the body's {name} has a price of its own"
    for name, value in listed.items():
        if name not in _EXTRAS and name not in _BY_THE_TOKEN:
            return f"it is not priced by text tokens alone (the list has {name})"
        if name in _BY_THE_TOKEN and not isinstance(value, Decimal):
            return "it depends on the length of the prompt"
    if "input_mtok" not in listed or "output_mtok" not in listed:
        return "the list has no price for both input and output"
    if not listed["input_mtok"] and not listed["output_mtok"]:
        return "the list says that it is free; if that is so for you, write that"
    return ""
