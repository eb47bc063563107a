"""Tasks of programs end to end: rows, prompt, sandbox, verdict. Needs a sandbox."""

from __future__ import annotations

import json
from pathlib import Path

from openconductor.graders.code import CodeGrader
from openconductor.sandboxes import Sandbox
from openconductor.tasks import load_task
from openconductor.tasks.check import check_task
from openconductor.tasks.prompts import fenced

ECHO = {
    "id": "echo",
    "question": "Print twice what you read.",
    "tests": [{"input": "3\n", "output": "6\n"}, {"input": "5\n", "output": "10"}],
    "solution": "print(2 * int(input()))",
}
ADD = {
    "id": "add",
    "question": "Add two numbers.",
    "starter_code": "class Solution:\n    def add(self, a, b):\n",
    "tests": [{"args": [1, 2], "expected": 3}, {"args": {"a": 2, "b": 2}, "expected": 4}],
    "solution": "class Solution:\n    def add(self, a, b):\n        return a + b",
}


async def test_local_rows_of_both_kinds_are_judged(tmp_path: Path, sandbox: Sandbox) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(ECHO) + "\n" + json.dumps(ADD) + "\n", encoding="utf-8")
    task = load_task("livecodebench_v1", path=path)
    report = await check_task(task)
    assert (report.accepted, report.refused, report.undecided) == (2, (), ())
    wrong = ("print(3 * int(input()))", "def add(a, b):\n    return a - b")
    grader = CodeGrader("lcb-compat", sandbox)
    for problem, program in zip(task.load(), wrong, strict=True):
        assert (await grader.grade(problem, fenced(program))).correct is False
