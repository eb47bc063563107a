"""The page of counters; `test_serving_money.py` has the sums."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest

pytest.importorskip("prometheus_client")

from openconductor.serving.metrics import Metrics
from openconductor.types import Call, Message, Sampling, Usage

USED = Usage(100, 40, 30, 10, Decimal("0.125"))


def page_of(metrics: Metrics) -> dict[str, float]:
    """Return the page by its names with labels, without comments and times of creation."""
    page: dict[str, float] = {}
    for line in metrics.render().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and "_created" not in name:
            page[name] = float(value)
    return page


def call(**options: bool) -> Call:
    return Call("w", "answered", (Message("user", "Hi"),), Sampling(), usage=USED, **options)


def test_a_replayed_call_is_not_counted_and_a_nested_one_once() -> None:
    metrics = Metrics()
    metrics.count_call(call(replayed=True))
    assert page_of(metrics) == {}
    metrics.count_call(call(nested=True))
    assert page_of(metrics)['openconductor_dollars_total{worker="w"}'] == 0.125
    assert page_of(Metrics()) == {}  # servers in one process do not share counters


def test_requests_their_time_and_the_charges_of_keys_are_counted() -> None:
    metrics = Metrics()
    with suppress(KeyError), metrics.in_flight("chat"):
        assert page_of(metrics)['openconductor_episodes_in_flight{api="chat"}'] == 1
        metrics.first_byte("chat", 0.2)
        raise KeyError
    metrics.count_request("chat", "conductor", 200, 3.0)
    metrics.count_request("chat", "unknown", 404, 0.001)
    metrics.count_charge("ann", Decimal("0.25"))
    page = page_of(metrics)
    assert page['openconductor_episodes_in_flight{api="chat"}'] == 0
    assert page['openconductor_requests_total{api="chat",model="conductor",status="200"}'] == 1
    assert page['openconductor_requests_total{api="chat",model="unknown",status="404"}'] == 1
    assert page['openconductor_request_seconds_sum{api="chat",model="conductor"}'] == 3
    assert page['openconductor_first_byte_seconds_bucket{api="chat",le="0.25"}'] == 1
    assert page['openconductor_first_byte_seconds_bucket{api="chat",le="0.1"}'] == 0
    assert page['openconductor_key_dollars_total{key="ann"}'] == 0.25
