"""The grid: what is asked at once, what is kept, what a spent budget stops, and whose failure is whose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from openconductor.baselines.single import SingleWorker
from openconductor.errors import (
    AuthFailed,
    BudgetExceeded,
    ConfigError,
    GradingError,
    OpenConductorError,
    RateLimited,
    TaskError,
)
from openconductor.evaluation.cells import Cell, Sheet, System, cells_of
from openconductor.evaluation.grid import Grid, Progress
from openconductor.evaluation.records import Record, from_json
from openconductor.graders.exact import ExactGrader
from openconductor.journal import Journal
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, Grader, OnEvent, OnText
from openconductor.types import Budget, Completion, Episode, Grade, Message, Price, Problem, Question, Sampling, Usage

PROBLEMS = [Problem(f"p{number}", f"What is {number} + 1?", str(number + 1), "sums") for number in range(6)]
PRICE = Price(Decimal(1), Decimal(1))


class Counting:
    """A provider that adds 1, after some turns of the event loop; knows how many ask it at once, and who has."""

    identity = "counting"

    def __init__(self, *, tokens: int = 1000, turns: int = 3, failing: dict[int, OpenConductorError] | None = None):
        self.asked: list[int] = []
        self.samples: list[int] = []
        self.most = 0
        self._now = 0
        self._tokens = tokens
        self._turns = turns
        self._failing = failing or {}

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        number = int(messages[0].content.split()[2])
        self.asked.append(number)
        self.samples.append(call.sample)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            for _ in range(self._turns):
                await asyncio.sleep(0)
        finally:
            self._now -= 1
        if number in self._failing:
            raise self._failing[number]
        return Completion(str(number + 1), usage=Usage(output_tokens=self._tokens))


class Asking:
    """An orchestrator that is a plain class: no events, one answer or one error."""

    def __init__(self, said: str | OpenConductorError) -> None:
        self._said = said

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        if isinstance(self._said, OpenConductorError):
            self._said.episode = Episode(question, (), None, self._said, Usage(), 0.0)
            raise self._said
        return Episode(question, (), self._said, None, Usage(), 0.0)


class Judge:
    """A grader that says, or raises, one thing."""

    def __init__(self, said: Grade | BaseException) -> None:
        self._said = said

    async def grade(self, problem: Problem, answer: str) -> Grade:
        if isinstance(self._said, BaseException):
            raise self._said
        return self._said


def alone(provider: Counting, *, max_tokens: int | None = None, price: Price | None = PRICE) -> WorkerPool:
    return WorkerPool([Worker(provider, name="w", price=price, sampling=Sampling(max_tokens=max_tokens), retries=0)])


def cells(*systems: System, grader: Grader | None = None, repeats: int = 1) -> list[Cell]:
    return list(cells_of(systems, [Sheet("sums", PROBLEMS, grader or ExactGrader())], repeats))


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


async def kept(journal: Journal) -> list[Record]:
    await journal.wait_durable()
    return [from_json(one.record) for one in journal.outcomes()]


async def test_every_cell_is_asked_once_and_its_record_is_kept(journal: Journal) -> None:
    provider = Counting()
    system = System("worker:w", SingleWorker(alone(provider), 0))
    heard: list[Progress] = []
    todo = cells(system, repeats=2)
    grid = Grid(journal, concurrency=4, on_progress=heard.append)
    await grid.play(todo, done=3, total=15)
    records = await kept(journal)
    assert {one.key for one in journal.outcomes()} == {cell.key for cell in todo}
    assert sorted((one.problem, one.sample) for one in records) == [(f"p{i}", k) for i in range(6) for k in range(2)]
    assert all(one.correct and one.system == "worker:w" and one.task == "sums" and one.calls == 1 for one in records)
    assert sorted(provider.samples) == sorted(cell.sample(shared=False) for cell in todo)
    assert [one.done for one in heard] == list(range(4, 16))
    assert (heard[-1].total, heard[-1].spent.calls, heard[-1].spent.usage.dollars) == (15, 12, Decimal("0.012"))
    assert {one.id for one in journal.episodes()} == {one.episode for one in records}


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (64, 6)])
async def test_no_more_episodes_ask_workers_at_once_than_allowed(journal: Journal, concurrency: int, most: int) -> None:
    provider = Counting(turns=20)
    await Grid(journal, concurrency=concurrency).play(
        cells(System("w", SingleWorker(alone(provider), 0))), done=0, total=6
    )
    assert provider.most == most


async def test_an_answered_episode_gives_its_place_away_while_it_is_graded_and_only_so_many_may_wait(
    journal: Journal,
) -> None:
    opened = asyncio.Event()

    class Slow:
        waiting = 0

        async def grade(self, problem: Problem, answer: str) -> Grade:
            self.waiting += 1
            await opened.wait()
            return Grade(True)

    grader, provider = Slow(), Counting()
    todo = cells(System("w", SingleWorker(alone(provider), 0)), grader=grader)
    playing = asyncio.create_task(Grid(journal, concurrency=1).play(todo, done=0, total=6))
    async with asyncio.timeout(60):
        while grader.waiting < 4:  # noqa: ASYNC110 - the journal's thread has a part in it
            await asyncio.sleep(0.001)
    assert (grader.waiting, provider.most, len(provider.asked)) == (4, 1, 4)  # one place, and three that settle
    opened.set()
    await playing
    assert len(provider.asked) == 6


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_spent_budget_begins_nothing_more_and_a_larger_one_goes_on(journal: Journal) -> None:
    provider = Counting()
    system = System("w", SingleWorker(alone(provider), 0))
    with pytest.raises(BudgetExceeded, match=r"4 of 6 questions are done: paid 4 calls and \$0.004") as caught:
        await Grid(journal, concurrency=1, budget=Budget(calls=4)).play(cells(system), done=0, total=6)
    assert caught.value.limit == "calls"
    assert len(await kept(journal)) == len(provider.asked) == 4
    done = {one.key for one in journal.outcomes()}
    rest = [cell for cell in cells(system) if cell.key not in done]
    with pytest.raises(BudgetExceeded, match="5 of 6"):
        await Grid(journal, concurrency=1, budget=Budget(calls=5)).play(rest, done=4, total=6)
    await Grid(journal, concurrency=1, budget=Budget(calls=6)).play(rest[1:], done=5, total=6)
    assert len(await kept(journal)) == len(provider.asked) == 6


async def test_dollars_are_never_overspent_where_workers_have_a_token_limit(journal: Journal) -> None:
    provider = Counting(tokens=1000)
    system = System("w", SingleWorker(alone(provider, max_tokens=1000), 0))
    budget = Budget(dollars=Decimal("0.0035"))  # a call writes for $0.001
    with pytest.raises(BudgetExceeded) as caught:
        await Grid(journal, concurrency=6, budget=budget).play(cells(system), done=0, total=6)
    assert caught.value.limit == "dollars"
    assert journal.totals().spent.usage.dollars == Decimal("0.003")
    assert len(await kept(journal)) == 3


async def test_a_dollar_budget_that_was_spent_to_the_last_cent_pays_for_no_call_of_unknown_cost(
    journal: Journal,
) -> None:
    provider = Counting(tokens=1000)
    system = System("w", SingleWorker(alone(provider), 0))
    budget = Budget(dollars=Decimal("0.002"))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            await Grid(journal, concurrency=1, budget=budget).play(cells(system), done=0, total=6)
    assert len(provider.asked) == 2


async def test_what_the_journal_answers_is_not_taken_from_the_budget(journal: Journal) -> None:
    provider = Counting()
    await Grid(journal, concurrency=2).play(cells(System("w", SingleWorker(alone(provider), 0))), done=0, total=6)
    await journal.wait_durable()
    again = System("w", SingleWorker(alone(provider).replaying(journal), 0))
    grid = Grid(journal, concurrency=2, budget=Budget(calls=7, dollars=Decimal("0.007")))
    await grid.play(cells(again), done=0, total=6)
    assert len(provider.asked) == grid.spent.calls == 6
    assert (grid.purse is not None) and grid.purse.limits_dollars
    records = await kept(journal)
    assert all(one.usage.dollars == Decimal("0.001") for one in records)  # what it would cost, whoever paid


async def test_a_questions_own_budget_is_data_and_no_stop(journal: Journal) -> None:
    provider = Counting()
    poor = System("poor", SingleWorker(alone(provider), 0), Budget(calls=0))
    await Grid(journal, concurrency=2, budget=Budget(calls=9)).play(cells(poor), done=0, total=6)
    assert {(one.status, one.correct) for one in await kept(journal)} == {("refused", False)}
    assert provider.asked == []


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_what_stops_a_run_cancels_what_runs_and_comes_out_as_it_is(journal: Journal) -> None:
    class Hanging(Counting):
        cancelled = 0

        async def complete(
            self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
        ) -> Completion:
            if "What is 2" in messages[0].content:
                raise AuthFailed("the key is wrong")
            self.asked.append(int(messages[0].content.split()[2]))
            try:
                return await asyncio.Future()
            finally:
                self.cancelled += 1

    provider = Hanging()
    with pytest.raises(AuthFailed, match="the key is wrong"):
        await Grid(journal, concurrency=3).play(cells(System("w", SingleWorker(alone(provider), 0))), done=0, total=6)
    assert provider.asked in ([0, 1], [0, 1, 3])  # p3 may get the place of p2, while that waits for the disk
    assert provider.cancelled == len(provider.asked)
    assert await kept(journal) == []


async def test_a_failure_of_a_worker_is_masked_and_the_others_go_on(journal: Journal) -> None:
    provider = Counting(failing={2: RateLimited("too many")})
    await Grid(journal, concurrency=2).play(cells(System("w", SingleWorker(alone(provider), 0))), done=0, total=6)
    fates = {one.problem: (one.status, one.correct) for one in await kept(journal)}
    assert fates.pop("p2") == ("failed", None)
    assert set(fates.values()) == {("graded", True)}


@pytest.mark.parametrize(
    ("said", "status", "note"),
    [
        (Grade(None, note="two readings"), "ungraded", "two readings"),
        (GradingError("no sandbox"), "ungraded", "no sandbox"),
        (ZeroDivisionError("oops"), "ungraded", "ZeroDivisionError: oops"),
        (TimeoutError("its own"), "ungraded", "TimeoutError: its own"),
        (asyncio.CancelledError(), "ungraded", "the grader was cancelled from inside"),
        (Grade(False, note="unparsed: no box"), "unparsed", "unparsed: no box"),
    ],
)
async def test_what_a_grader_cannot_decide_is_masked_with_the_reason(
    journal: Journal, said: Grade | BaseException, status: str, note: str
) -> None:
    await Grid(journal, concurrency=6).play(cells(System("x", Asking("1")), grader=Judge(said)), done=0, total=6)
    assert {(one.status, one.note) for one in await kept(journal)} == {(status, note)}


async def test_a_grader_whose_task_is_broken_stops_the_run(journal: Journal) -> None:
    grader = Judge(TaskError("the data have changed"))
    with pytest.raises(TaskError, match="have changed"):
        await Grid(journal, concurrency=6).play(cells(System("x", Asking("1")), grader=grader), done=0, total=6)


async def test_what_progress_raises_ends_the_run(journal: Journal) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise ConfigError("enough")

    with pytest.raises(ConfigError, match="enough"):
        await Grid(journal, concurrency=1, on_progress=stop).play(cells(System("x", Asking("1"))), done=0, total=6)
    assert len(await kept(journal)) >= 3
