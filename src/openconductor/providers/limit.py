"""Limits as a provider: calls at once, requests and tokens a minute. In: a provider. Out: one that waits its turn.

The limits hold for the whole process, over all event loops and threads, because ``ask_sync`` and servers bring loops of
their own (asyncio's semaphore and aiolimiter belong to one loop), and a call's tokens are known only after it; so these
are ours. Event loops tell the time by one clock, the system's monotonic one, so times of one loop hold in another.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from openconductor.errors import CircuitOpen, RateLimited, WorkerError, WorkerTimeout
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling, Usage

CHARACTERS_A_TOKEN = 4  # a guess for English, used only until the provider says how many tokens there were

LONGEST_PAUSE_S = 60.0
"""A longer Retry-After is no pause but a refusal: whoever meets it hears of it, and the others may try."""

RECHECK_S = 1.0  # how soon the first in line sees that a call gave room back


class Circuit(Protocol):
    """What a call that has waited asks before it is sent."""

    @property
    def opening(self) -> int:
        """Which opening of the circuit is under way; 0 where it is closed."""
        ...

    def refusal(self) -> CircuitOpen:
        """The error for a call that is not sent."""
        ...


class LimitProvider:
    """Holds a provider to its limits; calls wait in order of arrival.

    Args:
        provider: what is called.
        limits: the limits; providers that are given the same keep them together.
        circuit: the worker's; where it opened while a call waited, that call is not sent.
    """

    __slots__ = ("_circuit", "_limits", "_provider")

    def __init__(self, provider: Provider, limits: Limits, *, circuit: Circuit | None = None) -> None:
        self._provider = provider
        self._limits = limits
        self._circuit = circuit

    def __repr__(self) -> str:
        return f"LimitProvider({self._provider!r})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Wait for a turn, then call.

        Raises:
            WorkerTimeout: ``call.deadline`` passed while the call waited; it was not sent.
            RateLimited: the worker has named a pause that lasts beyond ``call.deadline``; the call was not sent.
            CircuitOpen: the circuit opened while the call waited; it was not sent.
            WorkerError: as the provider raises it.
        """
        limits, circuit = self._limits, self._circuit
        opening = 0 if circuit is None else circuit.opening
        turn, sent, used = Turn(), False, None
        try:
            await limits.take(turn, messages, sampling, call.deadline)
            if circuit is not None and circuit.opening not in (0, opening):
                raise circuit.refusal()
            sent = True
            completion = await self._provider.complete(messages, sampling, call=call, on_text=on_text)
            used = completion.usage.tokens or None
            return completion
        except WorkerError as error:
            if sent:
                used = _tokens_of(error)
                if isinstance(error, RateLimited) and error.retry_after:
                    limits.pause(error.retry_after)
            raise
        finally:
            limits.give_back(turn, sent=sent, used=used)


@dataclass(slots=True, eq=False)
class Turn:
    """What one call holds of its worker's limits."""

    slot: bool = False
    request: Entry | None = None
    tokens: Entry | None = None


class Limits:
    """What all calls of a worker share, over event loops and threads; each limit that is None is none.

    Args:
        max_concurrency: calls at once.
        rpm: calls begun in any 60 seconds.
        tpm: tokens, read and written, of the calls begun in any 60 seconds. A call counts as its text / 4 plus its
            token limit until it ends, then as what was used; one that is larger than the limit goes alone.
    """

    __slots__ = ("__weakref__", "_paused_until", "_requests", "_slots", "_tokens")

    def __init__(self, *, max_concurrency: int | None = None, rpm: int | None = None, tpm: int | None = None) -> None:
        self._slots = None if max_concurrency is None else Slots(max_concurrency)
        self._requests = None if rpm is None else Window(rpm)
        self._tokens = None if tpm is None else Window(tpm)
        self._paused_until = 0.0

    async def take(
        self, turn: Turn, messages: Sequence[Message], sampling: Sampling, deadline: float | None = None
    ) -> None:
        """Wait until a call may be sent; what it then holds stands in ``turn``, also where the wait is broken off.

        Raises:
            WorkerTimeout: ``deadline`` passed meanwhile.
            RateLimited: the worker's pause lasts beyond ``deadline``.
        """
        if self._slots is None and self._requests is None and self._tokens is None:
            if self._paused_until:
                await self._sit_out(deadline)
            return
        if deadline is None:
            await self._take(turn, messages, sampling, None)
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._take(turn, messages, sampling, deadline)
        except TimeoutError:
            message = "the deadline passed while the call waited for its turn (a limit of the worker)"
            raise WorkerTimeout(message, usage=Usage()) from None

    def pause(self, seconds: float) -> None:
        """Send nothing for so many seconds, because the server said so; too long a pause is none."""
        if seconds <= LONGEST_PAUSE_S:
            self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + seconds)

    def give_back(self, turn: Turn, *, sent: bool, used: int | None) -> None:
        """End a turn.

        Args:
            turn: what the call holds.
            sent: whether there was a call at all.
            used: its tokens; None is not known, so what was assumed stands.
        """
        if self._requests is not None and turn.request is not None and not sent:
            self._requests.settle(turn.request, 0)
        if self._tokens is not None and turn.tokens is not None and not (sent and used is None):
            self._tokens.settle(turn.tokens, used or 0)
        if self._slots is not None and turn.slot:
            self._slots.release()

    async def _take(self, turn: Turn, messages: Sequence[Message], sampling: Sampling, deadline: float | None) -> None:
        if self._slots is not None:
            await self._slots.acquire()
            turn.slot = True
        if self._paused_until:
            await self._sit_out(deadline)
        if self._requests is not None:
            turn.request = await self._requests.enter(1)
        if self._tokens is not None:
            turn.tokens = await self._tokens.enter(sum(most_tokens(messages, sampling)))

    async def _sit_out(self, deadline: float | None) -> None:
        clock = asyncio.get_running_loop().time
        while (left := self._paused_until - clock()) > 0:
            if deadline is not None and clock() + left >= deadline:
                message = f"not sent: the worker named a pause, {left:.1f} s of it are left, beyond the call's deadline"
                raise RateLimited(message, status=None, retry_after=left)
            await asyncio.sleep(left)


