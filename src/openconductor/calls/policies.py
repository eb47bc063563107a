"""Retries and circuit breaker: whether and when a call of a worker is made.

``Policies`` wraps a metered provider. Retries are outermost, then the ``Circuit``, then
``CallLimits``.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from random import SystemRandom

from openconductor.calls.limits import LONGEST_PAUSE_S, PATIENCE_S, CallLimits, Slot
from openconductor.calls.meter import is_free
from openconductor.calls.options import guess_tokens
from openconductor.errors import (
    CircuitOpen,
    RateLimited,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)
from openconductor.protocols import CallContext, OnText, SupportsComplete
from openconductor.types import Completion, Message, Sampling

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 20.0
"""Backoff: before the n-th retry a random part of ``FIRST_WAIT_S`` * 2 ** (n - 1), or of this if
it is less (full jitter)."""

LONGEST_RETRY_AFTER_S = 60.0
"""If a failing server (503) names a longer wait, the call is not retried."""

OTHERS_WAIT_S = 0.75
"""The most that a call waits for a server that rejects calls for their rate (429), if another
worker can be asked."""

LOOK_S = 0.5
"""A call that waits for an open circuit looks again after a random part of this."""

FAILURES = 5
QUIET_S = 1.0
"""A circuit opens after FAILURES in a row without a success for QUIET_S seconds.

