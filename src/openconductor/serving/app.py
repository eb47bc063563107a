"""The server: HTTP in front of the gateway.

In: a gateway, keys, a config. Out: an ASGI app. A client that goes away ends its episode, streamed or not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from openconductor.errors import JournalError
from openconductor.serving.apis.chat import CHAT
from openconductor.serving.apis.messages import MESSAGES, count_tokens
from openconductor.serving.apis.openapi import openapi
from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import AnswerStream, Api, Json, RequestFailed
from openconductor.serving.gateway import Gateway, Turn
from openconductor.serving.key_ring import KeyRing, Tenant

if TYPE_CHECKING:
    from openconductor.serving.serve_config import ServeConfig

APIS: tuple[Api, ...] = (CHAT, RESPONSES, MESSAGES)
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Scope = Mapping[str, Any]

_RETRIED = frozenset({429, 503})  # what a client may send again without paying twice: nothing had been done
STALLED_S = 60.0
"""How long a client may take for its head, between pieces of its body, or without reading."""
_DEEPEST = 100  # lists and objects in one another in a body: the journal and others go down into them
_MOST = 100_000  # values in a body
_HALF = re.compile(r"\\u([dD][89a-fA-F]|0000)")  # an escape that may be half a character, or none (NUL)
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")

log = logging.getLogger("openconductor.serving")


class Endpoint:
    """One API's path: reads a request, opens its turn, and sends the answer, whole or as a stream."""

    def __init__(self, api: Api, gateway: Gateway, keys: KeyRing, config: ServeConfig) -> None:
        self._api = api
        self._gateway = gateway
        self._keys = keys
        self._limit = int(config.body_mb * 1_000_000)
        self._heartbeat = config.heartbeat_s
        self._origins = config.origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began, status, model = time.monotonic(), 200, "unknown"
        turn: Turn | None = None
        try:
            headers = _headers(scope)
            tenant = self._keys.find(headers)
            # A browser lets any page send a request, and only keeps the answer from it.
            if (origin := headers.get("origin")) is not None and not {origin, "*"} & {*self._origins}:
                raise RequestFailed(403, "origin_not_allowed", f"origin: got {origin!r}, which `origins` does not list")
            request = self._api.read(await _body(receive, self._limit))
            if request.model in self._gateway.models:
                model = request.model
            turn = await self._gateway.open(request, tenant)
            with self._gateway.metrics.in_flight(self._api.name):
                status = await (self._stream if request.stream else self._whole)(turn, receive, send, began)
        except RequestFailed as error:
            status = error.status
            await _respond(send, status, self._api.failure(error), _hints(error, turn))
        finally:
            if turn is not None:
                turn.cancel()
                await turn.ended()
            self._gateway.metrics.ended(self._api.name, model, status, time.monotonic() - began)

    async def _whole(self, turn: Turn, receive: Receive, send: Send, began: float) -> int:
        watch = asyncio.create_task(_gone(turn, receive))
        try:
            answer = await turn.answer()
        finally:
            watch.cancel()
        body = self._api.answer(turn.request, answer, created=turn.created)
        self._gateway.metrics.first_byte(self._api.name, time.monotonic() - began)
        await _respond(send, 200, body, _named(turn.id))
        return 200

    async def _stream(self, turn: Turn, receive: Receive, send: Send, began: float) -> int:
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache",
                "x-accel-buffering": "no", **_named(turn.id)}  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": _raw(head)})
        stream = self._api.stream(turn.request, turn.id, created=turn.created)

        async def put(data: bytes) -> None:
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})

        watch, status = asyncio.create_task(_gone(turn, receive)), 200
        try:
            await put(stream.begin())
            self._gateway.metrics.first_byte(self._api.name, time.monotonic() - began)
            async for news in turn.happenings(self._heartbeat):
                await put(_written(stream, news))
            try:
                answer = await turn.answer()
                rest = turn.unsaid(answer)
                await put((stream.say(rest) if rest else b"") + stream.end(answer))
            except RequestFailed as error:
                status = error.status
                await put(stream.fail(error))
        finally:
            watch.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return status


async def _body(receive: Receive, limit: int) -> Json:
    """The body, as a JSON object.

    Raises:
        RequestFailed: it is too large, or is none.
    """
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(STALLED_S):
                message = await receive()
        except TimeoutError:
            words = f"the body: nothing came for {STALLED_S:g} s, expected the rest of it"
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
        raise RequestFailed(400, "invalid_json", f"the body: {error}; expected a JSON object") from None
    if not isinstance(data, dict):
        raise RequestFailed(400, "invalid_json", f"the body: got {type(data).__name__}, expected a JSON object")
    return cast("Json", data)


