"""What is kept of a question: every fate by its name, and the way to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from openconductor.conductor import Conductor
from openconductor.errors import (
    ContextTooLong,
    JournalError,
    OpenConductorError,
    RateLimited,
    Refused,
    WorkerTimeout,
)
from openconductor.evaluation.records import Record, from_json, record_of, to_json
from openconductor.evaluation.run import Outcome, evaluate
from openconductor.graders.exact import ExactGrader
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import render_workflow
from openconductor.types import Completion, Grade, Message, Price, Problem, Step, Usage, Workflow

PROBLEM = Problem("p1", "What is 6 * 7?", "42", "sums", kind="easy")
TWO = Workflow([Step(0, "Think."), Step(0, "Answer — briefly.", "all")])


class Scripted:
    """A provider that says one thing, or fails in one way."""

    def __init__(self, said: str | OpenConductorError) -> None:
        self._said = said

    async def complete(self, messages: object, sampling: object, *, call: object, on_text: object = None) -> Completion:
        if isinstance(self._said, OpenConductorError):
            raise self._said
        return Completion(self._said, usage=Usage(input_tokens=10, output_tokens=5))


async def outcome_of(said: str | OpenConductorError, *, text: str = "", grade: Grade | None = None) -> Outcome:
    class Fixed:
        async def grade(self, problem: Problem, answer: str) -> Grade:
            assert grade is not None
            return grade

    price = Price(Decimal(1), Decimal(2))
    pool = WorkerPool([Worker(Scripted(said), name="w", price=price, retries=0)])
    plan: Callable[[list[Message]], str] = lambda _: text or render_workflow(TWO)  # noqa: E731
    conductor = Conductor(Worker(plan, name="planner", price=Price(Decimal(0), Decimal(0))), pool=pool)
    (outcome,) = await evaluate(conductor, [PROBLEM], ExactGrader() if grade is None else Fixed())
    return outcome


async def test_a_right_answer_is_kept_with_its_workflow_its_calls_and_its_bill() -> None:
    record = record_of(await outcome_of("42"), system="conductor")
    assert (record.correct, record.status, record.kind, record.answer) == (True, "graded", "easy", "42")
    assert record.workflows == (TWO,)
    assert record.valid is True
    assert record.rounds[0].outcomes == ("answered", "answered")
    assert record.calls == 3, "the planner's and two steps'"
    assert record.usage.dollars == 2 * (10 * Decimal(1) + 5 * Decimal(2)) / 1_000_000


@pytest.mark.parametrize(
    ("said", "options", "status", "correct"),
    [
        ("41", {}, "graded", False),
        ("42", {"text": "no lists"}, "invalid", False),
        (Refused("no"), {}, "refused", False),
        (ContextTooLong("too long"), {}, "refused", False),
        (RateLimited("slow down"), {}, "failed", None),
        (WorkerTimeout("late"), {}, "failed", None),
        ("42", {"grade": Grade(None, note="the sandbox failed")}, "ungraded", None),
        ("42", {"grade": Grade(False, note="unparsed: no letter")}, "unparsed", False),
        ("42", {"grade": Grade(True, note="unparsed boxes aside")}, "graded", True),
    ],
)
async def test_each_fate_has_its_name_and_failures_of_infrastructure_are_never_wrong(
    said: str | OpenConductorError, options: dict[str, Any], status: str, correct: bool | None
) -> None:
    record = record_of(await outcome_of(said, **options), system="conductor")
    assert (record.status, record.correct) == (status, correct)
    assert bool(record.error) == (status in ("invalid", "refused", "failed"))


async def test_an_invalid_plan_says_its_reason_and_is_not_valid() -> None:
    record = record_of(await outcome_of("42", text="no lists"), system="conductor")
    assert (record.valid, record.workflows, record.rounds[0].reason) == (False, (), "missing_list")


async def test_a_record_comes_back_equal_from_json_text() -> None:
    for said in ("42", RateLimited("slow down")):
        record = record_of(await outcome_of(said), system="worker:w")
        assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "fine"},
        {"usage": [1, 2]},
        {"usage": [0, 0, 0, 0, "much", 0, 0.0]},
        {"rounds": [{"steps": [[0]]}]},
        {"rounds": None},
    ],
)
async def test_what_is_no_record_is_a_journal_error(broken: dict[str, object]) -> None:
    data = to_json(record_of(await outcome_of("42"), system="conductor"))
    with pytest.raises(JournalError, match="record: got"):
        from_json(data | broken)
    with pytest.raises(JournalError):
        from_json({name: value for name, value in data.items() if name != "task"})


@pytest.mark.parametrize(
    ("failure", "valid"), [(RateLimited("slow down"), None), (WorkerTimeout("late"), None), (Refused("no"), False)]
)
async def test_a_planner_that_cannot_be_reached_is_neither_valid_nor_invalid(
    failure: OpenConductorError, valid: bool | None
) -> None:
    pool = WorkerPool([Worker(Scripted("42"), name="w", retries=0)])
    conductor = Conductor(Worker(Scripted(failure), name="planner", retries=0), pool=pool)
    (outcome,) = await evaluate(conductor, [PROBLEM], ExactGrader())
    record = record_of(outcome, system="conductor")
    assert record.valid is valid
    assert (record.correct is None) == (valid is None)


def test_only_what_a_conductor_wrote_is_valid_or_invalid() -> None:
    record = Record("worker:w", "t", "p", 0, "", True, "graded", "42", "42", "", (), 1, Usage(), 0.1)
    assert record.valid is None
