"""Scripts: the fault that a request meets, the same in every run and in any order of arrival.

A fate is a function of the seed, the worker (the body's ``model``), the request's content and how
often exactly that request was seen; so a retry is another draw, a run can be repeated, and a test
can work out afterwards, without asking the server, what each of its calls had met.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

HEALTHY = "ok"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as it is known.

    Attributes:
        model: the body's ``model``: the worker.
        digest: of the whole body (the model and whether it streams are in it).
        topic: a digest of the messages alone, equal for all workers that are asked the same.
        seen: how often this very body came before.
        stream: whether an event stream is wanted.
        key: what stood in the Authorization header.
        traceparent: what stood in that header.
    """

    model: str
    digest: int
    topic: int
    seen: int = 0
    stream: bool = False
    key: str = ""
    traceparent: str = ""


class Script(Protocol):
    """Decides the fate of each request."""

    def fate(self, request: Request) -> str:
        """The name of a fault (``plays.FAULTS``)."""
        ...


def digest(data: bytes) -> int:
    """64 bits that stand for the data."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def read_request(raw: bytes, key: str = "") -> Request:
    """The request in a body; ``seen`` is for the server to fill in."""
    body = json.loads(raw)
    topic = digest(json.dumps(body["messages"], sort_keys=True).encode())
    return Request(body["model"], digest(raw), topic, 0, bool(body.get("stream")), key)


@dataclass(frozen=True, slots=True)
class Played:
    """By worker the fates of a request, in order; the last one stays. Other workers are healthy."""

    parts: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def fate(self, request: Request) -> str:
        part = self.parts.get(request.model, (HEALTHY,))
        return part[min(request.seen, len(part) - 1)]


@dataclass(frozen=True, slots=True)
class Seeded:
    """By chance: a worker's share of its requests is faulty, drawn from weighted faults.

    Attributes:
        seed: another one is another run.
        shares: the share of faulty requests, in [0, 1], by worker; a worker that is not named is
            healthy.
        weights: the faults to draw from, and how often beside the others.
    """

    seed: int
    shares: Mapping[str, float]
    weights: Mapping[str, float]

    def fate(self, request: Request) -> str:
        share = self.shares.get(request.model, 0.0)
        drawn = self._draw(request)
        if drawn >= share:
            return HEALTHY
        # Given that it is below the share, the same draw is uniform below it: it also chooses the
        # fault.
        rest = drawn / share * sum(self.weights.values())
        for name, weight in self.weights.items():
            rest -= weight
            if rest < 0:
                return name
        return HEALTHY  # only where the sum of the weights was rounded up

    def _draw(self, request: Request) -> float:
        """Uniform in [0, 1)."""
        return digest(f"{self.seed} {request.digest} {request.seen}".encode()) / 2**64


@dataclass(slots=True)
class Switchboard:
    """The fate of each worker, which a test changes while requests come; others are healthy."""

    fates: dict[str, str] = field(default_factory=dict[str, str])

    def fate(self, request: Request) -> str:
        return self.fates.get(request.model, HEALTHY)
