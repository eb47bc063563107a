"""What a chat server's failures mean. In: a status, a body, an error object. Out: the WorkerError of the right kind.

The kind decides the fate: what the plan caused (a context too long, a refusal) is graded, what the
wire caused is made again or masked, a wrong key stops the run. No message ever holds the key, in
whatever form the server echoed it.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from string import ascii_lowercase, ascii_uppercase
from typing import cast

from openconductor import errors
from openconductor.privacy import MARK, forms, secrets_of_environment

Json = Mapping[str, object]

ECHO_CHARACTERS = 300  # how much of a server's words goes into an error message
SCANNED_CHARACTERS = (
    4096  # how much of them is looked through for the key before they are cut to that
)
WINDOW = 12  # this many characters of a key in a row are taken for it: a server may have cut what it echoes

_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded")
_CONTEXT_WORDS = re.compile(
    r"context (length|window|size)|prompt is too long|input is too long|too many input tokens|input token count"
    r"|maximum (prompt|input|sequence) length",
    re.IGNORECASE,
)
_REFUSAL_CODES = (
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
    "responsibleaipolicyviolation",
)
_REFUSAL_WORDS = re.compile(r"content (management )?policy|usage policy|flagged", re.IGNORECASE)
_QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached")
_LIMIT_CODES = ("rate_limit_exceeded", "rate_limit_error", *_QUOTA_CODES)
_KEY_CODES = ("invalid_api_key", "authentication_error")
_KEY_WORDS = re.compile(r"api key not valid|(invalid|incorrect) api key", re.IGNORECASE)
_REJECTED_CODES = ("invalid_request_error", "not_found_error", "model_not_found")

_PASSING = (
    408,
    409,
    425,
)  # statuses of the client's that are about this moment, not about the request
_LASTING = (501, 505)  # and of the server's that are about the request

_KEY_SHAPED = re.compile(
    r"(\b(sk|rk|pk|gsk|xai|hf|pplx|ghp|glpat)[-_]|\bAIza|\bbearer\s+)(?=[\w.~+/=-]*\d)[\w.~+/=-]{12,}",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


_keys: set[str] = set()
"""The keys that were read in this process; no excerpt shows one."""


def key_of(variable: str | None) -> str:
    """The key that an environment variable holds, which no excerpt shows from now on; "" where none is named.

    Raises:
        AuthFailed: the variable is not set, or holds what no header can.
    """
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise errors.AuthFailed(f"the environment variable {variable} is not set; expected a key")
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise errors.AuthFailed(f"the key in {variable} has characters that no header can hold")
    _keys.add(key)
    return key


def _without(key: str, text: str) -> str:
    """The text with ``[key]`` where the key stood: as it is, URL-quoted, escaped or in base64, whole or a piece.

    >>> _without("sk-0123456789abcdef", "wrong key: SK-0123456789ABC…")
    'wrong key: [key]…'
    """
    small = text.translate(_SMALL)  # not lower(), which can change the length
    shown = list(text)
    for form in {*forms(key), repr(key)[1:-1], html.escape(key), key.encode().hex()}:
        width = min(len(form), WINDOW)
        windows = {form.lower()[start : start + width] for start in range(len(form) - width + 1)}
        for start in range(len(small) - width + 1):
            if small[start : start + width] in windows:
                shown[start : start + width] = "\0" * width
    return re.sub("\0+", MARK, "".join(shown))


def failure(status: int, raw: bytes, *, wait: float | None = None) -> errors.WorkerError:
    """The error of a status other than 2xx and (the start of) its body; ``wait`` is what Retry-After named."""
    try:
        data: object = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, list) and data:  # Gemini wraps its errors in a list
        data = cast("list[object]", data)[0]
    words, code = _error_words(cast(Json, data)) if isinstance(data, dict) else ("", "")
    return _classify(status, code, excerpt(words or raw), wait)


def error_object(data: Json) -> errors.WorkerError:
    """The error that an error object under status 200 stands for; its own code counts as the status if it is one."""
    words, code = _error_words(data)
    status = int(code) if code.isdecimal() and 400 <= int(code) < 600 else 200
    return _classify(status, code, excerpt(words or repr(data)), None)


def _error_words(data: Json) -> tuple[str, str]:
    """(message, code) of an error body, in the shapes that are in use."""
    error = data.get("error", data)
    if not isinstance(error, dict):
        return str(error), ""
    inner = cast(Json, error)
    words = inner.get("message") or inner.get("detail")
    code = inner.get("code") or inner.get("type") or ""
    return (words if isinstance(words, str) else ""), str(code)[:ECHO_CHARACTERS]


def _classify(status: int, code: str, words: str, wait: float | None) -> errors.WorkerError:
    said = f"status {status}: {words}" if words else f"status {status} and no message"
    code = code.lower()
    if status in (429, 402) or code in _LIMIT_CODES:
        spent = status == 402 or code in _QUOTA_CODES
        return errors.RateLimited(said, status=status, retryable=not spent, retry_after=wait)
    if status == 401 or code in _KEY_CODES or (status == 400 and _KEY_WORDS.search(words)):
        return errors.AuthFailed(said, status=status)
    if code in _CONTEXT_CODES or (
        status in (200, 400, 413, 422, 500) and _CONTEXT_WORDS.search(words)
    ):
        return errors.ContextTooLong(said, status=status)
    if code in _REFUSAL_CODES or (status in (200, 400, 403) and _REFUSAL_WORDS.search(words)):
        return errors.Refused(said, status=status)
    if status == 403:
        return errors.AuthFailed(said, status=status)
    if status >= 500 or status in _PASSING or (status == 200 and code not in _REJECTED_CODES):
        return errors.ServerFailed(
            said, status=status, retryable=status not in _LASTING, retry_after=wait
        )
    return errors.Rejected(said, status=status)


def excerpt(words: str | bytes, *, end: bool = False) -> str:
    """A server's words without keys, on one line, without characters that steer a terminal, and short.

    Of what is too long the beginning is shown, or the ``end``.

    Without those that were read here, in any form and any piece of them; without the environment's
    others; without what has the shape of somebody's.
    """
    start = words[: 4 * SCANNED_CHARACTERS]
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    line = " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )
    line = line[:SCANNED_CHARACTERS]
    for key in tuple(_keys):
        line = _without(key, line)
    for other in secrets_of_environment():
        for form in forms(other):
            line = line.replace(form, MARK)
    line = _KEY_SHAPED.sub(MARK, line)
    if len(line) <= ECHO_CHARACTERS:
        return line
    return f"…{line[1 - ECHO_CHARACTERS :]}" if end else f"{line[: ECHO_CHARACTERS - 1]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that a response's headers (names in small letters) say, or None.

    ``retry-after-ms`` (OpenAI, Azure) is finer, so it comes first; ``Retry-After`` is in seconds or
    an HTTP date (RFC 9110, 10.2.3).
    """
    milliseconds, text = (
        headers.get("retry-after-ms", "").strip(),
        headers.get("retry-after", "").strip(),
    )
    if _NUMBER.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
