"""Retries, circuit and limits around a worker's calls, in virtual time from 1000 seconds on."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from openconductor import Budget, Conductor, Step, Worker, WorkerPool, Workflow, errors, execute
from openconductor.calls import policies
from openconductor.calls.budget import open_meter
from openconductor.calls.limits import (
    FIRST_BACKOFF_S,
    LONGEST_PAUSE_S,
    SLOW_START,
    SLOWEST,
    CallLimits,
    Slot,
    Throttle,
)
from openconductor.calls.options import guess_tokens
from openconductor.events import CallEnded
from openconductor.protocols import CallContext, Provider
from openconductor.types import Completion, Message, Sampling, Usage

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

HELLO = (Message("user", "hello, hello"),)  # three tokens, by the guess
DOWN = errors.Unreachable("connection refused")
FAULT = errors.ServerFailed("broken")
ONE = Workflow((Step(0, "Say it."),))
PLAN = "model_id = [0]\nsubtasks = ['Say it.']\naccess_list = [[]]"


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The async test, run in virtual time."""

    def run(in_virtual_time: Runs, **given: object) -> None:
        in_virtual_time(test(**given))

    own = inspect.signature(run).parameters["in_virtual_time"]
    parameters = [own, *inspect.signature(test).parameters.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def now() -> float:
    return asyncio.get_running_loop().time() - 1000


@dataclass
class Server(Provider):
    """A model that fails while it has faults or is down; remembers when it was called."""

    faults: list[BaseException] = field(default_factory=list[BaseException])
    down: tuple[float, float] = (0.0, 0.0)
    fault: BaseException = DOWN
    seconds: float = 0.0
    says: str = "hi"
    says_before: str = ""
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=1))
    remote: bool = True
    times: list[float] = field(default_factory=list[float])
    attempts: list[int] = field(default_factory=list[int])

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        self.times.append(now())
        self.attempts.append(call.attempt)
        fault = self.fault if self.down[0] <= now() < self.down[1] else None
        if self.faults:
            fault = self.faults.pop(0)
        if on_text is not None and self.says_before:
            on_text(self.says_before)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if fault is not None:
            raise fault
        return Completion(self.says, usage=self.usage)

    @property
    def waits(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


async def ask(
    worker: Worker,
    deadline: float | None = None,
    context: CallContext | None = None,
    **options: Any,
) -> str:
    """The worker's answer, or the name of its error."""
    call = context or CallContext(deadline=None if deadline is None else deadline + 1000)
    try:
        return (await worker.complete(HELLO, call=call, **options)).text
    except errors.OpenConductorError as error:
        return type(error).__name__


async def ask_many(worker: Worker) -> Counter[str]:
    return Counter(await asyncio.gather(*(ask(worker) for _ in range(50))))


async def break_down(server: Server, worker: Worker) -> None:
    """Open the worker's circuit, at once."""
    down, server.down = server.down, (0, 1e9)
    while worker.healthy:
        assert await ask(worker) != "hi"
        await asyncio.sleep(policies.QUIET_S / policies.FAILURES)
    server.times.clear()
    server.down = down


# ── retry ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("retries", [0, 1, 5])
def test_the_last_failure_comes_out_when_the_attempts_are_used_up(
    in_virtual_time: Runs, retries: int
) -> None:
    faults = [errors.ServerFailed(str(number)) for number in range(9)]
    server = Server(list[BaseException](faults), remote=False)
    worker = Worker(server, name="w", retries=retries)
    with pytest.raises(errors.ServerFailed) as caught:
        in_virtual_time(worker.complete(HELLO, call=CallContext()))
    assert caught.value is faults[retries]
    assert len(server.attempts) == retries + 1


TOMORROW = errors.RateLimited("tomorrow", retry_after=LONGEST_PAUSE_S + 1)
HEALING = [
    *(errors.WorkerTimeout("silent"), DOWN, FAULT, errors.ConnectionLost("reset")),
    *(errors.TruncatedResponse("cut"), errors.MalformedResponse("garbage")),
    *(errors.WrongContentType("HTML"), errors.EmptyResponse("nothing")),
]
FINAL = [
    *(errors.RateLimited("the quota is spent", retryable=False), TOMORROW),
    *(errors.Rejected("no such parameter", status=422), errors.Refused("no", status=200)),
    *(errors.ContextTooLong("long", status=400), errors.AuthFailed("wrong key", status=401)),
    *(errors.WorkerError("never again", retryable=False), errors.ConfigError("wrong")),
    errors.BudgetExceeded("spent", limit="calls"),
]
# The fault, whether the same call is made again, whether it opens the circuit.
FATES = [(fault, True, True) for fault in HEALING]
FATES += [(errors.RateLimited("slow"), True, False)]
FATES += [(fault, False, False) for fault in FINAL]


@pytest.mark.parametrize(("fault", "again", "opens"), FATES, ids=lambda value: type(value).__name__)
@virtual
async def test_what_may_heal_is_tried_again_and_failures_in_a_row_open_the_circuit(
    fault: BaseException, again: bool, opens: bool
) -> None:
    server = Server([fault])
    expected = "hi" if again else type(fault).__name__
    assert await ask(Worker(server, name="w")) == expected
    assert len(server.attempts) == 1 + again

    worker = Worker(Server([fault] * 3 * policies.FAILURES), name="w", retries=0)
    outcomes = [await ask(worker) for _ in range(3 * policies.FAILURES)]
    assert outcomes.count("CircuitOpen") == (2 * policies.FAILURES if opens else 0)
    assert worker.healthy is not opens


def test_waits_are_random_below_a_bound_that_doubles_up_to_a_cap(in_virtual_time: Runs) -> None:
    server, before = Server([FAULT] * 9, remote=False), random.getstate()
    in_virtual_time(ask(Worker(server, name="w", retries=9)))
    for number, wait in enumerate(server.waits):
        assert 0 <= wait <= min(policies.LONGEST_WAIT_S, policies.FIRST_WAIT_S * 2**number)
    assert len(set(server.waits)) == 9
    assert random.getstate() == before  # that of the draws that results depend on


def test_no_wait_goes_beyond_the_questions_deadline(in_virtual_time: Runs) -> None:
    server = Server([errors.RateLimited("later", retry_after=30.0)])
    assert in_virtual_time(ask(Worker(server, name="w"), deadline=29)) == "RateLimited"
    assert server.times == [0]
    server = Server([FAULT] * 100, remote=False)
    assert in_virtual_time(ask(Worker(server, name="w", retries=99), deadline=40)) == "ServerFailed"
    assert 2 <= len(server.times) < 100
    assert max(server.times) <= 40


def test_once_text_has_been_handed_on_a_failure_is_final(in_virtual_time: Runs) -> None:
    server, heard = Server([errors.ConnectionLost("cut")], says_before="Once upon"), list[str]()
    assert in_virtual_time(ask(Worker(server, name="w"), on_text=heard.append)) == "ConnectionLost"
    assert (heard, len(server.times)) == (["Once upon"], 1)


@virtual
async def test_each_attempt_is_counted_and_a_budget_may_refuse_it() -> None:
    server = Server([FAULT] * 9)
    worker = Worker(server, name="w", retries=5)
    meter = open_meter(Budget(calls=2), now=1000.0)
    with await meter.reserve_call() as reservation:
        assert await ask(worker, context=CallContext(budget=reservation)) == "BudgetExceeded"
    assert len(server.times) == 2


# ── workers that cannot be reached ────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "fault",
    [DOWN, errors.ServerFailed("loading the model", status=503)],
    ids=["unreachable", "loading"],
)
@pytest.mark.parametrize(("patience", "heals"), [(None, 6), (policies.RUN_UNREACHABLE_S, 100)])
@virtual
async def test_a_worker_that_cannot_be_reached_is_retried_for_as_long_as_the_context_says(
    fault: BaseException, patience: float | None, heals: float
) -> None:
    context = CallContext(unreachable_s=patience)
    back = Worker(Server(down=(0, heals), fault=fault), name="back")
    assert await ask(back, context=context) == "hi"
    began = now()
    server = Server(down=(0, 1e9), fault=fault)
    outcome = await ask(Worker(server, name="w"), context=context)
    assert outcome in ("Unreachable", "ServerFailed", "CircuitOpen")
    seconds = patience or policies.UNREACHABLE_S
    last = max(server.times) - began
    assert seconds - policies.COOL_DOWN_S - policies.LOOK_S <= last <= seconds + 10
    assert len(server.times) <= policies.FAILURES + 10 + seconds / policies.COOL_DOWN_S


