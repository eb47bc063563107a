"""The questions of replay tables, with and without their texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_rows import write
from written_rows import write_rows

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks import load_task


def write_questions(folder: Path, **letters: str) -> None:
    """Write texts of the test split beside its table, each with the letter called right."""
    rows: list[dict[str, object]] = []
    for number, letter in letters.items():
        row = {"question": "Which?", "options": ["w", "x", "y", "z"], "answer": letter}
        rows.append({"question_id": int(number[1:]), **row})
    write_rows(folder / "questions.jsonl", rows)
    write(folder)


def test_a_problem_is_the_line_of_its_id_and_category_judged_by_its_letter(tmp_path: Path) -> None:
    path = write(tmp_path)
    task = load_task("replay", path=path, seed=3)
    first, second = task.load()
    assert (first.id, first.question) == ("mine/16", "[mine/16] law")
    assert (first.reference, first.kind) == ("A", "law")
    assert second.question == "[mine/17] math"
    assert len(task.load("train")) == 16
    assert task.source.pinned
    assert task.source.licence == "none needed"
    draws = [load_task("replay", path=path, split="train", limit=2, seed=n) for n in range(5)]
    drawn = {task.load() for task in draws}
    assert {len(problems) for problems in drawn} == {2}
    assert len(drawn) > 1


def test_texts_are_shown_with_their_choices_in_order_whatever_the_seed(tmp_path: Path) -> None:
    write_questions(tmp_path, q16="A", q17="D")
    problem = load_task("replay", path=tmp_path, seed=3).load()[1]
    assert problem.question.startswith("[mine/17] math\n\nWhich?\n\nA) w\nB) x\nC) y\nD) z\n")


def test_texts_of_other_questions_and_absent_tables_are_refused(tmp_path: Path) -> None:
    write_questions(tmp_path, q16="B", q17="D")
    message = "mine/16: got the right answer B, expected its text, with A as right"
    with pytest.raises(TaskError, match=message):
        load_task("replay", path=tmp_path).load()
    write_questions(tmp_path, q17="D")
    with pytest.raises(TaskError, match="mine/16: got None, expected its text, with A as right"):
        load_task("replay", path=tmp_path).load()
    with pytest.raises(ConfigError, match=r"none.csv.gz does not exist; expected a table"):
        load_task("replay", path=tmp_path / "none.csv.gz").load()
