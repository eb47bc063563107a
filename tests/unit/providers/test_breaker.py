"""The circuit breaker: when it opens, how it heals, and that nothing leaves it stuck. In virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from openconductor import errors
from openconductor.errors import CircuitOpen, OpenConductorError, RateLimited, ServerFailed, Unreachable, WorkerTimeout
from openconductor.protocols import CallContext, OnText
from openconductor.providers.breaker import (
    FAILURES,
    FIRST_COOL_DOWN_S,
    LONGEST_COOL_DOWN_S,
    QUIET_S,
    BreakerProvider,
    Circuit,
)
from openconductor.types import Completion, Message, Sampling

Runs = Callable[[Coroutine[Any, Any, Any]], Any]

HELLO = (Message("user", "hello"),)
CALL = CallContext()
DOWN = Unreachable("connection refused")


@dataclass
class Server:
    """A provider that fails while it has a fault, after so many seconds."""

    fault: BaseException | None = None
    seconds: float = 0.0
    calls: int = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        self.calls += 1
        fault = self.fault
        await asyncio.sleep(self.seconds)
        if fault is not None:
            raise fault
        return Completion("hi")


class Desk:
    """A server behind a circuit, and how calls of it end."""

    def __init__(self) -> None:
        self.server = Server()
        self.circuit = Circuit()
        self.provider = BreakerProvider(self.server, self.circuit)

    async def ask(self, call: CallContext = CALL) -> str:
        try:
            return (await self.provider.complete(HELLO, Sampling(), call=call)).text
        except OpenConductorError as error:
            return type(error).__name__

    async def break_down(self) -> None:
        self.server.fault = DOWN
        for _ in range(FAILURES):
            assert await self.ask() == "Unreachable"
        self.server.calls = 0


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_so_many_failures_in_a_row_open_it_and_nothing_more_is_sent(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        desk.server.fault = DOWN
        for _ in range(FAILURES):
            assert desk.provider.closed
            assert await desk.ask() == "Unreachable"
        assert not desk.provider.closed
        with pytest.raises(CircuitOpen, match=r"unreachable: connection refused; next try in 5\.0 s") as caught:
            await desk.provider.complete(HELLO, Sampling(), call=CALL)
        assert caught.value.retry_after == FIRST_COOL_DOWN_S
        assert desk.server.calls == FAILURES

    in_virtual_time(run())


def test_a_success_in_between_starts_the_count_anew(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        for number in range(20 * FAILURES):
            desk.server.fault = None if number % FAILURES == 0 else DOWN
            assert await desk.ask() != "CircuitOpen"

    in_virtual_time(run())


def test_failures_in_a_row_right_after_a_success_open_it_only_once_it_has_been_quiet(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        assert await desk.ask() not in ("CircuitOpen", "Unreachable")
        desk.server.fault = DOWN
        for _ in range(3 * FAILURES):
            assert await desk.ask() == "Unreachable"
        await asyncio.sleep(QUIET_S)
        assert await desk.ask() == "Unreachable"
        assert await desk.ask() == "CircuitOpen"

    in_virtual_time(run())


@pytest.mark.parametrize(
    ("fault", "opens"),
    [
        (WorkerTimeout("silent"), True),
        (DOWN, True),
        (ServerFailed("502"), True),
        (errors.ConnectionLost("reset"), True),
        (errors.TruncatedResponse("cut"), True),
        (errors.MalformedResponse("garbage"), True),
        (errors.WrongContentType("HTML"), True),
        (errors.EmptyResponse("nothing"), True),
        (RateLimited("slow", retry_after=1.0), False),
        (RateLimited("slow"), False),
        (errors.Rejected("no", status=422), False),
        (errors.Refused("no"), False),
        (errors.ContextTooLong("long", status=400), False),
        (errors.AuthFailed("key", status=401), False),
        (errors.BudgetExceeded("spent", limit="calls"), False),
        (asyncio.CancelledError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_failures_of_the_worker_open_it(in_virtual_time: Runs, fault: BaseException, opens: bool) -> None:
    async def run() -> None:
        desk = Desk()
        desk.server.fault = fault
        for _ in range(3 * FAILURES):
            with pytest.raises((type(fault), CircuitOpen)):
                await desk.provider.complete(HELLO, Sampling(), call=CALL)
        assert desk.server.calls == (FAILURES if opens else 3 * FAILURES)

    in_virtual_time(run())


def test_a_timeout_at_the_questions_own_deadline_proves_nothing_against_the_worker(in_virtual_time: Runs) -> None:
    async def run(deadline_in: float) -> bool:
        desk = Desk()
        desk.server.fault, desk.server.seconds = WorkerTimeout("late"), 2.0
        for _ in range(FAILURES):
            now = asyncio.get_running_loop().time()
            await desk.ask(CallContext(deadline=now + deadline_in))
        return desk.provider.closed

    assert in_virtual_time(run(deadline_in=2.0))
    assert not in_virtual_time(run(deadline_in=9.0))


# ── healing ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_after_the_cool_down_one_call_tries_and_the_others_are_still_refused(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        await desk.break_down()
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        assert desk.provider.closed  # the next call would be sent
        desk.server.fault, desk.server.seconds = None, 1.0
        outcomes = await asyncio.gather(*(desk.ask() for _ in range(50)))
        assert outcomes == ["hi"] + ["CircuitOpen"] * 49
        assert desk.server.calls == 1
        assert await asyncio.gather(*(desk.ask() for _ in range(50))) == ["hi"] * 50

    in_virtual_time(run())


def test_a_probe_that_fails_doubles_the_cool_down_up_to_a_cap_and_healing_resets_it(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        await desk.break_down()
        seen = list[float | None]()
        for _ in range(6):
            with pytest.raises(CircuitOpen) as caught:
                await desk.provider.complete(HELLO, Sampling(), call=CALL)
            seen.append(caught.value.retry_after)
            await asyncio.sleep(caught.value.retry_after or 0)
            assert await desk.ask() == "Unreachable"
        assert seen == [5.0, 10.0, 20.0] + [LONGEST_COOL_DOWN_S] * 3
        await asyncio.sleep(LONGEST_COOL_DOWN_S)
        desk.server.fault = None
        assert await desk.ask() == "hi"
        await asyncio.sleep(QUIET_S)
        await desk.break_down()
        assert await desk.ask() == "CircuitOpen"
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        assert await desk.ask() == "Unreachable"

    in_virtual_time(run())


def test_a_call_under_way_when_it_opened_closes_it_by_its_success(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        desk.server.seconds = 3.0
        under_way = asyncio.create_task(desk.ask())
        await asyncio.sleep(1)
        desk.server.seconds = 0.0
        await desk.break_down()
        assert not desk.provider.closed
        assert await under_way == "hi"
        assert desk.provider.closed

    in_virtual_time(run())


def test_a_call_under_way_when_it_opened_does_not_prolong_it_by_its_failure(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        desk.server.fault, desk.server.seconds = DOWN, 3.0
        under_way = [asyncio.create_task(desk.ask()) for _ in range(2 * FAILURES)]
        await asyncio.sleep(1)
        desk.server.seconds = 0.0
        await desk.break_down()
        await asyncio.gather(*under_way)
        with pytest.raises(CircuitOpen) as caught:
            await desk.provider.complete(HELLO, Sampling(), call=CALL)
        assert caught.value.retry_after == FIRST_COOL_DOWN_S - 2
        assert desk.circuit.opening == 1

    in_virtual_time(run())


def test_a_server_that_rejects_the_probe_is_alive(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        await desk.break_down()
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        desk.server.fault = RateLimited("slow")
        assert await desk.ask() == "RateLimited"
        assert await asyncio.gather(desk.ask(), desk.ask()) == ["RateLimited"] * 2

    in_virtual_time(run())


def test_a_cancelled_probe_lets_the_next_call_try_at_once(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        await desk.break_down()
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        desk.server.fault, desk.server.seconds = None, 2.0
        probe = asyncio.create_task(desk.ask())
        await asyncio.sleep(1)
        assert await desk.ask() == "CircuitOpen"
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        assert desk.provider.closed
        assert await desk.ask() == "hi"

    in_virtual_time(run())


def test_a_probe_that_is_lost_with_its_event_loop_leaves_it_usable(in_virtual_time: Runs) -> None:
    desk = Desk()
    in_virtual_time(desk.break_down())

    async def probe() -> None:
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        coroutine = desk.provider.complete(HELLO, Sampling(), call=CALL)
        coroutine.send(None)  # under way, and then nobody goes on with it
        coroutine.close()

    desk.server.fault, desk.server.seconds = None, 1.0
    in_virtual_time(probe())

    async def later() -> str:
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        return await desk.ask()

    assert in_virtual_time(later()) == "hi"


def test_a_probe_that_hangs_lets_another_one_through_after_a_further_cool_down(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        await desk.break_down()
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        desk.server.fault, desk.server.seconds = None, 3600.0
        hanging = asyncio.create_task(desk.ask())
        await asyncio.sleep(FIRST_COOL_DOWN_S - 1)
        assert await desk.ask() == "CircuitOpen"
        await asyncio.sleep(1)
        desk.server.seconds = 0.0
        assert await desk.ask() == "hi"
        hanging.cancel()

    in_virtual_time(run())


def test_each_opening_has_its_number(in_virtual_time: Runs) -> None:
    async def run() -> None:
        desk = Desk()
        assert desk.circuit.opening == 0
        await desk.break_down()
        assert desk.circuit.opening == 1
        await asyncio.sleep(FIRST_COOL_DOWN_S)
        await desk.ask()
        assert desk.circuit.opening == 2
        desk.circuit.succeed()
        assert desk.circuit.opening == 0

    in_virtual_time(run())


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_of_many_threads_with_their_own_loops_one_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openconductor.providers.breaker._now", lambda: clock)
    clock, desk = 1000.0, Desk()
    asyncio.run(desk.break_down())
    clock += FIRST_COOL_DOWN_S
    together, outcomes = threading.Barrier(8), list[str]()

    class Patient(Server):
        """Answers once all the others have been refused."""

        async def complete(
            self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
        ) -> Completion:
            self.calls += 1
            for _ in range(10_000):
                if len(outcomes) == 39:
                    return Completion("hi")
                await asyncio.sleep(0.001)
            raise AssertionError(outcomes)

    desk.server = Patient()
    provider = BreakerProvider(desk.server, desk.circuit)

    async def ask() -> None:
        try:
            outcomes.append((await provider.complete(HELLO, Sampling(), call=CALL)).text)
        except CircuitOpen:
            outcomes.append("CircuitOpen")

    async def several() -> None:
        together.wait(10)
        await asyncio.gather(*(ask() for _ in range(5)))

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert desk.server.calls == outcomes.count("hi") == 1
    assert outcomes.count("CircuitOpen") == 39


def test_whether_it_is_closed_can_be_asked_outside_an_event_loop() -> None:
    desk = Desk()
    asyncio.run(desk.break_down())
    assert not desk.provider.closed
