"""``openconductor task``: list, show and check, over local rows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openconductor.graders.math import MathGrader
from openconductor.tasks.data.dataset import DatasetTask, UnpinnedData
from openconductor.tasks.data.items import Loaded
from openconductor.types import Grade, Problem

ROWS = [
    json.loads(line)
    for line in r"""
{"id": "one", "problem": "What is 1 + 1?", "answer": "2", "level": 2, "subject": "Algebra"}
{"id": "two", "problem": "What is \u001b[31m2 + 2?", "answer": "4", "level": 3, "subject": "A"}
{"id": "three", "problem": "What is 3 + 3?", "answer": "6"}
""".strip().splitlines()
]


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: object) -> Path:
        path = tmp_path / "data.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("which", ["2", "three"])
def test_a_problem_is_shown_by_its_position_or_its_id(run, data, which) -> None:
    ran = run("task", "show", "math500", "--path", data(), "--problem", which)
    prompt = "Reason step by step, then give the final answer in \\boxed{}."
    assert (ran.code, ran.out) == (0, f"What is 3 + 3?\n\n{prompt}\n")
    assert "math500/test · 2 of 3 · three\n" in ran.err
    assert "reference: 6\ncanonical reply: The final answer is \\boxed{6}.\n" in ran.err
    assert f"source: local file {data()}, 3 rows, sha256 " in ran.err
    assert f"a trained Conductor is not shown: {prompt}\n" in ran.err


@pytest.mark.parametrize("form", ["--path {}", "--task-path {}", "--task-path mine={}"])
def test_a_task_and_its_file_may_have_a_name_as_in_evaluations(run, data, form) -> None:
    ran = run("task", "check", "mine=math500", *form.format(data()).split())
    assert (ran.code, ran.out) == (0, "mine: 3 of 3 canonical replies accepted\n")
    ran = run("task", "check", "math500", "--path", f"mine={data()}")
    ran.assert_refused("expected NAME=FILE with the name of a --task")


def test_a_problem_for_programs_holds_everything(run, data) -> None:
    shown = run("task", "show", "math500", "--path", data(), "--json").json()
    source = shown.pop("source")
    assert source["fields"] == ["answer", "id", "level", "problem", "subject"]
    assert (
        shown.items()
        >= {
            "task": "math500",
            "split": "test",
            "place": 0,
            "problems": 3,
            "id": "one",
            "kind": "level 2",
            "difficulty": 0.25,
            "reference": "2",
            "canonical": "The final answer is \\boxed{2}.",
        }.items()
    )


def test_a_gym_problem_is_drawn_from_the_part_and_the_seed_that_are_asked_for(run) -> None:
    options = ("--limit", "3", "--seed", "5", "--split", "train", "--json")
    drawn = run("task", "show", "gym", *options).json()
    assert (drawn["problems"], drawn["split"], drawn["source"]["dataset"]) == (3, "train", "drawn")


CALL = {"args": "(1,)", "expected": "[2]"}
IO = {"input": "1", "output": "2"}
NO_NAMES = {"entry_point": None, "unittest": None}
RLPR = {"answer": "9 m", "tolerance": 0.1}
CALLS = {"tests": [{"args": [1], "expected": [2]}] * 5, "entry_point": "f"}


@pytest.mark.parametrize(
    ("name", "row", "reference"),
    [
        ("rlpr", RLPR, {"text": "9 m", "kind": None, "tolerance": 0.1}),
        ("humaneval", CALLS, {"tests": 5, "first": [CALL] * 3, **NO_NAMES, "entry_point": "f"}),
        ("livecodebench_v1", {"tests": [IO]}, {"tests": 1, "first": [IO], **NO_NAMES}),
    ],
)
def test_references_of_every_kind_can_be_shown(run, data, name, row, reference) -> None:
    path = data({"id": "a", "question": "?", **row})
    assert run("task", "show", name, "--path", path, "--json").json()["reference"] == reference
    assert run("task", "show", name, "--path", path).code == 0


@pytest.mark.parametrize("which", ["3", "-1", "four", "1.0"])
def test_a_problem_that_is_not_there_is_wrong_usage(run, data, which: str) -> None:
    ran = run("task", "show", "math500", "--path", data(), "--problem", which)
    assert (ran.code, ran.out) == (2, "")
    expected = "expected a position from 0 to 2, or the id of a problem of math500"
    assert f"--problem: got '{which}', {expected}" in ran.err


def judged(monkeypatch: pytest.MonkeyPatch, **verdicts: bool | None) -> None:
    """Let the math grader give these verdicts, by problem, and accept all others."""

    async def grade(self: MathGrader, problem: Problem, answer: str) -> Grade:
        return Grade(verdicts.get(problem.id, True), "x\x1b[31m" * 200, "why")

    monkeypatch.setattr(MathGrader, "grade", grade)


def test_a_check_exits_with_0_where_all_are_accepted(run, data) -> None:
    asked = ("task", "check", "math500", "--path", data())
    ran = run(*asked)
    assert (ran.code, ran.out) == (0, "math500: 3 of 3 canonical replies accepted\n")
    report = run(*asked, "--json").json()
    assert (report["ok"], report["accepted"], report["refused"]) == (True, 3, [])
    assert run(*asked, "--limit", "2", "--json").json()["accepted"] == 2


def test_a_check_exits_with_1_where_one_is_refused(run, data, monkeypatch) -> None:
    judged(monkeypatch, two=False)
    ran = run("task", "check", "math500", "--path", data())
    assert ran.code == 1
    assert "math500: 2 of 3 canonical replies accepted, 1 refused\nrefused  two  x" in ran.out
    ran = run("task", "check", "math500", "--path", data(), "--json")
    assert (ran.code, [entry["id"] for entry in ran.json()["refused"]]) == (1, ["two"])


def test_a_check_exits_with_1_where_nothing_can_be_decided(run, data, monkeypatch) -> None:
    judged(monkeypatch, two=None)
    ran = run("task", "check", "math500", "--path", data())
    assert ran.code == 0, "what is undecided is no failure, unless all are"
    assert "2 of 3 canonical replies accepted, 1 undecided\nundecided  two  x" in ran.out
    judged(monkeypatch, one=None, two=None, three=None)
    assert run("task", "check", "math500", "--path", data()).code == 1


def test_what_is_left_out_and_what_is_not_pinned_is_said(
    run, data, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"problem": "?", "level": "Level 1", "type": "t"}
    path = data({**row, "solution": "\\boxed{1}"}, {**row, "solution": "none"})
    ran = run("task", "check", "math", "--path", path)
    assert (ran.code, ran.out) == (0, "math: 1 of 1 canonical replies accepted\n")
    assert "left out: math/train/1: its solution boxes no answer" in ran.err
    read = DatasetTask.read

    def warning(self: DatasetTask, split: str = "") -> Loaded:
        warnings.warn("org/set is not pinned", UnpinnedData, stacklevel=2)
        return read(self, split)

    monkeypatch.setattr(DatasetTask, "read", warning)
    ran = run("task", "show", "math500", "--path", data(), "--json")
    assert (ran.code, ran.json()["id"]) == (0, "one")
    assert "warning: org/set is not pinned" in ran.err


WRONG = """
show mat500                                 → 2 nearest: 'math500'
check gym --revision main                   → 2 got the option 'revision', expected one of limit,
check math500 --split tset                  → 2 got the split 'tset', expected one of test
check math500 --path none.jsonl             → 1 none.jsonl: no such file; expected JSON Lines
check math500 --path data.jsonl --sha256 00 → 1 got the SHA-256
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_command_names_what_is_expected(run, data, tmp_path, monkeypatch, line) -> None:
    arguments, outcome = line.split("→")
    code, message = outcome.split(maxsplit=1)
    data()
    monkeypatch.chdir(tmp_path)
    ran = run("task", *arguments.split())
    assert (ran.code, ran.out) == (int(code), "")
    assert message in ran.err


