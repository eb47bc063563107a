"""A loopback server that plays a script: one answer a request, faults of every kind among them.

In: answers, each an async function of a request. Out: a base URL, the requests as they came, and
who hung up.
Bounded: it refuses more requests than the script has, and stops with the ``async with`` that
started it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONGEST = 30.0  # seconds; no scripted pause lasts longer, whatever a client does


@dataclass
class ChatServer:
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

    def reset(self) -> None:
        """Break all connections off, with RST."""
        for transport in self.transports:
            at_once = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, at_once
            )
            transport.abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        self.bodies.append(await request.json() if request.can_read_body else {})
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.peers.append(
            request.transport.get_extra_info("peername") if request.transport else None
        )
        if request.transport is not None:
            self.transports.add(request.transport)
        self.asked.set()
        if not self.answers:
            return web.Response(status=599, text="the script is over")
        answer = self.answers.pop(0)
        try:
            return await asyncio.wait_for(answer(request), LONGEST)
        except (ConnectionResetError, asyncio.CancelledError):
            self.hung_up.set()
            raise


def write_pool(folder: Path, url: str, *models: str, more: str = "") -> str:
    """Write a pool file of workers at this address, named as their models; return its path."""
    path = folder / "pool.toml"
    tables = (
        f'[[worker]]\nname = "{it}"\nmodel = "{it}"\nbase_url = "{url}"\n{more}\n' for it in models
    )
    path.write_text("".join(tables), "utf-8")
    return str(path)


@asynccontextmanager
async def chat_server(*answers: Answer, port: int = 0) -> AsyncIterator[ChatServer]:
    """Serve the answers in order on a port of 127.0.0.1, by default a free one."""
    server = ChatServer(list(answers))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        await runner.cleanup()
        for transport in (
            server.transports
        ):  # aiohttp leaves one open whose client has gone in the middle of a stream
            transport.abort()
        await asyncio.sleep(0)


def completion(
    text: str | None = "4", *, finish: str | None = "stop", **message: object
) -> dict[str, object]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
    }


def says(body: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


def raw(body: bytes, *, content_type: str = "application/json") -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    return answer


def chunk(text: str | None = None, *, finish: str | None = None, **delta: object) -> bytes:
    """Write a chunk of a stream as an event."""
    said = {**({} if text is None else {"content": text}), **delta}
    return event(
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": said, "finish_reason": finish}],
        }
    )


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streams(
    pieces: Sequence[bytes],
    *,
    pause: float = 0.0,
    reset: bool = False,
    kind: str = "text/event-stream; charset=utf-8",
) -> Answer:
    """Answer with an event stream in pieces; ``reset`` does not end the chunked body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        if reset:
            request.transport.abort()
        return response

    return answer


def bytes_on_the_wire(*pieces: bytes, pause: float = 0.02, then: float = 0.0) -> Answer:
    """Write these bytes as the whole HTTP response; hang up ``then`` seconds later."""

    async def answer(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        for piece in pieces:
            transport.write(piece)
            await asyncio.sleep(pause)
        await asyncio.sleep(then)
        transport.close()
        return web.Response()

    return answer


def hangs(seconds: float = LONGEST) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return web.json_response(completion())

    return answer
