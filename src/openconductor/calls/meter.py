"""The innermost wrapper of a worker: deadline, clock, bill, and the record of every attempt.

Kept lean, because simulated workers come here 100,000s of times.
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
    """Calls a provider within a deadline, charges ``call.budget``, and reports each attempt.

    Args:
        provider: what is called.
        name: the worker's name in reports.
        price: US dollars a million tokens; None: unknown.
        timeout_s: total deadline of one attempt, in seconds from when it is sent.
    """

    def __init__(
        self, provider: Provider, *, name: str, price: Price | None, timeout_s: float | None
    ) -> None:
        self._provider = provider
        self._name = name
        self._price = price
        self._timeout_s = timeout_s

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
            WorkerError: as the provider raises it. Other exceptions of a provider become the cause
                of a WorkerError that is not retryable.
        """
        begun = time.perf_counter()
        started = asyncio.get_running_loop().time() - call.origin
        inside = _NestedUsage()
        inner = replace(call, on_event=inside) if self._provider.nests else call
        completion: Completion | None = None
        failure: OpenConductorError | None = None
        try:
            if self._timeout_s is None and call.deadline is None:
                answer = await self._provider.complete(
                    messages, sampling, call=inner, on_text=on_text
                )
            else:
                answer = await self._complete_in_time(messages, sampling, inner, on_text)
            usage = self._bill(answer.usage, time.perf_counter() - begun)
            completion = Completion(
                answer.text,
                answer.reasoning,
                answer.tool_calls,
                usage,
                answer.finish_reason,
                answer.body_sent,
            )
            if not (completion.text.strip() or self._may_be_blank(completion)):
                failure = EmptyResponse("neither text nor tool call in the answer", usage=usage)
                raise failure
            return completion
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The provider's own code cancelled the call, nobody above did.
            failure = WorkerError(
                "the call was cancelled from inside the worker", worker=self._name
            )
            raise failure from None
        except OpenConductorError as error:
            failure = error
            if isinstance(error, WorkerError) and not error.worker:
                error.worker = self._name
            raise
        except Exception as error:  # a fault of a provider's own code is a failure of its worker
            message = f"{self._provider!r} raised {type(error).__name__}: {error}"
            failure = WorkerError(message, worker=self._name, retryable=False)
            raise failure from error
        finally:  # for a cancelled call, too: it was sent
            if call.budget is not None or call.on_event is not None:
                seconds = time.perf_counter() - begun
                if completion is not None:
                    usage = completion.usage
                else:
                    usage = self._bill_failure(failure, inside.usage, seconds)
                if call.budget is not None:
                    call.budget.charge(usage)
                if call.on_event is not None:
                    record = Call(
                        worker=self._name,
                        outcome=outcome_of(completion, failure),
                        messages=tuple(messages),
                        sampling=sampling,
                        completion=completion,
                        error=failure,
                        attempt=call.attempt,
                        usage=usage,
                        price=self._price,
                        started=started,
                        identity=self._provider.identity,
                        nested=self._provider.nests,
                    )
                    ended = started + seconds
                    event = CallEnded(
                        call.episode, call.round, ended, call.step, record, call.trace
                    )
                    call.on_event(event)

    async def _complete_in_time(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
        on_text: OnText | None,
    ) -> Completion:
        now = asyncio.get_running_loop().time()
        deadline = math.inf if call.deadline is None else call.deadline
        if self._timeout_s is not None:
            deadline = min(deadline, now + self._timeout_s)
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
            message = f"no whole answer by the deadline, after {deadline - now:.1f} s"
            raise WorkerTimeout(message) from error

    def _may_be_blank(self, completion: Completion) -> bool:
        if self._provider.may_be_blank or completion.tool_calls:
            return True
        return completion.finish_reason == "length"

    def _bill(self, used: Usage, seconds: float) -> Usage:
        """Return the usage with its price; without a price or tokens it is unknown, not zero."""
        dollars = used.dollars
        unpriced_calls = used.unpriced_calls
        if not (self._provider.prices_itself or dollars or unpriced_calls):
            if self._price is not None and used.tokens:
                dollars = self._price.dollars(used)
            else:
                unpriced_calls = 1
        return Usage(
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            used.reasoning_tokens,
            dollars,
            unpriced_calls,
            used.seconds or seconds,
        )

    def _bill_failure(
        self, failure: OpenConductorError | None, inside: Usage, seconds: float
    ) -> Usage:
        """Return what a call used that failed (or was cancelled: None), as far as it is known.

        Args:
            failure: why it failed.
            inside: what calls of a nested episode reported.
            seconds: how long it took.
        """
        if self._provider.nests:
            if inside == _FREE and failure is not None and failure.episode is not None:
                return failure.episode.usage
            return inside
        if isinstance(failure, WorkerError):
            usage = failure.usage
            if usage is not None and (usage.tokens or usage.dollars):
                return self._bill(usage, seconds)
            if usage is not None or is_free(failure):
                return Usage(seconds=seconds)
        return Usage(unpriced_calls=0 if self._provider.prices_itself else 1, seconds=seconds)


class _NestedUsage:
    """Adds up what a nested episode used, which may be cancelled before it returns."""

    wants_text = False

    def __init__(self) -> None:
        self.usage = _FREE

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            self.usage += event.call.usage


def is_free(error: WorkerError) -> bool:
    """Return True if a call that failed so, and reported no usage, costs nothing."""
    return error.unbilled or (error.status or 0) >= 400


def outcome_of(completion: Completion | None, failure: OpenConductorError | None = None) -> str:
    """Return the name of a call's end: answered, cut, refused, cancelled, or its failure's."""
    if isinstance(failure, WorkerError):
        return failure.outcome
    if failure is not None:
        return "stopped"  # by a budget or a setting below this call
    if completion is None:
        return "cancelled"
    return _OUTCOMES.get(completion.finish_reason, "answered")
