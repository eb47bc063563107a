"""The process that serves: until it is told to stop, and then until the answers under way have come to their end.

In: the app's parts. Out: nothing; it blocks. A client that sends a head without end, or that does not read, is let go.
"""

from __future__ import annotations

import asyncio
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openconductor.serving.app import STALLED_S, build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import ServeConfig

_ENDS_AT_ONCE = 5.0  # seconds that a turn has to come to its end once it is cancelled
_HEAD_BYTES = 65_536  # of a request, before its body


class ClientConnection(HttpToolsProtocol):
    """Ends with a client that sends a head without end, or does not get on with it, or does not read.

    And with one that sends a request before it has its answer: uvicorn would read no more, and not see it leave.
    """

    _stalled: asyncio.TimerHandle | None = None
    _head: int | None = 0  # bytes of the head that is coming; None where none is

    def _wait(self, *, head: int | None) -> None:
        """Give the client a while."""
        self._forgive()
        self._head, self._stalled = head, self.loop.call_later(STALLED_S, self.transport.abort)

    def _forgive(self) -> None:
        self._head = None
        if self._stalled is not None:
            self._stalled.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is to come."""
        super().connection_made(transport)
        self._wait(head=0)

    def on_message_begin(self) -> None:
        """So it is with each further request."""
        super().on_message_begin()
        self._wait(head=0)

    def data_received(self, data: bytes) -> None:
        """Count what comes of a head."""
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > _HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._forgive()
        if self.cycle and not self.cycle.response_complete:
            self.transport.abort()
        else:
            super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than is written."""
        super().pause_writing()
        self._wait(head=None)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._forgive()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._forgive()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Stops taking requests at the first signal, and ends what is left of those under way after a while."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, drain_s: float) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain_s = drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at once at the second.

        uvicorn's own would raise the signal again once it is done, before the journal is closed.
        """
        self.force_exit = self.should_exit
        self.should_exit = True
        if not self._gateway.draining:
            self._gateway.draining = True
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(loop.call_later, self._drain_s, self._gateway.stop)


def run(config: ServeConfig, gateway: Gateway, keys: KeyRing) -> None:
    """Serve until SIGTERM or SIGINT, and until the answers under way have ended."""
    grace = int(config.drain_s + _ENDS_AT_ONCE)
    settings = uvicorn.Config(
        build_app(gateway, keys, config), config.host, config.port, http=ClientConnection, ws="none", access_log=False,
        log_level="warning", lifespan="off", server_header=False, proxy_headers=False, timeout_graceful_shutdown=grace,
    )  # fmt: skip
    asyncio.run(_serve(_Server(settings, gateway, config.drain_s), gateway))


async def _serve(server: _Server, gateway: Gateway) -> None:
    try:
        await server.serve()
    finally:
        await gateway.pool.aclose()
