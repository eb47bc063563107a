"""The record of every attempt: outcome and bill, also where a call did not come to its end."""

from __future__ import annotations

from decimal import Decimal

import pytest

from openconductor.errors import AuthFailed, WorkerError
from openconductor.events import CallEnded, Event
from openconductor.pool import Worker
from openconductor.protocols import CallContext
from openconductor.testing import Scripted
from openconductor.types import Call, Episode, Message, Usage


async def told_of(failure: Exception) -> Call:
    events: list[Event] = []
    call = CallContext(on_event=events.append)
    worker = Worker(Scripted(failure), name="w")
    with pytest.raises((type(failure), WorkerError)):
        await worker.complete((Message("user", "Why?"),), call=call)
    (event,) = events
    assert isinstance(event, CallEnded)
    return event.call


async def test_a_bug_of_a_provider_is_a_failure_of_its_worker_and_no_cancellation() -> None:
    call = await told_of(KeyError("bug"))
    assert (call.outcome, call.usage.unpriced_calls) == ("failed", 1)
    assert isinstance(call.error, WorkerError) and isinstance(call.error.__cause__, KeyError)


async def test_dollars_that_a_failed_call_reports_count_without_tokens() -> None:
    call = await told_of(WorkerError("cut", usage=Usage(dollars=Decimal("0.5"))))
    assert (call.usage.dollars, call.usage.unpriced_calls) == (Decimal("0.5"), 0)


@pytest.mark.parametrize("failure", [AuthFailed("no key"), WorkerError("down", status=503)])
async def test_an_error_that_has_ended_an_episode_before_is_not_billed_for_it_again(
    failure,
) -> None:
    failure.episode = Episode("Why?", (), None, failure, Usage(input_tokens=100), 0.0)
    assert (await told_of(failure)).usage.tokens == 0
