"""Access to the page: a one-time token or a key becomes a session, which a cookie names.

A token stands in the fragment of a link, which a browser sends to nobody; the page's script
exchanges it. Where the server has keys, a key is exchanged in the same way, and each key sees its
own episodes. On loopback the Host header is checked, so that no other name leads here (DNS
rebinding). A request that changes something must come from the page itself.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from openconductor.errors import OpenConductorError

PREFIX = "/ui"
"""The path of the pages."""
SESSION_S = 12 * 3600.0
"""Seconds after which a session ends."""
TOKEN_S = 24 * 3600.0
"""Seconds after which a token is worth nothing."""

_MOST = 100  # sessions of a key, and tokens; its oldest ends first
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""The names by which a server on this machine is reached."""

FindKey = Callable[[Mapping[str, str]], str]
"""Returns the name of the key in a request's headers, or raises an OpenConductorError."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may look. ``key`` names whose episodes; None: all of the store."""

    key: str | None


class _Passes:
    """Visitors by a secret, each until it expires. No visitor's passes end because of another's."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, tuple[Visitor, float]] = {}  # the oldest first

    def issue(self, visitor: Visitor) -> str:
        """Return a new secret that stands for a visitor."""
        now = self._clock()
        own: list[str] = []
        for secret, (holder, ends) in list(self._held.items()):
            if ends <= now:
                del self._held[secret]
            elif holder == visitor:
                own.append(secret)
        if len(own) >= _MOST:
            del self._held[own[0]]
        secret = secrets.token_urlsafe(32)
        self._held[secret] = (visitor, now + self._seconds)
        return secret

    def find(self, secret: str) -> Visitor | None:
        """Return the visitor of a secret; None: it is unknown or has expired."""
        visitor, ends = self._held.get(secret, (None, 0.0))
        return visitor if self._clock() < ends else None

    def take(self, secret: str) -> Visitor | None:
        """Return the visitor of a secret, which is worth nothing from now on."""
        visitor = self.find(secret)
        self._held.pop(secret, None)
        return visitor


class Door:
    """Lets visitors in.

    Args:
        port: where the server listens; it is in the cookie's name, because browsers send a cookie
            to every port of a host.
        hosts: the names that a Host header may have; None: any, as the server is no secret.
        origins: addresses at which browsers reach the page through a proxy that changes the Host
            header (``https://page.example``).
        find_key: finds the key of a request's headers; None: there are no keys.
        on_entered: called when a token was used.
        clock: seconds that never jump.
    """

    def __init__(
        self,
        port: int,
        *,
        hosts: frozenset[str] | None = LOOPBACK,
        origins: Collection[str] = (),
        find_key: FindKey | None = None,
        on_entered: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cookie = f"openconductor-{port}"
        self.has_keys = find_key is not None
        self._hosts = hosts
        self._origins = origins
        self._find_key = find_key
        self._on_entered = on_entered
        self._form_secret = secrets.token_bytes(32)
        self._tokens = _Passes(TOKEN_S, clock)
        self._sessions = _Passes(SESSION_S, clock)

    def new_token(self, key: str | None) -> str:
        """Return a token that lets somebody in once, as the holder of a key (None: everything)."""
        return self._tokens.issue(Visitor(key))

    def exchange(self, *, token: str = "", key: str = "") -> str | None:
        """Return a new session for a token or a key; None: it is worth nothing."""
        visitor = self._tokens.take(token) if token else None
        if visitor is not None and self._on_entered is not None:
            self._on_entered()
        if visitor is None and key:
            visitor = self.holder({"authorization": f"Bearer {key}"})
        return None if visitor is None else self._sessions.issue(visitor)

    def holder(self, headers: Mapping[str, str]) -> Visitor | None:
        """Return the holder of the key in a request's headers; None: there is no known key."""
        if self._find_key is None:
            return None
        try:
            return Visitor(self._find_key(headers))
        except OpenConductorError:
            return None

    def visitor(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Visitor | None:
        """Return who sends a request, by its session or its key; None: a stranger."""
        return self._sessions.find(cookies.get(self.cookie, "")) or self.holder(headers)

    def form_token(self, cookies: Mapping[str, str]) -> str:
        """Return what a form that spends must hold, for the session of a request; "": none.

        Another site's page cannot read it, whatever request it makes a browser send.
        """
        session = cookies.get(self.cookie, "")
        if self._sessions.find(session) is None:
            return ""
        return hmac.new(self._form_secret, session.encode(), "sha256").hexdigest()

    def leave(self, cookies: Mapping[str, str]) -> None:
        """End the session of a request."""
        self._sessions.take(cookies.get(self.cookie, ""))

    def is_known_host(self, host: str) -> bool:
        """Return True if a request may have this Host header."""
        if self._hosts is None:
            return True
        try:
            return urlsplit(f"//{host}").hostname in self._hosts
        except ValueError:
            return False

    def is_own_page(self, headers: Mapping[str, str]) -> bool:
        """Return True if a request was sent by the page itself, and not by another site's."""
        site = headers.get("sec-fetch-site", "same-origin")
        origin = headers.get("origin")
        if site != "same-origin" or origin is None:
            return False
        if origin in self._origins:
            return True
        host = urlsplit(origin).netloc
        return hmac.compare_digest(host.encode(), headers.get("host", "").encode())
