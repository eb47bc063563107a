"""A server of ours on loopback, in a thread, over workers that play a script; for official clients, which block.

In: what each worker does. Out: the server's address, and what the workers were sent. It stops with the ``with``.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

import openconductor as oc
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, OnText
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.metrics import Metrics
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.serving.server import ClientConnection
from openconductor.types import Completion, Message, Sampling, Step, Usage, Workflow

USED = Usage(100, 40, 20, 5)  # of every scripted call
PRICE = {"input": 3, "output": 15, "cached": "0.3"}
PLAN = render_workflow(Workflow((Step(0, "Think about it.", []), Step(1, "Answer the question.", "all"))))


@dataclass
class Scripted:
    """A worker that plays: an answer, pieces of one, an error, or a function of what it is sent.

    Attributes:
        plays: a text; a list of pieces (numbers are pauses, in seconds); a dict calls tools, ``{name: arguments}``.
        sent: (messages, sampling) of each call.
        cancelled: how many calls were cancelled.
    """

    plays: Any = "fine"
    sent: list[tuple[tuple[Message, ...], Sampling]] = field(default_factory=list)
    cancelled: int = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.sent.append((tuple(messages), sampling))
        play = self.plays(messages, sampling) if callable(self.plays) else self.plays
        text, calls = "", []
        try:
            for piece in play if isinstance(play, list) else [play]:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, int | float):
                    await asyncio.sleep(piece)
                elif isinstance(piece, dict):
                    calls += [
                        {"id": f"own{len(calls)}", "type": "function",
                         "function": {"name": name, "arguments": json.dumps(given)}}
                        for name, given in piece.items()
                    ]  # fmt: skip
                else:
                    text += piece
                    if on_text is not None:
                        on_text(piece)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Completion(text, "", tuple(calls), USED, "tool_calls" if calls else "stop")


@dataclass
class Orchestra:
    """A server under way."""

    url: str
    gateway: Gateway
    workers: dict[str, Scripted]
    planner: Scripted
    loop: asyncio.AbstractEventLoop
    closing: ExitStack = field(default_factory=ExitStack)


@contextmanager
def orchestra(
    folder: Path, anna: Any = "thought", bert: Any = "fine", *, plan: Any = PLAN, baselines: Any = None,
    conductor: dict[str, Any] | None = None, key: Sequence[KeyTable] = (), max_tokens: int = 500, **config: Any,
) -> Iterator[Orchestra]:  # fmt: skip
    """Serve ``conductor`` over the workers anna (0) and bert (1)."""
    workers = {
        name: one if hasattr(one, "complete") else Scripted(one) for name, one in (("anna", anna), ("bert", bert))
    }
    planner = Scripted(plan)
    pool = oc.WorkerPool([
        oc.Worker(one, name=name, price=PRICE, tags=(name[0],), sampling=Sampling(max_tokens=max_tokens))
        for name, one in workers.items()
    ])  # fmt: skip
    asked = oc.Conductor(
        oc.Worker(planner, name="planner", price=PRICE, sampling=Sampling(max_tokens=300)), pool=pool, **conductor or {}
    )
    settings = ServeConfig(key=tuple(key), **{"heartbeat_s": 0.2, **config})  # type: ignore[arg-type]
    ready, made = threading.Event(), {}

    async def serve() -> None:
        with oc.Journal(folder / "serve.sqlite") as journal:
            gateway = Gateway(asked, journal, Metrics(), baselines=baselines and baselines(pool))
            app = build_app(gateway, KeyRing(settings.key, journal), settings)
            server = uvicorn.Server(uvicorn.Config(
                app, port=0, log_level="warning", http=ClientConnection, ws="none", lifespan="off",
                timeout_graceful_shutdown=1,
            ))  # fmt: skip
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            task = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            made["orchestra"] = Orchestra(
                f"http://127.0.0.1:{port}", gateway, workers, planner, asyncio.get_running_loop()
            )
            made["server"] = server
            ready.set()
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20), "the server did not start"
    try:
        yield made["orchestra"]
    finally:
        made["orchestra"].closing.close()
        made["server"].should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
