"""The golden cases of the workflow language: texts with their meaning and the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import openconductor as oc
from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.graders.exact import ExactGrader
from openconductor.parser import parse_workflow, trailing_text
from openconductor.reward import RewardFunction
from openconductor.types import Problem

Case = dict[str, Any]


def read_cases(name: str) -> list[Case]:
    lines = Path(__file__).with_name(name).read_text("ascii").splitlines()
    return [json.loads(line) for line in lines]


CASES = read_cases("dsl.jsonl")
THOUGHTS = read_cases("thoughts.jsonl")
POOL = oc.WorkerPool([oc.Worker(lambda messages: "5", name=name) for name in "abc"])
SET_BY_THE_CALLER = {WorkflowReason.TRUNCATED}
TOO_LARGE_FOR_THE_FILE = {WorkflowReason.TOO_LONG}


def steps_of(case: Case) -> list[list[object]]:
    options = {key: case[key] for key in ("max_steps", "accept_allowed") if key in case}
    return listed(parse_workflow(case["text"], case["workers"], **options))


def listed(workflow: oc.Workflow) -> list[list[object]]:
    return [
        [step.worker, step.subtask, "all" if step.access == "all" else list(step.access)]
        for step in workflow
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_golden_text_means_what_it_should(case: Case) -> None:
    if "steps" in case["expect"]:
        assert steps_of(case) == case["expect"]["steps"], case["why"]
        return
    with pytest.raises(WorkflowError) as caught:
        steps_of(case)
    assert caught.value.reason == case["expect"]["reason"], case["why"]
    assert str(caught.value).encode()  # a message can always be printed


def test_the_golden_cases_cover_every_reason_and_are_told_apart() -> None:
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names) >= 100
    assert all(case["why"] for case in CASES)
    covered = {case["expect"]["reason"] for case in CASES if "reason" in case["expect"]}
    assert covered == set(WorkflowReason) - SET_BY_THE_CALLER - TOO_LARGE_FOR_THE_FILE


# ── thoughts before the plan ──────────────────────────────────────────────────────────────────────
def check_round(played: oc.Round, case: Case) -> None:
    """Check the plan of a round, or the reason for which it has none."""
    if "steps" in case["expect"]:
        assert played.workflow is not None, f"{case['why']}: {played.error}"
        assert listed(played.workflow) == case["expect"]["steps"], case["why"]
    else:
        assert isinstance(played.error, WorkflowError), case["why"]
        assert played.error.reason == case["expect"]["reason"], case["why"]


@pytest.mark.parametrize("case", THOUGHTS, ids=lambda case: case["name"])
async def test_a_thought_is_no_part_of_the_plan_in_asking_and_in_training(case: Case) -> None:
    asked = await oc.Conductor(lambda messages: case["text"], pool=POOL).ask("2 + 3?")
    check_round(asked.rounds[0], case)
    problem = Problem("1", "2 + 3?", "5", "sums")
    rewarded = await RewardFunction(POOL, ExactGrader())(problem, case["text"])
    check_round(rewarded.episode.rounds[0], case)
    assert rewarded.reward == float("steps" in case["expect"])


async def test_a_planner_is_shown_its_invalid_text_without_the_thought() -> None:
    shown: list[str] = []

    def plan(messages: list[oc.Message]) -> str:
        shown.append(messages[-1].content)
        return "<think>a long thought</think>my plan"

    await oc.Conductor(plan, pool=POOL, on_no_plan="default_worker").ask("2 + 3?")
    assert "my plan" in shown[1] and "a long thought" not in shown[1]


def test_what_follows_the_lists_is_looked_for_behind_the_thought() -> None:
    plan = 'model_id = [1]\nsubtasks = ["a"]\naccess_list = [[]]'
    assert trailing_text(f"<think>{plan}\nBut no.</think>{plan}") == ""
    assert trailing_text(f"<think>{plan}</think>{plan}\nThat is all.") == "That is all."
