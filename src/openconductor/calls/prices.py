"""What tokens are known to cost. In: a model and where it is served. Out: its Price, or the reason why none is known.

The data are those of ``genai-prices`` (MIT, 1.6 MB), which is imported when a price is first looked
up and is never asked to update itself over the network. A price is known only where this house's
``Price`` says all of it: what depends on the length of the prompt or on the hour is not, for a bill
that is wrong now and then is worse than none. Nothing is looked up while questions are answered:
the pool file holds the price, so that a bill can be drawn up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from openconductor.types import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_BY_THE_TOKEN = ("input_mtok", "output_mtok", "cache_read_mtok")
# Charged only where a request asks for it (a search tool, an explicit write to the cache, sound as
# input).
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
    """What is known of a price.

    Attributes:
        price: US dollars a million tokens; None is not known.
        reason: why it is not known; "" where it is.
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
    """Look up what a model costs where it is served.

    Args:
        model: the model's name at its server.
        base_url: where its API begins.
        vendor: who serves it (``"anthropic"``), for a client that has no URL; counts where there is
            no ``base_url``.
        body: what each request carries beside the messages; a setting in it that has a price of its
            own (``service_tier``) makes the price unknown.
        at: the moment whose price is meant; None is now.

    Returns:
        The price, or None and the reason. A price of nothing is not known either: whether something
        is free is for the user to say.
    """
    from genai_prices import __version__
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import StartDateConstraint

    if base_url is None and vendor is None:
        return FoundPrice(None, "it is not served by the token")
    snapshot = get_snapshot()
    try:
        seller = snapshot.find_provider(None, None if base_url else vendor, base_url)
    except LookupError:
        return FoundPrice(None, f"no price list is known for {base_url or vendor}")
    found = seller.find_model(model, all_providers=snapshot.providers)
    source = f"genai-prices {__version__}, {seller.id}"
    if found is None:
        return FoundPrice(None, f"{model!r} is not on the price list of {seller.id}", source=source)
    moment = at or datetime.now(UTC)
    now = found.get_prices(moment)
    listed: dict[str, object] = {
        name: value for name, value in vars(now).items() if value is not None
    }
    if reason := _unclear(found, body, listed):
        return FoundPrice(None, reason, source=source)
    extras = sorted({_EXTRAS[name] for name in listed if name in _EXTRAS})
    notes = [f"not covered, if you ask for it: {', '.join(extras)}"] if extras else []
    for begins, prices in _dated(found):
        if isinstance(begins, StartDateConstraint) and not begins.active(moment) and prices != now:
            notes.append(f"changes on {begins.start_date.isoformat()}")
    amounts = (cast("Decimal", listed.get(name)) for name in _BY_THE_TOKEN)
    return FoundPrice(Price(*amounts), notes=tuple(notes), source=source)


def price_line(price: Price) -> str:
    """The price as a line of a pool file.

    >>> price_line(Price(Decimal("1.25"), Decimal(10), Decimal("0.125")))
    'price = { input = 1.25, cached = 0.125, output = 10 }'
    """
    cached = "" if price.cached is None else f"cached = {price.cached:f}, "
    return f"price = {{ input = {price.input:f}, {cached}output = {price.output:f} }}"


def _dated(found: ModelInfo) -> list[tuple[object, ModelPrice]]:
    """The prices that a list has for a model, each with the condition under which it holds."""
    return (
        [(one.constraint, one.prices) for one in found.prices]
        if isinstance(found.prices, list)
        else []
    )


def _unclear(found: ModelInfo, body: Mapping[str, object], listed: Mapping[str, object]) -> str:
    """Why a list's entry is no Price; "" where it is one."""
    from genai_prices.types import StartDateConstraint

    if any(
        when is not None and not isinstance(when, StartDateConstraint) for when, _ in _dated(found)
    ):
        return "it depends on the hour"
    if named := [
        name for variant in found.price_variants or () for name in variant.when if name in body
    ]:
        return f"the body's {named[0]} has a price of its own"
    for name, value in listed.items():
        if name not in _EXTRAS and name not in _BY_THE_TOKEN:
            return f"it is not priced by text tokens alone (the list has {name})"
        if name in _BY_THE_TOKEN and not isinstance(value, Decimal):
            return "it depends on the length of the prompt"
    if not {"input_mtok", "output_mtok"} <= listed.keys():
        return "the list has no price for both input and output"
    free = not (listed["input_mtok"] or listed["output_mtok"])
    return "the list says that it is free; if that is so for you, write that" if free else ""
