"""The paper's training mix over small local parts."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, GradingError, TaskError
from openconductor.tasks import load_task
from openconductor.tasks.paper_mix import PARTS, PROBLEMS, PaperMix, read_pass_rates
from openconductor.types import Problem

WORDS = ("sum", "angle", "circle", "prime", "divisor", "matrix", "limit", "urn", "graph", "tree", "cell", "gene", "law")
TASKS = {"math", "mmlu", "rlpr", "livecodebench_v1"}


def text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=9))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(5)
    stdin = [{"input": "1\n", "output": "1\n", "testtype": "stdin"}]
    rows: dict[str, list[dict[str, object]]] = {
        "math": [
            {
                "problem": text(draw),
                "level": f"Level {1 + number % 5}",
                "type": ("Algebra", "Geometry")[number % 2],
                "solution": f"It is \\boxed{{{number}}}.",
            }
            for number in range(60)
        ],
        "mmlu": [
            {"question": text(draw), "subject": f"s{number % 7}", "choices": ["a", "b", "c", "d"], "answer": number % 4}
            for number in range(60)
        ],
        "rlpr": [{"id": f"r{number}", "question": text(draw), "answer": f"{number} m"} for number in range(60)],
        "livecodebench_v1": [
            {
                "question_id": "abc350_c" if number == 0 else f"abc{number}",
                "question_content": text(draw),
                "platform": "atcoder",
                "difficulty": ("easy", "medium", "hard")[number % 3],
                "public_test_cases": json.dumps(stdin),
                "private_test_cases": json.dumps(stdin),
                "metadata": "{}",
            }
            for number in range(60)
        ],
    }
    for name, part in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    return tmp_path


def mix(folder: Path, **options: object) -> PaperMix:
    task = load_task("paper_mix", path=folder, **options)
    assert isinstance(task, PaperMix)
    return task


def test_the_mix_is_of_the_papers_four_tasks_and_960_problems() -> None:
    assert {spec.name for spec, _ in PARTS} == TASKS
    assert PROBLEMS == 960
    assert "test" not in {split for spec, split in PARTS if spec.name in {"math", "mmlu"}}


def test_shares_are_equal_and_every_id_is_unlike_the_others(folder: Path) -> None:
    problems = mix(folder, limit=42).load()
    assert Counter(problem.task for problem in problems) == {"math": 11, "mmlu": 11, "rlpr": 10, "livecodebench_v1": 10}
    assert len({problem.id for problem in problems}) == 42
    assert all(problem.id.startswith(f"{problem.task}/") for problem in problems)
    tasks = [problem.task for problem in problems]
    assert tasks != sorted(tasks)  # the parts are shuffled into each other


def test_the_hard_ones_are_chosen(folder: Path) -> None:
    items = mix(folder, limit=12).read().items
    assert {item.problem.kind for item in items if item.problem.task == "math"} == {"level 5"}
    assert {item.problem.kind for item in items if item.problem.task == "livecodebench_v1"} == {"hard"}


def test_subjects_are_spread(folder: Path) -> None:
    items = mix(folder, limit=28).read().items
    assert Counter(item.subject for item in items if item.problem.task == "mmlu") == {f"s{n}": 1 for n in range(7)}


def test_a_problem_that_is_known_to_be_faulty_is_not_learnt_from(folder: Path) -> None:
    problems = mix(folder, limit=PROBLEMS).load()
    assert len(problems) == 239
    assert "livecodebench_v1/abc350_c" not in {problem.id for problem in problems}


def test_measured_outcomes_say_what_is_hard(folder: Path) -> None:
    outcomes = folder / "outcomes.jsonl"
    ids = [f"mmlu/auxiliary_train/{number}" for number in range(60)]
    hard = set(ids[20:24])
    rows = [{"id": name, "correct": name not in hard or sample == 0} for name in ids for sample in range(4)]
    outcomes.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    task = mix(folder, limit=16, outcomes=outcomes)
    # Four are wanted and four are sometimes solved; the pool is larger, and the subjects of those four are all unlike.
    chosen = {problem.id for problem in task.load() if problem.task == "mmlu"}
    assert task.pass_rates["mmlu/auxiliary_train/20"] == 0.25
    assert task.pass_rates["mmlu/auxiliary_train/0"] == 1.0
    assert len(chosen) == 4
    assert "mmlu/auxiliary_train: 4 of 60, by the pass rates of 60" in task.source.notes


def test_a_run_can_write_down_every_part(folder: Path) -> None:
    record = mix(folder, limit=8, seed=3).source.record()
    assert record["dataset"] == "mix"
    assert record["pinned"] is False
    notes = record["notes"]
    assert isinstance(notes, list)
    assert notes[0] == "seed 3"
    assert "rlpr/train: 2 of 60, by diversity alone: nothing says how hard they are" in notes
    assert "math/train: 2 of 60, by their stated difficulty" in notes
    parts = record["parts"]
    assert isinstance(parts, list)
    assert [len(part["sha256"]) for part in parts] == [64] * 4
    assert json.loads(json.dumps(record)) == record


async def test_each_problem_is_judged_by_its_own_task(folder: Path) -> None:
    task = mix(folder, limit=12)
    for item in task.read().items:
        if item.canonical is not None:
            assert (await task.grader.grade(item.problem, item.canonical)).correct is True
    with pytest.raises(
        GradingError, match="got a problem of 'gym', expected one of math, mmlu, rlpr, livecodebench_v1"
    ):
        await task.grader.grade(Problem("x", "", "", "gym"), "")


def test_wrong_options_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="option limit: got 3, expected 4 or more"):
        mix(folder, limit=3)
    with pytest.raises(ConfigError, match=r"expected a folder of math\.jsonl, mmlu\.jsonl"):
        mix(folder / "math.jsonl")
    with pytest.raises(
        ConfigError, match="got the option 'revision', expected one of path, limit, seed, split, outcomes"
    ):
        load_task("paper_mix", revision="main")
    with pytest.raises(ConfigError, match="got the split 'test', expected 'train'"):
        mix(folder, split="test")
    with pytest.raises(TaskError, match="got the split 'test', expected 'train'"):
        mix(folder).load("test")
    (folder / "rlpr.jsonl").unlink()
    with pytest.raises(TaskError, match=r"rlpr\.jsonl: no such file"):
        mix(folder).load()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "a"}, "line 2: field 'correct': got None, expected true, false or null, or a pass_rate"),
        ({"id": "a", "correct": 1}, "field 'correct': got 1, expected true, false or null"),
        ({"id": "a", "pass_rate": 1.5}, "field 'pass_rate': got 1.5, expected a number from 0 to 1"),
        ({"correct": True}, "field 'id': missing"),
    ],
)
def test_an_outcome_that_is_none_is_an_error(tmp_path: Path, row: dict[str, object], message: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text(json.dumps({"id": "b", "correct": None}) + "\n" + json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        read_pass_rates(path)
