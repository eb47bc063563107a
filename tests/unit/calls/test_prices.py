"""Prices of the list: exact if a Price can say all of it, else unknown with a reason."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, time
from decimal import Decimal

import pytest
from genai_prices import types
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

from openconductor.calls.prices import find_price, price_line
from openconductor.cli.pool_init import VENDORS
from openconductor.config import validate
from openconductor.pool import PoolFile
from openconductor.types import Price

URL = "https://api.tokens.test/v1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
FLAT = types.ModelPrice(
    input_mtok=Decimal("1.25"), output_mtok=Decimal(10), cache_read_mtok=Decimal("0.125")
)
DEARER = types.ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(20))


def model(
    name: str,
    prices: types.ModelPrice | list[types.ConditionalPrice],
    variants: list[types.PriceVariant] | None = None,
):
    return types.ModelInfo(
        id=name, match=types.ClauseEquals(name), prices=prices, price_variants=variants
    )


def priced(read: int | types.TieredPrices, written: int, **more: Decimal) -> types.ModelPrice:
    read_price = Decimal(read) if isinstance(read, int) else read
    return types.ModelPrice(input_mtok=read_price, output_mtok=Decimal(written), **more)


def then_dearer(condition: object) -> list[types.ConditionalPrice]:
    dearer = types.ConditionalPrice(condition, prices=DEARER)  # type: ignore[arg-type]
    return [types.ConditionalPrice(prices=FLAT), dearer]


@pytest.fixture(autouse=True)
def price_list():
    """A price list of our own, so that the tests do not change with the world's."""
    tiers = [types.Tier(start=200_000, price=Decimal(2))]
    tiered = types.TieredPrices(base=Decimal(1), tiers=tiers)
    december = types.StartDateConstraint(start_date=DECEMBER.date())
    midnight, six = time(0, tzinfo=UTC), time(6, tzinfo=UTC)
    at_night = types.TimeOfDateConstraint(start_time=midnight, end_time=six)
    flex = types.PriceVariant(when={"service_tier": "flex"}, prices=DEARER)
    models = [
        model("flat", FLAT, [flex]),
        model("searching", priced(1, 2, web_searches_kcount=Decimal(10))),
        model("tiered", priced(tiered, 2)),
        model("hourly", then_dearer(at_night)),
        model("dated", then_dearer(december)),
        model("gift", priced(0, 0)),
        model("reader", types.ModelPrice(input_mtok=Decimal(1))),
        model("per-request", priced(1, 2, requests_kcount=Decimal(5))),
        model("silent", types.ModelPrice()),
    ]
    seller = types.Provider(
        id="tokens", name="Tokens", api_pattern=r"https://api\.tokens\.test", models=models
    )
    set_custom_snapshot(DataSnapshot(providers=[seller], from_auto_update=False))
    yield
    set_custom_snapshot(None)


def found(name: str, **options):
    return find_price(name, base_url=URL, at=NOW, **options)


def test_a_listed_price_is_exact_and_names_its_source() -> None:
    flat = found("flat")
    assert flat.price == Price(Decimal("1.25"), Decimal(10), Decimal("0.125"))
    assert (flat.reason, flat.notes) == ("", ())
    assert flat.source.startswith("genai-prices ") and flat.source.endswith(", tokens")
    assert find_price("flat", vendor="tokens", at=NOW).price == flat.price


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tiered", "length of the prompt"),
        ("hourly", "hour"),
        ("gift", "free"),
        ("reader", "both input and output"),
        ("silent", "both input and output"),
        ("per-request", "requests_kcount"),
        ("unheard-of", "not on the price list of tokens"),
    ],
)
def test_what_a_price_cannot_say_is_not_known_and_never_nothing(name, reason) -> None:
    unknown = found(name)
    assert unknown.price is None
    assert reason in unknown.reason


def test_a_server_of_ones_own_has_no_known_price() -> None:
    own = "http://localhost:8000/v1"
    assert own in find_price("flat", base_url=own).reason
    assert find_price("flat").price is None


def test_what_is_charged_beside_tokens_is_told() -> None:
    searching = found("searching")
    assert searching.price == Price(Decimal(1), Decimal(2))
    assert searching.notes == ("not covered, if you ask for it: web searches",)


def test_a_price_is_that_of_the_day_and_its_announced_change_is_told() -> None:
    today = found("dated")
    later = find_price("dated", base_url=URL, at=DECEMBER)
    assert today.price == Price(Decimal("1.25"), Decimal(10), Decimal("0.125"))
    assert today.notes == ("changes on 2026-12-01",)
    assert later.price == Price(Decimal(2), Decimal(20)) and later.notes == ()


def test_a_setting_with_a_price_of_its_own_makes_the_price_unknown() -> None:
    assert found("flat", body={"reasoning_effort": "low"}).price is not None
    assert "service_tier" in found("flat", body={"service_tier": "flex"}).reason


def test_every_price_that_is_known_comes_back_from_a_pool_file_to_the_last_digit() -> None:
    from genai_prices.data import providers

    set_custom_snapshot(None)
    prices: list[Price] = []
    text = ""
    for seller in providers:
        for listed in seller.models:
            price = find_price(listed.id, vendor=seller.id, at=NOW).price
            if price is not None:
                prices.append(price)
                text += f'[[worker]]\nname = "w"\nmodel = "m"\n{price_line(price)}\n'
    assert len(prices) > 1000
    read = validate(tomllib.loads(text), PoolFile, where="pool.toml")
    assert [worker.price for worker in read.worker] == prices


def test_every_model_of_a_first_pool_file_has_a_known_price() -> None:
    set_custom_snapshot(None)
    for vendor in VENDORS:
        for name in vendor.models:
            assert find_price(name, base_url=vendor.base_url).price, name