def _parsed(text: str) -> object:
    """What JSON says, with ? for halves of characters and NULs, which what comes after could not write.

    Raises:
        ValueError, RecursionError: it is none, or more than is taken.
    """
    data = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    level, values = [data], 0
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        values += len(level)
    if level or values > _MOST:
        raise ValueError(f"got more than {_DEEPEST} levels or {_MOST} values")
    if not _HALF.search(text):
        return data
    return json.loads(_NUL.sub(rb"\1?", json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")))


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("Json", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _written(stream: AnswerStream, news: tuple[int, str] | None) -> bytes:
    if news is None:
        return stream.beat()
    part, text = news
    return stream.say(text) if part < 0 else stream.think(part, text)


async def _gone(turn: Turn, receive: Receive) -> None:
    """Cancel a turn when its client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    turn.cancel()


def _refuse(name: str) -> Never:
    raise ValueError(f"{name[:20]} is no number of JSON's")


def _finite(number: str) -> float:
    return value if math.isfinite(value := float(number)) else _refuse(number)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _named(identifier: str) -> dict[str, str]:
    """The headers in which OpenAI's and Anthropic's clients look for a request's id."""
    return {"x-request-id": identifier, "request-id": identifier}


def _hints(error: RequestFailed, turn: Turn | None) -> dict[str, str]:
    """Headers of a failure: which request, when to try again, and whether a client should by itself."""
    headers = _named(turn.id if turn is not None and turn.id else uuid.uuid4().hex)
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after + 0.5)))
    # The official clients repeat what failed with 409, 429 or 5xx by themselves: an episode that was paid for is not.
    headers["x-should-retry"] = "true" if turn is None and error.status in _RETRIED else "false"
    return headers


async def _respond(send: Send, status: int, body: Json, headers: Mapping[str, str]) -> None:
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    head = {"content-type": "application/json", "content-length": str(len(data)), **headers}
    await send({"type": "http.response.start", "status": status, "headers": _raw(head)})
    await send({"type": "http.response.body", "body": data})


# ── the other paths ──────────────────────────────────────────────────────────────────────────────────────────────────
class _Pages:
    """What is not asked of a model."""

    def __init__(self, gateway: Gateway, keys: KeyRing, config: ServeConfig) -> None:
        self._gateway = gateway
        self._keys = keys
        self._limit = int(config.body_mb * 1_000_000)
        self._started = int(time.time())

    def _tenant(self, request: Request) -> Tenant:
        return self._keys.find(dict(request.headers))

    async def models(self, request: Request) -> Response:
        """``GET /v1/models``."""
        tenant = self._tenant(request)
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self._offered(tenant)]})

    async def model(self, request: Request) -> Response:
        """``GET /v1/models/NAME``."""
        name = request.path_params["name"]
        if name not in self._offered(self._tenant(request)):
            raise RequestFailed(404, "model_not_found", f"model: got {name!r}; GET /v1/models lists them")
        return JSONResponse(self._model(name))

    async def episode(self, request: Request) -> Response:
        """``GET /v1/episodes/ID``: to the key that made it alone."""
        tenant, identifier = self._tenant(request), request.path_params["identifier"]
        await self._gateway.journal.wait_durable()  # one that has just begun is in it, too
        told = await asyncio.to_thread(self._gateway.episode, identifier, tenant)
        if told is None:
            raise RequestFailed(404, "episode_not_found", "there is no such episode of this key")
        return JSONResponse(told)

    async def count(self, request: Request) -> Response:
        """``POST /v1/messages/count_tokens``: an estimate, which asks nobody."""
        self._tenant(request)
        return JSONResponse(count_tokens(await _body(request.receive, self._limit)))

    async def live(self, request: Request) -> Response:
        """``GET /health/live``: the process answers."""
        return JSONResponse({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """``GET /health/ready``: new requests are taken, and what is answered can be kept."""
        try:
            await self._gateway.journal.wait_durable()
        except JournalError:
            return JSONResponse({"status": "the journal cannot be written"}, 503)
        if self._gateway.draining:
            return JSONResponse({"status": "shutting down"}, 503)
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, for Prometheus."""
        return Response(self._gateway.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """``GET /openapi.json``: what the server takes and answers."""
        return JSONResponse(openapi(APIS))

    def _offered(self, tenant: Tenant) -> list[str]:
        return [name for name in self._gateway.models if tenant.may_ask(name)]

    def _model(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "openconductor"}


def build_app(gateway: Gateway, keys: KeyRing, config: ServeConfig) -> Starlette:
    """The ASGI app."""
    pages = _Pages(gateway, keys, config)
    routes = [Route(api.path, Endpoint(api, gateway, keys, config), methods=["POST"]) for api in APIS]
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
    return Starlette(
        routes=routes, middleware=[cors] if config.origins else [], exception_handlers=cast("Any", handlers)
    )


async def _failure(request: Request, error: Exception) -> Response:
    """A failure, in the form of the API whose path it is about."""
    failure = cast("RequestFailed", error)
    api = next((one for one in APIS if request.url.path.startswith(one.path)), CHAT)
    return JSONResponse(api.failure(failure), failure.status, headers=_hints(failure, None))


async def _not_found(request: Request, error: Exception) -> Response:
    status = cast("Any", error).status_code
    words = f"{request.method} {request.url.path}: there is nothing; POST to one of {[api.path for api in APIS]}"
    return await _failure(request, RequestFailed(status, "not_found" if status == 404 else "method_not_allowed", words))


async def _fault(request: Request, error: Exception) -> Response:
    log.error("%s %s failed by a fault of the server", request.method, request.url.path, exc_info=error)
    return await _failure(request, RequestFailed(500, "internal_error", "a fault of the server; its log says more"))
