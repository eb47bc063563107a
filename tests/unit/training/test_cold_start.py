"""Widening: a Conductor's own plans, varied at random. (The cold start is seen in tests/learning.)"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from openconductor.gym.world import asks_to_compare
from openconductor.parser import validate_workflow
from openconductor.training.cold_start import vary
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


def test_the_number_of_attempts_and_the_comparing_worker_are_uniform() -> None:
    rng = random.Random(0)
    varied = [vary(Workflow([Step(3, "sort the list")]), rng, range(8), max_steps=5) for _ in range(4000)]
    lengths = Counter(len(one) - 1 for one in varied)
    assert set(lengths) == {1, 2, 3, 4}
    assert all(abs(count / 4000 - 0.25) < 0.03 for count in lengths.values())
    workers = Counter(one.steps[-1].worker for one in varied)
    assert set(workers) == set(range(8))
    assert all(abs(count / 4000 - 0.125) < 0.02 for count in workers.values())
