"""The reference levels: there is room to learn, and the fixed workflow is the best constant."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fixed_search import mean_accuracy, neighbours

from openconductor.gym.exact import expected_accuracy, oracle_workflow
from openconductor.gym.levels import (
    BEST_FIXED,
    BEST_FIXED_ACCURACY,
    NOTHING,
    Constant,
    fixed_accuracy,
    fixed_workflow,
    reference_levels,
)
from openconductor.gym.questions import KINDS, draw_questions, read_question
from openconductor.gym.world import COMPARE, WORDINGS, find_operations
from openconductor.types import Step, Workflow

QUESTIONS = draw_questions("test", 120, seed=0)


def test_the_oracle_is_above_every_other_level_and_leaves_room_between() -> None:
    levels = reference_levels(QUESTIONS, draws=10)
    assert 0.01 <= levels.random < levels.best_worker == levels.workers["jack"]
    assert 0.75 <= levels.oracle <= 0.98
    assert levels.best_worker + 0.30 <= 0.8 * levels.oracle
    assert levels.best_fixed + 0.15 <= 0.8 * levels.oracle
    assert 3 * levels.random <= 0.8 * levels.oracle


def test_kinds_stand_from_easy_to_hard() -> None:
    means = []
    for kind in KINDS:
        of_kind = [oracle_workflow(question)[1] for question in QUESTIONS if question.kind == kind]
        means.append(sum(of_kind) / len(of_kind))
    assert means == sorted(means, reverse=True)


SEARCH = "run python tests/unit/gym/fixed_search.py"


def test_the_recorded_accuracy_is_that_of_the_recorded_constant() -> None:
    assert mean_accuracy(BEST_FIXED) == pytest.approx(BEST_FIXED_ACCURACY, abs=5e-5), SEARCH


@pytest.mark.slow
def test_no_single_change_improves_the_best_fixed_workflow() -> None:
    best = mean_accuracy(BEST_FIXED)
    for change in neighbours(BEST_FIXED):
        assert mean_accuracy(change, at_least=best) <= best + 1e-9, SEARCH


def test_the_fixed_workflow_keeps_workers_and_access_and_writes_subtasks_for_the_question() -> None:
    subtasks: set[tuple[str, ...]] = set()
    for question in QUESTIONS[:24]:
        workflow = fixed_workflow(question)
        assert tuple(step.worker for step in workflow) == BEST_FIXED.workers
        assert tuple(step.access for step in workflow) == BEST_FIXED.access
        assert expected_accuracy(question, workflow) == pytest.approx(fixed_accuracy(question))
        subtasks.add(tuple(step.subtask for step in workflow))
    assert len(subtasks) > 4


PATTERNS = [
    Constant((4,), ((),)),
    Constant((2, 4), ((), (0,))),
    Constant((6, 0), ((), ())),
    Constant((1, 3, 4), ((), (0,), (0, 1))),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: str(pattern.workers))
@pytest.mark.parametrize(
    "text",
    [
        "44 17 93 8, spell every digit",
        "44 17 93 8, put it in order and then double every number",
        "the smudged list 4 17 8, add one to each",
    ],
)
def test_no_other_subtasks_do_better(text: str, pattern: Constant) -> None:
    question = read_question(f"Take {text}.")
    assert question is not None
    operations = [operation for operation, _ in question.operations]
    texts = [operation.phrase(wording) for operation in operations for wording in WORDINGS]
    accuracy = fixed_accuracy(question, pattern)
    for subtasks in product(
        [*texts, ", then ".join(texts[::2]), COMPARE[0], NOTHING], repeat=len(pattern.workers)
    ):
        workflow = Workflow(tuple(map(Step, pattern.workers, subtasks, pattern.access)))
        assert expected_accuracy(question, workflow) <= accuracy + 1e-9, workflow


def test_nothing_is_no_operation() -> None:
    assert not find_operations(NOTHING)
