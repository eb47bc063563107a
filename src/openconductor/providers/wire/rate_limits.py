"""Rate limits as vendors tell them: the wait after a rejection, and the limits of an account.

Waits are read from ``retry-after-ms`` and ``Retry-After``; from the error's body (Google's
``retryDelay``, OpenAI's "Please try again in 20s"); from the time at which a used-up limit is full
again (``x-ratelimit-reset-*``, ``anthropic-ratelimit-*-reset``). The first that is there holds,
because the last kind names the longest wait: a call can often go before all of a limit is back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from openconductor.types import is_array, is_object

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")
_WHOLE = re.compile(r"[0-9]{1,12}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?) ?(ms|millis|[dhms])", re.IGNORECASE)
_DURATION = r"(?:[0-9]{1,9}(?:\.[0-9]+)? ?(?:ms|[dhms])[a-z]* ?)+"
_AGAIN = re.compile(rf"(?:try again|retry) (?:after|in) ({_DURATION})", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "millis": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_READ_CHARACTERS = 4096  # characters of a message that are searched for a wait

_REQUESTS = ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}")
_TOKENS = (
    "x-ratelimit-{}-tokens",
    "anthropic-ratelimit-tokens-{}",
    "anthropic-ratelimit-input-tokens-{}",
    "anthropic-ratelimit-output-tokens-{}",
)
"""The headers of each limit, without ``limit``, ``remaining`` or ``reset``."""

_LONGEST_RESET_S = 120.0  # until a limit of a minute is full again
_ROUNDING_S = 1.5  # resets up to this may be rounded up to a whole second
_HALF_A_DAY_S = 43_200.0


class RateLimits(NamedTuple):
    """Calls and tokens a minute; None: unknown."""

    rpm: int | None = None
    tpm: int | None = None


def read_limits(headers: Mapping[str, str]) -> RateLimits:
    """Return the limits a minute that a response's headers (names in small letters) tell."""
    return RateLimits(_minute_limit(headers, _REQUESTS), _minute_limit(headers, _TOKENS[:3]))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that a response's headers (names in small letters) name, or None.

    ``retry-after-ms`` (OpenAI, Azure) is finer, so it comes first; ``Retry-After`` is in seconds or
    an HTTP date (RFC 9110, 10.2.3).
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    text = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return _seconds_until(when)


def wait_in_body(error: Mapping[str, object], message: str) -> float | None:
    """Return the seconds to wait that an error's body names, or None."""
    for detail in _mappings(error.get("details")):
        if "retryDelay" in detail:
            return _duration(str(detail["retryDelay"]))
    again = _AGAIN.search(message[:_READ_CHARACTERS])
    return _duration(again[1].strip()) if again else None


def wait_for_reset(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the used-up limits are full again, or None.

    If no limit is known to be used up, it is the shortest time of all.
    """
    used_up: list[float] = []
    others: list[float] = []
    for form in _REQUESTS + _TOKENS:
        wait = _read_reset(headers, form)
        if wait is not None:
            is_used_up = _whole(headers, form.format("remaining")) == 0
            (used_up if is_used_up else others).append(wait)
    if used_up:
        return max(used_up)
    return min(others, default=None)


def is_daily_quota(error: Mapping[str, object]) -> bool:
    """Return True if Google says that the quota of a day is used up."""
    for detail in _mappings(error.get("details")):
        for violation in _mappings(detail.get("violations")):
            if "PerDay" in str(violation.get("quotaId")):
                return True
    return False


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    if is_array(value):
        yield from filter(is_object, value)


def _minute_limit(headers: Mapping[str, str], forms: Sequence[str]) -> int | None:
    """Return a limit of a minute, in the first of the forms that the server uses.

    None: unknown, or a limit of a longer period (Groq's of a day). The period is guessed: if a
    limit fills up gradually, the time until its used part is back tells the time of all of it.
    """
    for form in forms:
        limit = _whole(headers, form.format("limit"))
        if not limit:
            continue
        reset = _read_reset(headers, form) or 0.0
        remaining = _whole(headers, form.format("remaining"))
        used = limit if remaining is None else limit - remaining
        is_daily = reset > _ROUNDING_S and reset * limit > _HALF_A_DAY_S * used > 0
        if not is_daily and reset <= _LONGEST_RESET_S:
            return limit
    return None


def _whole(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "").strip()
    return int(text) if _WHOLE.fullmatch(text) else None


def _read_reset(headers: Mapping[str, str], form: str) -> float | None:
    """Return the seconds until a limit is full again: a duration (``6m0s``) or a time (RFC 3339).

    None: it is neither.
    """
    text = headers.get(form.format("reset"), "").strip()
    if "T" in text:
        with suppress(ValueError):
            return _seconds_until(datetime.fromisoformat(text))
    return _duration(text)


def _duration(text: str) -> float | None:
    """Return the seconds of ``20ms``, ``6m0s``, ``34.5s``, ``20 seconds`` or ``20``, or None."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if not re.fullmatch(_DURATION, text, re.IGNORECASE):
        return None
    return sum(float(count) * _SECONDS[unit.lower()] for count, unit in _PART.findall(text))


def _seconds_until(when: datetime) -> float:
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
