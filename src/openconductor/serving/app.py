"""The server: HTTP in front of the gateway, and the process that serves until it is told to stop.

In: a gateway, keys, a config. Out: an ASGI app, and ``run``, which blocks. A client that goes away
ends its episode, streamed or not; one that sends a head without end, or that does not read, is let
go.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import re
import time
import uuid
from dataclasses import dataclass
from types import FrameType
from typing import Any, Never, cast

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openconductor.errors import JournalError, OpenConductorError
from openconductor.serving.apis.chat import CHAT
from openconductor.serving.apis.messages import MESSAGES, count_tokens
from openconductor.serving.apis.openapi import openapi
from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import Api, Json, RequestFailed, as_json, failed
from openconductor.serving.gateway import Gateway, Turn
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import ServeConfig

APIS: tuple[Api, ...] = (CHAT, RESPONSES, MESSAGES)

_RETRIED = frozenset(
    {429, 503}
)  # what a client may send again without paying twice: nothing had been done
_STALLED_S = (
    60.0  # how long a client may take for its head, between pieces of its body, or without reading
)
_DEEPEST = (
    100  # lists and objects in one another in a body: the journal and others go down into them
)
_MOST = 100_000  # values in a body
_ENDS_AT_ONCE = 5.0  # seconds that a turn has to come to its end once it is cancelled
_HEAD_BYTES = 65_536  # of a request, before its body
_OFFER = re.compile(rb"(?i)\r\n(?:upgrade|http2-settings):[^\r\n]*")

log = logging.getLogger("openconductor.serving")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API's path: reads a request, opens its turn, and sends the answer, whole or as a stream."""

    api: Api
    gateway: Gateway
    keys: KeyRing
    config: ServeConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began, status, model = time.monotonic(), 200, "unknown"
        turn: Turn | None = None
        watch: asyncio.Task[None] | None = None
        try:
            headers = Headers(scope=scope)
            tenant = self.keys.find(headers)
            # A browser lets any page send a request, and only keeps the answer from it.
            if (origin := headers.get("origin")) is not None and not {origin, "*"} & {
                *self.config.origins
            }:
                raise RequestFailed(
                    403,
                    "origin_not_allowed",
                    f"origin: got {origin!r}, which `origins` does not list",
                )
            request = self.api.read(await _body(receive, self.config))
            if request.model in self.gateway.models:
                model = request.model
            turn = await self.gateway.open(request, tenant)
            watch = asyncio.create_task(_gone(turn, receive))
            with self.gateway.metrics.in_flight(self.api.name):
                if request.stream:
                    status = await self._stream(turn, send, began)
                else:
                    body = self.api.answer(request, await turn.answer(), created=turn.created)
                    self.gateway.metrics.first_byte(self.api.name, time.monotonic() - began)
                    await _Sent(body, headers=_named(turn.id))(scope, receive, send)
        except OpenConductorError as failure:
            error = failed(failure)
            status = error.status
            await _Sent(self.api.failure(error), status, _hints(error, turn))(scope, receive, send)
        finally:
            if watch is not None:
                watch.cancel()
            if turn is not None:
                turn.cancel()
                await turn.ended()
                if status != 200:
                    self.gateway.tidy()
            self.gateway.metrics.ended(self.api.name, model, status, time.monotonic() - began)

    async def _stream(self, turn: Turn, send: Send, began: float) -> int:
        """Send the answer as it comes to be; returns the status that it would have had as a whole."""

        async def put(data: bytes, *, more: bool = True) -> None:
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": more})

        head = MutableHeaders({"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache",
                               "x-accel-buffering": "no", **_named(turn.id)})  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": head.raw})
        stream, status = self.api.stream(turn.request, turn.id, created=turn.created), 200
        await put(stream.begin())
        self.gateway.metrics.first_byte(self.api.name, time.monotonic() - began)
        async for news in turn.happenings(self.config.heartbeat_s):
            if news is None:
                await put(stream.beat())
            else:
                part, text = news
                await put(stream.say(text) if part < 0 else stream.think(part, text))
        try:
            answer = await turn.answer()
            rest = turn.unsaid(answer)
            last = (stream.say(rest) if rest else b"") + stream.end(answer)
        except RequestFailed as error:
            status, last = error.status, stream.fail(error)
        await put(last, more=False)
        return status


class _Sent(JSONResponse):
    """JSON as every API sends it."""

    def render(self, content: object) -> bytes:
        return as_json(content)


