"""Connections of one event loop, kept for the next request. In: servers. Out: a connection that is free, or a new one.

The one that was used last goes first, so that those beyond what is needed grow old and are closed.
"""

from __future__ import annotations

import asyncio

from openconductor.providers.http_connection import Connection
from openconductor.providers.http_dial import Dialer
from openconductor.providers.http_request import Origin, Proxy

IDLE_SECONDS = 15.0
"""So long a connection waits for its next request; servers close theirs after a minute or more, some after less."""


class Pool:
    """The connections of one event loop.

    Args:
        proxy: what they go through, or None.

    Attributes:
        proxy: as given.
    """

    __slots__ = ("_all", "_closed", "_dialer", "_idle", "_loop", "_sweeper", "proxy")

    def __init__(self, proxy: Proxy | None) -> None:
        self.proxy = proxy
        self._dialer = Dialer(self._make, proxy)
        self._loop = asyncio.get_running_loop()
        self._all: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, origin: Origin) -> Connection | None:
        """A free connection to a server; None where there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable and self._loop.time() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def dial(self, origin: Origin, *, started: float, deadline: float | None) -> Connection:
        """A new connection to a server; raises as ``Dialer.dial``."""
        connection = await self._dialer.dial(origin, started=started, deadline=deadline)
        if self._closed:
            connection.abort()
        elif connection.usable:
            self._all.add(connection)
        return connection

    async def aclose(self) -> None:
        """Close them all, those in use too."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._all):
            connection.abort()
        for _ in range(8):  # a transport is closed a turn or two of the loop after it was told to
            if not self._all:
                break
            await asyncio.sleep(0)

    def _make(self, origin: Origin) -> Connection:
        return Connection(origin, self._ended, self._all.discard)

    def _ended(self, connection: Connection, keeps: bool) -> None:
        """An exchange ended: keep the connection for the next one, where it can carry one."""
        if not keeps:
            return
        if self._closed:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what has waited for too long."""
        old, self._sweeper = self._loop.time() - IDLE_SECONDS, None
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since <= old:
                    connection.abort()
            left = [connection for connection in idle if connection.usable]
            if left:
                self._idle[origin] = left
            else:
                del self._idle[origin]
        if self._idle:
            self._sweeper = self._loop.call_later(IDLE_SECONDS / 2, self._sweep)
