"""``openconductor grade`` in this process: streams, options, and where programs run (never, here)."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence

import pytest

from openconductor import cli
from openconductor.cli import console
from openconductor.cli import grade as grade_module
from openconductor.cli.grade import stdin_lines
from openconductor.errors import SandboxError, TaskError
from openconductor.graders.code import CodeGrader
from openconductor.sandboxes import Limits, Run, RunResult, Verdict


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def verdicts(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    def call(stdin: bytes | Sequence[object], *arguments: str) -> Ran:
        if not isinstance(stdin, bytes):
            stdin = b"".join(json.dumps(row).encode() + b"\n" for row in stdin)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = cli.main(["grade", *arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return Ran(code, captured.out, captured.err)

    return call


def test_each_line_gets_a_verdict_in_its_order(run) -> None:
    rows = [{"id": f"a{n}", "reference": str(n), "answer": f"\\boxed{{{n % 2}}}", "more": [1]} for n in range(5)]
    ran = run(rows, "--grader", "math")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.verdicts() == [
        {"id": f"a{n}", "correct": n < 2, "extracted": str(n % 2), "note": "same text" if n < 2 else "number"}
        for n in range(5)
    ]


def test_a_verdict_has_these_fields_in_this_order(run) -> None:
    ran = run([{"id": 7, "reference": "B", "choices": ["x", "y"], "answer": "Answer: B"}], "--grader", "choice")
    assert ran.out == '{"id": 7, "correct": true, "extracted": "B", "note": ""}\n'


def test_what_nobody_can_decide_is_null(run) -> None:
    ran = run([{"id": 1, "reference": "the cell", "answer": "\\boxed{a membrane}"}], "--grader", "freeform")
    assert ran.verdicts()[0]["correct"] is None
    assert ran.code == 0


def test_a_bad_line_is_named_and_nothing_before_it_is_lost(run) -> None:
    good = json.dumps({"id": 1, "reference": "1", "answer": "\\boxed{1}"}).encode()
    ran = run(good + b"\n" + good + b"\nno\n" + good + b"\n", "--grader", "math")
    assert ran.code == 2
    assert len(ran.verdicts()) == 2
    assert "stdin, line 3: not JSON" in ran.err


def test_nothing_in_is_nothing_out(run) -> None:
    ran = run(b"", "--grader", "math")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing option '--grader'"),
        (("--grader", "mth"), "--grader: got 'mth', expected one of math, choice, freeform, code; nearest: 'math'"),
        (("--grader", "math", "--mode", "strict"), "--mode: got it beside --grader math; only code has it"),
        (("--grader", "math", "--unsafe-code-exec"), "--unsafe-code-exec: got it beside --grader math"),
        (("--grader", "code", "--mode", "lcb"), "--mode: got 'lcb', expected one of strict, lcb-compat; nearest:"),
        (("--grader", "math", "--concurrency", "0"), "--concurrency"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(run, arguments: tuple[str, ...], message: str) -> None:
    ran = run([{"id": 1}], *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in " ".join(ran.err.split())


# ── programs; the sandbox is played ──────────────────────────────────────────────────────────────────────────────────
class Played:
    """A sandbox that echoes each run's input, and knows whether it was closed."""

    level = "played"
    closed = False

    async def run_batch(self, program: str, runs: Sequence[Run], *, limits: Limits, go_on=None) -> list[RunResult]:
        results = []
        for one in runs:
            results.append(RunResult(one.stdin, "", Verdict.OK, 0, 0.0, 0.0, self.level))
            if go_on is not None and not go_on(results[-1]):
                break
        return results

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    opened: list[object] = []

    def open_sandbox(*, unsafe: bool) -> Played:
        opened.append(unsafe)
        sandbox = Played()
        sandbox.level = "plain (no protection)" if unsafe else "played"
        opened.append(sandbox)
        return sandbox

    monkeypatch.setattr("openconductor.sandboxes.open_sandbox", open_sandbox)
    return opened


CODE = {"id": "p", "tests": [{"input": "5\n", "output": "5\n"}], "answer": "```python\nprint(input())\n```"}


def test_programs_run_in_the_sandbox_that_was_opened_and_closed_again(run, played) -> None:
    wrong = {**CODE, "id": "q", "tests": [{"input": "5\n", "output": "6\n"}]}
    ran = run([CODE, wrong, {**CODE, "id": "r", "answer": "no program"}], "--grader", "code")
    assert ran.code == 0
    assert [(one["id"], one["correct"]) for one in ran.verdicts()] == [("p", True), ("q", False), ("r", False)]
    assert str(ran.verdicts()[0]["note"]).startswith("[played]")
    unsafe, sandbox = played
    assert unsafe is False
    assert sandbox.closed


def test_doing_without_a_sandbox_takes_a_flag_and_is_said(run, played) -> None:
    ran = run([CODE], "--grader", "code", "--unsafe-code-exec")
    assert ran.code == 0
    assert played[0] is True
    assert "warning: no sandbox works here: programs run unprotected" in ran.err


def test_the_mode_reaches_the_grader(run, played, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    made = CodeGrader.__init__

    def noting(self: CodeGrader, mode="strict", *rest: object, **options: object) -> None:
        modes.append(mode)
        made(self, mode, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CodeGrader, "__init__", noting)
    run([CODE], "--grader", "code")
    run([CODE], "--grader", "code", "--mode", "lcb-compat")
    assert modes == ["strict", "lcb-compat"]


def test_without_any_sandbox_the_command_fails_and_says_what_would_help(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*, unsafe: bool) -> None:
        raise SandboxError("no sandbox works here: bubblewrap: not installed")

    monkeypatch.setattr("openconductor.sandboxes.open_sandbox", refuse)
    ran = run([CODE], "--grader", "code")
    assert (ran.code, ran.out) == (1, "")
    assert "bubblewrap: not installed" in ran.err
    assert "--unsafe-code-exec" in ran.err


# ── the two streams ──────────────────────────────────────────────────────────────────────────────────────────────────
def piped(monkeypatch: pytest.MonkeyPatch, *chunks: bytes) -> list[bytes]:
    """What ``stdin_lines`` makes of what comes through a pipe."""
    reader, writer = os.pipe()
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        return list(stdin_lines())


def test_the_lines_of_a_pipe_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert piped(monkeypatch, b"ab", b"c\nd", b"\n", b"\nef\ngh", b"i") == [b"abc", b"d", b"", b"ef", b"ghi"]
    assert piped(monkeypatch) == []


def test_a_line_that_never_ends_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade_module, "LONGEST", 100)
    with pytest.raises(TaskError, match="stdin, line 2: longer than 100 bytes; expected one JSON object a line"):
        piped(monkeypatch, b"a\n", b"x" * 120)


@pytest.mark.parametrize(
    ("value", "encoding", "line"),
    [("é\n\u2028", "utf-8", '"é\\n\u2028"'), ("\ud800", "utf-8", '"\\ud800"'), ("é", "ascii", '"\\u00e9"')],
)
def test_a_line_of_json_is_one_that_stdout_can_show(
    value: str, encoding: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    console.show_json(value, indent=None)
    assert written.getvalue().decode(encoding) == line + "\n"
