"""The questions that a run keeps for people to look at."""

from __future__ import annotations

from pathlib import Path

from openconductor.evaluation.sheets import Sheet, read_questions, write_questions
from openconductor.graders.exact import ExactGrader
from openconductor.graders.freeform import FreeFormAnswer
from openconductor.types import Problem


def test_a_free_form_reference_is_kept_as_its_text(tmp_path: Path) -> None:
    problem = Problem("q1", "The capital of France?", FreeFormAnswer("Paris", "text"), "city")
    write_questions(tmp_path, [Sheet("city", (problem,), ExactGrader(), {})])
    assert read_questions(tmp_path)["city", "q1"].reference == "Paris"


def test_a_reference_that_is_no_text_is_kept_as_json(tmp_path: Path) -> None:
    problem = Problem("q1", "Double 2.", {"input": "2", "output": "4"}, "code")
    write_questions(tmp_path, [Sheet("code", (problem,), ExactGrader(), {})])
    assert read_questions(tmp_path)["code", "q1"].reference == '{"input":"2","output":"4"}'
