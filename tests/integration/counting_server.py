"""A loopback server in a thread, which outlives killed children and counts their requests.

In: the text that answers each request. Out: a base URL, and the ids of the requests in the order in
which they came.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from hashlib import blake2b

from aiohttp import web

Turns = list[tuple[str, str]]
"""(role, content) of each turn of a request."""


def request_id(model: str, turns: Turns) -> str:
    """What tells one request from another: its model and its turns, 16 hexadecimal digits."""
    return blake2b(json.dumps([model, turns]).encode(), digest_size=8).hexdigest()


class CountingServer(ABC):
    """Answers each request with ``text`` after some milliseconds, drawn at random."""

    PAUSE_S = (0.0, 0.01)
    """The shortest and the longest time to an answer."""

    def __init__(self, seed: int) -> None:
        self.asked: list[str] = []
        self.url = ""
        self._draws = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    @abstractmethod
    def text(self, model: str, turns: Turns, asked: str) -> str:
        """The answer to one request; ``asked`` is its id."""

    def wait_for(self, requests: int) -> None:
        """Block until so many more have come."""
        wanted, deadline = len(self.asked) + requests, time.monotonic() + 60
        while len(self.asked) < wanted:
            assert time.monotonic() < deadline, "the child asks nobody"
            time.sleep(0.002)

    def close(self) -> None:
        """Stop serving and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        turns = [(turn["role"], turn["content"]) for turn in body["messages"]]
        asked = request_id(body["model"], turns)
        self.asked.append(asked)
        text = self.text(body["model"], turns, asked)
        await asyncio.sleep(self._draws.uniform(*self.PAUSE_S))
        usage = {
            "prompt_tokens": sum(len(content) for _, content in turns),
            "completion_tokens": len(text),
        }
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        return web.json_response({"choices": [choice], "usage": usage})
