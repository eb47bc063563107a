"""Requests to one server over connections that are kept. In: a path, a body. Out: a Connection to send them on.

Each event loop has connections of its own. The one that was used last goes first, so that those
beyond what is needed grow old and are closed. A name is looked up once for all who ask at the same
time; of several addresses the first that answers is taken (happy eyeballs, RFC 8305); https goes
through a proxy's tunnel, plain http is handed to the proxy. Also what every provider checks its
options with, and what ends its calls by their deadlines.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from math import inf
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from openconductor.errors import ConfigError, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.chat_failures import excerpt
from openconductor.providers.http_connection import Connection, Connections
from openconductor.types import Usage

CONNECT_SECONDS = 30.0
NAMES_SECONDS = 10.0
"""How long a name's addresses are believed."""

NEXT_ADDRESS_SECONDS = 0.25  # before the next address is tried beside one that takes long

_PORTS = {"http": 80, "https": 443}
_PLAIN = "/%:@!$&'()*+,;=~"  # what may are in a path beside letters, digits and "_.-"

Addresses = list[tuple[int, int, int, str, tuple[object, ...]]]
"""As ``socket.getaddrinfo`` gives them."""

T = TypeVar("T")


class Server(NamedTuple):
    """Where connections lead."""

    scheme: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PerLoop(Generic[T]):
    """One thing for each event loop, closed by ``aclose``, or else when its loop shuts down.

    ``asyncio.run`` and servers shut their loop down; one that is closed by hand should be given
    ``shutdown_asyncgens`` first: a loop finishes the asynchronous generators that were begun on it,
    which is the last moment when things can be closed in order.

    Args:
        make: makes the thing, on its loop.
        close: closes it, on the same loop.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = {}

    async def get(self) -> T:
        """The running event loop's."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            for other in [other for other in list(self._held) if other.is_closed()]:
                self._held.pop(other, None)
            thing = self._make()
            held = self._held[loop] = thing, self._keep(thing)
            await anext(held[1])
        return held[0]

    async def aclose(self) -> None:
        """Close the running event loop's; a later ``get`` makes another."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()

    async def _keep(self, thing: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close(thing)


class Closing:
    """What holds something for each event loop, and closes it at the end of an ``async with`` block."""

    _held: PerLoop[Any]

    async def aclose(self) -> None:
        """Close what the running event loop has open, what is in use too; a later call opens it anew."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class HttpClient:
    """The connections to one server, kept alive, those of each event loop apart; ``PerLoop`` says when they close.

    Args:
        base_url: where all paths begin (``checked_url``). The proxy that the environment names for
            it is used, and its certificates (SSL_CERT_FILE, SSL_CERT_DIR).
        read_timeout_s: the longest silence of the server, in seconds; None is none.

    Raises:
        ConfigError: the host cannot be a name, or the proxy that the environment names is none.
    """

    def __init__(self, base_url: str, read_timeout_s: float | None) -> None:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        try:
            host = host if host.isascii() else host.encode("idna").decode()
        except UnicodeError:
            raise ConfigError(
                f"host {excerpt(host)!r}: expected a name that can be looked up"
            ) from None
        self._server = Server(parts.scheme, host, parts.port or _PORTS[parts.scheme])
        self._path = quote(parts.path, safe=_PLAIN)
        named = None if proxy_bypass(host) else getproxies_environment().get(parts.scheme)
        self._proxy, self._proxy_fields = (None, "") if named is None else _read_proxy(named)
        self._read_timeout_s = read_timeout_s
        self.pools = PerLoop(_Pool, _Pool.aclose)

    async def connect(self) -> Connection:
        """A connection that is free, or a new one; for a ``with`` block, which ends the exchange on it.

        Raises:
            Unreachable: there is none (``retryable`` where there may be one soon, which a bad
                certificate is not).
        """
        pool = await self.pools.get()
        while pool.idle:
            connection = pool.idle.pop()
            if connection.usable:
                return connection
        scope = asyncio.timeout(CONNECT_SECONDS)
        try:
            async with scope:
                return await self._dial(pool)
        except (
            OSError,
            UnicodeError,
        ) as error:  # TimeoutError, ssl.SSLError and our own Unreachable are OSErrors
            words = f"no connection: {excerpt(f'{type(error).__name__}: {error}')}"
            final = isinstance(error, ssl.SSLCertVerificationError | UnicodeError)
        if scope.expired():
            words = f"no connection within {CONNECT_SECONDS} s"
        raise Unreachable(
            words, retryable=not final
        )  # out here, so that no error hangs on ours as its context

    def head(self, path: str, fields: str, size: int) -> bytes:
        """The head of a POST of ``size`` bytes to a path below ``base_url``, with further header lines."""
        authority, path = (
            self._server.place.removesuffix(f":{_PORTS[self._server.scheme]}"),
            self._path + path,
        )
        if self._proxy is not None and self._server.scheme == "http":  # asked of the proxy itself
            path, fields = f"http://{authority}{path}", fields + self._proxy_fields
        return (
            f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
            f"{fields}Content-Length: {size}\r\n\r\n"
        ).encode("latin-1")

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()  # reads the environment's certificates itself
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def _dial(self, pool: _Pool) -> Connection:
        """A new connection to the server, through the proxy where there is one."""
        loop, there = asyncio.get_running_loop(), self._proxy or self._server
        found = await pool.addresses(there)
        opened = await start_connection(
            found, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1
        )
        tls, name = (self._tls, there.host) if there.scheme == "https" else (None, None)
        _, connection = await loop.create_connection(
            lambda: Connection(pool, self._read_timeout_s),
            sock=opened,
            ssl=tls,
            server_hostname=name,
        )
        if self._proxy is None or self._server.scheme == "http":
            return connection
        place = self._server.place
        try:
            connection.send(
                f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{self._proxy_fields}\r\n".encode(
                    "latin-1"
                )
            )
            await connection.answered()
            if connection.status != 200 or connection.transport is None:
                raise OSError(f"the proxy answered with status {connection.status}")
            host = self._server.host
            secured = await loop.start_tls(
                connection.transport, connection, self._tls, server_hostname=host
            )
            if secured is None:
                raise ConnectionAbortedError("the proxy closed the tunnel")
        except BaseException:
            connection.abort()
            pool.open.discard(connection)  # a handshake that failed may not say so
            raise
        connection.secured(secured)
        return connection


