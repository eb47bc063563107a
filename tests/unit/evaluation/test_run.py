"""Asking and grading: in order, at once, and no failure of the machinery counted as wrong."""

from __future__ import annotations

import asyncio

import pytest

from openconductor.errors import (
    AuthFailed,
    ConfigError,
    GradingError,
    JournalError,
    OpenConductorError,
    RateLimited,
    Refused,
    SandboxError,
    WorkflowError,
    WorkflowReason,
)
from openconductor.evaluation import Outcome, evaluate
from openconductor.graders.exact import ExactGrader
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Grade, Problem, Question, Usage

PROBLEMS = [Problem(f"p{index}", f"What is {index} + 1?", str(index + 1), "sums") for index in range(7)]


class Answers:
    """An orchestrator that answers from a table; counts how many questions are under way at once."""

    def __init__(self, **answers: str | OpenConductorError) -> None:
        self._answers = answers
        self.under_way = 0
        self.most = 0
        self.asked: list[tuple[Question, int]] = []

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        self.asked.append((question, sample))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        number = int(str(question).split()[2])
        try:
            for _ in range(8 - number):  # the first ones take longest
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        said = self._answers.get(f"p{number}", str(number + 1))
        if isinstance(said, AuthFailed):
            raise said
        if isinstance(said, OpenConductorError):
            return Episode(question, (), None, said, Usage(), 0.0)
        return Episode(question, (), said, None, Usage(), 0.0)


async def test_outcomes_come_in_the_order_of_the_problems_and_their_samples() -> None:
    known: list[Outcome] = []
    outcomes = await evaluate(Answers(), PROBLEMS, ExactGrader(), samples=2, on_result=known.append)
    assert [(outcome.problem.id, outcome.sample) for outcome in outcomes] == [
        (f"p{index}", sample) for index in range(7) for sample in range(2)
    ]
    assert [outcome.problem.id for outcome in known] != [outcome.problem.id for outcome in outcomes]
    assert sorted(map(id, known)) == sorted(map(id, outcomes))
    assert all(outcome.correct for outcome in outcomes)


async def test_the_sample_reaches_the_orchestrator() -> None:
    orchestrator = Answers()
    await evaluate(orchestrator, PROBLEMS[:2], ExactGrader(), samples=3)
    assert sorted(orchestrator.asked) == [(problem.question, sample) for problem in PROBLEMS[:2] for sample in range(3)]


@pytest.mark.parametrize(("concurrency", "expected"), [(1, 1), (3, 3), (64, 7)])
async def test_no_more_episodes_are_under_way_than_allowed(concurrency: int, expected: int) -> None:
    orchestrator = Answers()
    await evaluate(orchestrator, PROBLEMS, ExactGrader(), concurrency=concurrency)
    assert orchestrator.most == expected


async def test_wrong_answers_and_invalid_plans_and_refusals_count_as_wrong() -> None:
    invalid = WorkflowError(WorkflowReason.MISSING_LIST, "no lists")
    outcomes = await evaluate(Answers(p0="42", p1=invalid, p2=Refused("no")), PROBLEMS, ExactGrader())
    assert [outcome.correct for outcome in outcomes] == [False, False, False, True, True, True, True]
    assert outcomes[1].grade is None


async def test_failures_of_transport_and_grader_are_undecided() -> None:
    class Picky(ExactGrader):
        async def grade(self, problem: Problem, answer: str) -> Grade:
            if problem.id == "p1":
                raise SandboxError("no sandbox")
            if problem.id == "p2":
                raise GradingError("no verdict")
            if problem.id == "p3":
                raise KeyError("a bug")
            return await super().grade(problem, answer)

    outcomes = await evaluate(Answers(p0=RateLimited("too many")), PROBLEMS, Picky())
    assert [outcome.correct for outcome in outcomes] == [None, None, None, None, True, True, True]
    notes = [outcome.grade and outcome.grade.note for outcome in outcomes[:4]]
    assert notes == [None, "no sandbox", "no verdict", "KeyError: 'a bug'"]


async def test_an_error_that_stops_is_raised_as_it_is_and_cancels_what_runs() -> None:
    error = AuthFailed("the key is wrong")
    orchestrator = Answers(p6=error)
    with pytest.raises(AuthFailed) as caught:
        await evaluate(orchestrator, PROBLEMS, ExactGrader())
    assert caught.value is error
    assert orchestrator.under_way == 0


@pytest.mark.parametrize("error", [AuthFailed("the judge's key is wrong"), JournalError("disk full")])
async def test_an_error_of_the_grader_that_stops_is_raised_too(error: Exception) -> None:
    class Keyless(ExactGrader):
        async def grade(self, problem: Problem, answer: str) -> Grade:
            raise error

    with pytest.raises(type(error)) as caught:
        await evaluate(Answers(), PROBLEMS, Keyless())
    assert caught.value is error


async def test_what_the_listener_raises_ends_the_evaluation() -> None:
    def listen(outcome: Outcome) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await evaluate(Answers(), PROBLEMS, ExactGrader(), on_result=listen)


async def test_a_cancelled_evaluation_leaves_nothing_running() -> None:
    orchestrator = Answers()
    task = asyncio.create_task(evaluate(orchestrator, PROBLEMS, ExactGrader()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert orchestrator.under_way > 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert orchestrator.under_way == 0


async def test_no_problems_have_no_outcomes() -> None:
    assert await evaluate(Answers(), [], ExactGrader()) == []


@pytest.mark.parametrize(("concurrency", "samples"), [(0, 1), (1, 0)])
async def test_a_number_below_one_is_refused(concurrency: int, samples: int) -> None:
    with pytest.raises(ConfigError, match=f"concurrency {concurrency} and samples {samples}"):
        await evaluate(Answers(), PROBLEMS, ExactGrader(), concurrency=concurrency, samples=samples)
