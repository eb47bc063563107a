"""Limits of a worker's calls: how many at once, a minute, and as fast as its server takes them.

The limits are our own because they hold for the whole process, over event loops and threads: each
``ask_sync`` brings a loop, and servers bring threads. ``asyncio.Semaphore`` and aiolimiter belong
to one loop; aiolimiter also lets twice the rate through in the first minute, and cannot correct a
guess of tokens once a call has ended (``tests/unit/calls/test_policies.py``). All event loops read
the system's monotonic clock, so times of one loop hold in another.

A ``Throttle`` learns the rate at which a server takes calls from those that it rejects (status
429). Nothing is held back until the first rejection. A rejection pauses all calls of the account:
as long as the server says, or else for a backoff that doubles up to ``LONGEST_BACKOFF_S``.
Afterwards calls begin one by one, at the rate at which the server took them in the last minute.
Each answer raises the rate (additive increase), the more the longer ago the last rejection is, as
in CUBIC (RFC 9438). A further rejection lowers it (multiplicative decrease). A minute without a
rejection ends it all.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import SystemRandom

from openconductor.errors import RateLimited, WorkerTimeout
from openconductor.types import Usage

LOOK_S = 0.1
"""A call that may not wait for long looks this often if its turn comes too late."""

MINUTE_S = 60

LONGEST_PAUSE_S = 600.0
"""If a server names a longer wait, the call fails."""

PATIENCE_S = 120.0
"""A call without a deadline fails if the server has rejected every call of the account for so long,
and for ``LONGEST_PAUSE_S`` if it names the waits."""

FIRST_BACKOFF_S = 0.125
LONGEST_BACKOFF_S = 3.0
"""The pause after the n-th rejection in a row of a server that names none: a random part, from a
half on, of ``FIRST_BACKOFF_S`` * 2 ** (n - 1), or of this if it is less. What a server that counts
by the minute loses by it is at most this much of each minute."""

DECREASE = 0.95
"""The rate after a rejection, as a share of the rate at which calls were taken."""
INCREASE = 0.004
"""What an answer adds to the rate of calls a second, for each second since the last pause."""
SLOW_START = 10
"""An answer multiplies the rate by this as long as the server has taken too few calls to tell."""
SLOWEST = 1 / LONGEST_BACKOFF_S
"""The lowest rate, in calls a second."""

_jitter = SystemRandom()  # draws nothing from the generators that results depend on


# ── a worker's own limits ─────────────────────────────────────────────────────────────────────────
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


# ── the rate that a server takes ──────────────────────────────────────────────────────────────────
class Throttle:
    """Holds back the calls of an account while its server rejects them. Safe over threads.

    All times are those of an event loop.

    Attributes:
        limited_since: when the server rejected a call for the first time since it answered one.
        rate: the calls a second that the server takes; infinite: as many as there are.
    """

    def __init__(self) -> None:
        self.limited_since = 0.0
        self.rate = math.inf
        self._lock = threading.Lock()  # held for a few instructions only
        self._begun: deque[float] = deque()  # calls of the last minute that were not rejected
        self._paused_until = 0.0
        self._last_turn = 0.0  # when the last call began, since there is a rate
        self._taken = 0.0  # the calls a second that the server took in the last minute
        self._is_first = False  # all calls were taken until the last rejections in a row
        self._last_rejection = -math.inf
        self._rejections = 0  # in a row

    def enter(self, now: float) -> float:
        """Begin a call and return 0, or return the seconds until it may begin."""
        with self._lock:
            if now > self._learnt_at + MINUTE_S:
                self.rate = math.inf
                self._rejections = 0
            next_call = self.next_call
            if now < next_call:
                return next_call - now
            if self.rate < math.inf:
                self._last_turn = max(next_call, now - 1 / self.rate)
            self._forget_before(now - MINUTE_S)
            self._begun.append(now)
            return 0.0

    def succeed(self, begun: float, now: float) -> None:
        """Note an answer to a call that began at a time."""
        with self._lock:
            if begun <= self._last_rejection:
                return
            self._rejections = 0
            self.rate += INCREASE * max(0.0, now - self._learnt_at)
            if self._is_first and self._taken < SLOWEST:
                self.rate *= SLOW_START

    def reject(self, begun: float, now: float, wait: float | None) -> None:
        """Note that the server rejected a call for its rate.

        Args:
            begun: when the call began.
            now: the time.
            wait: the seconds that the server named; None: it named none.
        """
        with self._lock:
            self._forget_before(now - MINUTE_S)
            with suppress(ValueError):  # it began more than a minute ago
                self._begun.remove(begun)
            self._taken = len(self._begun) / MINUTE_S
            lowest = max(SLOWEST, self._taken)
            if self._rejections == 0:
                self._is_first = self.rate == math.inf
            if self.rate == math.inf:
                self.rate = lowest
            elif self.rate > lowest:
                self.rate = max(lowest, DECREASE * self.rate)
            is_next = begun > self._last_rejection  # else it was rejected with others, at once
            if is_next:
                if self._rejections == 0:
                    self.limited_since = now
                self._rejections += 1
                self._last_rejection = now
            if wait is None and is_next:
                backoff = FIRST_BACKOFF_S * 2.0 ** min(self._rejections - 1, 10)
                wait = min(LONGEST_BACKOFF_S, backoff) * _jitter.uniform(0.5, 1.0)
            if wait is not None and wait <= LONGEST_PAUSE_S:
                self._paused_until = max(self._paused_until, now + wait)

    @property
    def next_call(self) -> float:
        """The time before which no call begins."""
        return max(self._paused_until, self._last_turn + 1 / self.rate)

    @property
    def _learnt_at(self) -> float:
        """The end of the last pause."""
        return max(self._last_rejection, self._paused_until)

    def _forget_before(self, time: float) -> None:
        while self._begun and self._begun[0] <= time:
            self._begun.popleft()
