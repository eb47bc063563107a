"""What becomes of plans elsewhere: who is dealt what, and what the figures make of it."""

from __future__ import annotations

import re

import pytest
from planted_records import make_record

from openconductor.evaluation.counterfactual import Rounds, Seen
from openconductor.report.plays.transplants import (
    Plays,
    Transplant,
    blank_plans,
    keep_shared_clauses,
    measure_plays,
    play_plans,
    requote,
    unread_workers,
)
from openconductor.types import Problem, Step, Workflow

WORKERS = {0: "anna", 1: "bert"}


def plan(subtask: str, worker: int = 0) -> Workflow:
    return Workflow([Step(worker, subtask)])


def problems(count: int) -> dict[tuple[str, str], Problem]:
    return {
        ("t", str(number)): Problem(str(number), f"How many is {number} tons?", "", "t")
        for number in range(count)
    }


async def test_a_plan_is_played_on_a_question_of_another_answer_and_follows_or_not() -> None:
    records = [
        make_record("conductor", number, True, plan(f"Say {'AB'[number % 2]}."), planned=True)
        for number in range(10)
    ]
    answered = []
    for place, record in enumerate(records):
        letter = "ab"[place % 2]
        answered.append(make_record(*_values(record), answer=letter, extracted=letter))

    async def watch(problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        told = rounds[0].steps[0].subtask[4:5].casefold()
        return Seen(1.0, told)

    plays = await play_plans(answered, problems(10), watch, WORKERS)
    away = [trial for trial in plays.transplants if trial.follows]
    assert len(away) == 10, "each plan brought its own answer where the home answer differs"
    assert sum(trial.chance for trial in plays.transplants) == 0, "and none where it agrees"


async def test_a_worker_that_answers_the_question_its_subtask_quotes_was_told_no_answer() -> None:
    asked = problems(10)
    answered = []
    for number in range(10):
        quoting = plan(f"Think, then answer: {asked['t', str(number)].question} Be brief.")
        record = make_record("conductor", number, True, quoting, planned=True)
        answered.append(make_record(*_values(record), answer=str(number), extracted=str(number)))

    async def watch(_problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        quoted = re.search(r"is (\d+) tons", rounds[0].steps[0].subtask)
        return Seen(1.0, quoted[1] if quoted else "")

    plays = await play_plans(answered, asked, watch, WORKERS)
    assert len(plays.transplants) == 10
    assert not any(trial.follows for trial in plays.transplants)


def test_a_quoted_question_is_known_across_line_breaks_and_without_its_choices() -> None:
    own = "What is the largest moon of Saturn?\nA. Titan\nB. Rhea"
    other = "Who wrote The Trial?\nA. Kafka\nB. Mann"
    assert requote("Think.\n\nWhat is the largest\nmoon of Saturn?", own, other) == (
        "Think.\n\nWho wrote The Trial?"
    )
    assert requote(f"Solve: {own}", own, other) == f"Solve: {other}"
    told = "It is Titan: what is the LARGEST moon?"
    assert requote(told, own, other) == told, "what is not word for word may carry an answer"


def _values(record) -> tuple[str, str, bool, Workflow]:
    return record.system, record.problem, True, record.workflows[0]


def test_words_and_numbers_of_a_question_are_blanked_and_those_of_most_plans_stay() -> None:
    records = [
        make_record("conductor", number, True, plan(f"Count the {number} tons well in 3 steps."))
        for number in range(10, 20)
    ]
    (constant,) = set(blank_plans(records, problems(20)))
    assert constant[0].steps[0].subtask == "Count the … tons well in 3 steps."


def test_only_what_the_plans_told_is_taken_off_a_lead() -> None:
    """Half of the plans follow, a fifth by chance: three in ten answers were told."""
    records = [make_record("conductor", number, True, plan("Solve it.")) for number in range(100)]
    keys = [record.key for record in records]
    trials = [Transplant(key, place % 2 == 0, 0.2) for place, key in enumerate(keys)]
    ones = {key: [1.0] for key in keys}
    plays = Plays(
        played=1,
        own=ones,
        strangers=ones,
        silent=ones,
        other_shape=ones,
        other_words=ones,
        constants=(),
        transplants=tuple(trials),
    )
    figures = measure_plays(plays, records, {key: [0.0] for key in keys})
    assert (figures.share, figures.chance) == (0.5, pytest.approx(0.2))
    assert figures.remaining is not None
    assert figures.remaining.value == pytest.approx(1 - 0.3 * 0.8)
    assert figures.constant is None


async def test_rounds_are_played_in_turn_and_a_second_round_goes_with_its_first() -> None:
    records = []
    for number in range(4):
        later = plan("Again.", 1) if number % 2 else Workflow(())
        records.append(make_record("conductor", number, True, plan("Solve it."), later))
    lengths: dict[str, set[int]] = {}

    async def watch(problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        lengths.setdefault(problem.id, set()).add(len(rounds))
        return Seen(float(len(rounds) == 1 + int(problem.id) % 2), "")

    plays = await play_plans(records, problems(4), watch, WORKERS)
    assert all(scores == [1.0] for scores in plays.own.values())
    assert any(scores == [0.0] for scores in plays.other_shape.values())


def test_a_worker_that_declines_or_is_cut_too_often_is_asked_once_more() -> None:
    read = [make_record("worker:anna", number, False) for number in range(19)]
    shy = [make_record("worker:bert", number, False, status="refused") for number in range(2)]
    told = [make_record("worker:bert", number, True) for number in range(2, 19)]
    assert unread_workers([*read, *shy, *told]) == ("worker:bert",)


async def test_errors_that_other_workers_make_count_less_those_that_need_no_words() -> None:
    """The workers obey a code; without it, every second one makes the same error by chance."""
    records = [make_record("conductor", number, False, plan("Code 7.")) for number in range(40)]

    async def watch(problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        obeyed = rounds[0].steps[0].subtask == "Code 7." or int(problem.id) % 2
        return Seen(0.0, "x" if obeyed else "y")

    plays = await play_plans(records, problems(40), watch, WORKERS)
    errors = measure_plays(plays, records, {}).errors
    assert errors is not None
    assert (errors.value, errors.problems) == (0.5, 40)


async def test_the_plans_of_repeats_and_of_other_seeds_take_turns() -> None:
    records = []
    for number in range(4):
        for sample, subtask in enumerate(("First.", "Second.")):
            records.append(make_record("conductor", number, True, plan(subtask), sample=sample))

    async def watch(_problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        return Seen(float(rounds[0].steps[0].subtask == "First."), "")

    plays = await play_plans(records, problems(4), watch, WORKERS)
    assert list(plays.own.values()) == [[1.0], [0.0], [1.0], [0.0]]


def test_a_guard_is_left_out_of_the_constant_that_stands_for_all() -> None:
    blanked = (plan("If this is question …: Take your time, and solve it. Else solve it."),)
    kept = keep_shared_clauses(blanked)
    assert kept[0].steps[0].subtask == "Take your time, and solve it. Else solve it."
    assert keep_shared_clauses((plan("Solve …."),)) == (plan("Solve …."),), "something stays"


def test_one_error_has_no_interval_and_is_left_out_of_the_figures() -> None:
    one = {("t", "1"): [0.0]}
    plays = Plays(
        played=1,
        own=one,
        strangers=one,
        silent=one,
        other_shape=one,
        other_words=one,
        constants=(),
        transplants=(Transplant(("t", "1"), follows=False, chance=0.0),),
        errors={("t", "1"): 1.0},
    )
    figures = measure_plays(plays, [make_record("conductor", 1, False)], {})
    assert (figures.errors, figures.follows) == (None, None)