Of many calls in flight the slow failures end in a row, so a count alone proves little."""

COOL_DOWN_S = 3.0
LONGEST_COOL_DOWN_S = 60.0
"""An open circuit lets one call through every COOL_DOWN_S seconds. If the last failure was a
timeout, it waits as long as that took, up to LONGEST_COOL_DOWN_S: few calls shall hang."""

UNREACHABLE_S = 10.0
"""How long a worker that cannot be reached is retried, unless the context of the call says."""
RUN_UNREACHABLE_S = 120.0
"""``CallContext.unreachable_s`` of evaluations and trainings."""

_CLOCK_SLACK_S = 0.001
_LOADING = (502, 503)  # a proxy whose server is away; a server that loads its model, or has no room

_jitter = SystemRandom()  # draws nothing from the generators that results depend on


class Circuit:
    """A circuit breaker: after failures in a row nothing is sent for a while, then one call tries.

    Failures that a retry may heal count, except rate limits. A server that rejects a request is
    alive. Calls that were cancelled, or that ended at the deadline of the whole question, prove
    nothing.

    Attributes:
        opens: False for a worker that is behind no network.
        down_since: the event loop's time at which the circuit opened; None: it is closed.
    """

    def __init__(self, *, opens: bool = True) -> None:
        self.opens = opens
        self.down_since: float | None = None
        self._failures = 0
        self._last_success = -math.inf
        self._last_failure = ""
        self._next_try = 0.0
        self._cool_down = COOL_DOWN_S

    @property
    def closed(self) -> bool:
        """True if a call would be sent now."""
        return self.down_since is None or _now() >= self._next_try

    def check(self) -> None:
        """Raise CircuitOpen if a call must not be sent now."""
        if self.closed:
            return
        left = self._next_try - _now()
        failed = f"{self._failures} calls in a row failed, the last: {self._last_failure}"
        raise CircuitOpen(f"not sent: {failed}; next try in {left:.1f} s", retry_after=left)

    def begin(self) -> None:
        """Note that a call is sent; after the cool-down it keeps the others back."""
        self._next_try = _now() + self._cool_down

    def succeed(self) -> None:
        """Note that the worker has answered."""
        self._last_success = _now()
        self._failures = 0
        self.down_since = None

    def fail(self, error: WorkerError, deadline: float | None, *, begun: float) -> None:
        """Note a failure of a call that was sent at ``begun`` and had until ``deadline``."""
        now = _now()
        proves_nothing = isinstance(error, RateLimited)
        if isinstance(error, WorkerTimeout) and deadline is not None:
            proves_nothing = now + _CLOCK_SLACK_S >= deadline
        if proves_nothing or not error.retryable:
            if error.status is not None:
                self.succeed()
            return
        self._last_failure = error.outcome
        if isinstance(error, Unreachable):  # what a server says may repeat another caller's prompt
            self._last_failure += f": {error.message}"
        self._failures += 1
        self._cool_down = COOL_DOWN_S
        if isinstance(error, WorkerTimeout):
            self._cool_down = max(COOL_DOWN_S, min(now - begun, LONGEST_COOL_DOWN_S))
        lasting = self._failures >= FAILURES and now - self._last_success >= QUIET_S
        if self.opens and self.down_since is None and lasting:
            self.down_since = now
            self._next_try = now + self._cool_down


class Policies:
    """Calls a provider within its limits while its circuit is closed, and retries.

    A call is retried at most ``retries`` times. If the worker cannot be reached or is loading, it
    is retried until ``call.unreachable_s`` after the worker went down. If a server behind a network
    rejects it for its rate, it waits for its turn again, which does not count as a retry: until its
    deadline, or else until the account got no answer for ``PATIENCE_S``. With ``unreachable_s`` 0
    another worker can be asked, so it counts, and waits ``OTHERS_WAIT_S`` at most. A call is not
    retried if the wait would pass ``call.deadline``, if the server names too long a wait, or if a
    part of the answer went to ``on_text``: a user would read its beginning twice.

    Args:
        provider: each attempt gets its number in ``call.attempt``.
        retries: the most further attempts; 0: none, whatever the failure.
        limits: shared by all calls of the worker.
        circuit: shared by all calls of the worker.
    """

    def __init__(
        self, provider: SupportsComplete, *, retries: int, limits: CallLimits, circuit: Circuit
    ) -> None:
        self._provider = provider
        self._retries = retries
        self._limits = limits
        self._circuit = circuit

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Call, and retry.

        Raises:
            WorkerError: the last attempt's.
            CircuitOpen: the worker has failed too often just now, for longer than
                ``call.unreachable_s``.
            BudgetExceeded: the budget has no room for a further attempt.
        """
        retries = 0
        first_failure = math.inf
        failure: WorkerError | None = None
        listener = None if on_text is None else _Listener(on_text)
        tokens = sum(guess_tokens(messages, sampling))
        latest = _now() + OTHERS_WAIT_S if call.unreachable_s == 0.0 else math.inf
        while True:
            slot = Slot(tokens, latest, goes_first=isinstance(failure, RateLimited))
            try:
                return await self._call(messages, sampling, call, listener, slot)
            except WorkerError as error:
                first_failure = min(first_failure, _now())
                wait = None
                if listener is None or not listener.has_heard:
                    wait = self._wait(error, call, retries, first_failure, latest)
                was_sent = not isinstance(error, CircuitOpen)
                if failure is None or was_sent:
                    failure = error
                if wait is None:  # a failure of what was sent says more than one of what was not
                    raise failure from failure.__cause__
            await asyncio.sleep(wait)
            if not was_sent:
                continue
            call = replace(call, attempt=call.attempt + 1, trace=call.new_span())
            if self._is_limited(failure) and latest == math.inf:
                continue
            retries += 1
            if call.budget is not None and not _is_unreached(failure):
                await call.budget.count_attempt()

    async def _call(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
        on_text: OnText | None,
        slot: Slot,
    ) -> Completion:
        limits = self._limits
        await limits.take(slot, call.deadline, self._circuit.check)
        self._circuit.begin()
        used: int | None = None
        try:
            completion = await self._provider.complete(
                messages, sampling, call=call, on_text=on_text
            )
            used = completion.usage.tokens or None
            self._circuit.succeed()
            limits.throttle.succeed(slot.begun, _now())
            return completion
        except WorkerError as error:
            if error.usage is not None:
                used = error.usage.tokens
            elif is_free(error):
                used = 0
            if isinstance(error, RateLimited) and error.retryable:
                limits.throttle.reject(slot.begun, _now(), error.retry_after)
            self._circuit.fail(error, call.deadline, begun=slot.begun)
            raise
        finally:
            limits.give_back(slot, used)

    def _wait(
        self,
        error: WorkerError,
        call: CallContext,
        retries: int,
        first_failure: float,
        latest: float,
    ) -> float | None:
        """Return the seconds until the next attempt. None: the call is not retried."""
        may_retry = error.retryable and retries < self._retries
        if self._is_limited(error):
            may_wait = error.retryable and self._retries > 0 if latest == math.inf else may_retry
            return 0.0 if may_wait and self._gets_turn(error, call, latest) else None
        now = _now()
        if isinstance(error, WorkerTimeout) and call.unreachable_s == 0.0:
            return None  # another worker is asked instead, and need not wait as long again
        if may_retry:
            longest = LONGEST_WAIT_S
        elif self._may_come_back(error):
            seconds = UNREACHABLE_S if call.unreachable_s is None else call.unreachable_s
            longest = (self._circuit.down_since or first_failure) + seconds - now
        else:
            return None
        retry_after = error.retry_after or 0.0
        backoff = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(retries, 10))
        if isinstance(error, CircuitOpen):
            retry_after = 0.0
            backoff = LOOK_S
        if longest <= 0 or retry_after > LONGEST_RETRY_AFTER_S:
            return None
        # Random beyond what a server names, too: else those that it sent away together would come
        # back together.
        wait = retry_after + min(longest, _jitter.uniform(0.0, backoff))
        if call.deadline is not None and now + wait >= call.deadline:
            return None
        return wait

    def _gets_turn(self, error: WorkerError, call: CallContext, latest: float) -> bool:
        """Return True if the server may take a call that it rejected for its rate in time."""
        if (error.retry_after or 0.0) > LONGEST_PAUSE_S:
            return False
        throttle = self._limits.throttle
        last = throttle.limited_since + (LONGEST_PAUSE_S if error.retry_after else PATIENCE_S)
        if call.deadline is not None:
            last = call.deadline
        return throttle.next_call < min(last, latest)

    def _is_limited(self, error: WorkerError) -> bool:
        """Return True if a server behind a network rejected a call for its rate."""
        return isinstance(error, RateLimited) and self._circuit.opens

    def _may_come_back(self, error: WorkerError) -> bool:
        """Return True if the worker is behind a network, and could not be reached or is loading."""
        if not (self._retries and self._circuit.opens):
            return False
        return _is_unreached(error) or error.status in _LOADING


class _Listener:
    """Passes text on, and notes that there was any."""

    def __init__(self, on_text: OnText) -> None:
        self.has_heard = False
        self._on_text = on_text

    def __call__(self, text: str) -> None:
        self.has_heard = self.has_heard or bool(text)
        self._on_text(text)


def _is_unreached(error: WorkerError) -> bool:
    """Return True if nothing of the call reached the worker."""
    if isinstance(error, Unreachable):
        return not error.sent
    return isinstance(error, CircuitOpen)


def _now() -> float:
    """Return the running event loop's time; without a loop, that of the clock behind them all."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