@virtual
async def test_nobody_waits_for_one_that_has_been_down_for_long(monkeypatch) -> None:
    monkeypatch.setattr(policies, "_jitter", random.Random(0))
    server = Server(down=(0, 1e9))
    worker = Worker(server, name="w")
    outcomes = [await ask(worker) for _ in range(1000)]
    assert outcomes.count("CircuitOpen") > 980
    assert now() < 10 + 2 * policies.COOL_DOWN_S  # counted from when the worker went down
    assert len(server.times) < 10


@virtual
async def test_planners_and_steps_wait_and_are_not_counted_while_nothing_is_sent() -> None:
    planner, server = Server(says=PLAN, down=(0, 3)), Server(down=(0, 6))
    events = list[object]()
    pool = WorkerPool([Worker(server, name="w")])
    conductor = Conductor(Worker(planner, name="planner"), pool=pool)
    episode = await conductor.ask("Well?", budget=Budget(calls=2), on_event=events.append)
    assert episode.answer == "hi"
    made = len(planner.times) + len(server.times)
    assert made > 2
    assert sum(isinstance(event, CallEnded) for event in events) == made  # all are on record


@virtual
async def test_with_fallback_nobody_waits_while_another_worker_is_healthy() -> None:
    server = Server()
    worker = Worker(server, name="w", retries=0)
    await break_down(server, worker)
    other = Worker(Server(says="there"), name="other")
    begun = now()
    transcript = await execute(ONE, WorkerPool([worker, other]), "Well?", fallback=True)
    assert (transcript.answer, now() - begun, server.times) == ("there", 0, [])
    away = Server(down=(0, 1e9))
    pool = WorkerPool([Worker(away, name="away"), other])
    assert (await execute(ONE, pool, "Well?", fallback=True)).answer == "there"
    assert len(away.times) == 3 and now() - begun <= 3 * policies.FIRST_WAIT_S


