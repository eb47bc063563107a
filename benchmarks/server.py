"""Scripted model servers, each in a process of its own, which all benchmarks over HTTP share."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
from benchmarks import results

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
STREAM_HEAD += b"Transfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Server(asyncio.Protocol):
    """As little HTTP as the clients need; a subclass says what each request gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, rest = self.buffer.split(b"\r\n\r\n", 1)
            length = content_length(head)
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            self.answer(rest[:length])

    def answer(self, body: bytes) -> None:
        """Answer a request; a GET has no body."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def write_later(self, seconds: float, data: bytes) -> None:
        asyncio.get_running_loop().call_later(seconds, self.write, data)


def content_length(head: bytes) -> int:
    """Return the length of the body behind a head; 0: it names none."""
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


def response(body: bytes) -> bytes:
    """Return a whole response with a JSON body."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def completion(text: str, usage: dict[str, Any]) -> bytes:
    """Return the body of a chat completion."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


def stream_events(pieces: Sequence[str], usage: dict[str, Any]) -> list[bytes]:
    """Return the events of a streamed chat completion."""
    choices: list[dict[str, Any]] = []
    for piece in pieces:
        choices.append({"index": 0, "delta": {"content": piece}, "finish_reason": None})
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**head, "choices": [choice], "usage": None} for choice in choices]
    chunks.append({**head, "choices": [], "usage": usage})
    events = [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    return [*events, b"data: [DONE]\n\n"]


def as_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(make: Callable[[], Server]) -> None:
    """Serve on a free port, which is printed, until standard input ends with the parent."""
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def served(module: str, *words: str) -> Iterator[str]:
    """Run a module's server as a process; yield its base URL."""
    with results.child(module, *words) as process:
        yield f"http://127.0.0.1:{results.read_line(process)}/v1"


async def post(session: aiohttp.ClientSession, url: str, payload: dict[str, Any]) -> str:
    """Ask as a bare script would, which checks and keeps nothing; return the text."""
    async with session.post(f"{url}/chat/completions", json=payload) as answer:
        return (await answer.json())["choices"][0]["message"]["content"]


def bare_session() -> aiohttp.ClientSession:
    """Return a session without a limit of connections."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
