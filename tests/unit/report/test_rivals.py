"""What a training changed: the split of a gain into form and skill, by hand and on planted learners."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted_records import Player, always, flat, play

from openconductor.evaluation.records import Record
from openconductor.report.rivals import change


def learner(skill: float, invalid: float) -> dict[str, Player]:
    def plan(rng: random.Random, _kind: int) -> Sequence[int] | None:
        return None if rng.random() < invalid else (0, 1)

    return {"conductor": Player(flat(skill), plan, planned=True)}


def by_hand(rows: Sequence[tuple[bool, bool]]) -> list[Record]:
    """Records of one question each: whether the plan was valid, and whether it was right."""
    wrong = play(learner(0.0, 0.0), 0, questions=len(rows))
    return [
        replace(
            record,
            correct=right,
            status="graded" if valid else "invalid",
            rounds=record.rounds if valid else (replace(record.rounds[0], workflow=None),),
        )
        for record, (valid, right) in zip(wrong, rows, strict=True)
    ]


def test_the_two_parts_of_a_gain_are_the_textbooks_and_add_up_to_it() -> None:
    """Validity .5 to .75, right of the valid .5 to 2/3: form is .25 x 7/12, skill is 1/6 x .625."""
    before = by_hand([(True, True), (True, False), (False, False), (False, False)])
    after = by_hand([(True, True), (True, True), (True, False), (False, False)])
    found = change(before, after, workers=2)
    assert found.by_form is not None
    assert found.by_skill is not None
    assert found.accuracy is not None
    assert found.by_form.value == pytest.approx(0.25 * 7 / 12)
    assert found.by_skill.value == pytest.approx(1 / 6 * 0.625)
    assert found.by_form.value + found.by_skill.value == pytest.approx(found.accuracy.value) == pytest.approx(0.25)
    assert found.given_valid is not None
    assert found.given_valid.problems == 2, "only where both wrote a valid plan"


def test_a_learner_of_form_gains_by_form_and_one_of_skill_by_skill() -> None:
    before = play(learner(0.6, 0.4), 1, questions=400)
    form = change(before, play(learner(0.6, 0.0), 2, questions=400), workers=4)
    skill = change(before, play(learner(0.9, 0.4), 3, questions=400), workers=4)
    assert form.by_form is not None
    assert form.by_skill is not None
    assert form.by_form.low > 0.15
    assert form.by_skill.low < 0 < form.by_skill.high
    assert skill.by_form is not None
    assert skill.by_skill is not None
    assert skill.by_skill.low > 0.08
    assert skill.by_form.low < 0 < skill.by_form.high


def test_only_questions_that_both_were_asked_are_compared() -> None:
    before = play(learner(0.6, 0.0), 1, asked=range(50))
    after = play(learner(0.6, 0.0), 2, asked=range(30, 100))
    assert change(before, after, workers=4).questions == 20


def test_a_planner_that_could_not_be_reached_wrote_no_invalid_plan() -> None:
    unreached = [replace(one, correct=None, status="failed") for one in by_hand([(False, False)] * 10)]
    found = change([*unreached[:5], *by_hand([(True, True)] * 10)[5:]], by_hand([(True, True)] * 10), workers=2)
    assert found.validity is not None
    assert (found.validity.value, found.validity.problems) == (0.0, 5)


def test_without_a_valid_plan_there_is_no_skill_to_speak_of() -> None:
    found = change(by_hand([(False, False)] * 8), by_hand([(True, True)] * 8), workers=2)
    assert found.by_form is found.by_skill is found.given_valid is None
    assert found.validity is not None
    assert found.validity.value == 1.0


def test_routing_entropy_is_told_before_and_after() -> None:
    wide = {"conductor": Player(flat(0.5), lambda rng, _: (rng.randrange(4),), planned=True)}
    narrow = {"conductor": Player(flat(0.5), always(2), planned=True)}
    found = change(play(wide, 1), play(narrow, 1), workers=4)
    assert found.entropy_before is not None
    assert found.entropy_after is not None
    assert found.entropy_before.value == pytest.approx(2.0, abs=0.05)
    assert found.entropy_after.value == 0.0
