"""The rate at which a server takes calls, learnt from the calls that it rejects (status 429).

Nothing is held back until the first rejection. A rejection pauses all calls of the account: as long
as the server says, or else for a backoff that doubles up to ``LONGEST_BACKOFF_S``. Afterwards calls
begin one by one, at the rate at which the server took them in the last minute. Each answer raises
the rate (additive increase), the more the longer ago the last rejection is, as in CUBIC (RFC 9438).
A further rejection lowers it (multiplicative decrease). A minute without a rejection ends it all.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from random import SystemRandom

MINUTE_S = 60.0

LONGEST_PAUSE_S = 600.0
"""If a server names a longer wait, the call fails. A call without a deadline also fails if the
server has rejected every call of the account for so long."""

FIRST_BACKOFF_S = 0.125
LONGEST_BACKOFF_S = 3.0
"""The pause after the n-th rejection in a row of a server that names none: a random part, from a
half on, of ``FIRST_BACKOFF_S`` * 2 ** (n - 1), or of this if it is less. What a server that counts
by the minute loses by it is at most this much of each minute."""

DECREASE = 0.95
"""The rate after a rejection, as a share of the rate at which calls were taken."""
INCREASE = 0.004
"""What an answer adds to the rate of calls a second, for each second since the last pause."""
SLOWEST = 1 / LONGEST_BACKOFF_S
"""The lowest rate, in calls a second."""

_jitter = SystemRandom()  # draws nothing from the generators that results depend on


@dataclass(slots=True)
class _Second:
    """The calls that began in a second and were not rejected."""

    number: int
    calls: int = 0


class Throttle:
    """Holds back the calls of an account while its server rejects them. Safe over threads.

    All times are those of an event loop.

    Attributes:
        limited_since: when the server rejected a call for the first time since it answered one.
        next_call: no call begins before.
    """

    def __init__(self) -> None:
        self.limited_since = 0.0
        self.next_call = 0.0
        self._lock = threading.Lock()  # held for a few instructions only
        self._rate = math.inf  # calls a second
        self._paused_until = 0.0
        self._last_rejection = -math.inf
        self._rejections = 0  # in a row
        self._last_minute: deque[_Second] = deque()

    def enter(self, now: float) -> float:
        """Begin a call and return 0, or return the seconds until it may begin."""
        with self._lock:
            if self._rate < math.inf:
                if now > self._learnt_at + MINUTE_S:
                    self._rate = math.inf
                    self._rejections = 0
                wait = self.next_call - now
                if wait > 0:
                    return wait
                self.next_call = max(self.next_call + 1 / self._rate, now)
            seconds = self._last_minute
            if not seconds or seconds[-1].number < int(now):
                seconds.append(_Second(int(now)))
                self._drop_old_seconds(now)
            seconds[-1].calls += 1
            return 0.0

    def leave(self, begun: float) -> None:
        """Note that a call was not sent after all."""
        with self._lock:
            self._uncount(begun)

    def succeed(self, begun: float, now: float) -> None:
        """Note an answer to a call that began at a time."""
        if self._rate == math.inf or begun <= self._last_rejection:
            return
        with self._lock:
            self._rejections = 0
            self._rate += INCREASE * max(0.0, now - self._learnt_at)

    def reject(self, begun: float, now: float, wait: float | None) -> None:
        """Note that the server rejected a call for its rate.

        Args:
            begun: when the call began.
            now: the time.
            wait: the seconds that the server named; None: it named none.
        """
        with self._lock:
            self._uncount(begun)
            self._drop_old_seconds(now)
            taken = sum(second.calls for second in self._last_minute) / MINUTE_S
            lowest = max(SLOWEST, taken)
            if self._rate == math.inf:
                self._rate = lowest
            elif self._rate > lowest:
                self._rate = max(lowest, DECREASE * self._rate)
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
                self.next_call = max(self.next_call, self._paused_until)

    @property
    def _learnt_at(self) -> float:
        """The end of the last pause."""
        return max(self._last_rejection, self._paused_until)

    def _uncount(self, begun: float) -> None:
        for second in self._last_minute:
            if second.number == int(begun):
                second.calls -= 1

    def _drop_old_seconds(self, now: float) -> None:
        seconds = self._last_minute
        while seconds and seconds[0].number < now - MINUTE_S:
            seconds.popleft()
