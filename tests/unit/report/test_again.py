"""Planning repeated: what is asked again, what is compared, and what the verdict makes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from benchmarks.verdict_cases import CASES, REPEATED
from planted_records import make_record

from openconductor.errors import OpenConductorError, WorkerError, WorkflowError, WorkflowReason
from openconductor.evaluation.counterfactual import Rounds, Seen
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.report.orchestration import Orchestration
from openconductor.report.plays.again import (
    Again,
    AgainFigures,
    Replan,
    measure_again,
    plan_again,
)
from openconductor.report.verdict import Missing, judge
from openconductor.types import Problem, Round, Step, Workflow

PROBLEMS = {("t", f"{number}"): Problem(f"{number}", "How?", "", "t") for number in range(8)}


def one_step(worker: int, subtask: str = "Solve it.") -> Workflow:
    return Workflow([Step(worker, subtask)])


def planned(*rounds: Workflow, number: int) -> Record:
    return make_record("conductor", number, True, *rounds, planned=True)


async def play(_problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
    return Seen(float(len(rounds) == 2), "")


def same_plans(error: OpenConductorError | None = None) -> Replan:
    """Return a planner that writes plans again, the last one first, or fails on question 0."""

    async def replan(record: Record, _shown: Record | None) -> Round:
        for _ in range(8 - int(record.problem)):
            await asyncio.sleep(0)
        if error and record.problem == "0":
            return Round(None, error=error)
        return Round(None, record.workflows[0])

    return replan


async def test_a_plan_that_comes_again_is_as_much_more_alike_as_plans_differ() -> None:
    records = [planned(one_step(number % 4), number=number) for number in range(8)]

    again = await plan_again(records, PROBLEMS, same_plans(), play)
    assert list(again.shape.values()) == [pytest.approx(1 - 1 / 7)] * 8
    assert set(again.words.values()) == {0.0}, "the words are the same for all questions"
    figures = measure_again(again)
    assert figures is not None
    assert (figures.shape.problems, figures.look) == (8, None)


async def test_a_plan_that_is_invalid_the_second_time_has_nothing_in_common_with_the_first() -> (
    None
):
    records = [planned(one_step(0), number=number) for number in range(4)]

    replan = same_plans(WorkflowError(WorkflowReason.NO_STEPS, "no steps"))
    again = await plan_again(records, PROBLEMS, replan, play)
    assert [round(excess, 3) for excess in again.shape.values()] == [-1.0, 0.333, 0.333, 0.333]


async def test_questions_stay_in_order_without_those_whose_planner_cannot_be_reached() -> None:
    records = [planned(one_step(number % 2), number=number) for number in range(4)]

    again = await plan_again(records, PROBLEMS, same_plans(WorkerError("unreachable")), play)
    assert list(again.shape) == list(PROBLEMS)[1:4]
    assert again.failures == {("t", "0"): "unreachable"}
    figures = measure_again(again)
    assert figures is not None and figures.failed == 1


async def test_steps_that_cannot_reach_the_answer_make_no_plan_alike() -> None:
    shown = Step(3, "For show.")
    records = [planned(Workflow([shown, Step(n % 2, "Solve.")]), number=n) for n in range(4)]

    async def replan(record: Record, _shown: Record | None) -> Round:
        return Round(None, Workflow([shown, Step(1 - record.workflows[0].steps[1].worker, "No.")]))

    again = await plan_again(records, PROBLEMS, replan, play)
    assert all(excess < 0 for excess in again.shape.values())


async def test_a_second_round_is_planned_on_its_own_answers_and_on_those_of_another_question() -> (
    None
):
    records = [planned(one_step(0), one_step(1), number=number) for number in range(8)]
    looked_at: list[tuple[str, str]] = []

    async def replan(record: Record, shown: Record | None) -> Round:
        if shown is None:
            return Round(None, one_step(0))
        looked_at.append((record.problem, shown.problem))
        return Round(None, one_step(1) if shown is record else Workflow(()))

    again = await plan_again(records, PROBLEMS, replan, play)
    own = [pair for pair in looked_at if pair[0] == pair[1]]
    assert (len(own), len(set(looked_at))) == (8, 16)
    assert set(map(tuple, again.looking.values())) == {(1.0,)}
    assert set(map(tuple, again.elsewhere.values())) == {(0.0,)}, "one that accepts is not played"
    figures = measure_again(again)
    assert figures is not None and figures.look is not None
    assert figures.look.value == 1.0


def test_one_question_alone_says_nothing() -> None:
    key = ("t", "1")
    assert measure_again(Again({key: 1.0}, {key: 1.0}, {}, {})) is None


# ── the verdict ───────────────────────────────────────────────────────────────────────────────────
HALF = Estimate(0.5, 0.4, 0.6, 100)
NOTHING = Estimate(0.0, -0.04, 0.04, 100)
WIDE = Estimate(0.02, -0.08, 0.12, 100)


@pytest.fixture(scope="module")
def honest() -> Orchestration:
    """The figures of a router whose questions need the steps of their plans, and not the words."""
    return CASES["routing by topic"].world(1).played


def repeated(honest: Orchestration, shape: Estimate, words: Estimate = HALF) -> Orchestration:
    assert honest.plays is not None
    return replace(honest, plays=replace(honest.plays, again=AgainFigures(shape, words, None)))


@pytest.mark.parametrize(
    ("shape", "label", "asked"),
    [
        (HALF, "orchestration gain", None),
        (NOTHING, "no gain", None),
        (WIDE, "undecided (n too small)", Missing(planning=300)),
        (replace(HALF, problems=20), "undecided (n too small)", Missing(planning=300)),
    ],
)
def test_a_gain_by_steps_stands_only_if_such_steps_are_planned_again(
    honest: Orchestration, shape: Estimate, label: str, asked: Missing | None
) -> None:
    judgement = judge(repeated(honest, shape))
    assert (judgement.label, judgement.missing) == (label, asked)


def test_a_gain_whose_planning_was_not_repeated_says_so_and_what_would_test_it(
    honest: Orchestration,
) -> None:
    judgement = judge(honest)
    assert judgement.label == "orchestration gain"
    assert "planning was not repeated" in judgement.line
    assert judgement.missing == Missing(planning=100)


def test_a_system_that_has_no_planner_is_not_asked_again(honest: Orchestration) -> None:
    assert judge(replace(honest, system="router")).missing is None


def test_asking_again_adds_nothing_where_no_question_needs_its_own_plan() -> None:
    constant = CASES["one workflow for all"].world(1).played
    assert judge(repeated(constant, NOTHING)).label == judge(constant).label


@pytest.mark.parametrize("name", [name for name in REPEATED if not REPEATED[name].labels])
def test_plans_of_chance_that_were_kept_for_their_luck_pass_until_they_are_planned_again(
    name: str,
) -> None:
    case = REPEATED[name]
    assert case.judge(2, replays=True, asked=True).label == "orchestration gain"
    assert case.is_right(case.world(2).judge(asked=True, again=True).label)


def test_a_first_round_that_nobody_looks_at_is_named() -> None:
    judgement = REPEATED["routing behind a round for show"].world(1).judge(again=True)
    assert judgement.label == "orchestration gain"
    assert "the look is no reason" in judgement.line


def test_a_second_round_that_looks_is_called_a_gain_with_its_reason() -> None:
    judgement = CASES["second round that looks"].world(1).judge(asked=True, again=True)
    assert judgement.label == "orchestration gain"
    assert "what its second rounds see brings them +" in judgement.line
    assert "the look is no reason" not in judgement.line
