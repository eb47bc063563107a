"""``openconductor task``: list, show and check, over local rows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from openconductor import cli
from openconductor.graders.math import MathGrader
from openconductor.tasks import TASKS
from openconductor.tasks.dataset import DatasetTask, UnpinnedData
from openconductor.tasks.items import Loaded
from openconductor.types import Grade, Problem

ROWS = [
    {"id": "one", "problem": "What is 1 + 1?", "answer": "2", "level": 2, "subject": "Algebra"},
    {"id": "two", "problem": "What is \x1b[31m2 + 2?", "answer": "4", "level": 3, "subject": "Algebra"},
    {"id": "three", "problem": "What is 3 + 3?", "answer": "6"},
]


class Ran:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_all_tasks_are_listed_with_their_judges(run) -> None:
    ran = run("task", "list")
    assert ran.code == 0
    assert all(name in ran.out for name in TASKS)
    listed = {one["name"]: one for one in run("task", "list", "--json").json()}
    assert set(listed) == set(TASKS)
    assert {name: one["grader"] for name, one in listed.items()} == {
        **dict.fromkeys(("math", "math500", "aime25", "gsm8k"), "math"),
        **dict.fromkeys(("mmlu", "gpqa_diamond"), "choice"),
        **dict.fromkeys(("humaneval", "mbpp", "bigcodebench_hard", "livecodebench_v1", "livecodebench_v6"), "code"),
        "rlpr": "freeform",
        "gym": "exact",
        "paper_mix": "by part",
    }


def test_the_list_says_where_data_are_from_and_what_is_not_pinned(run) -> None:
    listed = {one["name"]: one for one in run("task", "list", "--json").json()}
    assert listed["mmlu"]["dataset"] == "cais/mmlu"
    assert listed["mmlu"]["splits"]["test"] == 14042
    assert listed["gpqa_diamond"]["gated"] is True
    assert listed["livecodebench_v6"]["splits"] == {"test": 175, "release": 1055}
    assert [name for name, one in listed.items() if not one["pinned"]] == ["rlpr"]


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_problem_is_shown_by_its_place_or_its_id(run, path) -> None:
    by_place, by_id = (run("task", "show", "math500", "--path", path, "--problem", which) for which in ("2", "three"))
    assert by_place.code == by_id.code == 0
    assert (
        by_place.out == by_id.out == "What is 3 + 3?\n\nReason step by step, then give the final answer in \\boxed{}.\n"
    )
    assert "math500/test · 2 of 3 · three" in by_place.err
    assert "reference: 6" in by_place.err
    assert "canonical reply: The final answer is \\boxed{6}." in by_place.err
    assert "source: local file test, 3 rows, sha256 " in by_place.err


def test_a_problem_for_programs_holds_everything(run, path) -> None:
    shown = run("task", "show", "math500", "--path", path, "--json").json()
    assert {key: shown[key] for key in ("task", "split", "place", "problems", "id", "kind", "difficulty")} == {
        "task": "math500",
        "split": "test",
        "place": 0,
        "problems": 3,
        "id": "one",
        "kind": "level 2",
        "difficulty": 0.25,
    }
    assert (shown["reference"], shown["canonical"]) == ("2", "The final answer is \\boxed{2}.")
    assert shown["source"]["fields"] == ["answer", "id", "level", "problem", "subject"]


def test_references_of_every_kind_can_be_shown(run, tmp_path: Path) -> None:
    rows = {
        "rlpr": {"id": "a", "question": "?", "answer": "9 m", "tolerance": 0.1},
        "humaneval": {"id": "a", "question": "?", "tests": [{"args": [1], "expected": [2]}] * 5, "entry_point": "f"},
        "livecodebench_v1": {"id": "a", "question": "?", "tests": [{"input": "1", "output": "2"}]},
    }
    shown = {}
    for name, row in rows.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row), encoding="utf-8")
        shown[name] = run("task", "show", name, "--path", path, "--json").json()["reference"]
        assert run("task", "show", name, "--path", path).code == 0
    assert shown["rlpr"] == {"text": "9 m", "kind": None, "tolerance": 0.1}
    first = {"args": "(1,)", "expected": "[2]"}
    assert shown["humaneval"] == {"tests": 5, "first": [first] * 3, "entry_point": "f", "unittest": None}
    assert shown["livecodebench_v1"]["first"] == [{"input": "1", "output": "2"}]


def test_the_gym_is_shown_without_any_data(run) -> None:
    shown = run("task", "show", "gym", "--limit", "3", "--seed", "5", "--split", "train", "--json").json()
    assert (shown["problems"], shown["split"], shown["source"]["dataset"]) == (3, "train", "drawn")


@pytest.mark.parametrize("which", ["3", "-1", "four", "1.0"])
def test_a_problem_that_is_not_there_is_wrong_usage(run, path, which: str) -> None:
    ran = run("task", "show", "math500", "--path", path, "--problem", which)
    assert ran.code == 2
    assert ran.out == ""
    assert f"--problem: got '{which}', expected a place from 0 to 2, or the id of a problem of math500" in ran.err


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_check_that_finds_nothing_wrong_exits_with_0(run, path) -> None:
    ran = run("task", "check", "math500", "--path", path)
    assert (ran.code, ran.out) == (0, "math500: 3 of 3 canonical replies accepted\n")
    found = run("task", "check", "math500", "--path", path, "--json").json()
    assert {key: found[key] for key in ("task", "ok", "accepted", "refused", "undecided")} == {
        "task": "math500",
        "ok": True,
        "accepted": 3,
        "refused": [],
        "undecided": [],
    }


def judged(monkeypatch: pytest.MonkeyPatch, **verdicts: bool | None) -> None:
    """Let the math grader say of each problem, by its id, what is given here, and right of the others."""

    async def grade(self: MathGrader, problem: Problem, answer: str) -> Grade:
        return Grade(verdicts.get(problem.id, True), "x\x1b[31m" * 200, "why")

    monkeypatch.setattr(MathGrader, "grade", grade)


def test_what_the_grader_refuses_is_listed_and_exits_with_1(run, path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, two=False)
    ran = run("task", "check", "math500", "--path", path)
    assert ran.code == 1
    assert "math500: 2 of 3 canonical replies accepted, 1 refused\nrefused  two  x" in ran.out
    assert "\x1b" not in ran.out + ran.err
    ran = run("task", "check", "math500", "--path", path, "--json")
    assert ran.code == 1
    assert [one["id"] for one in ran.json()["refused"]] == ["two"]


def test_the_undecided_are_shown_apart_and_are_no_failure_unless_all_are(run, path, monkeypatch) -> None:
    judged(monkeypatch, two=None)
    ran = run("task", "check", "math500", "--path", path)
    assert ran.code == 0
    assert "2 of 3 canonical replies accepted, 1 undecided\nundecided  two  x" in ran.out
    judged(monkeypatch, one=None, two=None, three=None)
    assert run("task", "check", "math500", "--path", path).code == 1


def test_a_solution_that_is_left_out_is_said(run, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    rows = [{"problem": "?", "solution": text, "level": "Level 1", "type": "t"} for text in ("\\boxed{1}", "none")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ran = run("task", "check", "math", "--path", path)
    assert (ran.code, ran.out) == (0, "math: 1 of 1 canonical replies accepted\n")
    assert "left out: math/train/1: its solution boxes no answer" in ran.err


def test_a_limit_and_a_digest_reach_the_task(run, path) -> None:
    assert run("task", "check", "math500", "--path", path, "--limit", "2", "--json").json()["accepted"] == 2
    ran = run("task", "check", "math500", "--path", path, "--sha256", "00")
    assert ran.code == 1
    assert "got the SHA-256" in ran.err


# ── errors and warnings ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "mat500"), 2, "nearest: 'math500'"),
        (("check", "gym", "--revision", "main"), 2, "got the option 'revision', expected one of limit, seed, split"),
        (("check", "math500", "--split", "tset"), 2, "got the split 'tset', expected one of test"),
        (("check", "math500", "--path", "none.jsonl"), 1, "none.jsonl: no such file; expected JSON Lines"),
        (("chek",), 2, "the nearest is 'check'"),
        (("check", "math500", "--pth", "x"), 2, "the nearest is '--path'"),
    ],
)
def test_a_wrong_command_says_what_would_be_right(run, tmp_path, monkeypatch, arguments, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("task", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_data_that_are_not_pinned_are_said_on_stderr(run, path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = DatasetTask.read

    def warning(self: DatasetTask, split: str = "") -> Loaded:
        warnings.warn("org/set is not pinned", UnpinnedData, stacklevel=2)
        return read(self, split)

    monkeypatch.setattr(DatasetTask, "read", warning)
    ran = run("task", "show", "math500", "--path", path, "--json")
    assert ran.code == 0
    assert ran.json()["id"] == "one"
    assert "warning: org/set is not pinned" in ran.err
