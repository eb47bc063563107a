"""Asking and grading, what is kept of a question, and records in order."""

from __future__ import annotations

import asyncio
import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
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
from openconductor.pool import Worker
from openconductor.store import Journal
from openconductor.store.serialisation import load, plain
from openconductor.testing import PRICE, Scripted, pool_of
from openconductor.types import (
    Episode,
    Grade,
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
    """An orchestrator that is right, and counts how many questions are under way at once."""

    def __init__(self) -> None:
        self.under_way = self.most = 0

    async def ask(self, question, *, budget=None, on_event=None, context=None) -> Episode:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        number = int(str(question).split()[2])
        for _ in range(8 - number):  # the first ones take longest
            await asyncio.sleep(0)
        self.under_way -= 1
        return Episode(question, (), str(number + 1), None, Usage(), 0.0)


async def test_outcomes_come_in_the_order_of_the_problems_and_their_samples() -> None:
    known: list[Outcome] = []
    outcomes = await evaluate(Answers(), PROBLEMS, ExactGrader(), samples=2, on_result=known.append)
    keys = [(outcome.problem.id, outcome.sample) for outcome in outcomes]
    names = [problem.id for problem in PROBLEMS]
    assert keys == list(itertools.product(names, range(2)))
    assert known != outcomes
    assert sorted(map(id, known)) == sorted(map(id, outcomes))
    assert all(outcome.correct for outcome in outcomes)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (64, 7)])
async def test_no_more_episodes_are_under_way_than_allowed(concurrency: int, most: int) -> None:
    orchestrator = Answers()
    await evaluate(orchestrator, PROBLEMS, ExactGrader(), concurrency=concurrency)
    assert orchestrator.most == most


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────
PROBLEM = Problem("p1", "What is 6 * 7?", "42", "sums", kind="easy")
TWO = Workflow([Step(0, "Think."), Step(0, "Answer — briefly.", "all")])


async def record_for(
    answer: str | errors.OpenConductorError = "42",
    *,
    plan: Any = TWO,
    grade: Grade | None = None,
) -> Record:
    """Return what is kept of one question, by what the worker and the planner answer."""

    class Fixed:
        async def grade(self, problem: Problem, answer: str) -> Grade:
            return grade

    planner = Worker(Scripted(plan), name="planner", price=Price(Decimal(0), Decimal(0)), retries=0)
    pool = pool_of(answer, price=PRICE, retries=0)
    grader = ExactGrader() if grade is None else Fixed()
    (outcome,) = await evaluate(Conductor(planner, pool=pool), [PROBLEM], grader)
    return record_of(outcome, system="conductor")


async def test_a_right_answer_is_kept_with_its_workflow_its_calls_and_its_bill() -> None:
    kept = await record_for()
    assert (kept.correct, kept.status, kept.kind, kept.answer) == (True, "graded", "easy", "42")
    assert kept.workflows == (TWO,)
    assert kept.valid is True
    assert kept.rounds[0].outcomes == ("answered", "answered")
    assert kept.calls == 3, "the planner's and two steps'"
    assert kept.usage.dollars == 2 * Decimal("0.00002")


@pytest.mark.parametrize(
    ("options", "status", "correct"),
    [
        ({"answer": "41"}, "graded", False),
        ({"plan": "no lists"}, "invalid", False),
        ({"answer": errors.Refused("no")}, "refused", False),
        ({"answer": errors.ContextTooLong("too long")}, "refused", False),
        ({"answer": errors.RateLimited("slow down")}, "failed", None),
        ({"answer": errors.WorkerTimeout("late")}, "failed", None),
        ({"grade": Grade(None, note="the sandbox failed")}, "ungraded", None),
        ({"grade": Grade(False, note="unparsed: no letter")}, "unparsed", False),
        ({"grade": Grade(True, note="unparsed boxes aside")}, "graded", True),
    ],
)
async def test_each_fate_has_its_name_and_failures_of_infrastructure_are_never_wrong(
    options: dict[str, Any], status: str, correct: bool | None
) -> None:
    kept = await record_for(**options)
    assert (kept.status, kept.correct) == (status, correct)
    assert bool(kept.error) == (status in ("invalid", "refused", "failed"))
    assert load(Record, json.loads(json.dumps(plain(kept)))) == kept


