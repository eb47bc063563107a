"""What a question may cost: metered over planner and steps, rounds and nested orchestrators."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from decimal import Decimal

import pytest

from openconductor.calls.budget import BudgetMeter, RunBudget
from openconductor.conductor import Conductor
from openconductor.episode import execute
from openconductor.errors import BudgetExceeded, ConfigError, EmptyResponse, JournalError
from openconductor.events import Answered, Event, RoundEnded, StepEnded
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.protocols import Provider
from openconductor.testing import Scripted, ScriptedCall
from openconductor.types import Budget, Price, Sampling, Step, Usage, Workflow

PRICE = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))  # a dollar a token
BROKE = Budget(dollars=Decimal(0))
ONE_STEP = Workflow([Step(0, "Do.")])
CHAIN = Workflow([Step(0, "Do."), Step(0, "Check.", [0]), Step(0, "Decide.", [1])])
PAIR = Workflow([Step(0, "Do."), Step(0, "Do."), Step(0, "Decide.", [0, 1])])


def spender(seconds: float = 0.0, text: str = "42") -> Scripted:
    """A provider whose calls take ten tokens, and some time."""
    return Scripted((seconds, text), usage=Usage(output_tokens=10))


def pool_of(*providers: Provider | Conductor, price: Price | None = None) -> WorkerPool:
    workers = [Worker(provider, name=f"w{i}", price=price) for i, provider in enumerate(providers)]
    return WorkerPool(workers)


def plans(workflow: Workflow) -> Scripted:
    return spender(text=render_workflow(workflow))


def planner(workflow: Workflow) -> Worker:
    """One that has no token limit, so that nothing is reserved for it, and costs nothing."""
    return Worker(plans(workflow), name="planner", price=Price(Decimal(0), Decimal(0)))


# ── one execution ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("budget", "limit", "said"),
    [
        (Budget(calls=2), "calls", "2 calls used, 2 allowed"),
        # The call that passes it is kept, and is the last.
        (Budget(tokens=15), "tokens", "20 tokens used, 15 allowed"),
        (Budget(tokens=20), "tokens", "20 tokens used, 20 allowed"),
        (Budget(dollars=Decimal("19.99")), "dollars", "20 dollars used, 19.99 allowed"),
    ],
)
async def test_a_limit_ends_the_episode_which_holds_what_was_paid_for(
    budget: Budget, limit: str, said: str
) -> None:
    worker = spender()
    with pytest.raises(BudgetExceeded, match=said) as caught:
        await execute(CHAIN, pool_of(worker, price=PRICE), "Why?", budget=budget)
    episode = caught.value.episode
    assert (caught.value.limit, len(worker.calls)) == (limit, 2)
    assert episode is not None and episode.usage.tokens == 20 and episode.error is caught.value
    transcript = episode.rounds[0].transcript
    assert [bool(result.completion) for result in transcript.results] == [True, True, False]


async def test_no_dollars_at_all_still_pay_for_a_worker_that_is_free() -> None:
    free = Price(Decimal(0), Decimal(0))
    assert (await execute(CHAIN, pool_of(spender(), price=free), "Why?", budget=BROKE)).answer


async def test_no_dollars_at_all_refuse_a_worker_with_a_price_before_it_is_called() -> None:
    costly = spender()
    message = "worker 'w0' reserves $3, and of $0 only $0 are left; raise --budget-dollars"
    with pytest.raises(BudgetExceeded, match=re.escape(message)):
        await execute(ONE_STEP, pool_of(costly, price=PRICE), "Why", budget=BROKE)
    assert not costly.calls


@pytest.mark.parametrize(
    ("budget", "reserves", "left"),
    [
        (Budget(dollars=Decimal("12.5")), r"\$\d+", r"of \$12\.5 only \$2\.5"),
        (Budget(tokens=15), r"\d+ tokens", "of 15 tokens only 5 tokens"),
    ],
)
async def test_a_call_that_does_not_fit_is_told_with_what_it_reserves_and_what_is_left(
    budget: Budget, reserves: str, left: str
) -> None:
    cheap = Worker(spender(), name="cheap", price=PRICE)
    big = Worker(spender(), name="big", price=PRICE, sampling=Sampling(max_tokens=40))
    workflow = Workflow([Step(0, "Do."), Step(1, "Check.", [0])])
    with pytest.raises(BudgetExceeded) as caught:
        await execute(workflow, WorkerPool([cheap, big]), "Why?", budget=budget)
    limit = caught.value.limit
    message = (
        rf"worker 'big' reserves {reserves} \(max_tokens 40\), and {left} are left; lower its "
        rf"max_tokens in the pool file, or raise --budget-{limit} \(conductor.max_{limit} of a"
    )
    assert re.search(message, str(caught.value))


async def test_a_dollar_budget_over_a_worker_without_a_price_is_refused_before_any_call() -> None:
    priced, unpriced = spender(), spender()
    pool = WorkerPool([Worker(priced, name="a", price=PRICE), Worker(unpriced, name="b")])
    workflow = Workflow([Step(0, "Do."), Step(1, "Do.")])
    with pytest.raises(ConfigError, match="'b' has no price"):
        await execute(workflow, pool, "Why?", budget=Budget(dollars=Decimal(5)))
    assert not priced.calls
    assert not unpriced.calls
    budget = Budget(dollars=Decimal(10))
    assert await execute(ONE_STEP, pool, "Why?", budget=budget)
    with pytest.raises(ConfigError):  # a fallback could reach it
        await execute(ONE_STEP, pool, "Why?", budget=budget, fallback=True)


@pytest.mark.parametrize("workflow", [CHAIN, PAIR])
def test_seconds_end_calls_in_flight(in_virtual_time: Callable, workflow: Workflow) -> None:
    worker = spender(seconds=3600.0)
    with pytest.raises(BudgetExceeded) as caught:
        in_virtual_time(execute(workflow, pool_of(worker), "Why?", budget=Budget(seconds=90.0)))
    assert caught.value.limit == "seconds"
    assert worker.cancelled == len(worker.calls) == (1 if workflow is CHAIN else 2)
    assert caught.value.episode.seconds == pytest.approx(90.0, abs=0.1)


def test_a_sink_that_fails_while_the_budgets_seconds_end_is_heard(
    in_virtual_time: Callable[..., None],
) -> None:
    def sink(event: Event) -> None:
        if isinstance(event, StepEnded):
            raise JournalError("disk full")

    async def ask() -> None:
        conductor = Conductor(plans(PAIR), pool=pool_of(spender(5.0)))
        with pytest.raises(JournalError, match="disk full") as caught:
            await conductor.ask("Why?", budget=Budget(seconds=1.0), on_event=sink)
        assert caught.value.episode.usage.tokens == 10

    in_virtual_time(ask())


@pytest.mark.parametrize(
    "budget",
    [
        Budget(calls=-1),
        Budget(dollars=Decimal(-1)),
        Budget(seconds=float("nan")),
        Budget(dollars=Decimal("nan")),
        Budget(dollars=Decimal("snan")),
        Budget(calls="3"),  # type: ignore[arg-type]
        Budget(calls=True),
    ],
)
async def test_a_budget_below_nothing_is_no_budget(budget: Budget) -> None:
    with pytest.raises(ConfigError, match="Budget"):
        await execute(ONE_STEP, pool_of(spender(), price=PRICE), "Why?", budget=budget)


# ── a question ────────────────────────────────────────────────────────────────────────────────────
async def test_the_planners_calls_count_too() -> None:
    worker = spender()
    conductor = Conductor(planner(CHAIN), pool=pool_of(worker))
    assert (await conductor.ask("Why?", budget=Budget(calls=4, tokens=40))).answer == "42"
    with pytest.raises(BudgetExceeded):
        await conductor.ask("Why?", budget=Budget(calls=3))
    with pytest.raises(BudgetExceeded):
        await conductor.ask("Why?", budget=Budget(tokens=39))


async def test_a_budget_is_shared_by_all_rounds_and_its_end_is_raised_and_told() -> None:
    events: list[Event] = []
    conductor = Conductor(plans(ONE_STEP), pool=pool_of(spender()), max_rounds=3)
    with pytest.raises(BudgetExceeded) as caught:
        await conductor.ask("Why?", budget=Budget(calls=5), on_event=events.append)
    episode = caught.value.episode
    assert episode is not None and episode.answer is None
    assert [round_.error for round_ in episode.rounds] == [None, None, caught.value]
    assert episode.usage.tokens == 50
    assert [type(event) for event in events[-2:]] == [RoundEnded, Answered]


async def test_without_a_limit_of_rounds_the_budgets_end_returns_the_answer_that_stands() -> None:
    conductor = Conductor(plans(ONE_STEP), pool=pool_of(spender()), max_rounds=None)
    episode = await conductor.ask("Why?", budget=Budget(calls=5))
    assert (episode.answer, episode.error) == ("42", None)
    *answered, last = episode.rounds
    assert [one.error for one in answered] == [None, None]
    assert type(last.error) is BudgetExceeded


async def test_a_budget_that_steps_side_by_side_meet_at_once_is_still_its_own_end() -> None:
    widening = Scripted([ONE_STEP, Workflow([Step(0, "Do.")] * 3)])
    conductor = Conductor(widening, pool=pool_of(spender()), max_rounds=None)
    episode = await conductor.ask("Why?", budget=Budget(calls=4))
    assert (episode.answer, episode.error) == ("42", None)
    assert isinstance(episode.rounds[1].error, BudgetExceeded)


@pytest.mark.parametrize("budget", [None, Budget()])
async def test_without_a_limit_of_rounds_a_budget_is_needed(budget: Budget | None) -> None:
    conductor = Conductor(plans(ONE_STEP), pool=pool_of(spender()), max_rounds=None)
    with pytest.raises(ConfigError, match="max_rounds"):
        await conductor.ask("Why?", budget=budget)


# ── orchestrators as workers ──────────────────────────────────────────────────────────────────────
def nested(inner_worker: Scripted, price: Price | None = None) -> WorkerPool:
    """A pool whose one worker is a Conductor: its planner and its worker spend ten tokens each."""
    return pool_of(Conductor(planner(ONE_STEP), pool=pool_of(inner_worker, price=price)))


async def test_what_an_inner_orchestrator_uses_is_counted_once() -> None:
    # The calls are the step itself, and inside it the inner planner and the inner step.
    budget = Budget(tokens=20, calls=3)
    transcript = await execute(ONE_STEP, nested(spender()), "Why?", budget=budget)
    assert transcript.usage.tokens == 20
    with pytest.raises(BudgetExceeded):
        await execute(ONE_STEP, nested(spender()), "Why?", budget=Budget(tokens=19))


async def test_an_orchestrator_needs_no_price_but_its_workers_do() -> None:
    budget = Budget(dollars=Decimal(15))
    transcript = await execute(ONE_STEP, nested(spender(), price=PRICE), "Why?", budget=budget)
    assert transcript.usage.dollars == 10
    with pytest.raises(ConfigError, match="has no price"):
        await execute(ONE_STEP, nested(spender()), "Why?", budget=budget)


# ── reservations ──────────────────────────────────────────────────────────────────────────────────
def limited(*, price: Price | None = None) -> WorkerPool:
    """A worker that may write 30 tokens and writes ten."""
    return WorkerPool([Worker(spender(), name="w", price=price, sampling=Sampling(max_tokens=30))])


async def test_a_call_waits_for_those_in_flight_where_only_what_they_hold_is_in_its_way() -> None:
    worker = spender(seconds=0.001)
    pool = WorkerPool([Worker(worker, name="w", sampling=Sampling(max_tokens=30))])
    # Two at once would hold 62.
    transcript = await execute(PAIR, pool, "Why?", budget=Budget(tokens=60))
    first, second, _ = transcript.results
    assert transcript.usage.tokens == 30
    assert first.ended is not None and second.started is not None and second.started >= first.ended


async def test_a_dollar_budget_is_never_passed_where_every_worker_has_a_token_limit() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        await execute(CHAIN, limited(price=PRICE), "Why?", budget=Budget(dollars=Decimal(45)))
    assert caught.value.limit == "dollars"
    assert caught.value.episode is not None and caught.value.episode.usage.dollars == 20


async def test_another_attempt_has_to_fit_beside_what_the_first_was_billed() -> None:
    blank = Scripted(EmptyResponse("blank", usage=Usage(output_tokens=10)))
    sampling = Sampling(max_tokens=10)
    worker = Worker(blank, name="w0", price=PRICE, sampling=sampling, retries=3)
    with pytest.raises(BudgetExceeded):
        await execute(ONE_STEP, WorkerPool([worker]), "Why?", budget=Budget(dollars=Decimal(19)))
    assert len(blank.calls) == 1


async def test_a_question_inside_a_call_is_paid_by_it_and_not_kept_out_by_its_reservation() -> None:
    inner = Conductor(planner(ONE_STEP), pool=pool_of(spender()))

    async def asks(call: ScriptedCall) -> str:
        return (await inner.ask("Why?", context=call.context)).answer or ""

    provider = Scripted(asks, usage=Usage(output_tokens=20))
    outer = WorkerPool([Worker(provider, name="asks", sampling=Sampling(max_tokens=30))])

    async def ask(calls: int) -> str | None:
        budget = Budget(calls=calls, tokens=35)
        return (await asyncio.wait_for(execute(ONE_STEP, outer, "Why?", budget=budget), 5)).answer

    assert await ask(3) == "42"  # the call's own 20 tokens are those of the question inside
    with pytest.raises(BudgetExceeded):
        await ask(2)


async def test_a_call_that_somebody_else_made_meanwhile_is_paid_by_the_question_alone() -> None:
    run = RunBudget(Budget(calls=2, dollars=Decimal(1)))
    question = BudgetMeter(Budget(), now=0.0, payer=run)
    usage = Usage(5, 0, 5, dollars=Decimal("0.5"))
    with await question.reserve_call(usage, worker="w") as reservation:
        assert run.used["calls"] == 1
        reservation.charge_replay(usage)
    assert (run.used["calls"], run.used["dollars"]) == (0, 0)
    assert (question.used["calls"], question.used["dollars"]) == (1, Decimal("0.5"))
    with await question.reserve_call(usage, worker="w") as outer:
        inside = BudgetMeter(Budget(), now=0.0, payer=outer)
        with await inside.reserve_call(usage, worker="w") as inner:
            inner.charge_replay(usage)
        outer.charge(usage)
    assert run.used["dollars"] == 0
