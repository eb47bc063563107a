"""``openconductor grade`` in this process: options, and where programs run (never, here)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from openconductor.cli import grade as grade_module
from openconductor.cli.grade import stdin_lines
from openconductor.errors import SandboxError, TaskError
from openconductor.graders.code import CodeGrader
from openconductor.sandboxes import Limits, Run, RunResult, Verdict

CODE = {
    "id": "p",
    "tests": [{"input": "5\n", "output": "5\n"}],
    "answer": "```python\nprint(input())\n```",
}


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def verdicts(ran) -> list[dict[str, object]]:
    return [json.loads(line) for line in ran.out.splitlines()]


WRONG = """
                                  → missing option '--grader'
--grader mth                      → expected one of math, choice, freeform, code; nearest: 'math'
--grader math --mode strict       → --mode requires --grader code; got --grader math
--grader math --unsafe-code-exec  → --unsafe-code-exec requires --grader code
--grader code --mode lcb          → --mode: got 'lcb', expected one of strict, lcb-compat; nearest:
--grader math --concurrency 0     → --concurrency
"""


@pytest.mark.parametrize("line", WRONG.strip("\n").splitlines())
def test_wrong_options_are_refused_before_anything_is_read(run, line: str) -> None:
    words, message = line.split("→")
    ran = run("grade", *words.split(), stdin=lines({"id": 1}))
    assert (ran.code, ran.out) == (2, "")
    assert message.strip() in " ".join(ran.err.split())


# ── programs; the sandbox is played ───────────────────────────────────────────────────────────────
class Played:
    """A sandbox that echoes each run's input, and knows whether it was closed."""

    closed = False

    def __init__(self, unsafe: bool) -> None:
        self.level = "plain (no protection)" if unsafe else "played"

    async def run_batch(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on=None
    ) -> list[RunResult]:
        results = [RunResult(one.stdin, "", Verdict.OK, 0, 0.0, 0.0, self.level) for one in runs]
        return [one for one in results if go_on is None or go_on(one)]

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    sandboxes: list[Played] = []

    def open_sandbox(*, unsafe: bool) -> Played:
        sandboxes.append(Played(unsafe))
        return sandboxes[-1]

    monkeypatch.setattr("openconductor.sandboxes.open_sandbox", open_sandbox)
    return sandboxes


def test_programs_run_in_the_sandbox_that_was_opened_and_closed_again(
    run, opened, monkeypatch
) -> None:
    modes: list[str] = []
    make = CodeGrader.__init__

    def noting(self: CodeGrader, mode="strict", *rest: object, **options: object) -> None:
        modes.append(mode)
        make(self, mode, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CodeGrader, "__init__", noting)
    wrong = {**CODE, "id": "q", "tests": [{"input": "5\n", "output": "6\n"}]}
    broken = {**CODE, "id": "r", "answer": "no program"}
    ran = run("grade", "--grader", "code", stdin=lines(CODE, wrong, broken))
    assert ran.code == 0
    correct = {verdict["id"]: verdict["correct"] for verdict in verdicts(ran)}
    assert correct == {"p": True, "q": False, "r": False}
    assert str(verdicts(ran)[0]["note"]).startswith("[played]")
    run("grade", "--grader", "code", "--mode", "lcb-compat", stdin=lines(CODE))
    assert modes == ["strict", "lcb-compat"]
    assert [sandbox.closed for sandbox in opened] == [True, True]


def test_doing_without_a_sandbox_takes_a_flag_and_is_said(run, opened, monkeypatch) -> None:
    ran = run("grade", "--grader", "code", "--unsafe-code-exec", stdin=lines(CODE))
    assert (ran.code, opened[0].level) == (0, "plain (no protection)")
    assert "warning: no sandbox works here: programs run unprotected" in ran.err

    def refuse(*, unsafe: bool) -> None:
        raise SandboxError("no sandbox works here: bubblewrap: not installed")

    monkeypatch.setattr("openconductor.sandboxes.open_sandbox", refuse)
    ran = run("grade", "--grader", "code", stdin=lines(CODE))
    assert (ran.code, ran.out) == (1, "")
    assert "bubblewrap: not installed" in ran.err and "--unsafe-code-exec" in ran.err


def test_a_report_is_a_page_with_all_that_a_verdict_needs(run) -> None:
    answer = "```\nAnswer: B\n```\ud800"
    rows = [{"id": "q7", "question": "Which?", "reference": "B", "answer": answer}]
    rows.append({"id": "q8", "reference": "C", "answer": "no idea"})
    ran = run("grade", "--grader", "choice", "--report", stdin=lines(*rows))
    assert ran.code == 0
    parts = ["- grader: choice", "openconductor ", "Python ", "## q7", "Which?", "````", "## q8"]
    parts += ["Answer: B", '"correct": true', '"correct": false', '"note": "unparsed']
    places = [ran.out.find(part) for part in parts]
    assert -1 not in places
    assert places[:7] == sorted(places[:7])


# ── stdin ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_line_that_never_ends_is_refused_by_its_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(grade_module, "LONGEST", 100)
    (tmp_path / "answers.jsonl").write_bytes(b"a\n" + b"x" * 120)
    with (tmp_path / "answers.jsonl").open("r") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(
            TaskError, match="stdin, line 2: longer than 100 bytes; expected one JSON object a line"
        ):
            list(stdin_lines())