@pytest.mark.parametrize(
    "broken",
    [{"status": "fine"}, {"usage": {"dollars": "much"}}, {"rounds": [{"workflow": [[0]]}]}],
)
async def test_what_is_not_a_record_is_a_journal_error(
    broken: dict[str, object], tmp_path: Path
) -> None:
    kept: Any = plain(await record_for())
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.put_record("a", kept)
        await journal.wait_durable()
        assert [record.problem for record in kept_records(journal)] == ["p1"]
        journal.put_record("a", kept | broken)
        await journal.wait_durable()
        with pytest.raises(errors.JournalError, match="got a record that is not an evaluation's"):
            kept_records(journal)


@pytest.mark.parametrize(
    ("failure", "valid"), [(errors.RateLimited("slow down"), None), (errors.Refused("no"), False)]
)
async def test_a_planner_that_cannot_be_reached_is_neither_valid_nor_invalid(
    failure, valid
) -> None:
    kept = await record_for(plan=failure)
    assert kept.valid is valid
    assert (kept.correct is None) == (valid is None)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
# ── results ───────────────────────────────────────────────────────────────────────────────────────
def test_records_are_in_the_recipes_order_whatever_order_they_came_in() -> None:
    systems, tasks = ("worker:bob", "conductor"), ("b", "a")
    made: list[Record] = []
    for task, system in itertools.product("ba", systems):
        made += records(["+-", "-+"], system=system, task=task)
    results = results_of(made, systems, tasks=tasks, repeats=2)
    keys = [(kept.system, kept.task, kept.problem, kept.sample) for kept in results.records]
    assert keys == list(itertools.product(systems, tasks, ("p0", "p1"), (0, 1)))
    assert results == results_of(made[::-1], systems, tasks=tasks, repeats=2)
    assert {kept.system for kept in results.of("conductor")} == {"conductor"}


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
    """Choose for p0 bob, 2 of 2; for p1 ann, the first of equals; for p2 bob, 1 of 1 decided."""
    made = [
        *records(["+-", "--", "--"], system="worker:ann", task="a"),
        *records(["++", "--", "f+"], system="worker:bob", task="a"),
        *records(["+"], system="worker:ann", task="b"),
        *records(["-"], system="worker:bob", task="b"),
    ]
    best = hindsight(made, ["ann", "bob"])
    assert {kept.system for kept in best} == {"oracle_observed"}
    marks: dict[str, list[bool | None]] = {}
    for kept in best:
        marks.setdefault(kept.task + kept.problem, []).append(kept.correct)
    assert marks == {
        "ap0": [True, True],
        "ap1": [False, False],
        "ap2": [None, True],
        "bp0": [True],
    }


# ── observations ──────────────────────────────────────────────────────────────────────────────────
def test_observations_are_shares_of_what_was_decided_and_first_answers() -> None:
    made = records(["+-f", "uff"], system="worker:ann") + records(["+"])
    made.append(record("-", "p0", 1, system="worker:bob", answer="second"))
    made.append(record("+", "p0", 0, system="worker:bob", answer="first"))
    made.append(record("+", "p3", system="worker:bob"))
    seen = observations(made, {"p0": "What?", "p1": "Why?"}, ["ann", "bob"])
    assert seen.questions == ("What?", "Why?")
    assert seen.workers == ("ann", "bob")
    assert seen.right == ((0.5, 0.5), (None, None))
    assert seen.answers == (("42", "first"), ("42", None))


# ── the frame ─────────────────────────────────────────────────────────────────────────────────────
# ── the frame ─────────────────────────────────────────────────────────────────────────────────────
def test_a_frame_has_a_row_an_answer_with_unknown_as_missing_and_one_dtype_a_column() -> None:
    usage = Usage(3, 1, 2, dollars=Decimal("0.5"))
    answered = record("+", "p1", rounds=planned(TWO, None), usage=usage)
    lost = record("u", "p2", answer=None, extracted=None)
    frame = results_of([lost, answered], ["conductor"]).frame()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
    right, masked = frame.to_dict("records")
    known = {"problem": "p1", "score": 1, "correct": 1, "valid": 1, "rounds": 2, "steps": 2}
    known |= {"input_tokens": 3, "dollars": 0.5}
    assert known.items() <= right.items()
    assert (masked["problem"], masked["status"]) == ("p2", "ungraded")
    missing = frame.columns[frame.loc[1].isna()]
    assert [*missing] == ["correct", "score", "answer", "extracted", "valid"]
    assert list(results_of([], ["conductor"]).frame().columns) == list(COLUMNS)
