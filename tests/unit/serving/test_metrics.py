"""The page of figures: what is counted, once, under labels of our own; `test_serving_money.py` has the sums."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest

pytest.importorskip("prometheus_client")

from openconductor.events import Answered, CallEnded
from openconductor.serving.metrics import Metrics
from openconductor.types import Call, Episode, Message, Sampling, Usage

USED = Usage(100, 40, 30, 10, Decimal("0.125"))


def figures(metrics: Metrics) -> dict[str, float]:
    """The page by its names with labels, without the comments and the times at which a figure began."""
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines)
        if "_created" not in name
    }


def ended(usage: Usage, **options: object) -> CallEnded:
    told = {"outcome": "answered", **options}
    return CallEnded(
        "e",
        0,
        1.0,
        0,
        Call("w", messages=(Message("user", "Hi"),), sampling=Sampling(), usage=usage, **told),
    )


def test_what_a_journal_answered_was_counted_before_and_other_events_are_no_calls() -> None:
    metrics = Metrics()
    metrics.hear(ended(USED, replayed=True))
    metrics.hear(Answered("e", 0, 1.0, Episode("Hi", (), "Hi", None, USED, 1.0, "e")))
    assert figures(metrics) == {}


def test_an_orchestrator_among_the_workers_is_counted_once_with_all_that_it_used() -> None:
    metrics = Metrics()
    metrics.hear(ended(USED, nested=True))
    assert figures(metrics)['openconductor_dollars_total{worker="w"}'] == 0.125


def test_requests_their_time_and_the_charges_of_keys_are_counted() -> None:
    metrics = Metrics()
    with suppress(KeyError), metrics.in_flight("chat"):
        assert figures(metrics)['openconductor_episodes_in_flight{api="chat"}'] == 1
        metrics.first_byte("chat", 0.2)
        raise KeyError
    metrics.ended("chat", "conductor", 200, 3.0)
    metrics.ended("chat", "unknown", 404, 0.001)
    metrics.charged("ann", Decimal("0.25"))
    page = figures(metrics)
    assert page['openconductor_episodes_in_flight{api="chat"}'] == 0
    assert page['openconductor_requests_total{api="chat",model="conductor",status="200"}'] == 1
    assert page['openconductor_requests_total{api="chat",model="unknown",status="404"}'] == 1
    assert page['openconductor_request_seconds_sum{api="chat",model="conductor"}'] == 3
    assert page['openconductor_first_byte_seconds_bucket{api="chat",le="0.25"}'] == 1
    assert page['openconductor_first_byte_seconds_bucket{api="chat",le="0.1"}'] == 0
    assert page['openconductor_key_dollars_total{key="ann"}'] == 0.25


def test_two_servers_in_a_process_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.charged("ann", Decimal(1))
    assert figures(other) == {}
