"""Steps are worth what the gym's exact chances say.

Replays over workers agree with these chances.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest
import rows_of

from openconductor.evaluation.counterfactual import (
    EDIT_KINDS,
    Counterfactuals,
    Effect,
    counterfactuals,
    edits_of,
    exact_replay,
    pool_replay,
)
from openconductor.evaluation.records import Record, RoundRecord
from openconductor.graders.exact import ExactGrader
from openconductor.gym.exact import expected_accuracy, oracle_workflow as best_workflow
from openconductor.gym.questions import GymQuestion, draw_questions
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.gym.world import write_value
from openconductor.types import Problem, Step, Workflow

NAMES = {ordinal: profile.name for ordinal, profile in enumerate(PROFILES)}
QUESTIONS = draw_questions("test", 40, seed=5)
PROBLEMS = {
    ("gym", f"g{place}"): Problem(f"g{place}", one.text, "", "gym")
    for place, one in enumerate(QUESTIONS)
}


def oracle_workflow(question: GymQuestion) -> Workflow:
    return best_workflow(question)[0]


def record(number: int, *flows: Workflow | None, sample: int = 0) -> Record:
    rounds = tuple(RoundRecord(flow, planned=True) for flow in flows)
    return rows_of.record("+", f"g{number}", sample, task="gym", rounds=rounds)


def of_oracle(questions: Sequence[GymQuestion] = QUESTIONS) -> list[Record]:
    return [record(number, oracle_workflow(question)) for number, question in enumerate(questions)]


def effect(found: Counterfactuals, kind: str, by: str = "all", group: str = "") -> Effect:
    (one,) = [one for one in found.effects if (one.kind, one.by, one.group) == (kind, by, group)]
    return one


async def test_each_effect_is_the_mean_of_the_exact_changes() -> None:
    """Worked out here once more, edit by edit: each question is the mean of its edits.

    Weighs the same.
    """
    found = await counterfactuals(of_oracle(), PROBLEMS, exact_replay, NAMES)
    for kind in ("drop", "blind"):
        changes: list[float] = []
        for question in QUESTIONS:
            flow = oracle_workflow(question)
            without = [one for what, _, one in edits_of(flow, NAMES, told="") if what == kind]
            scores = [expected_accuracy(question, one) for one in without]
            if scores:
                changes.append(fmean(scores) - expected_accuracy(question, flow))
        one = effect(found, kind)
        assert one.change.value == pytest.approx(fmean(changes))
        assert one.change.problems == len(changes)
        assert one.change.low <= one.change.value <= one.change.high
    truth = fmean(expected_accuracy(question, oracle_workflow(question)) for question in QUESTIONS)
    assert found.unedited.value == pytest.approx(truth)


async def test_no_edit_makes_an_optimal_plan_better_and_every_kind_hurts() -> None:
    found = await counterfactuals(of_oracle(), PROBLEMS, exact_replay, NAMES)
    for kind in ("drop", "swap", "blind", "untold"):
        one = effect(found, kind)
        assert one.change.better == 0, "no plan beats the oracle's"
        assert one.change.high < 0
        assert one.p_holm < 0.05
    assert found.shuffled.high < 0
    assert found.undecided == found.left_out == 0


async def test_a_step_that_nobody_sees_is_worth_nothing() -> None:
    """In the gym a step that is for nothing still risks a refusal, which ends the episode.

    3 % of what is right.
    """
    records: list[Record] = []
    for number, question in enumerate(QUESTIONS):
        flow = oracle_workflow(question)
        if len(flow) == 1:
            idle = Step((flow.steps[0].worker + 1) % 8, "Look out of the window.")
            records.append(record(number, Workflow([idle, flow.steps[0]])))
    found = await counterfactuals(records, PROBLEMS, exact_replay, NAMES)
    for kind in ("swap", "untold"):
        first = effect(found, kind, "position", "first")
        assert first.change.value == pytest.approx(0.0)
    assert effect(found, "drop", "position", "first").change.value == pytest.approx(
        0.03 * _right(records), rel=0.05
    )
    assert effect(found, "drop", "position", "last").change.value < -0.5


def _right(records: Sequence[Record]) -> float:
    questions = [QUESTIONS[int(one.problem[1:])] for one in records]
    return fmean(expected_accuracy(question, oracle_workflow(question)) for question in questions)


async def test_replays_over_the_workers_agree_with_the_exact_chances() -> None:
    """Thirty samples of each question's plan and of each of its edits.

    The mean lies where the chances say.
    """
    questions = QUESTIONS[:6]
    graded = {
        key: Problem(key[1], one.text, write_value(one.answer), "gym")
        for (key, one) in zip(PROBLEMS, questions, strict=False)
    }
    records = [
        record(n, oracle_workflow(one), sample=k)
        for n, one in enumerate(questions)
        for k in range(30)
    ]
    replay = pool_replay(
        gym_pool(1), lambda _problem: ExactGrader(), sample=lambda _problem, repeat: repeat
    )
    played = await counterfactuals(records, graded, replay, NAMES)
    exact = await counterfactuals(records, graded, exact_replay, NAMES)
    assert played.unedited.value == pytest.approx(exact.unedited.value, abs=0.08)
    assert effect(played, "drop").change.value == pytest.approx(
        effect(exact, "drop").change.value, abs=0.1
    )


async def test_what_is_asked_for_twice_is_played_once() -> None:
    flow = Workflow([Step(0, "Solve the problem.")])
    asked: list[Workflow] = []

    async def replay(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        asked.append(workflow)
        return 1.0

    told: list[tuple[int, int]] = []
    found = await counterfactuals(
        [record(0, flow), record(1, flow)],
        PROBLEMS,
        replay,
        {0: "a", 1: "b"},
        concurrency=1,
        on_progress=lambda *now: told.append(now),
    )
    # Of each question the plan and two edits (swapped, untold); another question's plan is the same
    # one.
    assert len(asked) == 6
    assert told == [(done, 6) for done in range(1, 7)]
    assert {one.kind for one in found.effects} == {"swap", "untold"}


async def test_what_cannot_be_replayed_or_decided_is_counted_and_left_out_on_both_sides() -> None:
    flow, single = (
        Workflow([Step(0, "Sort."), Step(1, "Check.", (0,))]),
        Workflow([Step(0, "Solve the problem.")]),
    )

    async def replay(problem: Problem, workflow: Workflow, repeat: int) -> float | None:
        return None if problem.id == "g0" else float(len(workflow) == 2)

    stranger = rows_of.record("+", "x", rounds=(RoundRecord(flow),))
    left_out = [record(1, None), record(2, flow, flow), stranger]
    found = await counterfactuals(
        [*(record(number, flow) for number in range(3)), *left_out], PROBLEMS, replay, NAMES
    )
    assert found.records == 3
    assert found.left_out == 3
    assert found.undecided == found.replays / 3
    one = effect(found, "drop")
    assert one.change.value == -1.0
    assert one.change.problems == 2
    found = await counterfactuals([record(0, single)], PROBLEMS, exact_replay, NAMES)
    assert found.shuffled is None, "there is no other question"


async def test_groups_are_named_by_place_shape_and_worker_and_all_steps_are_first() -> None:
    found = await counterfactuals(of_oracle(), PROBLEMS, exact_replay, NAMES)
    groups = {
        by: {one.group for one in found.effects if one.by == by}
        for by in ("position", "topology", "worker")
    }
    assert {"first", "last", "only"} <= groups["position"]
    assert {"single", "chain"} <= groups["topology"]
    assert groups["worker"] <= set(NAMES.values())
    assert [one.by for one in found.effects[:4]] == ["all"] * 4


TREE = Workflow([Step(0, "a"), Step(1, "b"), Step(2, "c", (0,)), Step(3, "d", (1, 2))])


def edits(
    workflow: Workflow, ordinals: Sequence[int] = range(4), told: str = "told"
) -> dict[tuple[str, int], Workflow]:
    return {
        (kind, step): made for kind, step, made in edits_of(workflow, ordinals, told=told, seed="s")
    }


def test_dropping_a_step_numbers_the_others_anew() -> None:
    seen = [[one.access for one in edits(TREE)["drop", step]] for step in range(4)]
    assert seen == [[(), (), (0, 1)], [(), (0,), (1,)], [(), (), (1,)], [(), (), (0,)]]
    assert [one.worker for one in edits(TREE)["drop", 1]] == [0, 2, 3]


def test_each_edit_changes_one_thing_of_one_step_and_what_changes_nothing_is_none() -> None:
    found = edits(TREE, told="a")
    assert found == edits(TREE, [3, 2, 1, 0], told="a"), "whatever the order of the ordinals"
    # The first two see nothing, and the first is told this already.
    assert set(found) == {(kind, n) for kind in EDIT_KINDS for n in range(4)} - {
        *(("blind", 0), ("blind", 1), ("untold", 0))
    }
    for (kind, step), made in found.items():
        others = [place for place in range(4) if place != step and kind != "drop"]
        for place in others:
            assert made.steps[place] == TREE.steps[place]
    swapped = found["swap", 2].steps[2]
    assert swapped.worker != 2
    assert swapped.subtask == "c"
    assert swapped.access == (0,)
    assert found["blind", 3].steps[3] == Step(3, "d", ())
    assert found["untold", 3].steps[3] == Step(3, "a", (1, 2))


def test_all_stays_all_and_the_first_step_that_may_see_all_sees_nothing() -> None:
    flow = Workflow([Step(0, "a", "all"), Step(1, "b", "all"), Step(2, "c", "all")])
    assert [step.access for step in edits(flow)["drop", 0]] == ["all", "all"]
    assert ("blind", 0) not in edits(flow)
    assert set(edits(Workflow([Step(0, "a")]), [0])) == {("untold", 0)}, (
        "neither dropped nor swapped"
    )
