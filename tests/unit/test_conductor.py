"""Asking: plan, execute, rounds, errors. Budgets are in test_budget.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from openconductor import errors
from openconductor.conductor import Conductor, prompted
from openconductor.evaluation.eval_config import find_planner
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    Planned,
    RoundEnded,
    StepEnded,
    StepStarted,
)
from openconductor.pool import Worker, WorkerPool, simulated_pool
from openconductor.prompt import SOLVE_SUBTASK, PromptOptions, render_workflow
from openconductor.protocols import CallContext
from openconductor.providers import resolve
from openconductor.testing import Scripted
from openconductor.types import Message, Price, Sampling, Step, Usage, Workflow

PLAN = Workflow([Step(0, "Think."), Step(1, "Decide.", "all")])
ACCEPT = "model_id = []\nsubtasks = []\naccess_list = []"


SLOW = errors.RateLimited("slow down")
POOL_FILE = """
[[worker]]
name = "big"
model = "m"
base_url = "http://127.0.0.1:9/v1"
"""


def Planner(*script: str | Workflow | Exception, **attributes: object) -> Scripted:
    return Scripted(list(script), usage=Usage(100, output_tokens=10), **attributes)


def echo(messages: list[Message]) -> str:
    return f"re: {messages[-1].content}"


def broken(messages: list[Message]) -> str:
    raise SLOW


def pool_of(*providers: object) -> WorkerPool:
    return WorkerPool(
        [
            Worker(provider, name=f"w{number}", description=f"Card {number}.")  # type: ignore[arg-type]
            for number, provider in enumerate(providers or (echo, echo))
        ]
    )


# ── the planner alone ─────────────────────────────────────────────────────────────────────────────
async def test_a_plan_alone_asks_no_worker() -> None:
    planner = Planner(PLAN, ACCEPT, "no lists")
    conductor = Conductor(planner, pool=pool_of(broken, broken))
    first = await conductor.plan("Why?", context=CallContext(sample=3))
    assert (first.workflow, first.transcript, first.error) == (PLAN, None, None)
    assert first.usage.input_tokens == 100, "its call is on the bill"
    played = await Conductor(Planner(PLAN), pool=pool_of()).ask("Why?")
    second = await conductor.plan("Why?", previous=played.rounds[0])
    assert second.accepted and "re: Decide." in planner.calls[-1].text
    third = await conductor.plan("Why?")
    assert isinstance(third.error, errors.WorkflowError) and third.workflow is None


# ── one round ─────────────────────────────────────────────────────────────────────────────────────
async def test_a_question_is_planned_executed_and_answered() -> None:
    planner = Planner(PLAN)
    episode = await Conductor(planner, pool=pool_of()).ask("Why?", context=CallContext(sample=3))
    assert episode.answer == "re: Decide."
    assert episode.error is None and episode.question == "Why?" and len(episode.id) == 32
    (only,) = episode.rounds
    assert only.workflow == PLAN and only.error is None and not only.accepted
    assert only.completion is not None and only.completion.text == render_workflow(PLAN)
    (received,) = planner.calls
    assert received.sampling == Sampling(max_tokens=1024)
    call = received.context
    assert (call.episode, call.round, call.step, call.sample) == (episode.id, 0, None, 3)
    assert episode.usage.tokens == 110 and episode.usage.unpriced_calls == 3
    assert episode.seconds >= 0


async def test_a_worker_can_plan_and_is_billed_like_one() -> None:
    price = Price(Decimal(1_000_000), Decimal(2_000_000))
    sampling = Sampling(temperature=0.5)
    planner = Planner(PLAN)
    worker = Worker(planner, name="planner", price=price, sampling=sampling)
    episode = await Conductor(worker, pool=pool_of()).ask("Why?")
    assert episode.usage.dollars == 120
    assert planner.calls[0].sampling == sampling


async def test_a_checkpoint_brings_its_own_prompt_and_sampling() -> None:
    own, other = Sampling(max_tokens=77), Sampling(max_tokens=5)
    compact = PromptOptions(template="compact", subtasks=False)
    planner = Planner(PLAN, prompt_options=compact, sampling=own)
    episode = await Conductor(planner, pool=pool_of()).ask("Why?")
    assert {step.subtask for step in episode.rounds[0].workflow} == {SOLVE_SUBTASK}
    await Conductor(planner, pool=pool_of(), prompt=PromptOptions(), sampling=other).ask("Why?")
    # The compact template is one user message.
    seen = [(call.sampling, len(call.messages)) for call in planner.calls]
    assert seen == [(own, 1), (other, 2)]


async def test_descriptions_are_shown_only_when_cards_are_on() -> None:
    planner = Planner(PLAN)
    await Conductor(planner, pool=pool_of()).ask("Why?")
    await Conductor(planner, pool=pool_of(), prompt=PromptOptions(cards=True)).ask("Why?")
    without, with_cards = (call.messages[0].content for call in planner.calls)
    assert "Card 1." not in without and "Card 1." in with_cards


@pytest.mark.parametrize(
    ("chosen", "options"),
    [
        ({}, PromptOptions("brief", "none", cards=True)),
        ({"cards": False}, PromptOptions("brief", "none")),
        ({"examples": "in"}, PromptOptions("brief", "in_distribution", cards=True)),
        ({"template": "full"}, PromptOptions()),
        ({"template": "full", "examples": "none"}, PromptOptions(examples="none")),
        ({"template": "full", "cards": True}, PromptOptions(cards=True)),
    ],
)
def test_a_planner_that_was_only_prompted_is_asked_as_is_chosen(chosen, options) -> None:
    conductor = prompted(Conductor(Planner(PLAN), pool=pool_of()), **chosen)
    assert conductor.prompt == options


@pytest.mark.parametrize("as_worker", [False, True])
def test_a_trained_planner_is_asked_as_it_was_trained(as_worker: bool) -> None:
    own = PromptOptions(template="compact")
    planner: Any = Planner(PLAN, prompt_options=own, max_steps=2)
    if as_worker:
        planner = Worker(planner, name="trained")
    conductor = Conductor(planner, pool=pool_of())
    assert prompted(conductor) is conductor
    assert (conductor.prompt, conductor.max_steps) == (own, 2)
    for chosen in ({"cards": True}, {"template": "brief"}, {"examples": "none"}):
        with pytest.raises(errors.ConfigError, match="asked as it was trained"):
            prompted(conductor, **chosen)


@pytest.mark.parametrize("chosen", [{"template": "compact"}, {"examples": "all"}])
def test_an_unknown_prompt_is_a_config_error(chosen: Any) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(chosen))):
        prompted(Conductor(Planner(PLAN), pool=pool_of()), **chosen)


# ── failures ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("says", "workers", "kind", "who"),
    [
        ("I would rather not.", (), errors.WorkflowError, None),
        (SLOW, (), errors.RateLimited, "conductor"),
        (PLAN, (echo, broken), errors.RateLimited, "w1"),
    ],
)
async def test_what_fails_in_the_first_round_ends_the_episode_in_that_error(
    says, workers, kind, who
) -> None:
    SLOW.worker = ""
    events: list[Event] = []
    conductor = Conductor(Planner(says), pool=pool_of(*workers))
    episode = await conductor.ask("Why?", on_event=events.append)
    assert type(episode.error) is kind and getattr(episode.error, "worker", None) == who
    assert episode.answer is None and episode.rounds[0].error is episode.error
    assert (episode.rounds[0].workflow is None) == (says is not PLAN)
    planned = [event.error for event in events if isinstance(event, Planned)]
    assert planned == ([] if who == "conductor" else [None if who else episode.error])


@pytest.mark.parametrize("where", ["planner", "worker"])
async def test_a_missing_key_is_raised_with_the_episode(where: str) -> None:
    no_key = errors.AuthFailed("no key")
    planner = Planner(no_key if where == "planner" else PLAN)
    with pytest.raises(errors.AuthFailed) as caught:  # inside a running loop, too
        Conductor(planner, pool=pool_of(echo, Scripted(no_key))).ask_sync("Why?")
    episode = caught.value.episode
    assert episode.error is episode.rounds[0].error is caught.value
    assert (episode.rounds[0].transcript is None) == (where == "planner")


async def test_a_blank_question_is_raised_and_nobody_is_asked() -> None:
    planner = Planner(PLAN)
    with pytest.raises(errors.ConfigError) as caught:
        await Conductor(planner, pool=pool_of()).ask(" ")
    assert planner.calls == [] and caught.value.episode is not None


def test_a_planner_that_takes_too_long_is_a_timeout(in_virtual_time: Callable) -> None:
    slow = Scripted((3600.0, "late"))
    episode = in_virtual_time(Conductor(slow, pool=pool_of(), timeout_s=30.0).ask("Why?"))
    assert isinstance(episode.error, errors.WorkerTimeout)
    assert episode.seconds == pytest.approx(30.0, abs=0.1)


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"max_rounds": 0}, {"timeout_s": 0.0}])
def test_values_out_of_range_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
        Conductor(Planner(PLAN), pool=pool_of(), **wrong)  # type: ignore[arg-type]


# ── rounds ────────────────────────────────────────────────────────────────────────────────────────
async def test_a_later_round_sees_the_round_before_and_its_answer_replaces_it() -> None:
    second = Workflow([Step(1, "Revise.", "all")])
    planner = Planner(PLAN, second)
    episode = await Conductor(planner, pool=pool_of(), max_rounds=2).ask("Why?")
    assert episode.answer == "re: Revise."
    assert [call.context.round for call in planner.calls] == [0, 1]
    assert "re: Decide." in planner.calls[1].text
    transcript = episode.rounds[1].transcript
    assert transcript.results[0].messages == (
        Message("user", "Why?"),
        Message("assistant", "re: Decide."),
        Message("user", "Revise."),
    )
    assert episode.usage.tokens == 220


async def test_accepting_returns_the_answer_as_it_is_and_ends_the_episode() -> None:
    planner = Planner(PLAN, ACCEPT)
    episode = await Conductor(planner, pool=pool_of(), max_rounds=5).ask("Why?")
    assert episode.answer == "re: Decide." and episode.error is None
    assert len(planner.calls) == 2
    assert episode.rounds[1].accepted and episode.rounds[1].transcript is None


@pytest.mark.parametrize("second", ["no lists", SLOW, Workflow([Step(2, "Fail.")])])
async def test_a_later_round_that_fails_leaves_the_answer_standing_and_is_marked(
    second: object,
) -> None:
    planner = Planner(PLAN, second)  # type: ignore[arg-type]
    episode = await Conductor(planner, pool=pool_of(echo, echo, broken), max_rounds=5).ask("Why?")
    assert episode.answer == "re: Decide." and episode.error is None
    first, marked = episode.rounds
    kind = errors.WorkflowError if second == "no lists" else errors.RateLimited
    assert first.error is None and type(marked.error) is kind


# ── events ────────────────────────────────────────────────────────────────────────────────────────
async def test_events_tell_the_whole_episode_in_order() -> None:
    events: list[Event] = []
    conductor = Conductor(Planner(Workflow([Step(0, "Do.")]), ACCEPT), pool=pool_of(), max_rounds=2)
    episode = await conductor.ask("Why?", on_event=events.append)
    kinds = [type(event) for event in events if type(event) is not StepStarted]
    assert [kind.__name__ for kind in kinds] == [
        "Asked",
        *("CallEnded", "Planned", "StepText", "CallEnded", "StepEnded", "RoundEnded"),
        *("CallEnded", "Planned", "RoundEnded", "Answered"),
    ]
    assert {event.episode for event in events} == {episode.id}
    ends = [event for event in events if isinstance(event, RoundEnded)]
    assert tuple(event.outcome for event in ends) == episode.rounds
    assert [event.round for event in ends] == [0, 1]
    assert isinstance(events[-1], Answered)
    assert events[-1].outcome == episode


@pytest.mark.parametrize(
    "kind", [Asked, CallEnded, Planned, StepStarted, StepEnded, RoundEnded, Answered]
)
@pytest.mark.parametrize(
    "failure", [errors.JournalError("disk full"), errors.WorkerError("a liar"), KeyError("bug")]
)
async def test_a_failing_sink_stops_the_episode_and_is_told_nothing_more(
    kind: type, failure: Exception
) -> None:
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        if isinstance(event, kind):
            raise failure

    with pytest.raises(type(failure)) as caught:
        await Conductor(Planner(PLAN), pool=pool_of()).ask("Why?", on_event=sink)
    assert caught.value is failure
    assert isinstance(events[-1], kind) and sum(isinstance(event, kind) for event in events) == 1


# ── nested, and without await ─────────────────────────────────────────────────────────────────────
async def test_what_an_inner_episode_used_before_it_was_cancelled_is_counted() -> None:
    asked = asyncio.Event()

    async def hangs(messages: list[Message]) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    async def fails(messages: list[Message]) -> str:
        await asked.wait()
        raise errors.Refused("no")

    inner = Conductor(Planner(Workflow([Step(0, "Inner.")])), pool=pool_of(hangs))
    both = Workflow([Step(0, "Ask."), Step(1, "Fail.")])
    episode = await Conductor(Planner(both), pool=pool_of(inner, fails)).ask("Why?")
    assert isinstance(episode.error, errors.Refused)
    assert episode.usage.tokens == 220  # both planners'
    assert episode.usage.unpriced_calls == 4  # they, the cancelled call and the failed one


# ── replay ────────────────────────────────────────────────────────────────────────────────────────
async def test_an_end_that_cannot_be_made_durable_is_raised_with_the_episode() -> None:
    class Sink:
        def __call__(self, event: Event) -> None:
            pass

        async def wait_durable(self) -> None:
            raise errors.JournalError("disk full")

    with pytest.raises(errors.JournalError) as caught:
        await Conductor(Planner(PLAN), pool=pool_of()).ask("Why?", on_event=Sink())
    episode = caught.value.episode
    assert episode.answer is None and episode.usage.tokens == 110
    assert episode.rounds[0].transcript.answer == "re: Decide."


# ── names instead of objects ──────────────────────────────────────────────────────────────────────
def test_a_planner_and_a_pool_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(POOL_FILE, "utf-8")
    for pool in (path, str(path)):
        conductor = Conductor("worker:big", pool=pool)
        assert conductor.planner is conductor.pool["big"]


@pytest.mark.parametrize(
    ("planner", "message"),
    [
        ("big", "is a worker of the pool; expected 'worker:big'"),
        ("worker:bug", "the nearest is 'big'"),
        ("worker:", "provider 'worker:'"),
    ],
)
def test_a_planner_that_is_named_wrongly_is_a_config_error(planner: str, message: str) -> None:
    pool = WorkerPool([Worker(echo, name="big")])
    with pytest.raises(errors.ConfigError, match=message):
        Conductor(planner, pool=pool)
    with pytest.raises(errors.ConfigError, match=message):
        resolve(find_planner(planner, pool))  # type: ignore[arg-type]


def test_the_folder_of_a_run_stands_for_the_conductor_in_it(tmp_path: Path) -> None:
    gym = simulated_pool("gym")
    assert gym is not None
    trained = Conductor(str(gym.conductor), pool=gym.draw())
    (tmp_path / "conductor").symlink_to(gym.conductor)
    for folder in (tmp_path, str(tmp_path)):
        conductor = Conductor(folder, pool=gym.draw())
        assert conductor.prompt == trained.prompt
        assert conductor.max_steps == trained.max_steps
    (tmp_path / "conductor").unlink()
    with pytest.raises(errors.ConfigError, match=r"no conductor\.json"):
        Conductor(tmp_path, pool=gym.draw())
