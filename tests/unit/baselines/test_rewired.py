"""Ablations of a Conductor: its own plans with one thing changed, or another prompt."""

from __future__ import annotations

from pathlib import Path

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
from openconductor.types import Budget, Episode, Message, Step, Workflow

PLAN = Workflow(
    (
        Step(0, "Try."),
        Step(1, "Try too."),
        Step(2, "Check the first.", (0,)),
        Step(0, "Conclude.", (1, 2)),
    )
)
WRITTEN = render_workflow(PLAN, "Let us try twice.")


def team() -> WorkerPool:
    return planted_pool(a=lambda *_: "from a", b=lambda *_: "from b", c=lambda *_: "from c")


def conductor(*texts: str, pool: WorkerPool | None = None, **options: object) -> Conductor:
    said = list(texts)

    def plan(messages: list[Message]) -> str:
        return said.pop(0) if len(said) > 1 else said[0]

    return Conductor(plan, pool=pool or team(), **options)  # type: ignore[arg-type]


def played(episode: Episode, round_: int = 0) -> Workflow:
    workflow = episode.rounds[round_].workflow
    assert workflow is not None
    return workflow


# ── plans that are changed ────────────────────────────────────────────────────────────────────────
async def test_what_the_planner_wrote_stands_in_its_call_and_what_was_played_in_the_plan() -> None:
    events: list[Event] = []
    episode = await Rewired(conductor(WRITTEN), one_worker=2).ask("Why?", on_event=events.append)
    (planned,) = (event for event in events if isinstance(event, Planned))
    assert planned.workflow == played(episode)
    (call,) = episode.rounds[0].calls
    assert call.completion is not None
    assert call.completion.text == WRITTEN
    assert episode.rounds[0].completion.text == render_workflow(played(episode))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I would rather not plan.", WorkflowReason.MISSING_LIST),
        (render_workflow(Workflow((Step(7, "Try."),))), WorkflowReason.UNKNOWN_WORKER),
        (render_workflow(Workflow(())), WorkflowReason.NO_STEPS),
        (render_workflow(Workflow((Step(0, "Try."),) * 6)), WorkflowReason.TOO_MANY_STEPS),
    ],
)
async def test_a_text_that_is_no_workflow_is_not_mended(text: str, reason: WorkflowReason) -> None:
    episode = await Rewired(conductor(text), one_worker=0, subtasks=False, access="none").ask(
        "Why?"
    )
    assert isinstance(episode.error, WorkflowError)
    assert episode.error.reason == reason


async def test_later_rounds_are_changed_too_and_an_accepting_one_accepts() -> None:
    later = render_workflow(Workflow((Step(0, "Again.", "all"),)))
    system = Rewired(
        conductor(WRITTEN, later, render_workflow(Workflow(())), max_rounds=3), one_worker=2
    )
    episode = await system.ask("Why?")
    assert {step.worker for round_ in (0, 1) for step in played(episode, round_)} == {2}
    assert episode.rounds[2].accepted
    assert episode.answer == "from c"


async def test_what_workers_receive_is_the_plan_with_one_thing_changed() -> None:
    """The plan: a *tries*, b *tries too*, c *checks* a's, a *concludes* from b's and c's."""

    async def sent(**options: object) -> dict[str, list[tuple[str, list[str]]]]:
        """By worker, what it was told in each call and which responses it was shown."""
        pool = team()
        await Rewired(conductor(WRITTEN, pool=pool), **options).ask("Why?")  # type: ignore[arg-type]
        return {
            worker.name: [
                (turns[-1].content.split("\n\n")[-1], attempts(turns))
                for turns, _ in provider_of(pool, at).calls
            ]
            for at, worker in pool
        }

    a, b, c = "from a", "from b", "from c"
    as_planned = {
        "a": [("Try.", []), ("Conclude.", [b, c])],
        "b": [("Try too.", [])],
        "c": [("Check the first.", [a])],
    }
    assert await sent() == await sent(sequential=True) == as_planned
    all_of_b = [("Try.", []), ("Try too.", []), ("Check the first.", [b]), ("Conclude.", [b, b])]
    assert await sent(one_worker=1) == {"a": [], "b": all_of_b, "c": []}
    assert await sent(subtasks=False) == {
        worker: [(SOLVE_SUBTASK, shown) for _, shown in calls]
        for worker, calls in as_planned.items()
    }
    assert await sent(access="none") == {
        worker: [(told, []) for told, _ in calls] for worker, calls in as_planned.items()
    }
    widened = {"a": [("Try.", []), ("Conclude.", [a, b, c])], "c": [("Check the first.", [a, b])]}
    assert await sent(access="binary") == as_planned | widened
    assert await sent(access="all") == as_planned | widened | {"b": [("Try too.", [a])]}


