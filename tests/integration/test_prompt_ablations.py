"""Each ablation of the prompt reaches the plans, as a planner shows that does what a prompt says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from scripted_planner import ScriptedPlanner, plan_text, read_prompt

from openconductor.baselines.rewired import ablated
from openconductor.conductor import Conductor
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.parser import parse_workflow
from openconductor.prompt import SOLVE_SUBTASK, render_prompt
from openconductor.types import Step, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."


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


async def test_rounds_go_on_until_an_answer_comes_that_it_accepts() -> None:
    conductor = Conductor(ScriptedPlanner("imitator"), pool=gym_pool(), max_rounds=3)
    episodes = [await conductor.ask(question.text) for question in draw_questions("test", 40, seed=1)]
    depths = {len(one.rounds) for one in episodes}
    assert depths >= {2, 3}, "some answers are accepted at once, some only later"
    assert all(
        round_.accepted or round_.workflow is None or len(round_.workflow) for one in episodes for round_ in one.rounds
    )
    assert any(one.rounds[1].accepted for one in episodes)
