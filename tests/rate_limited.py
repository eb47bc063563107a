"""Servers with a limit of requests or tokens a minute, and the ways in which vendors say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

MINUTE = 60.0
QUESTIONS = 150

Rejection = tuple[dict[str, str], dict[str, object]]
"""The headers and the body of a 429."""


@dataclass
class Bucket:
    """A token bucket, refilled all the time; its capacity is the limit, unless it is given."""

    limit: float
    capacity: float = 0.0
    used: float = 0.0
    time: float = 0.0

    def take(self, cost: float, now: float) -> float:
        """Take what a call costs and return 0, or return the seconds until it is there."""
        rate = self.limit / MINUTE
        self.used = max(0.0, self.used - (now - self.time) * rate)
        self.time = now
        missing = self.used + cost - (self.capacity or self.limit)
        if missing > 1e-9:
            return missing / rate
        self.used += cost
        return 0.0

    def reset(self, now: float) -> float:
        """Return the seconds until all of the limit is back."""
        return self.used / (self.limit / MINUTE)


@dataclass
class Window:
    """A fixed window: what is left of a minute's limit is lost."""

    limit: float
    shift: float = 0.0
    used: float = 0.0
    number: int = 0

    def take(self, cost: float, now: float) -> float:
        number = int((now + self.shift) // MINUTE)
        if number != self.number:
            self.number = number
            self.used = 0.0
        if self.used + cost > self.limit:
            return self.reset(now)
        self.used += cost
        return 0.0

    def reset(self, now: float) -> float:
        return MINUTE - (now + self.shift) % MINUTE


def silent(wait: float, reset: float) -> Rejection:
    return {}, {}


def seconds(wait: float, reset: float) -> Rejection:
    return {"retry-after": str(math.ceil(wait))}, {}


def date(wait: float, reset: float) -> Rejection:
    time = datetime.now(UTC) + timedelta(seconds=math.ceil(wait))
    return {"retry-after": format_datetime(time, usegmt=True)}, {}


def azure(wait: float, reset: float) -> Rejection:
    return {"retry-after-ms": f"{wait * 1000:.0f}"}, {}


def openai(wait: float, reset: float) -> Rejection:
    words = f"Rate limit reached. Please try again in {_duration(wait)}. Visit the page of limits."
    error = {"message": words, "type": "requests", "code": "rate_limit_exceeded"}
    return resets(wait, reset)[0], {"error": error}


def resets(wait: float, reset: float) -> Rejection:
    headers = {
        "x-ratelimit-reset-requests": _duration(reset),
        "x-ratelimit-remaining-requests": "0",
    }
    return headers, {}


def anthropic(wait: float, reset: float) -> Rejection:
    time = datetime.now(UTC) + timedelta(seconds=reset)
    form = time.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"anthropic-ratelimit-tokens-reset": form}, {"type": "error"}


def google(wait: float, reset: float) -> Rejection:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait:.9f}s"}]
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}
    return {}, {"error": error}


DIALECTS: Mapping[str, Callable[[float, float], Rejection]] = {
    dialect.__name__: dialect
    for dialect in (silent, seconds, date, azure, openai, resets, anthropic, google)
}


def throughput(ended: list[float], cost: float, limit: float) -> float:
    """Return what was answered after the first minute, as a share of the limit."""
    late = [time for time in ended if time > MINUTE]
    return len(late) * cost / limit / (max(ended) - MINUTE) * MINUTE


def _duration(wait: float) -> str:
    """Write a duration as OpenAI does: 6m0s, 1.5s, 20ms."""
    if wait < 1:
        return f"{math.ceil(wait * 1000)}ms"
    if wait < MINUTE:
        return f"{wait:.3f}s"
    minutes, rest = divmod(math.ceil(wait), 60)
    return f"{minutes}m{rest}s"
