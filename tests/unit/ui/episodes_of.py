"""What the tests of the page share: a store with episodes of every kind, by name."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import openconductor as oc
from openconductor import events
from openconductor.store import Store
from openconductor.testing import Scripted
from openconductor.types import (
    Call,
    Completion,
    Episode,
    Message,
    Price,
    Round,
    Sampling,
    StepResult,
    Transcript,
    Usage,
)

PRICE = Price(Decimal("1.25"), Decimal(10))
NAMES = ("anna", "bert", "carl")
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> [go](javascript:alert(3)) "
    "\u202ereversed\u202c \x1b[31mred\x1b[0m <svg onload=alert(4)> </style></title>&amp;'\""
)
FLOW = oc.Workflow(
    [
        oc.Step(0, "List what is given."),
        oc.Step(1, "Solve it.", [0]),
        oc.Step(2, "Solve it in another way.", [0]),
        oc.Step(0, "Compare, and answer.", "all"),
    ]
)
REVISION = oc.Workflow([oc.Step(1, "Check the answer.", "all"), oc.Step(2, "Answer.", [0])])
BROKEN = "model_id = [0, 1]\nsubtasks = ['A', 'B']\naccess_list = [[], [1]]"


def says(text: str) -> Completion:
    return Completion(text, usage=Usage(100, 20, 7), reasoning="I think.")


def pool(text: str = "42", *, failures: int = 0) -> oc.WorkerPool:
    """Three workers that say a text; the second fails so often before."""
    workers: list[oc.Worker] = []
    for place, name in enumerate(NAMES):
        replies: list[Completion | Exception] = [says(text)]
        if place == 1:
            error = oc.ServerFailed("overloaded", worker=name, status=503)
            replies = [*[error] * failures, says(text)]
        provider = Scripted(replies, identity=f"scripted {name}")
        workers.append(oc.Worker(provider, name=name, price=PRICE, retries=2))
    return oc.WorkerPool(workers)


async def ask(
    store: Store,
    question: str | list[Message],
    *plans: oc.Workflow | str,
    workers: oc.WorkerPool | None = None,
    **options: object,
) -> Episode:
    """Ask, with a planner that writes these plans in turn."""
    written = [Completion(p) if isinstance(p, str) else p for p in plans or (FLOW,)]
    planner = oc.Worker(Scripted(written, identity="planner"), name="planner", price=PRICE)
    conductor = oc.Conductor(planner, pool=workers or pool(), **options)
    return await conductor.ask(question, on_event=store)


async def fill(store: Store) -> dict[str, str]:
    """Ask one question of every kind; return the ids of the episodes by the kind."""
    chat = [Message("user", "First"), Message("assistant", "Yes?"), Message("user", "And then?")]
    asked = {
        "plain": await ask(store, "What is 6 * 7?"),
        "rounds": await ask(store, "In two rounds?", FLOW, REVISION, max_rounds=2),
        "retried": await ask(store, "With a retry?", workers=pool(failures=1)),
        "unplanned": await ask(store, "No plan?", BROKEN, BROKEN, on_no_plan="default_worker"),
        "invalid": await ask(store, "An invalid plan?", BROKEN),
        "failed": await ask(store, "A failure?", workers=pool(failures=9)),
        "hostile": await ask(store, HOSTILE, workers=pool(HOSTILE)),
        "chat": await ask(store, chat),
    }
    store.flush()
    return {kind: episode.id for kind, episode in asked.items()}


def live(store: Store) -> Iterator[str]:
    """Write the episode "e1" of two steps bit by bit; yield the state that it is in."""
    flow = oc.Workflow([oc.Step(0, "A"), oc.Step(1, "B", [0])])
    plan = "model_id = [0, 1]\nsubtasks = ['A', 'B']\naccess_list = [[], [0]]"

    def called(worker: str, text: str) -> Call:
        return Call(worker, "answered", (Message("user", "?"),), Sampling(), Completion(text))

    store(events.Asked("e1", 0, 0.0, "Live?", workers={0: "anna", 1: "bert"}))
    store.flush()
    yield "asked"
    store(events.CallEnded("e1", 0, 1.0, None, called("conductor", plan)))
    yield "planned"
    results: list[StepResult] = []
    for step, (name, text) in enumerate((("anna", "4"), ("bert", "42"))):
        call = called(name, text)
        store(events.CallEnded("e1", 0, 2.0 + step, step, call))
        times = {"started": float(step), "ended": 2.0 + step}
        done = StepResult(flow.steps[step], call.completion, worker=step, calls=(call,), **times)
        results.append(done)
        store(events.StepEnded("e1", 0, 2.0 + step, step, done))
        yield name
    played = Round(Completion(plan), flow, Transcript(flow, tuple(results)))
    store(events.RoundEnded("e1", 0, 4.0, played))
    episode = Episode("Live?", (played,), "42", None, Usage(), 4.0, "e1")
    store(events.Answered("e1", 0, 4.0, episode))
    yield "answered"
