"""Asking and grading, what is kept of a question, and records in order."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from journaled import Sayer
from rows_of import planned, record, records, results_of

from openconductor import errors
from openconductor.conductor import Conductor
from openconductor.evaluation import Outcome, evaluate
from openconductor.evaluation.records import (
    COLUMNS,
    Record,
    hindsight,
    kept_records,
    observations,
    record_of,
)
from openconductor.graders.exact import ExactGrader
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.store import Journal
from openconductor.store.serialisation import load, plain
from openconductor.types import (
    Completion,
    Episode,
    Grade,
    Message,
    Price,
    Problem,
    Step,
    Usage,
    Workflow,
)

PROBLEMS = [
    Problem(f"p{index}", f"What is {index} + 1?", str(index + 1), "sums") for index in range(7)
]


class Answers:
    """An orchestrator that answers from a table.

    Counts how many questions are under way at once.
    """

    def __init__(self, **answers: errors.OpenConductorError) -> None:
        self._answers = answers
        self.under_way = self.most = 0

    async def ask(self, question, *, budget=None, on_event=None, context=None) -> Episode:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        number = int(str(question).split()[2])
        try:
            for _ in range(8 - number):  # the first ones take longest
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        error = self._answers.get(f"p{number}")
        if isinstance(error, errors.AuthFailed):
            raise error
        return Episode(question, (), None if error else str(number + 1), error, Usage(), 0.0)


async def test_outcomes_come_in_the_order_of_the_problems_and_their_samples() -> None:
    known: list[Outcome] = []
    outcomes = await evaluate(Answers(), PROBLEMS, ExactGrader(), samples=2, on_result=known.append)
    assert [(outcome.problem.id, outcome.sample) for outcome in outcomes] == [
        (f"p{index}", sample) for index in range(7) for sample in range(2)
    ]
    assert [outcome.problem.id for outcome in known] != [outcome.problem.id for outcome in outcomes]
    assert sorted(map(id, known)) == sorted(map(id, outcomes))
    assert all(outcome.correct for outcome in outcomes)


async def test_no_more_episodes_are_under_way_than_allowed() -> None:
    for concurrency, expected in ((1, 1), (3, 3), (64, 7)):
        orchestrator = Answers()
        await evaluate(orchestrator, PROBLEMS, ExactGrader(), concurrency=concurrency)
        assert orchestrator.most == expected


async def test_an_error_that_stops_is_raised_as_it_is_and_cancels_what_runs() -> None:
    error = errors.AuthFailed("the key is wrong")
    orchestrator = Answers(p6=error)
    with pytest.raises(errors.AuthFailed) as caught:
        await evaluate(orchestrator, PROBLEMS, ExactGrader())
    assert caught.value is error
    assert orchestrator.under_way == 0


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────
PROBLEM = Problem("p1", "What is 6 * 7?", "42", "sums", kind="easy")
TWO = Workflow([Step(0, "Think."), Step(0, "Answer — briefly.", "all")])


def saying(said: str | errors.OpenConductorError) -> Sayer:
    """A provider that says one thing, or fails in one way."""
    usage = Usage(input_tokens=10, output_tokens=5)
    return Sayer(Completion(said, usage=usage) if isinstance(said, str) else said)


async def outcome_of(
    said: str | errors.OpenConductorError, *, text: str = "", grade: Grade | None = None
) -> Outcome:
    class Fixed:
        async def grade(self, problem: Problem, answer: str) -> Grade:
            assert grade is not None
            return grade

    price = Price(Decimal(1), Decimal(2))
    pool = WorkerPool([Worker(saying(said), name="w", price=price, retries=0)])
    plan: Callable[[list[Message]], str] = lambda _: text or render_workflow(TWO)  # noqa: E731
    conductor = Conductor(
        Worker(plan, name="planner", price=Price(Decimal(0), Decimal(0))), pool=pool
    )
    (outcome,) = await evaluate(conductor, [PROBLEM], ExactGrader() if grade is None else Fixed())
    return outcome


async def test_a_right_answer_is_kept_with_its_workflow_its_calls_and_its_bill() -> None:
    kept = record_of(await outcome_of("42"), system="conductor")
    assert kept.correct is True
    assert kept.status == "graded"
    assert kept.kind == "easy"
    assert kept.answer == "42"
    assert kept.workflows == (TWO,)
    assert kept.valid is True
    assert kept.rounds[0].outcomes == ("answered", "answered")
    assert kept.calls == 3, "the planner's and two steps'"
    assert kept.usage.dollars == 2 * (10 * Decimal(1) + 5 * Decimal(2)) / 1_000_000


@pytest.mark.parametrize(
    ("said", "options", "status", "correct"),
    [
        ("41", {}, "graded", False),
        ("42", {"text": "no lists"}, "invalid", False),
        (errors.Refused("no"), {}, "refused", False),
        (errors.ContextTooLong("too long"), {}, "refused", False),
        (errors.RateLimited("slow down"), {}, "failed", None),
        (errors.WorkerTimeout("late"), {}, "failed", None),
        ("42", {"grade": Grade(None, note="the sandbox failed")}, "ungraded", None),
        ("42", {"grade": Grade(False, note="unparsed: no letter")}, "unparsed", False),
        ("42", {"grade": Grade(True, note="unparsed boxes aside")}, "graded", True),
    ],
)
async def test_each_fate_has_its_name_and_failures_of_infrastructure_are_never_wrong(
    said: str | errors.OpenConductorError,
    options: dict[str, Any],
    status: str,
    correct: bool | None,
) -> None:
    kept = record_of(await outcome_of(said, **options), system="conductor")
    assert kept.status == status
    assert kept.correct == correct
    assert bool(kept.error) == (status in ("invalid", "refused", "failed"))


async def test_a_record_comes_back_equal_from_json_text() -> None:
    for said in ("42", errors.RateLimited("slow down")):
        kept = record_of(await outcome_of(said), system="worker:w")
        assert load(Record, json.loads(json.dumps(plain(kept)))) == kept


@pytest.mark.parametrize(
    "broken",
    [{"status": "fine"}, {"usage": {"dollars": "much"}}, {"rounds": [{"workflow": [[0]]}]}],
)
async def test_what_is_not_a_record_is_a_journal_error(
    broken: dict[str, object], tmp_path: Path
) -> None:
    kept: Any = plain(record_of(await outcome_of("42"), system="conductor"))
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.put_record("a", kept)
        await journal.wait_durable()
        assert [one.problem for one in kept_records(journal)] == ["p1"]
        journal.put_record("a", kept | broken)
        await journal.wait_durable()
        with pytest.raises(errors.JournalError, match="got a record that is not an evaluation's"):
            kept_records(journal)


@pytest.mark.parametrize(
    ("failure", "valid"),
    [
        (errors.RateLimited("slow down"), None),
        (errors.WorkerTimeout("late"), None),
        (errors.Refused("no"), False),
    ],
)
async def test_a_planner_that_cannot_be_reached_is_neither_valid_nor_invalid(
    failure, valid
) -> None:
    pool = WorkerPool([Worker(saying("42"), name="w", retries=0)])
    conductor = Conductor(Worker(saying(failure), name="planner", retries=0), pool=pool)
    (outcome,) = await evaluate(conductor, [PROBLEM], ExactGrader())
    kept = record_of(outcome, system="conductor")
    assert kept.valid is valid
    assert (kept.correct is None) == (valid is None)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def test_records_are_in_the_recipes_order_whatever_order_they_came_in() -> None:
    names = (("worker:bob", "conductor"), ("b", "a"), ("p0", "p1"), (0, 1))
    found: list[Record] = []
    for task, system in itertools.product("ba", names[0]):
        found += records(["+-", "-+"], system=system, task=task)
    results = results_of(found, names[0], tasks=names[1], repeats=2)
    keys = [(one.system, one.task, one.problem, one.sample) for one in results.records]
    assert keys == list(itertools.product(*names))
    assert results == results_of(found[::-1], names[0], tasks=names[1], repeats=2)
    assert {one.system for one in results.of("conductor")} == {"conductor"}


@pytest.mark.parametrize(("expected", "missing"), [({"t": 2}, 1), ({"t": 3}, 3), ({}, 0)])
def test_what_a_whole_run_would_have_beyond_is_missing(
    expected: dict[str, int], missing: int
) -> None:
    found = [*records(["+", "-"], system="conductor"), *records(["+"], system="worker:ann")]
    assert results_of(found, ["conductor", "worker:ann"], expected=expected).missing == missing


def test_a_repeat_that_stands_there_twice_is_not_counted_as_two() -> None:
    with pytest.raises(
        errors.ConfigError, match=r"got \('conductor', 't', 'p0', 0\) more than once"
    ):
        results_of([*records(["+"]), *records(["+", "-"])], ["conductor"])


# ── hindsight ─────────────────────────────────────────────────────────────────────────────────────
def test_hindsight_is_for_each_problem_and_task_the_worker_that_did_best_of_ties_the_first() -> (
    None
):
    found = [
        *records(["+-", "--", "--"], system="worker:ann", task="a"),
        *records(["++", "--", "f+"], system="worker:bob", task="a"),
        *records(["+"], system="worker:ann", task="b"),
        *records(["-"], system="worker:bob", task="b"),
    ]
    best = hindsight(found, ["ann", "bob"])
    assert {one.system for one in best} == {"oracle_observed"}
    # p0: bob, 2 of 2. p1: ann, the first of equals. p2: bob, 1 of the 1 that was decided; the other
    # stays masked.
    marks = [(one.task, one.problem, one.sample, one.correct) for one in best]
    assert sorted(marks, key=str) == [
        *(("a", "p0", 0, True), ("a", "p0", 1, True), ("a", "p1", 0, False), ("a", "p1", 1, False)),
        *(("a", "p2", 0, None), ("a", "p2", 1, True), ("b", "p0", 0, True)),
    ]


# ── observations ──────────────────────────────────────────────────────────────────────────────────
def test_observations_are_shares_of_what_was_decided_and_first_answers() -> None:
    found = [
        *records(["+-f", "uff"], system="worker:ann"),
        record("-", "p0", 1, system="worker:bob", answer="second"),
        record("+", "p0", 0, system="worker:bob", answer="first"),
        *records(["+"], system="conductor"),
        *records(["+++"] * 4, system="worker:bob", task="t")[-1:],
    ]
    seen = observations(found, {"p0": "What?", "p1": "Why?"}, ["ann", "bob"])
    assert seen.questions == ("What?", "Why?")
    assert seen.workers == ("ann", "bob")
    assert seen.right == ((0.5, 0.5), (None, None))
    assert seen.answers == (("42", "first"), ("42", None))


# ── the frame ─────────────────────────────────────────────────────────────────────────────────────
def test_a_frame_has_a_row_an_answer_with_unknown_as_missing_and_one_dtype_a_column() -> None:
    flows = planned(TWO, None)
    answered = record("+", "p1", rounds=flows, usage=Usage(3, 1, 2, dollars=Decimal("0.5")))
    lost = record("u", "p2", answer=None, extracted=None)
    frame = results_of([lost, answered], ["conductor"]).frame()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
    right, masked = frame.to_dict("records")
    assert right["problem"] == "p1"
    assert right["score"] == 1
    assert right["correct"] == 1
    assert right["valid"] == 1
    assert right["rounds"] == 2
    assert right["steps"] == 2
    assert right["input_tokens"] == 3
    assert right["dollars"] == 0.5
    assert frame.isna().loc[1][lambda missing: missing].index.tolist() == [
        "correct",
        "score",
        "answer",
        "extracted",
        "valid",
    ]
    assert masked["problem"] == "p2"
    assert masked["status"] == "ungraded"
    assert list(results_of([], ["conductor"]).frame().columns) == list(COLUMNS)
