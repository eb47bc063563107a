"""The best fixed workflow: what stands in the module is what a search of this world would leave there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fixed_search import mean_accuracy, neighbours

from openconductor.gym.exact import expected_accuracy
from openconductor.gym.levels import BEST_FIXED, BEST_FIXED_ACCURACY, fixed_accuracy, fixed_workflow
from openconductor.gym.questions import draw_questions


def test_the_recorded_accuracy_is_that_of_the_recorded_constant() -> None:
    found = mean_accuracy(BEST_FIXED)
    assert found == pytest.approx(BEST_FIXED_ACCURACY, abs=5e-5), "run python tests/unit/gym/fixed_search.py"


@pytest.mark.slow
def test_no_single_change_improves_the_best_fixed_workflow() -> None:
    best = mean_accuracy(BEST_FIXED)
    better = [change for change in neighbours(BEST_FIXED) if mean_accuracy(change, at_least=best) > best + 1e-9]
    assert not better, "run python tests/unit/gym/fixed_search.py"


def test_the_workflow_keeps_workers_and_access_and_writes_subtasks_for_the_question() -> None:
    subtasks: set[tuple[str, ...]] = set()
    for question in draw_questions("test", 24, seed=4):
        workflow = fixed_workflow(question)
        assert tuple(step.worker for step in workflow) == BEST_FIXED.workers
        assert tuple(step.access for step in workflow) == BEST_FIXED.access
        assert expected_accuracy(question, workflow) == pytest.approx(fixed_accuracy(question))
        subtasks.add(tuple(step.subtask for step in workflow))
    assert len(subtasks) > 4
