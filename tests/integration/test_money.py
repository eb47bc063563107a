"""Money: the server's, the ledger's and the journal's figures are the same, to the last digit.

The server counts for itself: the tokens that it reported, by worker, and the requests whose cost
the client cannot know (``Record.unreported``): under a status of success it reported no usage, or
none that can be believed; or the client was gone before any response. A request that was refused (a
status from 300 on), that was hung up on before any response, or that reached nobody costs nothing.
Dollars are worked out here from the server's tokens, in fractions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faults.plays import FAULTS
from faults.script import Played, Seeded
from faults.server import FaultServer, bill, counted, dead_url, exact, fault_server
from integration import served
from integration.clock import SILENT, skip, skip_silence
from openconductor import Conductor, Worker, WorkerPool
from openconductor.calls import policies
from openconductor.calls.dispatcher import FanOut
from openconductor.errors import OpenConductorError
from openconductor.events import CallEnded, Event
from openconductor.ledger import draw_up
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.store import Journal
from openconductor.types import Budget, Call, Episode, Step, Usage, Workflow

PRICES = served.PRICES | json.loads("""{
  "inner-planner": {"input": "0.5", "output": "0.25"},
  "good": {"input": "0.07", "output": "0.29", "cached": "0.035"},
  "inner": {"input": "2.5", "output": "7.77"},
  "mute": {"input": "3", "output": "4"},
  "dead": {"input": "3", "output": "4"}
}""")
"""US dollars a million tokens; awkward on purpose."""
TREE = """
model_id = [0, 1, 2, 0, 1]
subtasks = ["A.", "B.", "C.", "D.", "E."]
access_list = [[], [], [0], [1], [2, 3]]
"""
DEADLINE_S = 20.0
WEIGHTS = {name: 1.0 for name in FAULTS if name not in ("ok", "401", "403", "huge", "endless")}
WEIGHTS |= dict.fromkeys(SILENT, 0.1)  # each takes a whole timeout


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)


def worker(server: FaultServer, name: str, **options: Any) -> Worker:
    url = dead_url() if name == "dead" else server.url
    provider = OpenAICompatibleProvider(name, base_url=url)
    given = {"retries": 2, "timeout_s": DEADLINE_S, **options}
    return Worker(provider, name=name, price=PRICES[name], **given)


@dataclass
class Books:
    """Records our side: every call that was told of, and the episodes as they came back."""

    calls: list[Call] = field(default_factory=list[Call])
    episodes: list[Episode] = field(default_factory=list[Episode])

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            self.calls.append(event.call)

    wants_text = False

    async def ask(
        self, conductor: Conductor, number: int, journal: Journal, budget: Budget | None = None
    ) -> None:
        """Ask; whatever it ended in, its episode is noted. Every second one streams."""
        sinks = (self, journal, _listen) if number % 2 else (self, journal)
        try:
            asking = conductor.ask(f"{number}?", on_event=FanOut(*sinks), budget=budget)
            self.episodes.append(await asking)
        except OpenConductorError as error:
            assert error.episode is not None  # noqa: PT017 - not what is tested
            self.episodes.append(error.episode)

    @property
    def ledger(self) -> Usage:
        """The sum over the episodes' ledgers, each of which must add up in itself."""
        ledgers = [draw_up(episode) for episode in self.episodes]
        for episode, ledger in zip(self.episodes, ledgers, strict=True):
            total = exact(ledger.total)
            assert exact(episode.usage) == total
            assert exact(total_of(ledger.rounds)) == total
            assert exact(total_of(ledger.by_worker.values())) == total
            assert exact(ledger.conductor + ledger.workers) == total
        return total_of(ledger.total for ledger in ledgers)


def _listen(event: Event) -> None:
    """Wants text."""


