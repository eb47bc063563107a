"""Scripted answers as its script says, and records what it was asked."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal

import pytest

import openconductor as oc
from openconductor.testing import PRICE, USAGE, Scripted, ScriptedCall, pool_of

HELLO = [oc.Message("user", "Hello?")]
PLAN = oc.Workflow([oc.Step(0, "Think."), oc.Step(1, "Answer.", "all")])


async def test_a_function_may_be_sync_or_async() -> None:
    async def later(call: ScriptedCall) -> str:
        return f"{call.number} {call.text}"

    for script in (lambda call: f"{call.number} {call.text}", later):
        completion = await Scripted(script).complete(HELLO, oc.Sampling(), call=oc.CallContext())
        assert completion.text == "0 Hello?"


async def test_a_completion_is_returned_as_it_is_and_a_text_has_the_usage() -> None:
    completion = oc.Completion("cut", finish_reason="length")
    provider = Scripted([completion, "whole"])
    ask = provider.complete(HELLO, oc.Sampling(), call=oc.CallContext())
    assert await ask is completion
    whole = await provider.complete(HELLO, oc.Sampling(), call=oc.CallContext())
    assert whole == oc.Completion("whole", usage=USAGE)


async def test_pieces_are_streamed_until_an_error() -> None:
    provider = Scripted([("a", 0.0, "b"), ("c", oc.ConnectionLost("gone"))])
    heard: list[str] = []
    call = oc.CallContext()
    said = await provider.complete(HELLO, oc.Sampling(), call=call, on_text=heard.append)
    assert said.text == "ab"
    with pytest.raises(oc.ConnectionLost):
        await provider.complete(HELLO, oc.Sampling(), call=call, on_text=heard.append)
    assert heard == ["a", "b", "c"]


async def test_calls_under_way_and_cancelled_ones_are_counted() -> None:
    provider = Scripted((math.inf,))
    pool = pool_of(provider)
    calls = [asyncio.ensure_future(pool[0].complete(HELLO, call=oc.CallContext())) for _ in "ab"]
    await asyncio.sleep(0)
    calls[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    assert (provider.most_running, provider.running, provider.cancelled) == (2, 1, 1)
    calls[1].cancel()


async def test_a_workflow_is_planned_and_played() -> None:
    planner = oc.Worker(Scripted(PLAN), name="planner", price=PRICE)
    worker = Scripted({0: "Two and two.", 1: "4"})
    episode = await oc.Conductor(planner, pool=pool_of(worker, worker, price=PRICE)).ask("2 + 2?")
    assert episode.answer == "4"
    assert episode.usage.dollars == 3 * Decimal("0.00002")
    assert [call.context.step for call in worker.calls] == [0, 1]


def test_attributes_are_those_of_a_provider() -> None:
    provider = Scripted(remote=True, identity="model 1")
    assert (provider.remote, provider.identity) == (True, "model 1")
    with pytest.raises(TypeError, match="'remot' is not an attribute of Provider"):
        Scripted(remot=True)
