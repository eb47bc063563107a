"""The shapes of rows, published and local: what becomes of each, which are refused, and what the judge says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from written_rows import items_of, task_of

from openconductor.errors import TaskError
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.graders.code_text import program_of
from openconductor.graders.extraction import find_answer
from openconductor.graders.freeform import FreeFormAnswer
from openconductor.gym.questions import draw_questions, read_question
from openconductor.gym.world import write_value
from openconductor.tasks.gym import GymTask
from openconductor.tasks.items import LeftOut
from openconductor.tasks.prompts import boxed, boxed_prompt, fenced, function_prompt, program_prompt

MATH500 = {
    "problem": "What is $1+1$?",
    "solution": "It is $\\boxed{2}$.",
    "answer": "2",
    "subject": "Algebra",
    "level": 3,
    "unique_id": "test/algebra/1.json",
}
MATH = {
    "problem": "What is $1+1$?",
    "level": "Level 5",
    "type": "Algebra",
    "solution": "So it is $\\boxed{2}$.",
}
GSM8K = {"question": "One and one?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}
AIME = {"problem": "Find it.", "answer": "070", "id": "0"}
MMLU = {
    "question": "Which is red?",
    "subject": "colours",
    "choices": ["sky", "rose", "grass", "snow"],
    "answer": 1,
}
MMLU_PRO = {
    "question_id": 7,
    "question": "Which is red?",
    "options": ["sky", "sea", "grass", "snow", "milk", "rose"],
    "answer": "F",
    "category": "colours",
}
GPQA = {
    "Record ID": "rec1",
    "Question": "Which is red?\n",
    "High-level domain": "Physics",
    "Subdomain": "Optics",
    "Correct Answer": "rose\n",
    "Incorrect Answer 1": "sky",
    "Incorrect Answer 2": "grass",
    "Incorrect Answer 3": "snow",
}
RLPR = {
    "prompt": [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "How long is it?"},
    ],
    "ability": "Physics",
    "reward_model": {"ground_truth": "9.8 m", "style": "rule"},
    "extra_info": None,
}
FREE = {
    "id": "a",
    "question": "How long is it?",
    "answer": "9.8 m",
    "kind": "number",
    "tolerance": 0.01,
}
HUMANEVAL = {
    "task_id": "HumanEval/900",
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "prompt": 'def add(a, b):\n    """Add.\n    ```python\n    """\n',
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
MBPP = {
    "task_id": 900,
    "prompt": "Write a function to add.",
    "code": "def add(a, b):\n  return a + b",
    "test_imports": ["import math"],
    "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
}
UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(task_func())"
BIGCODEBENCH = {
    "task_id": "BigCodeBench/900",
    "instruct_prompt": "Do it.",
    "canonical_solution": "    return os.sep\n",
    "complete_prompt": "import os\n\ndef task_func():\n    '''Do it.'''\n",
    "test": UNITTEST,
    "entry_point": "task_func",
    "libs": "['os']",
}
CODE = {"id": "p1", "question": "Echo.", "tests": [{"input": "1\n", "output": "1\n"}]}
CALLS = {
    **CODE,
    "tests": [{"args": [1, 2], "expected": 3}, {"args": {"a": 1, "b": 2}, "expected": 3}],
}
STARTER = "class Solution:\n    def __init__(self):\n        pass\n\n    def add(self, a, b):\n"
ADDS = CallTest((1, 2), 3, {}, "python")
BOXED = "The final answer is \\boxed{2}."


@pytest.mark.parametrize(
    ("name", "row", "identity", "reference", "kind", "canonical"),
    [
        ("math500", MATH500, "test/algebra/1.json", "2", "level 3", BOXED),
        ("math", MATH, "math/train/0", "2", "level 5", MATH["solution"]),
        ("math", {**MATH, "level": "Level ?"}, "math/train/0", "2", "Algebra", MATH["solution"]),
        ("gsm8k", GSM8K, "gsm8k/test/0", "2", "", BOXED),
        ("aime25", AIME, "0", "070", "", "The final answer is \\boxed{070}."),
        ("mmlu", MMLU, "mmlu/test/0", "B", "colours", "Answer: B"),
        ("mmlu", {**MMLU, "id": "q1", "answer": "B"}, "q1", "B", "colours", "Answer: B"),
        (
            "mmlu",
            {"question": "?", "choices": ["a", "b"], "answer": 0},
            "mmlu/test/0",
            "A",
            "",
            "Answer: A",
        ),
        ("mmlu", MMLU_PRO, "mmlu/7", "F", "colours", "Answer: F"),
        (
            "rlpr",
            RLPR,
            "rlpr/train/0",
            FreeFormAnswer("9.8 m"),
            "Physics",
            "The final answer is \\boxed{9.8 m}.",
        ),
        (
            "rlpr",
            FREE,
            "a",
            FreeFormAnswer("9.8 m", "number", 0.01),
            "",
            "The final answer is \\boxed{9.8 m}.",
        ),
        ("rlpr", {"id": "a", "question": "?", "answer": 2}, "a", FreeFormAnswer("2"), "", BOXED),
        ("humaneval", HUMANEVAL, "HumanEval/900", CodeTests((ADDS,), "add"), "", ...),
        (
            "mbpp",
            MBPP,
            "mbpp/900",
            CodeTests((ADDS, CallTest((2, 2), 4, {}, "python")), "add"),
            "",
            ...,
        ),
        (
            "bigcodebench_hard",
            BIGCODEBENCH,
            "BigCodeBench/900",
            CodeTests((), "task_func", UNITTEST),
            "",
            ...,
        ),
        ("livecodebench_v1", CODE, "p1", CodeTests((IoTest("1\n", "1\n"),)), "", None),
        (
            "humaneval",
            {**CODE, "tests": "assert add(1, 2) == 3"},
            "p1",
            CodeTests((ADDS,), "add"),
            "",
            None,
        ),
        (
            *(
                "humaneval",
                {**CALLS, "starter_code": STARTER, "solution": "def add(a, b): ..."},
                "p1",
            ),
            *(CodeTests((CallTest((1, 2), 3), CallTest((), 3, {"a": 1, "b": 2})), "add"), ""),
            "```python\ndef add(a, b): ...\n```",
        ),
    ],
)
def test_each_shape_becomes_a_problem(
    tmp_path: Path, name, row, identity, reference, kind, canonical
) -> None:
    (item,) = items_of(tmp_path, name, row)
    assert (item.problem.id, item.problem.reference, item.problem.kind) == (
        identity,
        reference,
        kind,
    )
    assert item.problem.task == name
    if canonical is not ...:
        assert item.canonical == canonical


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "gsm8k",
            {**GSM8K, "answer": "It is 2."},
            r"field 'answer': got 'It is 2\.', expected a text that ends with ",
        ),
        ("gsm8k", {"question": "One?"}, "field 'answer': missing; got the fields question"),
        (
            "mmlu",
            {**MMLU, "answer": 4},
            "field 'answer': got 4, expected a letter of ABCD, or an index from 0 to 3",
        ),
        ("mmlu", {**MMLU, "answer": -1}, "field 'answer': got -1, expected a letter of ABCD"),
        ("mmlu", {**MMLU, "answer": "E"}, "field 'answer': got 'E', expected a letter of ABCD"),
        ("mmlu", {**MMLU, "answer": "AB"}, "field 'answer': got 'AB', expected a letter of ABCD"),
        ("mmlu", {**MMLU, "answer": True}, "field 'answer': got True, expected a text"),
        (
            "mmlu",
            {**MMLU, "choices": ["only"]},
            r"field 'choices': got \['only'\], expected 2 to 10 choices",
        ),
        ("mmlu", {**MMLU, "choices": ["x"] * 11}, "expected 2 to 10 choices"),
        (
            "rlpr",
            {**FREE, "kind": "numbr"},
            "field 'kind': got 'numbr', expected one of choice, number, math, text",
        ),
        (
            "rlpr",
            {**FREE, "kind": "choice"},
            "got '9.8 m', expected a letter of ABCDEFGHIJ for the kind choice",
        ),
        (
            "rlpr",
            {**FREE, "tolerance": 1},
            "field 'tolerance': got 1.0, expected a number from 0 to below 1",
        ),
        (
            "rlpr",
            {**RLPR, "prompt": [{"role": "system"}]},
            "field 'prompt': got .* expected a chat with",
        ),
        (
            "rlpr",
            {**RLPR, "reward_model": {}},
            "field 'reward_model': got {}, expected an object with the text ground",
        ),
        (
            "humaneval",
            {**CODE, "tests": []},
            "field 'tests': got .*, expected a list of objects, of at least one",
        ),
        (
            "humaneval",
            {**CODE, "tests": [{"input": "1"}]},
            r"field 'tests': test 0: got the fields \['input'\]",
        ),
        ("humaneval", CALLS, "with the entry point None"),
        ("humaneval", {**CODE, "tests": "assert"}, "field 'tests': test program: "),
        (
            "mbpp",
            {**MBPP, "test_list": []},
            r"field 'test_list': got \[\], expected a list of assertions",
        ),
        ("mbpp", {**MBPP, "test_list": ["assert"]}, "field 'test_list': test program: "),
        ("humaneval", {**HUMANEVAL, "test": "def"}, "field 'test': test program: "),
        (
            "humaneval",
            {**HUMANEVAL, "entry_point": 3},
            "field 'entry_point': got 3, expected a text",
        ),
    ],
)
def test_a_wrong_row_is_an_error(
    tmp_path: Path, name: str, row: dict[str, object], message: str
) -> None:
    with pytest.raises(
        TaskError, match=rf"{name}\.jsonl, line 1: .*{message}|{name}\.jsonl, line 1: {message}"
    ):
        items_of(tmp_path, name, row)


# ── mathematics and free form ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("solution", ["It is 2.", "It is $\\boxed{}$.", "It is $\\boxed{2$."])
def test_a_solution_without_an_answer_is_left_out_and_listed(tmp_path: Path, solution: str) -> None:
    loaded = task_of(tmp_path, "math", {**MATH, "solution": solution}, MATH).read()
    assert [(item.problem.id, item.difficulty) for item in loaded.items] == [("math/train/1", 1.0)]
    assert loaded.source.left_out == (LeftOut("math/train/0", "its solution boxes no answer"),)
    assert loaded.source.rows == 2


async def test_the_judge_accepts_the_canonical_reply_and_no_other(tmp_path: Path) -> None:
    answers = ("9.8 m/s^2", "(B)", "C", "$\\frac{1}{2}$", "the mitochondrion", "x^2 + 1", "-3")
    free = [
        {"id": f"f{place}", "question": "What?", "answer": answer}
        for place, answer in enumerate(answers)
    ]
    by_task = {
        "math500": [MATH500],
        "math": [MATH],
        "gsm8k": [GSM8K],
        "aime25": [AIME],
        "mmlu": [MMLU],
        "rlpr": free,
    }
    for name, rows in by_task.items():
        task = task_of(tmp_path, name, *rows)
        for item in task.read().items:
            assert item.canonical is not None
            assert (await task.grader.grade(item.problem, item.canonical)).correct is True, item
            wrong = "Answer: A" if name == "mmlu" else boxed("71")
            assert (
                name == "rlpr" or (await task.grader.grade(item.problem, wrong)).correct is False
            ), item
    aime = task_of(tmp_path, "aime25", AIME)
    assert (
        await aime.grader.grade(aime.load()[0], "\\boxed{70}")
    ).correct is True  # leading zeros do not count


# ── choices ───────────────────────────────────────────────────────────────────────────────────────
def right_choice(question: str, letter: object) -> str:
    found = re.search(rf"^{letter}\) (.*)$", question, re.MULTILINE)
    return found[1]


@pytest.mark.parametrize(
    ("name", "row", "field"), [("mmlu", MMLU, "id"), ("gpqa_diamond", GPQA, "Record ID")]
)
def test_a_seed_draws_another_order_and_the_reference_goes_with_it(
    tmp_path: Path, name, row, field: str
) -> None:
    rows = [{**row, field: f"q{number}"} for number in range(40)]
    drawn = {seed: items_of(tmp_path, name, *rows, seed=seed) for seed in (0, 1)}
    for items in drawn.values():
        assert {right_choice(item.problem.question, item.problem.reference) for item in items} == {
            "rose"
        }
        assert {item.problem.reference for item in items} == set("ABCD")
    assert drawn[0] != drawn[1] == items_of(tmp_path, name, *rows, seed=1)
    # GPQA's data put the right choice first, so its order is always drawn.
    assert (items_of(tmp_path, name, *rows) == drawn[0]) == (name == "gpqa_diamond")


@pytest.mark.parametrize(
    ("choice", "moves"),
    [
        *(
            (text, False)
            for text in (
                "all of the above",
                "None of the above.",
                "Both A and B",
                "neither B nor C",
            )
        ),
        *(
            (text, False)
            for text in ("A and C", "B, C and D", "(A) and (B)", "both of these", "only B")
        ),
        *(
            (text, True)
            for text in ("A bee and a fly", "all cats", "vitamin B", "an Abelian group", "a and b")
        ),
    ],
)
def test_a_choice_that_speaks_of_the_others_by_place_is_not_moved(
    tmp_path: Path, choice: str, moves: bool
) -> None:
    rows = [
        {**MMLU, "id": f"q{number}", "choices": ["x", "y", "z", choice]} for number in range(12)
    ]
    items = items_of(tmp_path, "mmlu", *rows, seed=5)
    assert (len({item.problem.reference for item in items}) > 1) == moves
    assert all(f"D) {choice}" in item.problem.question for item in items) != moves


# ── programs ──────────────────────────────────────────────────────────────────────────────────────
def test_programs_show_what_is_to_be_completed_and_hide_the_tests(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "humaneval", HUMANEVAL)
    assert str(HUMANEVAL["prompt"]).strip() in item.problem.question
    program, namespace = program_of(item.canonical or ""), dict[str, object]()
    exec(program or "", namespace)  # our own two lines
    assert callable(namespace["add"])
    (item,) = items_of(tmp_path, "mbpp", MBPP)
    assert "assert add(1, 2) == 3" in item.problem.question
    assert "add(2, 2)" not in item.problem.question
    assert "`add`" in item.problem.question
    (item,) = items_of(tmp_path, "bigcodebench_hard", BIGCODEBENCH)
    assert "Do it." in item.problem.question
    assert (item.canonical or "").endswith("    return os.sep\n```")
    (item,) = items_of(
        tmp_path, "humaneval", {**CALLS, "starter_code": STARTER, "entry_point": "other"}
    )
    assert STARTER in item.problem.question
    assert isinstance(item.problem.reference, CodeTests)
    assert item.problem.reference.entry_point == "other"
    (item,) = items_of(tmp_path, "livecodebench_v1", CODE)
    assert "standard input" in item.problem.question


