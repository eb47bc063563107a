"""A loopback server that speaks Anthropic's and Google's wires as their public API references describe them.

In: answers, one a request. Out: a base URL, and the requests as they came. Bounded: it refuses more requests than it
has answers, no pause lasts longer than ``LONGEST``, and it stops with the ``async with`` that started it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONGEST = 5.0  # seconds


@dataclass
class NativeServer:
    """What the server saw."""

    answers: list[Answer]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    peers: list[object] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    transports: set[asyncio.Transport] = field(default_factory=set[asyncio.Transport])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        self.bodies.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        assert request.transport is not None
        self.transports.add(request.transport)
        self.asked.set()
        if not self.answers:
            return web.Response(status=599, text="no answer is left")
        try:
            return await asyncio.wait_for(self.answers.pop(0)(request), LONGEST)
        except (ConnectionResetError, asyncio.CancelledError):
            self.hung_up.set()
            raise


@asynccontextmanager
async def native_server(*answers: Answer, port: int = 0) -> AsyncIterator[NativeServer]:
    """Serve the answers in order on a port of 127.0.0.1, by default a free one."""
    server = NativeServer(list(answers))
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
        for transport in server.transports:  # aiohttp leaves one open whose client has gone in the middle of a stream
            transport.abort()
        await asyncio.sleep(0)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def says(body: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Answer with JSON."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


def raw(body: bytes, *, content_type: str = "application/json", status: int = 200) -> Answer:
    """Answer with these bytes."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, status=status)

    return answer


def streams(pieces: Sequence[bytes], *, pause: float = 0.0, reset: bool = False) -> Answer:
    """Answer with an event stream, piece by piece; ``reset`` ends it without ending the chunked body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        if reset:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


def hangs() -> Answer:
    """Say nothing."""

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(LONGEST)
        return web.Response()

    return answer


# ── Anthropic: Messages ──────────────────────────────────────────────────────────────────────────────────────────────
def message(*content: dict[str, Any], stop: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    """A message."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 5, **usage},
    }


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def event(kind: str, **data: Any) -> bytes:
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def start(**usage: Any) -> bytes:
    """How a stream begins."""
    return event(
        "message_start", message={**message(stop=None), "usage": {"input_tokens": 12, "output_tokens": 1, **usage}}
    )


def block(index: int, opened: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """One block of a stream."""
    return [
        event("content_block_start", index=index, content_block=opened),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def said(*pieces: str) -> list[bytes]:
    """A block of text in pieces."""
    return block(0, text(""), *({"type": "text_delta", "text": piece} for piece in pieces))


def end(stop: str | None = "end_turn", **usage: Any) -> list[bytes]:
    """How a stream ends."""
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [event("message_delta", delta=delta, usage={"output_tokens": 5, **usage}), event("message_stop")]


# ── Google: generateContent ──────────────────────────────────────────────────────────────────────────────────────────
USED = {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}


def response(
    *parts: dict[str, Any], finish: str | None = "STOP", usage: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A response."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-m",
        "responseId": "r1",
    }


def data(body: object) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(body).encode() + b"\r\n\r\n"
