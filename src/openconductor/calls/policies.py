"""What decides whether and when a call of a worker is made: retry, breaker and limits.

In: a metered provider. Out: ``Policies`` around it; retry is outermost, then the breaker, then the
limits.

The limits are our own because they hold for the whole process: each ``ask_sync`` brings an event
loop, and servers bring threads. ``asyncio.Semaphore`` and aiolimiter belong to one loop; aiolimiter
also lets twice the rate through in the first minute, and cannot correct a guess of tokens once a
call has ended (``tests/unit/calls/test_policies.py``). Event loops tell the time by one clock, the
system's monotonic one, so times of one loop hold in another.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Any

from openconductor.calls.budget import count_attempt
from openconductor.calls.meter import is_free
from openconductor.errors import (
    CircuitOpen,
    RateLimited,
    ServerFailed,
    Unreachable,
    WorkerError,
    WorkerTimeout,
)
from openconductor.protocols import CallContext, OnText, SupportsComplete
from openconductor.types import Completion, Message, Sampling, Usage

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 20.0
"""Before the n-th repeat it waits a random part of ``FIRST_WAIT_S`` * 2 ** (n - 1), at most of this (full jitter)."""

LONGEST_RETRY_AFTER_S = 60.0
"""A server that names a longer wait is not waited for."""

LOOK_S = 0.5
"""A call that waits for an open circuit looks again after a random part of this."""

FAILURES = 5
QUIET_S = 1.0
"""This many failures in a row open a circuit, where nothing has succeeded for so long: of many calls in flight the slow
failures end in a row."""

COOL_DOWN_S = 3.0
"""An open circuit lets one call through after so long, and again."""

LONG_PATIENCE_S = 120.0
"""The patience of evaluations and trainings."""

CHARACTERS_A_TOKEN = (
    4  # a guess for English, used only until the provider says how many tokens there were
)
_MINUTE_S = 60.0
_CLOCK_SLACK_S = 0.001
_LOADING = (502, 503)  # a proxy whose server is away; a server that loads its model, or has no room
_FREE = Usage()

_jitter = SystemRandom()  # draws nothing from the generators that results depend on
_patience: ContextVar[float] = ContextVar("openconductor_patience", default=10.0)


@contextmanager
def patient(seconds: float) -> Generator[None]:
    """For how long calls made inside go on at a worker that cannot be reached or is loading; 10 s outside of any."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


_wish: ContextVar[Sampling | None] = ContextVar("openconductor_wish", default=None)


@contextmanager
def wishing(wish: Sampling) -> Generator[None]:
    """Lay what a client asks over the calls that are made inside.

    Its seed holds for every call. The rest (its tools, its form, its limit) holds for the call
    whose response is the answer.
    """
    token = _wish.set(wish)
    try:
        yield
    finally:
        _wish.reset(token)


def wished(sampling: Sampling, *, last: bool) -> Sampling:
    """How a call samples: its worker's way, with the client's wish over it; of two limits of tokens the lower holds.

    Args:
        sampling: the worker's.
        last: whether the call's response is the answer.
    """
    if (wish := _wish.get()) is None:
        return sampling
    seed = sampling.seed if wish.seed is None else wish.seed
    if not last:
        return replace(sampling, seed=seed)
    body = {**sampling.body, **wish.body}
    limits = [limit for limit in (sampling.max_tokens, wish.max_tokens) if limit is not None]
    for key in ("max_tokens", "max_completion_tokens"):  # a worker whose limit is in its body
        if type(limit := body.get(key)) is int and wish.max_tokens is not None:
            body[key] = min(limit, wish.max_tokens)
    warmth = sampling.temperature if wish.temperature is None else wish.temperature
    return Sampling(warmth, min(limits, default=None), seed, body)


def as_answer(completion: Completion) -> Completion:
    """The completion that answers: of its calls of tools those that the client offered are kept."""
    wish = _wish.get()
    calls = () if wish is None else offered_calls(completion.tool_calls, wish.body)
    return (
        completion
        if len(calls) == len(completion.tool_calls)
        else replace(completion, tool_calls=calls)
    )


