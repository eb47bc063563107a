"""Requests to one server over connections that are kept. In: a path, a body. Out: a Connection whose response began.

Each event loop has connections of its own. The one that was used last goes first, so that those beyond what is needed
grow old and are closed. A name is looked up once for all who ask at the same time; of several addresses the first that
answers is taken (happy eyeballs, RFC 8305); https goes through a proxy's tunnel, plain http is handed to the proxy.
Also what a provider's options are checked with: addresses, variables' names, seconds, keys.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from openconductor.errors import AuthFailed, ConfigError, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.chat_failures import NO_SECRET, Secret, excerpt
from openconductor.providers.http_connection import Connection, Connections
from openconductor.types import Usage

CONNECT_SECONDS = 30.0
NAMES_SECONDS = 10.0
"""How long a name's addresses are believed."""

NEXT_ADDRESS_SECONDS = 0.25  # before the next address is tried beside one that takes long

_PORTS = {"http": 80, "https": 443}
_PLAIN = "/%:@!$&'()*+,;=~"  # what may stand in a path beside letters, digits and "_.-"

Address = tuple[int, int, int, str, tuple[object, ...]]
"""As ``socket.getaddrinfo`` gives them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """Where connections lead; ``fields`` are the header lines that a proxy wants, which hold its password."""

    scheme: str
    host: str
    port: int
    fields: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """Host and port as a ``Host`` header says them: without the usual port."""
        return self.place.removesuffix(f":{_PORTS[self.scheme]}")


class Closing:
    """What is closed at the end of its ``async with`` block."""

    async def aclose(self) -> None:
        """Close what the running event loop has open; a later call opens it anew."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class PerLoop(Generic[T]):
    """One thing for each event loop, closed by ``aclose``, or else when its loop shuts down.

    ``asyncio.run`` and servers shut their loop down; one that is closed by hand should be given ``shutdown_asyncgens``
    first: a loop finishes the asynchronous generators that were begun on it, which is the last moment when things can
    be closed in order.

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
            held = self._held[loop] = thing, _keep(thing, self._close)
            await anext(held[1])
        return held[0]

    async def aclose(self) -> None:
        """Close the running event loop's; a later ``get`` makes another."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()


