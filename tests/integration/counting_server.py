"""A loopback server in a thread, which outlives killed children and counts their requests.

In: the text that answers each request. Out: a base URL, and the ids of the requests in the order in
which they came.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from hashlib import blake2b
from pathlib import Path

from aiohttp import web
from anyio.from_thread import start_blocking_portal

from openconductor.config import dump_toml
from openconductor.store import JournalReader

Turns = list[tuple[str, str]]
"""(role, content) of each turn of a request."""


def request_id(model: str, turns: Turns) -> str:
    """Return the id of a model and its turns, 16 hexadecimal digits."""
    return blake2b(json.dumps([model, turns]).encode(), digest_size=8).hexdigest()


def answered(reader: JournalReader) -> Counter[str]:
    """Count the calls in a journal that were answered and paid, by their ids."""
    ids: Counter[str] = Counter()
    for call in reader.calls():
        if call.outcome == "answered" and not call.replayed:
            turns = [(turn.role, turn.content) for turn in call.messages or ()]
            ids[request_id(call.worker, turns)] += 1
    return ids


def write_pool(
    path: Path, url: str, *names: str, prices: tuple[int, int], most_tokens: int
) -> None:
    """Write the pool file of workers at one address.

    Args:
        path: the file.
        url: the address.
        names: the workers'.
        prices: US dollars for a million tokens read, and written.
        most_tokens: of an answer.
    """
    read, written = prices
    worker = {"base_url": url, "retries": 0, "price": {"input": read, "output": written}}
    worker["sampling"] = {"max_tokens": most_tokens}
    tables = [{"name": name, "model": name, **worker} for name in names]
    path.write_text(dump_toml({"worker": tables}))


class CountingServer(ABC):
    """Answers each request with ``text`` after some milliseconds, drawn at random."""

    PAUSE_S = (0.0, 0.01)
    """The shortest and the longest time to an answer."""

    def __init__(self, seed: int) -> None:
        self.asked: list[str] = []
        self._draws = random.Random(seed)
        self._open = ExitStack()
        portal = self._open.enter_context(start_blocking_portal())
        self.url = self._open.enter_context(portal.wrap_async_context_manager(self._serve()))

    @abstractmethod
    def text(self, model: str, turns: Turns, asked: str) -> str:
        """Return the answer to one request; ``asked`` is its id."""

    def wait_for(self, requests: int) -> None:
        """Block until so many more have come."""
        wanted, deadline = len(self.asked) + requests, time.monotonic() + 200
        while len(self.asked) < wanted:
            assert time.monotonic() < deadline, "the child asks nobody"
            time.sleep(0.002)

    def close(self) -> None:
        """Stop serving and end the thread."""
        self._open.close()

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        turns = [(turn["role"], turn["content"]) for turn in body["messages"]]
        asked = request_id(body["model"], turns)
        self.asked.append(asked)
        text = self.text(body["model"], turns, asked)
        await asyncio.sleep(self._draws.uniform(*self.PAUSE_S))
        usage = {"prompt_tokens": sum(len(content) for _, content in turns)}
        usage["completion_tokens"] = len(text)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": usage})
