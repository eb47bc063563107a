"""Cleaning of texts before they are written or shown: the user's own redaction, and secrets.

Secrets are the values of environment variables that look like one, or that were named as one. They
are removed in the forms in which servers and logs repeat them.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import cast
from urllib.parse import quote, quote_plus

from openconductor.errors import JournalError

MARK = "[key]"
"""Replaces a secret."""

_is_secret = lru_cache(re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE).search)
SHORTEST = 8  # characters


_named: set[str] = set()


def name_secret(variable: str) -> None:
    """Count the value of an environment variable as a secret, whatever its name is."""
    _named.add(variable)


def secrets_of_environment() -> frozenset[str]:
    """Return the values of the variables whose names hold KEY, TOKEN, SECRET or PASSWORD.

    Further variables are named by ``name_secret``. Values of fewer than ``SHORTEST`` characters are
    words, not secrets.
    """
    secrets: set[str] = set()
    for name in os.environ:
        if name not in _named and not _is_secret(name):
            continue
        value = os.environ.get(name, "").strip()
        if len(value) >= SHORTEST:
            secrets.add(value)
    return frozenset(secrets)


def forms(secret: str) -> Iterator[str]:
    """Yield the forms of a secret: itself, escaped once and twice as in JSON, in a URL, in Base64.

    In Base64 the secret may begin at any byte of a longer text.
    """
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped)[1:-1]
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))
    raw = secret.encode("utf-8", "surrogateescape")
    for before in range(3):  # bytes that share the first group of three with it
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        first = (before * 8 + 5) // 6  # from here to `end` the digits are the secret's alone
        end = (before + len(raw)) * 8 // 6
        yield encoded[first:end]
        yield encoded[first:end].replace("+", "-").replace("/", "_")


class Privacy:
    """Cleans texts before they are written.

    Args:
        redact: the user's function, called for each text. None: nothing is redacted.
    """

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()

    def refresh(self) -> bool:
        """Add secrets that are new in the environment; return True if there are any."""
        secrets = self._secrets | secrets_of_environment()
        if secrets == self._secrets:
            return False
        self._secrets = secrets
        found = {form for secret in secrets for form in forms(secret)}
        # The longest first: of two secrets that begin alike, the longer one goes as a whole.
        self._forms = tuple(sorted(found, key=len, reverse=True))
        return True

    def scrub(self, text: str) -> str:
        """Return the text without secrets, but not redacted: for names."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MARK)
        return text

    def text(self, text: str) -> str:
        """Return the text redacted and without secrets.

        Raises:
            JournalError: the user's function failed.
        """
        if self._redact is not None:
            text = _redacted(self._redact, text)
        return self.scrub(text)

    def holds_nothing(self, document: str) -> bool:
        """Return True if a JSON document is sure to need no cleaning; escapes are not read."""
        if self._redact is not None or (self._forms and "\\" in document):
            return False
        return not any(form in document for form in self._forms)

    def value(self, value: object) -> object:
        """Return a value of JSON's types with every text in it cleaned; names lose secrets only."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            table = cast("dict[str, object]", value)
            return {self.scrub(name): self.value(item) for name, item in table.items()}
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[object]", value)]
        return value


def _redacted(redact: Callable[[str], str], text: str) -> str:
    """Return the text after the user's function."""
    try:
        redacted = cast(object, redact(text))
    except Exception as error:  # a user's own function may raise anything
        message = f"redact: {type(error).__name__}: {error}; expected the text to write"
        raise JournalError(message) from error
    if not isinstance(redacted, str):
        got = type(redacted).__name__
        raise JournalError(f"redact: got {got}, expected the text to write, a str")
    return redacted