def test_mbpps_other_form_calls_the_text_text_and_may_set_up(tmp_path: Path) -> None:
    row = {key: value for key, value in MBPP.items() if key != "prompt"}
    (item,) = items_of(
        tmp_path, "mbpp", {**row, "text": "Write it.", "test_setup_code": "root = Node(1)"}
    )
    assert isinstance(item.problem.reference, CodeTests)
    # What cannot be followed runs beside the answer, imports and setup with it.
    assert (item.problem.reference.unittest or "").startswith(
        "import math\nroot = Node(1)\nassert add"
    )


# ── prompts ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "answer", ["42", r"\frac{1}{2}", "x = 5", "the mitochondrion", r"\{1, 2\}"]
)
def test_the_box_that_is_asked_for_is_found(answer: str) -> None:
    assert "\\boxed{}" in boxed_prompt("What is it?")
    assert find_answer(boxed(answer)).text == answer


@pytest.mark.parametrize(
    "program",
    [
        "print(1)\n",
        "def f():\n    '''\n    ```python\n    no\n    ```\n    '''\n",
        "x = '````'\n",
        "\n\nx",
    ],
)
def test_the_block_that_is_asked_for_is_found_whole(program: str) -> None:
    assert "```python" in program_prompt("Add.")
    assert "```python" in function_prompt("Add.")
    found = program_of(f"Here it is.\n\n{fenced(program)}\n\nDone.")
    assert found.strip("\n") == program.strip("\n")


# ── the gym ───────────────────────────────────────────────────────────────────────────────────────
async def test_the_gyms_problems_are_drawn_by_seed_and_only_the_right_answer_is_accepted() -> None:
    task = GymTask(limit=60, seed=3)
    problems = task.load("validation")
    assert [one.question for one in problems] == [
        one.text for one in draw_questions("validation", 60, seed=3)
    ]
    assert ({one.task for one in problems}, len({one.id for one in problems})) == ({"gym"}, 60)
    assert GymTask(limit=60, seed=4).load("validation") != problems
    for problem, other in zip(problems, [*problems[1:], problems[0]], strict=True):
        question = read_question(problem.question)
        assert (await task.grader.grade(problem, write_value(question.answer))).correct is True
        assert (await task.grader.grade(problem, str(other.reference))).correct is False
        assert (await task.grader.grade(problem, write_value(question.value))).correct is False
    with pytest.raises(
        TaskError, match="task gym: got the split 'dev', expected one of test, train, validation"
    ):
        task.load("dev")
