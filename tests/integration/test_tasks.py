"""Tasks over the public rows that lie beside the checkout: every gold answer is accepted, every shape is read.

The data are parts of the published sets; these tests skip where they are not there. Nothing here runs a program.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from openconductor.graders.code_tests import CallTest, CodeTests
from openconductor.graders.code_text import program_of
from openconductor.tasks import load_task
from openconductor.tasks.check import check_task
from openconductor.tasks.dataset import DatasetTask
from openconductor.types import Grade


def task(folder: Path, name: str, rows: str | None = None, **options: object) -> DatasetTask:
    path = folder / (rows or name) / "data.jsonl"
    if not path.is_file():
        pytest.skip(f"needs the rows of {rows or name} in ../shared/data")
    made = load_task(name, path=path, **options)
    assert isinstance(made, DatasetTask)
    return made


@pytest.mark.parametrize(
    ("name", "rows", "count"),
    [("math500", None, 198), ("gsm8k", None, 200), ("mmlu", None, 300), ("mmlu", "mmlu_pro_outputs", 300)],
)
async def test_every_gold_answer_is_accepted(shared_data: Path, name: str, rows: str | None, count: int) -> None:
    if name != "mmlu":
        pytest.importorskip("math_verify")
    report = await check_task(task(shared_data, name, rows))
    assert (report.refused, report.undecided, report.unanswered) == ((), (), 0)
    assert report.accepted == count == report.source.rows


def text_of(question: str, letter: object) -> str:
    return next(line[3:] for line in question.splitlines() if line.startswith(f"{letter}) "))


def test_the_drawn_order_keeps_the_right_choice_right(shared_data: Path) -> None:
    drawn, published = task(shared_data, "mmlu", seed=4), task(shared_data, "mmlu")
    for one, other in zip(drawn.load(), published.load(), strict=True):
        if "\n" not in text_of(other.question, other.reference):
            assert text_of(one.question, one.reference) == text_of(other.question, other.reference)


@pytest.mark.parametrize("name", ["math500", "gsm8k"])
async def test_another_problems_answer_is_refused(shared_data: Path, name: str) -> None:
    pytest.importorskip("math_verify")
    made = task(shared_data, name)
    items = list(made.read().items)
    others = items[1:] + items[:1]
    same = accepted = 0
    for item, other in zip(items, others, strict=True):
        assert other.canonical is not None
        grade: Grade = await made.grader.grade(item.problem, other.canonical)
        same += item.problem.reference == other.problem.reference
        accepted += grade.correct is True
    assert accepted == same  # by chance some neighbours have the same answer, and only these are accepted


@pytest.mark.parametrize(("name", "count"), [("humaneval", 80), ("mbpp", 200), ("bigcodebench_hard", 24)])
def test_every_programming_row_becomes_a_problem_with_tests_and_a_whole_solution(
    shared_data: Path, name: str, count: int
) -> None:
    items = task(shared_data, name).read().items
    assert len(items) == count
    for item in items:
        tests = item.problem.reference
        assert isinstance(tests, CodeTests)
        assert tests.tests or tests.unittest
        assert tests.entry_point
        assert item.canonical is not None
        program = program_of(item.canonical)
        assert program is not None
        compile(program, item.problem.id, "exec")
        assert f"def {tests.entry_point}" in program
        assert tests.entry_point in item.problem.question


def test_the_prompt_of_mbpp_holds_one_assertion_and_no_other_expected_value(shared_data: Path) -> None:
    made = task(shared_data, "mbpp")
    rows = [json.loads(line) for line in made.path.read_text("utf-8").splitlines()]  # type: ignore[union-attr]
    for problem, row in zip(made.load(), rows, strict=True):
        shown = [one for one in row["test_list"] if one.strip() in problem.question]
        assert shown == [one for one in row["test_list"] if one.strip() == row["test_list"][0].strip()]


def test_assertions_are_judged_outside_wherever_they_can_be(shared_data: Path) -> None:
    outside = {}
    for name in ("humaneval", "mbpp"):
        problems = task(shared_data, name).load()
        tests = [problem.reference for problem in problems if isinstance(problem.reference, CodeTests)]
        assert all(isinstance(test, CallTest) for one in tests for test in one.tests)
        outside[name] = sum(one.unittest is None for one in tests) / len(tests)
    assert outside["humaneval"] > 0.9
    assert outside["mbpp"] > 0.9


def test_ids_are_those_of_the_data_and_unlike_each_other(shared_data: Path) -> None:
    ids = {
        name: [problem.id for problem in task(shared_data, name).load()] for name in ("math500", "humaneval", "mbpp")
    }
    assert ids["math500"][0] == "test/prealgebra/1622.json"
    assert ids["humaneval"][0] == "HumanEval/0"
    assert ids["mbpp"][0] == "mbpp/602"
    assert all(len(set(each)) == len(each) for each in ids.values())


def test_the_mix_can_be_made_of_real_rows(shared_data: Path, tmp_path: Path) -> None:
    for name, rows in (("math", "math500"), ("mmlu", "mmlu")):
        source = shared_data / rows / "data.jsonl"
        if not source.is_file():
            pytest.skip(f"needs the rows of {rows} in ../shared/data")
        (tmp_path / f"{name}.jsonl").write_bytes(source.read_bytes())
    draw = random.Random(0)
    free = [{"id": f"r{n}", "question": f"How far is {draw.random()}?", "answer": f"{n} m"} for n in range(50)]
    code = [{"id": f"c{n}", "question": f"Print {n}.", "tests": [{"input": "", "output": str(n)}]} for n in range(50)]
    for name, each in (("rlpr", free), ("livecodebench_v1", code)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each), encoding="utf-8")
    loaded = load_task("paper_mix", path=tmp_path, limit=80, seed=1).read()
    assert len(loaded.items) == 80
    math = [item for item in loaded.items if item.problem.task == "math"]
    assert {item.difficulty for item in math} <= {0.75, 1.0}
    assert len({item.subject for item in math}) == 7
    subjects = [item.subject for item in loaded.items if item.problem.task == "mmlu"]
    assert max(map(subjects.count, subjects)) - min(map(subjects.count, subjects)) <= 1