# ── breaker ───────────────────────────────────────────────────────────────────────────────────────
@virtual
async def test_what_is_not_sent_says_what_failed_and_when_it_is_tried_next() -> None:
    server = Server()
    worker = Worker(server, name="w", retries=0)
    await break_down(server, worker)
    message = r"worker 'w': not sent: 5 calls .*refused; next try in \d\.\d s"
    with pytest.raises(errors.CircuitOpen, match=message) as caught:
        await worker.complete(HELLO, call=CallContext())
    assert 0 < (caught.value.retry_after or 0) <= policies.COOL_DOWN_S
    worker = Worker(Server([errors.ServerFailed("died of SECRET")] * 99), name="w", retries=0)
    while worker.healthy:
        await ask(worker)
        await asyncio.sleep(policies.QUIET_S / policies.FAILURES)
    with pytest.raises(errors.CircuitOpen, match=r"the last: server_failed; next"):
        await worker.complete(HELLO, call=CallContext())  # the prompt was somebody else's


@virtual
async def test_a_success_in_between_and_failures_right_after_one_do_not_open_it() -> None:
    server = Server()
    worker = Worker(server, name="w", retries=0)
    for number in range(20 * policies.FAILURES):
        server.faults = [] if number % policies.FAILURES == 0 else [DOWN]
        assert await ask(worker) != "CircuitOpen"
    server.down = (0, 1e9)
    assert {await ask(worker) for _ in range(3 * policies.FAILURES)} == {"Unreachable"}
    await asyncio.sleep(policies.QUIET_S)
    assert [await ask(worker), await ask(worker)] == ["Unreachable", "CircuitOpen"]


