"""A server on loopback, in a thread, over scripted workers; for official clients, which block.

In: what each worker does. Out: the server's address, and what the workers were sent. It stops with
the ``with``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

import openconductor as oc
from integration.served import listening
from openconductor import testing
from openconductor.prompt import render_workflow
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


class Scripted(testing.Scripted):
    """A worker that plays: an answer, pieces of one, an error, or a function of what it is sent.

    Attributes:
        plays: a text; a list of pieces (numbers are pauses, in seconds); a dict calls tools,
            ``{name: arguments}``.
        sent: (messages, sampling) of each call.
        finish: why its answers end; None is what fits them.
    """

    def __init__(self, plays: Any) -> None:
        super().__init__(self._play_now, usage=USED)
        self.plays = plays
        self.sent: list[tuple[tuple[Message, ...], Sampling]] = []
        self.finish: Any = None

    def _play_now(self, call: testing.ScriptedCall) -> Any:
        self.sent.append((call.messages, call.sampling))
        play = self.plays(*self.sent[-1]) if callable(self.plays) else self.plays
        pieces = play if isinstance(play, list) else [play]
        calls: list[dict[str, Any]] = []
        for piece in pieces:
            if isinstance(piece, dict):
                calls += [tool_call(name, given) for name, given in piece.items()]
        if not calls and self.finish is None:
            return tuple(pieces)
        for number, made in enumerate(calls):
            made["id"] = f"own{number}"
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        return Completion(text, "", tuple(calls), USED, self.finish or "tool_calls")


def tool_call(name: str, arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"type": "function", "function": function}


@dataclass
class Orchestra:
    """A server under way."""

    url: str
    gateway: Gateway
    workers: dict[str, Scripted]
    planner: Scripted
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
    workers: dict[str, Any] = {}
    for name, play in (("anna", anna), ("bert", bert)):
        workers[name] = play if hasattr(play, "complete") else Scripted(play)
    planner = Scripted(plan)
    limit = Sampling(max_tokens=max_tokens)
    options: dict[str, Any] = {"price": PRICE, "sampling": limit}
    pool = oc.WorkerPool(
        [
            oc.Worker(worker, name=name, tags=(name[0],), **options)
            for name, worker in workers.items()
        ]
    )
    options["sampling"] = Sampling(max_tokens=300)
    head = oc.Conductor(oc.Worker(planner, name="planner", **options), pool=pool, **conductor or {})
    settings = ServeConfig(key=tuple(key), **{"heartbeat_s": 0.2, **config})  # type: ignore[arg-type]

    @asynccontextmanager
    async def serving() -> AsyncIterator[Orchestra]:
        with oc.Journal(folder / "serve.sqlite") as journal:
            systems = {"conductor": head, **(baselines(pool) if baselines else {})}
            gateway = Gateway(head.pool, journal, systems)
            app = build_app(gateway, KeyRing(settings.key, journal), settings)
            async with listening(app) as url:
                yield Orchestra(url, gateway, workers, planner)

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving()) as made:
        try:
            yield made
        finally:
            made.closing.close()
