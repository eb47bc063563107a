"""Money: the server's, the ledger's and the journal's figures are the same, to the last digit.

The server counts for itself: the tokens that it reported, by worker, and the requests whose cost
the client cannot know (``Record.unreported``): under a status of success it reported no usage, or
none that can be believed; or the client was gone before any response. A request that was refused (a
status from 300 on), that was hung up on before any response, or that reached nobody costs nothing.
Dollars are worked out here from the server's tokens, in fractions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faults.plays import FAULTS
from faults.script import Played, Seeded
from faults.server import FaultServer, bill, counted, dead_url, exact, fault_server
from openconductor import Conductor, Worker, WorkerPool
from openconductor.calls import policies
from openconductor.episode import FanOut
from openconductor.errors import OpenConductorError
from openconductor.events import CallEnded, Event
from openconductor.ledger import draw_up
from openconductor.prompt import render_workflow
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.store import Journal
from openconductor.types import Budget, Call, Episode, Step, Usage, Workflow

PRICES = {  # US dollars a million tokens; awkward on purpose
    "planner": {"input": "0.0371", "output": "1.93", "cached": "0.00577"},
    "inner-planner": {"input": "0.5", "output": "0.25"},
    "a": {"input": "1.25", "output": "10", "cached": "0.125"},
    "b": {"input": "0.333333", "output": "0.1"},
    "c": {"input": "15", "output": "75.000001", "cached": "0"},
    "good": {"input": "0.07", "output": "0.29", "cached": "0.035"},
    "inner": {"input": "2.5", "output": "7.77"},
    "mute": {"input": "3", "output": "4"},
    "dead": {"input": "3", "output": "4"},
}
TREE = Workflow(
    (Step(0, "A."), Step(1, "B."), Step(2, "C.", [0]), Step(0, "D.", [1]), Step(1, "E.", [2, 3]))
)
SILENT = ("hang", "hang_midway", "drip_head", "drip_text", "drip_nothing")
WEIGHTS = {name: 1.0 for name in FAULTS if name not in ("ok", "401", "403", "huge", "endless")}
WEIGHTS |= dict.fromkeys(SILENT, 0.1)  # each takes a whole timeout


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)


def worker(
    server: FaultServer | str,
    name: str,
    *,
    model: str = "",
    retries: int = 2,
    timeout_s: float | None = 2.0,
) -> Worker:
    provider = OpenAICompatibleProvider(
        model or name, base_url=server if isinstance(server, str) else server.url
    )
    return Worker(provider, name=name, price=PRICES[name], retries=retries, timeout_s=timeout_s)  # type: ignore[arg-type]


@dataclass
class Books:
    """What our side says: every call that was told of, and the episodes as they came back."""

    calls: list[Call] = field(default_factory=list[Call])
    episodes: list[Episode] = field(default_factory=list[Episode])

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            self.calls.append(event.call)

    wants_text = False

    async def ask(
        self,
        conductor: Conductor,
        question: str,
        journal: Journal,
        *,
        stream: bool = False,
        budget: Budget | None = None,
    ) -> None:
        """Ask; whatever it ended in, its episode is noted."""
        sinks = (self, journal, _listen) if stream else (self, journal)
        try:
            self.episodes.append(
                await conductor.ask(question, on_event=FanOut(*sinks), budget=budget)
            )
        except OpenConductorError as error:
            assert error.episode is not None  # noqa: PT017 - not what is tested
            self.episodes.append(error.episode)

    @property
    def ledger(self) -> Usage:
        """The sum over the episodes' ledgers, each of which must add up in itself."""
        totals: list[Usage] = []
        for episode in self.episodes:
            ledger = draw_up(episode)
            totals.append(ledger.total)
            assert exact(episode.usage) == exact(ledger.total)
            assert exact(total_of(ledger.rounds)) == exact(ledger.total)
            assert exact(total_of(ledger.by_worker.values())) == exact(ledger.total)
            assert exact(ledger.conductor + ledger.workers) == exact(ledger.total)
        return total_of(totals)


def _listen(event: Event) -> None:
    """Wants text."""


