"""Ablations of a Conductor: its own plans with one thing changed, or another prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planted import Planted, attempts, calls_of, hang, planted_pool, provider_of

from openconductor.baselines.rewired import Rewired, ablated
from openconductor.conductor import Conductor
from openconductor.errors import BudgetExceeded, ConfigError, WorkflowError, WorkflowReason
from openconductor.events import Event, Planned
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import SOLVE_SUBTASK, PromptOptions, render_workflow
from openconductor.store import Journal
from openconductor.testing import Scripted
from openconductor.types import Budget, Episode, Step, Workflow

PLAN = Workflow(
    [
        Step(0, "Try."),
        Step(1, "Try too."),
        Step(2, "Check the first.", (0,)),
        Step(0, "Conclude.", (1, 2)),
    ]
)

LATER = Workflow([Step(1, "Again.", "all")])


def team() -> WorkerPool:
    return planted_pool(a=lambda *_: "from a", b=lambda *_: "from b", c=lambda *_: "from c")


def conductor(*plans: Any, pool: WorkerPool | None = None, **options: Any) -> Conductor:
    planner = Worker(Scripted(list(plans or [PLAN])), name="planner")
    return Conductor(planner, pool=pool or team(), **options)


def played(episode: Episode, round_: int = 0) -> Workflow:
    workflow = episode.rounds[round_].workflow
    assert workflow is not None
    return workflow


# ── plans that are changed ────────────────────────────────────────────────────────────────────────
async def test_what_the_planner_wrote_stands_in_its_call_and_what_was_played_in_the_plan() -> None:
    events: list[Event] = []
    episode = await Rewired(conductor(), one_worker=2).ask("Why?", on_event=events.append)
    (planned,) = (event for event in events if isinstance(event, Planned))
    assert planned.workflow == played(episode)
    (call,) = episode.rounds[0].calls
    assert call.completion is not None
    assert call.completion.text == render_workflow(PLAN)
    assert episode.rounds[0].completion.text == render_workflow(played(episode))


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("I would rather not plan.", WorkflowReason.MISSING_LIST),
        (Workflow([Step(7, "Try.")]), WorkflowReason.UNKNOWN_WORKER),
        (Workflow([]), WorkflowReason.NO_STEPS),
        (Workflow([Step(0, "Try.")] * 6), WorkflowReason.TOO_MANY_STEPS),
    ],
)
async def test_a_text_that_is_no_workflow_is_not_mended(plan: Any, reason: WorkflowReason) -> None:
    system = Rewired(conductor(plan), one_worker=0, subtasks=False, access="none")
    episode = await system.ask("Why?")
    assert isinstance(episode.error, WorkflowError)
    assert episode.error.reason == reason


async def test_later_rounds_are_changed_too_and_an_accepting_one_accepts() -> None:
    system = Rewired(conductor(PLAN, LATER, Workflow([]), max_rounds=3), one_worker=2)
    episode = await system.ask("Why?")
    for round_ in (0, 1):
        assert {step.worker for step in played(episode, round_)} == {2}
    assert episode.rounds[2].accepted
    assert episode.answer == "from c"


Received = dict[str, list[tuple[str, list[str]]]]


async def received(**options: Any) -> Received:
    """Return by worker what it was told in each call and which responses it was shown."""
    pool = team()
    await Rewired(conductor(pool=pool), **options).ask("Why?")
    by_worker: Received = {}
    for ordinal, worker in pool:
        calls = by_worker[worker.name] = []
        for turns, _ in provider_of(pool, ordinal).calls:
            calls.append((turns[-1].content.split("\n\n")[-1], attempts(turns)))
    return by_worker


A, B, C = "from a", "from b", "from c"

AS_PLANNED: Received = {
    "a": [("Try.", []), ("Conclude.", [B, C])],
    "b": [("Try too.", [])],
    "c": [("Check the first.", [A])],
}

ALL_OF_B = [("Try.", []), ("Try too.", []), ("Check the first.", [B]), ("Conclude.", [B, B])]

WIDENED = {"a": [("Try.", []), ("Conclude.", [A, B, C])], "c": [("Check the first.", [A, B])]}

UNTOLD = {
    "a": [(SOLVE_SUBTASK, []), (SOLVE_SUBTASK, [B, C])],
    "b": [(SOLVE_SUBTASK, [])],
    "c": [(SOLVE_SUBTASK, [A])],
}

BLIND = {
    "a": [("Try.", []), ("Conclude.", [])],
    "b": [("Try too.", [])],
    "c": [("Check the first.", [])],
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, AS_PLANNED),
        ({"sequential": True}, AS_PLANNED),
        ({"one_worker": 1}, {"a": [], "b": ALL_OF_B, "c": []}),
        ({"subtasks": False}, UNTOLD),
        ({"access": "none"}, BLIND),
        ({"access": "binary"}, AS_PLANNED | WIDENED),
        ({"access": "all"}, AS_PLANNED | WIDENED | {"b": [("Try too.", [A])]}),
    ],
)
async def test_what_workers_receive_is_the_plan_with_one_thing_changed(options, expected) -> None:
    """The plan: a *tries*, b *tries too*, c *checks* a's, a *concludes* from b's and c's."""
    assert await received(**options) == expected


