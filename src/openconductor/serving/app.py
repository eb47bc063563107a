"""The HTTP server in front of the gateway, and the process that serves until it is told to stop.

A client that leaves ends its episode, streamed or not. A client that stalls is disconnected.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import signal
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

import openconductor
from openconductor.config import needing
from openconductor.errors import JournalError, OpenConductorError
from openconductor.serving.access_log import PageLog, configure_log, log_request
from openconductor.serving.apis.chat import CHAT
from openconductor.serving.apis.messages import (
    MESSAGES,
    count_tokens,
    describe_model,
    list_models,
)
from openconductor.serving.apis.openapi import openapi
from openconductor.serving.apis.responses import RESPONSES
from openconductor.serving.apis.wire import Api, Json, RequestFailed, as_json, request_failure
from openconductor.serving.connection import ClientConnection, connection_of, receive_json
from openconductor.serving.gateway import Gateway, Turn
from openconductor.serving.key_ring import KeyRing, Tenant
from openconductor.serving.listening import ListeningSocket, OutOfFiles
from openconductor.serving.response_pages import JsonPage, ResponsePages
from openconductor.serving.serve_config import ServeConfig
from openconductor.serving.shared.key_book import follow
from openconductor.serving.shared.key_pages import KeyPages
from openconductor.serving.shared.repeats import RepeatedRequest, Repeats, SentAnswer
from openconductor.serving.turn import ANSWER
from openconductor.store import SharedStore, place_name
from openconductor.ui.door import Door

APIS: tuple[Api, ...] = (CHAT, RESPONSES, MESSAGES)

_RETRIED = frozenset({429, 503})  # nothing was done, so a client may repeat the request
_PROBE_S = 5.0  # a store that is not durable after this long is not ready
_LOOK_S = 1.0  # between two looks whether the database is given up
_CANCEL_S = 5.0  # a cancelled turn has this long to end

_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

log = logging.getLogger("openconductor.serving")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The path of one API: reads a request, and sends the answer, whole or as a stream."""

    api: Api
    gateway: Gateway
    keys: KeyRing
    config: ServeConfig
    repeats: Repeats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.monotonic()
        status = 500
        model = "unknown"
        identifier = ""
        tenant: Tenant | None = None
        turn: Turn | None = None
        answers: RepeatedRequest | None = None  # its repeats wait for this request
        metrics = self.gateway.metrics
        try:
            headers = Headers(scope=scope)
            tenant = self.keys.find(headers)
            self._check_origin(headers)
            content = await receive_json(receive, self.config.body_mb)
            request = self.api.read(content)
            if request.model in self.gateway.systems:
                model = request.model
            repeated = self.repeats.read(headers, tenant.name, self.api.path, content)
            if repeated is not None:
                sent = await self.repeats.find(repeated)
                if sent is not None:
                    identifier, status = sent.episode, 200
                    await _resend(sent, stream=request.stream)(scope, receive, send)
                    return
                answers = repeated
            turn = await self.gateway.open(request, tenant, headers)
            connection = connection_of(scope)
            if connection is not None and answers is None:
                connection.when_lost(turn.cancel)
            with metrics.in_flight(self.api.name):
                if request.stream:
                    status = await self._stream(turn, send, began, answers)
                else:
                    body = self.api.answer(request, await turn.answer(), created=turn.created)
                    if answers is not None:
                        await self.repeats.keep(answers, turn, as_json(body))
                    metrics.first_byte(self.api.name, time.monotonic() - began)
                    await JsonPage(body, headers=_request_id(turn.id))(scope, receive, send)
                    status = 200
        except OpenConductorError as error:
            failure = request_failure(error)
            status = failure.status
            begun = turn is not None and turn.id
            identifier = begun or uuid.uuid4().hex
            headers = _failure_headers(failure, identifier, repeatable=not begun)
            await JsonPage(self.api.failure(failure), status, headers)(scope, receive, send)
        finally:
            if turn is not None:
                identifier = turn.id or identifier
                turn.cancel()
            if answers is not None:
                await self.repeats.end(answers)
            if turn is not None:
                await turn.ended()
                if status != 200:
                    self.gateway.schedule_collection()
            metrics.count_request(self.api.name, model, status, time.monotonic() - began)
            log_request(
                began,
                status,
                id=identifier,
                key=tenant.name if tenant else None,
                api=self.api.name,
                model=model,
                steps=turn.steps if turn else 0,
                tokens=turn.tokens if turn else 0,
                dollars=f"{turn.charged:f}" if turn else "0",
            )

    def _check_origin(self, headers: Headers) -> None:
        # A browser lets any page send a request, and only keeps the answer from it.
        origin = headers.get("origin")
        allowed = self.config.origins
        if origin is not None and origin not in allowed and "*" not in allowed:
            message = f"origin: got {origin!r}, which `origins` does not list"
            raise RequestFailed(403, "origin_not_allowed", message)

    async def _stream(
        self, turn: Turn, send: Send, began: float, answers: RepeatedRequest | None
    ) -> int:
        """Send the answer as it is written; return the status that it would have had as a whole."""
        sent: list[bytes] = []

        async def write(data: bytes, *, more: bool = True, beats: bool = False) -> None:
            if data:
                if not beats and answers is not None:
                    sent.append(data)
                await send({"type": "http.response.body", "body": data, "more_body": more})

        headers = MutableHeaders({**_STREAM_HEADERS, **_request_id(turn.id)})
        await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
        stream = self.api.stream(turn.request, turn.id, created=turn.created)
        await write(stream.begin())
        self.gateway.metrics.first_byte(self.api.name, time.monotonic() - began)
        async for piece in turn.pieces(self.config.heartbeat_s):
            if piece is None:
                await write(stream.heartbeat(), beats=True)
            elif piece[0] == ANSWER:
                await write(stream.add_text(piece[1]))
            else:
                await write(stream.add_reasoning(*piece))
        try:
            answer = await turn.answer()
            rest = turn.rest_of(answer)
            last = stream.add_text(rest) if rest else b""
            last += stream.end(answer)
            if answers is not None:
                await self.repeats.keep(answers, turn, b"".join([*sent, last]))
        except OpenConductorError as error:
            failure = request_failure(error)
            await write(stream.fail(failure), more=False)
            return failure.status
        await write(last, more=False)
        return 200


