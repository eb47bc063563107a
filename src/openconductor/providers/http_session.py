"""Connections to one server, one pool an event loop. In: an address. Out: aiohttp's session of the running loop.

Also what a provider's options are checked with: addresses, variables' names, seconds, keys.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from openconductor.errors import AuthFailed, ConfigError
from openconductor.providers.chat_failures import NO_SECRET, Secret, excerpt
from openconductor.providers.http_body import CONNECT_SECONDS


class Sessions:
    """aiohttp's sessions for one address, one an event loop.

    A session is closed by ``aclose``, or else when its event loop shuts down (``asyncio.run`` and servers do that; a
    loop that is closed by hand should be given ``shutdown_asyncgens`` first).

    Args:
        base_url: where the sessions go; the proxy that the environment names for it is used.
        read_timeout_s: the longest silence of the server, in seconds; None is none.
    """

    def __init__(self, base_url: str, read_timeout_s: float | None) -> None:
        self._base_url = base_url
        self._read_timeout_s = read_timeout_s
        self._held: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[None]]] = {}

    async def open(self) -> aiohttp.ClientSession:
        """The running event loop's session, opened where there is none."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None and not held[0].closed:
            return held[0]
        for other in [other for other in list(self._held) if other.is_closed()]:
            self._held.pop(other, None)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self._read_timeout_s)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # what limits calls is the worker's max_concurrency
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            proxy=_proxy(self._base_url),
        )
        keeper = _keep(session)
        self._held[loop] = (session, keeper)
        await anext(keeper)
        return session

    async def aclose(self) -> None:
        """Close the running event loop's connections; ``open`` opens new ones."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    """Hold a session open until its event loop shuts down its generators, or nobody holds this one any more.

    An event loop finishes the asynchronous generators that were begun on it before it closes, which is the one moment
    when connections can still be closed in order without the user's doing.
    """
    try:
        yield
    finally:
        await session.close()


def checked_url(url: str) -> str:
    """The address without a slash at its end; a ConfigError where it is none, or holds more than an address."""
    wanted = "expected http(s)://host[:port]/path without credentials, query or fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"base_url: it has credentials, a query or a fragment (not shown); {wanted}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url: got {excerpt(url)!r}, {wanted}")
    return url.rstrip("/")


def checked_variable(name: str | None) -> str | None:
    """The name of an environment variable, or None; a ConfigError where it can be none."""
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(
            "api_key_env: expected the name of an environment variable (letters, digits and _), got something else "
            "(not shown, it may be the key itself)"
        )
    return name


def checked_seconds(name: str, seconds: float | None) -> float | None:
    """Seconds above 0, or None; else a ConfigError."""
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ConfigError(f"{name}: got {seconds!r}, expected seconds above 0, or None for no limit")
    return seconds


def key_of(variable: str | None) -> Secret:
    """The key that an environment variable holds; none where no variable is named.

    Raises:
        AuthFailed: the variable is not set, or holds what no header can.
    """
    if variable is None:
        return NO_SECRET
    key = os.environ.get(variable, "").strip()
    if not key:
        raise AuthFailed(f"the environment variable {variable} is not set; expected a key")
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise AuthFailed(f"the key in {variable} has characters that no header can hold")
    return Secret(key)


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL (HTTPS_PROXY, NO_PROXY …)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return None if proxy_bypass(host) else getproxies_environment().get(parts.scheme)