@pytest.mark.parametrize(("seconds", "healthy"), [(2.0, True), (9.0, False)])
@virtual
async def test_a_timeout_at_the_questions_own_deadline_proves_nothing_against_the_worker(
    seconds: float, healthy: bool
) -> None:
    worker = Worker(Server(seconds=1e9), name="w", retries=0, timeout_s=5)
    for _ in range(policies.FAILURES):
        assert await ask(worker, deadline=now() + seconds) == "WorkerTimeout"
    assert worker.healthy is healthy


@virtual
async def test_after_the_cool_down_one_call_tries_and_its_success_closes_it() -> None:
    server = Server()
    worker = Worker(server, name="w", retries=0)
    await break_down(server, worker)
    server.down = (0, now() + policies.COOL_DOWN_S + 1)
    await asyncio.sleep(policies.COOL_DOWN_S)
    assert worker.healthy
    assert await ask_many(worker) == {"Unreachable": 1, "CircuitOpen": 49}
    await asyncio.sleep(policies.COOL_DOWN_S)
    server.seconds = 1.0
    assert await ask_many(worker) == {"hi": 1, "CircuitOpen": 49}
    assert await ask_many(worker) == {"hi": 50}


@pytest.mark.parametrize("how", ["cancelled", "hanging"])
@virtual
async def test_a_try_that_comes_to_nothing_leaves_it_usable(how: str) -> None:
    server = Server()
    worker = Worker(server, name="w", retries=0)
    await break_down(server, worker)
    await asyncio.sleep(policies.COOL_DOWN_S)
    server.seconds = 3600.0
    trying = asyncio.create_task(ask(worker))
    await asyncio.sleep(1)
    if how == "cancelled":
        trying.cancel()
    await asyncio.sleep(policies.COOL_DOWN_S)
    server.seconds = 0.0
    assert await ask(worker) == "hi"
    trying.cancel()


# ── limits ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("sampling", "written"),
    [
        (Sampling(), 0),
        (Sampling(max_tokens=5), 5),
        (Sampling(max_tokens=5, body={"max_completion_tokens": 9, "max_tokens": 7}), 9),
        (Sampling(max_tokens=5, body={"max_tokens": "many"}), 5),
    ],
)
def test_the_most_that_a_call_may_use_is_its_text_and_its_token_limit(
    sampling: Sampling, written: int
) -> None:
    assert guess_tokens(HELLO, sampling) == (3, written)


def limited(server: Server, **limits: int) -> Worker:
    return Worker(server, name="w", sampling=Sampling(max_tokens=97), retries=0, **limits)  # type: ignore[arg-type]


@virtual
async def test_calls_at_once_are_limited_and_get_their_turns_in_order() -> None:
    worker, order = limited(Server(seconds=10), max_concurrency=2), list[int]()

    async def one(number: int) -> None:
        await ask(worker)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(8)]
    await asyncio.sleep(5)
    tasks[3].cancel()  # while it waits
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (order, now()) == ([0, 1, 2, 4, 5, 6, 7], 40)


@virtual
async def test_no_stretch_of_a_minute_begins_more_calls_than_the_limit() -> None:
    server = Server()
    worker = limited(server, rpm=3)
    for _ in range(10):
        await ask(worker)
        await asyncio.sleep(7)
    for earlier, later in zip(server.times, server.times[3:], strict=False):
        assert later - earlier >= 60
    assert server.times[2] == 14