# ── one after the other ───────────────────────────────────────────────────────────────────────────
async def test_sequential_one_worker_of_a_question_works_at_a_time_and_the_answer_is_the_same() -> (
    None
):
    side_by_side = Workflow(
        (Step(0, "Try."), Step(0, "Try."), Step(0, "Try."), Step(0, "Conclude.", "all"))
    )
    at_once: dict[bool, int] = {}
    said: dict[bool, str | None] = {}
    for sequential in (False, True):
        provider = Planted("a", lambda messages, rng: f"{len(messages)} turns, {rng.random()}")
        pool = WorkerPool([Worker(provider, name="a")])
        system = ablated(conductor(render_workflow(side_by_side), pool=pool), sequential=sequential)
        said[sequential] = (await system.ask("Why?")).answer
        at_once[sequential] = provider.most_at_once
    assert at_once == {False: 3, True: 1}
    assert said[True] == said[False]


async def test_a_budget_of_seconds_still_ends_a_question_that_waits_for_its_turn() -> None:
    pool = WorkerPool([Worker(hang, name="a")])
    plan = render_workflow(Workflow((Step(0, "Try."), Step(0, "Try."))))
    with pytest.raises(BudgetExceeded):
        await ablated(conductor(plan, pool=pool), sequential=True).ask(
            "Why?", budget=Budget(seconds=0.1)
        )


# ── by options ────────────────────────────────────────────────────────────────────────────────────
def test_prompt_ablations_change_what_the_planner_is_asked_where_its_template_has_that() -> None:
    base = conductor(WRITTEN)
    for options, prompt in (
        ({"examples": "none"}, PromptOptions(examples="none")),
        ({"examples": "in"}, PromptOptions(examples="in_distribution")),
        ({"examples": "mixed"}, PromptOptions(examples="mixed")),
        ({"examples": "out"}, PromptOptions()),
        ({"access": "index"}, PromptOptions(access="index")),
        ({"subtasks": False}, PromptOptions(subtasks=False)),
    ):
        changed = ablated(base, **options)  # type: ignore[arg-type]
        assert isinstance(changed, Conductor)
        assert changed.prompt == prompt
    assert base.prompt == PromptOptions()  # the Conductor itself stays as it is


async def test_a_rewired_conductor_replays_what_a_journal_holds(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        first = await Rewired(conductor(WRITTEN), one_worker=1).ask("Why?", on_event=journal)
    pool = team()
    with Journal(tmp_path / "journal.sqlite") as journal:
        system = Rewired(conductor("never asked", pool=pool), one_worker=1).replaying(journal)
        again = await system.ask("Why?", on_event=journal)
    assert again.answer == first.answer
    assert calls_of(pool) == 0


async def test_the_gyms_conductor_loses_by_each_ablation_what_the_ablation_takes() -> None:
    pytest.importorskip("safetensors")
    base = Conductor(bundled_folder(), pool=gym_pool())
    question = next(one for one in draw_questions("test", 20, seed=0) if one.kind == "pair")
    plain = await base.ask(question.text)
    alone = await ablated(base, one_worker="maven").ask(question.text)
    assert {step.worker for step in played(alone)} == {0}
    assert [step.subtask for step in played(alone)] == [step.subtask for step in played(plain)]
    told = await ablated(base, subtasks=False).ask(question.text)
    assert {step.subtask for step in played(told)} == {
        question.text
    }  # the gym's words for: solve it
    with pytest.raises(ConfigError, match="compact template has no examples"):
        ablated(base, examples="none")