def offered_calls(
    calls: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ...]:
    """Of calls of tools those that a request allows, by ``tools`` and ``tool_choice`` as chat completions have them."""
    names = {
        _function(tool).get("name")
        for tool in body.get("tools") or ()
        if body.get("tool_choice") != "none"
    }
    return tuple(call for call in calls if _function(call).get("name") in names)


def _function(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("function") or {}


def most_tokens(messages: Sequence[Message], sampling: Sampling) -> tuple[int, int]:
    """The tokens that a call reads, guessed from its text, and the most that it may write (0 where nothing says)."""
    limits = [sampling.body.get(key) for key in ("max_completion_tokens", "max_tokens")]
    limit = next((limit for limit in limits if type(limit) is int), sampling.max_tokens)
    return sum(len(message.content) for message in messages) // CHARACTERS_A_TOKEN, limit or 0


class Circuit:
    """The breaker of a worker: after several failures in a row nothing is sent for a while, then one call tries.

    What another attempt may heal counts as a failure of the worker, but for a rate limit; a server
    that rejects a request is alive. Calls that were cancelled or ended at the deadline of the whole
    question prove nothing. One that does not ``open`` is that of a worker that is behind no
    network.
    """

    def __init__(self, *, opens: bool = True) -> None:
        self.opens = opens
        self._failures = 0
        self._succeeded = -math.inf
        self._last = ""
        self._next_try = 0.0
        self.down_since: float | None = None
        """The event loop's time at which it opened; None where it is closed."""

    @property
    def closed(self) -> bool:
        """Whether a call would be sent now."""
        return self.down_since is None or _now() >= self._next_try

    def check(self, *, sending: bool) -> None:
        """Refuse a call while it is open; one that is ``sending`` once the cool-down is over keeps the others back.

        Raises:
            CircuitOpen: it must not be sent.
        """
        if self.down_since is None:
            return
        left = self._next_try - _now()
        if left > 0:
            failed = f"{self._failures} calls in a row failed, the last: {self._last}"
            raise CircuitOpen(f"not sent: {failed}; next try in {left:.1f} s", retry_after=left)
        if sending:
            self._next_try = _now() + COOL_DOWN_S

    def succeed(self) -> None:
        """The worker is there."""
        self._succeeded = _now()
        self._failures = 0
        self.down_since = None

    def fail(self, error: WorkerError, deadline: float | None) -> None:
        """A call failed that had until ``deadline``."""
        now = _now()
        hurried = (
            isinstance(error, WorkerTimeout)
            and deadline is not None
            and now + _CLOCK_SLACK_S >= deadline
        )
        if not error.retryable or isinstance(error, RateLimited) or hurried:
            if error.status is not None:
                self.succeed()
            return
        # What a server said may repeat a prompt, and the next caller is somebody else.
        self._last = (
            f"{error.outcome}: {error.message}" if isinstance(error, Unreachable) else error.outcome
        )
        self._failures += 1
        lasting = self._failures >= FAILURES and now - self._succeeded >= QUIET_S
        if self.opens and self.down_since is None and lasting:
            self.down_since, self._next_try = now, now + COOL_DOWN_S


@dataclass(slots=True, eq=False)
class _Turn:
    """What one call holds of its worker's limits: its tokens, from when it has its turn."""

    tokens: int
    at: float = math.inf


_Waiting = tuple[asyncio.AbstractEventLoop, asyncio.Event]
"""A call that waits for its turn: where, and what wakes it."""


class CallLimits:
    """What all calls of a worker share, over event loops and threads; they get their turns in order of arrival.

    Args:
        max_concurrency: calls at once.
        rpm: calls begun in any 60 seconds.
        tpm: tokens, read and written, of the calls begun in any 60 seconds. A call counts as its
            text / 4 plus its token limit until it ends, then as what was used; one that is larger
            than the limit goes alone.
    """

    def __init__(
        self, max_concurrency: int | None = None, rpm: int | None = None, tpm: int | None = None
    ) -> None:
        self._at_once, self._rpm, self._tpm = max_concurrency, rpm, tpm
        self._lock = threading.Lock()  # held for a few instructions only, never over an await
        self._running = 0
        self._recent: deque[_Turn] = deque()  # those of the last minute
        self._tokens = 0  # theirs
        self._paused_until = 0.0
        self._queue: deque[_Waiting] = deque()

    async def take(
        self, messages: Sequence[Message], sampling: Sampling, deadline: float | None
    ) -> _Turn:
        """Wait for a turn, which must be given back.

        Raises:
            WorkerTimeout: ``deadline`` passed meanwhile.
            RateLimited: the worker has named a pause that lasts beyond ``deadline``.
        """
        loop = asyncio.get_running_loop()
        left = self._paused_until - loop.time()
        if deadline is not None and left > 0 and self._paused_until >= deadline:
            message = f"not sent: the worker named a pause, {left:.1f} s of it are left, beyond the call's deadline"
            raise RateLimited(message, status=None, retry_after=left)
        turn = _Turn(0 if self._tpm is None else sum(most_tokens(messages, sampling)))
        mine = loop, asyncio.Event()
        with self._lock:
            self._queue.append(mine)
        try:
            async with asyncio.timeout_at(deadline):
                while wait := self._enter(turn, mine):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None if wait == math.inf else wait):
                            await mine[1].wait()
            return turn
        except TimeoutError:
            message = (
                "the deadline passed while the call waited for its turn (a limit of the worker)"
            )
            raise WorkerTimeout(message, usage=_FREE) from None
        finally:
            with self._lock:
                with suppress(ValueError):
                    self._queue.remove(mine)
                self._wake_next()

    def give_back(self, turn: _Turn, *, sent: bool, used: int | None) -> None:
        """End a turn: whether the call was ``sent``, and its tokens (None is not known: what was assumed stands)."""
        with self._lock:
            self._running -= 1
            if turn in self._recent:
                tokens = turn.tokens if used is None else used
                self._tokens += (tokens if sent else 0) - turn.tokens
                turn.tokens = tokens
                if not sent:
                    self._recent.remove(turn)
            self._wake_next()

    def pause(self, seconds: float) -> None:
        """Send nothing for this many seconds, because the server said so; too long a pause is none."""
        if seconds <= LONGEST_RETRY_AFTER_S:
            self._paused_until = max(
                self._paused_until, asyncio.get_running_loop().time() + seconds
            )

    def _enter(self, turn: _Turn, mine: _Waiting) -> float:
        """Take the turn where there is room and return 0, else the seconds until there may be (inf: a call ends)."""
        with self._lock:
            now = mine[0].time()
            mine[1].clear()
            if self._queue[0] is not mine or (
                self._at_once is not None and self._running >= self._at_once
            ):
                return math.inf
            if now < self._paused_until:
                return self._paused_until - now
            while self._recent and self._recent[0].at <= now - _MINUTE_S:
                self._tokens -= self._recent.popleft().tokens
            crowded = self._rpm is not None and len(self._recent) >= self._rpm
            if crowded or (
                self._tpm is not None and self._tokens and self._tokens + turn.tokens > self._tpm
            ):
                return max(self._recent[0].at + _MINUTE_S - now, 0.001)
            turn.at = now
            self._running += 1
            if self._rpm is not None or self._tpm is not None:
                self._recent.append(turn)
                self._tokens += turn.tokens
            return 0.0

    def _wake_next(self) -> None:
        while self._queue:
            loop, event = self._queue[0]
            try:
                loop.call_soon_threadsafe(event.set)
                break
            except RuntimeError:  # that loop was closed while its call waited
                self._queue.popleft()


