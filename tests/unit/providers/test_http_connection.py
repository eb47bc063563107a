"""One connection without a network: framing however the bytes are cut, and the end of exchanges."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from openconductor.errors import (
    ConnectionLost,
    MalformedResponse,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)
from openconductor.providers.wire import http_connection
from openconductor.providers.wire.http_connection import (
    BUFFER_BYTES,
    OVERHEAD_BYTES,
    Connection,
    Connections,
)

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Wire:
    """Stands in for a transport."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closing = False
        self.unsent = 0

    def writelines(self, data: Sequence[bytes]) -> None:
        self.sent.append(b"".join(data))

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Line:
    """A connection, its wire, and what its owner heard."""

    def __init__(self, *heard: bytes, silence_s: float | None = None) -> None:
        """With what it heard, if anything, as the answer to a request."""
        self.wire = Wire()
        self.owner = Connections()
        self.connection = Connection(self.owner, silence_s)
        self.connection.connection_made(cast("asyncio.Transport", self.wire))
        if heard:
            self.ask()
        for data in heard:
            self.hear(data)

    @property
    def kept(self) -> bool:
        """Whether it waits for the next request."""
        return self.owner.idle == [self.connection] and self.connection.usable

    def ask(self) -> None:
        self.owner.idle.clear()
        self.connection.send(b"HEAD ", b"body")

    def end(self) -> None:
        with self.connection:
            pass

    def hear(self, data: bytes) -> None:
        for start in range(0, len(data), BUFFER_BYTES):
            piece = data[start : start + BUFFER_BYTES]
            self.connection.get_buffer(-1)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))

    def lose(self, error: Exception | None = None) -> None:
        self.connection.connection_lost(error)

    async def read(self) -> tuple[int, bytes]:
        await self.connection.answered()
        return self.connection.status, await self.connection.whole()

    async def fail(self) -> WorkerError:
        with pytest.raises(WorkerError) as caught:
            await self.read()
        return caught.value


# ── what is read ──────────────────────────────────────────────────────────────────────────────────
RESPONSES = [
    (SHORT, b"{}"),
    (OK + b"Content-Length: 0\r\n\r\n", b""),
    (CHUNKED + b"2\r\n{}\r\n3;why=not\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n", b"{}abc"),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + SHORT, b"{}"),
    (b"HTTP/1.1 200\nContent-Length: 2\n\n{}", b"{}"),
    (OK + b"X-Odd: \xe9\x01\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    (CHUNKED + b"2  \r\n{}\r\n0\r\n\r\n", b"{}"),
]


