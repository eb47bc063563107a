"""Plans that are drawn or varied at random. (What is learnt from them is seen in tests/learning.)"""

from __future__ import annotations

import random

import pytest

from openconductor.gym.world import asks_to_compare
from openconductor.parser import parse_workflow, validate_workflow
from openconductor.prompt import render_workflow
from openconductor.training.supervised import random_plan, vary
from openconductor.training.train_config import TrainConfig
from openconductor.types import Step, Workflow

pytestmark = pytest.mark.train

PAIR = Workflow([Step(3, "sort the list"), Step(1, "double every number", [0])])


def test_a_varied_plan_is_independent_attempts_and_a_comparison_that_sees_them_all() -> None:
    for seed in range(50):
        varied = vary(PAIR, random.Random(seed), range(8), max_steps=5)
        validate_workflow(varied, range(8), max_steps=5)
        *attempts, last = varied.steps
        assert asks_to_compare(last.subtask) and last.access == "all"
        assert len(attempts) in (2, 4)
        assert [step.worker for step in attempts] == [3, 1] * (len(attempts) // 2)
        assert [step.access for step in attempts] == [(), (0,), (), (2,)][: len(attempts)]
    full = Workflow([Step(0, "sort the list")] * 5)
    assert vary(full, random.Random(0), range(8), max_steps=5) == full, "no room for a comparison"


@pytest.mark.parametrize("access", ["binary", "index"])
def test_a_random_plan_is_valid_for_any_pool_and_favours_no_worker(access: str) -> None:
    config = TrainConfig.model_validate({"prompt": {"access": access}})
    used: list[int] = []
    for seed in range(300):
        plan = random_plan(random.Random(seed), (1, 4, 6), max_steps=4, config=config)
        assert parse_workflow(render_workflow(plan), (1, 4, 6), max_steps=4) == plan
        assert access == "index" or all(step.access in ((), "all") for step in plan)
        used += [step.worker for step in plan]
    assert all(abs(used.count(ordinal) / len(used) - 1 / 3) < 0.06 for ordinal in (1, 4, 6))
