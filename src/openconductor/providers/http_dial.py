"""Opening connections. In: a server, and the proxy before it. Out: a Connection that stands, or why there is none.

Names are looked up once for all who ask at the same time; of several addresses the first that answers is taken (happy
eyeballs, RFC 8305); https goes through a proxy's tunnel, plain http is handed to the proxy. All of it, the handshakes
too, ends within ``CONNECT_SECONDS``.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from openconductor.errors import Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.chat_failures import excerpt
from openconductor.providers.http_connection import Connection
from openconductor.providers.http_request import Origin, Proxy, connect_head
from openconductor.types import Usage

CONNECT_SECONDS = 30.0
NAMES_SECONDS = 10.0
"""How long a name's addresses are believed."""

NEXT_ADDRESS_SECONDS = 0.25  # before the next address is tried beside one that dawdles

_NUMBER = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")

Address = tuple[int, int, int, str, tuple[object, ...]]
"""As ``socket.getaddrinfo`` gives them."""


class Dialer:
    """Opens connections on the running event loop.

    Args:
        make: makes the Connection to a server that is to stand.
        proxy: what to go through, or None.
    """

    __slots__ = ("_looking", "_make", "_proxy")

    def __init__(self, make: Callable[[Origin], Connection], proxy: Proxy | None) -> None:
        self._make = make
        self._proxy = proxy
        self._looking: dict[Origin, tuple[float, asyncio.Task[list[Address]]]] = {}

    async def dial(self, origin: Origin, *, started: float, deadline: float | None) -> Connection:
        """A new connection to a server.

        Args:
            origin: the server.
            started: the event loop's time at which the call began, for the message.
            deadline: the event loop's time by which the call must have ended; None is no limit.

        Raises:
            Unreachable: there is none; ``retryable`` where there may be one soon, which a bad certificate is not.
            WorkerTimeout: the deadline passed.
        """
        loop = asyncio.get_running_loop()
        longest = loop.time() + CONNECT_SECONDS
        ends = longest if deadline is None else min(longest, deadline)
        scope = asyncio.timeout_at(ends)
        try:
            async with scope:
                return await self._reach(origin, ends)
        except (OSError, UnicodeError) as error:  # TimeoutError, ssl.SSLError and our own Unreachable are OSErrors
            failed: WorkerError = _unreachable(error)
        if scope.expired() or loop.time() >= ends:
            failed = Unreachable(f"no connection within {CONNECT_SECONDS} s")
            if ends == deadline:
                words = f"no connection by the deadline, after {loop.time() - started:.1f} s"
                failed = WorkerTimeout(words, usage=Usage())
        raise failed  # out here, so that no error hangs on it as its context

    async def _reach(self, origin: Origin, ends: float) -> Connection:
        """A connection to a server, through the proxy where there is one."""
        proxy = self._proxy
        if proxy is None:
            return await self._open(origin, origin)
        connection = await self._open(proxy.origin, origin)
        if origin.scheme == "http":
            return connection
        loop = asyncio.get_running_loop()
        connection.send(connect_head(origin, proxy), b"", started=loop.time(), deadline=ends, silence_s=None)
        try:
            await connection.answered()
            transport = connection.let_go() if connection.status == 200 else None
        finally:
            connection.end()
        if transport is None:
            raise OSError(f"the proxy answered with status {connection.status}")
        inside = self._make(origin)
        try:
            secured = await loop.start_tls(transport, inside, _trusted(), server_hostname=origin.host)
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            raise ConnectionAbortedError("the proxy closed the tunnel")
        inside.connection_made(secured)
        return inside

    async def _open(self, there: Origin, origin: Origin) -> Connection:
        """A connection that leads ``there``, on the way to ``origin``."""
        loop = asyncio.get_running_loop()
        found = await self._addresses(there)
        opened = await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1)
        context = _trusted() if there.scheme == "https" else None
        name = there.host if context is not None else None
        made = await loop.create_connection(lambda: self._make(origin), sock=opened, ssl=context, server_hostname=name)
        return made[1]

    async def _addresses(self, origin: Origin) -> list[Address]:
        """Where a server may be reached."""
        loop = asyncio.get_running_loop()
        until, looking = self._looking.get(origin, (0.0, None))
        if looking is None or (looking.done() and (loop.time() > until or looking.cancelled() or looking.exception())):
            looking = loop.create_task(_look_up(origin))
            looking.add_done_callback(_heard)
            self._looking[origin] = (loop.time() + NAMES_SECONDS, looking)
        return await asyncio.shield(looking)  # who is cancelled does not take it from the others


async def _look_up(origin: Origin) -> list[Address]:
    if _NUMBER.fullmatch(origin.host):  # nothing to wait for
        numeric = socket.AI_NUMERICHOST
        return [*socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM, flags=numeric)]
    loop = asyncio.get_running_loop()
    return [*await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)]


def _heard(looking: asyncio.Task[list[Address]]) -> None:
    if not looking.cancelled():
        looking.exception()  # else asyncio complains that nobody asked for it


def _trusted() -> ssl.SSLContext:
    """What TLS trusts: the system's certificates, or those that the environment names."""
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=8)
def _context(file: str | None, folder: str | None) -> ssl.SSLContext:  # noqa: ARG001 - the key of what is kept
    context = ssl.create_default_context()  # reads the two variables itself, and takes a hundredth of a second
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unreachable(error: Exception) -> Unreachable:
    words = excerpt(f"{type(error).__name__}: {error}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"no secure connection: {words}", retryable=False)
    return Unreachable(f"no connection: {words}", retryable=not isinstance(error, UnicodeError))
