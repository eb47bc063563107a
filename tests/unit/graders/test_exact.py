"""The exact grader."""

from __future__ import annotations

import pytest

from openconductor.errors import GradingError
from openconductor.graders.exact import ExactGrader
from openconductor.types import Problem

PROBLEM = Problem("p", "Take 4 17, double every number.", "8 34", "gym")


@pytest.mark.parametrize("answer", ["8 34", "  8 34\n", "8   34", "8\t34"])
async def test_blanks_do_not_matter(answer: str) -> None:
    grade = await ExactGrader().grade(PROBLEM, answer)
    assert (grade.correct, grade.extracted) == (True, "8 34")


@pytest.mark.parametrize("answer", ["", "34 8", "8 34 8", "8,34", "834", "The answer is 8 34", "８ 34"])
async def test_everything_else_does(answer: str) -> None:
    assert (await ExactGrader().grade(PROBLEM, answer)).correct is False


@pytest.mark.parametrize("reference", [8, None, ["8", "34"]])
async def test_a_reference_that_is_no_text_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p: got a reference of type"):
        await ExactGrader().grade(Problem("p", "What?", reference, "gym"), "8 34")
