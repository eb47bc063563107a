"""What no file and no message may hold: the user's own redaction, and keys, whatever echoed them.

In: texts, and values in JSON's types. Out: the same without what the user's function takes out, and
without the value of any environment variable that looks like a secret, in the forms in which
servers and logs repeat one.
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
"""What is in the place of a secret."""

_is_secret = lru_cache(re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE).search)
SHORTEST = 8  # characters; a shorter value is a word


def secrets_of_environment() -> frozenset[str]:
    """The values of 8 characters or more of the variables whose names say KEY, TOKEN, SECRET or PASSWORD."""
    values = (os.environ.get(name, "").strip() for name in os.environ if _is_secret(name))
    return frozenset(value for value in values if len(value) >= SHORTEST)


def forms(secret: str) -> Iterator[str]:
    """The secret as it is, escaped once and twice as in JSON, as in a URL, and in Base64, wherever it stands there."""
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped)[1:-1]
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))
    raw = secret.encode("utf-8", "surrogateescape")
    for before in range(3):  # bytes that share the first group of three with it
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        whole = encoded[
            (before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6
        ]  # the digits that are the secret's alone
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


class Privacy:
    """Cleans texts before they are written.

    Args:
        redact: the user's function, called for each text; None is none.
    """

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()

    def refresh(self) -> bool:
        """Take in secrets that came into the environment since; returns whether there are any. None is forgotten."""
        secrets = self._secrets | secrets_of_environment()
        if secrets == self._secrets:
            return False
        self._secrets = secrets
        # The longest first: of two secrets that begin alike, the longer one goes as a whole.
        self._forms = tuple(
            sorted({form for secret in secrets for form in forms(secret)}, key=len, reverse=True)
        )
        return True

    def scrub(self, text: str) -> str:
        """The text without secrets, and not redacted: for names."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MARK)
        return text

    def text(self, text: str) -> str:
        """The text without what must not be written.

        Raises:
            JournalError: the user's function failed.
        """
        return self.scrub(text if self._redact is None else self._redacted(text))

    def holds_nothing(self, document: str) -> bool:
        """Whether a JSON document is sure to hold nothing that must not be written; what is escaped is not read."""
        if self._redact is not None or (self._forms and "\\" in document):
            return False
        return not any(form in document for form in self._forms)

    def value(self, value: object) -> object:
        """A value of JSON's types with every text in it cleaned; the names in it lose secrets only."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.scrub(name): self.value(item)
                for name, item in cast("dict[str, object]", value).items()
            }
        return (
            [self.value(item) for item in cast("list[object]", value)]
            if isinstance(value, list)
            else value
        )

    def _redacted(self, text: str) -> str:
        assert self._redact is not None
        try:
            redacted = cast(object, self._redact(text))
        except Exception as error:
            raise JournalError(
                f"redact: {type(error).__name__}: {error}; expected the text to write"
            ) from error
        if not isinstance(redacted, str):
            raise JournalError(
                f"redact: got {type(redacted).__name__}, expected the text to write, a str"
            )
        return redacted
