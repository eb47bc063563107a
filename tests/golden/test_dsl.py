"""The golden cases of the workflow language: texts with their meaning and the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.parser import parse_workflow

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("dsl.jsonl").read_text("ascii").splitlines()
]
SET_BY_THE_CALLER = {WorkflowReason.TRUNCATED}
TOO_LARGE_FOR_THE_FILE = {WorkflowReason.TOO_LONG}


def steps_of(case: dict[str, Any]) -> list[list[object]]:
    options = {key: case[key] for key in ("max_steps", "accept_allowed") if key in case}
    workflow = parse_workflow(case["text"], case["workers"], **options)
    return [
        [step.worker, step.subtask, "all" if step.access == "all" else list(step.access)]
        for step in workflow
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_golden_text_means_what_it_should(case: dict[str, Any]) -> None:
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
