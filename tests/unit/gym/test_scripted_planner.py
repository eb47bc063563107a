"""The scripted planner: each of its rules, and what each ablation of the prompt changes in what it writes."""

from __future__ import annotations

from typing import Any

import pytest

from openconductor.baselines.rewired import ablated
from openconductor.conductor import Conductor
from openconductor.errors import ConfigError, WorkerError
from openconductor.gym.questions import draw_questions
from openconductor.gym.scripted_planner import CHECK, Asked, ScriptedPlanner, likeness, plan, plan_text, read_prompt
from openconductor.gym.workers import gym_pool
from openconductor.parser import parse_workflow
from openconductor.prompt import SOLVE_SUBTASK, PromptOptions, render_prompt, render_workflow, worked_examples
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.types import Message, Round, Sampling, Step, Usage, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."
POOL = (3, 5, 8)
CHAIN = Workflow([Step(3, "?"), Step(5, "?", (0,)), Step(8, "?", (1,))])
VOTE = Workflow([Step(5, "?"), Step(8, "?"), Step(3, "?", (0, 1))])


def asked(question: str = QUESTION, **changes: Any) -> Asked:
    values: dict[str, Any] = {"max_steps": 5, "binary": False, "dictated": None, "examples": (), **changes}
    return Asked(question, values.pop("workers", POOL), **values)


def read(question: str = QUESTION, max_steps: int = 5, previous: Round | None = None, **options: Any) -> Asked:
    """What the planner reads off the real prompt."""
    prompt = PromptOptions(**options)
    cards = {5: "sorts lists"}
    return read_prompt(
        render_prompt(question, POOL, options=prompt, max_steps=max_steps, cards=cards, previous=previous)
    )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("steps", [1, 3, 12])
@pytest.mark.parametrize("access", ["binary", "index"])
@pytest.mark.parametrize("subtasks", [True, False])
@pytest.mark.parametrize("cards", [True, False])
def test_all_that_a_prompt_asks_for_is_read_off_its_text(steps: int, access: Any, subtasks: bool, cards: bool) -> None:
    found = read(max_steps=steps, access=access, subtasks=subtasks, cards=cards)
    assert (found.question, found.workers, found.max_steps) == (QUESTION, POOL, steps)
    assert found.binary == (access == "binary")
    assert found.dictated == (None if subtasks else SOLVE_SUBTASK)
    assert (found.later, found.response) == (False, None)


@pytest.mark.parametrize("examples", ["none", "in_distribution", "mixed", "out_of_distribution"])
@pytest.mark.parametrize("access", ["binary", "index"])
def test_the_worked_examples_are_read_as_they_are_shown(examples: Any, access: Any) -> None:
    shown = worked_examples(examples, POOL, max_steps=5, access=access)
    found = read(examples=examples, access=access).examples
    assert found == tuple((one.question, one.workflow) for one in shown)


def test_an_example_that_shows_no_workflow_is_passed_over() -> None:
    system, user = render_prompt(QUESTION, POOL)
    broken = Message("system", system.content.replace("model_id = [", "model = [", 2))  # the form, and one example
    assert len(read_prompt([broken, user]).examples) == 3


@pytest.mark.parametrize(
    "turns", [(), [Message("user", QUESTION)], render_prompt(QUESTION, POOL, options=PromptOptions("compact"))]
)
def test_a_prompt_of_another_template_is_no_prompt(turns: Any) -> None:
    with pytest.raises(WorkerError, match="expected the full template"):
        read_prompt(turns)


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_without_examples_the_first_worker_listed_does_everything_in_one_step() -> None:
    assert plan(asked(), None) == Workflow([Step(3, "sort the list, then double every number")])


def test_the_example_that_shares_most_words_is_copied_of_equals_the_first() -> None:
    examples = (("Which is red?", CHAIN), ("Sort the list of 4 numbers.", VOTE), ("Sort the list of 4 numbers.", CHAIN))
    text = plan_text(asked(examples=examples))
    assert text.startswith("As in example 2.\n")
    copied = parse_workflow(text, POOL)
    assert [(step.worker, step.access) for step in copied] == [(5, ()), (8, ()), (3, (0, 1))]


def test_likeness_is_the_share_of_words_that_two_texts_have_in_common() -> None:
    assert likeness("a b c", "B c d") == 0.5
    assert (likeness("a", "A!"), likeness("a", "b"), likeness("", "")) == (1.0, 0.0, 0.0)


def test_a_chain_deals_the_operations_out_in_order_and_what_is_over_checks() -> None:
    assert [step.subtask for step in plan(asked(), CHAIN)] == ["sort the list", "double every number", CHECK]
    three = "Take 4 17 9, sort the list, then double every number, then spell every digit."
    two = Workflow(CHAIN.steps[:2])
    assert [step.subtask for step in plan(asked(three), two)] == [
        "sort the list, then double every number",
        "spell every digit",
    ]


def test_attempts_that_see_nothing_get_everything_and_who_sees_them_checks() -> None:
    whole = "sort the list, then double every number"
    assert [step.subtask for step in plan(asked(), VOTE)] == [whole, whole, CHECK]


def test_a_question_from_elsewhere_is_handed_on_whole() -> None:
    assert [step.subtask for step in plan(asked("Who wrote Faust?"), VOTE)] == ["Who wrote Faust?"] * 2 + [CHECK]


