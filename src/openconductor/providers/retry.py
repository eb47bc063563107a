"""Retries as a provider. In: a provider. Out: one that calls again what failed and may heal, a few times.

Why our own loop, of ten lines, and not tenacity or stamina (both well kept, Apache-2.0 and MIT): what decides here is
none of what they decide. The server's Retry-After is weighed against the deadline of the whole question, text that has
reached a user ends all repeats, a budget may refuse the next attempt, and each attempt carries its number. All of that
would be callbacks into their loop, which besides builds its state for every call, failed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import SystemRandom

from openconductor.budget import count_attempt
from openconductor.errors import RateLimited, ServerFailed, WorkerError
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 20.0
"""Before the n-th repeat it waits a random part of ``FIRST_WAIT_S`` * 2 ** (n - 1), at most of this (full jitter)."""

LONGEST_RETRY_AFTER_S = 60.0
"""A server that names a longer wait is not waited for."""

_jitter = SystemRandom()  # draws nothing from the generators that results depend on


class RetryProvider:
    """Calls again after a failure that may heal (``error.retryable``); the last failure is raised as it came.

    It gives up at once where the wait would pass ``call.deadline``, where the server names too long a wait, and where a
    part of the answer was handed to ``on_text``: a user would read its beginning twice.

    Args:
        provider: what is called; each attempt gets its number in ``call.attempt``.
        retries: how many further attempts there are at most, from 1.
    """

    __slots__ = ("_provider", "_retries")

    def __init__(self, provider: Provider, *, retries: int) -> None:
        self._provider = provider
        self._retries = retries

    def __repr__(self) -> str:
        return f"RetryProvider({self._provider!r})"

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
            BudgetExceeded: the question's budget has no room for a further attempt.
        """
        heard = None if on_text is None else _Heard(on_text)
        repeats = 0
        while True:
            try:
                return await self._provider.complete(messages, sampling, call=call, on_text=heard)
            except WorkerError as error:
                if repeats == self._retries or not error.retryable or (heard is not None and heard.some):
                    raise
                wait = _wait(error, repeats)
                end = asyncio.get_running_loop().time() + wait
                if wait == float("inf") or (call.deadline is not None and end >= call.deadline):
                    raise
            await asyncio.sleep(wait)
            count_attempt()
            repeats += 1
            call = replace(call, attempt=call.attempt + 1)


def _wait(error: WorkerError, repeats: int) -> float:
    """Seconds until the next attempt, after ``repeats`` of them; infinite where the server names too many."""
    spread = _jitter.uniform(0.0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**repeats))
    named = error.retry_after if isinstance(error, RateLimited | ServerFailed) else None
    if named is None:
        return spread
    # Beyond what the server named, so that those whom it sent away together do not all come back together.
    return named + spread if named <= LONGEST_RETRY_AFTER_S else float("inf")


class _Heard:
    """Hands text on, and notices that there was some."""

    __slots__ = ("_on_text", "some")

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.some = False

    def __call__(self, text: str) -> None:
        if text:
            self.some = True
        self._on_text(text)