# ── one after the other ───────────────────────────────────────────────────────────────────────────
# ── one after the other ───────────────────────────────────────────────────────────────────────────
async def test_sequential_one_worker_of_a_question_works_at_a_time_and_the_answer_is_the_same() -> (
    None
):
    plan = Workflow([*[Step(0, "Try.")] * 3, Step(0, "Conclude.", "all")])
    most: list[int] = []
    answered: list[str | None] = []
    for sequential in (False, True):
        provider = Planted("a", lambda messages, rng: f"{len(messages)} turns, {rng.random()}")
        pool = WorkerPool([Worker(provider, name="a")])
        system = ablated(conductor(plan, pool=pool), sequential=sequential)
        answered.append((await system.ask("Why?")).answer)
        most.append(provider.most_at_once)
    assert most == [3, 1]
    assert answered[0] == answered[1]


async def test_a_budget_of_seconds_still_ends_a_question_that_waits_for_its_turn() -> None:
    pool = WorkerPool([Worker(hang, name="a")])
    plan = Workflow([Step(0, "Try."), Step(0, "Try.")])
    system = ablated(conductor(plan, pool=pool), sequential=True)
    with pytest.raises(BudgetExceeded):
        await system.ask("Why?", budget=Budget(seconds=0.1))


# ── by options ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({"examples": "none"}, PromptOptions(examples="none")),
        ({"examples": "in"}, PromptOptions(examples="in_distribution")),
        ({"examples": "mixed"}, PromptOptions(examples="mixed")),
        ({"examples": "out"}, PromptOptions()),
        ({"access": "index"}, PromptOptions(access="index")),
        ({"subtasks": False}, PromptOptions(subtasks=False)),
        ({"previous": "answers"}, PromptOptions(previous="answers")),
    ],
)
def test_prompt_ablations_change_what_the_planner_is_asked(options, prompt) -> None:
    base = conductor()
    changed: Any = ablated(base, **options)
    assert changed.prompt == prompt
    assert base.prompt == PromptOptions(), "the Conductor itself stays as it is"


async def test_unlimited_rounds_end_with_the_budget() -> None:
    system = ablated(conductor(PLAN, LATER), rounds=None)
    episode = await system.ask("Why?", budget=Budget(calls=9))
    assert len(episode.rounds) > 3
    assert episode.answer == "from b"


# ── by options ────────────────────────────────────────────────────────────────────────────────────


async def test_a_rewired_conductor_replays_what_a_journal_holds(tmp_path: Path) -> None:
    pool = team()
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = await Rewired(conductor(), one_worker=1).ask("Why?", on_event=journal)
        system = Rewired(conductor("never asked", pool=pool), one_worker=1).replaying(journal)
        again = await system.ask("Why?", on_event=journal)
    assert again.answer == first.answer
    assert calls_of(pool) == 0


async def test_the_gyms_own_prompt_has_words_for_solving_and_no_examples() -> None:
    pytest.importorskip("safetensors")
    base = Conductor(bundled_folder(), pool=gym_pool())
    (question,) = draw_questions("test", 1, seed=0)
    untold = await ablated(base, subtasks=False).ask(question.text)
    assert {step.subtask for step in played(untold)} == {question.text}
    with pytest.raises(ConfigError, match="compact template has no examples"):
        ablated(base, examples="none")