class Policies:
    """Calls a provider within its limits while its circuit is closed, and again after a failure that may heal.

    A call is repeated at most ``retries`` times; where the worker cannot be reached or is loading,
    for as long as its caller is ``patient``, counted from when it went down. It gives up at once
    where the wait would pass ``call.deadline``, where the server names too long a wait, and where a
    part of the answer was handed to ``on_text``:
    a user would read its beginning twice.

    Args:
        provider: what is called; each attempt gets its number in ``call.attempt``.
        retries: how many further attempts there are at most; 0 is none, whatever the failure.
        limits: shared by all that calls the worker.
        circuit: likewise.
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
        """Call, and again while there is hope.

        Raises:
            WorkerError: the last attempt's.
            CircuitOpen: the worker has failed too often just now, for longer than the caller is
                patient.
            BudgetExceeded: the question's budget has no room for a further attempt.
        """
        made, first_failed, heard = 0, math.inf, False
        failure: WorkerError | None = None

        def hear(text: str) -> None:
            nonlocal heard
            heard = heard or bool(text)
            if on_text is not None:
                on_text(text)

        while True:
            try:
                return await self._call(
                    messages, sampling, call, hear if on_text is not None else None
                )
            except WorkerError as error:
                first_failed = min(first_failed, _now())
                wait = None if heard else self._wait(error, call, made, first_failed)
                refused = isinstance(error, CircuitOpen)
                failure = error if failure is None or not refused else failure
                if wait is None:
                    raise failure from failure.__cause__  # what was sent says more than what was not
            await asyncio.sleep(wait)
            if not refused:
                made += 1
                call = replace(call, attempt=call.attempt + 1)
                if not _is_unsent(failure):
                    count_attempt()

    async def _call(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
        on_text: OnText | None,
    ) -> Completion:
        limits, circuit = self._limits, self._circuit
        circuit.check(sending=False)
        turn = await limits.take(messages, sampling, call.deadline)
        sent, used = False, None
        try:
            circuit.check(sending=True)  # again: it may have opened meanwhile
            sent = True
            completion = await self._provider.complete(
                messages, sampling, call=call, on_text=on_text
            )
            used = completion.usage.tokens or None
            circuit.succeed()
            return completion
        except WorkerError as error:
            if sent:
                used = (
                    error.usage.tokens if error.usage is not None else 0 if is_free(error) else None
                )
                if isinstance(error, RateLimited) and error.retry_after:
                    limits.pause(error.retry_after)
                circuit.fail(error, call.deadline)
            raise
        finally:
            limits.give_back(turn, sent=sent, used=used)

    def _wait(
        self, error: WorkerError, call: CallContext, made: int, first_failed: float
    ) -> float | None:
        """Seconds until the next attempt, after ``made`` repeats; None where there is none."""
        now, left = _now(), LONGEST_WAIT_S
        if not (error.retryable and made < self._retries):
            if (
                self._retries
                and self._circuit.opens
                and (_is_unsent(error) or error.status in _LOADING)
            ):
                left = (self._circuit.down_since or first_failed) + _patience.get() - now
            else:
                left = 0.0
            if left <= 0:
                return None
        named = (isinstance(error, RateLimited | ServerFailed) and error.retry_after) or 0.0
        if named > LONGEST_RETRY_AFTER_S:
            return None
        longest = LOOK_S if isinstance(error, CircuitOpen) else FIRST_WAIT_S * 2.0 ** min(made, 10)
        # Random beyond what a server names, too: those whom it sent away together do not all come
        # back together.
        wait = named + min(left, _jitter.uniform(0.0, min(LONGEST_WAIT_S, longest)))
        return wait if call.deadline is None or now + wait < call.deadline else None


def _is_unsent(error: WorkerError) -> bool:
    """Whether the worker could not even be reached."""
    return isinstance(error, CircuitOpen) or (isinstance(error, Unreachable) and not error.sent)


def _now() -> float:
    """The running event loop's time; without one, that of the clock behind them all."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
