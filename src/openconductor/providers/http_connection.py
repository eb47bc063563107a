"""One connection that speaks HTTP/1.1. In: requests, one after another. Out: each response's head, then its body.

llhttp (of ``httptools``) reads the framing. This file decides when to stop: a longest silence, a
bound on the body and on all that is not body; the deadline is the caller's, who cancels. A
connection whose exchange did not end in order is never used again, and nothing is sent twice. Why
not a whole HTTP library: docs/decisions/001-http-core.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self, cast

import httptools

from openconductor.errors import (
    ConnectionLost,
    MalformedResponse,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)

BUFFER_BYTES = 16 * 1024
"""What one read takes. The buffer is kept: a fresh one for each read costs more than all of llhttp."""

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""A larger body is a failure: the longest answers of today's models are a hundred times smaller."""

OVERHEAD_BYTES = 64 * 1024
OVERHEAD_A_BYTE = 16
"""What is not body (headers, sizes of chunks, trailers) may have this many bytes, and this many more a byte of body."""

MAX_ERROR_BYTES = 64 * 1024
DRAIN_SECONDS = 0.1
IDLE_SECONDS = 15.0
"""How long a connection waits for its next request; servers close theirs after a minute or more, some after less."""

_NOTHING: Mapping[str, str] = {}


class Connections:
    """Those of one event loop to one server: all that are open, and those of them that wait for a request."""

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self.idle: list[Connection] = []
        self.closed = False

    async def aclose(self) -> None:
        """Close all connections, those in use too."""
        self.closed = True
        for connection in list(self.open):
            connection.abort()
        for _ in range(8):  # a transport is closed a turn or two of the loop after it was told to
            if self.open:
                await asyncio.sleep(0)


