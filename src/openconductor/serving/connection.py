"""A client's connection and its body: timeouts, and limits of size."""

from __future__ import annotations

import asyncio
import json
import math
import re
import weakref
from collections.abc import Callable
from typing import Never

from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openconductor.serving.apis.wire import Json, RequestFailed
from openconductor.types import is_array, is_object

STALLED_S = 60.0
"""Seconds that a client has for its head, between pieces of its body, and to go on reading."""

_DEEPEST = 100  # levels of a body: the store and others descend into them
_MOST_VALUES = 100_000  # in a body
_HEAD_BYTES = 65_536
_CONNECTION = "openconductor.connection"  # key of the scope's extensions
_OFFER = re.compile(rb"(?i)\r\n(?:upgrade|http2-settings):[^\r\n]*")


class ClientConnection(HttpToolsProtocol):
    """Disconnects a client that does not finish its request in time or size, or does not read.

    It also disconnects a client that sends a request before it has its answer: uvicorn would stop
    reading, and not notice that it leaves. Headers that come after a chunked body are ignored.
    """

    _timeout: asyncio.TimerHandle | None = None
    _beside_body = 0  # bytes that arrived since the last piece of a body
    _cancel: Callable[[], None] | None = None  # ends the request under way

    def _start_timeout(self) -> None:
        self._stop_timeout()
        self._timeout = self.loop.call_later(STALLED_S, self.transport.abort)

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _is_busy(self) -> bool:
        """Return True while a request is under way."""
        return bool(self.cycle and not self.cycle.response_complete)

    def when_lost(self, cancel: Callable[[], None]) -> None:
        """Call ``cancel`` if the client leaves before it has its answer, or has left already."""
        self._cancel = cancel
        if self.cycle.disconnected:
            cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for a head."""
        super().connection_made(transport)
        self._start_timeout()

    def data_received(self, data: bytes) -> None:
        """Limit the bytes of a head and of a trailer, and remove a head's offer of HTTP/2.

        Java's client makes this offer, after which a body would not be HTTP/1.
        """
        end = -1 if self._is_busy() else data.find(b"\r\n\r\n")
        if end > 0:
            data = _OFFER.sub(b"", data[:end]) + data[end:]
        self._beside_body += len(data)
        super().data_received(data)
        if self._beside_body > _HEAD_BYTES:
            self.send_400_response("The head or the trailer of the request is too large.")
        elif self._timeout is None and not self._is_busy():
            self._start_timeout()  # uvicorn's own ended with the first byte

    def on_headers_complete(self) -> None:
        """End the wait for the head."""
        self._stop_timeout()
        self._beside_body = 0
        if self._is_busy():
            self.transport.abort()
        else:
            # Not the connection itself: nobody but the collector would free what holds itself.
            self.scope["extensions"] = {_CONNECTION: weakref.proxy(self)}
            super().on_headers_complete()
        self.headers = []  # what follows the body is not the request's

    def on_body(self, body: bytes) -> None:
        """Take in a piece of the body."""
        self._beside_body = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Give a client that has its answer a while to end its body."""
        self._cancel = None
        super().on_response_complete()
        if self.cycle.more_body:
            self._start_timeout()

    def pause_writing(self) -> None:
        """Wait for a client that reads more slowly than the server writes."""
        super().pause_writing()
        self._start_timeout()

    def resume_writing(self) -> None:
        """End the wait: the client has caught up."""
        self._stop_timeout()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait and the request under way: the client is gone."""
        self._stop_timeout()
        if self._cancel is not None:
            self._cancel()
        super().connection_lost(exc)


def connection_of(scope: Scope) -> ClientConnection | None:
    """Return the connection that a request came over; None: another server runs the app."""
    return scope.get("extensions", {}).get(_CONNECTION)


async def receive_json(receive: Receive, limit_mb: int) -> Json:
    """Return the body of a request, as a JSON object.

    Raises:
        RequestFailed: it stalls, is larger than ``limit_mb`` million bytes, or is not a JSON
            object.
    """
    limit = limit_mb * 1_000_000
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        try:
            async with asyncio.timeout(STALLED_S):
                message = await receive()
        except TimeoutError:
            problem = f"the body: nothing arrived for {STALLED_S:g} s"
            raise RequestFailed(408, "request_timeout", problem) from None
        if message["type"] == "http.disconnect":
            raise RequestFailed(499, "cancelled", "the client closed the connection")
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        more = message.get("more_body", False)
        if size > limit:
            problem = f"the body: larger than {limit_mb:g} MB, the server's body_mb"
            raise RequestFailed(413, "request_too_large", problem)
    try:
        data = _parse(b"".join(pieces).decode("utf-8-sig"))
        if not is_object(data):
            raise ValueError(f"got {type(data).__name__}")
    except (ValueError, RecursionError) as error:
        problem = f"the body: {error}; expected a JSON object"
        raise RequestFailed(400, "invalid_json", problem) from None
    return data


def _parse(text: str) -> object:
    """Parse JSON, with ? in place of halves of characters and NULs, which others could not write.

    Raises:
        ValueError, RecursionError: it is not JSON, or has too many levels or values.
    """
    parsed: object = json.loads(text, parse_constant=_reject, parse_float=_finite)
    levels = text.count("[") + text.count("{")
    if len(text) <= _MOST_VALUES and levels <= _DEEPEST and "\\u" not in text:
        return parsed  # too short for what is rejected, and without an escape of what is replaced
    values_left = iter(range(_MOST_VALUES))

    def check(value: object, level: int) -> object:
        if level > _DEEPEST or next(values_left, None) is None:
            raise ValueError(f"got more than {_DEEPEST} levels or {_MOST_VALUES} values")
        if isinstance(value, str):
            return _encodable(value)
        if is_object(value):
            return {_encodable(key): check(inner, level + 1) for key, inner in value.items()}
        if is_array(value):
            return [check(inner, level + 1) for inner in value]
        return value

    return check(parsed, 1)


def _encodable(text: str) -> str:
    return text.replace("\0", "?").encode("utf-8", "replace").decode()


def _reject(name: str) -> Never:
    raise ValueError(f"{name[:20]} is not a number in JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _reject(number)
