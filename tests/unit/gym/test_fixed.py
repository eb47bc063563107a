"""The best fixed workflow: what stands in the module is what a search of this world would leave there."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fixed_search import climb, mean_accuracy, neighbours, representatives

from openconductor.gym.exact import expected_accuracy
from openconductor.gym.levels import BEST_FIXED, BEST_FIXED_ACCURACY, Constant, fixed_accuracy, fixed_workflow
from openconductor.gym.questions import KINDS, compositions, draw_questions, read_question
from openconductor.gym.subtasks import shape_of
from openconductor.gym.world import OPERATIONS


def test_the_recorded_accuracy_is_that_of_the_recorded_constant() -> None:
    found = mean_accuracy(BEST_FIXED)
    assert found == pytest.approx(BEST_FIXED_ACCURACY, abs=5e-5), "run python tests/unit/gym/fixed_search.py"


@pytest.mark.slow
def test_no_single_change_improves_the_best_fixed_workflow() -> None:
    best = mean_accuracy(BEST_FIXED)
    better = [change for change in neighbours(BEST_FIXED) if mean_accuracy(change, at_least=best) > best + 1e-9]
    assert not better, "run python tests/unit/gym/fixed_search.py"


def test_a_change_is_one_worker_one_access_a_step_less_or_a_step_more() -> None:
    changes = set(neighbours(Constant((0, 1), ((), (0,)))))
    assert {Constant((7, 1), ((), (0,))), Constant((0, 1), ((), ()))} <= changes
    assert {Constant((0,), ((),)), Constant((1,), ((),))} <= changes
    assert {Constant((0, 1, 4), ((), (0,), (0, 1))), Constant((4, 0, 1), ((), (), (0, 1)))} <= changes
    assert Constant((0, 1), ((), (0,))) not in changes
    assert all(len(change.workers) == len(change.access) for change in changes)
    assert all(seen == tuple(sorted(set(seen))) for change in changes for seen in change.access)
    assert all(max(seen, default=-1) < index for change in changes for index, seen in enumerate(change.access))


@pytest.mark.slow
def test_an_ascent_ends_where_no_single_change_helps() -> None:
    found, value = climb(Constant((2,), ((),)), random.Random(0), max_steps=2)
    assert value == pytest.approx(mean_accuracy(found))
    assert all(mean_accuracy(change) <= value + 1e-9 for change in neighbours(found, max_steps=2))


def test_the_sum_over_shapes_is_the_mean_over_kinds_and_compositions() -> None:
    total = 0.0
    for kind in KINDS:
        length = 1 if kind == "smudged" else KINDS.index(kind) + 1
        asked = {names for split in ("train", "validation", "test") for names in compositions(length, split)}
        list_ = "the smudged list 12 7 30 41" if kind == "smudged" else "12 7 30 41"
        for names in asked:
            question = read_question(f"Take {list_}, {', then '.join(OPERATIONS[name].plain for name in names)}.")
            assert question is not None
            total += fixed_accuracy(question) / len(asked) / len(KINDS)
    assert total == pytest.approx(mean_accuracy(BEST_FIXED))
    assert sum(weight for _, weight in representatives()) == pytest.approx(1.0)
    assert len({shape_of(question) for question, _ in representatives()}) == len(representatives())


def test_the_workflow_keeps_workers_and_access_and_writes_subtasks_for_the_question() -> None:
    subtasks: set[tuple[str, ...]] = set()
    for question in draw_questions("test", 24, seed=4):
        workflow = fixed_workflow(question)
        assert tuple(step.worker for step in workflow) == BEST_FIXED.workers
        assert tuple(step.access for step in workflow) == BEST_FIXED.access
        assert expected_accuracy(question, workflow) == pytest.approx(fixed_accuracy(question))
        subtasks.add(tuple(step.subtask for step in workflow))
    assert len(subtasks) > 4


def test_a_constant_that_cannot_reach_an_answer_still_has_a_workflow() -> None:
    question = read_question("Take 44 17 93 8, spell every digit.")
    assert question is not None
    constant = Constant((4, 4), ((), (0,)))
    assert 0 <= fixed_accuracy(question, constant) < 0.5
    assert len(fixed_workflow(question, constant)) == 2


def test_stopping_early_says_that_it_is_below() -> None:
    poor = Constant((2,), ((),))
    assert mean_accuracy(poor, at_least=0.9) < 0.9
    assert mean_accuracy(poor, at_least=0.01) == mean_accuracy(poor)
