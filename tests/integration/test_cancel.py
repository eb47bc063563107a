"""The connections of a cancelled episode are closed within a second, wherever it stands."""

from __future__ import annotations

import asyncio

import pytest

from faults.script import Played
from faults.server import FaultServer, fault_server
from integration.clock import skip
from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import BudgetExceeded
from openconductor.events import Event, StepText
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.types import Budget, Step, Workflow

pytestmark = pytest.mark.alone

SECONDS = 1.0
"""Within so many every connection must be closed."""
DEADLINE_S = 20.0

PLAN = render_workflow(
    Workflow(tuple(Step(0, f"Part {i}.", []) for i in range(3)))
)  # three steps at the same time
HANGING = {"planning": ({"planner": ["hang", "ok"]}, 1), "step": ({"w": ["hang", "ok"]}, 3)}
HANGING["half an answer"] = ({"w": ["hang_midway", "ok"]}, 3)
HANGING["streaming"] = ({"w": ["drip_text", "ok"]}, 3)


def worker(server: FaultServer, name: str, **options: object) -> Worker:
    provider = OpenAICompatibleProvider(name, base_url=server.url)
    return Worker(provider, name=name, **{"retries": 0, **options})  # type: ignore[arg-type]


def conductor(server: FaultServer, **options: object) -> Conductor:
    workers = [worker(server, "w", **options), worker(server, "other")]
    return Conductor(worker(server, "planner"), pool=WorkerPool(workers))


async def close(system: Conductor) -> None:
    await system.pool.aclose()
    await system.planner.provider.aclose()  # type: ignore[union-attr]


def silent(event: Event) -> None:
    """A sink that wants no text."""


silent.wants_text = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", ["cancel", "budget"])
@pytest.mark.parametrize("where", HANGING)
async def test_the_connections_of_an_episode_that_is_stopped_are_closed(
    where: str, by: str
) -> None:
    parts, calls = HANGING[where]
    streams = where == "streaming"
    texts: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepText):
            texts.append(event.text)

    async with fault_server(Played(parts), {"planner": PLAN}) as server:
        system = conductor(server)
        sink = listen if streams else silent
        budget = Budget(seconds=DEADLINE_S)
        task = asyncio.create_task(system.ask("How many?", budget=budget, on_event=sink))
        texts_before = calls if streams else 0
        await server.until(lambda s: len(s.busy) == calls and len(texts) >= texts_before)
        if by == "cancel":
            task.cancel()
        else:
            skip(DEADLINE_S)
        stopped = asyncio.get_running_loop().time()
        await server.until(lambda s: not s.busy, SECONDS)
        with pytest.raises(asyncio.CancelledError if by == "cancel" else BudgetExceeded):
            await task
        left = [record for record in server.records if record.ended == "left"]
        assert len(left) == calls
        assert max(record.closed for record in left) - stopped <= SECONDS

        await asyncio.sleep(0.05)
        requests = len(server.records)
        assert not server.busy  # nothing was asked again behind our back
        assert (await system.ask("How many?", on_event=sink)).answer  # and all is well
        assert len(server.records) == requests + 4
        await close(system)


async def test_who_waits_for_a_turn_or_for_another_attempt_is_never_sent_once_cancelled() -> None:
    script = Played({"w": ["hang"], "planner": ["503_wait"]})
    async with fault_server(script, {"planner": PLAN}) as server:
        system = conductor(server, max_concurrency=1)
        waiting = Conductor(worker(server, "planner", retries=2), pool=system.pool)
        queued = Conductor(lambda messages: PLAN, pool=system.pool)
        asking = [one.ask("How many?", on_event=silent) for one in (waiting, queued)]
        tasks = [asyncio.create_task(one) for one in asking]
        await server.until(lambda s: s.fates == {"hang": 1, "503_wait": 1} and len(s.busy) == 1)
        for task in tasks:
            task.cancel()
        await server.until(lambda s: not s.busy, SECONDS)
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        skip(1.6)  # longer than the wait that the server had named, with its jitter
        await asyncio.sleep(0.05)
        assert server.fates == {"hang": 1, "503_wait": 1}
        await close(system)
        await waiting.planner.provider.aclose()  # type: ignore[union-attr]