class Connection(asyncio.BufferedProtocol):
    """A connection and the exchange on it: ``send``, ``answered``, then the body; a ``with`` block ends it.

    Whatever goes wrong is raised by the wait that meets it, and not before: what came in time is
    read first.

    Args:
        owner: where it is kept while it is open, and while it is idle.
        silence_s: the longest silence of the server within an exchange, in seconds; None is no
            limit.

    Attributes:
        status, headers: the response's, once ``answered`` has returned; names are in small letters.
        complete: whether the response has come to its end; pieces of it may still wait to be read.
        transport: what carries it; None once it is closed.
    """

    def __init__(self, owner: Connections, silence_s: float | None) -> None:
        self._owner = owner
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reset(busy=False)

    def _reset(self, *, busy: bool) -> None:
        self._busy = busy
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._wire = self._body = 0  # bytes received: all of them, and those of the body
        self._keeps = self._sent = self.complete = False
        self._fault: WorkerError | None = None
        self.status = 0
        self.headers = _NOTHING

    # ── an exchange ───────────────────────────────────────────────────────────────────────────────
    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return not (self._busy or self.transport is None or self.transport.is_closing())

    def send(self, head: bytes, payload: bytes = b"") -> None:
        """Send a request; raises nothing, for its frame holds the key: ``answered`` says what is wrong.

        Args:
            head: the request line and the headers, with the empty line after them.
            payload: the body.
        """
        usable = self.usable
        if self._timer is not None:
            self._timer.cancel()
        self._reset(busy=True)
        if usable and self.transport is not None:
            self._sent = True
            self.transport.writelines((head, payload))

    async def answered(self) -> None:
        """Wait for the response's head.

        Raises:
            Unreachable: the connection was closed before a response began.
            ConnectionLost: the connection was closed within the head.
            MalformedResponse: this is not HTTP.
            WorkerTimeout: the server was silent for too long.
        """
        while not self.status:
            await self._wait()

    async def piece(self) -> bytes:
        """The next bytes of the body, as they come; none at its end.

        Raises:
            ConnectionLost: the connection broke off, or the body is shorter than was said.
            MalformedResponse: it breaks HTTP, is packed, or is larger than MAX_RESPONSE_BYTES.
            WorkerTimeout: the server was silent for too long.
        """
        while not (self._pieces or self.complete):
            await self._wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        if self._body > MAX_RESPONSE_BYTES:
            words = (
                f"a response of {self._body} bytes or more, expected at most {MAX_RESPONSE_BYTES}"
            )
            raise MalformedResponse(words, status=self.status, retryable=False)
        return data

    async def whole(self) -> bytes:
        """All of the body; raises as ``piece``."""
        pieces: list[bytes] = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def start(self) -> bytes:
        """The first bytes, of a body that is only quoted: that it is cut or breaks HTTP changes nothing."""
        start = b""
        with suppress(ConnectionLost, MalformedResponse):
            while len(start) < MAX_ERROR_BYTES and (piece := await self.piece()):
                start += piece
        return start

    async def drain(self) -> None:
        """Read on to the end, so that the connection is kept; a server that takes long loses it."""
        with suppress(WorkerError, TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.whole()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the exchange: the connection is kept where the response came to its end, and else closed."""
        transport = self.transport
        # A server may answer before it has read all of a request; the rest of that would be taken
        # for the next one.
        clean = (
            self.complete
            and self._keeps
            and transport is not None
            and not transport.get_write_buffer_size()
        )
        self._reset(busy=False)
        if clean and self.usable:
            self._owner.idle.append(self)
            self._timer = self._loop.call_later(IDLE_SECONDS, self.abort)
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once: what has not left yet is not sent any more."""
        if self.transport is not None:
            self.transport.abort()

    def secured(self, transport: asyncio.BaseTransport) -> None:
        """Go on over TLS, through the tunnel that was asked for."""
        self._reset(busy=False)
        self.connection_made(transport)

    async def _wait(self) -> None:
        """Wait for the next bytes, or for the end."""
        if self._fault is not None:
            raise self._fault
        if self.transport is None:
            raise self._gone(None)
        waiter = self._waiter = self._loop.create_future()
        if self._silence_s is None:
            await waiter
            return
        await asyncio.wait((waiter,), timeout=self._silence_s)
        # While the request is still on its way, it is not the server that is silent.
        if not waiter.done() and not self.transport.get_write_buffer_size():
            raise WorkerTimeout(f"the server was silent for {self._silence_s} s")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, words: object) -> None:
        """Close, and let whoever waits know why."""
        self._fault = MalformedResponse(
            f"the response breaks HTTP: {words}", status=self.status or None
        )
        self.abort()

    def _gone(self, error: Exception | None) -> WorkerError:
        """What it means that the connection was lost."""
        words = (
            f"{type(error).__name__}: {error}" if error is not None else "the connection was closed"
        )
        if self.status:
            return ConnectionLost(f"the response broke off: {words}", status=self.status)
        if error is not None:
            return Unreachable(f"no response: {words}", sent=self._sent)
        if self._wire:
            return ConnectionLost("the connection was closed within the headers of the response")
        return Unreachable("the server closed the connection without a response", sent=self._sent)

    # ── what the transport calls ──────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none, but do the same
        self._parser = httptools.HttpResponseParser(self)
        # As most clients: servers that end lines with LF alone, or write blanks after a chunk's
        # size, are understood.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._owner.open.add(self)
        if self._owner.closed:
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._parser is None or not self._busy or self.complete:
            self._keeps = False  # nobody asked for it, and whose answer it is nobody knows
            if not self._busy:
                self.abort()
            return
        self._wire += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keeps = False
            if not self.complete:
                self._break(error.__context__ or error)  # what a callback raised is the context
        if (
            not self.complete
            and self._wire - self._body > OVERHEAD_BYTES + OVERHEAD_A_BYTE * self._body
        ):
            self._break(f"{self._wire} bytes, {self._body} of them body")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.transport = self._parser = None
        self._owner.open.discard(self)
        with suppress(ValueError):
            self._owner.idle.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._busy and not self.complete and self._fault is None:
            framed = "content-length" in self.headers or self._header("transfer-encoding").endswith(
                "chunked"
            )
            if exc is None and self.status and not framed:
                self.complete = True
            else:
                self._fault = self._gone(exc)
        self._wake()

    # ── what llhttp calls; what is raised here ends its reading ───────────────────────────────────
    def on_message_begin(self) -> None:
        """A response begins."""
        if self.complete:
            raise ValueError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which nobody reads."""
        if not self.status:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is there: that of the response, or one that only says that more will come."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if not 100 <= status <= 999 or status == 101:
            raise ValueError(f"status {status}")
        fields, self._fields = reversed(self._fields), []  # of repeated ones the first counts
        if status < 200:
            return
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1").strip()
            for name, value in fields
        }
        self.status = status
        if self._header("content-encoding") not in ("", "identity"):
            raise ValueError("a content encoding, which was not asked for")

    def _header(self, name: str) -> str:
        return self.headers.get(name, "").lower()

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._pieces.append(data)
        self._body += len(data)

    def on_message_complete(self) -> None:
        """The response, or a head before it, has ended."""
        assert self._parser is not None
        if self.status:
            self.complete = True
            self._keeps = self._parser.should_keep_alive()
