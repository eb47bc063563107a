"""Limits as a provider: calls at once, requests and tokens a minute. In: a provider. Out: one that waits its turn.

The limits hold for the whole process, over all event loops and threads, because ``ask_sync`` and servers bring loops of
their own; that, and tokens that are known only after the call, is why these are not asyncio's or a library's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from openconductor.errors import WorkerTimeout
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling

T = TypeVar("T")

CHARACTERS_A_TOKEN = 4  # a guess for English, used only until the provider says how many tokens there were


class LimitProvider:
    """Holds a provider to its limits; calls wait in order of arrival.

    Args:
        provider: what is called.
        max_concurrency: calls at once.
        rpm: calls begun in any 60 seconds.
        tpm: tokens, read and written, of the calls begun in any 60 seconds. A call counts as its text / 4 plus its
            ``max_tokens`` until it ends, then as what was used; one that is larger than the limit goes alone.
    """

    def __init__(
        self, provider: Provider, *, max_concurrency: int | None = None, rpm: int | None = None, tpm: int | None = None
    ) -> None:
        self._provider = provider
        self._slots = None if max_concurrency is None else Slots(max_concurrency)
        self._requests = None if rpm is None else Window(rpm)
        self._tokens = None if tpm is None else Window(tpm)

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
            WorkerTimeout: ``call.deadline`` passed while the call waited.
            WorkerError: as the provider raises it.
        """
        if self._slots is not None:
            await _before(call.deadline, self._slots.acquire())
        try:
            if self._requests is not None:
                await _before(call.deadline, self._requests.enter(1))
            entry = None
            if self._tokens is not None:
                entry = await _before(call.deadline, self._tokens.enter(_estimate(messages, sampling)))
            completion = await self._provider.complete(messages, sampling, call=call, on_text=on_text)
            if self._tokens is not None and entry is not None and completion.usage.tokens:
                self._tokens.settle(entry, completion.usage.tokens)
            return completion
        finally:
            if self._slots is not None:
                self._slots.release()


def _estimate(messages: Sequence[Message], sampling: Sampling) -> int:
    return sum(len(message.content) for message in messages) // CHARACTERS_A_TOKEN + (sampling.max_tokens or 0)


async def _before(deadline: float | None, waiting: Coroutine[object, object, T]) -> T:
    if deadline is None:
        return await waiting
    try:
        async with asyncio.timeout_at(deadline):
            return await waiting
    except TimeoutError:
        raise WorkerTimeout("the deadline passed while the call waited for its turn (a limit of the worker)") from None


@dataclass(slots=True, eq=False)
class _Ticket:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = False


class Slots:
    """A counting semaphore over event loops and threads, first come, first served."""

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
    """An amount that was let in, and when (monotonic seconds)."""

    start: float
    amount: float


class Window:
    """Lets in at most ``limit`` in any stretch of ``seconds``; what is larger than the limit goes alone."""

    def __init__(self, limit: float, *, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._total = 0.0
        self._lock = threading.Lock()
        self._gate = Slots(1)  # only the first in the queue watches the clock

    async def enter(self, amount: float) -> Entry:
        """Wait until there is room for ``amount``, and take it."""
        await self._gate.acquire()
        try:
            # No event to wait for: what makes room is the clock.
            while not isinstance(outcome := self._try(amount), Entry):  # noqa: ASYNC110
                await asyncio.sleep(outcome)
            return outcome
        finally:
            self._gate.release()

    def settle(self, entry: Entry, amount: float) -> None:
        """Correct an entry to what was really used."""
        with self._lock:
            if entry in self._entries:
                self._total += amount - entry.amount
            entry.amount = amount

    def _try(self, amount: float) -> Entry | float:
        """An entry where there is room; else the seconds until there may be."""
        now = time.monotonic()
        with self._lock:
            while self._entries and self._entries[0].start <= now - self._seconds:
                self._total -= self._entries.popleft().amount
            excess = self._total + amount - self._limit
            if excess <= 0 or not self._entries:
                entry = Entry(now, amount)
                self._entries.append(entry)
                self._total += amount
                return entry
            for entry in self._entries:
                excess -= entry.amount
                if excess <= 0:
                    break
            else:
                entry = self._entries[-1]
            return max(entry.start + self._seconds - now, 0.001)
