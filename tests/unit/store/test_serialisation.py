"""An Episode as JSON: nothing is lost, the ledger adds up, errors keep their type."""

from __future__ import annotations

import json
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

from openconductor.conductor import Conductor
from openconductor.errors import WorkerTimeout, WorkflowError, WorkflowReason
from openconductor.gym.workers import gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, Provider
from openconductor.store.episode_json import episode_json
from openconductor.store.serialisation import dumps, load, plain
from openconductor.types import Completion, Episode, Message, Price, Sampling, Step, Usage, Workflow


def shown_of(episode: Episode, pool: WorkerPool) -> dict[str, Any]:
    """What `ask --json` prints, after a trip through JSON."""
    return json.loads(
        json.dumps(episode_json(episode, {ordinal: worker.name for ordinal, worker in pool}))
    )


QUESTION = "Take 4 17 9, sort the list, then double every number."
PLAN = Workflow((Step(3, "sort the list"), Step(1, "double every number", "all")))


def test_dollars_are_plain_decimals_however_small() -> None:
    class Cheap(Provider):
        async def complete(
            self, messages, sampling, *, call: CallContext, on_text=None
        ) -> Completion:
            return Completion("yes", usage=Usage(1, output_tokens=1, dollars=Decimal("1E-10")))

    pool = WorkerPool([Worker(Cheap(), name="cheap")])
    plan = render_workflow(Workflow((Step(0, "Say yes."),)))
    shown = shown_of(Conductor(lambda messages: plan, pool=pool).ask_sync("Yes?"), pool)
    assert shown["ledger"]["total"]["dollars"] == "0.0000000001"


def test_a_failed_step_says_so_and_one_that_it_ended_was_not_reached() -> None:
    async def fails(messages: list[Message]) -> str:
        raise WorkerTimeout("too slow")

    pool = WorkerPool([Worker(fails, name="slow"), Worker(lambda messages: "yes", name="quick")])
    plan = render_workflow(Workflow((Step(0, "Try."), Step(1, "Repeat it.", "all"))))
    shown = shown_of(Conductor(lambda m: plan, pool=pool).ask_sync("Yes?"), pool)
    assert shown["answer"] is None
    assert (shown["error"]["type"], shown["error"]["worker"]) == ("WorkerTimeout", "slow")
    first, second = shown["rounds"][0]["steps"]
    assert (first["outcome"], second["outcome"]) == ("failed", "not_reached")
    assert second["access"] == "all"
    assert second["response"] is None


def test_a_conductor_that_failed_has_its_attempts_on_record() -> None:
    async def deaf(messages: list[Message]) -> str:
        raise WorkerTimeout("too slow")

    pool = gym_pool()
    shown = shown_of(Conductor(deaf, pool=pool).ask_sync(QUESTION), pool)
    [only] = shown["rounds"]
    assert only["conductor"] is None
    assert [one["outcome"] for one in only["planning"]["attempts"]] == ["timeout"]
    assert [entry["who"] for entry in shown["ledger"]["entries"]] == ["conductor"]


def test_a_chat_keeps_its_turns() -> None:
    pool, chat = gym_pool(), [Message("system", "Be brief."), Message("user", QUESTION)]
    shown = shown_of(
        Conductor(lambda messages: render_workflow(PLAN), pool=pool).ask_sync(chat), pool
    )
    assert shown["question"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
    ]


@pytest.mark.parametrize(
    "value",
    [
        Usage(1, 2, 3, 4, Decimal("0.00012300"), 5, 0.25),
        Completion(
            'Fi"ne \ud800',
            "why",
            ({"id": "c"},),
            Usage(1),
            "tool_calls",
            {"model": "m", "n": [1, None]},
        ),
        Message("user", "Sëe", ({"type": "image_url", "image_url": {"url": "data:,x"}},)),
        Sampling(0.2, 9, 7, {"effort": "minimal", "stop": ["\n"]}),
        Price(Decimal("1.25"), Decimal(10)),
        PLAN,
        Workflow((Step(0, "first"), Step(1, "second", [0]))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_from_its_json_as_it_was(value: object) -> None:
    assert load(type(value), json.loads(dumps(value))) == value


def test_what_json_does_not_know_is_written_and_what_is_no_such_value_is_refused() -> None:
    odd = MappingProxyType(
        {"set": frozenset({2, 1}), 3: (Decimal("1E-10"), MappingProxyType({"a": 1}))}
    )
    assert dumps(odd) == '{"3":["0.0000000001",{"a":1}],"set":[1,2]}'
    assert plain(WorkerTimeout("slow", worker="w")) == {
        "type": "WorkerTimeout",
        "message": "worker 'w': slow",
        "worker": "w",
        "status": None,
    }
    assert plain(WorkflowError(WorkflowReason.NO_STEPS, "empty")) == {
        "type": "WorkflowError",
        "message": "no_steps: empty",
        "reason": "no_steps",
    }
    with pytest.raises(ValueError, match="finish_reason"):
        load(Completion, {"text": "A", "finish_reason": "tired"})
