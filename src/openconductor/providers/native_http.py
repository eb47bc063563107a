"""What a vendor's SDK sends, sent exactly. In: a request of an SDK. Out: one request of ours, and its response.

An ``httpx2`` transport over our own connections: one HTTP client, with its bounds and its strictness, carries all
providers. Of the SDK's request it takes the turns and nothing else: address, headers, key and knobs are those of the
call. It sends one request a call and no second, whatever an SDK would repeat or resume on its own; and it reads along,
so that a failure is known by what the server said and not by how an SDK stumbles over it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

import httpx2

from openconductor.errors import EmptyResponse, OpenConductorError, WorkerError, WrongContentType
from openconductor.providers.chat_failures import Secret, excerpt, failure, retry_after
from openconductor.providers.chat_wire import encode, read_object
from openconductor.providers.event_stream import EventStream
from openconductor.providers.http_body import Response
from openconductor.providers.http_session import Sessions
from openconductor.providers.native_wire import Json, Watch, Wire
from openconductor.types import Sampling

_STREAM = "text/event-stream"


class Stumbled(httpx2.TransportError):
    """Unwinds an SDK; what happened is ``Exchange.failure``."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One call: what it is to send, what it sent, what it saw.

    Attributes:
        wire, base_url, model, sampling, stream, secret: the call's.
        sessions: the connections.
        body_sent: the body that went out; None where none did.
        failure: why the call cannot succeed.
        watch: what the response has said of itself.
    """

    wire: Wire
    base_url: str
    model: str
    sampling: Sampling
    stream: bool
    secret: Secret
    sessions: Sessions
    body_sent: dict[str, object] | None = None
    failure: OpenConductorError | None = None
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = self.wire.watch(self.secret)

    async def send(self, content: bytes) -> httpx2.Response:
        """Send the turns in an SDK's request, and give it the response; raises Stumbled where that fails."""
        try:
            if self.body_sent is not None:
                raise WorkerError("the client library asked for a second request in one call", retryable=False)
            conversation = cast(Json, json.loads(content))
            body = self.wire.body(self.model, conversation, self.sampling, stream=self.stream)
            payload = encode(body)
            self.body_sent = body
            with ExitStack() as stack:
                response = stack.enter_context(await self._post(payload))
                answer = await self._answer(response)
                if answer is not None:
                    return httpx2.Response(200, headers={"content-type": "application/json"}, content=answer)
                # A response that is not read to its end closes its connection.
                events = _Events(self._events(response, stack.pop_all()))
                return httpx2.Response(200, headers={"content-type": _STREAM}, stream=events)
        except OpenConductorError as error:
            failed = error
        raise self._failed(failed)

    async def _post(self, payload: bytes) -> Response:
        url = self.wire.url(self.base_url, self.model, stream=self.stream)
        started = asyncio.get_running_loop().time()
        return await self.sessions.send(url, payload, self._fields, started=started)

    def _fields(self) -> str:
        headers = {"Content-Type": "application/json", "User-Agent": "openconductor", **self.wire.headers(self.secret)}
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def _answer(self, response: Response) -> bytes | None:
        """The whole response, checked, for the SDK; None where it is a stream, as it should be."""
        if not 200 <= response.status < 300:
            start, wait = await response.start(), retry_after(response.headers)
            raise failure(response.status, start, wait=wait, secret=self.secret)
        kind = response.content_type
        if self.stream and kind == _STREAM:
            return None
        if self.stream or "json" not in kind:
            wanted = "an event stream" if self.stream else "JSON"
            start, named = excerpt(await response.start(), self.secret), excerpt(kind, self.secret)
            words = f"status {response.status}, content type {named!r}, expected {wanted}: {start!r}"
            raise WrongContentType(words, status=response.status)
        whole = await response.whole()
        if not whole.strip():
            raise EmptyResponse("status 200 and an empty body", status=200)
        said = read_object(whole, secret=self.secret)
        self.watch.body(said)
        return json.dumps(self.watch.for_the_library(said)).encode()

    async def _events(self, response: Response, stack: ExitStack) -> AsyncGenerator[bytes]:
        """The events of a stream, each seen before the SDK sees it."""
        split = EventStream()
        with stack:
            try:
                while piece := await response.piece():
                    for data in split.feed(piece):
                        if data.strip():
                            event, last = self._event(data)
                            yield event
                            if last:
                                await response.drain()
                                return
                if (rest := split.end()) is not None and rest.strip():
                    yield self._event(rest)[0]
                return
            except WorkerError as error:
                failed = error
        raise self._failed(failed)

    def _event(self, data: bytes) -> tuple[bytes, bool]:
        """An event as SDKs expect it, with its type as its name; and whether nothing can follow."""
        said = read_object(data, secret=self.secret)
        last = self.watch.event(said)
        kind = said.get("type")
        name = f"event: {kind}\n" if isinstance(kind, str) and kind.isidentifier() else ""
        return name.encode() + b"data: " + json.dumps(self.watch.for_the_library(said)).encode() + b"\n\n", last

    def _failed(self, error: OpenConductorError) -> Stumbled:
        if self.failure is None:
            self.failure = error
        return Stumbled("see the exchange's failure")


class _Events(httpx2.AsyncByteStream):
    """The events of a stream as a body."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    async def aclose(self) -> None:
        await self._events.aclose()


CURRENT: ContextVar[Exchange] = ContextVar("exchange")
"""The call that the running task is in, for the transport below the SDK."""


class ExactTransport(httpx2.AsyncBaseTransport):
    """Hands each request of an SDK to the call that it belongs to."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send what the call is to send, instead of what the SDK asks for."""
        return await CURRENT.get().send(await request.aread())
