"""Headroom of a pool, the best of several, and the gym's table of the demo."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from statistics import fmean
from typing import Any

import pytest
from rows_of import record

from openconductor.baselines.consensus import Consensus
from openconductor.baselines.single import SingleWorker
from openconductor.calls.cards import Count
from openconductor.conductor import Conductor
from openconductor.errors import AuthFailed, ConfigError, RateLimited
from openconductor.evaluation import evaluate
from openconductor.evaluation.gym_table import gym_table
from openconductor.evaluation.headroom import (
    best_single,
    calibrate,
    corrected_oracle,
    headroom,
    outcome_matrix,
    questions_needed,
)
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Scores
from openconductor.graders.exact import ExactGrader
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.questions import draw_questions, read_question
from openconductor.gym.workers import gym_pool
from openconductor.prompt import PromptOptions, render_workflow
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Message, Step, Usage, Workflow

MARKS = {True: "+", False: "-", None: "f"}


def answers(rows: Mapping[str, Sequence[Sequence[bool | None]]]) -> list[Record]:
    """Return records of workers: for each the repeats of each question."""
    records: list[Record] = []
    for name, questions in rows.items():
        place = {"system": f"worker:{name}", "kind": "", "usage": Usage(), "answer": None}
        for number, repeats in enumerate(questions):
            for sample, correct in enumerate(repeats):
                records.append(record(MARKS[correct], f"q{number:03}", sample, **place))
    return records


def coin(name: str, chances: Sequence[float], repeats: int) -> list[list[bool]]:
    rng = random.Random(name)
    return [[rng.random() < chance for _ in range(repeats)] for chance in chances]


def test_a_small_matrix_worked_out_by_hand() -> None:
    yes, no = [True], [False]
    room = headroom(answers({"a": [yes, yes, no, no], "b": [no, yes, yes, no], "c": [no] * 4}))
    assert (room.best, room.questions, room.repeats, room.masked) == ("a", 4, 1, 0)
    assert room.oracle_naive.value == 0.75
    assert room.best_naive.value == 0.5
    assert room.room_naive.value == 0.25
    assert room.oracle_corrected is None, "single answers cannot be told from luck"
    assert room.room_corrected is None
    assert room.got_by == (1, 2, 1, 0)
    assert [worker.only.value for worker in room.workers] == [0.25, 0.25, 0.0]
    assert [worker.loss.value for worker in room.workers] == [0.25, 0.25, 0.0]
    assert room.complementary == ((0.0, 0.25, 0.5), (0.25, 0.0, 0.5), (0.0, 0.0, 0.0))
    patterns = {pattern.workers: pattern.questions for pattern in room.patterns}
    assert patterns == {("a",): 1, ("a", "b"): 1, ("b",): 1, (): 1}


def test_the_matrix_has_a_row_a_question_and_none_where_nothing_was_decided() -> None:
    matrix = outcome_matrix(answers({"a": [[True, False], [None]], "b": [[True, None], [False]]}))
    assert matrix["workers"] == ["a", "b"]
    assert matrix["questions"] == [("t", "q000", ""), ("t", "q001", "")]
    assert matrix["right"] == [[0.5, 1.0], [None, 0.0]]


def test_specialists_have_a_headroom_and_each_is_needed() -> None:
    rows: dict[str, list[list[bool]]] = {}
    for place in range(3):
        chances = [0.9 if number % 3 == place else 0.1 for number in range(240)]
        rows[f"w{place}"] = coin(f"w{place}", chances, 4)
    room = headroom(answers(rows))
    assert room.room_corrected.value == pytest.approx(0.9 - 0.367, abs=0.08)
    assert [worker.redundant for worker in room.workers] == [False, False, False]


def test_a_worker_that_is_never_right_is_redundant_and_luck_is_no_headroom() -> None:
    good, bad = coin("good", [0.8] * 300, 3), coin("bad", [0.0] * 300, 3)
    room = headroom(answers({"good": good, "bad": bad}))
    assert {worker.name: worker.redundant for worker in room.workers} == {
        "good": False,
        "bad": True,
    }
    room = headroom(answers({name: coin(name, [0.5] * 120, 3) for name in "abcd"}))
    assert room.room_naive.low > 0.15
    assert abs(room.room_corrected.value) < 0.12


def test_so_many_questions_show_the_gain_four_times_in_five() -> None:
    """Connor, Biometrics 43 (1987): two systems that differ on three questions in ten."""
    assert questions_needed(0.1, 0.3) == 234
    assert questions_needed(0.2, 0.3) == 57


# ── the best of several ───────────────────────────────────────────────────────────────────────────
def test_a_calibration_counts_what_could_not_be_decided_as_a_whole_and_by_category() -> None:
    marks = "+" * 25 + "u" * 35
    of_kind = [record(mark, f"q{place}", kind="law") for place, mark in enumerate(marks)]
    others = [record("-", f"r{place}", kind="art") for place in range(20)]
    calibrations, too_few = calibrate([*of_kind, *others, record("+", "s")], date(2026, 11, 24))
    measured = calibrations["t"]
    assert (measured.right, measured.n, measured.answers) == (26, 46, 81)
    assert measured.categories["law"] == Count(25, 25, answers=60)
    assert measured.categories["art"] == Count(0, 20, answers=20)
    assert too_few == {"easy": 1}


def keyed(*by_problem: list[float]) -> Scores:
    return {("t", f"p{place:03}"): scores for place, scores in enumerate(by_problem)}


def mean(scores: Scores) -> float:
    return fmean(fmean(of_one) for of_one in scores.values())


def test_a_question_is_scored_by_the_system_that_is_best_on_the_others() -> None:
    # Each is right on one of two questions: outside p000 the second is best, which is wrong on
    # p000; and so with p001.
    best = best_single({"first": keyed([1.0], [0.0]), "second": keyed([0.0], [1.0])})
    assert best.name == "first"
    assert mean(best.naive) == 0.5
    assert best.fitted == {("t", "p000"): [0.0], ("t", "p001"): [0.0]}
    assert best.chosen == {"first": 0.5, "second": 0.5}


def test_one_that_failed_on_all_but_an_easy_question_is_not_the_best() -> None:
    best = best_single({"broken": keyed([1.0]), "good": keyed(*[[1.0]] * 9, [0.0])})
    assert best.name == "good"
    assert mean(best.naive) == 0.9
    assert best.chosen == {"good": 1.0}


@pytest.mark.parametrize(
    ("scores", "corrected"),
    [
        # Repeat 0 is scored by who is best on repeats 1 and 2: a (1/2) over b (0): a's 1. Repeat 1:
        # a by 2/2: a's 0 ...
        ({"a": [1.0, 0.0, 1.0], "b": [0.0, 0.0, 0.0]}, 2 / 3),
        # Of equals each counts. Held out 0: both have 0 on the rest: the mean of 1 and 0. Held out
        # 1: a's 0.
        ({"a": [1.0, 0.0], "b": [0.0, 0.0]}, 0.25),
        ({"a": [0.0, 0.0], "b": [1.0]}, 0.0),  # with one decided repeat b is left out
    ],
)
def test_the_corrected_oracle_chooses_by_the_other_repeats(
    scores: dict[str, list[float]], corrected: float
) -> None:
    oracle = corrected_oracle({name: keyed(repeats) for name, repeats in scores.items()})
    assert oracle == {("t", "p000"): [pytest.approx(corrected)]}


QUESTIONS = 48

DRAWN = draw_questions("test", QUESTIONS, seed=5)


def plan_with_oracle(messages: list[Message]) -> str:
    """Write the oracle's workflow, but none for questions of the kind ``single``."""
    question = read_question(messages[-1].content.split("Question: ")[1].strip())
    if question.kind == "single":
        return "pass"
    workflow, _ = oracle_workflow(question)
    return render_workflow(workflow)


