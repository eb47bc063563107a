"""Plans that are drawn at random. (What is learnt from them is seen in tests/learning.)"""

from __future__ import annotations

import random

import pytest

from openconductor.parser import parse_workflow
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import build_tokenizer
from openconductor.training.supervised import phrases_of, random_plan
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem

pytestmark = pytest.mark.train


@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_random_plan_is_valid_for_any_pool_and_favours_no_worker(access: str) -> None:
    config = TrainConfig.model_validate({"prompt": {"access": access}})
    used: list[int] = []
    for seed in range(300):
        plan = random_plan(random.Random(seed), (1, 4, 6), max_steps=4, config=config)
        assert parse_workflow(render_workflow(plan), (1, 4, 6), max_steps=4) == plan
        assert access == "index" or all(step.access in ((), "all") for step in plan)
        assert len(plan) == 1 or plan.steps[-1].access
        used += [step.worker for step in plan]
    assert all(abs(used.count(ordinal) / len(used) - 1 / 3) < 0.06 for ordinal in (1, 4, 6))


def test_a_fresh_tokenizer_has_one_token_for_what_recurs_in_plans_and_questions() -> None:
    known = phrases_of([*[Problem("a", "[a] law", "A", "replay")] * 200, Problem("b", "[b] torts", "A", "replay")])
    assert " law" in known and " torts" not in known and phrases_of([]) == []
    plan, tokenizer = (
        random_plan(random.Random(1), range(8), max_steps=5, config=TrainConfig()),
        build_tokenizer(recurring=known),
    )
    written = render_workflow(plan, "5 steps will do here.")
    assert len(tokenizer.encode(written)) <= 5 + 6 * len(plan)
    assert tokenizer.decode(tokenizer.encode(written)) == written
