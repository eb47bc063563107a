"""A server of ours in the test's own event loop, over workers behind real sockets
(``faults.server``).

In: a fault server, whose script says what each worker meets. Out: the address, the gateway, its
journal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from faults.server import FaultServer
from openconductor import Conductor, Journal, Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.serving.app import build_app
from openconductor.serving.connection import ClientConnection
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.types import Sampling, Step, Workflow

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
PRICES = {  # US dollars a million tokens; awkward on purpose
    "planner": {"input": "0.0371", "output": "1.93", "cached": "0.00577"},
    "a": {"input": "1.25", "output": "10", "cached": "0.125"},
    "b": {"input": "0.333333", "output": "0.1"},
    "c": {"input": "15", "output": "75.000001", "cached": "0"},
}
PLAN = render_workflow(
    Workflow((Step(0, "Think."), Step(1, "Check.", [0]), Step(2, "Answer.", "all")))
)


@dataclass
class Served:
    """A server under way."""

    url: str
    gateway: Gateway
    journal: Journal
    keys: KeyRing
    client: httpx.AsyncClient

    async def ask(
        self, api: str, *, key: str = "none", question: str = "What is 6 * 7?", **more: Any
    ) -> httpx.Response:
        """Ask, and read the answer to its end."""
        return await self.client.post(
            f"{self.url}{PATHS[api]}",
            json=request_body(api, question, **more),
            headers={"authorization": f"Bearer {key}"},
        )

    async def until_idle(self, seconds: float = 10.0) -> None:
        """Wait until no request is under way and all calls are in the journal."""
        async with asyncio.timeout(seconds):
            while self.gateway._turns:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.005)
        await self.journal.wait_durable()


def request_body(
    api: str, content: Any = "What is 6 * 7?", *, stream: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a body of that API with one turn; ``more`` replaces its fields."""
    body: dict[str, Any] = {"model": "conductor", "stream": stream}
    turns = [{"role": "user", "content": content}]
    body["input" if api == "responses" else "messages"] = turns
    if api == "messages":
        body["max_tokens"] = 400
    if api == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    return body | more


def worker(
    server: FaultServer,
    name: str,
    *,
    retries: int = 0,
    timeout_s: float = 20.0,
    variable: str | None = None,
) -> Worker:
    provider = OpenAICompatibleProvider(name, base_url=server.url, api_key_env=variable)
    price = {kind: Decimal(dollars) for kind, dollars in PRICES[name].items()}
    return Worker(
        provider,
        name=name,
        price=price,
        retries=retries,
        timeout_s=timeout_s,
        sampling=Sampling(max_tokens=300),
    )


@asynccontextmanager
async def served(
    folder: Path,
    server: FaultServer,
    *,
    workers: Sequence[str] = ("a", "b", "c"),
    key: Sequence[KeyTable] = (),
    conductor: dict[str, Any] | None = None,
    heartbeat_s: float = 0.1,
    timeout_s: float = 20.0,
    deadlines: Mapping[str, float] | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve ``conductor`` over these workers of a fault server, whose ``planner`` plans.

    A call may take ``timeout_s`` seconds, or as many as ``deadlines`` has for its worker.
    """
    short = deadlines or {}
    made = {
        name: worker(server, name, timeout_s=short.get(name, timeout_s), **options)
        for name in ("planner", *workers)
    }
    planner = made.pop("planner")
    pool = WorkerPool(list(made.values()))
    asked = Conductor(planner, pool=pool, **conductor or {})
    config = ServeConfig(key=tuple(key), heartbeat_s=heartbeat_s)
    with Journal(folder / "serve.sqlite") as journal:
        gateway = Gateway(asked.pool, journal, {"conductor": asked})
        keys = KeyRing(config.key, journal)
        app = build_app(gateway, keys, config)
        # A client that is late, on a busy machine, finds its connection as it was.
        waiting = listening(app, keep_alive_s=60)
        async with waiting as url, httpx.AsyncClient(timeout=30) as client:
            yield Served(url, gateway, journal, keys, client)
        await pool.aclose()
        await asked.planner.provider.aclose()  # type: ignore[union-attr]


def accepting() -> bool:
    """Whether asyncio is about to hand over a connection that has come."""
    return any("_accept_connection" in repr(task.get_coro()) for task in asyncio.all_tasks())


@asynccontextmanager
async def listening(app: Any, *, keep_alive_s: int = 5) -> AsyncIterator[str]:
    """The address of an app on a free port; its end waits for who is still asking, but not for
    uvicorn's ticks.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        http=ClientConnection,
        ws="none",
        lifespan="off",
        port=0,
        timeout_keep_alive=keep_alive_s,
    )
    config.load()
    http = uvicorn.Server(config)
    http.lifespan = config.lifespan_class(config)
    await http.startup()
    try:
        yield f"http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}"
    finally:
        for one in http.servers[0].sockets:
            asyncio.get_running_loop().remove_reader(one.fileno())
        while accepting():  # noqa: ASYNC110 - asyncio loses a connection that comes while a server is closed
            await asyncio.sleep(0.001)
        http.servers[0].close()
        told: set[Any] = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while http.server_state.connections or http.server_state.tasks:
                    for connection in http.server_state.connections - told:
                        told.add(connection)
                        connection.shutdown()
                    await asyncio.sleep(0.002)
        for task in http.server_state.tasks:
            task.cancel()
        await asyncio.gather(*http.server_state.tasks, return_exceptions=True)


def events(text: str) -> list[dict[str, Any]]:
    """The data of the events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def failure_of(api: str, event: dict[str, Any]) -> str | None:
    """The code under which a stream's last event says that the answer failed; None where it says
    that it is whole.
    """
    if api == "responses":
        if event["type"] in ("response.completed", "response.incomplete"):
            return None
        assert event["type"] == "response.failed"
        return str(event["response"]["error"]["code"])
    if api == "messages" and event["type"] == "message_stop":
        return None
    if api == "chat" and "error" not in event:
        return None
    return str(event["error"].get("code") or event["error"]["type"])


def usage_of(api: str, answer: httpx.Response, *, stream: bool) -> dict[str, Any]:
    """The usage that an answer or a whole stream names."""
    if not stream:
        return dict(answer.json()["usage"])
    told = events(answer.text)
    if api == "responses":
        return dict(told[-1]["response"]["usage"])
    return dict(told[-1]["usage"] if api == "chat" else told[-2]["usage"])
