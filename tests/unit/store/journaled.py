"""What the tests of the journal share: scripted workers, an episode, a call, and a look at the
bytes of a file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from openconductor import Conductor, Worker, WorkerPool, testing
from openconductor.events import CallEnded
from openconductor.protocols import CallContext
from openconductor.store import Journal, call_key
from openconductor.testing import Scripted
from openconductor.types import Call, Completion, Episode, Message, Price, Sampling, Usage

PLAN = "model_id = [0, 1]\nsubtasks = ['Think.', 'Say it.']\naccess_list = [[], [0]]"
PRICE = Price(Decimal("1.25"), Decimal(10))
ASKED = (Message("user", "What is 2 + 2?"),)


def talker(*said: Completion | Exception) -> Scripted:
    """A provider with an identity, whose last answer repeats."""
    return Scripted(list(said), identity="talker m1 https://talk.example")


def says(text: str, **more: Any) -> Completion:
    return Completion(text, usage=Usage(input_tokens=100, output_tokens=7), **more)


def pool_of(*providers: Scripted, **options: Any) -> WorkerPool:
    return testing.pool_of(*providers, price=PRICE, **options)


async def ask(
    journal: Journal, *, pool: WorkerPool | None = None, plan: str = PLAN, **options: Any
) -> Episode:
    pool = pool or pool_of(talker(says("Two and two.")), talker(says("4")))
    planner = Worker(talker(says(plan)), name="conductor", price=PRICE)
    return await Conductor(planner, pool=pool, **options).ask("What is 2 + 2?", on_event=journal)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def one_call(
    completion: Completion | None = None, *, episode: str = "e1", **changes: Any
) -> CallEnded:
    said = completion or says("4")
    call = Call("w0", "answered", ASKED, Sampling(), said, usage=Usage(output_tokens=7))
    return CallEnded(episode, 0, 1.5, 0, replace(call, **changes))


def key_for(event: CallEnded, **context: Any) -> str:
    call = event.call
    place = CallContext(step=event.step, **context)
    return call_key(call.worker, call.identity, call.messages, call.sampling, place)


def everything_in(folder: Path) -> bytes:
    """Return all bytes of all files: the journal, its log, exports."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
