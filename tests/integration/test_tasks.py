"""Tasks over the public rows beside the checkout: gold answers are accepted, shapes are read.

The data are parts of the published sets; these tests skip where they are not there. Nothing here
runs a program.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.graders.code_tests import CallTest, CodeTests
from openconductor.tasks import load_task
from openconductor.tasks.check import check_task
from openconductor.tasks.data.dataset import DatasetTask
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
    [
        ("math500", None, 198),
        ("gsm8k", None, 200),
        ("mmlu", None, 300),
        ("mmlu", "mmlu_pro_outputs", 300),
    ],
)
async def test_every_gold_answer_is_accepted(
    shared_data: Path, name: str, rows: str | None, count: int
) -> None:
    if name != "mmlu":
        pytest.importorskip("sympy")
    report = await check_task(task(shared_data, name, rows))
    assert (report.refused, report.undecided, report.unanswered) == ((), (), 0)
    assert report.accepted == count == report.source.rows


@pytest.mark.parametrize("name", ["math500", "gsm8k"])
async def test_another_problems_answer_is_refused(shared_data: Path, name: str) -> None:
    pytest.importorskip("sympy")
    made = task(shared_data, name)
    items = list(made.read().items)
    others = items[1:] + items[:1]
    same = accepted = 0
    for item, other in zip(items, others, strict=True):
        assert other.canonical is not None
        grade: Grade = await made.grader.grade(item.problem, other.canonical)
        same += item.problem.reference == other.problem.reference
        accepted += grade.correct is True
    assert (
        accepted == same
    )  # by chance some neighbours have the same answer, and only these are accepted


def test_assertions_are_judged_outside_wherever_they_can_be(shared_data: Path) -> None:
    outside = {}
    for name in ("humaneval", "mbpp"):
        problems = task(shared_data, name).load()
        tests = [
            problem.reference for problem in problems if isinstance(problem.reference, CodeTests)
        ]
        assert all(isinstance(test, CallTest) for one in tests for test in one.tests)
        outside[name] = sum(one.unittest is None for one in tests) / len(tests)
    assert outside["humaneval"] > 0.9
    assert outside["mbpp"] > 0.9
