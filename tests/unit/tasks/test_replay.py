"""The questions of replay tables, with and without their texts, and a whole evaluation over recorded workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replay_rows import write, write_pool

from openconductor.errors import TaskError
from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import run_grid
from openconductor.tasks import load_task


def questions(folder: Path, skipped: str = "", **changed: object) -> None:
    rows = [
        {"question_id": number, "question": "Which?", "options": ["w", "x", "y", "z"], "answer": letter, **changed}
        for number, letter in ((16, "A"), (17, "D"))
        if str(number) != skipped
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_problem_is_the_line_of_its_id_and_category_judged_by_its_letter(tmp_path: Path) -> None:
    task = load_task("replay", path=write(tmp_path), seed=3)
    first, second = task.load()
    assert (first.id, first.question, first.reference, first.kind) == ("mine/16", "[mine/16] law", "A", "law")
    assert second.question == "[mine/17] math"
    assert len(task.load("train")) == 16
    assert task.source.pinned and task.source.licence == "none needed"
    limited = [load_task("replay", path=write(tmp_path), split="train", limit=2, seed=seed).load() for seed in range(5)]
    assert {len(one) for one in limited} == {2} and len(set(limited)) > 1


def test_texts_are_shown_with_their_choices_in_order_whatever_the_seed(tmp_path: Path) -> None:
    write(tmp_path)
    questions(tmp_path)
    for seed in range(3):
        problem = load_task("replay", path=tmp_path, seed=seed).load()[1]
        assert problem.question.startswith("[mine/17] math\n\nWhich?\n\nA) w\nB) x\nC) y\nD) z\n")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": "B"}, "mine/16: got the right answer B, expected its text, with A"),
        ({"skipped": "16"}, "mine/16: got None, expected its text"),
    ],
)
def test_texts_of_other_questions_are_refused(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    write(tmp_path)
    questions(tmp_path, **changed)
    with pytest.raises(TaskError, match=message):
        load_task("replay", path=tmp_path).load()


def test_a_table_that_cannot_be_read_is_a_task_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"task replay: replay table .*none.csv.gz: .*; expected gzipped CSV"):
        load_task("replay", path=tmp_path / "none.csv.gz").load()


async def test_an_evaluation_of_recorded_workers_repeats_their_records_and_masks_strangers(tmp_path: Path) -> None:
    table = write(tmp_path)
    pool = write_pool(tmp_path, f"{table}:a", f"{table}:b", f"{table}:c", "mmlu_pro:vote")
    config = make_eval_config(
        {
            "systems": ["workers", "consensus:a?n=3"],
            "pool": str(pool),
            "task": [{"name": "replay", "path": str(table)}],
            "repeats": 2,
        },
        where="test",
    )
    results = await run_grid(config, tmp_path / "run")
    got = {name: [one.correct for one in results.of(f"worker:{name}")] for name in ("a", "b", "c", "vote")}
    assert got["b"] == [False] * 4
    assert got["c"] == [False, False, True, True]
    assert sorted(map(str, got["a"])) == ["False", "False", "False", "True"]  # the two samples of the first question
    assert {one.status for one in results.of("worker:vote")} == {"failed"}
    assert {one.status for one in results.of("worker:b")} == {"graded", "unparsed"}
