"""The questions of replay tables, with and without their texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replay_rows import write

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks import load_task


def questions(folder: Path, **letters: str) -> None:
    """The texts of the test split beside its table, each with what is called right."""
    row = {"question": "Which?", "options": ["w", "x", "y", "z"]}
    rows = [
        row | {"question_id": int(number[1:]), "answer": letter}
        for number, letter in letters.items()
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(folder)


def test_a_problem_is_the_line_of_its_id_and_category_judged_by_its_letter(tmp_path: Path) -> None:
    task = load_task("replay", path=write(tmp_path), seed=3)
    first, second = task.load()
    assert (first.id, first.question, first.reference, first.kind) == (
        "mine/16",
        "[mine/16] law",
        "A",
        "law",
    )
    assert second.question == "[mine/17] math"
    assert len(task.load("train")) == 16
    assert task.source.pinned and task.source.licence == "none needed"
    limited = [
        load_task("replay", path=write(tmp_path), split="train", limit=2, seed=seed).load()
        for seed in range(5)
    ]
    assert {len(one) for one in limited} == {2} and len(set(limited)) > 1


def test_texts_are_shown_with_their_choices_in_order_whatever_the_seed(tmp_path: Path) -> None:
    questions(tmp_path, q16="A", q17="D")
    problem = load_task("replay", path=tmp_path, seed=3).load()[1]
    assert problem.question.startswith("[mine/17] math\n\nWhich?\n\nA) w\nB) x\nC) y\nD) z\n")


def test_texts_of_other_questions_and_absent_tables_are_refused(tmp_path: Path) -> None:
    questions(tmp_path, q16="B", q17="D")
    with pytest.raises(
        TaskError, match="mine/16: got the right answer B, expected its text, with A as right"
    ):
        load_task("replay", path=tmp_path).load()
    questions(tmp_path, q17="D")
    with pytest.raises(TaskError, match="mine/16: got None, expected its text, with A as right"):
        load_task("replay", path=tmp_path).load()
    with pytest.raises(ConfigError, match=r"replay table .*none.csv.gz: .*; expected gzipped CSV"):
        load_task("replay", path=tmp_path / "none.csv.gz").load()
