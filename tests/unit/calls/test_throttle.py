"""Servers that reject calls for their rate (429), in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from openconductor import Budget, Worker, errors
from openconductor.calls.budget import open_meter
from openconductor.calls.limits import (
    LONGEST_BACKOFF_S,
    LONGEST_PAUSE_S,
    PATIENCE_S,
    Throttle,
)
from openconductor.calls.policies import FAILURES, OTHERS_WAIT_S
from openconductor.calls.worker import waiting_calls
from openconductor.protocols import CallContext, Provider
from openconductor.providers.wire.failures import failure
from openconductor.types import Completion, Message, Usage
from rate_limited import DIALECTS, QUESTIONS, Bucket, Window, throughput

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

HELLO = (Message("user", "hello"),)


def now() -> float:
    return asyncio.get_running_loop().time() - 1000


@dataclass
class Server(Provider):
    """A model behind a rate limit."""

    limit: Bucket | Window
    cost: float = 1.0
    dialect: str = "silent"
    seconds: float = 1.0
    remote: bool = True
    identity: str = ""
    api_key_env: str | None = None
    sent: list[float] = field(default_factory=list[float])
    ended: list[float] = field(default_factory=list[float])
    error: errors.WorkerError | None = None

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        self.sent.append(now())
        await asyncio.sleep(0.05)
        if self.error is not None:
            raise self.error
        wait = self.limit.take(self.cost, now())
        if wait:
            headers, body = DIALECTS[self.dialect](wait, self.limit.reset(now()))
            raise failure(429, json.dumps(body).encode(), headers)
        await asyncio.sleep(self.seconds)
        self.ended.append(now())
        return Completion("hi", usage=Usage(input_tokens=int(self.cost)))


async def ask(worker: Worker, count: int, **context: Any) -> list[str]:
    """Ask at once; return the names of the errors."""

    async def one() -> str:
        try:
            await worker.complete(HELLO, call=CallContext(**context))
        except errors.OpenConductorError as error:
            return type(error).__name__
        return ""

    outcomes = await asyncio.gather(*(one() for _ in range(count)))
    return [outcome for outcome in outcomes if outcome]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seconds", [0.1, 5.0])
@pytest.mark.parametrize(
    ("kind", "limit", "cost"),
    [(Bucket, 60, 1), (Window, 60, 1), (Bucket, 10_000, 400), (Window, 10_000, 400)],
)
def test_no_question_is_lost_to_a_limit_and_the_limit_is_used(
    in_virtual_time: Runs,
    kind: type[Bucket | Window],
    limit: float,
    cost: float,
    seconds: float,
    dialect: str,
) -> None:
    server = Server(kind(limit), cost, dialect, seconds)
    worker = Worker(server, name="w")
    assert in_virtual_time(ask(worker, QUESTIONS)) == []
    assert len(server.ended) == QUESTIONS
    assert throughput(server.ended, cost, limit) >= 0.9
    assert len(server.sent) <= 3 * QUESTIONS
    assert worker.healthy


@pytest.mark.parametrize(
    "limit",
    [Bucket(60, capacity=5), Bucket(60, used=60), Window(60, shift=20), Window(60, used=60)],
    ids=str,
)
def test_a_limit_that_others_have_used_up_or_of_another_form_is_learnt(
    in_virtual_time: Runs, limit: Bucket | Window
) -> None:
    server = Server(limit)
    assert in_virtual_time(ask(Worker(server, name="w"), QUESTIONS)) == []
    assert throughput(server.ended, 1, 60) >= 0.9


def test_workers_of_one_model_and_key_share_what_is_learnt_and_others_do_not(
    in_virtual_time: Runs,
) -> None:
    async def check() -> None:
        busy = Server(Window(0), identity="m", dialect="seconds")
        names = ("terse", "verbose")
        workers = [Worker(busy, name=name, max_concurrency=9) for name in names]
        first = asyncio.create_task(ask(workers[0], 1))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(ask(workers[1], 3))
        await asyncio.sleep(1)
        assert len(busy.sent) == 1
        assert waiting_calls() == {"terse": 1, "verbose": 3}
        for model, key in (("other", None), ("m", "KEY")):
            other = Server(Bucket(60), identity=model, api_key_env=key)
            assert await ask(Worker(other, name="terse"), 1) == []
            assert now() < 10
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert waiting_calls() == {}
        busy.limit = Bucket(60)
        await asyncio.sleep(60)
        assert await ask(workers[1], 20) == []

    in_virtual_time(check())


def test_a_call_waits_until_its_deadline_and_else_while_others_are_answered(
    in_virtual_time: Runs,
) -> None:
    async def check() -> None:
        never = Server(Window(0))
        worker = Worker(never, name="w")
        assert set(await ask(worker, 5, deadline=1100)) <= {"RateLimited", "WorkerTimeout"}
        assert 100 - LONGEST_BACKOFF_S <= now() <= 100
        never = Server(Window(0))
        begun = now()
        assert await ask(Worker(never, name="w"), 5) == ["RateLimited"] * 5
        waited = now() - begun
        assert PATIENCE_S - LONGEST_BACKOFF_S <= waited <= PATIENCE_S + 20
        assert len(never.sent) <= 3 * waited / LONGEST_BACKOFF_S
        slow = Server(Window(4))
        assert await ask(Worker(slow, name="slow"), 60) == []
        assert max(slow.ended) > PATIENCE_S

    in_virtual_time(check())


@pytest.mark.parametrize(
    "error",
    [
        errors.RateLimited("the quota is spent", retryable=False),
        errors.RateLimited("tomorrow", retry_after=LONGEST_PAUSE_S + 1),
    ],
    ids=str,
)
def test_a_spent_quota_is_final_and_keeps_nobody_waiting(
    in_virtual_time: Runs, error: errors.RateLimited
) -> None:
    server = Server(Bucket(60), error=error)
    assert in_virtual_time(ask(Worker(server, name="w"), 3)) == ["RateLimited"] * 3
    assert len(server.sent) == 3


def test_where_another_worker_can_be_asked_a_rejected_call_soon_goes_there(
    in_virtual_time: Runs,
) -> None:
    async def check() -> None:
        server = Server(Window(0))
        worker = Worker(server, name="w")
        assert await ask(worker, 1, unreachable_s=0.0) == ["RateLimited"]
        assert 1 <= len(server.sent) <= 3
        assert now() < OTHERS_WAIT_S
        server.dialect = "seconds"
        assert await ask(worker, 1, unreachable_s=0.0) == ["RateLimited"]
        assert now() < 2 * OTHERS_WAIT_S
        sent = len(server.sent)
        assert await ask(worker, 9, unreachable_s=0.0) == ["RateLimited"] * 9
        assert len(server.sent) == sent  # the server has asked for a pause

    in_virtual_time(check())


def test_waiting_for_a_turn_uses_neither_retries_nor_calls_of_the_budget(
    in_virtual_time: Runs,
) -> None:
    async def check() -> None:
        server = Server(Window(1, used=1))
        meter = open_meter(Budget(calls=1), now=1000.0)
        with await meter.reserve_call() as reservation:
            assert await ask(Worker(server, name="w", retries=1), 1, budget=reservation) == []
        assert len(server.sent) > FAILURES

    in_virtual_time(check())


def test_a_server_that_was_overloaded_for_a_moment_is_soon_used_again(
    in_virtual_time: Runs,
) -> None:
    server = Server(Window(1000, used=1000, shift=59.9), seconds=0.1)
    assert in_virtual_time(ask(Worker(server, name="w"), 30)) == []
    assert max(server.ended) < 3


def test_a_minute_after_the_last_rejection_calls_begin_at_once() -> None:
    throttle = Throttle()
    assert [throttle.enter(0.0) for _ in range(100)] == [0.0] * 100
    throttle.reject(0.0, 1.0, None)
    assert throttle.enter(1.0) > 0
    throttle.succeed(0.0, 1.5)
    assert throttle.enter(62.0) == 0
    assert [throttle.enter(62.0) for _ in range(100)] == [0.0] * 100
