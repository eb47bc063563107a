"""Requests to one address, over connections that are kept, one pool an event loop. In: a URL, a body. Out: a response.

Also what a provider's options are checked with: addresses, variables' names, seconds, keys.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from openconductor.errors import AuthFailed, ConfigError
from openconductor.providers.chat_failures import NO_SECRET, Secret, excerpt
from openconductor.providers.http_body import Response
from openconductor.providers.http_pool import Pool
from openconductor.providers.http_request import read_proxy, read_target, request_head


class Sessions:
    """The connections to one address, kept alive, those of each event loop apart.

    They are closed by ``aclose``, or else when their event loop shuts down (``asyncio.run`` and servers do that; a loop
    that is closed by hand should be given ``shutdown_asyncgens`` first).

    Args:
        base_url: where they go; the proxy that the environment names for it is used.
        read_timeout_s: the longest silence of the server, in seconds; None is none.

    Attributes:
        read_timeout_s: as given.
    """

    def __init__(self, base_url: str, read_timeout_s: float | None) -> None:
        self._base_url = base_url
        self.read_timeout_s = read_timeout_s
        self._held: dict[asyncio.AbstractEventLoop, tuple[Pool, AsyncGenerator[None]]] = {}

    async def send(
        self,
        url: str,
        payload: bytes | None = None,
        fields: Callable[[], str] = str,
        *,
        started: float,
        deadline: float | None = None,
    ) -> Response:
        """Send a request over a connection that is free, or a new one, and wait for the head of the response.

        Args:
            url: what is asked.
            payload: the body of a POST; None is a GET.
            fields: makes the header lines, which hold the key: no frame that an error passes through keeps them.
            started: the event loop's time at which the call began.
            deadline: the event loop's time by which the response must be whole; None is no limit.

        Returns:
            The response, to be used in a ``with`` block: one that is not read to its end closes its connection.

        Raises:
            Unreachable: there is no connection, or it was closed before a response began.
            ConnectionLost, MalformedResponse, WorkerTimeout: as ``Connection.answered`` raises them.
            ConfigError: the URL, or the proxy that the environment names, is none.
        """
        pool = await self.open()
        target = read_target(url)
        connection = pool.take(target.origin) or await pool.dial(target.origin, started=started, deadline=deadline)
        connection.send(
            request_head(target, fields(), None if payload is None else len(payload), proxy=pool.proxy),
            payload or b"",
            started=started,
            deadline=deadline,
            silence_s=self.read_timeout_s,
        )
        try:
            await connection.answered()
        except BaseException:
            connection.end()
            raise
        return Response(connection)

    async def open(self) -> Pool:
        """The running event loop's connections."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None:
            return held[0]
        for other in [other for other in list(self._held) if other.is_closed()]:
            self._held.pop(other, None)
        named = _proxy(self._base_url)
        pool = Pool(None if named is None else read_proxy(named))
        keeper = _keep(pool)
        self._held[loop] = (pool, keeper)
        await anext(keeper)
        return pool

    async def aclose(self) -> None:
        """Close the running event loop's connections; later calls open new ones."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()


async def _keep(pool: Pool) -> AsyncGenerator[None]:
    """Hold connections open until their event loop shuts down its generators, or nobody holds this one any more.

    An event loop finishes the asynchronous generators that were begun on it before it closes, which is the one moment
    when connections can still be closed in order without the user's doing.
    """
    try:
        yield
    finally:
        await pool.aclose()


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
