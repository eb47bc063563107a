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
from random import SystemRandom

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
        self._paused_until = 0.0
        self._last_turn = 0.0  # when the last call began, since there is a rate
        self._taken = 0.0  # the calls a second that the server took in the last minute
        self._is_first = False  # all calls were taken until the last rejections in a row
        self._last_rejection = -math.inf
        self._rejections = 0  # in a row
        # Calls that began in a second and were not rejected, for each second of the last minute.
        # They are counted without the lock: a call that two threads miss does not matter.
        self._seconds = [-1] * MINUTE_S
        self._calls = [0] * MINUTE_S

    def enter(self, now: float) -> float:
        """Begin a call and return 0, or return the seconds until it may begin."""
        if self.rate < math.inf:
            with self._lock:
                wait = self._take_turn(now)
                if wait > 0:
                    return wait
        second = int(now)
        place = second % MINUTE_S
        if self._seconds[place] != second:
            self._seconds[place] = second
            self._calls[place] = 0
        self._calls[place] += 1
        return 0.0

    def _take_turn(self, now: float) -> float:
        """Return 0 if a call may begin now, or the seconds until it may."""
        if now > self._learnt_at + MINUTE_S:
            self.rate = math.inf
            self._rejections = 0
            return 0.0
        wait = self.next_call - now
        if wait <= 0:
            self._last_turn = max(self.next_call, now - 1 / self.rate)
        return wait

    def leave(self, begun: float) -> None:
        """Note that a call was not sent after all, or that the server did not take it."""
        second = int(begun)
        place = second % MINUTE_S
        if self._seconds[place] == second:
            self._calls[place] -= 1

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
            self.leave(begun)
            self._taken = self._calls_taken(now) / MINUTE_S
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

    def _calls_taken(self, now: float) -> int:
        """Return the number of calls of the last minute that the server took."""
        counts = zip(self._seconds, self._calls, strict=True)
        return sum(calls for second, calls in counts if second > now - MINUTE_S)
