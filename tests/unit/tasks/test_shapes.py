"""The shapes of rows, published and local: the problems made of them, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from written_rows import ROWS, items_of, read_cases, task_of

from openconductor.errors import TaskError
from openconductor.graders.choice import choice_prompt
from openconductor.graders.code_text import read_program
from openconductor.graders.extraction import find_answer
from openconductor.gym.questions import draw_questions
from openconductor.gym.world import write_value
from openconductor.prompt import drop_answer_form
from openconductor.tasks.data.items import Item, LeftOut
from openconductor.tasks.gym import GymTask
from openconductor.tasks.prompts import (
    ANSWER_FORMS,
    boxed,
    boxed_prompt,
    fenced,
    function_prompt,
    program_prompt,
)

STARTER = "class Solution:\n    def __init__(self):\n        pass\n\n    def add(self, a, b):\n"


@pytest.mark.parametrize("case", read_cases("shapes"), ids=lambda case: case["task"])
def test_each_shape_becomes_a_problem(tmp_path: Path, case: dict[str, Any]) -> None:
    (item,) = items_of(tmp_path, case["task"], case["row"])
    problem = item.problem
    assert (problem.id, problem.kind, problem.task) == (case["id"], case["kind"], case["task"])
    assert str(problem.reference) == case["reference"]
    assert item.canonical == case.get("canonical", item.canonical)
    assert [text for text in case.get("shows", ()) if text not in problem.question] == []
    assert [text for text in case.get("hides", ()) if text in problem.question] == []


@pytest.mark.parametrize("case", read_cases("wrong_rows"), ids=lambda case: case["message"])
def test_a_wrong_row_is_an_error(tmp_path: Path, case: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=rf"{case['task']}\.jsonl, line 1: .*{case['message']}"):
        items_of(tmp_path, case["task"], case["row"])


# ── mathematics and free form ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("solution", ["It is 2.", "It is $\\boxed{}$.", "It is $\\boxed{2$."])
def test_a_solution_without_an_answer_is_left_out_and_listed(tmp_path: Path, solution: str) -> None:
    unsolved = {**ROWS["math"], "solution": solution}
    loaded = task_of(tmp_path, "math", unsolved, ROWS["math"]).read()
    assert [(item.problem.id, item.difficulty) for item in loaded.items] == [("math/train/1", 1.0)]
    assert loaded.source.left_out == (LeftOut("math/train/0", "its solution boxes no answer"),)
    assert loaded.source.rows == 2


ANSWERS = ("9.8 m/s^2", "(B)", "C", "$\\frac{1}{2}$", "the mitochondrion", "x^2 + 1", "-3")


@pytest.mark.parametrize("name", ["math500", "math", "gsm8k", "aime25", "mmlu", "rlpr"])
async def test_the_grader_accepts_the_canonical_reply_and_no_other(
    tmp_path: Path, name: str
) -> None:
    rows = [ROWS[name]]
    if name == "rlpr":
        rows = [{"id": answer, "question": "What?", "answer": answer} for answer in ANSWERS]
    task = task_of(tmp_path, name, *rows)
    for item in task.read().items:
        assert item.canonical is not None
        assert (await task.grader.grade(item.problem, item.canonical)).correct is True, item
    wrong = "Answer: A" if name == "mmlu" else boxed("71")
    if name != "rlpr":
        assert (await task.grader.grade(task.load()[0], wrong)).correct is False


# ── choices ───────────────────────────────────────────────────────────────────────────────────────
def right_choice(item: Item) -> str:
    choice = re.search(rf"^{item.problem.reference}\) (.*)$", item.problem.question, re.MULTILINE)
    return choice[1]


@pytest.mark.parametrize(("name", "field"), [("mmlu", "id"), ("gpqa_diamond", "Record ID")])
def test_a_seed_draws_another_order_and_the_reference_goes_with_it(
    tmp_path: Path, name: str, field: str
) -> None:
    rows = [{**ROWS[name], field: f"q{number}"} for number in range(40)]
    first = items_of(tmp_path, name, *rows, seed=0)
    second = items_of(tmp_path, name, *rows, seed=1)
    for items in (first, second):
        assert {right_choice(item) for item in items} == {"rose"}
        assert {item.problem.reference for item in items} == set("ABCD")
    assert first != second == items_of(tmp_path, name, *rows, seed=1)
    # GPQA's data put the right choice first, so its order is always drawn.
    assert (items_of(tmp_path, name, *rows) == first) == (name == "gpqa_diamond")


STAYS = "all of the above|None of the above.|Both A and B|neither B nor C|A and C|B, C and D"
STAYS += "|(A) and (B)|both of these|only B"
MOVES = "A bee and a fly|all cats|vitamin B|an Abelian group|a and b"


@pytest.mark.parametrize("choice", f"{STAYS}|{MOVES}".split("|"))
def test_a_choice_that_speaks_of_the_others_by_place_is_not_moved(
    tmp_path: Path, choice: str
) -> None:
    row = {**ROWS["mmlu"], "choices": ["x", "y", "z", choice]}
    items = items_of(tmp_path, "mmlu", *({**row, "id": f"q{n}"} for n in range(12)), seed=5)
    moves = choice in MOVES.split("|")
    assert (len({item.problem.reference for item in items}) > 1) == moves
    assert all(f"D) {choice}" in item.problem.question for item in items) != moves


# ── programs ──────────────────────────────────────────────────────────────────────────────────────
def test_the_canonical_program_is_whole(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "humaneval", ROWS["humaneval"])
    namespace: dict[str, object] = {}
    program = read_program(item.canonical or "")
    assert program is not None
    exec(program.text, namespace)  # our own two lines
    assert callable(namespace["add"])
    (item,) = items_of(tmp_path, "bigcodebench_hard", ROWS["bigcodebench_hard"])
    assert (item.canonical or "").endswith("    return os.sep\n```")


def test_a_stated_entry_point_goes_before_that_of_the_starter_code(tmp_path: Path) -> None:
    function = {**ROWS["function"], "starter_code": STARTER, "entry_point": "other"}
    (item,) = items_of(tmp_path, "humaneval", function)
    assert item.problem.reference.entry_point == "other"


def test_mbpps_other_form_calls_the_text_text_and_may_set_up(tmp_path: Path) -> None:
    row = {**ROWS["mbpp"], "text": "Write it.", "test_setup_code": "root = Node(1)"}
    del row["prompt"]
    (item,) = items_of(tmp_path, "mbpp", row)
    # A program that cannot be followed runs beside the answer, imports and setup with it.
    assert item.problem.reference.unittest.startswith("import math\nroot = Node(1)\nassert add")


# ── prompts ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "answer", ["42", r"\frac{1}{2}", "x = 5", "the mitochondrion", r"\{1, 2\}"]
)
def test_the_box_that_is_asked_for_is_found(answer: str) -> None:
    assert "\\boxed{}" in boxed_prompt("What is it?")
    assert find_answer(boxed(answer)).text == answer


PROGRAMS = ("print(1)\n", "def f():\n    '''\n    ```python\n    no\n    ```\n    '''\n")


@pytest.mark.parametrize("program", [*PROGRAMS, "x = '````'\n", "\n\nx"])
def test_the_block_that_is_asked_for_is_found_whole(program: str) -> None:
    assert "```python" in program_prompt("Add.")
    assert "```python" in function_prompt("Add.")
    read = read_program(f"Here it is.\n\n{fenced(program)}\n\nDone.")
    assert read is not None and read.text.strip("\n") == program.strip("\n")


CHOICES = [str(number) for number in range(10)]


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (boxed_prompt("Why?"), "Why?"),
        (program_prompt("Add."), "prints the answer to standard output."),
        (function_prompt("Add.", starter="def add(): ..."), "def add(): ...\n```"),
        (choice_prompt("Which?", CHOICES[:2]), "B) 1"),
        (choice_prompt("Which?", CHOICES), "J) 9"),
    ],
)
def test_a_trained_conductor_is_shown_a_question_without_the_form_of_its_answer(
    prompt: str, shown: str
) -> None:
    bare = drop_answer_form(prompt, ANSWER_FORMS)
    assert bare.endswith(shown)
    assert drop_answer_form(bare, ANSWER_FORMS) == bare


# ── the gym ───────────────────────────────────────────────────────────────────────────────────────
async def test_the_gyms_problems_are_drawn_by_seed_and_only_the_right_answer_is_accepted() -> None:
    task = GymTask(limit=60, seed=3)
    problems = task.load("validation")
    questions = draw_questions("validation", 60, seed=3)
    assert [problem.question for problem in problems] == [question.text for question in questions]
    assert {problem.task for problem in problems} == {"gym"}
    assert len({problem.id for problem in problems}) == 60
    assert GymTask(limit=60, seed=4).load("validation") != problems
    for problem, question in zip(problems, questions, strict=True):
        answers = (question.answer, question.value)
        grades = [await task.grader.grade(problem, write_value(answer)) for answer in answers]
        assert [grade.correct for grade in grades] == [True, False]
    message = "task gym: got the split 'dev', expected one of test, train, validation"
    with pytest.raises(TaskError, match=message):
        task.load("dev")
