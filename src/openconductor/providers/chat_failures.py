"""What a chat server's failures mean. In: a status, a body, an error object. Out: the WorkerError of the right kind.

The kind decides the fate: what the plan caused (a context too long, a refusal) is graded, what the wire caused is made
again or masked, a wrong key stops the run. No message ever holds the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

from openconductor.errors import AuthFailed, ContextTooLong, RateLimited, Refused, WorkerError

Json = Mapping[str, object]

ECHO_CHARACTERS = 300  # how much of a server's words goes into an error message

_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded")
_CONTEXT_WORDS = re.compile(
    r"context (length|window|size)|prompt is too long|input is too long|too many input tokens|input token count"
    r"|maximum (prompt|input|sequence) length",
    re.IGNORECASE,
)
_REFUSAL_CODES = ("content_filter", "content_policy_violation", "invalid_prompt", "responsibleaipolicyviolation")
_REFUSAL_WORDS = re.compile(r"content (management )?policy|usage policy|flagged", re.IGNORECASE)
_QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached")
_LIMIT_CODES = ("rate_limit_exceeded", "rate_limit_error", *_QUOTA_CODES)
_KEY_CODES = ("invalid_api_key", "authentication_error")
_KEY_WORDS = re.compile(r"api key not valid|(invalid|incorrect) api key", re.IGNORECASE)


def failure(status: int, raw: bytes, *, wait: float | None = None, secret: str = "") -> WorkerError:
    """The error that a status other than 2xx and its body stand for; ``wait`` is what Retry-After named, in seconds."""
    try:
        data: object = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, list) and data:  # Gemini wraps its errors in a list
        data = cast("list[object]", data)[0]
    words, code = _error_words(cast(Json, data)) if isinstance(data, dict) else ("", "")
    return _classify(status, code, excerpt(words or raw, secret), wait)


def error_object(data: Json, *, secret: str) -> WorkerError:
    """The error that an error object under status 200 stands for; its own code counts as the status if it is one."""
    words, code = _error_words(data)
    status = int(code) if code.isdecimal() and 400 <= int(code) < 600 else 200
    return _classify(status, code, excerpt(words or repr(data), secret), None)


def _error_words(data: Json) -> tuple[str, str]:
    """(message, code) of an error body, in the shapes that are in use."""
    error = data.get("error", data)
    if not isinstance(error, dict):
        return str(error), ""
    inner = cast(Json, error)
    words = inner.get("message") or inner.get("detail")
    code = inner.get("code") or inner.get("type") or ""
    return (words if isinstance(words, str) else ""), str(code)


def _classify(status: int, code: str, words: str, wait: float | None) -> WorkerError:
    said = f"status {status}: {words}" if words else f"status {status} and no message"
    code = code.lower()
    if status in (429, 402) or code in _LIMIT_CODES:
        spent = status == 402 or code in _QUOTA_CODES
        return RateLimited(said, status=status, retryable=not spent, retry_after=wait)
    if status == 401 or code in _KEY_CODES or (status == 400 and _KEY_WORDS.search(words)):
        return AuthFailed(said, status=status)
    if code in _CONTEXT_CODES or (status in (200, 400, 413, 422, 500) and _CONTEXT_WORDS.search(words)):
        return ContextTooLong(said, status=status)
    if code in _REFUSAL_CODES or (status in (200, 400, 403) and _REFUSAL_WORDS.search(words)):
        return Refused(said, status=status)
    if status == 403:
        return AuthFailed(said, status=status)
    return WorkerError(said, status=status, retryable=status in (200, 408, 409, 425) or status >= 500)


def excerpt(words: str | bytes, secret: str = "") -> str:
    """A server's words, without the key, on one line, and short."""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    if secret:
        text = text.replace(secret, "[key]")
    line = " ".join(text.split())
    return line if len(line) <= ECHO_CHARACTERS else f"{line[: ECHO_CHARACTERS - 1]}…"


def retry_after(header: str | None) -> float | None:
    """The seconds to wait that a Retry-After header names, as seconds or as an HTTP date (RFC 9110, 10.2.3)."""
    if header is None:
        return None
    text = header.strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