@virtual
async def test_tokens_a_minute_are_corrected_to_what_was_used_and_let_in_who_waits() -> None:
    server = Server(seconds=10, usage=Usage(input_tokens=3, output_tokens=7))
    worker = limited(server, tpm=150)  # each call may use 100
    assert await asyncio.gather(ask(worker), ask(worker)) == ["hi", "hi"]
    assert server.times == [0, 10]  # the first used 10 tokens, so there was room for the next
    server.usage = Usage(input_tokens=500)
    await asyncio.gather(ask(worker), ask(worker))
    assert server.times[2:] == [20, 80]  # one that used more than the limit fills its minute
    big = limited(server, tpm=50)  # larger than the limit: goes alone
    await ask(big)
    await ask(big)
    assert server.times[5] - server.times[4] == 60


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        (errors.RateLimited("slow"), 0),
        (DOWN, 0),
        (errors.ServerFailed("overloaded", status=503), 0),
        (errors.WorkerError("no", status=404), 0),
        (errors.TruncatedResponse("cut", usage=Usage(input_tokens=0)), 0),
        (errors.TruncatedResponse("cut", usage=Usage(input_tokens=3, output_tokens=20)), 60),
        (errors.TruncatedResponse("cut"), 60),
        (errors.WorkerTimeout("silent"), 60),
    ],
    ids=str,
)
@virtual
async def test_a_failed_call_counts_as_what_it_is_known_to_have_used(
    fault: BaseException, waits: int
) -> None:
    server = Server([fault])
    worker = limited(server, tpm=100)
    await ask(worker)
    await ask(worker)
    assert server.times == [0, pytest.approx(waits, abs=FIRST_BACKOFF_S)]


@virtual
async def test_a_call_that_was_not_sent_takes_nothing() -> None:
    server = Server(usage=Usage(input_tokens=100))
    worker = limited(server, max_concurrency=1, rpm=2, tpm=100)
    await ask(worker)
    waiting = asyncio.create_task(ask(worker))
    await asyncio.sleep(1)
    waiting.cancel()
    assert await ask(worker, deadline=20) == "WorkerTimeout"
    assert now() == 20
    assert await ask(worker) == "hi"
    assert server.times == [0, 60]


@virtual
async def test_a_pause_that_the_server_names_holds_for_all_callers() -> None:
    server = Server([errors.RateLimited("slow", retry_after=9.0)])
    one, other = (Worker(server, name="w", retries=0, max_concurrency=9) for _ in range(2))
    assert await ask(one) == "RateLimited"
    assert await ask(other, deadline=8) == "RateLimited"
    assert now() == 0  # a pause beyond the deadline fails at once
    assert await asyncio.gather(ask(one), ask(other, deadline=20)) == ["hi", "hi"]
    assert server.times == [0, 9, pytest.approx(9 + 1 / SLOWEST / SLOW_START)]  # one by one
    server.faults = [TOMORROW]
    assert [await ask(one), await ask(one)] == ["RateLimited", "hi"]  # too long: it is ignored
    assert now() < 20


@virtual
async def test_calls_that_wait_for_their_turn_are_not_sent_once_the_circuit_opens() -> None:
    server = Server([DOWN] * 1000, seconds=30.0)
    worker = limited(server, max_concurrency=policies.FAILURES, rpm=500)
    outcomes = await asyncio.gather(*(ask(worker) for _ in range(300)))
    assert len(server.times) == outcomes.count("Unreachable") == policies.FAILURES
    assert outcomes.count("CircuitOpen") == 300 - policies.FAILURES
    assert now() == 30


def test_limits_hold_over_threads_and_survive_a_loop_that_died() -> None:
    limits = CallLimits(max_concurrency=1, throttle=Throttle())
    at_once: list[int] = []
    most: list[int] = []

    async def take() -> Slot:
        slot = Slot()
        await limits.take(slot, None, lambda: None)
        return slot

    async def one() -> None:
        slot = await take()
        at_once.append(1)
        most.append(len(at_once))
        await asyncio.sleep(0.001)
        at_once.pop()
        limits.give_back(slot, None)

    async def several() -> None:
        await asyncio.gather(*(one() for _ in range(5)))

    with ThreadPoolExecutor(6) as threads:
        for _ in range(6):
            threads.submit(asyncio.run, several())
    assert (len(most), max(most)) == (30, 1)

    held = asyncio.run(take())
    loop = asyncio.new_event_loop()
    task = loop.create_task(one())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    limits.give_back(held, None)
    asyncio.run(asyncio.wait_for(one(), 20))
