"""Responses, bounded and decoded. In: a connection whose response has begun. Out: its body, or what was wrong."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from openconductor.errors import ConnectionLost, MalformedResponse, WorkerError
from openconductor.providers.http_connection import Connection
from openconductor.providers.http_request import Headers

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""A larger response is a failure: the longest answers of today's models are a hundred times smaller."""

MAX_ERROR_BYTES = 64 * 1024
DRAIN_SECONDS = 0.1


class Response:
    """A response, in a ``with`` block: one that is not read to its end closes its connection.

    Args:
        connection: whose response has begun.

    Attributes:
        status: its status.
        headers: its headers.
    """

    __slots__ = ("_connection", "_decoder", "_received", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status: int = connection.status
        self.headers: Headers = connection.headers
        self._received = 0
        coding = self.headers.find(b"content-encoding").lower()
        self._decoder = None if coding in ("", "identity") else Decoder(coding)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.end()

    @property
    def content_type(self) -> str:
        """What the body is said to be, in small letters, without parameters; JSON where nothing is said."""
        return (self.headers.find(b"content-type") or "application/json").partition(";")[0].strip().lower()

    async def piece(self) -> bytes:
        """The next bytes, decoded, as they come; none at the end.

        Raises:
            ConnectionLost: the connection broke off, or the body is shorter than was said.
            MalformedResponse: the body breaks HTTP, is not encoded as it says, or is larger than MAX_RESPONSE_BYTES.
            WorkerTimeout: the deadline passed, or the server was silent for too long.
        """
        while True:
            data = await self._connection.piece()
            ended = not data
            if self._decoder is not None:
                data = self._decoded(self._decoder, data)
            self._received += len(data)
            if self._received > MAX_RESPONSE_BYTES:
                raise self._too_large(self._received)
            if data or ended:
                return data

    async def whole(self) -> bytes:
        """All of it; raises as ``piece``."""
        announced = int(self.headers.find(b"content-length") or 0)
        if announced > MAX_RESPONSE_BYTES:
            raise self._too_large(announced)
        first = await self.piece()
        if self._decoder is None and self._connection.at_end:
            return first
        pieces = [first]
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
        """Read on to the end, so that the connection is kept; a server that dawdles loses it."""
        if self._connection.at_end:
            return
        self._connection.hurry(asyncio.get_running_loop().time() + DRAIN_SECONDS)
        with suppress(WorkerError):
            while await self.piece():
                pass

    def _decoded(self, decoder: Decoder, data: bytes) -> bytes:
        try:
            return decoder.decode(data, MAX_RESPONSE_BYTES + 1 - self._received)
        except (ValueError, zlib.error) as error:
            words = str(error)
        raise MalformedResponse(f"the response breaks HTTP: content encoding: {words}", status=self.status)

    def _too_large(self, size: int) -> MalformedResponse:
        words = f"a response of {size} bytes or more, expected at most {MAX_RESPONSE_BYTES}"
        return MalformedResponse(words, status=self.status, retryable=False)


class _Inflater(Protocol):
    """What ``zlib.decompressobj`` makes."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class Decoder:
    """Undoes a content encoding, piece by piece, and never writes more than it is allowed to.

    Args:
        coding: ``gzip`` or ``deflate`` (zlib's format, or the bare one that some servers send under this name);
            anything else is refused as soon as there is something to decode.
    """

    __slots__ = ("_coding", "_inflater", "_some")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflater: _Inflater | None = None
        self._some = False

    def decode(self, data: bytes, most: int) -> bytes:
        """The decoded bytes of a piece, of which an empty one is the end; at most about ``most`` of them.

        Raises:
            ValueError: the encoding is not known, or what came is cut.
            zlib.error: it is none.
        """
        if not data:
            if self._some and (self._inflater is None or not self._inflater.eof):
                raise ValueError("cut before its end")
            return b""
        self._some = True
        decoded: list[bytes] = []
        room = max(1, most)
        while data and room > 0:
            if self._inflater is None or self._inflater.eof:  # gzip: one member may follow another
                self._inflater = self._inflate(data)
            piece = self._inflater.decompress(data, room)
            decoded.append(piece)
            room -= len(piece)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
            if self._inflater.eof and self._coding == "deflate":
                break
        return b"".join(decoded)

    def _inflate(self, data: bytes) -> _Inflater:
        if self._coding in ("gzip", "x-gzip"):
            return zlib.decompressobj(wbits=31)
        if self._coding == "deflate":
            return zlib.decompressobj(wbits=15 if data[0] & 0x0F == 8 else -15)
        raise ValueError("neither gzip nor deflate")  # the server's word for it is not quoted: it may hold a key
