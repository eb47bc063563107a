"""The server's counters, for Prometheus.

Every label comes from the server's configuration and code, none from a client: a request for an
unknown model counts as ``unknown``. Dollars are floats here; the exact ones are in the store.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from decimal import Decimal
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openconductor.errors import WorkerError, WorkflowError
from openconductor.types import Call, Episode

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """The counters of one server; two servers in a process do not share them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "requests", "Requests that have ended.", "api", "model", "status"
        )
        self._seconds = self._histogram(
            "request_seconds", "From a request to the end of its answer.", "api", "model"
        )
        self._first_byte = self._histogram(
            "first_byte_seconds", "From a request to the first byte of its answer.", "api"
        )
        self._in_flight = Gauge(
            "openconductor_episodes_in_flight",
            "Episodes under way.",
            ["api"],
            registry=self._registry,
        )
        self._calls = self._counter(
            "calls", "Calls of workers that have ended, each attempt.", "worker", "outcome"
        )
        self._tokens = self._counter(
            "tokens", "Tokens; the cached are input, the reasoning output.", "worker", "kind"
        )
        self._dollars = self._counter(
            "dollars", "US dollars of the calls whose price is known.", "worker"
        )
        self._unpriced = self._counter(
            "unpriced_calls", "Calls whose price is not known.", "worker"
        )
        self._false_claims = self._counter(
            "false_claims", "Calls whose worker claims more tokens than they may use.", "worker"
        )
        self._charged = self._counter(
            "key_dollars", "US dollars that a key was charged, by its name.", "key"
        )

        self._unplanned = self._counter(
            "unplanned",
            "Answers without a plan at the first attempt: why, and the rule that led to them.",
            "rule",
            "reason",
        )

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        counter = Counter(f"openconductor_{name}", about, labels, registry=self._registry)
        counter.labels = cache(counter.labels)  # it is called some ten times a request
        return counter

    def _histogram(self, name: str, about: str, *labels: str) -> Histogram:
        name = f"openconductor_{name}"
        histogram = Histogram(name, about, labels, registry=self._registry, buckets=_SECONDS)
        histogram.labels = cache(histogram.labels)
        return histogram

    def count_call(self, call: Call) -> None:
        """Count a call that has ended, unless it was replayed, because that was paid for before.

        A nested orchestrator reports its own call only, with all that it used, so nothing counts
        twice.
        """
        if call.replayed:
            return
        used = call.usage
        self._calls.labels(call.worker, call.outcome).inc()
        for kind in ("input", "cached", "output", "reasoning"):
            tokens = getattr(used, f"{kind}_tokens")
            if tokens:
                self._tokens.labels(call.worker, kind).inc(tokens)
        self._dollars.labels(call.worker).inc(float(used.dollars))
        self._unpriced.labels(call.worker).inc(used.unpriced_calls)

    def count_false_claim(self, worker: str) -> None:
        """Count a call whose worker claims more tokens than it may use."""
        self._false_claims.labels(worker).inc()

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
        self._unplanned.labels(episode.rule or "", reason).inc()

    def in_flight(self, api: str) -> AbstractContextManager[object]:
        """Count an episode for as long as it runs."""
        return self._in_flight.labels(api).track_inprogress()

    def first_byte(self, api: str, seconds: float) -> None:
        """Count the time to the first byte of an answer."""
        self._first_byte.labels(api).observe(seconds)

    def count_request(self, api: str, model: str, status: int, seconds: float) -> None:
        """Count a request that has ended; an unknown model is ``unknown``."""
        self._requests.labels(api, model, status).inc()
        self._seconds.labels(api, model).observe(seconds)

    def count_charge(self, key: str, dollars: Decimal) -> None:
        """Count the charge of a request, by the name of its key."""
        self._charged.labels(key).inc(float(dollars))

    def render(self) -> bytes:
        """Return the page, as text."""
        return generate_latest(self._registry)
