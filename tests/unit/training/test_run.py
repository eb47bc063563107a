"""Widening: a Conductor's own plans, varied at random. (The cold start is seen in tests/learning.)"""

from __future__ import annotations

import random

import pytest

from openconductor.gym.world import asks_to_compare
from openconductor.parser import validate_workflow
from openconductor.training.run import vary
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
