"""Steps are worth what the gym's exact chances say.

Replays over workers agree with these chances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from statistics import fmean
from typing import Any

import pytest
import rows_of

from openconductor.evaluation.counterfactual import (
    EDIT_KINDS,
    Counterfactuals,
    Effect,
    Rounds,
    Seen,
    counterfactuals,
    edits_of,
    watch_exactly,
    watch_pool,
)
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.graders.exact import ExactGrader
from openconductor.gym.exact import expected_accuracy, oracle_workflow
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.gym.world import write_value
from openconductor.types import Problem, Step, Workflow

NAMES = {ordinal: profile.name for ordinal, profile in enumerate(PROFILES)}
QUESTIONS = draw_questions("test", 40, seed=5)
PROBLEMS = {
    ("gym", f"g{place}"): Problem(f"g{place}", question.text, write_value(question.answer), "gym")
    for place, question in enumerate(QUESTIONS)
}

ORACLES = [oracle_workflow(question)[0] for question in QUESTIONS]


def record(number: int, *flows: Workflow | None, sample: int = 0) -> Record:
    rounds = tuple(RoundRecord(flow, planned=True) for flow in flows)
    return rows_of.record("+", f"g{number}", sample, task="gym", rounds=rounds)


@pytest.fixture(scope="module")
def of_oracle() -> Any:
    """The effects on the oracle's plans, by exact chances."""
    records = [record(number, flow) for number, flow in enumerate(ORACLES)]
    return asyncio.run(counterfactuals(records, PROBLEMS, watch_exactly, NAMES))


def effect(found: Counterfactuals, kind: str) -> Effect:
    (chosen,) = [other for other in found.effects if (other.kind, other.by) == (kind, "all")]
    return chosen


@pytest.mark.parametrize("kind", ["drop", "blind"])
def test_each_effect_is_the_mean_of_the_exact_changes(of_oracle: Any, kind: str) -> None:
    """A question is the mean of its edits, and each question weighs the same."""
    changes: list[float] = []
    for question, flow in zip(QUESTIONS, ORACLES, strict=True):
        edited = [made for what, _, made in edits_of(flow, NAMES, told="") if what == kind]
        if edited:
            scores = [expected_accuracy(question, made) for made in edited]
            changes.append(fmean(scores) - expected_accuracy(question, flow))
    change = effect(of_oracle, kind).change
    assert change.value == pytest.approx(fmean(changes))
    assert change.problems == len(changes)
    assert change.low <= change.value <= change.high


def test_an_edit_makes_no_optimal_plan_better(of_oracle: Any) -> None:
    for kind in ("drop", "swap", "blind", "untold"):
        found = effect(of_oracle, kind)
        assert found.change.better == 0, kind
        assert found.change.high < 0, kind
        assert found.p_holm < 0.05, kind


async def test_replays_over_the_workers_agree_with_the_exact_chances() -> None:
    """Thirty samples of each question's plan and of each of its edits."""
    records: list[Record] = []
    for number in range(6):
        records += [record(number, ORACLES[number], sample=sample) for sample in range(30)]
    watch = watch_pool(
        gym_pool(1), lambda _problem: ExactGrader(), sample=lambda _problem, repeat: repeat
    )
    played: Any = await counterfactuals(records, PROBLEMS, watch, NAMES)
    exact: Any = await counterfactuals(records, PROBLEMS, watch_exactly, NAMES)
    assert played.unedited.value == pytest.approx(exact.unedited.value, abs=0.08)
    expected = effect(exact, "drop").change.value
    assert effect(played, "drop").change.value == pytest.approx(expected, abs=0.1)


SINGLE = Workflow([Step(0, "Solve the problem.")])


async def test_what_is_asked_for_twice_is_played_once() -> None:
    """Play the plan and two edits of each question."""
    played: list[Workflow] = []
    progress: list[tuple[int, int]] = []

    async def watch(problem: Problem, rounds: Rounds, repeat: int) -> Seen:
        played.append(*rounds)
        return Seen(1.0)

    found = await counterfactuals(
        [record(0, SINGLE), record(1, SINGLE)],
        PROBLEMS,
        watch,
        {0: "a", 1: "b"},
        concurrency=1,
        on_progress=lambda *now: progress.append(now),
    )
    assert len(played) == 6
    assert progress == [(done, 6) for done in range(1, 7)]
    assert {effect.kind for effect in found.effects} == {"swap", "untold"}


async def test_what_cannot_be_replayed_or_decided_is_counted_and_left_out_on_both_sides() -> None:
    flow = Workflow([Step(0, "Sort."), Step(1, "Check.", (0,))])

    async def watch(problem: Problem, rounds: Rounds, repeat: int) -> Seen:
        (workflow,) = rounds
        return Seen(None if problem.id == "g0" else float(len(workflow) == 2))

    stranger = rows_of.record("+", "x", rounds=(RoundRecord(flow),))
    records = [record(number, flow) for number in range(3)]
    records += [record(1, None), record(2, flow, flow), stranger]
    found = await counterfactuals(records, PROBLEMS, watch, NAMES)
    assert found.records == 3
    assert found.left_out == 3
    assert found.undecided == found.replays / 3
    change = effect(found, "drop").change
    assert change.value == -1.0
    assert change.problems == 2


TREE = Workflow([Step(0, "a"), Step(1, "b"), Step(2, "c", (0,)), Step(3, "d", (1, 2))])


def edits(
    workflow: Workflow, ordinals: Sequence[int] = range(4), told: str = "told"
) -> dict[tuple[str, int], Workflow]:
    made = edits_of(workflow, ordinals, told=told, seed="s")
    return {(kind, step): edited for kind, step, edited in made}


@pytest.mark.parametrize(
    ("step", "access"),
    [(0, [(), (), (0, 1)]), (1, [(), (0,), (1,)]), (2, [(), (), (1,)]), (3, [(), (), (0,)])],
)
def test_dropping_a_step_numbers_the_others_anew(step: int, access: object) -> None:
    edited = edits(TREE)["drop", step]
    assert [left.access for left in edited] == access
    assert [left.worker for left in edited] == [n for n in range(4) if n != step]


def test_each_edit_changes_one_thing_of_one_step_and_what_changes_nothing_is_none() -> None:
    found = edits(TREE, told="a")
    assert found == edits(TREE, [3, 2, 1, 0], told="a"), "whatever the order of the ordinals"
    # The first two see nothing, and the first is told this already.
    nothing = {("blind", 0), ("blind", 1), ("untold", 0)}
    assert set(found) == set(product(EDIT_KINDS, range(4))) - nothing
    for kind in ("swap", "blind", "untold"):
        assert found[kind, 3].steps[:3] == TREE.steps[:3]
    swapped = found["swap", 2].steps[2]
    assert swapped.worker != 2
    assert (swapped.subtask, swapped.access) == ("c", (0,))
    assert found["blind", 3].steps[3] == Step(3, "d", ())
    assert found["untold", 3].steps[3] == Step(3, "a", (1, 2))


def test_all_is_what_is_left_of_it_and_the_first_step_that_may_see_all_sees_nothing() -> None:
    flow = Workflow([Step(0, "a", "all"), Step(1, "b", "all"), Step(2, "c", "all")])
    assert [step.access for step in edits(flow)["drop", 0]] == [(), (0,)]
    assert ("blind", 0) not in edits(flow)
    assert set(edits(SINGLE, [0])) == {("untold", 0)}, "neither dropped nor swapped"
