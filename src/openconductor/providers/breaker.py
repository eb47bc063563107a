"""A circuit breaker as a provider. In: a provider. Out: one that is not called for a while once it keeps failing.

Why not purgatory (3.0, MIT, nothing pulled in), the best kept for asyncio: half open it lets every caller through, a
cancelled call counts as a failure (or, where excluded, as a success), its pause does not grow, and each outcome passes
an asynchronous store, on one event loop. Ours is one small state under a lock, over all event loops and threads; a
successful call of a healthy worker takes no lock.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence

from openconductor.errors import CircuitOpen, RateLimited, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling

FAILURES = 5
"""So many failures in a row open a circuit; each attempt counts, a retry too."""

QUIET_S = 1.0
"""No success for so long, either: of many calls in flight the slow failures end in a row."""

FIRST_COOL_DOWN_S = 5.0
LONGEST_COOL_DOWN_S = 30.0
"""A circuit first stays open for the former; twice as long after each probe that failed, at most this."""

_CLOCK_SLACK_S = 0.001


class Circuit:
    """Whether a worker is called: closed (it is), open (not for now), or half open (one call tries whether it heals).

    Any success closes it, also of a call that was under way when it opened. A probe that ends without a verdict (it was
    cancelled, say) makes room for the next one at once, and one that lasts longer than the cool-down, or was lost with
    its event loop, for one more: nothing can leave the circuit stuck. Safe over threads and event loops, whose clocks
    are all the system's monotonic one.
    """

    __slots__ = (
        "__weakref__",
        "_cool_down",
        "_down_since",
        "_failures",
        "_last",
        "_lock",
        "_openings",
        "_succeeded",
        "_until",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for a few instructions only, never over an await
        self._failures = 0
        self._succeeded = -math.inf  # when
        self._last = ""
        self._until: float | None = None  # when the next probe may go; None is closed
        self._down_since = 0.0  # when it opened
        self._cool_down = FIRST_COOL_DOWN_S
        self._openings = 0

    @property
    def closed(self) -> bool:
        """Whether a call would be sent now."""
        until = self._until
        return until is None or _now() >= until

    @property
    def down_since(self) -> float | None:
        """When it opened, whatever its probes have come to since; None where it is closed."""
        return None if self._until is None else self._down_since

    @property
    def opening(self) -> int:
        """Which opening is under way, counted from 1; 0 where the circuit is closed."""
        return 0 if self._until is None else self._openings

    def admit(self) -> bool:
        """Let a call through, or not; returns whether it is a probe.

        Raises:
            CircuitOpen: it must not be sent.
        """
        if not self.opening:
            return False
        with self._lock:
            until, now = self._until, _now()
            if until is None:
                return False
            if now < until:
                raise self.refusal()
            self._until = now + self._cool_down
            return True

    def refusal(self) -> CircuitOpen:
        """The error for a call that is not sent."""
        left = max(0.0, (self._until or 0.0) - _now())
        message = f"not sent: {self._failures} calls in a row failed, the last: {self._last}; next try in {left:.1f} s"
        return CircuitOpen(message, retry_after=left)

    def succeed(self) -> None:
        """The worker answered."""
        self._succeeded = _now()
        if self._failures or self._until is not None:
            with self._lock:
                self._failures = 0
                self._until = None
                self._cool_down = FIRST_COOL_DOWN_S

    def fail(self, error: WorkerError, *, probe: bool) -> None:
        """The worker failed; of the calls that were under way when the circuit opened only the error is kept."""
        with self._lock:
            self._last = f"{error.outcome}: {error.message}"
            self._failures += 1
            if self._until is None:
                if self._failures < FAILURES or _now() - self._succeeded < QUIET_S:
                    return
                self._down_since = _now()
            elif probe:
                self._cool_down = min(2 * self._cool_down, LONGEST_COOL_DOWN_S)
            else:
                return
            self._until = _now() + self._cool_down
            self._openings += 1

    def release(self) -> None:
        """A probe ended without a verdict: the next call is one."""
        with self._lock:
            if self._until is not None:
                self._until = _now()


class BreakerProvider:
    """Calls a provider while its circuit is closed.

    What a further attempt may heal (``error.retryable``: timeouts, no connection, 5xx, responses that are cut, garbage
    or empty) counts as a failure of the worker. A rate limit does not, nor what the request itself brought about (a
    refusal, a context too long, another 4xx): a server that says so is alive. Without a verdict are calls that were
    cancelled, were not sent, or ended at the deadline of the whole question: a caller in a hurry proves nothing.

    Args:
        provider: what is called.
        circuit: the worker's; providers that are given the same open and close together.
    """

    __slots__ = ("_circuit", "_provider")

    def __init__(self, provider: Provider, circuit: Circuit) -> None:
        self._provider = provider
        self._circuit = circuit

    def __repr__(self) -> str:
        return f"BreakerProvider({self._provider!r})"

    @property
    def closed(self) -> bool:
        """Whether a call would be sent now."""
        return self._circuit.closed

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Call, where the circuit allows it.

        Raises:
            CircuitOpen: it does not; ``.retry_after`` says for how many seconds.
            WorkerError: as the provider raises it.
        """
        circuit = self._circuit
        probe = circuit.admit()
        try:
            completion = await self._provider.complete(messages, sampling, call=call, on_text=on_text)
        except WorkerError as error:
            if _is_the_workers(error, call):
                circuit.fail(error, probe=probe)
            elif error.status is not None:
                circuit.succeed()
            elif probe:
                circuit.release()
            raise
        except BaseException:  # cancelled, stopped by a budget, or the coroutine of an event loop that was dropped
            if probe:
                circuit.release()
            raise
        circuit.succeed()
        return completion


def _is_the_workers(error: WorkerError, call: CallContext) -> bool:
    """Whether a failure is a failure of the worker."""
    if not error.retryable or isinstance(error, RateLimited):
        return False
    if not isinstance(error, WorkerTimeout) or call.deadline is None:
        return True
    return asyncio.get_running_loop().time() + _CLOCK_SLACK_S < call.deadline


def _now() -> float:
    """The running event loop's time; without one, that of the clock behind them all."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
