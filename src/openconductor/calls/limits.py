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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from openconductor.calls.options import guess_tokens
from openconductor.calls.throttle import MINUTE_S, Throttle
from openconductor.errors import RateLimited, WorkerTimeout
from openconductor.types import Message, Sampling, Usage

LOOK_S = 0.1
"""A call that may not wait for long looks this often if its turn comes too late."""

_FREE = Usage()


@dataclass(slots=True, eq=False)
class Slot:
    """The part of its worker's limits that one call holds, from the time at which it begins."""

    tokens: int
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
        throttle: Throttle | None = None,
    ) -> None:
        self.throttle = Throttle() if throttle is None else throttle
        self._max_concurrency = max_concurrency
        self._rpm = rpm
        self._tpm = tpm
        self._lock = threading.Lock()  # held for a few instructions only, never over an await
        self._running = 0
        self._last_minute: deque[Slot] = deque()
        self._last_minute_tokens = 0
        self._queue: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their turn."""
        return len(self._queue)

    async def take(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        deadline: float | None,
        *,
        longest_wait: float = math.inf,
        again: bool = False,
    ) -> Slot:
        """Wait for a slot, which must be given back.

        Args:
            messages: the call's turns, of which its tokens are guessed.
            sampling: its sampling, which limits what it writes.
            deadline: the event loop's time by which the call must have ended; None: no limit.
            longest_wait: the most seconds to wait for a server that has rejected calls.
            again: True if the call had its turn, and the server sent it away: it goes first.

        Raises:
            WorkerTimeout: ``deadline`` passed meanwhile.
            RateLimited: the server has rejected calls for their rate, and the next one may not
                begin before ``deadline``, or within ``longest_wait``.
        """
        loop = asyncio.get_running_loop()
        latest = loop.time() + longest_wait
        self._check_pause(loop.time(), deadline, latest)
        slot = Slot(0)
        if self._tpm is not None:
            slot.tokens = sum(guess_tokens(messages, sampling))
        waiter = loop, asyncio.Event()
        with self._lock:
            if again:
                self._queue.appendleft(waiter)
            else:
                self._queue.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                while wait := self._enter(slot, waiter):
                    if latest < math.inf:  # those in front may be sent away meanwhile
                        self._check_pause(loop.time(), deadline, latest)
                        wait = min(wait, LOOK_S)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None if wait == math.inf else wait):
                            await waiter[1].wait()
            return slot
        except TimeoutError:
            message = (
                "the deadline passed while the call waited for its turn (a limit of the worker)"
            )
            raise WorkerTimeout(message, usage=_FREE) from None
        finally:
            with self._lock:
                with suppress(ValueError):
                    self._queue.remove(waiter)
                self._wake_next()

    def give_back(self, slot: Slot, *, sent: bool, used: int | None) -> None:
        """Give back a slot.

        Args:
            slot: the slot.
            sent: whether the call was sent.
            used: its tokens; None: unknown, and the guess stands.
        """
        with self._lock:
            self._running -= 1
            if not sent:
                self.throttle.leave(slot.begun)
            if slot in self._last_minute:
                tokens = slot.tokens if used is None else used
                self._last_minute_tokens += (tokens if sent else 0) - slot.tokens
                slot.tokens = tokens
                if not sent:
                    self._last_minute.remove(slot)
            self._wake_next()

    def _check_pause(self, now: float, deadline: float | None, latest: float) -> None:
        """Raise RateLimited if the server takes the next call too late."""
        if self.throttle.rate == math.inf:
            return
        next_call = self.throttle.next_call
        left = next_call - now
        if left <= 0:
            return
        if next_call > latest or (deadline is not None and next_call >= deadline):
            message = f"not sent: the server rejects calls for their rate, the next in {left:.1f} s"
            raise RateLimited(f"{message}, later than the call can wait", retry_after=left)

    def _enter(self, slot: Slot, waiter: _Waiter) -> float:
        """Take the slot and return 0, or the seconds until there may be room (inf: a call ends)."""
        with self._lock:
            now = waiter[0].time()
            waiter[1].clear()
            if self._queue[0] is not waiter:
                return math.inf
            if self._max_concurrency is not None and self._running >= self._max_concurrency:
                return math.inf
            while self._last_minute and self._last_minute[0].begun <= now - MINUTE_S:
                self._last_minute_tokens -= self._last_minute.popleft().tokens
            if self._is_over_rate(slot.tokens):
                return max(self._last_minute[0].begun + MINUTE_S - now, 0.001)
            wait = self.throttle.enter(now)
            if wait > 0:
                return wait
            slot.begun = now
            self._running += 1
            if self._rpm is not None or self._tpm is not None:
                self._last_minute.append(slot)
                self._last_minute_tokens += slot.tokens
            return 0.0

    def _is_over_rate(self, tokens: int) -> bool:
        """Return True if a call with these tokens would pass a limit of the last minute."""
        if self._rpm is not None and len(self._last_minute) >= self._rpm:
            return True
        if self._tpm is None or not self._last_minute_tokens:  # a large call goes alone
            return False
        return self._last_minute_tokens + tokens > self._tpm

    def _wake_next(self) -> None:
        while self._queue:
            loop, event = self._queue[0]
            try:
                loop.call_soon_threadsafe(event.set)
                break
            except RuntimeError:  # that loop was closed while its call waited
                self._queue.popleft()
