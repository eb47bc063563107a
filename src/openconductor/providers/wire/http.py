"""Requests to one server over connections that are kept alive.

Each event loop has connections of its own. The one used last goes first, so that surplus ones grow
old and are closed. Calls at the same time share one look-up of the name; of several addresses the
first that answers is taken (happy eyeballs, RFC 8305). https goes through a proxy's tunnel, plain
http is handed to the proxy. Here are also the checks of options that all providers share, and
``attempt``, which ends a call by its deadline.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from math import inf
from typing import Any, Generic, Self, TypeVar, cast
from urllib.parse import quote, urlsplit

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from openconductor.errors import ConfigError, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.wire.failures import excerpt
from openconductor.providers.wire.http_connection import Connection, Connections
from openconductor.providers.wire.http_settings import (
    PORTS,
    HttpSettings,
    Server,
    read_proxy,
)
from openconductor.types import Usage

CONNECT_SECONDS = 30.0
NAMES_SECONDS = 10.0  # time until a name is looked up again

NEXT_ADDRESS_SECONDS = 0.25  # before the next address is tried beside a slow one

_PLAIN = "/%:@!$&'()*+,;=~"  # allowed in a path beside letters, digits and "_.-"

# As ``socket.getaddrinfo`` gives them.
Addresses = list[tuple[int, int, int, str, tuple[object, ...]]]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A resource for each event loop, closed by ``aclose``, or else when its loop shuts down.

    ``asyncio.run`` and servers shut their loop down; one that is closed by hand should be given
    ``shutdown_asyncgens`` first. A loop then finishes the asynchronous generators that were begun
    on it, which is the last moment when resources can be closed in order.

    Args:
        make: makes the resource, on its loop.
        close: closes it, on the same loop.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = {}

    async def get(self) -> T:
        """Return the running event loop's resource, made if there is none."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None:
            return held[0]
        for other in list(self._held):
            if other.is_closed():
                self._held.pop(other, None)
        resource = self._make()
        keeper = self._keep(resource)
        self._held[loop] = resource, keeper
        await anext(keeper)
        return resource

    async def aclose(self) -> None:
        """Close the running event loop's resource; a later ``get`` makes another."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()

    async def _keep(self, resource: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close(resource)


class Closing:
    """Mixin: closes a resource for each event loop, also at the end of an ``async with`` block."""

    _held: PerLoop[Any]

    async def aclose(self) -> None:
        """Close what the running event loop has open, even in use; a later call opens it anew."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class HttpClient:
    """The connections to one server, of each event loop apart (``PerLoop`` closes them).

    Args:
        base_url: where all paths begin (``checked_url``). The environment's proxy for it is used,
            and the environment's certificates (SSL_CERT_FILE, SSL_CERT_DIR).
        read_timeout_s: the longest silence of the server, in seconds. None: no limit.
        settings: headers, query, proxy and client certificate. None: none are set.

    Raises:
        ConfigError: the host or the proxy is invalid.
    """

    def __init__(
        self,
        base_url: str,
        read_timeout_s: float | None,
        settings: HttpSettings | None = None,
    ) -> None:
        self._settings = settings or HttpSettings()
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        if not host.isascii():
            try:
                host = host.encode("idna").decode()
            except UnicodeError:
                shown = excerpt(host)
                raise ConfigError(
                    f"host {shown!r}: expected a name that can be looked up"
                ) from None
        self._server = Server(parts.scheme, host, parts.port or PORTS[parts.scheme])
        self._authority = self._server.place.removesuffix(f":{PORTS[parts.scheme]}")
        self._path = quote(parts.path, safe=_PLAIN)
        self._proxy: Server | None = None
        self._proxy_headers = ""
        proxy = self._settings.proxy_url(parts.scheme, host)
        if proxy is not None:
            self._proxy, self._proxy_headers = read_proxy(proxy)
        self._read_timeout_s = read_timeout_s
        self.pools = PerLoop(_Pool, _Pool.aclose)

    async def connect(self) -> Connection:
        """Return a free connection or a new one, for a ``with`` block that ends the exchange on it.

        Raises:
            Unreachable: no connection; ``retryable`` unless the certificate is bad.
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
        except (OSError, UnicodeError) as error:  # TimeoutError and ssl.SSLError are OSErrors
            reason = f"{type(error).__name__}: {error}"
            words = f"no connection: {excerpt(reason)}"
            if isinstance(error, ConnectionRefusedError):
                words += "; start the server, or correct base_url"
            elif isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
                words += "; the server does not speak https: try http:// in base_url"
            final = isinstance(error, ssl.SSLCertVerificationError | UnicodeError)
        if scope.expired():
            words = f"no connection within {CONNECT_SECONDS} s"
        raise Unreachable(words, retryable=not final)  # out here, so that it has no context

    def head(self, path: str, headers: str, size: int) -> bytes:
        """Return the head of a POST of ``size`` bytes to a path below ``base_url``.

        Args:
            path: the path.
            headers: further header lines.
            size: bytes of the body.
        """
        target = self._path + path + self._settings.query_text()
        if self._proxy is not None and self._server.scheme == "http":  # asked of the proxy itself
            target = f"http://{self._authority}{target}"
            headers += self._proxy_headers
        return (
            f"POST {target} HTTP/1.1\r\nHost: {self._authority}\r\nAccept: */*\r\n"
            f"Accept-Encoding: identity\r\n{headers}Content-Length: {size}\r\n\r\n"
        ).encode("latin-1")

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return _speak_http(self._settings.tls)

    @cached_property
    def _proxy_tls(self) -> ssl.SSLContext:
        return _speak_http(ssl.create_default_context())  # the client certificate is not shown

    async def _dial(self, pool: _Pool) -> Connection:
        """Open a connection to the server, through the proxy if there is one."""
        peer = self._proxy or self._server
        opened = await start_connection(
            await pool.find_addresses(peer), happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1
        )
        tls = None
        if peer.scheme == "https":
            tls = self._tls if self._proxy is None else self._proxy_tls
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(pool, self._read_timeout_s),
            sock=opened,
            ssl=tls,
            server_hostname=peer.host if tls else None,
        )
        if self._proxy is None or self._server.scheme == "http":
            return connection
        try:
            connection.secured(await self._open_tunnel(connection))
        except BaseException:
            connection.abort()
            pool.open.discard(connection)  # a handshake that failed may not say so
            raise
        return connection

    async def _open_tunnel(self, connection: Connection) -> asyncio.Transport:
        """Ask the proxy for a tunnel to the server, and speak TLS through it."""
        place = self._server.place
        head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{self._proxy_headers}\r\n"
        connection.send(head.encode("latin-1"))
        await connection.answered()
        if connection.status != 200 or connection.transport is None:
            raise OSError(f"the proxy answered with status {connection.status}")
        secured = await asyncio.get_running_loop().start_tls(
            connection.transport, connection, self._tls, server_hostname=self._server.host
        )
        if secured is None:
            raise ConnectionAbortedError("the proxy closed the tunnel")
        return secured


class _Pool(Connections):
    """The connections of one event loop, and the addresses of their server."""

    _looked_up = -inf  # when the look-up began
    _look_up: asyncio.Future[Addresses] | None = None

    async def find_addresses(self, server: Server) -> Addresses:
        """Return the addresses of the server."""
        loop = asyncio.get_running_loop()
        look_up = self._look_up
        if look_up is not None and look_up.done():
            late = loop.time() > self._looked_up + NAMES_SECONDS
            if late or look_up.exception() is not None:
                look_up = None
        if look_up is None:
            self._looked_up = loop.time()
            addresses = loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
            look_up = cast("asyncio.Future[Addresses]", asyncio.ensure_future(addresses))
            # asyncio complains of an exception that nobody took
            look_up.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._look_up = look_up
        return await asyncio.shield(look_up)  # a cancelled call does not take it from the others


def _speak_http(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["http/1.1"])
    return context


# ── options and deadlines of all providers ────────────────────────────────────────────────────────
def checked_name(name: str, expected: str) -> str:
    """Return the name of a model or a tool; raise ConfigError if it is blank."""
    if not name.strip():
        raise ConfigError(f"model: got a blank name, expected {expected}")
    return name


def checked_url(url: str) -> str:
    """Return the address without a slash at its end; raise ConfigError if it is invalid."""
    expected = "expected http(s)://host[:port]/path without credentials, query or fragment"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"base_url: it has credentials, a query or a fragment (not shown); {expected} "
            "(parameters go into `query`, keys into api_key_env or `headers`)"
        )
    if parts.scheme not in PORTS or not parts.hostname:
        raise ConfigError(f"base_url: got {excerpt(url)!r}, {expected}")
    return url.rstrip("/")


def checked_variable(name: str | None) -> str | None:
    """Return the name of an environment variable, or None; raise ConfigError if it is invalid."""
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(
            "api_key_env: expected the name of an environment variable (letters, digits and _), "
            "got something else (not shown, it may be the key itself)"
        )
    return name


def checked_seconds(name: str, seconds: float | None) -> float | None:
    """Return seconds above 0, or None; raise ConfigError for anything else."""
    if seconds is not None and not 0 < seconds < inf:
        raise ConfigError(
            f"{name}: got {seconds!r}, expected seconds above 0, or None for no limit"
        )
    return seconds


@asynccontextmanager
async def attempt(
    where: str, timeout_s: float | None, deadline: float | None
) -> AsyncGenerator[None]:
    """End the call inside by the earlier of two limits, and name the server in each WorkerError.

    Args:
        where: the model or tool, and its server.
        timeout_s: the provider's own limit, in seconds from now. None: no limit.
        deadline: the event loop's time by which the call must have ended. None: no limit.

    Raises:
        WorkerTimeout: a limit has passed.
    """
    now = asyncio.get_running_loop().time()
    ends = now + (timeout_s or inf)
    if deadline is not None and deadline < ends:
        ends = deadline
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