# ── a judge ───────────────────────────────────────────────────────────────────────────────────────
POOL = """
[[worker]]
name = "referee"
provider = "openconductor.testing:Scripted"
model = "Verdict: right"
price = {input = 1, output = 2}
"""


def test_a_judge_decides_what_the_rules_cannot_and_its_bill_is_said(
    run, data, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data({"id": "a", "question": "What falls?", "answer": "supply, then demand"})
    read = DatasetTask.read

    def in_other_words(self: DatasetTask, split: str = "") -> Loaded:
        loaded = read(self, split)
        (item,) = loaded.items
        return replace(loaded, items=(replace(item, canonical="Answer: both fall"),))

    monkeypatch.setattr(DatasetTask, "read", in_other_words)
    pool = tmp_path / "pool.toml"
    pool.write_text(POOL, "utf-8")
    check = ("task", "check", "rlpr", "--path", path)
    assert "1 undecided" in run(*check).out
    judged = run(*check, "--judge", "referee", "--pool", pool)
    assert (judged.code, judged.out) == (0, "rlpr: 1 of 1 canonical replies accepted\n")
    assert "judge referee: 1 call, $" in judged.err
    assert "with --journal FILE a second check pays for none of them again" in judged.err
    kept = (*check, "--judge", "referee", "--pool", pool, "--journal", tmp_path / "calls.sqlite")
    assert "judge referee: 1 call, $" in run(*kept).err
    again = run(*kept)
    assert (again.code, again.out) == (0, judged.out)
    assert "judge referee: 0 calls, $0.000000\n" in again.err
    run(*check, "--judge", "refere", "--pool", pool).assert_refused("--judge: got 'refere'")
    run(*check, "--judge", "referee").assert_refused("require each other")
    run(*check, "--journal", "calls.sqlite").assert_refused("--journal requires --judge")


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_list_of_tasks_says_each_split_on_a_line_and_fits(run, monkeypatch, columns) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = run("task", "list").out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert len(lines) < 70
    assert any(line.strip().startswith("auxiliary_train 99,842") for line in lines)
