"""A chat-completions server on loopback that fails on purpose, and counts.

In: a script that says which request meets which fault. Out: a base URL; a record of every request:
what it met, what usage was reported to the client, who ended it; and of every connection that the
client closed.

Written on asyncio's transports, not on an HTTP server: those take care never to send what is sent
here (resets, truncated bodies, half a status line). It stops with the ``async with`` that started
it; ``benchmarks/fault_process.py`` runs it in a process of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from faults.plays import FAULTS, text_of
from faults.script import Request, Script, read_request
from openconductor.types import Usage

LONGEST = 30.0  # seconds; no fault plays longer, and then the connection is closed
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s: closing sends a RST


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens as this server reports them; they add up."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


@dataclass(slots=True)
class Record:
    """One request as the server saw it.

    Attributes:
        request: what was asked.
        fate: the fault that it met.
        status: the status that was sent; None where none was.
        usage: the usage that was sent; None where none was, or none that can be believed.
        ended: ``whole`` (a response from its beginning to its end), ``cut`` (by the server),
            ``left`` (the client hung up before), or "" while it is under way.
        begun, closed: the event loop's time at which it came, and at which its connection was lost;
            0 is not (yet).
    """

    request: Request
    fate: str
    status: int | None = None
    usage: Tokens | None = None
    ended: str = ""
    begun: float = 0.0
    closed: float = 0.0

    @property
    def unreported(self) -> bool:
        """True if the client cannot know the cost: work may have been done unreported.

        Not so where the server refused (a status from 300 on).
        """
        return self.usage is None and (self.status is None or 200 <= self.status < 300)


@dataclass(slots=True)
class FaultServer:
    """The server and what it saw; ``texts`` holds the answers of workers with their own."""

    script: Script
    texts: dict[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    records: list[Record] = field(default_factory=list[Record])
    connections: set[Connection] = field(default_factory=set)  # those that are open
    accepted: int = 0
    hung_up: int = 0
    _seen: Counter[int] = field(default_factory=Counter[int])

    @property
    def busy(self) -> list[Record]:
        """The requests that are under way."""
        return [record for record in self.records if not record.ended]

    @property
    def fates(self) -> Counter[str]:
        """The number of requests that met each fault."""
        return Counter(record.fate for record in self.records)

    def usage(self, model: str | None = None) -> Tokens:
        """Return the sum of what was reported, of one worker or of all."""
        total = Tokens()
        for record in self.records:
            if record.usage is not None and model in (None, record.request.model):
                total += record.usage
        return total

    def unreported(self) -> int:
        """Count the requests whose cost the client cannot know."""
        return sum(record.unreported for record in self.records)

    async def until(self, condition: Callable[[FaultServer], bool], seconds: float = 10.0) -> None:
        """Wait until the server has seen something; raises TimeoutError where it does not come."""
        async with asyncio.timeout(seconds):
            while not condition(self):  # noqa: ASYNC110 - whatever is asked for; this is a test's
                await asyncio.sleep(0.002)

    def open(self, request: Request) -> Record:
        """Note a request and decide its fate."""
        request = replace(request, seen=self._seen[request.digest])
        self._seen[request.digest] += 1
        record = Record(request, self.script.fate(request), begun=asyncio.get_running_loop().time())
        self.records.append(record)
        return record


class Exchange:
    """One request and the means to answer it badly."""

    __slots__ = ("_connection", "record", "request", "text")

    def __init__(self, connection: Connection, record: Record, text: str) -> None:
        self._connection = connection
        self.record = record
        self.request = record.request
        self.text = text

    def send(
        self, data: bytes, *, status: int | None = None, usage: dict[str, int] | None = None
    ) -> None:
        """Write bytes; ``status`` and ``usage`` are what these bytes tell the client."""
        transport = self._connection.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if status is not None:
            self.record.status = status
        if usage is not None:
            self.record.usage = Tokens(**usage)

    async def flush(self) -> None:
        """Wait until nearly all that was written has left."""
        transport = self._connection.transport
        while transport.get_write_buffer_size() > 2**20 and not transport.is_closing():  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.001)

    def close(self, *, reset: bool = False) -> None:
        """Hang up: in order (after what was written), or with a RST."""
        self._connection.hang_up(reset=reset)


class Connection(asyncio.Protocol):
    """One client's connection: one request at a time, kept alive."""

    def __init__(self, server: FaultServer) -> None:
        self.transport: asyncio.Transport | None = None
        self._server = server
        self._buffer = bytearray()
        self._wanted = 0  # bytes, until which there is nothing to look at
        self._record: Record | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.connections.add(self)
        self._server.accepted += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self.transport = None
        if self._record is not None:  # nobody but the client: hang_up closes the record first
            self._server.hung_up += 1
            self._end("left")
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= self._wanted and self._record is None:
            self._read()

    def hang_up(self, *, reset: bool) -> None:
        """Close the connection; a request that is under way is cut."""
        if self._record is not None:
            self._end("cut")
        if self.transport is None:
            return
        if reset:
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _RESET
            )
            self.transport.abort()
        else:
            self.transport.close()

    def _read(self) -> None:
        """Answer the request at the beginning of the buffer, if it is there as a whole."""
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return
        _, *fields = head.split(b"\r\n")
        pairs = (field.partition(b":") for field in fields)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get(b"content-length", b"0"))
        if len(rest) < length:
            self._wanted = len(head) + 4 + length
            return
        self._buffer, self._wanted = bytearray(rest[length:]), 0
        key, traceparent = (
            headers.get(name, b"").decode("latin-1") for name in (b"authorization", b"traceparent")
        )
        request = replace(read_request(rest[:length], key), traceparent=traceparent)
        self._record = record = self._server.open(request)
        text = self._server.texts.get(request.model) or text_of(request)
        playing = FAULTS[record.fate].play(Exchange(self, record, text))
        if inspect.iscoroutine(playing):
            self._task = asyncio.get_running_loop().create_task(self._finish(playing))
        else:
            self._ended()

    async def _finish(self, playing: object) -> None:
        try:
            async with asyncio.timeout(LONGEST):
                await playing  # type: ignore[misc]
        except TimeoutError:
            self.hang_up(reset=False)
        self._task = None
        self._ended()

    def _ended(self) -> None:
        if self._record is not None:
            self._end("whole")
        if self._buffer and self.transport is not None:
            self._read()

    def _end(self, how: str) -> None:
        record, self._record = self._record, None
        record.ended = how
        if how != "whole":
            record.closed = asyncio.get_running_loop().time()