class _Pool(Connections):
    """The connections of one event loop, and where they may lead."""

    _asked = -inf  # when the name was looked up
    _looking: asyncio.Future[Addresses] | None = None

    async def addresses(self, there: Server) -> Addresses:
        """Where the server may be reached."""
        loop, looking = asyncio.get_running_loop(), self._looking
        late = loop.time() > self._asked + NAMES_SECONDS
        if looking is None or (looking.done() and (late or looking.exception() is not None)):
            self._asked = loop.time()
            look_up = loop.getaddrinfo(there.host, there.port, type=socket.SOCK_STREAM)
            looking = self._looking = cast(
                "asyncio.Future[Addresses]", asyncio.ensure_future(look_up)
            )
            looking.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # else asyncio complains
        return await asyncio.shield(looking)  # who is cancelled does not take it from the others


def _read_proxy(url: str) -> tuple[Server, str]:
    """A proxy, and the header lines that it wants, with its password; ``http://`` where its URL names no scheme."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError
    except (
        ValueError
    ):  # a port that is none, another kind of proxy (SOCKS); not shown, it may hold a password
        raise ConfigError(
            "the environment's proxy (not shown): expected http(s)://[user:password@]host[:port]"
        ) from None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    basic = f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"
    return Server(parts.scheme, parts.hostname, port), "" if parts.username is None else basic


# ── what every provider checks, and what is around each of its calls ──────────────────────────────
def checked_name(name: str, words: str) -> str:
    """The name of a model or a tool; a ConfigError where it is blank."""
    if not name.strip():
        raise ConfigError(f"model: got a blank name, expected {words}")
    return name


def checked_url(url: str) -> str:
    """The address without a slash at its end; a ConfigError where it is none, or holds more than an address."""
    wanted = "expected http(s)://host[:port]/path without credentials, query or fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"base_url: it has credentials, a query or a fragment (not shown); {wanted}"
        )
    if parts.scheme not in _PORTS or not parts.hostname:
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
    if seconds is not None and not 0 < seconds < inf:
        raise ConfigError(
            f"{name}: got {seconds!r}, expected seconds above 0, or None for no limit"
        )
    return seconds


@asynccontextmanager
async def attempt(
    where: str, timeout_s: float | None, deadline: float | None
) -> AsyncGenerator[None]:
    """Around one call: ends it by the earlier of both limits, and says in each WorkerError where it happened.

    Args:
        where: who is asked.
        timeout_s: the provider's own limit, in seconds from now; None is none.
        deadline: the event loop's time by which the call must have ended; None is no limit.

    Raises:
        WorkerTimeout: a limit has passed.
    """
    now = asyncio.get_running_loop().time()
    ends = min(now + (timeout_s or inf), inf if deadline is None else deadline)
    scope = asyncio.timeout_at(ends if ends < inf else None)
    try:
        if ends <= now:
            raise WorkerTimeout("the deadline had passed before the call began", usage=Usage())
        async with scope:
            yield
        return
    except WorkerError as error:
        failed = error
    except TimeoutError:
        if not scope.expired():
            raise
        failed = WorkerTimeout(f"no whole answer by the deadline, after {ends - now:.1f} s")
    failed.message = f"{where}: {failed.message}"
    failed.args = (failed.message,)
    raise failed from None
