"""The golden cases of the math, choice and free-form graders, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openconductor.graders.choice import ChoiceGrader
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader
from openconductor.graders.math import MathGrader
from openconductor.types import Grade, Problem


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    lines = Path(__file__).with_name(f"{name}.jsonl").read_text("ascii").splitlines()
    return [json.loads(line) for line in lines]


def named(name: str) -> pytest.MarkDecorator:
    """One test a case."""
    return pytest.mark.parametrize("case", cases(name), ids=lambda case: case["name"])


@named("math")
async def test_a_golden_formula_is_graded_as_it_should(case: dict[str, Any]) -> None:
    pytest.importorskip("sympy")
    problem = Problem("p", "", case["reference"], "t")
    grade = await MathGrader(case.get("tolerance")).grade(problem, case["answer"])
    unparsed = case.get("unparsed", False)
    assert grade.correct is case["correct"], (case["why"], grade)
    assert grade.note.startswith("unparsed") is unparsed
    assert (grade.extracted is None) is unparsed


@named("choice")
async def test_a_golden_choice_is_read_as_it_should(case: dict[str, Any]) -> None:
    grader = ChoiceGrader(case["letters"], style=case["style"])
    for letter in case["letters"]:
        grade = await grader.grade(Problem("p", "", letter, "t"), case["answer"])
        assert grade.extracted == case["letter"], case["why"]
        assert grade.correct is (letter == case["letter"])
        assert grade.note.startswith("unparsed") is (case["letter"] is None)


@named("freeform")
async def test_a_golden_free_form_is_graded_as_it_should(case: dict[str, Any]) -> None:
    pytest.importorskip("sympy")
    reference = FreeFormAnswer(case["reference"], case.get("kind"), case.get("tolerance"))
    grade: Grade = await FreeFormGrader().grade(Problem("p", "", reference, "t"), case["answer"])
    assert grade.correct is case["correct"], (case["why"], grade)


def pairs() -> list[tuple[str, str, bool | None]]:
    """Return the reference, the answer and the verdict of each free-form pair."""
    lines = Path(__file__).with_name("freeform_pairs.txt").read_text("utf-8").splitlines()
    found: list[tuple[str, str, bool | None]] = []
    for line in lines[2:]:
        reference, *groups = [part.strip() for part in f"{line} ".split(" | ")]
        for verdict, group in zip((True, False, None), groups, strict=False):
            answers = [answer.strip() for answer in group.removesuffix("|").split(" ; ")]
            found += [(reference, answer, verdict) for answer in answers if answer]
    return found


async def test_free_form_pairs_are_right_wrong_or_undecided_as_they_should() -> None:
    pytest.importorskip("sympy")
    grader = FreeFormGrader()
    amiss: list[tuple[str, str, Grade]] = []
    for reference, answer, verdict in pairs():
        reply = answer if answer.startswith("Answer") else f"Answer: {answer}"
        grade = await grader.grade(Problem("p", "", reference, "t"), reply)
        if grade.correct is not verdict:
            amiss.append((reference, answer, grade))
    assert amiss == []
    assert len(pairs()) > 500


@pytest.mark.parametrize(("name", "least"), [("math", 120), ("choice", 50), ("freeform", 25)])
def test_the_golden_cases_are_told_apart_and_say_why(name: str, least: int) -> None:
    names = [case["name"] for case in cases(name)]
    assert len(set(names)) == len(names) >= least
    assert all(case["why"] for case in cases(name))
