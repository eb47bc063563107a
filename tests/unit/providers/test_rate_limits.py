"""Waits and limits as vendors tell them, in headers and bodies."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from openconductor.errors import RateLimited
from openconductor.providers.wire.failures import error_object, failure
from openconductor.providers.wire.rate_limits import RateLimits, read_limits, retry_after

OPENAI = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-reset-tokens": "6ms",
}
GROQ = {
    "x-ratelimit-limit-requests": "14400",  # a day
    "x-ratelimit-limit-tokens": "18000",
    "x-ratelimit-remaining-requests": "14370",
    "x-ratelimit-remaining-tokens": "17997",
    "x-ratelimit-reset-requests": "2m59.56s",
    "x-ratelimit-reset-tokens": "7.66ms",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-tokens-limit": "30000",
    "anthropic-ratelimit-tokens-remaining": "21000",
}
RETRY_INFO = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota. Please retry in 9s.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.Help", "links": []},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
        ],
    }
}
PER_DAY = [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]


def told(message: str = "", code: str = "rate_limit_exceeded", **more: object) -> object:
    return {"error": {"message": message, "code": code, **more}}


def rfc3339(seconds: float) -> str:
    time = datetime.now(UTC) + timedelta(seconds=seconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


TRY_AGAIN = "Limit 60, Used 60, Requested 1. Please try again in {}. Visit the page of limits."
USED_UP = OPENAI | {"x-ratelimit-remaining-requests": "0"}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, {}, None),
        ({"retry-after": "3"}, {}, 3),
        ({"retry-after-ms": "250", "retry-after": "1"}, {}, 0.25),
        ({}, told(TRY_AGAIN.format("20s")), 20),
        ({}, told(TRY_AGAIN.format("6m0s")), 360),
        ({}, told(TRY_AGAIN.format("1h2m3.5s")), 3723.5),
        ({}, told(TRY_AGAIN.format("20ms")), 0.02),
        ({}, told("Please retry after 20 seconds."), 20),
        ({}, told("Please retry after 2 minutes."), 120),
        ({}, told("try again in a while"), None),
        ({}, RETRY_INFO, 34.5),
        ({}, [RETRY_INFO], 34.5),
        (USED_UP, {}, 1),
        (USED_UP | {"x-ratelimit-reset-requests": "6m0s"}, {}, 360),
        (USED_UP | {"x-ratelimit-reset-requests": "6m0s"}, told(TRY_AGAIN.format("2s")), 2),
        (OPENAI | {"x-ratelimit-reset-requests": "8m"}, {}, 0.006),  # none is known to be used up
        (ANTHROPIC | {"anthropic-ratelimit-requests-reset": rfc3339(40_000)}, {}, 40_000),
        (ANTHROPIC | {"anthropic-ratelimit-requests-reset": "soon"}, {}, None),
        ({"retry-after": "7"}, RETRY_INFO, 7),
    ],
)
def test_a_rejection_says_how_long_to_wait(
    headers: dict[str, str], body: object, expected: float | None
) -> None:
    error = failure(429, json.dumps(body).encode(), headers)
    assert isinstance(error, RateLimited)
    assert error.retryable
    assert error.retry_after == (None if expected is None else pytest.approx(expected, rel=0.05))


def test_only_a_rejection_is_told_by_the_time_of_a_reset() -> None:
    assert failure(503, b"", USED_UP).retry_after is None  # type: ignore[attr-defined]
    assert failure(503, b"", {"retry-after": "2"}).retry_after == 2
    assert error_object(RETRY_INFO).retry_after == 34.5


@pytest.mark.parametrize(
    ("body", "retryable"),
    [
        (told("spent", "insufficient_quota"), False),
        (told("spent", "", type="insufficient_quota"), False),
        (told("quota of the day", details=PER_DAY), False),
        (told("Request too large for gpt-5 on tokens per min: Limit 10000"), False),
        (told("quota of the minute"), True),
    ],
)
def test_a_spent_quota_and_too_large_a_request_are_told_from_too_many(
    body: object, retryable: bool
) -> None:
    error = failure(429, json.dumps(body).encode())
    assert isinstance(error, RateLimited)
    assert error.retryable is retryable


@given(
    name=st.sampled_from([*OPENAI, "retry-after", "x-ratelimit-reset"]),
    text=st.text(max_size=30),
)
def test_no_header_or_message_breaks_the_reading(name: str, text: str) -> None:
    headers = USED_UP | {name: text}
    read_limits(headers)
    error = failure(429, json.dumps(told(f"try again in {text}")).encode(), headers)
    assert error.retry_after is None or error.retry_after >= 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (None, None)),
        (OPENAI, (60, 150_000)),
        (GROQ, (None, 18_000)),
        (
            GROQ | {"x-ratelimit-remaining-requests": "14399", "x-ratelimit-reset-requests": "6s"},
            (None, 18_000),
        ),
        (ANTHROPIC | {"anthropic-ratelimit-requests-reset": rfc3339(55)}, (50, 30_000)),
        ({"anthropic-ratelimit-input-tokens-limit": "20000"}, (None, 20_000)),
        ({"x-ratelimit-limit-requests": "60, 60;w=60"}, (None, None)),
        ({"x-ratelimit-limit-requests": "0"}, (None, None)),
    ],
)
def test_limits_of_a_minute_are_read_off_an_answers_headers(
    headers: dict[str, str], expected: tuple[int | None, int | None]
) -> None:
    assert read_limits(headers) == RateLimits(*expected)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9999"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "Mon, 99 Abc 99999 99:99:99 GMT"}, None),
        ({"retry-after": "Fri, 01 Jan 1999 00:00:00 GMT"}, 0.0),
    ],
)
def test_a_wait_is_read_off_the_headers(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_a_wait_is_read_as_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": date}) == pytest.approx(60, abs=3)
