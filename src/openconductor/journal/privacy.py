"""What the journal must not hold: the user's own redaction, and keys, whatever echoed them.

In: texts, and values made of texts. Out: the same without what the user's function takes out, and without the value of
any environment variable that looks like a secret, in the forms in which servers and logs repeat one.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import cast
from urllib.parse import quote, quote_plus

from openconductor.errors import JournalError

MARK = "[key]"
"""What stands in the place of a secret."""

_NAMES = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SHORTEST = 8  # characters; a shorter value is a word


def secrets_of_environment() -> frozenset[str]:
    """The values of 8 characters or more of the variables whose names say KEY, TOKEN, SECRET or PASSWORD."""
    values: set[str] = set()
    for name in os.environ:
        if _NAMES.search(name):
            value = os.environ.get(name, "").strip()
            if len(value) >= _SHORTEST:
                values.add(value)
    return frozenset(values)


def forms(secret: str) -> Iterator[str]:
    """The secret as it is, escaped once and twice as in JSON, as in a URL, and in Base64, wherever it stands there."""
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped)[1:-1]
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    raw = secret.encode("utf-8", "surrogateescape")
    for before in range(3):  # bytes that share the first group of three with it
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        whole = encoded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]  # the digits that are the secret's alone
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


class Privacy:
    """Cleans texts before they are written.

    ``refresh`` takes in secrets that came into the environment later; one that was there once stays one.

    Args:
        redact: the user's function, called for each text; None is none.
    """

    __slots__ = ("_forms", "_pattern", "_redact", "_secrets")

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._pattern = re.compile("")
        self.refresh()

    def refresh(self) -> bool:
        """Look again for secrets in the environment; returns whether there are new ones."""
        secrets = self._secrets | secrets_of_environment()
        found_new = secrets != self._secrets
        if found_new:
            self._secrets = secrets
            found = {form for secret in secrets for form in forms(secret)}
            # The longest first: of two secrets that begin alike, the longer one goes as a whole.
            self._forms = tuple(sorted(found, key=len, reverse=True))
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        return found_new

    @property
    def idle(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._forms and self._redact is None

    def text(self, text: str) -> str:
        """The text without what must not be written: the same object where there is nothing of that kind.

        Raises:
            JournalError: the user's function failed.
        """
        if self.idle:
            return text
        cleaned = self.scrub(text if self._redact is None else self._redacted(text))
        return text if cleaned == text else cleaned

    def value(self, value: object) -> object:
        """A value made of mappings and sequences with every text in it cleaned; the names in it lose secrets only."""
        if self.idle:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.scrub(str(name)): self.value(v) for name, v in cast("Mapping[object, object]", value).items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in cast("Sequence[object]", value)]
        if value is None or isinstance(value, int | float | Decimal):
            return value
        return self.text(repr(value))

    def scrub(self, text: str) -> str:
        """The text without secrets, and not redacted: for names."""
        # Looking for one text after the other is four times as fast as looking for the pattern of all.
        return self._pattern.sub(MARK, text) if any(form in text for form in self._forms) else text

    def _redacted(self, text: str) -> str:
        assert self._redact is not None
        try:
            redacted = cast(object, self._redact(text))
        except Exception as error:
            raise JournalError(f"redact: {type(error).__name__}: {error}; expected the text to write") from error
        if not isinstance(redacted, str):
            raise JournalError(f"redact: got {type(redacted).__name__}, expected the text to write, a str")
        return redacted
