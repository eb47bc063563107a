"""A server on loopback, in a thread, over scripted workers; for official clients, which block.

In: what each worker does. Out: the server's address, and what the workers were sent. It stops with
the ``with``.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openconductor as oc
from integration.served import listening
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.serving.app import build_app
from openconductor.serving.gateway import Gateway
from openconductor.serving.key_ring import KeyRing
from openconductor.serving.serve_config import KeyTable, ServeConfig
from openconductor.types import Completion, Message, Sampling, Step, Usage, Workflow

USED = Usage(100, 40, 20, 5)  # of every scripted call
PRICE = {"input": 3, "output": 15, "cached": "0.3"}
PLAN = render_workflow(
    Workflow((Step(0, "Think about it.", []), Step(1, "Answer the question.", "all")))
)


@dataclass
class Scripted(Provider):
    """A worker that plays: an answer, pieces of one, an error, or a function of what it is sent.

    Attributes:
        plays: a text; a list of pieces (numbers are pauses, in seconds); a dict calls tools,
            ``{name: arguments}``.
        sent: (messages, sampling) of each call.
        cancelled: how many calls were cancelled.
    """

    plays: Any = "fine"
    sent: list[tuple[tuple[Message, ...], Sampling]] = field(default_factory=list)
    finish: Any = None  # why its answers end; None is what fits them
    cancelled: int = 0

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
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
                        {
                            "id": f"own{len(calls)}",
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps(given)},
                        }
                        for name, given in piece.items()
                    ]
                else:
                    text += piece
                    if on_text is not None:
                        on_text(piece)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Completion(
            text, "", tuple(calls), USED, self.finish or ("tool_calls" if calls else "stop")
        )


@dataclass
class Orchestra:
    """A server under way."""

    url: str
    gateway: Gateway
    workers: dict[str, Scripted]
    planner: Scripted
    loop: asyncio.AbstractEventLoop
    closing: ExitStack = field(default_factory=ExitStack)

    def play(self, anna: Any = "thought", bert: Any = "fine", plan: Any = PLAN) -> None:
        """Start anew with these plays, and with nothing sent."""
        self.closing.close()
        players = (*self.workers.values(), self.planner)
        for player, plays in zip(players, (anna, bert, plan), strict=True):
            player.plays, player.finish, player.cancelled = plays, None, 0
            player.sent.clear()


@contextmanager
def orchestra(
    folder: Path,
    anna: Any = "thought",
    bert: Any = "fine",
    *,
    plan: Any = PLAN,
    baselines: Any = None,
    conductor: dict[str, Any] | None = None,
    key: Sequence[KeyTable] = (),
    max_tokens: int = 500,
    **config: Any,
) -> Iterator[Orchestra]:
    """Serve ``conductor`` over the workers anna (0) and bert (1)."""
    workers = {
        name: one if hasattr(one, "complete") else Scripted(one)
        for name, one in (("anna", anna), ("bert", bert))
    }
    planner = Scripted(plan)
    limit = Sampling(max_tokens=max_tokens)
    pool = oc.WorkerPool(
        [
            oc.Worker(one, name=name, price=PRICE, tags=(name[0],), sampling=limit)
            for name, one in workers.items()
        ]
    )
    asked = oc.Conductor(
        oc.Worker(planner, name="planner", price=PRICE, sampling=Sampling(max_tokens=300)),
        pool=pool,
        **conductor or {},
    )
    settings = ServeConfig(key=tuple(key), **{"heartbeat_s": 0.2, **config})  # type: ignore[arg-type]
    started: Future[Orchestra] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        with oc.Journal(folder / "serve.sqlite") as journal:
            gateway = Gateway(asked, journal, baselines=baselines and baselines(pool))
            async with listening(
                build_app(gateway, KeyRing(settings.key, journal), settings)
            ) as url:
                started.set_result(
                    Orchestra(url, gateway, workers, planner, asyncio.get_running_loop())
                )
                await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    made = started.result(20)
    try:
        yield made
    finally:
        made.closing.close()
        made.loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
