"""The shapes of multiple-choice rows, and the order of their choices."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shapes import items_of

from openconductor.errors import TaskError

MMLU = {"question": "Which is red?", "subject": "colours", "choices": ["sky", "rose", "grass", "snow"], "answer": 1}
LOCAL = {**MMLU, "id": "q1"}
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
    "Correct Answer": "rose\n",
    "Incorrect Answer 1": "sky",
    "Incorrect Answer 2": "grass",
    "Incorrect Answer 3": "snow",
    "High-level domain": "Physics",
    "Subdomain": "Optics",
}


def right_choice(question: str, letter: object) -> str:
    found = re.search(rf"^{letter}\) (.*)$", question, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("name", "row", "identity", "letter", "kind"),
    [
        ("mmlu", MMLU, "mmlu/test/0", "B", "colours"),
        ("mmlu", LOCAL, "q1", "B", "colours"),
        ("mmlu", {**LOCAL, "answer": "B"}, "q1", "B", "colours"),
        ("mmlu", {"question": "?", "type": "t", "choices": ["a", "b"], "answer": 0}, "mmlu/test/0", "A", "t"),
        ("mmlu", MMLU_PRO, "mmlu/7", "F", "colours"),
    ],
)
def test_choices_keep_their_published_order(tmp_path: Path, name, row, identity, letter, kind) -> None:
    (item,) = items_of(tmp_path, name, row)
    assert (item.problem.id, item.problem.reference, item.problem.kind) == (identity, letter, kind)
    assert item.canonical == f"Answer: {letter}"


def test_a_seed_draws_another_order_and_the_reference_goes_with_it(tmp_path: Path) -> None:
    rows = [{**LOCAL, "id": f"q{number}"} for number in range(40)]
    for seed in (0, 1):
        items = items_of(tmp_path, "mmlu", *rows, seed=seed)
        assert {right_choice(item.problem.question, item.problem.reference) for item in items} == {"rose"}
        assert {item.problem.reference for item in items} == set("ABCD")
    assert items_of(tmp_path, "mmlu", *rows, seed=1) == items


def test_gpqas_order_is_always_drawn_for_its_data_put_the_right_choice_first(tmp_path: Path) -> None:
    rows = [{**GPQA, "Record ID": f"rec{number}"} for number in range(40)]
    items = items_of(tmp_path, "gpqa_diamond", *rows)
    assert {item.problem.reference for item in items} == set("ABCD")
    assert {right_choice(item.problem.question, item.problem.reference) for item in items} == {"rose"}
    assert items == items_of(tmp_path, "gpqa_diamond", *rows, seed=0)
    assert items != items_of(tmp_path, "gpqa_diamond", *rows, seed=1)
    assert items[0].problem.kind == "Physics"


@pytest.mark.parametrize(
    "choice",
    [
        *("all of the above", "None of the above.", "Both A and B", "neither B nor C", "A and C", "B, C and D"),
        *("(A) and (B)", "both of these", "Either of the above", "only B"),
    ],
)
def test_a_choice_that_speaks_of_the_others_by_place_is_not_moved(tmp_path: Path, choice: str) -> None:
    rows = [{**LOCAL, "id": f"q{number}", "choices": ["x", "y", "z", choice]} for number in range(12)]
    items = items_of(tmp_path, "mmlu", *rows, seed=5)
    assert {item.problem.reference for item in items} == {"B"}
    assert all(f"D) {choice}" in item.problem.question for item in items)


@pytest.mark.parametrize(
    "choice", ["A bee and a fly", "all cats", "vitamin B", "an Abelian group", "only a few", "a and b"]
)
def test_a_choice_that_only_looks_so_is_moved(tmp_path: Path, choice: str) -> None:
    rows = [{**LOCAL, "id": f"q{number}", "choices": ["x", "y", "z", choice]} for number in range(12)]
    assert len({item.problem.reference for item in items_of(tmp_path, "mmlu", *rows, seed=5)}) > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": 4}, "field 'answer': got 4, expected an index from 0 to 3, or a letter of ABCD"),
        ({"answer": -1}, "field 'answer': got -1, expected an index"),
        ({"answer": "E"}, "field 'answer': got 'E', expected a letter of ABCD"),
        ({"answer": "AB"}, "field 'answer': got 'AB', expected a letter of ABCD"),
        ({"answer": True}, "field 'answer': got True, expected a text"),
        ({"answer": "rose"}, "field 'answer': got 'rose', expected a letter of ABCD"),
        ({"choices": ["only"]}, r"field 'choices': got \['only'\], expected 2 to 10 choices"),
        ({"choices": ["x"] * 11}, "expected 2 to 10 choices"),
        ({"choices": "ab"}, "field 'choices': got 'ab', expected a list of texts"),
        ({"choices": ["a", 2, "c", "d"]}, "field 'choices': got 2, expected nothing but texts"),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        items_of(tmp_path, "mmlu", {**LOCAL, **change})