async def _keep(thing: T, close: Callable[[T], Awaitable[None]]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await close(thing)


class _Pool(Connections):
    """The connections of one event loop, and what opening one needs."""

    proxy: Server | None = None
    tls: ssl.SSLContext | None = None
    asked = 0.0  # when the name was looked up
    looking: asyncio.Task[list[Address]] | None = None


class HttpClient(Closing):
    """The connections to one server, kept alive, those of each event loop apart; ``PerLoop`` says when they close.

    Args:
        base_url: where all paths begin (``checked_url``). The proxy that the environment names for it is used, and its
            certificates (SSL_CERT_FILE, SSL_CERT_DIR).
        read_timeout_s: the longest silence of the server, in seconds; None is none.

    Raises:
        ConfigError: the host cannot be a name.
    """

    def __init__(self, base_url: str, read_timeout_s: float | None) -> None:
        self._url = base_url
        self._server, self._path = _read_url(base_url)
        self._read_timeout_s = read_timeout_s
        self._pools = PerLoop(self._new_pool, _close)

    async def aclose(self) -> None:
        """Close the running event loop's connections, those in use too; a later call opens new ones."""
        await self._pools.aclose()

    async def send(
        self,
        path: str,
        payload: bytes | None = None,
        fields: Callable[[], str] = str,
        *,
        started: float,
        deadline: float | None = None,
    ) -> Connection:
        """Send a request over a connection that is free, or a new one, and wait for the head of the response.

        Args:
            path: what is asked, below ``base_url``.
            payload: the body of a POST; None is a GET.
            fields: makes the header lines, which hold the key: no frame that an error passes through keeps them.
            started: the event loop's time at which the call began.
            deadline: the event loop's time by which the response must be whole; None is no limit.

        Returns:
            The connection, for a ``with`` block: one whose response is not read to its end is closed.

        Raises:
            Unreachable: there is no connection (``retryable`` where there may be one soon, which a bad certificate is
                not), or it was closed before a response began.
            WorkerTimeout: the deadline passed.
            ConnectionLost, MalformedResponse: as ``Connection.answered`` raises them.
            ConfigError: the proxy that the environment names is none.
        """
        pool = await self._pools.get()
        connection = pool.idle.pop() if pool.idle else None
        if connection is None or not connection.usable:
            connection = await self._dial(pool, started, deadline)
        connection.send(
            self._head(pool, path, fields(), payload),
            payload or b"",
            started=started,
            deadline=deadline,
            silence_s=self._read_timeout_s,
        )
        try:
            await connection.answered()
        except BaseException:
            connection.end()
            raise
        return connection

    def _head(self, pool: _Pool, path: str, fields: str, payload: bytes | None) -> bytes:
        authority, path = self._server.authority, self._path + path
        if pool.proxy is not None and self._server.scheme == "http":  # asked of the proxy itself
            path, fields = f"http://{authority}{path}", fields + pool.proxy.fields
        method = "GET" if payload is None else "POST"
        size = "" if payload is None else f"Content-Length: {len(payload)}\r\n"
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n"
            f"{fields}{size}\r\n"
        ).encode("latin-1")

    def _new_pool(self) -> _Pool:
        named = None if proxy_bypass(self._server.host) else getproxies_environment().get(self._server.scheme)
        pool = _Pool()
        pool.proxy = None if named is None else _read_proxy(named)
        if "https" in (self._server.scheme, pool.proxy and pool.proxy.scheme):
            pool.tls = ssl.create_default_context()  # reads the environment's certificates itself
            pool.tls.set_alpn_protocols(["http/1.1"])
        return pool

    async def _dial(self, pool: _Pool, started: float, deadline: float | None) -> Connection:
        """A new connection; raises as ``send``."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + CONNECT_SECONDS
        ends = ends if deadline is None else min(ends, deadline)
        try:
            async with asyncio.timeout_at(ends):
                return await self._reach(pool, ends)
        except (OSError, UnicodeError) as error:  # TimeoutError, ssl.SSLError and our own Unreachable are OSErrors
            words = excerpt(f"{type(error).__name__}: {error}")
            final = isinstance(error, ssl.SSLCertVerificationError | UnicodeError)
            failed: WorkerError = Unreachable(f"no connection: {words}", retryable=not final)
        if loop.time() >= ends:
            failed = Unreachable(f"no connection within {CONNECT_SECONDS} s")
            if ends == deadline:
                words = f"no connection by the deadline, after {loop.time() - started:.1f} s"
                failed = WorkerTimeout(words, usage=Usage())
        raise failed  # out here, so that no error hangs on it as its context

    async def _reach(self, pool: _Pool, ends: float) -> Connection:
        """A connection to the server, through the proxy where there is one."""
        loop, there = asyncio.get_running_loop(), pool.proxy or self._server
        found = await _addresses(pool, there)
        opened = await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1)
        tls = pool.tls if there.scheme == "https" else None
        name = there.host if tls is not None else None
        _, connection = await loop.create_connection(
            lambda: Connection(pool), sock=opened, ssl=tls, server_hostname=name
        )
        if pool.proxy is None or self._server.scheme == "http":
            return connection
        place = self._server.place
        head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{pool.proxy.fields}\r\n".encode("latin-1")
        connection.send(head, b"", started=loop.time(), deadline=ends, silence_s=None)
        try:
            await connection.answered()
            if connection.status != 200 or connection.transport is None or pool.tls is None:
                raise OSError(f"the proxy answered with status {connection.status}")
            carrier, host = connection.transport, self._server.host
            secured = await loop.start_tls(carrier, connection, pool.tls, server_hostname=host)
            if secured is None:
                raise ConnectionAbortedError("the proxy closed the tunnel")
        except BaseException:
            connection.abort()
            pool.open.discard(connection)  # a handshake that failed may not say so
            raise
        connection.secured(secured)
        return connection


async def _close(pool: _Pool) -> None:
    """Close all connections, those in use too."""
    pool.closed = True
    for connection in list(pool.open):
        connection.abort()
    for _ in range(8):  # a transport is closed a turn or two of the loop after it was told to
        if pool.open:
            await asyncio.sleep(0)


async def _addresses(pool: _Pool, there: Server) -> list[Address]:
    """Where a server may be reached."""
    loop = asyncio.get_running_loop()
    try:  # a number needs no waiting
        numeric = socket.AI_NUMERICHOST
        return [*socket.getaddrinfo(there.host, there.port, type=socket.SOCK_STREAM, flags=numeric)]
    except socket.gaierror:
        pass
    old = pool.looking is not None and pool.looking.done() and loop.time() > pool.asked + NAMES_SECONDS
    if pool.looking is None or old or (pool.looking.done() and pool.looking.exception() is not None):
        pool.asked = loop.time()
        pool.looking = loop.create_task(_look_up(there))
        pool.looking.add_done_callback(lambda task: task.cancelled() or task.exception())  # else asyncio complains
    return await asyncio.shield(pool.looking)  # who is cancelled does not take it from the others


async def _look_up(there: Server) -> list[Address]:
    return [*await asyncio.get_running_loop().getaddrinfo(there.host, there.port, type=socket.SOCK_STREAM)]


# ── what is checked before anything is sent ──────────────────────────────────────────────────────────────────────────
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


def call_deadline(timeout_s: float | None, deadline: float | None) -> float | None:
    """The earlier of a provider's own time limit, from now on, and a call's deadline; both None is None.

    Raises:
        WorkerTimeout: it has passed; nothing was used.
    """
    now = asyncio.get_running_loop().time()
    if timeout_s is not None and (deadline is None or now + timeout_s < deadline):
        return now + timeout_s
    if deadline is not None and deadline <= now:
        raise WorkerTimeout("the deadline had passed before the call began", usage=Usage())
    return deadline


@asynccontextmanager
async def attempt(where: str, timeout_s: float | None, deadline: float | None) -> AsyncGenerator[None]:
    """Around one call: ends it by the earlier of both limits, and says in each WorkerError where it happened.

    Raises:
        WorkerTimeout: a limit has passed.
    """
    loop = asyncio.get_running_loop()
    started, scope = loop.time(), asyncio.timeout_at(None)
    try:
        scope = asyncio.timeout_at(call_deadline(timeout_s, deadline))
        async with scope:
            yield
        return
    except WorkerError as error:
        failed = error
    except TimeoutError:
        if not scope.expired():
            raise
        failed = WorkerTimeout(f"no answer by the deadline, after {loop.time() - started:.1f} s")
    failed.message = f"{where}: {failed.message}"
    failed.args = (failed.message,)
    raise failed from None


def _read_url(url: str) -> tuple[Server, str]:
    """The server and the path of an http(s) URL; what no request line can hold is quoted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise ConfigError(f"host {excerpt(host)!r}: expected a name that can be looked up") from None
    return Server(parts.scheme, host, parts.port or _PORTS[parts.scheme]), quote(parts.path, safe=_PLAIN)


def _read_proxy(url: str) -> Server:
    """A proxy, ``http://`` where its URL names no scheme; what is wrong is not shown, it may hold a password."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError
    except ValueError:  # a port that is none, another kind of proxy (SOCKS)
        raise ConfigError(
            "the environment's proxy (not shown): expected http(s)://[user:password@]host[:port]"
        ) from None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    basic = f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"
    return Server(parts.scheme, parts.hostname, port, "" if parts.username is None else basic)