def test_a_worker_that_is_not_on_offer_is_replaced_by_the_first_listed() -> None:
    assert [step.worker for step in plan(asked(workers=(8, 5)), CHAIN)] == [8, 5, 8]


def test_a_flow_is_cut_where_the_prompt_says_and_what_is_left_of_it_is_told_anew() -> None:
    assert plan(asked(max_steps=1), CHAIN) == Workflow([Step(3, "sort the list, then double every number")])


# ── later rounds ─────────────────────────────────────────────────────────────────────────────────────────────────────
def later(response: str | None) -> str:
    system, user = render_prompt(QUESTION, POOL, options=PromptOptions(examples="none"))
    end = "There is no response that could stand, so write a new workflow."
    said = end if response is None else f"<response>\n{response}\n</response>"
    told = Message("user", f"{user.content}\n\n---\nYou have already written a plan for this question.\n{said}")
    return plan_text(read_prompt([system, told]))


def test_an_answer_is_accepted() -> None:
    assert parse_workflow(later("8 18 34"), POOL, accept_allowed=True) == Workflow(())


@pytest.mark.parametrize("response", ["Sorry, I could not do that.", None])
def test_where_no_answer_came_each_step_moves_on_to_the_next_worker_listed(response: str | None) -> None:
    assert [step.worker for step in parse_workflow(later(response), POOL)] == [5]


# ── what each ablation changes ───────────────────────────────────────────────────────────────────────────────────────
def written(question: str = QUESTION, **options: Any) -> Workflow:
    max_steps = options.pop("max_steps", 5)
    conductor = ablated(Conductor(ScriptedPlanner("imitator"), pool=gym_pool(), max_steps=max_steps), **options)
    assert isinstance(conductor, Conductor), "the prompt is what changes, not the plan"
    turns = render_prompt(question, gym_pool().ordinals, options=conductor.prompt, max_steps=max_steps)
    return parse_workflow(plan_text(read_prompt(turns)), gym_pool().ordinals, max_steps=max_steps)


def test_taking_the_examples_away_leaves_one_step_of_the_first_worker() -> None:
    assert len(written()) > 1
    assert written(examples="none") == Workflow([Step(0, "sort the list, then double every number")])


def test_other_examples_give_other_flows() -> None:
    questions = [question.text for question in draw_questions("test", 60, seed=0)]
    plans = {
        which: [[(step.worker, step.access) for step in written(text, examples=which)] for text in questions]
        for which in ("in", "out", "mixed")
    }
    assert plans["in"] != plans["out"] != plans["mixed"] != plans["in"]


def test_access_is_written_in_the_form_that_is_asked_for() -> None:
    questions = [question.text for question in draw_questions("test", 30, seed=0)]
    for text in questions:
        binary, index = written(text, access="binary"), written(text, access="index")
        assert all(step.access in ((), "all") for step in binary)
        assert all(isinstance(step.access, tuple) for step in index)
        assert [step.worker for step in binary] == [step.worker for step in index]


def test_without_subtasks_every_step_gets_the_one_instruction_and_the_flow_stays() -> None:
    without = written(subtasks=False)
    assert {step.subtask for step in without} == {SOLVE_SUBTASK}
    assert [(step.worker, step.access) for step in without] == [(step.worker, step.access) for step in written()]


def test_fewer_steps_are_written_where_fewer_are_allowed() -> None:
    assert len(written(max_steps=1)) == 1


# ── as a provider ────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_it_is_on_the_shelf_under_its_name_costs_nothing_and_repeats_itself() -> None:
    planner = create("scripted", "imitator")
    turns = render_prompt(QUESTION, POOL)
    heard: list[str] = []
    one = await planner.complete(turns, Sampling(), call=CallContext(), on_text=heard.append)
    other = await planner.complete(turns, Sampling(temperature=2.0), call=CallContext(sample=9))
    assert one.text == other.text == "".join(heard)
    assert one.usage == Usage(
        input_tokens=sum(len(turn.content.split()) for turn in turns), output_tokens=len(one.text.split())
    )
    episode = await Conductor(planner, pool=gym_pool()).ask(QUESTION)
    assert episode.rounds[0].workflow is not None
    assert episode.usage.unpriced_calls == 0


async def test_rounds_go_on_until_an_answer_comes_that_it_accepts() -> None:
    conductor = Conductor(ScriptedPlanner("imitator"), pool=gym_pool(), max_rounds=3)
    episodes = [await conductor.ask(question.text) for question in draw_questions("test", 40, seed=1)]
    depths = {len(one.rounds) for one in episodes}
    assert depths >= {2, 3}, "some answers are accepted at once, some only later"
    assert all(
        round_.accepted or round_.workflow is None or len(round_.workflow) for one in episodes for round_ in one.rounds
    )
    assert any(one.rounds[1].accepted for one in episodes)


def test_a_set_of_rules_that_there_is_not_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="got 'imitater', expected one of imitator; nearest: 'imitator'"):
        create("scripted", "imitater")


def test_what_it_writes_is_always_a_workflow() -> None:
    for steps in (1, 2, 3, 5):
        for access in ("binary", "index"):
            for question in draw_questions("train", 20, seed=2):
                text = plan_text(read(question.text, max_steps=steps, access=access))
                found = parse_workflow(text, POOL, max_steps=steps)
                assert render_workflow(found) in text
