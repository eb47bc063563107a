"""The gym as a benchmark."""

from __future__ import annotations

import pytest

from openconductor.errors import TaskError
from openconductor.gym.questions import draw_questions, read_question
from openconductor.gym.world import write_value
from openconductor.tasks.gym import GymTask


def test_the_problems_of_a_split_are_drawn_by_seed() -> None:
    problems = GymTask(limit=20, seed=3).load("validation")
    assert [problem.question for problem in problems] == [
        question.text for question in draw_questions("validation", 20, seed=3)
    ]
    assert {problem.task for problem in problems} == {"gym"}
    assert len({problem.id for problem in problems}) == 20
    assert GymTask(limit=20, seed=4).load("validation") != problems


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(TaskError, match="got split 'dev', expected one of train, validation, test"):
        GymTask().load("dev")


async def test_the_grader_accepts_every_right_answer_and_no_other_ones() -> None:
    task = GymTask(limit=60)
    problems = task.load("test")
    for problem, other in zip(problems, [*problems[1:], problems[0]], strict=True):
        question = read_question(problem.question)
        assert question is not None
        assert (await task.grader.grade(problem, write_value(question.answer))).correct is True
        assert (await task.grader.grade(problem, str(other.reference))).correct is False
        assert (await task.grader.grade(problem, write_value(question.value))).correct is False
