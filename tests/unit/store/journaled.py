"""What the tests of the journal share: scripted workers, an episode, a call, and a look at the
bytes of a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from openconductor import Conductor, Worker, WorkerPool
from openconductor.events import CallEnded
from openconductor.protocols import CallContext, Provider
from openconductor.store import Journal, call_key
from openconductor.types import Call, Completion, Episode, Message, Price, Sampling, Usage

PLAN = "model_id = [0, 1]\nsubtasks = ['Think.', 'Say it.']\naccess_list = [[], [0]]"
PRICE = Price(Decimal("1.25"), Decimal(10))
ASKED = (Message("user", "What is 2 + 2?"),)


class Sayer(Provider):
    """A provider that says or raises what it is told to, one after the other, and the last one ever
    after.
    """

    def __init__(self, *said: Completion | Exception) -> None:
        self._said = list(said)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, **_: object
    ) -> Completion:
        said = self._said.pop(0) if len(self._said) > 1 else self._said[0]
        if isinstance(said, Exception):
            raise said
        return said


class Talker(Sayer):
    """One that has the identity of a real one."""

    identity = "talker m1 https://talk.example"


def says(text: str, **more: Any) -> Completion:
    return Completion(text, usage=Usage(input_tokens=100, output_tokens=7), **more)


def pool_of(*providers: Talker, **options: Any) -> WorkerPool:
    return WorkerPool(
        [Worker(one, name=f"w{i}", price=PRICE, **options) for i, one in enumerate(providers)]
    )


async def ask(
    journal: Journal, *, pool: WorkerPool | None = None, plan: str = PLAN, **options: Any
) -> Episode:
    pool = pool or pool_of(Talker(says("Two and two.")), Talker(says("4")))
    planner = Worker(Talker(says(plan)), name="conductor", price=PRICE)
    return await Conductor(planner, pool=pool, **options).ask("What is 2 + 2?", on_event=journal)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def one_call(
    completion: Completion | None = None, *, episode: str = "e1", **changes: Any
) -> CallEnded:
    call = Call(
        "w0", "answered", ASKED, Sampling(), completion or says("4"), usage=Usage(output_tokens=7)
    )
    return CallEnded(episode, 0, 1.5, 0, replace(call, **changes))


def key_for(event: CallEnded, **context: Any) -> str:
    call = event.call
    return call_key(
        call.worker,
        call.identity,
        call.messages,
        call.sampling,
        CallContext(step=event.step, **context),
    )


def everything_in(folder: Path) -> bytes:
    """All bytes of all files: the journal, its log, exports."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
