"""The innermost wrapper of a worker: deadline, clock, bill, and the record of every attempt.

In: a provider and what its calls cost. Out: one whose every attempt is timed, billed and reported
as a Call, whether it answered, failed or was cancelled. Kept lean: simulated workers come here
100,000s of times.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from openconductor.errors import EmptyResponse, OpenConductorError, WorkerError, WorkerTimeout
from openconductor.events import CallEnded, Event
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Call, Completion, Message, Price, Sampling, Usage

_FREE = Usage()
_OUTCOMES = {"length": "cut", "content_filter": "refused"}


class Meter:
    """Calls a provider within a deadline, bills the call, and reports it to ``call.on_event``, regardless of its end.

    Args:
        provider: what is called.
        name: the worker's name in reports.
        price: US dollars a million tokens; None is not known.
        timeout_s: total deadline of one attempt, in seconds from when it is sent.
    """

    def __init__(
        self, provider: Provider, *, name: str, price: Price | None, timeout_s: float | None
    ) -> None:
        self._provider = provider
        self._name = name
        self._price = price
        self._timeout_s = timeout_s
        self._prices_itself = provider.prices_itself
        self._nested = provider.nests
        self._blank = provider.may_be_blank
        self._identity = provider.identity

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Call once.

        Raises:
            EmptyResponse: no text, no tool call, and no token limit reached.
            WorkerTimeout: a deadline passed.
            WorkerError: as the provider raises it; whatever else it raises is the cause of one, not
                retryable.
        """
        begun = time.perf_counter()
        started = asyncio.get_running_loop().time() - call.origin
        on_event, below = call.on_event, _Below()
        if self._nested:
            call = replace(call, on_event=below)
        said: Completion | None = None
        failure: OpenConductorError | None = None
        try:
            if self._timeout_s is None and call.deadline is None:
                said = await self._provider.complete(messages, sampling, call=call, on_text=on_text)
            else:
                said = await self._in_time(messages, sampling, call, on_text)
            usage = self._bill(said.usage, time.perf_counter() - begun)
            said = Completion(
                said.text,
                said.reasoning,
                said.tool_calls,
                usage,
                said.finish_reason,
                said.body_sent,
            )
            if not (
                said.text.strip()
                or said.tool_calls
                or said.finish_reason == "length"
                or self._blank
            ):
                failure = EmptyResponse("neither text nor tool call in the answer", usage=usage)
                raise failure
            return said
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: the provider's own code did; without an error here the call would
            # just be missing.
            failure = WorkerError(
                "the call was cancelled from inside the worker", worker=self._name
            )
            raise failure from None
        except OpenConductorError as error:
            failure = error
            if isinstance(error, WorkerError) and not error.worker:
                error.worker = self._name
            raise
        except (
            Exception
        ) as error:  # the provider wrapper: a fault of a provider's own is a failure of its worker
            said_so = f"{self._provider!r} raised {type(error).__name__}: {error}"
            failure = WorkerError(said_so, worker=self._name, retryable=False)
            raise failure from error
        finally:  # a cancellation comes by here, too: what was sent was sent
            if on_event is not None:
                seconds = time.perf_counter() - begun
                usage = (
                    said.usage if said is not None else self._failed(failure, below.usage, seconds)
                )
                outcome = outcome_of(said, failure)
                record = Call(self._name, outcome, tuple(messages), sampling, said, failure, call.attempt, usage,
                              self._price, started, self._identity, self._nested)  # fmt: skip
                on_event(CallEnded(call.episode, call.round, started + seconds, call.step, record))

    async def _in_time(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
        on_text: OnText | None,
    ) -> Completion:
        now = asyncio.get_running_loop().time()
        own = math.inf if self._timeout_s is None else now + self._timeout_s
        deadline = own if call.deadline is None else min(own, call.deadline)
        if deadline <= now:
            raise WorkerTimeout("the deadline had passed before the call began", usage=_FREE)
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                call = replace(call, deadline=deadline)
                return await self._provider.complete(messages, sampling, call=call, on_text=on_text)
        except TimeoutError as error:
            if isinstance(error, WorkerError) or not scope.expired():
                raise
            raise WorkerTimeout(
                f"no whole answer by the deadline, after {deadline - now:.1f} s"
            ) from error

    def _bill(self, used: Usage, seconds: float) -> Usage:
        """The usage with its price; no price, or no tokens reported: not known, which is not free."""
        dollars, unpriced = used.dollars, used.unpriced_calls
        if not (self._prices_itself or dollars or unpriced):
            if self._price is not None and used.tokens:
                dollars = self._price.dollars(used)
            else:
                unpriced = 1
        seconds = used.seconds or seconds
        return Usage(
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            used.reasoning_tokens,
            dollars,
            unpriced,
            seconds,
        )

    def _failed(self, failure: OpenConductorError | None, below: Usage, seconds: float) -> Usage:
        """What a call that failed or was cancelled used: as heard from below or reported, nothing, or not known."""
        if self._nested:
            ended = failure.episode if failure is not None else None
            return below if below != _FREE or ended is None else ended.usage
        if isinstance(failure, WorkerError):
            if failure.usage is not None and (failure.usage.tokens or failure.usage.dollars):
                return self._bill(failure.usage, seconds)
            if failure.usage is not None or is_free(failure):
                return Usage(seconds=seconds)
        return Usage(unpriced_calls=0 if self._prices_itself else 1, seconds=seconds)


class _Below:
    """Adds up what a nested episode has used: all that is known of one that does not come to its end."""

    wants_text = False

    def __init__(self) -> None:
        self.usage = _FREE

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            self.usage += event.call.usage


def is_free(error: WorkerError) -> bool:
    """Whether a call that failed so, and reported no usage, costs nothing."""
    return error.unbilled or (error.status or 0) >= 400


def outcome_of(said: Completion | None, failure: OpenConductorError | None = None) -> str:
    """What a journal calls the end of a call: answered, cut at its token limit, refused by a filter, or its failure."""
    if failure is not None:  # a budget or a setting below this call stops it
        return failure.outcome if isinstance(failure, WorkerError) else "stopped"
    if said is None:
        return "cancelled"
    return _OUTCOMES.get(said.finish_reason, "answered")
