"""Limits of a worker's calls: how many at once, a minute, and as fast as its server takes them.

The limits are our own because they hold for the whole process, over event loops and threads: each
``ask_sync`` brings a loop, and servers bring threads. ``asyncio.Semaphore`` and aiolimiter belong
to one loop; aiolimiter also lets twice the rate through in the first minute, and cannot correct a
guess of tokens once a call has ended (``tests/unit/calls/test_policies.py``). All event loops read
the system's monotonic clock, so times of one loop hold in another.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from openconductor.calls.throttle import MINUTE_S, Throttle
from openconductor.errors import RateLimited, WorkerTimeout
from openconductor.types import Usage

LOOK_S = 0.1
"""A call that may not wait for long looks this often if its turn comes too late."""


@dataclass(slots=True, eq=False)
class Slot:
    """The part of its worker's limits that one attempt at a call waits for, and then holds.

    Attributes:
        tokens: a guess until the attempt has ended.
        latest: the event loop's time until which it waits for a server that rejects calls.
        goes_first: the call had its turn, and the server sent it away.
        begun: the time at which it begins.
    """

    tokens: int = 0
    latest: float = math.inf
    goes_first: bool = False
    begun: float = math.inf


_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]
"""A call that waits for its slot: its loop, and the event that wakes it."""


class CallLimits:
    """The limits that all calls of a worker share, over loops and threads, in order of arrival.

    Args:
        max_concurrency: calls at once.
        rpm: calls begun in any 60 seconds.
        tpm: tokens, read and written, of the calls begun in any 60 seconds. A call counts as its
            text / 4 plus its token limit until it ends, then as what was used; one that is larger
            than the limit goes alone.
        throttle: the rate that the server takes, shared by the workers of an account.
    """

    def __init__(
        self,
        max_concurrency: int | None = None,
        rpm: int | None = None,
        tpm: int | None = None,
        *,
        throttle: Throttle,
    ) -> None:
        self.throttle = throttle
        self._max_concurrency = math.inf if max_concurrency is None else max_concurrency
        self._rpm = math.inf if rpm is None else rpm
        self._tpm = math.inf if tpm is None else tpm
        self._lock = threading.Lock()  # held for a few instructions only, never over an await
        self._running = 0
        self._last_minute: deque[Slot] = deque()
        self._last_minute_tokens = 0
        self._queue: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their turn."""
        return len(self._queue)

    async def take(self, slot: Slot, deadline: float | None, check: Callable[[], None]) -> None:
        """Wait for a slot, which must be given back.

        Args:
            slot: the slot.
            deadline: the event loop's time by which the call must have ended; None: no limit.
            check: raises an error if the call must not be sent now; called before each look.

        Raises:
            WorkerTimeout: ``deadline`` passed meanwhile.
            RateLimited: the server has rejected calls for their rate, and the next one may not
                begin before ``deadline``, or by the slot's ``latest``.
        """
        loop = asyncio.get_running_loop()
        end = math.inf if deadline is None else deadline
        self._check_pause(loop.time(), end)
        waiter = loop, asyncio.Event()
        with self._lock:
            if slot.goes_first:
                self._queue.appendleft(waiter)
            else:
                self._queue.append(waiter)
        try:
            while True:
                check()
                # Not by ``end``: an answer meanwhile may raise the rate.
                self._check_pause(loop.time(), slot.latest)
                wait = self._enter(slot, waiter)
                if wait == 0:
                    return
                if slot.latest < math.inf:  # those in front may be sent away meanwhile
                    wait = min(wait, LOOK_S)
                next_look = min(loop.time() + wait, end)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if next_look == math.inf else next_look):
                        await waiter[1].wait()
                if loop.time() >= end:
                    message = "the deadline passed while the call waited for its turn"
                    raise WorkerTimeout(f"{message} (a limit of the worker)", usage=Usage())
        finally:
            with self._lock:
                with suppress(ValueError):
                    self._queue.remove(waiter)
                self._wake_next()

    def give_back(self, slot: Slot, used: int | None) -> None:
        """Give back a slot after ``used`` tokens; None: unknown, and the guess stands."""
        with self._lock:
            self._running -= 1
            oldest = self._last_minute[0].begun if self._last_minute else math.inf
            if used is not None and slot.begun >= oldest:
                self._last_minute_tokens += used - slot.tokens
                slot.tokens = used
            self._wake_next()

    def _check_pause(self, now: float, latest: float) -> None:
        """Raise RateLimited if the server takes the next call too late."""
        next_call = self.throttle.next_call
        if next_call > now and next_call >= latest:
            left = next_call - now
            message = f"not sent: the server rejects calls for their rate, the next in {left:.1f} s"
            raise RateLimited(f"{message}, later than the call can wait", retry_after=left)

    def _enter(self, slot: Slot, waiter: _Waiter) -> float:
        """Take the slot and return 0, or the seconds until there may be room (inf: a call ends)."""
        with self._lock:
            now = waiter[0].time()
            waiter[1].clear()
            if self._queue[0] is not waiter or self._running >= self._max_concurrency:
                return math.inf
            last_minute = self._last_minute
            while last_minute and last_minute[0].begun <= now - MINUTE_S:
                self._last_minute_tokens -= last_minute.popleft().tokens
            tokens = self._last_minute_tokens
            too_large = tokens and tokens + slot.tokens > self._tpm  # a large call goes alone
            if too_large or len(last_minute) >= self._rpm:
                return max(last_minute[0].begun + MINUTE_S - now, 0.001)
            wait = self.throttle.enter(now)
            if wait == 0:
                slot.begun = now
                self._running += 1
                last_minute.append(slot)
                self._last_minute_tokens += slot.tokens
            return wait

    def _wake_next(self) -> None:
        while self._queue:
            loop, event = self._queue[0]
            try:
                loop.call_soon_threadsafe(event.set)
                break
            except RuntimeError:  # that loop was closed while its call waited
                self._queue.popleft()
