"""Retries: what is tried again, how long it waits, and what ends it. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from openconductor import errors
from openconductor.budget import open_meter
from openconductor.errors import BudgetExceeded, RateLimited, ServerFailed, TruncatedResponse, WorkerError
from openconductor.events import CallEnded, Event
from openconductor.pool import Worker
from openconductor.protocols import CallContext, OnText
from openconductor.providers.retry import FIRST_WAIT_S, LONGEST_RETRY_AFTER_S, LONGEST_WAIT_S, RetryProvider
from openconductor.types import Budget, Completion, Message, Sampling

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

HELLO = (Message("user", "hello"),)
CALL = CallContext()
FAULT = ServerFailed("overloaded", status=503)


@dataclass
class Faulty:
    """A provider that fails as it is told, then answers; remembers when it was called, and as which attempt."""

    faults: list[BaseException] = field(default_factory=list)
    says_before: str | None = None
    times: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.times.append(asyncio.get_running_loop().time())
        self.attempts.append(call.attempt)
        if on_text is not None and self.says_before is not None:
            on_text(self.says_before)
        if self.faults:
            raise self.faults.pop(0)
        return Completion("hi")

    @property
    def waits(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


async def ask(
    faulty: Faulty, retries: int = 2, *, call: CallContext = CALL, on_text: OnText | None = None
) -> Completion:
    return await RetryProvider(faulty, retries=retries).complete(HELLO, Sampling(), call=call, on_text=on_text)


# ── what is tried again ──────────────────────────────────────────────────────────────────────────────────────────────
def test_a_call_that_answers_is_made_once(in_virtual_time: Runs) -> None:
    faulty = Faulty()
    assert in_virtual_time(ask(faulty)).text == "hi"
    assert faulty.attempts == [0]


def test_a_failure_that_may_heal_is_tried_again_and_each_attempt_has_its_number(in_virtual_time: Runs) -> None:
    faulty = Faulty([FAULT, errors.Unreachable("refused")])
    assert in_virtual_time(ask(faulty, call=CallContext(attempt=3))).text == "hi"
    assert faulty.attempts == [3, 4, 5]


@pytest.mark.parametrize("retries", [1, 2, 5])
def test_the_last_failure_comes_out_when_the_attempts_are_used_up(in_virtual_time: Runs, retries: int) -> None:
    faults = [ServerFailed(str(number)) for number in range(9)]
    faulty = Faulty(list[BaseException](faults))
    with pytest.raises(ServerFailed) as caught:
        in_virtual_time(ask(faulty, retries))
    assert caught.value is faults[retries]
    assert len(faulty.attempts) == retries + 1


@pytest.mark.parametrize(
    "fault",
    [
        errors.Rejected("no such parameter", status=422),
        errors.CircuitOpen("not sent", retry_after=0.1),
        errors.AuthFailed("wrong key", status=401),
        errors.ContextTooLong("too long", status=400),
        errors.Refused("no", status=200),
        RateLimited("the quota is spent", retryable=False),
        WorkerError("never again", retryable=False),
        BudgetExceeded("spent", limit="calls"),
        errors.ConfigError("wrong"),
        ZeroDivisionError(),
        asyncio.CancelledError(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_cannot_heal_is_not_tried_again(in_virtual_time: Runs, fault: BaseException) -> None:
    faulty = Faulty([fault])
    with pytest.raises(type(fault)):
        in_virtual_time(ask(faulty))
    assert len(faulty.attempts) == 1


# ── how long it waits ────────────────────────────────────────────────────────────────────────────────────────────────
def test_waits_are_random_below_a_bound_that_doubles_up_to_a_cap(in_virtual_time: Runs) -> None:
    faulty = Faulty([FAULT] * 9)
    in_virtual_time(ask(faulty, 9))
    bounds = [min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**number) for number in range(9)]
    assert all(0 <= wait <= bound for wait, bound in zip(faulty.waits, bounds, strict=True))
    assert bounds[-1] == LONGEST_WAIT_S
    assert len(set(faulty.waits)) == 9


def test_jitter_draws_nothing_from_the_generator_that_results_depend_on(in_virtual_time: Runs) -> None:
    before = random.getstate()
    in_virtual_time(ask(Faulty([FAULT, FAULT])))
    assert random.getstate() == before


@pytest.mark.parametrize("kind", [RateLimited, ServerFailed])
def test_the_wait_that_a_server_names_is_honoured(
    in_virtual_time: Runs, kind: type[RateLimited | ServerFailed]
) -> None:
    faulty = Faulty([kind("later", retry_after=7.0)])
    in_virtual_time(ask(faulty))
    assert 7.0 <= faulty.waits[0] <= 7.0 + FIRST_WAIT_S


def test_a_server_that_names_too_long_a_wait_is_not_waited_for(in_virtual_time: Runs) -> None:
    faulty = Faulty([RateLimited("tomorrow", retry_after=LONGEST_RETRY_AFTER_S + 1)])
    with pytest.raises(RateLimited):
        in_virtual_time(ask(faulty))
    assert len(faulty.times) == 1


def test_a_wait_beyond_the_questions_deadline_is_not_begun(in_virtual_time: Runs) -> None:
    faulty = Faulty([RateLimited("later", retry_after=30.0)])

    async def run() -> float:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(RateLimited):
            await ask(faulty, call=CallContext(deadline=begun + 29))
        return asyncio.get_running_loop().time() - begun

    assert in_virtual_time(run()) == 0
    assert len(faulty.times) == 1


def test_no_attempt_begins_after_the_questions_deadline(in_virtual_time: Runs) -> None:
    faulty = Faulty([FAULT] * 100)

    async def run() -> float:
        deadline = asyncio.get_running_loop().time() + 40
        with pytest.raises(ServerFailed):
            await ask(faulty, 99, call=CallContext(deadline=deadline))
        return deadline

    assert max(faulty.times, default=0) <= in_virtual_time(run())
    assert 2 <= len(faulty.times) < 100


def test_a_cancelled_wait_ends_at_once_and_calls_nobody(in_virtual_time: Runs) -> None:
    faulty = Faulty([RateLimited("later", retry_after=50.0)])

    async def run() -> float:
        begun = asyncio.get_running_loop().time()
        task = asyncio.create_task(ask(faulty))
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time() - begun

    assert in_virtual_time(run()) == 5
    assert len(faulty.times) == 1


# ── what a user has seen ─────────────────────────────────────────────────────────────────────────────────────────────
def test_what_failed_after_its_first_text_was_handed_on_is_not_tried_again(in_virtual_time: Runs) -> None:
    faulty, heard = Faulty([TruncatedResponse("cut")], says_before="The ans"), list[str]()
    with pytest.raises(TruncatedResponse):
        in_virtual_time(ask(faulty, on_text=heard.append))
    assert heard == ["The ans"]
    assert len(faulty.times) == 1


def test_a_stream_that_failed_before_its_first_text_is_tried_again(in_virtual_time: Runs) -> None:
    faulty, heard = Faulty([TruncatedResponse("cut")], says_before=""), list[str]()
    assert in_virtual_time(ask(faulty, on_text=heard.append)).text == "hi"
    assert "".join(heard) == ""


def test_what_a_failing_reader_of_text_raises_is_not_tried_again(in_virtual_time: Runs) -> None:
    def fails(text: str) -> None:
        raise WorkerError("the reader's own")

    faulty = Faulty(says_before="The")
    with pytest.raises(WorkerError, match="own"):
        in_virtual_time(ask(faulty, on_text=fails))
    assert len(faulty.times) == 1


# ── budget and record ────────────────────────────────────────────────────────────────────────────────────────────────
def test_each_attempt_counts_against_the_budget_which_may_refuse_it(in_virtual_time: Runs) -> None:
    faulty = Faulty([FAULT] * 9)

    async def run() -> None:
        meter = open_meter(Budget(calls=3), now=asyncio.get_running_loop().time())
        assert meter is not None
        with await meter.call(), pytest.raises(BudgetExceeded):
            await ask(faulty, 9)

    in_virtual_time(run())
    assert len(faulty.times) == 3


def test_each_attempt_of_a_worker_is_told_of_with_its_number_and_outcome(in_virtual_time: Runs) -> None:
    events: list[Event] = []
    faulty = Faulty([FAULT, TruncatedResponse("cut")])
    worker = Worker(faulty, name="w", retries=2)
    said = in_virtual_time(worker.complete(HELLO, call=CallContext(on_event=events.append)))
    calls = [event.call for event in events if isinstance(event, CallEnded)]
    assert [(call.attempt, call.outcome) for call in calls] == [
        (0, "server_failed"),
        (1, "truncated"),
        (2, "answered"),
    ]
    assert calls[2].completion is said
    assert calls[0].error is FAULT
