"""One connection that speaks HTTP/1.1. In: requests, one after another. Out: each response's head, then its body.

llhttp (of ``httptools``) reads the framing; what stands here is when to stop: a deadline over all of an exchange, a
longest silence, a bound on everything that is not body. A connection whose exchange did not end in order is never used
again, and nothing is ever sent twice. Why not a whole HTTP library: docs/decisions/001-http-core.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from openconductor.errors import ConnectionLost, MalformedResponse, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.http_request import Headers, Origin

BUFFER_BYTES = 16 * 1024
"""What one read takes; a buffer that stays, for a fresh one a read costs more than all of llhttp."""

OVERHEAD_BYTES = 64 * 1024
OVERHEAD_A_BYTE = 16
"""What is not body (headers, sizes of chunks, trailers) may have so many bytes, and so many more a byte of body."""

HELD_BYTES = 256 * 1024
"""Of a body that nobody reads, no more than about this is taken from the network."""


_NONE = Headers([])


class Connection(asyncio.BufferedProtocol):
    """A connection, and the exchange that is under way on it: ``send``, ``answered``, ``piece`` by piece, ``end``.

    Whatever goes wrong is raised by the wait that meets it, and nothing before: what came in time is read first.

    Args:
        origin: the server that it leads to.
        ended: is called when an exchange has ended, with the connection and whether it can carry another one.
        lost: is called once, when the connection is closed.

    Attributes:
        status, headers: the response's, once ``answered`` has returned.
        complete: whether the response has come to its end; pieces of it may still wait to be read.
        origin: as given.
        idle_since: the event loop's time at which the last exchange ended, for a pool.
    """

    __slots__ = (
        "_begun",
        "_body",
        "_buffer",
        "_busy",
        "_closed",
        "_deadline",
        "_ended",
        "_fault",
        "_fields",
        "_heard",
        "_keeps",
        "_loop",
        "_lost",
        "_parser",
        "_paused",
        "_pieces",
        "_sent",
        "_silence_s",
        "_taken",
        "_timer",
        "_transport",
        "_waiter",
        "_wire",
        "complete",
        "headers",
        "idle_since",
        "origin",
        "status",
    )

    def __init__(
        self, origin: Origin, ended: Callable[[Connection, bool], None], lost: Callable[[Connection], None]
    ) -> None:
        self.origin = origin
        self._ended = ended
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._fault: WorkerError | None = None
        self._closed = False
        self.idle_since = 0.0
        self._reset()
        self._busy = False

    def _reset(self) -> None:
        self._busy = True
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._wire = self._body = self._taken = 0  # bytes: received, of body received, of body handed on
        self._keeps = self._paused = self._sent = self.complete = False
        self._deadline: float | None = None
        self._silence_s: float | None = None
        self._begun = self._heard = 0.0
        self.status = 0
        self.headers = _NONE

    # ── an exchange ──────────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return not (self._closed or self._busy or self._transport is None or self._transport.is_closing())

    def send(
        self, head: bytes, payload: bytes, *, started: float, deadline: float | None, silence_s: float | None
    ) -> None:
        """Send a request; raises nothing, for its frame holds the key: what is wrong, ``answered`` says.

        Args:
            head: the request line and the headers, with the empty line after them.
            payload: the body.
            started: the event loop's time at which the call began, for the message.
            deadline: the event loop's time by which the response must be whole; None is no limit.
            silence_s: the longest silence of the server, in seconds; None is no limit.
        """
        self._reset()
        self._begun = started
        self._deadline = deadline
        self._silence_s = silence_s
        transport = self._transport
        if transport is None or self._closed:
            return
        self._sent = True
        if len(payload) < BUFFER_BYTES:
            transport.write(head + payload)
        else:
            transport.write(head)
            transport.write(payload)
        if deadline is not None or silence_s is not None:
            self._heard = self._loop.time()
            self._watch()

    async def answered(self) -> None:
        """Wait for the response's head.

        Raises:
            Unreachable: the connection was closed before a response began.
            ConnectionLost: the connection was closed within the head.
            MalformedResponse: this is not HTTP.
            WorkerTimeout: the deadline passed, or the server was silent for too long.
        """
        while not self.status:
            await self._wait()

    async def piece(self) -> bytes:
        """The next bytes of the body, as they come; none at its end.

        Raises:
            ConnectionLost: the connection broke off, or the body is shorter than was said.
            MalformedResponse: the body breaks HTTP.
            WorkerTimeout: the deadline passed, or the server was silent for too long.
        """
        while not self._pieces:
            if self.complete:
                return b""
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._taken = self._body
        if self._paused and self._transport is not None:
            self._paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()
        return data

    @property
    def at_end(self) -> bool:
        """Whether the body has been read to its end."""
        return self.complete and not self._pieces

    def hurry(self, deadline: float) -> None:
        """Move the deadline forward."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._watch()

    def let_go(self) -> asyncio.Transport | None:
        """Hand the transport on to another protocol: this connection ends, what carries it does not."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self.connection_lost(None)
        return transport

    def abort(self) -> None:
        """Close at once: what has not left yet is not sent any more."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """End the exchange: the connection is kept where the response came to its end, and else closed."""
        if not self._busy:  # ended before: it may be another's by now
            return
        self._fault = None  # its traceback holds this connection
        self._pieces.clear()
        transport = self._transport
        clean = self.complete and self._keeps and not self._closed and transport is not None
        # A server may answer before it has read all of a request; the rest of that would be taken for the next one.
        clean = clean and transport is not None and not transport.get_write_buffer_size()
        self._busy = False
        if not clean:
            self.abort()
        elif self._paused and transport is not None:
            transport.resume_reading()
        self._ended(self, clean)

    async def _wait(self) -> None:
        if self._fault is not None:
            raise self._fault
        if self._closed or self._transport is None:
            raise self._gone(None)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, fault: WorkerError) -> None:
        """Close, and let whoever waits know why."""
        if self._fault is None:
            self._fault = fault
        self.abort()
        self._wake()

    def _gone(self, error: Exception | None) -> WorkerError:
        """What it means that the connection was lost."""
        words = f"{type(error).__name__}: {error}" if error is not None else "the connection was closed"
        if self.status:
            return ConnectionLost(f"the response broke off: {words}", status=self.status)
        if error is not None:
            return Unreachable(f"no response: {words}", sent=self._sent)
        if self._wire:
            return ConnectionLost("the connection was closed within the headers of the response")
        return Unreachable("the server closed the connection without a response", sent=self._sent)

    # ── the clock: one timer a connection, set anew only where it would ring too late ────────────────────────────────
    def _watch(self) -> None:
        ends = self._deadline
        if self._silence_s is not None:
            silent = self._heard + self._silence_s
            ends = silent if ends is None else min(silent, ends)
        if ends is None:
            return
        if self._timer is not None:
            if self._timer.when() <= ends:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(ends, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._busy or self.complete or self._closed:
            return
        now = self._loop.time()
        if self._deadline is not None and now >= self._deadline:
            words = f"no whole response by the deadline, after {now - self._begun:.1f} s"
            self._break(WorkerTimeout(words))
            return
        if self._silence_s is not None and now >= self._heard + self._silence_s:
            if not self._paused and not (self._transport is not None and self._transport.get_write_buffer_size()):
                self._break(WorkerTimeout(f"the server was silent for {self._silence_s} s"))
                return
            self._heard = now  # it is us who are slow, or the request is still on its way
        self._watch()

    # ── what the transport calls ─────────────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none, but do the same
        self._parser = httptools.HttpResponseParser(self)
        # As most clients: servers that end lines with LF alone, or write blanks after a chunk's size, are understood.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        parser = self._parser
        if parser is None or not self._busy or self.complete or self._closed:
            self._keeps = False  # nobody asked for it, and whose answer it is nobody knows
            if not self._busy:
                self.abort()
            return
        self._wire += nbytes
        if self._silence_s is not None:
            self._heard = self._loop.time()
        try:
            parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                self._break(self._broken(error))
            self._keeps = False
        if not self.complete and self._wire - self._body > OVERHEAD_BYTES + OVERHEAD_A_BYTE * self._body:
            self._break(MalformedResponse(f"the response breaks HTTP: {self._wire} bytes, {self._body} of them body"))
        if self._body - self._taken > HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self.status:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._closed = True
        self._transport = self._parser = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy and not self.complete:
            if exc is None and self.status and self._fault is None and self._ends_with_the_connection():
                self.complete = True
            elif self._fault is None:
                self._fault = self._gone(exc)
        self._wake()
        self._lost(self)

    def _ends_with_the_connection(self) -> bool:
        framed = self.headers.find(b"transfer-encoding").lower().endswith("chunked")
        return not framed and "content-length" not in self.headers

    def _broken(self, error: Exception) -> MalformedResponse:
        words = str(error) if isinstance(error, httptools.HttpParserError) else "another protocol"
        if isinstance(error, httptools.HttpParserCallbackError):
            words = str(error.__context__)
        return MalformedResponse(f"the response breaks HTTP: {words}", status=self.status or None)

    # ── what llhttp calls; what is raised here ends its reading ──────────────────────────────────────────────────────
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
        if status >= 200:
            self.status = status
            self.headers = Headers(self._fields)
        self._fields = []

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
