"""Bodies of HTTP responses, bounded. In: aiohttp's response, its errors. Out: bytes, or the WorkerError that is meant.

What aiohttp raises is never passed on, and never the context of what is: its errors hold headers, and so the key.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import ContentEncodingError

from openconductor.errors import ConnectionLost, MalformedResponse, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.chat_failures import Secret, excerpt

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""A larger response is a failure: the longest answers of today's models are a hundred times smaller."""

MAX_ERROR_BYTES = 64 * 1024
CONNECT_SECONDS = 30.0
DRAIN_SECONDS = 0.1

BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What aiohttp raises of a connection, a request or a response."""

_NOT_HTTP = (aiohttp.ClientResponseError, HttpProcessingError)

# The body that is read on a connection, by the future that is done when the connection closes.
_READ: WeakKeyDictionary[asyncio.Future[None], aiohttp.StreamReader] = WeakKeyDictionary()


class ResponseBody:
    """The body of one response, read to its end in pieces or as a whole.

    Args:
        response: whose headers have come.
        secret: the key, to be kept out of messages.
        silence_s: the read timeout that the session was given, in seconds, for the message.
    """

    __slots__ = ("_content", "_received", "_response", "_secret", "_silence_s", "_watched")

    def __init__(self, response: aiohttp.ClientResponse, secret: Secret, silence_s: float | None) -> None:
        self._response = response
        self._content = response.content
        self._secret = secret
        self._silence_s = silence_s
        self._received = 0
        self._watched = False

    async def piece(self) -> bytes:
        """The next bytes, as they come; none at the end.

        Raises:
            ConnectionLost: the connection broke off, or the body is shorter than was said.
            MalformedResponse: the body breaks HTTP, or is larger than MAX_RESPONSE_BYTES.
            WorkerTimeout: the server was silent for too long.
        """
        if not (self._watched or self._content.is_eof()):
            self._watched = True
            _watch(self._response)
        try:
            data = await self._content.readany()
        except aiohttp.ServerTimeoutError:
            broken: WorkerError = WorkerTimeout(f"the server was silent for {self._silence_s} s")
        except (*BROKEN, RuntimeError) as error:  # aiohttp says RuntimeError of a connection that is already closed
            words = excerpt(_words(error), self._secret)
            if isinstance(error, _NOT_HTTP) or isinstance(error.__cause__, ContentEncodingError):
                broken = MalformedResponse(f"the response breaks HTTP: {words}", status=self._response.status)
            else:
                broken = ConnectionLost(f"the response broke off: {words}", status=self._response.status)
        else:
            self._received += len(data)
            if self._received > MAX_RESPONSE_BYTES:
                raise _too_large(self._received, self._response.status)
            return data
        raise broken

    async def whole(self) -> bytes:
        """All of it; raises as ``piece``."""
        if (announced := self._response.content_length or 0) > MAX_RESPONSE_BYTES:
            raise _too_large(announced, self._response.status)
        first = await self.piece()
        if self._content.at_eof():
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
        if self._content.at_eof():
            return
        with suppress(TimeoutError, WorkerError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self.piece():
                    pass


def no_response(error: Exception, secret: Secret, silence_s: float | None) -> WorkerError:
    """What it means that no response began; ``silence_s`` is the read timeout, in seconds."""
    words = excerpt(_words(error), secret)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable(f"no connection within {CONNECT_SECONDS} s")
    if isinstance(error, aiohttp.ServerTimeoutError):
        return WorkerTimeout(f"the server was silent for {silence_s} s")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Unreachable(f"no secure connection: {words}", retryable=False)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return Unreachable(f"no connection: {words}")
    if isinstance(error, _NOT_HTTP):
        return MalformedResponse(f"the response breaks HTTP: {words}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        if isinstance(error.message, str):
            return Unreachable("the server closed the connection without a response")
        return ConnectionLost("the connection was closed within the headers of the response")
    return Unreachable(f"no response: {words}")


def _watch(response: aiohttp.ClientResponse) -> None:
    """Wake the reader of this response when its connection closes.

    aiohttp (seen in 3.14) does not where a later piece of a chunked body breaks HTTP: it closes the connection, drops
    the read timeout, and the reader waits for ever.
    """
    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:  # the connection is already closed: then the next read says so
        return
    if closed not in _READ:
        closed.add_done_callback(_wake)  # once a connection, for it carries many responses
    _READ[closed] = response.content


def _wake(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()  # else asyncio complains that nobody asked for it
    content = _READ.pop(closed, None)
    if content is not None and not content.is_eof() and content.exception() is None:
        content.set_exception(HttpProcessingError(message="the framing of a chunk"))


def _too_large(received: int, status: int) -> MalformedResponse:
    words = f"a response of {received} bytes or more, expected at most {MAX_RESPONSE_BYTES}"
    return MalformedResponse(words, status=status, retryable=False)


def _words(error: Exception) -> str:
    # Not str() of every kind: a ClientResponseError's would do, but its repr holds the request's headers.
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