async def _body(receive: Receive, config: ServeConfig) -> Json:
    """The body, as a JSON object.

    Raises:
        RequestFailed: it is too large, or is none.
    """
    pieces: list[bytes] = []
    limit, size, more = config.body_mb * 1_000_000, 0, True
    while more:
        try:
            async with asyncio.timeout(_STALLED_S):
                message = await receive()
        except TimeoutError:
            words = f"the body: nothing came for {_STALLED_S:g} s, expected the rest of it"
            raise RequestFailed(408, "request_timeout", words) from None
        if message["type"] == "http.disconnect":
            raise RequestFailed(499, "cancelled", "the client went away")
        pieces.append(message.get("body", b""))
        size, more = size + len(pieces[-1]), message.get("more_body", False)
        if size > limit:
            words = f"the body: got more than {limit} bytes, expected at most these"
            raise RequestFailed(413, "request_too_large", words)
    try:
        data = _parsed(b"".join(pieces).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RequestFailed(
            400, "invalid_json", f"the body: {error}; expected a JSON object"
        ) from None
    if not isinstance(data, dict):
        raise RequestFailed(
            400, "invalid_json", f"the body: got {type(data).__name__}, expected a JSON object"
        )
    return cast("Json", data)


def _parsed(text: str) -> object:
    """What JSON says, with ? for halves of characters and NULs, which what comes after could not write.

    Raises:
        ValueError, RecursionError: it is none, or more than is taken.
    """
    room = iter(range(_MOST))

    def read(value: object, level: int) -> object:
        if level > _DEEPEST or next(room, None) is None:
            raise ValueError(f"got more than {_DEEPEST} levels or {_MOST} values")
        if isinstance(value, dict):
            return {
                _sendable(key): read(inner, level + 1) for key, inner in cast("Json", value).items()
            }
        if isinstance(value, list):
            return [read(inner, level + 1) for inner in cast("list[object]", value)]
        return _sendable(value) if isinstance(value, str) else value

    return read(json.loads(text, parse_constant=_refuse, parse_float=_finite), 1)


def _sendable(text: str) -> str:
    return text.replace("\0", "?").encode("utf-8", "replace").decode()


async def _gone(turn: Turn, receive: Receive) -> None:
    """Cancel a turn when its client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    turn.cancel()


def _refuse(name: str) -> Never:
    raise ValueError(f"{name[:20]} is not a number in JSON")


def _finite(number: str) -> float:
    return value if math.isfinite(value := float(number)) else _refuse(number)


def _named(identifier: str) -> dict[str, str]:
    """The headers in which OpenAI's and Anthropic's clients look for a request's id."""
    return {"x-request-id": identifier, "request-id": identifier}


def _hints(error: RequestFailed, turn: Turn | None) -> dict[str, str]:
    """Headers of a failure: which request, when to try again, and whether a client should by itself."""
    headers = _named(turn.id if turn is not None and turn.id else uuid.uuid4().hex)
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    # The official clients repeat what failed with 409, 429 or 5xx by themselves: an episode that
    # was paid for is not.
    headers["x-should-retry"] = "true" if turn is None and error.status in _RETRIED else "false"
    return headers


# ── the other paths ───────────────────────────────────────────────────────────────────────────────
class _Pages:
    """What is not asked of a model."""

    def __init__(self, gateway: Gateway, keys: KeyRing, config: ServeConfig) -> None:
        self._gateway = gateway
        self._keys = keys
        self._config = config
        self._started = int(time.time())

    async def models(self, request: Request) -> Response:
        """``GET /v1/models``."""
        offered = self._gateway.offered(self._keys.find(request.headers))
        return _Sent({"object": "list", "data": [self._model(name) for name in offered]})

    async def model(self, request: Request) -> Response:
        """``GET /v1/models/NAME``."""
        name = request.path_params["name"]
        if name not in self._gateway.offered(self._keys.find(request.headers)):
            raise RequestFailed(
                404, "model_not_found", f"model: got {name!r}; GET /v1/models lists them"
            )
        return _Sent(self._model(name))

    async def episode(self, request: Request) -> Response:
        """``GET /v1/episodes/ID``: to the key that made it alone."""
        tenant, identifier = self._keys.find(request.headers), request.path_params["identifier"]
        await self._gateway.journal.wait_durable()  # one that has just begun is in it, too
        told = await asyncio.to_thread(self._gateway.episode, identifier, tenant)
        if told is None:
            raise RequestFailed(404, "episode_not_found", "there is no such episode of this key")
        return _Sent(told)

    async def count(self, request: Request) -> Response:
        """``POST /v1/messages/count_tokens``: an estimate, which asks nobody."""
        self._keys.find(request.headers)
        return _Sent(count_tokens(await _body(request.receive, self._config)))

    async def live(self, request: Request) -> Response:
        """``GET /health/live``: the process answers."""
        return _Sent({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """``GET /health/ready``: new requests are taken, and what is answered can be kept."""
        try:
            await self._gateway.journal.wait_durable()
        except JournalError:
            return _Sent({"status": "the journal cannot be written"}, 503)
        if self._gateway.draining:
            return _Sent({"status": "shutting down"}, 503)
        return _Sent({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, for Prometheus."""
        return Response(
            self._gateway.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def openapi(self, request: Request) -> Response:
        """``GET /openapi.json``: what the server takes and answers."""
        return _Sent(openapi(APIS))

    def _model(self, name: str) -> Json:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "openconductor",
        }


def build_app(gateway: Gateway, keys: KeyRing, config: ServeConfig) -> Starlette:
    """The ASGI app."""
    pages = _Pages(gateway, keys, config)
    routes = [
        Route(api.path, Endpoint(api, gateway, keys, config), methods=["POST"]) for api in APIS
    ]
    routes += [
        Route("/v1/messages/count_tokens", pages.count, methods=["POST"]),
        Route("/v1/models", pages.models),
        Route("/v1/models/{name:path}", pages.model),
        Route("/v1/episodes/{identifier}", pages.episode),
        Route("/health/live", pages.live),
        Route("/health/ready", pages.ready),
        Route("/metrics", pages.metrics),
        Route("/openapi.json", pages.openapi),
    ]
    cors = Middleware(
        CORSMiddleware, allow_origins=config.origins, allow_methods=("GET", "POST"), allow_headers=("*",),
        expose_headers=("x-request-id",),
    )  # fmt: skip
    handlers = {RequestFailed: _failure, 404: _not_found, 405: _not_found, Exception: _fault}
    app = Starlette(
        routes=routes,
        middleware=[cors] if config.origins else [],
        exception_handlers=cast("Any", handlers),
    )
    app.router.redirect_slashes = False  # to an address that the client's Host header says
    return app


async def _failure(request: Request, error: Exception) -> Response:
    """A failure, in the form of the API whose path it is about."""
    failure = cast("RequestFailed", error)
    api = next((one for one in APIS if request.url.path.startswith(one.path)), CHAT)
    return _Sent(api.failure(failure), failure.status, headers=_hints(failure, None))


async def _not_found(request: Request, error: Exception) -> Response:
    status = cast("Any", error).status_code
    words = f"{request.method} {request.url.path}: there is nothing; POST to one of {[api.path for api in APIS]}"
    return await _failure(
        request,
        RequestFailed(status, "not_found" if status == 404 else "method_not_allowed", words),
    )


async def _fault(request: Request, error: Exception) -> Response:
    log.error(
        "%s %s failed by a fault of the server", request.method, request.url.path, exc_info=error
    )
    return await _failure(
        request, RequestFailed(500, "internal_error", "a fault of the server; its log says more")
    )


# ── the process ───────────────────────────────────────────────────────────────────────────────────
class ClientConnection(HttpToolsProtocol):
    """Ends with a client that sends a head without end, or does not get on with it, or does not read.

    And with one that sends a request before it has its answer: uvicorn would read no more, and not
    see it leave.
    """

    _stalled: asyncio.TimerHandle | None = None
    _head: int | None = 0  # bytes of the head that is coming; None where none is

    def _wait(self, *, head: int | None) -> None:
        """Give the client a while."""
        self._forgive()
        self._head, self._stalled = head, self.loop.call_later(_STALLED_S, self.transport.abort)

    def _forgive(self) -> None:
        self._head = None
        if self._stalled is not None:
            self._stalled.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A head is to come."""
        super().connection_made(transport)
        self._wait(head=0)

    def on_message_begin(self) -> None:
        """So it is with each further request."""
        super().on_message_begin()
        self._wait(head=0)

    def data_received(self, data: bytes) -> None:
        """Count what comes of a head, and leave out its offer of HTTP/2, behind which a body would be no HTTP/1."""
        busy = self.cycle and not self.cycle.response_complete
        if (
            not busy and (end := data.find(b"\r\n\r\n")) > 0
        ):  # Java's client makes it with its requests
            data = _OFFER.sub(b"", data[:end]) + data[end:]
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
    gc.freeze()  # what is there now stays: the collector need not look at it again and again,
    gc.set_threshold(10_000)  # and need not look at what a request makes before that is gone
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
