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
from contextlib import suppress
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