@asynccontextmanager
async def fault_server(
    script: Script, texts: Mapping[str, str] | None = None
) -> AsyncIterator[FaultServer]:
    """Serve a script on a free port of 127.0.0.1, in this event loop."""
    server = FaultServer(script, dict(texts or {}))
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server), "127.0.0.1", 0, backlog=1024
    )
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        for connection in list(server.connections):
            connection.hang_up(reset=True)
        await asyncio.sleep(0)


def dead_url() -> str:
    """An address where nobody listens (any more): connections are refused."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


# ── what it counted, and what we did ──────────────────────────────────────────────────────────────
def exact(usage: Usage) -> tuple[int, int, int, int, Decimal, int]:
    """All but the seconds."""
    tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens)
    return (*tokens, usage.dollars, usage.unpriced_calls)


def counted(
    server: FaultServer, prices: Mapping[str, Mapping[str, str]]
) -> tuple[int, int, int, int, Fraction, int]:
    """Return what the server says, in the same order."""
    used = server.usage()
    bills = [bill(price, server.usage(model)) for model, price in prices.items()]
    dollars = sum(bills, Fraction(0))
    return used.input, used.cached, used.output, used.reasoning, dollars, server.unreported()


def bill(price: Mapping[str, str], tokens: Tokens) -> Fraction:
    dollars = {name: Fraction(amount) for name, amount in price.items()}
    read = (tokens.input - tokens.cached) * dollars["input"]
    cached = tokens.cached * dollars.get("cached", dollars["input"])
    return (read + cached + tokens.output * dollars["output"]) / 10**6