def total_of(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


def check(server: FaultServer, books: Books, journal: Journal, inside: Sequence[str] = ()) -> None:
    """Check that server, events and journal agree, by worker but those ``inside``."""
    told = counted(server, PRICES)
    journal.flush()
    totals = journal.totals()
    assert exact(total_of(call.usage for call in books.calls)) == told
    assert exact(totals.spent.usage) == told
    outside = [call for call in books.calls if call.worker not in (*inside, "dead")]
    models = [record.request.model for record in server.records]
    models = [model for model in models if model not in inside]
    direct = [call for call in outside if not call.nested]
    assert len(direct) == len(models)
    for model in set(models):
        used = server.usage(model)
        dollars = bill(PRICES[model], used)
        tokens = (used.input, used.cached, used.output, used.reasoning, dollars)
        kept = totals.by_worker[model]
        assert exact(kept.usage)[:5] == tokens, model
        assert kept.calls == models.count(model), model


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
async def test_with_retries_fallbacks_and_an_orchestrator_among_the_workers(
    seed: int, tmp_path: Path
) -> None:
    shares = {"planner": 0.1, "a": 0.5, "b": 0.5, "c": 0.3, "inner": 0.4}
    inner_plan = render_workflow(Workflow((Step(0, "Think."), Step(1, "Answer.", "all"))))
    texts = {"planner": TREE, "inner-planner": inner_plan}
    async with fault_server(Seeded(seed, shares, WEIGHTS), texts) as server:
        inner_pool = WorkerPool([worker(server, "inner"), worker(server, "good")])
        inner = Conductor(worker(server, "inner-planner"), pool=inner_pool, fallback=True)
        a, b, c, good = (worker(server, name) for name in ("a", "b", "c", "good"))
        dead = worker(server, "dead", retries=0)
        pool = WorkerPool([a, b, Worker(inner, name="team"), c, dead, good])
        conductor = Conductor(worker(server, "planner"), pool=pool, fallback=True)
        books = Books()
        lanes = asyncio.Semaphore(8)
        with Journal(tmp_path / "journal.sqlite") as journal:

            async def ask(number: int) -> None:
                async with lanes:
                    await books.ask(conductor, number, journal)

            skipping = asyncio.create_task(skip_silence(server, DEADLINE_S))
            asking = [ask(number) for number in range(40)]
            await asyncio.gather(*asking)
            skipping.cancel()
            assert len(server.fates) > 20  # or nothing was tested
            check(server, books, journal, inside=("inner", "inner-planner", "good"))
            assert exact(books.ledger) == counted(server, PRICES)
        for closing in (pool, inner_pool, conductor.planner.provider, inner.planner.provider):
            await closing.aclose()


@pytest.mark.parametrize("end", ["cancel", "budget"])
@pytest.mark.parametrize("how", ["hang", "hang_midway", "drip_text"])
@pytest.mark.parametrize(
    ("fates", "calls", "unknown"),
    [
        ({"planner": "STOPPED"}, 0, 10),
        # The planner's, the 429 and the next of "a" have ended.
        ({"mute": "STOPPED", "a": ["429", "usage_missing", "ok"]}, 30, 20),
    ],
    ids=["planning", "step"],
)
async def test_of_a_call_that_was_stopped_nobody_knows_the_price(
    fates, calls: int, unknown: int, how: str, end: str, tmp_path: Path
) -> None:
    """Stop ten episodes while one call each is under way and all others have ended."""
    plan = render_workflow(Workflow((Step(0, "Look.", []), Step(1, "Wait.", []))))
    script = {name: [how] if fate == "STOPPED" else fate for name, fate in fates.items()}
    async with fault_server(Played(script), {"planner": plan}) as server:
        books = Books()
        budget = Budget(seconds=DEADLINE_S) if end == "budget" else None
        mute = worker(server, "mute", retries=0, timeout_s=None)
        pool = WorkerPool([worker(server, "a", timeout_s=None), mute])
        conductor = Conductor(worker(server, "planner", timeout_s=None), pool=pool)
        with Journal(tmp_path / "journal.sqlite") as journal:
            asking = [books.ask(conductor, number, journal, budget) for number in range(10)]
            tasks = [asyncio.create_task(one) for one in asking]
            await server.until(lambda s: len(books.calls) == calls)
            await server.until(lambda s: len(s.busy) == 10)
            if end == "budget":
                skip(DEADLINE_S)
            else:  # such an ask returns no episode
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.until(lambda s: not s.busy)
            assert server.unreported() == unknown
            outcomes = [call.outcome for call in books.calls]
            assert outcomes.count("cancelled") + outcomes.count("timeout") == 10
            check(server, books, journal)
            if end == "budget":
                assert exact(books.ledger) == counted(server, PRICES)
        await pool.aclose()
        await conductor.planner.provider.aclose()