def most_tokens(messages: Sequence[Message], sampling: Sampling) -> tuple[int, int]:
    """The tokens that a call reads, guessed from its text, and the most that it may write (0 where nothing says)."""
    limits = [sampling.body.get(key) for key in ("max_completion_tokens", "max_tokens")]
    limit = next((limit for limit in limits if type(limit) is int), sampling.max_tokens)
    return sum(len(message.content) for message in messages) // CHARACTERS_A_TOKEN, limit or 0


def _tokens_of(error: WorkerError) -> int | None:
    """What a failed call used; None is not known."""
    if error.usage is not None:
        return error.usage.tokens
    return 0 if error.unbilled or (error.status or 0) >= 400 else None


@dataclass(slots=True, eq=False)
class _Ticket:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = False


class Slots:
    """A counting semaphore over event loops and threads, first come, first served."""

    __slots__ = ("_free", "_lock", "_queue")

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: deque[_Ticket] = deque()
        self._lock = threading.Lock()  # held for a few instructions only, never over an await

    async def acquire(self) -> None:
        """Take a slot, waiting for one."""
        with self._lock:
            if self._free > 0:  # then nobody waits: a freed slot goes to the queue first
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            ticket = _Ticket(loop, loop.create_future())
            self._queue.append(ticket)
        try:
            await ticket.future
        except BaseException:  # cancelled: a slot that was granted meanwhile goes on to the next
            with self._lock:
                granted = ticket.granted
                if not granted:
                    with suppress(ValueError):
                        self._queue.remove(ticket)
            if granted:
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back, to the first who waits."""
        with self._lock:
            while self._queue:
                ticket = self._queue.popleft()
                try:
                    ticket.loop.call_soon_threadsafe(_wake, ticket.future)
                except RuntimeError:  # that loop was closed while its call waited
                    continue
                ticket.granted = True
                return
            self._free += 1


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@dataclass(slots=True, eq=False)
class Entry:
    """An amount that was let in, and when (event loop's seconds); ``counts`` until the window has passed."""

    start: float
    amount: int
    counts: bool = True


class Window:
    """Lets in at most ``limit`` in any stretch of ``seconds``; what is larger than the limit goes alone."""

    __slots__ = ("_entries", "_gate", "_limit", "_lock", "_seconds", "_total")

    def __init__(self, limit: int, *, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._total = 0
        self._lock = threading.Lock()
        self._gate = Slots(1)  # only the first in the queue watches the clock

    async def enter(self, amount: int) -> Entry:
        """Wait until there is room for ``amount``, and take it."""
        await self._gate.acquire()
        try:
            # No event to wait for: what makes room is the clock, or (looked for now and then) what is given back.
            while not isinstance(outcome := self._try(amount), Entry):  # noqa: ASYNC110
                await asyncio.sleep(min(outcome, RECHECK_S))
            return outcome
        finally:
            self._gate.release()

    def settle(self, entry: Entry, amount: int) -> None:
        """Correct an entry to what was really used."""
        with self._lock:
            if entry.counts:
                self._total += amount - entry.amount
            entry.amount = amount

    def _try(self, amount: int) -> Entry | float:
        """An entry where there is room; else the seconds until there may be."""
        now = asyncio.get_running_loop().time()
        with self._lock:
            while self._entries and self._entries[0].start <= now - self._seconds:
                passed = self._entries.popleft()
                passed.counts = False
                self._total -= passed.amount
            excess = self._total + amount - self._limit
            if excess <= 0 or not self._total:
                entry = Entry(now, amount)
                self._entries.append(entry)
                self._total += amount
                return entry
            last = now
            for entry in self._entries:
                if entry.amount:
                    last = entry.start
                    excess -= entry.amount
                    if excess <= 0:
                        break
            return max(last + self._seconds - now, 0.001)
