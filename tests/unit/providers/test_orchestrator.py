"""Orchestrators as workers: depth, usage, errors, deadlines."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from openconductor import errors
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.providers.adapted import MAX_DEPTH, OrchestratorProvider
from openconductor.types import (
    Budget,
    Completion,
    Episode,
    Message,
    Price,
    Question,
    Sampling,
    Usage,
)

HELLO = (Message("user", "hello"),)
SPENT = Usage(
    input_tokens=10, output_tokens=5, dollars=Decimal("0.5"), unpriced_calls=2, seconds=3.0
)


class Inner:
    """An orchestrator that answers one thing, or asks a worker of its own pool."""

    def __init__(
        self,
        answer: str | None = "42",
        *,
        error: errors.OpenConductorError | None = None,
        raises: errors.OpenConductorError | None = None,
    ) -> None:
        self.answer = answer
        self.error = error
        self.raises = raises
        self.asked: list[tuple[Question, Budget | None, int]] = []
        self.pool: WorkerPool | None = None

    async def ask(self, question, *, budget=None, on_event=None, context=None) -> Episode:
        self.asked.append((question, budget, context.sample))
        if self.raises is not None:
            raise self.raises
        if self.pool is not None:
            # In a task of its own, as an executor runs its steps.
            said = await asyncio.create_task(self.pool[0].complete(HELLO, call=context))
            return Episode(question, (), said.text, None, said.usage, 0.0)
        return Episode(question, (), self.answer, self.error, SPENT, 0.0)


async def complete(inner: Inner, call: CallContext | None = None) -> Completion:
    return await OrchestratorProvider(inner).complete(HELLO, Sampling(), call=call or CallContext())


async def test_the_turns_are_the_question_and_the_sample_is_kept() -> None:
    inner = Inner()
    assert (await complete(inner, CallContext(sample=3))).text == "42"
    assert inner.asked == [(HELLO, None, 3)]


async def test_usage_is_carried_through_the_worker_as_it_is() -> None:
    assert (await Worker(Inner(), name="inner").complete(HELLO, call=CallContext())).usage == SPENT


def test_a_price_on_an_orchestrator_is_a_config_error() -> None:
    with pytest.raises(errors.ConfigError, match="costs what its workers cost"):
        Worker(Inner(), name="inner", price=Price(Decimal(1), Decimal(1)))


async def test_what_is_left_of_the_deadline_is_the_inner_budget() -> None:
    inner = Inner()
    await complete(inner, CallContext(deadline=asyncio.get_running_loop().time() + 30))
    budget = inner.asked[0][1]
    assert budget.seconds == pytest.approx(30, abs=10)


async def test_a_spent_inner_budget_of_seconds_is_a_timeout() -> None:
    inner = Inner(raises=errors.BudgetExceeded("30 s are over", limit="seconds"))
    with pytest.raises(errors.WorkerTimeout):
        await complete(inner, CallContext(deadline=asyncio.get_running_loop().time() + 30))
    with pytest.raises(errors.BudgetExceeded):
        await complete(Inner(raises=errors.BudgetExceeded("spent", limit="dollars")))


async def test_a_worker_error_of_the_inner_episode_keeps_its_kind_and_carries_the_episode() -> None:
    inner = Inner(None, error=errors.RateLimited("slow", worker="deep", retry_after=2))
    with pytest.raises(errors.RateLimited) as caught:
        await Worker(inner, name="outer").complete(HELLO, call=CallContext())
    assert caught.value.worker == "deep"
    assert caught.value.episode.usage == SPENT


async def test_an_inner_plan_that_is_no_workflow_is_a_worker_error() -> None:
    with pytest.raises(errors.WorkerError, match="no_steps") as caught:
        await complete(
            Inner(None, error=errors.WorkflowError(errors.WorkflowReason.NO_STEPS, "no step"))
        )
    assert isinstance(caught.value.__cause__, errors.WorkflowError)
    assert caught.value.episode is not None


async def test_a_blank_inner_answer_is_an_empty_response() -> None:
    with pytest.raises(errors.EmptyResponse):
        await Worker(Inner(" "), name="inner").complete(HELLO, call=CallContext())


async def test_an_orchestrator_in_its_own_pool_ends_at_the_depth_limit() -> None:
    inner = Inner()
    inner.pool = WorkerPool([Worker(inner, name="itself")])
    with pytest.raises(errors.WorkerError, match="nested") as caught:
        await inner.pool[0].complete(HELLO, call=CallContext())
    assert not caught.value.retryable
    assert len(inner.asked) == MAX_DEPTH


async def test_nesting_up_to_the_limit_answers_and_leaves_the_depth_as_it_was() -> None:
    innermost = inner = Inner()
    for _ in range(MAX_DEPTH - 1):
        outer = Inner()
        outer.pool = WorkerPool([Worker(inner, name="inner")])
        inner = outer
    for _ in range(2):
        assert (await complete(inner)).text == "42"
    assert len(innermost.asked) == 2
