"""What a server counts, for Prometheus. In: the ends of requests and of calls. Out: a page of figures.

Every label comes from our own configuration and code, none from a client: who asks for a model that
there is not is counted under ``unknown``. Dollars are floats here; the exact ones are in the
journal.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from decimal import Decimal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openconductor.events import CallEnded, Event

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """The figures of one server; two servers in a process do not share them."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"openconductor_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            return Histogram(
                f"openconductor_{name}", about, labels, registry=registry, buckets=_SECONDS
            )

        self._requests = counter("requests", "Requests that have ended.", "api", "model", "status")
        self._took = histogram(
            "request_seconds", "From a request to the end of its answer.", "api", "model"
        )
        self._first = histogram(
            "first_byte_seconds", "From a request to the first byte of its answer.", "api"
        )
        self._flying = Gauge(
            "openconductor_episodes_in_flight", "Episodes under way.", ["api"], registry=registry
        )
        self._calls = counter(
            "calls", "Calls of workers that have ended, each attempt.", "worker", "outcome"
        )
        self._tokens = counter(
            "tokens", "Tokens; the cached are input, the reasoning output.", "worker", "kind"
        )
        self._dollars = counter(
            "dollars", "US dollars of the calls whose price is known.", "worker"
        )
        self._unpriced = counter("unpriced_calls", "Calls whose price is not known.", "worker")
        self._charged = counter(
            "key_dollars", "US dollars that a key was charged, by its name.", "key"
        )

    def hear(self, event: Event) -> None:
        """Count a call that has ended, if one has; not one that a journal answered, which was paid before.

        Of a worker that is an orchestrator its own call alone is told, with all that it used:
        nothing counts twice.
        """
        if not isinstance(event, CallEnded) or event.call.replayed:
            return
        call, used = event.call, event.call.usage
        self._calls.labels(call.worker, call.outcome).inc()
        for kind in ("input", "cached", "output", "reasoning"):
            if tokens := getattr(used, f"{kind}_tokens"):
                self._tokens.labels(call.worker, kind).inc(tokens)
        self._dollars.labels(call.worker).inc(float(used.dollars))
        self._unpriced.labels(call.worker).inc(used.unpriced_calls)

    def in_flight(self, api: str) -> AbstractContextManager[object]:
        """Count an episode for as long as it is under way."""
        return self._flying.labels(api).track_inprogress()

    def first_byte(self, api: str, seconds: float) -> None:
        """Count how long the first byte of an answer took."""
        self._first.labels(api).observe(seconds)

    def ended(self, api: str, model: str, status: int, seconds: float) -> None:
        """Count a request: its model (``unknown`` where it named none that there is), its status, how long it took."""
        self._requests.labels(api, model, status).inc()
        self._took.labels(api, model).observe(seconds)

    def charged(self, key: str, dollars: Decimal) -> None:
        """Count what a request was charged, by the name of its key."""
        self._charged.labels(key).inc(float(dollars))

    def render(self) -> bytes:
        """The page, as text."""
        return generate_latest(self._registry)
