"""One connection that speaks HTTP/1.1: requests one after another, each answered by head and body.

llhttp (of ``httptools``) reads the framing. This file decides when to stop: a longest silence, a
bound on the body and on all that is not body. The deadline is the caller's, who cancels. A
connection whose exchange did not end in order is never used again, and nothing is sent twice.
docs/decisions/001-http-core.md says why this is not a whole HTTP library.
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

# Size of one read. The buffer is kept: a fresh one for each read costs more than all of llhttp.
BUFFER_BYTES = 16 * 1024

# A larger body is a failure: the longest answers of models are a hundred times smaller.
MAX_RESPONSE_BYTES = 32 * 1024 * 1024

# Bytes that headers, chunk sizes and trailers may take, and further ones for a byte of body.
OVERHEAD_BYTES = 64 * 1024
OVERHEAD_A_BYTE = 16

MAX_ERROR_BYTES = 64 * 1024
DRAIN_SECONDS = 0.1
# Time that a connection waits for its next request. Most servers close theirs after a minute.
IDLE_SECONDS = 15.0

_NOTHING: Mapping[str, str] = {}


class Connections:
    """The connections of one event loop to one server: all open ones, and the idle ones of them."""

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self.idle: list[Connection] = []
        self.closed = False

    async def aclose(self) -> None:
        """Close all connections, those in use too."""
        self.closed = True
        for connection in list(self.open):
            connection.abort()
        for _ in range(8):  # a transport closes a turn or two of the loop after ``abort``
            if self.open:
                await asyncio.sleep(0)


class Connection(asyncio.BufferedProtocol):
    """A connection and the exchange on it: ``send``, ``answered``, then the body.

    A ``with`` block ends the exchange. A failure is raised by the wait that meets it, after all
    bytes that came in time have been read.

    Args:
        owner: holds the connection while it is open, and while it is idle.
        silence_s: the longest silence of the server within an exchange, in seconds. None: no
            limit.

    Attributes:
        status, headers: the response's, once ``answered`` has returned; names are in small letters.
        complete: the response has come to its end; pieces of it may still wait to be read.
        transport: None once the connection is closed.
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
        self._received = 0  # bytes, of which ``_body`` are the body's
        self._body = 0
        self._keeps = False
        self._sent = False
        self.complete = False
        self._fault: WorkerError | None = None
        self.status = 0
        self.headers = _NOTHING

    # ── an exchange ───────────────────────────────────────────────────────────────────────────────
    @property
    def usable(self) -> bool:
        """True if a request can be sent."""
        return not (self._busy or self.transport is None or self.transport.is_closing())

    def send(self, head: bytes, payload: bytes = b"") -> None:
        """Send a request. ``answered`` raises its failures, because this frame holds the key.

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
            # From Python 3.12 on a transport would try for ever to send a piece without bytes.
            self.transport.writelines(filter(None, (head, payload)))

    async def answered(self) -> None:
        """Wait for the response's head.

        Raises:
            Unreachable: the connection was closed before a response began.
            ConnectionLost: the connection was closed within the head.
            MalformedResponse: the answer is not HTTP.
            WorkerTimeout: the server was silent for too long.
        """
        while not self.status:
            await self._wait()

    async def piece(self) -> bytes:
        """Return the next bytes of the body as they come; b"" at its end.

        Raises:
            ConnectionLost: the connection broke off, or the body is shorter than announced.
            MalformedResponse: the body breaks HTTP, is compressed, or is larger than
                MAX_RESPONSE_BYTES.
            WorkerTimeout: the server was silent for too long.
        """
        while not (self._pieces or self.complete):
            await self._wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        if self._body > MAX_RESPONSE_BYTES:
            raise MalformedResponse(
                f"a response of {self._body} bytes or more, expected at most {MAX_RESPONSE_BYTES}",
                status=self.status,
                retryable=False,
            )
        return data

    async def whole(self) -> bytes:
        """Return all of the body; raise as ``piece``."""
        pieces: list[bytes] = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def start(self) -> bytes:
        """Return the first bytes of a body to quote, even if it is cut or breaks HTTP."""
        start = b""
        with suppress(ConnectionLost, MalformedResponse):
            while len(start) < MAX_ERROR_BYTES:
                piece = await self.piece()
                if not piece:
                    break
                start += piece
        return start

    async def drain(self) -> None:
        """Read on to the end, so that the connection is kept, unless that takes long."""
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
        """End the exchange: keep the connection if the response came to its end, else close it."""
        ended = self.complete and self._keeps
        # A server may answer before it has read all of a request; the rest of that would be taken
        # for the next one.
        unsent = self.transport is not None and self.transport.get_write_buffer_size() > 0
        self._reset(busy=False)
        if ended and not unsent and self.usable:
            self._owner.idle.append(self)
            self._timer = self._loop.call_later(IDLE_SECONDS, self.abort)
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        if self.transport is not None:
            self.transport.abort()

    def secured(self, transport: asyncio.BaseTransport) -> None:
        """Go on over TLS, through the proxy's tunnel."""
        self._reset(busy=False)
        self.connection_made(transport)

    async def _wait(self) -> None:
        """Wait for the next bytes, or for the end."""
        if self._fault is not None:
            raise self._fault
        if self.transport is None:
            raise self._lost(None)
        waiter = self._waiter = self._loop.create_future()
        if self._silence_s is None:
            await waiter
            return
        await asyncio.wait((waiter,), timeout=self._silence_s)
        # While the request is still on its way, the server is not to blame for the silence.
        if not waiter.done() and not self.transport.get_write_buffer_size():
            raise WorkerTimeout(f"the server was silent for {self._silence_s} s")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, words: object) -> None:
        """Close; the next wait raises MalformedResponse."""
        message = f"the response breaks HTTP: {words}"
        self._fault = MalformedResponse(message, status=self.status or None)
        self.abort()

    def _lost(self, error: Exception | None) -> WorkerError:
        """Return the failure that the loss of the connection means."""
        words = "the connection was closed"
        if error is not None:
            words = f"{type(error).__name__}: {error}"
        if self.status:
            return ConnectionLost(f"the response broke off: {words}", status=self.status)
        if error is not None:
            return Unreachable(f"no response: {words}", sent=self._sent)
        if self._received:
            return ConnectionLost("the connection was closed within the headers of the response")
        return Unreachable("the server closed the connection without a response", sent=self._sent)

    # ── callbacks of the transport ────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        # uvloop's transports are no asyncio.Transport, but do the same.
        self.transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        # As most clients do, accept lines that end with LF alone, and blanks after a chunk's size.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._owner.open.add(self)
        if self._owner.closed:
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read bytes that have come."""
        if self._parser is None or not self._busy or self.complete:
            self._keeps = False  # unasked bytes would become the next request's answer
            if not self._busy:
                self.abort()
            return
        self._received += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keeps = False
            if not self.complete:
                self._break(error.__context__ or error)  # an error of a callback is the context
        overhead = self._received - self._body
        if not self.complete and overhead > OVERHEAD_BYTES + OVERHEAD_A_BYTE * self._body:
            self._break(f"{self._received} bytes, {self._body} of them body")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed, and what that means for the response."""
        self.transport = self._parser = None
        self._owner.open.discard(self)
        with suppress(ValueError):
            self._owner.idle.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._busy and not self.complete and self._fault is None:
            chunked = self._header("transfer-encoding").endswith("chunked")
            if exc is None and self.status and not chunked and "content-length" not in self.headers:
                self.complete = True  # such a body ends with its connection
            else:
                self._fault = self._lost(exc)
        self._wake()

    # ── callbacks of llhttp; an error raised here ends its reading ────────────────────────────────
    def on_message_begin(self) -> None:
        """Begin a response."""
        if self.complete:
            raise ValueError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer is dropped."""
        if not self.status:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Read the head of the response; an interim one (1xx) is dropped."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if not 100 <= status <= 999 or status == 101:
            raise ValueError(f"status {status}")
        fields = self._fields
        self._fields = []
        if status < 200:
            return
        headers: dict[str, str] = {}
        for name, value in reversed(fields):  # of repeated ones the first counts
            headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
        self.headers = headers
        self.status = status
        if self._header("content-encoding") not in ("", "identity"):
            raise ValueError("a content encoding, which was not asked for")

    def _header(self, name: str) -> str:
        return self.headers.get(name, "").lower()

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._pieces.append(data)
        self._body += len(data)

    def on_message_complete(self) -> None:
        """Note the end of the response, or of an interim head before it."""
        assert self._parser is not None
        if self.status:
            self.complete = True
            self._keeps = self._parser.should_keep_alive()
