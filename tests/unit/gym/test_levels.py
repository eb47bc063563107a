"""The reference levels: the world is honest, and leaves room to learn."""

from __future__ import annotations

from openconductor.gym.exact import oracle_workflow
from openconductor.gym.levels import reference_levels
from openconductor.gym.questions import KINDS, draw_questions

QUESTIONS = draw_questions("test", 120, seed=0)
LEVELS = reference_levels(QUESTIONS, draws=10)


def test_the_oracle_is_above_every_other_level_and_leaves_room_between() -> None:
    assert 0.01 <= LEVELS.random < LEVELS.best_worker == LEVELS.workers["jack"]
    assert 0.75 <= LEVELS.oracle <= 0.98
    assert LEVELS.best_worker + 0.30 <= 0.8 * LEVELS.oracle
    assert LEVELS.best_fixed + 0.15 <= 0.8 * LEVELS.oracle
    assert 3 * LEVELS.random <= 0.8 * LEVELS.oracle


def test_kinds_stand_from_easy_to_hard() -> None:
    means = []
    for kind in KINDS:
        of_kind = [oracle_workflow(question)[1] for question in QUESTIONS if question.kind == kind]
        means.append(sum(of_kind) / len(of_kind))
    assert means == sorted(means, reverse=True)
