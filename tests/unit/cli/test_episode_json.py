"""An Episode as JSON: nothing is lost, the ledger adds up, errors keep their type."""

from __future__ import annotations

import json
from decimal import Decimal

from openconductor.cli.episode_json import episode_json
from openconductor.conductor import Conductor
from openconductor.errors import ConnectionLost, WorkerTimeout
from openconductor.gym.workers import gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext
from openconductor.types import Completion, Message, Step, Usage, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."
PLAN = Workflow((Step(3, "sort the list"), Step(1, "double every number", "all")))


def test_the_ledger_adds_up_to_the_episode_over_rounds() -> None:
    pool = gym_pool()
    episode = Conductor(lambda messages: render_workflow(PLAN), pool=pool, max_rounds=2).ask_sync(QUESTION)
    shown = json.loads(json.dumps(episode_json(episode, pool)))
    assert [one["round"] for one in shown["rounds"]] == [0, 1]
    ledger = shown["ledger"]
    assert len(ledger["entries"]) == 6
    assert sum(entry["input_tokens"] for entry in ledger["entries"]) == ledger["total"]["input_tokens"] > 0
    dollars = sum(Decimal(entry["dollars"]) for entry in ledger["entries"])
    assert dollars == Decimal(ledger["total"]["dollars"]) == episode.usage.dollars
    assert Decimal(ledger["conductor"]["dollars"]) + Decimal(ledger["workers"]["dollars"]) == dollars


def test_dollars_are_plain_decimals_however_small() -> None:
    class Cheap:
        async def complete(self, messages, sampling, *, call: CallContext, on_text=None) -> Completion:
            return Completion("yes", usage=Usage(1, output_tokens=1, dollars=Decimal("1E-10")))

    pool = WorkerPool([Worker(Cheap(), name="cheap")])
    plan = render_workflow(Workflow((Step(0, "Say yes."),)))
    shown = episode_json(Conductor(lambda messages: plan, pool=pool).ask_sync("Yes?"), pool)
    assert shown["ledger"]["total"]["dollars"] == "0.0000000001"


def test_a_failed_step_says_so_and_one_that_it_ended_was_not_reached() -> None:
    async def fails(messages: list[Message]) -> str:
        raise WorkerTimeout("too slow")

    pool = WorkerPool([Worker(fails, name="slow"), Worker(lambda messages: "yes", name="quick")])
    plan = render_workflow(Workflow((Step(0, "Try."), Step(1, "Repeat it.", "all"))))
    shown = json.loads(json.dumps(episode_json(Conductor(lambda m: plan, pool=pool).ask_sync("Yes?"), pool)))
    assert shown["answer"] is None
    assert (shown["error"]["type"], shown["error"]["worker"]) == ("WorkerTimeout", "slow")
    first, second = shown["rounds"][0]["steps"]
    assert (first["outcome"], second["outcome"]) == ("failed", "not_reached")
    assert second["access"] == "all"
    assert second["response"] is None


def test_a_chat_keeps_its_turns() -> None:
    pool = gym_pool()
    chat = [Message("system", "Be brief."), Message("user", QUESTION)]
    shown = episode_json(Conductor(lambda messages: render_workflow(PLAN), pool=pool).ask_sync(chat), pool)
    assert shown["question"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


def test_attempts_stand_beside_their_step_and_the_wasted_ones_are_summed_up() -> None:
    class Lost:
        async def complete(self, messages, sampling, *, call: CallContext, on_text=None) -> Completion:
            raise ConnectionLost("gone", usage=Usage(10, output_tokens=1))

    price = {"input": 1, "output": 2}
    pool = WorkerPool([Worker(Lost(), name="lost", price=price), Worker(lambda messages: "yes", name="hand")])
    plan = render_workflow(Workflow((Step(0, "Say yes."),)))
    episode = Conductor(lambda messages: plan, pool=pool, fallback=True).ask_sync("Yes?")
    shown = json.loads(json.dumps(episode_json(episode, pool)))
    [only] = shown["rounds"]
    assert [one["outcome"] for one in only["planning"]["attempts"]] == ["answered"]
    [step] = only["steps"]
    assert (step["worker_name"], step["answered_by"]) == ("lost", "hand")
    seen = [(one["worker"], one["attempt"], one["outcome"], one["wasted"]) for one in step["attempts"]]
    assert seen == [("lost", 0, "connection_lost", True), ("hand", 0, "answered", False)]
    assert not any(one["replayed"] for one in step["attempts"])
    assert step["attempts"][0]["usage"]["dollars"] == "0.000012"
    ledger = shown["ledger"]
    assert (ledger["wasted"]["attempts"], ledger["wasted"]["dollars"]) == (1, "0.000012")
    assert ledger["replayed"]["attempts"] == 0
    assert [entry["who"] for entry in ledger["entries"]] == ["conductor", "hand"]
    assert [entry["attempts"] for entry in ledger["entries"]] == [1, 2]
    assert set(ledger["by_worker"]) == {"conductor", "lost", "hand"}
    assert ledger["total"]["unpriced_calls"] == 2  # the conductor's and the hand's: not known is not nothing


def test_a_conductor_that_failed_has_its_attempts_on_record() -> None:
    async def deaf(messages: list[Message]) -> str:
        raise WorkerTimeout("too slow")

    pool = gym_pool()
    shown = episode_json(Conductor(deaf, pool=pool).ask_sync(QUESTION), pool)
    [only] = shown["rounds"]
    assert only["conductor"] is None
    assert [one["outcome"] for one in only["planning"]["attempts"]] == ["timeout"]
    assert [entry["who"] for entry in shown["ledger"]["entries"]] == ["conductor"]
