"""Slots and windows: order, cancellation, correction."""

from __future__ import annotations

import asyncio
import time

import pytest

from openconductor.providers import limit
from openconductor.providers.limit import Entry, Slots, Window


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


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(limit.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(limit.asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_no_stretch_of_a_minute_lets_in_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, window, starts = Clock(monkeypatch), Window(3), list[float]()
    for _ in range(10):
        starts.append((await window.enter(1)).start)
        clock.now += 7
    for later, earlier in zip(starts[3:], starts, strict=False):
        assert later - earlier >= 60
    assert starts[2] - starts[0] == 14


async def test_what_a_call_really_used_corrects_what_was_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, window = Clock(monkeypatch), Window(100)
    window.settle(await window.enter(90), 10)
    await window.enter(90)
    assert clock.now == 1000
    entry = await window.enter(1)
    assert clock.now == 1060
    window.settle(entry, 500)
    await window.enter(1)
    assert clock.now == 1120


async def test_what_is_larger_than_the_limit_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, window = Clock(monkeypatch), Window(100)
    await window.enter(1000)
    assert clock.now == 1000
    await window.enter(1)
    assert clock.now == 1060
    await window.enter(1000)
    assert clock.now == 1120


async def test_a_correction_that_comes_too_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, window = Clock(monkeypatch), Window(100)
    entry = await window.enter(100)
    clock.now += 61
    await window.enter(100)
    window.settle(entry, 100_000)
    assert window._total == 100


async def test_a_window_waits_on_the_real_clock() -> None:
    window = Window(1, seconds=0.03)
    started = time.monotonic()
    for _ in range(3):
        assert isinstance(await window.enter(1), Entry)
    assert time.monotonic() - started >= 0.06
