"""Answering without a plan: the second try, the default worker, and questions below a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from openconductor import errors
from openconductor.conductor import PLAN_TIMEOUT_S, Conductor
from openconductor.events import Chosen, Event
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext
from openconductor.store import open_store
from openconductor.store.episode_json import episode_json
from openconductor.testing import PRICE, Scripted, pool_of
from openconductor.types import Budget, Completion, Episode, Price, Sampling, Step, Workflow

PLAN = Workflow([Step(0, "Think."), Step(1, "Decide.", "all")])
BOLD = "**model_id**: 0\n**subtasks**: solve it"
CUT = Completion(render_workflow(PLAN), finish_reason="length")
DOWN = errors.Unreachable("nobody listens")
NO_KEY = errors.AuthFailed("the key is wrong", status=401)
QUOTA = errors.RateLimited("no credit is left", status=402, retryable=False)


def mending(planner: Scripted, pool: WorkerPool, **options: object) -> Conductor:
    return Conductor(planner, pool=pool, on_no_plan="default_worker", **options)


def rules(episode: Episode) -> list[str | None]:
    return [played.rule for played in episode.rounds]


# ── the second try ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("most_rounds", [1, 2])
async def test_a_second_try_shows_the_planner_its_text_and_what_is_wrong_with_it(
    most_rounds: int,
) -> None:
    planner = Scripted([BOLD, PLAN, PLAN])
    episode = await mending(planner, pool_of("one", "two"), max_rounds=most_rounds).ask("Why?")
    assert episode.answer == "two" and episode.rule is None
    assert len(planner.calls) == most_rounds + 1  # the second try is beside the rounds
    shown = planner.calls[1].text
    assert BOLD in shown and "missing_list" in shown
    assert str(episode.no_plan) == str(episode.rounds[0].error)


@pytest.mark.parametrize("on_no_plan", ["error", "default_worker"])
async def test_a_valid_plan_is_followed_alike_whatever_would_happen_without_one(
    on_no_plan: str,
) -> None:
    workers = pool_of("one", "two")
    conductor = Conductor(Scripted(PLAN), pool=workers, on_no_plan=on_no_plan)
    episode = await conductor.ask("Why?")
    assert (episode.answer, episode.no_plan, rules(episode)) == ("two", None, [None])


# ── the default worker ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("says", "calls"), [(BOLD, 2), (CUT, 1), (DOWN, 1), (NO_KEY, 1), (QUOTA, 1)]
)
async def test_the_default_worker_answers_the_bare_question_where_there_is_no_plan(
    says: object, calls: int
) -> None:
    planner = Scripted(says)
    workers = [Scripted("one"), Scripted("two")]
    pool = WorkerPool(
        [Worker(worker, name=f"w{index}") for index, worker in enumerate(workers)],
        default_worker="w1",
    )
    events: list[Event] = []
    episode = await mending(planner, pool, max_rounds=3).ask("Why?", on_event=events.append)
    assert episode.answer == "two" and episode.error is None
    assert len(planner.calls) == calls
    assert [len(workers[0].calls), workers[1].calls[0].text] == [0, "Why?"]
    assert rules(episode) == [*[None] * calls, "default_worker"]
    assert episode.no_plan is episode.rounds[0].error
    (chosen,) = [event for event in events if isinstance(event, Chosen)]
    assert (chosen.rule, chosen.reason) == ("default_worker", episode.rounds[-2].error)


@pytest.mark.parametrize("failure", [DOWN, NO_KEY, errors.Refused("no")])
async def test_another_worker_answers_where_the_default_one_fails(failure: Exception) -> None:
    episode = await mending(Scripted(BOLD), pool_of(failure, "two")).ask("Why?")
    assert episode.answer == "two"
    assert episode.rounds[-1].transcript.results[0].worker == 1


@pytest.mark.parametrize(
    ("says", "answer", "calls"), [(DOWN, "two", 1), (BOLD, BOLD, 3), (NO_KEY, "two", 1)]
)
async def test_a_planner_that_is_down_is_not_asked_as_the_default_worker(
    says: object, answer: str, calls: int
) -> None:
    planner = Scripted(says)
    pool = pool_of(planner, "two")
    episode = await mending(pool[0], pool).ask("Why?")  # type: ignore[arg-type]
    assert (episode.answer, len(planner.calls)) == (answer, calls)


async def test_a_worker_that_is_also_the_planner_takes_over_last_however_good_its_card() -> None:
    planner = Scripted([Workflow([Step(2, "Say it.")]), "a plan"])
    workers = [
        Worker(planner, name="w0", description="law 90%"),
        Worker(Scripted("two"), name="w1", description="law 10%"),
        Worker(Scripted(DOWN), name="w2"),
    ]
    conductor = Conductor("worker:w0", pool=WorkerPool(workers), fallback=True)
    assert (await conductor.ask("Why?")).answer == "two"


async def test_a_failure_of_every_worker_ends_the_episode_in_its_error() -> None:
    episode = await mending(Scripted(BOLD), pool_of(DOWN, DOWN)).ask("Why?")
    assert isinstance(episode.error, errors.Unreachable) and episode.answer is None


async def test_a_plan_whose_steps_fail_is_not_replaced() -> None:
    planner = Scripted(PLAN)
    episode = await mending(planner, pool_of("one", DOWN)).ask("Why?")
    assert isinstance(episode.error, errors.Unreachable)
    assert rules(episode) == [None] and len(planner.calls) == 1


async def test_a_later_round_without_a_plan_leaves_the_answer_standing() -> None:
    planner = Scripted([PLAN, NO_KEY])
    episode = await mending(planner, pool_of("one", "two"), max_rounds=2).ask("Why?")
    assert (episode.answer, rules(episode)) == ("two", [None, None])
    assert episode.no_plan is None and isinstance(episode.rounds[1].error, errors.AuthFailed)


# ── deadlines and budgets ─────────────────────────────────────────────────────────────────────────
def test_a_hanging_planner_gets_half_of_the_time_and_one_call(in_virtual_time: Callable) -> None:
    planner = Scripted((float("inf"), "late"), remote=True, identity="hangs in half of the time")
    conductor = mending(planner, pool_of("one"))
    episode = in_virtual_time(conductor.ask("Why?", budget=Budget(seconds=20)))
    assert episode.answer == "one" and episode.seconds == pytest.approx(10, abs=0.1)
    assert isinstance(episode.no_plan, errors.WorkerTimeout) and len(planner.calls) == 1


def test_without_a_deadline_a_plan_behind_a_network_has_one(in_virtual_time: Callable) -> None:
    planner = Scripted((float("inf"), "late"), remote=True, identity="hangs for ever")
    episode = in_virtual_time(mending(planner, pool_of("one")).ask("Why?"))
    assert episode.answer == "one"
    assert episode.seconds == pytest.approx(PLAN_TIMEOUT_S, abs=0.1)
    own = Worker(Scripted(PLAN, remote=True), name="slow", timeout_s=900.0)
    assert mending(own, pool_of("one")).planner.timeout_s == 900.0  # type: ignore[arg-type]


def test_a_planner_whose_circuit_is_open_costs_no_time(in_virtual_time: Callable) -> None:
    planner = Scripted(DOWN, remote=True, identity="unreachable")
    conductor = mending(planner, pool_of("one"))

    async def ask_often() -> Episode:
        for _ in range(5):
            await conductor.ask("Why?")
        return await conductor.ask("Why?")

    episode = in_virtual_time(ask_often())
    assert episode.answer == "one" and episode.seconds < 0.1
    assert isinstance(episode.no_plan, errors.CircuitOpen)


def test_at_most_one_request_at_a_time_hangs_with_a_planner_whose_circuit_is_open(
    in_virtual_time: Callable,
) -> None:
    planner = Scripted((float("inf"), "late"), remote=True, identity="hangs again and again")
    conductor = mending(planner, pool_of("one"), timeout_s=20.0)

    async def ask_for(seconds: float) -> list[float]:
        took: list[float] = []
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            took.append((await conductor.ask("Why?")).seconds)
            await asyncio.sleep(1.0)
        return took

    async def clients(seconds: float) -> list[float]:
        each = await asyncio.gather(*(ask_for(seconds) for _ in range(24)))
        return [took for one in each for took in one]

    async def first_and_later() -> list[float]:
        await clients(20.0)
        planner.most_running = 0
        return await clients(200.0)

    took = in_virtual_time(first_and_later())
    assert planner.most_running == 1
    assert sum(seconds > 1.0 for seconds in took) <= 200 / 20 < len(took) / 100


@pytest.mark.parametrize(
    ("budget", "calls", "answer"),
    [
        (Budget(calls=3), 2, "one"),
        (Budget(calls=2), 1, "one"),  # the second try would take the default worker's call
        (Budget(dollars=Decimal("0.00003")), 0, "one"),  # the plan does not fit, the answer does
    ],
)
async def test_a_plan_leaves_the_default_worker_its_part_of_the_budget(
    budget: Budget, calls: int, answer: str
) -> None:
    price = {"input": 1, "output": 100} if budget.dollars else None
    writer = Scripted(BOLD)
    planner = Worker(writer, name="planner", price=price)
    episode = await mending(planner, pool_of("one", price=PRICE)).ask("Why?", budget=budget)  # type: ignore[arg-type]
    assert (len(writer.calls), episode.answer) == (calls, answer)


@pytest.mark.parametrize("limit", [{"calls": 1}, {"calls": 0}])
async def test_a_budget_is_not_passed_for_the_default_worker(limit: dict[str, int]) -> None:
    with pytest.raises(errors.BudgetExceeded) as caught:
        await mending(Scripted(BOLD), pool_of("one")).ask("Why?", budget=Budget(**limit))
    assert sum(len(played.calls) for played in caught.value.episode.rounds) == limit["calls"]


@pytest.mark.parametrize(
    ("dollars", "answer"), [("10", "best"), ("5", "good"), ("1.5", "cheap"), ("0.001", None)]
)
async def test_the_best_worker_whose_call_fits_the_budget_answers_where_the_default_one_does_not(
    dollars: str, answer: str | None
) -> None:
    workers: list[Worker] = []
    for name, price, card in (("cheap", 1, 10), ("good", 4, 50), ("other", 4, 40), ("best", 8, 90)):
        sampling = Sampling(max_tokens=1_000_000)
        priced = Price(Decimal(0), Decimal(price))
        card_text = f"law {card}%"
        worker = Worker(
            Scripted(name), name=name, description=card_text, price=priced, sampling=sampling
        )
        workers.append(worker)
    pool = WorkerPool(workers)
    planner = Worker(Scripted(DOWN), name="planner", price=Price(Decimal(0), Decimal(0)))
    asking = mending(planner, pool).ask("Why?", budget=Budget(dollars=Decimal(dollars)))  # type: ignore[arg-type]
    if answer is not None:
        assert (await asking).answer == answer
    else:
        with pytest.raises(errors.BudgetExceeded, match="worker 'best' reserves"):
            await asking


# ── who it is ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("cards", "named", "subset", "expected"),
    [
        (("", "", ""), None, (0, 1, 2), 0),
        (("", "", ""), "w2", (0, 1, 2), 2),
        (("", "", ""), "w2", (0, 1), 0),
        (("algebra 40%", "algebra 80%, law 60%", "fast"), None, (0, 1, 2), 1),
        (("algebra 40%", "algebra 80%", "fast"), "w0", (1, 2), 1),
        (("fast", "fast", "law 10%"), None, (0, 2), 2),
    ],
)
def test_the_default_worker_is_the_named_one_or_the_best_by_its_card(
    cards: tuple[str, ...], named: str | None, subset: tuple[int, ...], expected: int
) -> None:
    workers = [
        Worker(Scripted(), name=f"w{index}", description=card) for index, card in enumerate(cards)
    ]
    pool = WorkerPool(workers, default_worker=named).subset(subset)
    assert pool.default_worker == expected


def test_a_default_worker_that_is_not_in_the_pool_is_a_config_error() -> None:
    with pytest.raises(errors.ConfigError, match="'w9' is not in the pool; the nearest is"):
        WorkerPool([Worker(Scripted(), name="w1")], default_worker="w9")


# ── questions that are too short for a plan ───────────────────────────────────────────────────────
@pytest.mark.parametrize(("characters", "plans"), [(36, 0), (40, 1)])
async def test_a_question_below_the_limit_is_answered_without_a_plan(
    characters: int, plans: int
) -> None:
    planner = Scripted(PLAN)
    conductor = Conductor(planner, pool=pool_of("one", "two"), direct_below_tokens=10)
    episode = await conductor.ask("x" * characters, context=CallContext(sample=1))
    assert len(planner.calls) == plans
    assert episode.answer == ("two" if plans else "one")
    assert episode.rule == (None if plans else "direct") and episode.no_plan is None


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────
async def test_the_rule_stands_in_the_journal_and_in_the_json_of_an_episode(
    tmp_path: Path,
) -> None:
    pool = pool_of("one")
    with open_store(tmp_path / "ask.sqlite") as store:
        episode = await mending(Scripted(BOLD), pool).ask("Why?", on_event=store)
        kept = store.episode(episode.id)
    assert kept is not None and rules(kept) == [None, None, "default_worker"]
    printed = episode_json(kept, pool.names)
    assert printed == episode_json(episode, pool.names)
    assert [played.get("rule") for played in printed["rounds"]] == rules(kept)  # type: ignore[attr-defined]
