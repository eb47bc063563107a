"""Failures of a chat server: from a status, a body or an error object to the right WorkerError.

The class decides the fate: what the plan caused (a context too long, a refusal) is graded, what the
network caused is retried or masked, a wrong key stops the run. No message ever holds the key, in
whatever form the server echoed it.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Mapping
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import NamedTuple

from openconductor import errors
from openconductor.privacy import MARK, forms, name_secret, secrets_of_environment
from openconductor.providers.wire.rate_limits import (
    is_daily_quota,
    retry_after,
    wait_for_reset,
    wait_in_body,
)
from openconductor.types import is_array, is_object

Json = Mapping[str, object]

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

ECHO_CHARACTERS = 300  # the most characters of a server's words in an error message
SCANNED_CHARACTERS = 4096  # characters of them that are searched for keys before they are cut
# This many characters of a key in a row count as the key, because a server may cut what it echoes.
WINDOW = 12
# Shorter values are placeholders such as "x" or "none". Hiding them would make errors unreadable,
# because their forms stand in ordinary words. Passwords begin at about six characters, keys at 20.
SHORTEST_KEY = 6

_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded")
_CONTEXT_WORDS = re.compile(
    r"context (length|window|size)|prompt is too long|input is too long|too many input tokens"
    r"|input token count|maximum (prompt|input|sequence) length",
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
_TOO_LARGE = re.compile("request too large", re.IGNORECASE)  # for a limit of tokens a minute
_LIMIT_CODES = ("rate_limit_exceeded", "rate_limit_error", *_QUOTA_CODES)
_KEY_CODES = ("invalid_api_key", "authentication_error")
_KEY_WORDS = re.compile(r"api key not valid|(invalid|incorrect) api key", re.IGNORECASE)
_REJECTED_CODES = ("invalid_request_error", "not_found_error", "model_not_found")

_TRANSIENT = (408, 409, 425)  # statuses below 500 that another try may change
_PERMANENT = (501, 505)  # statuses from 500 on that no other try changes

_KEY_SHAPED = re.compile(
    r"(\b(sk|rk|pk|gsk|xai|hf|pplx|ghp|glpat)[-_]|\bAIza|\bbearer\s+)(?=[\w.~+/=-]*\d)[\w.~+/=-]{12,}",
    re.IGNORECASE,
)

_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


_keys: set[str] = set()  # the keys that were read in this process; no excerpt shows one


def key_of(variable: str | None) -> str:
    """Return the key in an environment variable ("" for None), and let no excerpt show it.

    Raises:
        AuthFailed: the variable is not set, or holds what no header can.
    """
    if variable is None:
        return ""
    key = secret_of(variable)
    if " " in key:
        raise errors.AuthFailed(f"the key in {variable} has characters that no header can hold")
    return key


def secret_of(variable: str) -> str:
    """Return the value of an environment variable, and let no excerpt or journal show it.

    Raises:
        AuthFailed: the variable is not set, or holds what no header can.
    """
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise errors.AuthFailed(f"the environment variable {variable} is not set; expected a key")
    if not (secret.isascii() and secret.isprintable()):
        raise errors.AuthFailed(f"the key in {variable} has characters that no header can hold")
    hide(secret)
    name_secret(variable)
    return secret


def hide(secret: str) -> None:
    """Let no excerpt show a secret, if it has ``SHORTEST_KEY`` characters or more."""
    if len(secret) >= SHORTEST_KEY:
        _keys.add(secret)


def _hide_key(key: str, text: str) -> str:
    """Return the text with ``[key]`` for the key: plain, quoted, escaped, in base64, or a piece.

    >>> _hide_key("sk-0123456789abcdef", "wrong key: SK-0123456789ABC…")
    'wrong key: [key]…'
    """
    small = text.translate(_SMALL)  # not lower(), which can change the length
    shown = list(text)
    key_forms = {*forms(key), repr(key)[1:-1], html.escape(key), key.encode().hex()}
    for form in map(str.lower, key_forms):
        width = min(len(form), WINDOW)
        pieces = {form[start : start + width] for start in range(len(form) - width + 1)}
        for start in range(len(small) - width + 1):
            if small[start : start + width] in pieces:
                shown[start : start + width] = "\0" * width
    return re.sub("\0+", MARK, "".join(shown))


def failure(
    status: int, raw: bytes, headers: Mapping[str, str] = _NO_HEADERS
) -> errors.WorkerError:
    """Return the error that a status other than 2xx means.

    Args:
        status: the status.
        raw: the body, or the start of it.
        headers: the headers, with names in small letters.
    """
    try:
        data: object = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    if is_array(data) and data:  # Gemini wraps its errors in a list
        data = data[0]
    told = _read_error(data) if is_object(data) else _Told()
    wait = retry_after(headers)
    if wait is None:
        wait = told.wait
    if wait is None and status == 429:
        wait = wait_for_reset(headers)
    told = told._replace(words=excerpt(told.words or raw), wait=wait)
    return _classify(status, told)


def error_object(data: Json) -> errors.WorkerError:
    """Return the error that an error object under status 200 means; its code may be a status."""
    told = _read_error(data)
    code = told.code
    status = int(code) if code.isdecimal() and 400 <= int(code) < 600 else 200
    return _classify(status, told._replace(words=excerpt(told.words or repr(data))))


class _Told(NamedTuple):
    """The words of an error, its code, the wait that it names, and whether a quota is spent."""

    words: str = ""
    code: str = ""
    wait: float | None = None
    spent: bool = False


def _read_error(data: Json) -> _Told:
    """Return what an error body tells, in the shapes that are in use."""
    error = data.get("error", data)
    if not is_object(error):
        return _Told(str(error))
    words = error.get("message") or error.get("detail")
    if not isinstance(words, str):
        words = ""
    code = str(error.get("code") or error.get("type") or "")[:ECHO_CHARACTERS].lower()
    spent = code in _QUOTA_CODES or is_daily_quota(error)
    return _Told(words, code, wait_in_body(error, words), spent)


def _classify(status: int, told: _Told) -> errors.WorkerError:
    words, code, wait, spent = told
    message = f"status {status}: {words or 'no message'}"
    if status in (429, 402) or code in _LIMIT_CODES:
        spent = spent or status == 402 or bool(_TOO_LARGE.match(words))
        return errors.RateLimited(message, status=status, retryable=not spent, retry_after=wait)
    if status == 401 or code in _KEY_CODES or (status == 400 and _KEY_WORDS.search(words)):
        return errors.AuthFailed(message, status=status)
    about_context = status in (200, 400, 413, 422, 500) and _CONTEXT_WORDS.search(words)
    if about_context or code in _CONTEXT_CODES:
        return errors.ContextTooLong(message, status=status)
    about_refusal = status in (200, 400, 403) and _REFUSAL_WORDS.search(words)
    if about_refusal or code in _REFUSAL_CODES:
        return errors.Refused(message, status=status)
    if status == 403:
        return errors.AuthFailed(message, status=status)
    unknown_error = status == 200 and code not in _REJECTED_CODES
    if status >= 500 or status in _TRANSIENT or unknown_error:
        retryable = status not in _PERMANENT
        return errors.ServerFailed(message, status=status, retryable=retryable, retry_after=wait)
    return errors.Rejected(message, status=status)


def excerpt(words: str | bytes, *, end: bool = False) -> str:
    """Return a server's words, short, on one line, without keys or terminal control characters.

    Hidden are the keys that were read here, in any form and any piece of them, other secrets of the
    environment, and what has the shape of a key. Words that are too long show their beginning, or
    their ``end``.
    """
    start = words[: 4 * SCANNED_CHARACTERS]
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    text = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(text.split())[:SCANNED_CHARACTERS]
    for key in tuple(_keys):
        line = _hide_key(key, line)
    for secret in secrets_of_environment():
        for form in forms(secret):
            line = line.replace(form, MARK)
    line = _KEY_SHAPED.sub(MARK, line)
    if len(line) <= ECHO_CHARACTERS:
        return line
    return f"…{line[1 - ECHO_CHARACTERS :]}" if end else f"{line[: ECHO_CHARACTERS - 1]}…"
