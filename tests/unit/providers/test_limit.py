"""Slots, windows, pauses: order, cancellation, correction, what is given back. Minutes pass in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from openconductor.errors import (
    CircuitOpen,
    RateLimited,
    ServerFailed,
    TruncatedResponse,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)
from openconductor.protocols import CallContext, OnText
from openconductor.providers.breaker import FAILURES, FIRST_COOL_DOWN_S, BreakerProvider, Circuit
from openconductor.providers.limit import (
    LONGEST_PAUSE_S,
    Entry,
    LimitProvider,
    Limits,
    Slots,
    Window,
    most_tokens,
)
from openconductor.types import Completion, Message, Sampling, Usage

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

HELLO = (Message("user", "hello, hello"),)  # three tokens, by the guess
CALL = CallContext()
NOTHING = Usage()


def now() -> float:
    return asyncio.get_running_loop().time() - 1000  # where the virtual clock begins


# ── slots ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_slots_are_given_in_order_of_arrival() -> None:
    slots, order = Slots(1), list[int]()

    async def take(number: int) -> None:
        await slots.acquire()
        order.append(number)
        await asyncio.sleep(0)
        slots.release()

    await asyncio.gather(*(take(number) for number in range(6)))
    assert order == list(range(6))


async def test_a_cancelled_wait_loses_no_slot_whenever_it_is_cancelled() -> None:
    slots = Slots(1)
    await slots.acquire()
    waiting = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    slots.release()  # granted to the second or the first, neither of which has run
    waiting[1].cancel()  # after it was granted
    done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 2)
    assert [type(outcome) for outcome in done[:2]] == [asyncio.CancelledError] * 2
    assert done[2] is None
    slots.release()
    await asyncio.wait_for(slots.acquire(), 2)


def test_a_loop_that_died_while_it_waited_holds_no_slot() -> None:
    slots = Slots(1)

    async def take() -> None:
        await slots.acquire()

    asyncio.run(take())
    loop = asyncio.new_event_loop()
    task = loop.create_task(take())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    slots.release()
    asyncio.run(asyncio.wait_for(take(), 2))


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_no_stretch_of_a_minute_lets_in_more_than_the_limit(in_virtual_time: Runs) -> None:
    async def run() -> None:
        window, starts = Window(3), list[float]()
        for _ in range(10):
            starts.append((await window.enter(1)).start)
            await asyncio.sleep(7)
        for later, earlier in zip(starts[3:], starts, strict=False):
            assert later - earlier >= 60
        assert starts[2] - starts[0] == 14

    in_virtual_time(run())


def test_what_a_call_really_used_corrects_what_was_assumed(in_virtual_time: Runs) -> None:
    async def run() -> None:
        window = Window(100)
        window.settle(await window.enter(90), 10)
        await window.enter(90)
        assert now() == 0
        entry = await window.enter(1)
        assert now() == 60
        window.settle(entry, 500)
        await window.enter(1)
        assert now() == 120

    in_virtual_time(run())


def test_what_is_larger_than_the_limit_goes_alone(in_virtual_time: Runs) -> None:
    async def run() -> None:
        window = Window(100)
        await window.enter(1000)
        assert now() == 0
        await window.enter(1)
        assert now() == 60
        await window.enter(1000)
        assert now() == 120
        window.settle(await window.enter(1), 0)
        assert now() == 180
        await window.enter(1000)  # what was given back does not stand in its way
        assert now() == 180

    in_virtual_time(run())


def test_what_is_given_back_lets_in_who_waits_before_the_minute_has_passed(in_virtual_time: Runs) -> None:
    async def run() -> None:
        window = Window(100)
        entry = await window.enter(90)
        waiting = asyncio.create_task(window.enter(50))
        await asyncio.sleep(10)
        assert not waiting.done()
        window.settle(entry, 5)
        assert (await waiting).start - 1000 <= 11

    in_virtual_time(run())


def test_a_correction_that_comes_too_late_changes_nothing(in_virtual_time: Runs) -> None:
    async def run() -> None:
        window = Window(100)
        entry = await window.enter(100)
        await asyncio.sleep(61)
        await window.enter(100)
        window.settle(entry, 100_000)
        assert window._total == 100

    in_virtual_time(run())


async def test_a_window_waits_on_the_real_clock() -> None:
    window = Window(1, seconds=0.03)
    started = time.monotonic()
    for _ in range(3):
        assert isinstance(await window.enter(1), Entry)
    assert time.monotonic() - started >= 0.06


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Server:
    """A provider that fails while it has faults, each call after so many seconds; remembers when it was called."""

    faults: list[BaseException] = field(default_factory=list)
    usage: Usage = NOTHING
    seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.times.append(now())
        fault = self.faults.pop(0) if self.faults else None
        await asyncio.sleep(self.seconds)
        if fault is not None:
            raise fault
        return Completion("hi", usage=self.usage)


async def ask(provider: LimitProvider | BreakerProvider, deadline: float | None = None) -> str:
    call = CALL if deadline is None else CallContext(deadline=deadline + 1000)
    try:
        return (await provider.complete(HELLO, Sampling(max_tokens=97), call=call)).text
    except WorkerError as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("sampling", "written"),
    [
        (Sampling(), 0),
        (Sampling(max_tokens=5), 5),
        (Sampling(max_tokens=5, body={"max_tokens": 7}), 7),
        (Sampling(max_tokens=5, body={"max_completion_tokens": 9, "max_tokens": 7}), 9),
        (Sampling(max_tokens=5, body={"max_tokens": "many"}), 5),
        (Sampling(max_tokens=5, body={"max_tokens": True}), 5),
    ],
)
def test_the_most_that_a_call_may_use_is_its_text_and_its_token_limit(sampling: Sampling, written: int) -> None:
    assert most_tokens(HELLO, sampling) == (3, written)


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        (RateLimited("slow"), 0),
        (Unreachable("refused"), 0),
        (ServerFailed("overloaded", status=503), 0),
        (WorkerError("no", status=404), 0),
        (TruncatedResponse("cut", usage=Usage(input_tokens=3, output_tokens=20)), 23),
        (TruncatedResponse("cut"), 100),
        (WorkerTimeout("silent"), 100),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_call_counts_as_what_it_is_known_to_have_used(
    in_virtual_time: Runs, fault: WorkerError, counted: int
) -> None:
    async def run() -> None:
        limits = Limits(tpm=100)
        await ask(LimitProvider(Server([fault]), limits))
        assert limits._tokens is not None
        assert limits._tokens._total == counted

    in_virtual_time(run())


def test_a_call_that_was_cancelled_while_it_waited_takes_nothing(in_virtual_time: Runs) -> None:
    async def run() -> None:
        server = Server(usage=Usage(input_tokens=100))
        limits = Limits(max_concurrency=2, rpm=2, tpm=100)
        provider = LimitProvider(server, limits)
        await ask(provider)
        waiting = asyncio.create_task(ask(provider))  # has a slot and its request, waits for tokens
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert limits._requests is not None
        assert limits._requests._total == 1
        assert limits._slots is not None
        assert limits._slots._free == 2

    in_virtual_time(run())


def test_a_wait_ends_at_the_deadline_as_a_call_that_used_nothing(in_virtual_time: Runs) -> None:
    async def run() -> None:
        provider = LimitProvider(Server(), Limits(rpm=1))
        await ask(provider)
        with pytest.raises(WorkerTimeout, match="turn") as caught:
            await provider.complete(HELLO, Sampling(), call=CallContext(deadline=1020))
        assert now() == 20
        assert caught.value.usage == Usage()

    in_virtual_time(run())


# ── pauses ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_pause_that_the_server_names_holds_for_all_callers(in_virtual_time: Runs) -> None:
    async def run() -> None:
        server, limits = Server([RateLimited("slow", retry_after=9.0)]), Limits()
        one, other = LimitProvider(server, limits), LimitProvider(server, limits)
        assert await ask(one) == "RateLimited"
        assert await asyncio.gather(ask(one), ask(other)) == ["hi", "hi"]
        assert server.times == [0, 9, 9]

    in_virtual_time(run())


def test_a_pause_beyond_a_calls_deadline_fails_it_at_once(in_virtual_time: Runs) -> None:
    async def run() -> None:
        server = Server([RateLimited("slow", retry_after=9.0)])
        provider = LimitProvider(server, Limits(max_concurrency=1))
        await ask(provider)
        assert await ask(provider, deadline=8.0) == "RateLimited"
        assert now() == 0
        assert await ask(provider, deadline=10.0) == "hi"
        assert server.times == [0, 9]

    in_virtual_time(run())


def test_too_long_a_pause_is_none(in_virtual_time: Runs) -> None:
    async def run() -> None:
        provider = LimitProvider(Server([RateLimited("tomorrow", retry_after=LONGEST_PAUSE_S + 1)]), Limits())
        assert [await ask(provider), await ask(provider)] == ["RateLimited", "hi"]
        assert now() == 0

    in_virtual_time(run())


# ── with a circuit ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_calls_that_wait_for_their_turn_are_not_sent_once_the_circuit_opens(in_virtual_time: Runs) -> None:
    async def run() -> None:
        server = Server([Unreachable("down")] * 1000, seconds=30.0)
        limits, circuit = Limits(max_concurrency=FAILURES, rpm=500), Circuit()
        provider = BreakerProvider(LimitProvider(server, limits, circuit=circuit), circuit)
        outcomes = await asyncio.gather(*(ask(provider) for _ in range(300)))
        assert len(server.times) == outcomes.count("Unreachable") == FAILURES
        assert outcomes.count("CircuitOpen") == 300 - FAILURES
        assert now() == 30
        assert limits._requests is not None
        assert limits._requests._total == FAILURES

    in_virtual_time(run())


def test_a_probe_that_waits_for_its_turn_is_sent(in_virtual_time: Runs) -> None:
    async def run() -> None:
        server = Server([Unreachable("down")] * FAILURES)
        circuit = Circuit()
        provider = BreakerProvider(LimitProvider(server, Limits(rpm=FAILURES), circuit=circuit), circuit)
        for _ in range(FAILURES):
            await ask(provider)
        with pytest.raises(CircuitOpen):
            circuit.admit()
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        assert await ask(provider) == "hi"
        assert now() == 60

    in_virtual_time(run())
