"""The shapes of mathematical rows: local, MATH-500, MATH, GSM8K, AIME."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shapes import items_of, task_of

from openconductor.errors import TaskError

MATH500 = {
    "problem": "What is $1+1$?",
    "solution": "It is $\\boxed{2}$.",
    "answer": "2",
    "subject": "Algebra",
    "level": 3,
    "unique_id": "test/algebra/1.json",
}
MATH = {"problem": "What is $1+1$?", "level": "Level 5", "type": "Algebra", "solution": "So it is $\\boxed{2}$."}
GSM8K = {"question": "One and one?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}
AIME = {"problem": "Find it.", "answer": "070", "id": "0"}


def test_math500_has_its_own_ids_levels_and_answers(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "math500", MATH500)
    assert (item.problem.id, item.problem.reference, item.problem.kind) == ("test/algebra/1.json", "2", "level 3")
    assert (item.subject, item.difficulty) == ("Algebra", 0.5)
    assert item.canonical == "The final answer is \\boxed{2}."


def test_math_takes_the_answer_out_of_the_solutions_box(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "math", MATH)
    assert (item.problem.id, item.problem.reference, item.difficulty) == ("math/train/0", "2", 1.0)
    assert item.canonical == MATH["solution"]


@pytest.mark.parametrize("solution", ["It is 2.", "It is $\\boxed{}$.", "It is $\\boxed{2$."])
def test_a_solution_without_an_answer_is_left_out_and_listed(tmp_path: Path, solution: str) -> None:
    loaded = task_of(tmp_path, "math", {**MATH, "solution": solution}, MATH).read()
    assert [item.problem.id for item in loaded.items] == ["math/train/1"]
    assert loaded.source.left_out == (("math/train/0", "its solution boxes no answer"),)
    assert loaded.source.rows == 2


def test_a_level_that_nobody_knows_is_no_difficulty(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "math", {**MATH, "level": "Level ?"})
    assert (item.difficulty, item.problem.kind) == (None, "Algebra")


def test_gsm8k_takes_what_stands_behind_the_mark(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "gsm8k", GSM8K)
    assert (item.problem.id, item.problem.reference) == ("gsm8k/test/0", "2")
    with pytest.raises(
        TaskError, match=r"line 1: field 'answer': got 'It is 2\.', expected a text that ends with '#### '"
    ):
        items_of(tmp_path, "gsm8k", {**GSM8K, "answer": "It is 2."})


def test_what_gsm8k_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="field 'answer': missing; got the fields question"):
        items_of(tmp_path, "gsm8k", {"question": "One and one?"})


def test_aimes_leading_zeros_stay_and_are_equal_to_the_number(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "aime25", AIME)
    assert (item.problem.id, item.problem.reference) == ("0", "070")


async def test_the_grader_accepts_the_canonical_replies_and_no_others(tmp_path: Path) -> None:
    for name, row in (("math500", MATH500), ("math", MATH), ("gsm8k", GSM8K), ("aime25", AIME)):
        task = task_of(tmp_path, name, row)
        (item,) = task.read().items
        assert item.canonical is not None
        assert (await task.grader.grade(item.problem, item.canonical)).correct is True, name
        assert (await task.grader.grade(item.problem, "The final answer is \\boxed{71}.")).correct is False, name


async def test_an_integer_may_be_answered_without_its_zeros(tmp_path: Path) -> None:
    task = task_of(tmp_path, "aime25", AIME)
    assert (await task.grader.grade(task.load()[0], "\\boxed{70}")).correct is True