def total_of(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


def check(server: FaultServer, books: Books, journal: Journal, inside: Sequence[str] = ()) -> None:
    """Check that server, events, ledger and journal agree, by worker but those ``inside``."""
    told = counted(server, PRICES)
    journal.flush()
    totals = journal.totals()
    assert exact(books.ledger) == told
    assert exact(total_of(call.usage for call in books.calls)) == told
    assert exact(totals.spent.usage) == told
    sent = [call for call in books.calls if not call.nested and call.worker != "dead"]
    models = [record.request.model for record in server.records]
    models = [model for model in models if model not in inside]
    assert len([call for call in sent if call.worker not in inside]) == len(models)
    for model in set(models):
        mine = server.usage(model)
        tokens = (mine.input, mine.cached, mine.output, mine.reasoning, bill(PRICES[model], mine))
        assert exact(totals.by_worker[model].usage)[:5] == tokens, model
        assert totals.by_worker[model].calls == models.count(model), model


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
async def test_with_retries_fallbacks_and_an_orchestrator_among_the_workers(
    seed: int, tmp_path: Path
) -> None:
    shares = {"planner": 0.1, "a": 0.5, "b": 0.5, "c": 0.3, "inner": 0.4}
    inner_plan = render_workflow(Workflow((Step(0, "Think."), Step(1, "Answer.", "all"))))
    texts = {"planner": render_workflow(TREE), "inner-planner": inner_plan}
    async with fault_server(Seeded(seed, shares, WEIGHTS), texts) as server:
        inner_pool = WorkerPool([worker(server, "inner"), worker(server, "good")])
        inner = Conductor(worker(server, "inner-planner"), pool=inner_pool, fallback=True)
        a, b, c, good = (worker(server, name) for name in ("a", "b", "c", "good"))
        dead = worker(dead_url(), "dead", retries=0)
        pool = WorkerPool([a, b, Worker(inner, name="team"), c, dead, good])
        conductor = Conductor(worker(server, "planner"), pool=pool, fallback=True)
        books = Books()
        with Journal(tmp_path / "journal.sqlite") as journal:
            lanes = asyncio.Semaphore(8)

            async def one(number: int) -> None:
                question, stream = f"Question {number}?", number % 2 == 1
                async with lanes:
                    await books.ask(conductor, question, journal, stream=stream)

            await asyncio.gather(*(one(number) for number in range(40)))
            assert len({record.fate for record in server.records}) > 20  # or nothing was tested
            check(server, books, journal, inside=("inner", "inner-planner", "good"))
        await pool.aclose()
        await inner_pool.aclose()
        for asked in (conductor, inner):
            await asked.planner.provider.aclose()  # type: ignore[union-attr]


@pytest.mark.parametrize("end", ["cancel", "budget"])
@pytest.mark.parametrize("how", ["hang", "hang_midway", "drip_text"])
@pytest.mark.parametrize("where", ["planning", "step"])
async def test_of_a_call_that_was_stopped_nobody_knows_the_price(where, how, end, tmp_path) -> None:
    """Ten episodes, stopped while one call each is under way and all others have ended."""
    plan = render_workflow(Workflow((Step(0, "Look.", []), Step(1, "Wait.", []))))
    script = Played(
        {"planner": [how]}
        if where == "planning"
        else {"mute": [how], "a": ["429", "usage_missing", "ok"]}
    )
    async with fault_server(script, {"planner": plan}) as server:
        books = Books()
        mute = worker(server, "mute", retries=0, timeout_s=None)
        planner = worker(server, "planner", timeout_s=None)
        pool = WorkerPool([worker(server, "a"), mute])
        conductor = Conductor(planner, pool=pool)
        with Journal(tmp_path / "journal.sqlite") as journal:
            budget = Budget(seconds=1.0) if end == "budget" else None
            asking = [
                books.ask(conductor, f"{i}?", journal, stream=i % 2 == 1, budget=budget)
                for i in range(10)
            ]
            tasks = [asyncio.create_task(one) for one in asking]
            done = 0 if where == "planning" else 30  # the planner's, the 429, the next of "a"
            await server.until(lambda s: len(s.busy) == 10 and len(books.calls) == done)
            for task in tasks if end == "cancel" else ():
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.until(lambda s: not s.busy)
            assert server.unreported() == (10 if where == "planning" else 20)
            assert sum(call.outcome in ("cancelled", "timeout") for call in books.calls) == 10
            if end == "budget":
                check(server, books, journal)
            else:  # a cancelled ask returns no episode; its cost is in events and the journal
                told = counted(server, PRICES)
                assert exact(total_of(call.usage for call in books.calls)) == told
                journal.flush()
                assert exact(journal.totals().spent.usage) == told
        await pool.aclose()
        await planner.provider.aclose()  # type: ignore[union-attr]