# ── the gym's table ───────────────────────────────────────────────────────────────────────────────


async def table_of(planner: Callable[[list[Message]], str]) -> dict[str, Any]:
    conductor = Conductor(planner, pool=gym_pool(5), prompt=PromptOptions(template="compact"))
    table = await gym_table(conductor, questions=QUESTIONS, seed=5)
    return table.to_json()


async def test_an_invalid_plan_counts_as_wrong_and_in_validity() -> None:
    table = await table_of(plan_with_oracle)
    valid = sum(question.kind != "single" for question in DRAWN) / QUESTIONS
    assert table["validity"] == pytest.approx(valid)
    assert table["accuracy_given_valid"] == pytest.approx(table["accuracy"]["conductor"] / valid)
    assert table["mean_steps_by_kind"]["single"] is None
    assert table["masked"] == 0


async def test_the_vote_has_as_many_answers_as_one_of_the_conductors_costs() -> None:
    table = await table_of(plan_with_oracle)
    pool = gym_pool(5)
    problems = find_simulation("gym").draw("test", QUESTIONS, seed=5)
    best = max(table["workers"], key=table["workers"].get)
    alone = await evaluate(SingleWorker(pool, best), problems, ExactGrader())
    dollars = sum(outcome.episode.usage.dollars for outcome in alone)
    assert table["votes"] == round(table["usage"]["dollars"] / float(dollars)) > 1
    outcomes = await evaluate(Consensus(pool, best, n=table["votes"]), problems, ExactGrader())
    decided = [outcome.correct for outcome in outcomes if outcome.correct is not None]
    assert table["accuracy"]["vote"] == pytest.approx(fmean(decided))


async def test_a_conductor_without_a_valid_plan_has_no_figures_of_plans() -> None:
    table = await table_of(lambda messages: "I would rather not.")
    assert table["accuracy"]["conductor"] == table["validity"] == 0.0
    assert table["accuracy_given_valid"] is table["mean_steps"] is None
    assert table["routing_entropy_bits"] == 0.0
    assert dict(table["topology_share"]) == {}
    json.dumps(table)


async def test_a_failure_of_the_conductors_provider_is_left_out_and_said() -> None:
    def plan(messages: list[Message]) -> str:
        if "smudged" in messages[-1].content:
            raise RateLimited("too many")
        return render_workflow(Workflow([Step(0, "Answer.")]))

    table = await table_of(plan)
    assert table["masked"] == sum(question.smudged for question in DRAWN)
    assert table["validity"] == 1.0


@pytest.mark.parametrize("error", [RateLimited("too many"), AuthFailed("the key is wrong")])
async def test_a_provider_that_always_fails_is_an_error_and_no_table(error: Exception) -> None:
    def fail(messages: list[Message]) -> str:
        raise error

    with pytest.raises(type(error)):
        await table_of(fail)
    with pytest.raises(ConfigError, match="got 0"):
        await gym_table(Conductor(fail, pool=gym_pool()), questions=0)
