"""The server's counters, for Prometheus.

Every label comes from the server's configuration and code, none from a client: a request for an
unknown model counts as ``unknown``. Dollars are floats here; the exact ones are in the store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from openconductor.errors import WorkerError, WorkflowError
from openconductor.types import Call, Episode

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_BOUNDS = [*map(str, _SECONDS), "+Inf"]

_COUNTERS = {
    "requests": ("Requests that have ended.", ("api", "model", "status")),
    "calls": ("Calls of workers that have ended, each attempt.", ("worker", "outcome")),
    "tokens": ("Tokens; the cached are input, the reasoning output.", ("worker", "kind")),
    "dollars": ("US dollars of the calls whose price is known.", ("worker",)),
    "unpriced_calls": ("Calls whose price is not known.", ("worker",)),
    "false_claims": ("Calls whose worker claims more tokens than they may use.", ("worker",)),
    "key_dollars": ("US dollars that a key was charged, by its name.", ("key",)),
    "unplanned": (
        "Answers without a plan at the first attempt: why, and the rule that led to them.",
        ("rule", "reason"),
    ),
}
"""The counters by name: what each is about, and its labels."""

Counts = defaultdict[tuple[str, ...], float]
"""Sums by the values of their labels."""


@dataclass(slots=True)
class _Times:
    """A histogram: how many times are in each bucket, and their sum in seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(_BOUNDS))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(_SECONDS, seconds)] += 1
        self.total += seconds


class Metrics(Collector):
    """The counters of one server; two servers in a process do not share them."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {name: defaultdict(float) for name in _COUNTERS}
        self._seconds: defaultdict[tuple[str, ...], _Times] = defaultdict(_Times)
        self._first_byte: defaultdict[tuple[str, ...], _Times] = defaultdict(_Times)
        self._in_flight: defaultdict[str, int] = defaultdict(int)

    def count_call(self, call: Call) -> None:
        """Count a call that has ended, unless it was replayed, because that was paid for before.

        A nested orchestrator reports its own call only, with all that it used, so nothing counts
        twice.
        """
        if call.replayed:
            return
        worker = call.worker
        used = call.usage
        self._counts["calls"][worker, call.outcome] += 1
        for kind in ("input", "cached", "output", "reasoning"):
            tokens = getattr(used, f"{kind}_tokens")
            if tokens:
                self._counts["tokens"][worker, kind] += tokens
        self._counts["dollars"][(worker,)] += float(used.dollars)
        self._counts["unpriced_calls"][(worker,)] += used.unpriced_calls

    def count_false_claim(self, worker: str) -> None:
        """Count a call whose worker claims more tokens than it may use."""
        self._counts["false_claims"][(worker,)] += 1

    def count_unplanned(self, episode: Episode) -> None:
        """Count an episode that a rule, or a second attempt at a plan, has answered."""
        error = episode.no_plan
        if episode.answer is None or (episode.rule is None and error is None):
            return
        reason = type(error).__name__ if error is not None else ""
        if isinstance(error, WorkflowError):
            reason = error.reason.value
        elif isinstance(error, WorkerError):
            reason = error.outcome
        self._counts["unplanned"][episode.rule or "", reason] += 1

    @contextmanager
    def in_flight(self, api: str) -> Generator[None]:
        """Count an episode for as long as it runs."""
        self._in_flight[api] += 1
        try:
            yield
        finally:
            self._in_flight[api] -= 1

    def first_byte(self, api: str, seconds: float) -> None:
        """Count the time to the first byte of an answer."""
        self._first_byte[(api,)].add(seconds)

    def count_request(self, api: str, model: str, status: int, seconds: float) -> None:
        """Count a request that has ended; an unknown model is ``unknown``."""
        self._counts["requests"][api, model, str(status)] += 1
        self._seconds[api, model].add(seconds)

    def count_charge(self, key: str, dollars: Decimal) -> None:
        """Count the charge of a request, by the name of its key."""
        self._counts["key_dollars"][(key,)] += float(dollars)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for name, (about, labels) in _COUNTERS.items():
            counter = CounterMetricFamily(f"openconductor_{name}", about, labels=labels)
            for values, count in self._counts[name].items():
                counter.add_metric(values, count)
            yield counter
        running = GaugeMetricFamily(
            "openconductor_episodes_in_flight", "Episodes under way.", labels=("api",)
        )
        for api, count in self._in_flight.items():
            running.add_metric((api,), count)
        yield running
        yield _histogram(
            "request_seconds",
            "From a request to the end of its answer.",
            ("api", "model"),
            self._seconds,
        )
        yield _histogram(
            "first_byte_seconds",
            "From a request to the first byte of its answer.",
            ("api",),
            self._first_byte,
        )

    def render(self) -> bytes:
        """Return the page, as text."""
        return generate_latest(self)


def _histogram(
    name: str, about: str, labels: Sequence[str], times: Mapping[tuple[str, ...], _Times]
) -> Metric:
    family = HistogramMetricFamily(f"openconductor_{name}", about, labels=labels)
    for values, seconds in times.items():
        buckets = list(zip(_BOUNDS, accumulate(seconds.buckets), strict=True))
        family.add_metric(values, buckets, seconds.total)
    return family