def _resend(sent: SentAnswer, *, stream: bool) -> Response:
    """Return what was sent to the same request before."""
    headers = _request_id(sent.episode)
    if stream:
        headers |= _STREAM_HEADERS
    return Response(sent.body, headers=headers, media_type=None if stream else "application/json")


def _request_id(identifier: str) -> dict[str, str]:
    """Return the headers in which OpenAI's and Anthropic's clients look for a request's id."""
    return {"x-request-id": identifier, "request-id": identifier}


def _failure_headers(
    failure: RequestFailed, identifier: str, *, repeatable: bool
) -> dict[str, str]:
    headers = _request_id(identifier)
    if failure.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(failure.retry_after)))
    # The official clients repeat what failed with 409, 429 or 5xx by themselves; an episode that
    # was paid for must not be.
    repeat = repeatable and failure.status in _RETRIED
    headers["x-should-retry"] = "true" if repeat else "false"
    return headers


# ── the other paths ───────────────────────────────────────────────────────────────────────────────
class _Pages:
    """The paths that no model answers."""

    def __init__(self, gateway: Gateway, keys: KeyRing, config: ServeConfig) -> None:
        self._gateway = gateway
        self._keys = keys
        self._config = config
        self._started = int(time.time())

    async def home(self, request: Request) -> Response:
        """Answer ``GET /``: what this is."""
        page: Json = {
            "name": "openconductor",
            "version": openconductor.__version__,
            "about": "A Conductor and its workers behind the APIs of OpenAI and Anthropic.",
            "endpoints": _endpoints(request.app.routes),
            "docs": "docs/serving.md of the project; /openapi.json is the schema of the API",
        }
        if self._gateway.evidence:
            page["measured"] = self._offered_evidence(request)
        return JsonPage(page)

    async def models(self, request: Request) -> Response:
        """Answer ``GET /v1/models``."""
        offered = self._gateway.offered(self._keys.find(request.headers))
        models = [self._model(name, request) for name in offered]
        if _speaks_anthropic(request):
            return JsonPage(list_models(models))
        return JsonPage({"object": "list", "data": models})

    async def model(self, request: Request) -> Response:
        """Answer ``GET /v1/models/NAME``."""
        name = request.path_params["name"]
        if name not in self._gateway.offered(self._keys.find(request.headers)):
            message = f"model: got {name!r}; GET /v1/models lists the models"
            raise RequestFailed(404, "model_not_found", message)
        return JsonPage(self._model(name, request))

    async def episode(self, request: Request) -> Response:
        """Answer ``GET /v1/episodes/ID``, to the key that made it."""
        tenant = self._keys.find(request.headers)
        await self._gateway.store.wait_durable()  # an episode that has just begun is in it too
        identifier = request.path_params["identifier"]
        find = self._gateway.history.episode
        episode = await asyncio.to_thread(find, identifier, tenant.name)
        if episode is None:
            message = "this key has no such episode"
            raise RequestFailed(404, "episode_not_found", message)
        return JsonPage(episode)

    async def usage(self, request: Request) -> Response:
        """Answer ``GET /v1/usage``: what the key has spent."""
        tenant = self._keys.find(request.headers)
        return JsonPage(await asyncio.to_thread(tenant.usage))

    async def count(self, request: Request) -> Response:
        """Answer ``POST /v1/messages/count_tokens``: an estimate, without a call."""
        self._keys.find(request.headers)
        return JsonPage(count_tokens(await receive_json(request.receive, self._config.body_mb)))

    async def live(self, request: Request) -> Response:
        """Answer ``GET /health/live``: the process runs."""
        return JsonPage({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Answer ``GET /health/ready``: requests are accepted, and can be stored."""
        try:
            # It asks the store's own thread: a probe opens no connection to a database.
            await asyncio.wait_for(self._gateway.store.wait_durable(), _PROBE_S)
        except (JournalError, TimeoutError):
            return JsonPage({"status": "the journal cannot be written"}, 503)
        if self._gateway.draining:
            return JsonPage({"status": "shutting down"}, 503)
        return JsonPage({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``, for Prometheus."""
        page = self._gateway.metrics.render()
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """Answer ``GET /openapi.json``."""
        return JsonPage(openapi(APIS))

    def _offered_evidence(self, request: Request) -> Json:
        """Return what was measured of the models that the request's key may ask."""
        try:
            offered = self._gateway.offered(self._keys.find(request.headers))
        except RequestFailed:
            return {}
        evidence = self._gateway.evidence
        return {name: evidence[name] for name in offered if name in evidence}

    def _model(self, name: str, request: Request) -> Json:
        model: Json = {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "openconductor",
        }
        if _speaks_anthropic(request):
            model = describe_model(name, self._started)
        if name in self._gateway.evidence:
            model["measured"] = self._gateway.evidence[name]
        return model


def build_app(
    gateway: Gateway, keys: KeyRing, config: ServeConfig, door: Door | None = None
) -> Starlette:
    """Return the ASGI app.

    Args:
        gateway: answers.
        keys: who may ask.
        config: the server's.
        door: lets visitors into the page; None: there is no page.
    """
    pages = _Pages(gateway, keys, config)
    repeats = Repeats(gateway.store)
    endpoints = {api.path: Endpoint(api, gateway, keys, config, repeats) for api in APIS}
    routes: list[BaseRoute] = [
        Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()
    ]
    routes += [
        Route("/v1/messages/count_tokens", pages.count, methods=["POST"]),
        Route("/v1/models", pages.models),
        Route("/v1/models/{name:path}", pages.model),
        *ResponsePages(gateway, keys).routes(),
        *KeyPages(gateway, keys).routes(),
        Route("/v1/episodes/{identifier}", pages.episode),
        Route("/v1/usage", pages.usage),
        Route("/", pages.home),
        Route("/health", pages.ready),
        Route("/health/live", pages.live),
        Route("/health/ready", pages.ready),
        Route("/metrics", pages.metrics),
        Route("/openapi.json", pages.openapi),
    ]
    if door is not None:
        routes.append(_page(gateway, keys, config, door))
    middleware: list[Middleware] = []
    if config.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,  # a public page that is listed may reach this machine
            expose_headers=("x-request-id",),
        )
        middleware.append(cors)
    middleware.append(Middleware(PageLog, endpoints))
    handlers: Any = {
        RequestFailed: _failure,
        404: _not_found,
        405: _not_found,
        Exception: _internal_error,
    }
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
    # A redirect would go to the address in the client's Host header.
    app.router.redirect_slashes = False
    return app


def _page(gateway: Gateway, keys: KeyRing, config: ServeConfig, door: Door) -> Mount:
    """Return the page over the server's own store, where who may spend may ask."""
    with needing("serve --ui", "ui"):
        from openconductor.serving.page.page_asker import PageAsker
        from openconductor.ui.door import PREFIX
        from openconductor.ui.site import Site
    asker = None
    if config.allow_asking or not keys.is_open:
        asker = PageAsker(gateway, keys)
    name = Path(place_name(config.journal)).name
    site = Site(
        gateway.store,
        door,
        name=name,
        serves=True,
        asker=asker,
        stopping=lambda: gateway.draining,
        root=Path(config.run).parent if config.run else Path("runs"),
        pool=gateway.pool,
        usages=keys.usages,
    )
    return Mount(PREFIX, app=site)


def _endpoints(routes: Sequence[BaseRoute]) -> list[str]:
    """Return the methods and paths of routes."""
    listed: list[str] = []
    for route in routes:
        if isinstance(route, Route) and route.methods:
            listed += [f"{method} {route.path_format}" for method in route.methods - {"HEAD"}]
    return listed


async def _failure(request: Request, error: Exception) -> Response:
    """Answer a failure in the form of the API whose path was asked for."""
    failure = cast("RequestFailed", error)
    default = MESSAGES if _speaks_anthropic(request) else CHAT
    api = next((api for api in APIS if request.url.path.startswith(api.path)), default)
    headers = _failure_headers(failure, uuid.uuid4().hex, repeatable=True)
    return JsonPage(api.failure(failure), failure.status, headers)


def _speaks_anthropic(request: Request) -> bool:
    """Return True if a request has the header that Anthropic's clients send."""
    return "anthropic-version" in request.headers


async def _not_found(request: Request, error: Exception) -> Response:
    status = cast("Any", error).status_code
    code = "not_found" if status == 404 else "method_not_allowed"
    endpoints = ", ".join(f"POST {api.path}" for api in APIS)
    message = f"No route for {request.method} {request.url.path}. Endpoints: {endpoints}; see GET /"
    return await _failure(request, RequestFailed(status, code, message))


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("%s %s: internal error", request.method, request.url.path, exc_info=error)
    message = "Internal error. See the server's log."
    return await _failure(request, RequestFailed(500, "internal_error", message))


# ── the process ───────────────────────────────────────────────────────────────────────────────────
class _Server(uvicorn.Server):
    """Stops accepting requests at the first signal, and ends those that still run after a while.

    Attributes:
        failure: why it ends by itself; None: it does not.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway, drain_s: float) -> None:
        super().__init__(config)
        self.failure: JournalError | None = None
        self._gateway = gateway
        self._drain_s = drain_s

    async def end_without_database(self) -> None:
        """End the server once its database is given up, because a new process may reach it again.

        A server on a file stays: its disk is full, and clients are told so.
        """
        while True:
            try:
                await self._gateway.store.wait_durable()
            except JournalError as error:
                self.failure = JournalError(
                    f"{error}. This server ends: it can store no answer any more, and one that is "
                    "started when the database is back can"
                )
                self.should_exit = True
                return
            await asyncio.sleep(_LOOK_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at once at the second, unless a terminal hung up.

        uvicorn's own handler would raise the signal again when it is done, before the store is
        closed.
        """
        if sig != signal.SIGHUP:
            self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listeners and idle connections, and let the running requests go on for a while.

        Until then requests are answered, so that a proxy that asks another server meanwhile loses
        none.
        """
        self._gateway.draining = True
        running = self._gateway.running
        if running:
            requests = "1 request" if running == 1 else f"{running} requests"
            log.info("draining: %s, up to %g s; again to stop now", requests, self._drain_s)
        asyncio.get_running_loop().call_later(self._drain_s, self._gateway.stop)
        await super().shutdown(sockets)


def run(
    config: ServeConfig,
    gateway: Gateway,
    keys: KeyRing,
    listeners: Sequence[ListeningSocket],
    door: Door | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, and until the running answers have ended.

    Raises:
        JournalError: the database of the store is given up.
    """
    configure_log(config.log_level)
    gc.freeze()  # the collector need not look again and again at what exists now,
    gc.set_threshold(10_000)  # nor at the objects of a request before they are gone
    settings = uvicorn.Config(
        build_app(gateway, keys, config, door),
        http=ClientConnection,
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(config.drain_s + _CANCEL_S),
    )
    server = _Server(settings, gateway, config.drain_s)
    asyncio.run(_serve(server, gateway, keys, listeners))


async def _serve(
    server: _Server, gateway: Gateway, keys: KeyRing, listeners: Sequence[ListeningSocket]
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup has it ignored
        loop.add_signal_handler(signal.SIGHUP, server.handle_exit, signal.SIGHUP, None)
    tasks = [asyncio.create_task(follow(keys, gateway.store))]
    if isinstance(gateway.store, SharedStore):
        tasks.append(asyncio.create_task(server.end_without_database()))
    try:
        await server.serve(sockets=list(listeners))
        if server.force_exit:
            gateway.stop()
        await gateway.ended()  # what the page asks has no connection that is waited for
    finally:
        for task in tasks:
            task.cancel()
        await gateway.pool.aclose()
    if server.failure is not None:
        raise server.failure


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report a failure in the event loop, but not what a ``ListeningSocket`` has reported."""
    if not isinstance(context.get("exception"), OutOfFiles):
        loop.default_exception_handler(context)