@pytest.mark.parametrize(("data", "body"), RESPONSES)
async def test_a_response_is_read_and_its_connection_kept(data: bytes, body: bytes) -> None:
    line = Line()
    for _ in range(3):
        line.ask()
        line.hear(data)
        assert await line.read() == (200, body)
        line.end()
        assert line.connection.usable
    assert line.kept
    assert line.wire.sent == [b"HEAD body"] * 3


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes, list[int]]:
    """(what is on the wire, the body, where it is cut)."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    if draw(st.booleans()):
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        wire = CHUNKED + chunks + b"0\r\n\r\n"
    else:
        wire = OK + b"X: y\r\nContent-Length: %d\r\n\r\n" % len(b"".join(pieces)) + b"".join(pieces)
    cuts = draw(st.lists(st.integers(0, len(wire)), max_size=12))
    return wire, b"".join(pieces), sorted(cuts)


def cut(wire: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *cuts, len(wire)]
    return [wire[a:b] for a, b in itertools.pairwise(edges) if a < b]


@settings(max_examples=300)
@given(responses(), st.booleans())
def test_a_response_is_the_same_however_its_bytes_are_cut(
    response: tuple[bytes, bytes, list[int]], read_along: bool
) -> None:
    wire, body, cuts = response

    async def play() -> None:
        line = Line()
        line.ask()
        reading = asyncio.create_task(line.read()) if read_along else None
        for piece in cut(wire, cuts):
            line.hear(piece)
            await asyncio.sleep(0)
        assert await (reading or line.read()) == (200, body)
        line.end()
        assert line.kept

    asyncio.run(play())


@settings(max_examples=300)
@given(responses(), st.data())
def test_a_response_that_breaks_off_is_never_taken_for_a_whole_one(
    response: tuple[bytes, bytes, list[int]], data: st.DataObject
) -> None:
    wire, _, cuts = response
    short = wire[: data.draw(st.integers(0, len(wire) - 1))]

    async def play() -> None:
        line = Line()
        line.ask()
        for piece in cut(short, [edge for edge in cuts if edge <= len(short)]):
            line.hear(piece)
        line.lose()
        error = await line.fail()
        assert isinstance(error, ConnectionLost if short else Unreachable)
        line.end()
        assert not line.kept

    asyncio.run(play())


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_comes_ends_in_a_response_or_a_typed_error(head: bytes, tail: bytes) -> None:
    async def play() -> None:
        for data in (head, OK + head, CHUNKED + head, SHORT + head):
            line = Line(data)
            line.hear(tail)
            line.lose()
            with contextlib.suppress(WorkerError):
                await line.read()
            line.end()
            assert not line.connection.usable

    asyncio.run(play())


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset by peer")])
async def test_a_body_without_a_length_ends_with_its_connection_unless_that_is_reset(
    error: Exception | None,
) -> None:
    line = Line(OK + b"\r\n{", b"}")
    line.lose(error)
    if error is None:
        assert await line.read() == (200, b"{}")
    else:
        assert type(await line.fail()) is ConnectionLost
    line.end()
    assert not line.kept


# ── what is wrong ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/9 200 OK\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 99999999999999999999999\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"2\r\n{}no\r\n",
    ],
)
async def test_what_is_no_http_is_malformed(data: bytes) -> None:
    line = Line(data)
    assert type(await line.fail()) is MalformedResponse
    line.end()
    assert line.wire.closing
    assert not line.kept


@pytest.mark.parametrize(
    "pieces",
    [
        [OK, b"X: " + b"x" * OVERHEAD_BYTES],
        [OK, *[b"X: y\r\n"] * (OVERHEAD_BYTES // 5)],
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * (OVERHEAD_BYTES // 20),
        [CHUNKED, *[b"1;" + b"x" * 300 + b"\r\nx\r\n"] * (OVERHEAD_BYTES // 200)],
        [CHUNKED, b"2\r\n{}\r\n0\r\nX: ", *[b"x" * 1000] * (OVERHEAD_BYTES // 900)],
    ],
    ids=["a long header", "many headers", "many heads", "long sizes of chunks", "a long trailer"],
)
async def test_what_is_not_body_is_bounded(pieces: list[bytes]) -> None:
    line = Line()
    line.ask()
    for piece in pieces:
        line.hear(piece)
    assert line.wire.closing
    assert type(await line.fail()) is MalformedResponse


async def test_a_connection_that_is_closed_says_how_far_it_had_come() -> None:
    reset = ConnectionResetError(104, "Connection reset by peer")
    for sent, error, kind, words in (
        (b"", None, Unreachable, "without a response"),
        (b"", reset, Unreachable, "reset by peer"),
        (b"HTTP/1.1 20", None, ConnectionLost, "within the headers"),
        (b"HTTP/1.1 20", reset, Unreachable, "reset by peer"),
        (SHORT[:-1], None, ConnectionLost, "broke off"),
        (SHORT[:-1], reset, ConnectionLost, "reset by peer"),
    ):
        line = Line(sent)
        line.lose(error)
        failed = await line.fail()
        assert type(failed) is kind
        assert words in str(failed)
        assert failed.retryable
        assert failed.status == (200 if "{" in sent.decode() else None)


async def test_only_a_request_that_did_not_go_out_is_known_to_be_unbilled() -> None:
    for sent in (False, True):
        line = Line()
        for step in (line.ask, line.lose) if sent else (line.lose, line.ask):
            step()
        error = await line.fail()
        assert (type(error), error.sent, error.unbilled, bool(line.wire.sent)) == (
            Unreachable,
            sent,
            not sent,
            sent,
        )


async def test_what_came_before_a_fault_is_read_before_it_is_raised() -> None:
    line = Line(CHUNKED + b"2\r\n{}\r\n")
    line.hear(b"zz\r\n")
    await line.connection.answered()
    assert await line.connection.piece() == b"{}"
    with pytest.raises(MalformedResponse):
        await line.connection.piece()


# ── nothing is ever taken for the answer to another request ───────────────────────────────────────
SECOND = b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]"


@pytest.mark.parametrize(
    ("pieces", "unsent"),
    [
        ((SHORT + SECOND,), 0),
        ((SHORT, SECOND), 0),
        ((SHORT,), 7),
        ((OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",), 0),
        ((SHORT.replace(b"1.1", b"1.0"),), 0),
    ],
    ids=[
        "a second answer",
        "bytes after the end",
        "a request not sent whole",
        "a server that closes",
        "HTTP/1.0",
    ],
)
async def test_a_whole_answer_may_leave_a_connection_that_is_not_kept(
    pieces: tuple[bytes, ...], unsent: int
) -> None:
    line = Line(*pieces)
    line.wire.unsent = unsent
    assert await line.read() == (200, b"{}")
    line.end()
    assert not line.kept
    assert line.wire.closing


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    line = Line()
    line.hear(SHORT)
    assert line.wire.closing
    assert not line.connection.usable


async def test_an_exchange_that_was_left_before_its_end_closes_the_connection() -> None:
    line = Line(SHORT[:-1])
    await line.connection.answered()
    line.end()
    line.hear(SHORT[-1:])
    assert not line.kept
    assert line.wire.closing


# ── the clock ─────────────────────────────────────────────────────────────────────────────────────
def test_a_silence_ends_an_exchange_and_bytes_break_it(in_virtual_time: Runs) -> None:
    async def play() -> None:
        loop, line = asyncio.get_running_loop(), Line(silence_s=3)
        began = loop.time()
        line.ask()
        reading = asyncio.create_task(line.fail())
        for byte in SHORT[:-1]:
            await asyncio.sleep(2)
            line.hear(bytes([byte]))
        assert "silent for 3 s" in str(await reading)
        assert loop.time() == pytest.approx(began + 2 * len(SHORT[:-1]) + 3)

    in_virtual_time(play())


def test_it_is_no_silence_of_the_server_while_the_request_is_under_way(
    in_virtual_time: Runs,
) -> None:
    async def play() -> None:
        line = Line(silence_s=3)
        line.ask()
        line.wire.unsent = 1
        reading = asyncio.create_task(line.fail())
        await asyncio.sleep(30)
        assert not reading.done()
        line.wire.unsent = 0
        assert type(await reading) is WorkerTimeout

    in_virtual_time(play())


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────
async def test_a_packed_body_is_malformed_since_nobody_asked_for_one() -> None:
    for coding in (b"gzip", b"br", b"sk-canary-7f3b1c"):
        with pytest.raises(MalformedResponse, match="content encoding") as caught:
            await Line(
                OK + b"Content-Encoding: " + coding + b"\r\nContent-Length: 2\r\n\r\n{}"
            ).read()
        assert (caught.value.status, caught.value.__context__) == (200, None)
        assert "canary" not in str(caught.value)
    assert (await Line(OK + b"Content-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}").read())[
        1
    ] == b"{}"


async def test_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_RESPONSE_BYTES", 10_000)
    with pytest.raises(MalformedResponse, match="at most 10000") as caught:
        await Line(OK + b"Content-Length: 20000\r\n\r\n" + bytes(20_000)).read()
    assert not caught.value.retryable


async def test_a_reset_that_is_already_on_its_way_up_is_waited_for_and_named() -> None:
    """asyncio marks the transport as closing one turn of the loop before it says why."""
    line = Line(b"HTTP/1.1 200 Sa")
    line.wire.closing = True
    answered = asyncio.create_task(line.connection.answered())
    await asyncio.sleep(0)
    line.lose(ConnectionResetError("reset by peer"))
    with pytest.raises(Unreachable, match="reset by peer"):
        await asyncio.wait_for(answered, 5)
