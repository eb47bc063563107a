"""The code grader over a scripted sandbox; the program in an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, GradingError, SandboxError
from openconductor.graders import code
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts
from openconductor.graders.code_text import read_program, with_preamble
from openconductor.sandboxes import Limits, Run, RunResult, Verdict
from openconductor.sandboxes.encoding import encode
from openconductor.types import Grade, Problem


class ScriptedSandbox:
    """A sandbox that answers each run by a function, or with one result; it keeps all it gets."""

    level = "scripted"

    def __init__(self, answer: RunResult | Callable[[Run], RunResult]) -> None:
        self._answer = answer
        self.programs: list[str] = []
        self.runs: list[Run] = []
        self.limits = Limits()

    async def run_batch(self, program, runs, *, limits, go_on=None) -> list[RunResult]:
        self.programs.append(program)
        self.limits = limits
        results: list[RunResult] = []
        for run in runs:
            self.runs.append(run)
            results.append(self._answer(run) if callable(self._answer) else self._answer)
            if go_on is not None and not go_on(results[-1]):
                break
        return results

    async def aclose(self) -> None:
        return


def result(
    stdout: str = "", verdict: Verdict = Verdict.OK, replies: Sequence[str] = (), stderr: str = ""
) -> RunResult:
    return RunResult(stdout, stderr, verdict, 0, 0.1, 0.1, "scripted", tuple(replies))


ANSWER = "```python\nprint(1)\n```"
IO = CodeTests((IoTest("a", "1"), IoTest("b", "2"), IoTest("c", "3")))


async def grade(
    tests: object, sandbox: ScriptedSandbox | None, *, mode: Mode = "strict", answer: str = ANSWER
) -> Grade:
    return await CodeGrader(mode, sandbox).grade(Problem("p", "", tests, "t"), answer)


async def test_all_tests_passed_is_right_and_the_note_names_the_level() -> None:
    sandbox = ScriptedSandbox(lambda run: result({"a": "1", "b": "2.0", "c": " 3\n"}[run.stdin]))
    assert await grade(IO, sandbox) == Grade(True, "print(1)\n", "[scripted] passed", "outside")
    assert sandbox.limits.cpu_s == Limits().cpu_s == 10


async def test_the_first_test_that_fails_ends_it() -> None:
    sandbox = ScriptedSandbox(result("1"))
    note = "[scripted] after 1 of 3 tests: wrong output: line 1 is '1'"
    assert await grade(IO, sandbox) == Grade(False, "print(1)\n", note, "outside")
    assert [run.stdin for run in sandbox.runs] == ["a", "b"]


async def test_expected_values_never_go_in() -> None:
    sandbox = ScriptedSandbox(lambda run: result("1", replies=[encode(48151623)] * len(run.calls)))
    calls = (CallTest((2,), 48151623), CallTest((3,), condition="_ == 48151623"))
    assert (await grade(CodeTests((IoTest("x", "1"), *calls), "f"), sandbox)).correct is True
    assert "48151623" not in repr((sandbox.programs, sandbox.runs))


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
async def test_a_run_that_did_not_end_well_is_wrong_whatever_it_printed(verdict: Verdict) -> None:
    failed = result("1", verdict, stderr="Traceback\nZeroDivisionError: no\n")
    note = f"[scripted] after 0 of 3 tests: {verdict.value}: ZeroDivisionError: no"
    assert await grade(IO, ScriptedSandbox(failed)) == Grade(False, "print(1)\n", note, "outside")


async def test_a_sandbox_that_fails_is_no_verdict_on_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(run: Run | None = None) -> RunResult:
        raise SandboxError("no namespaces here")

    undecided = Grade(None, "print(1)\n", "undecided: no namespaces here")
    assert await grade(IO, ScriptedSandbox(fail)) == undecided
    monkeypatch.setattr(code, "open_sandbox", fail)
    assert await grade(IO, None) == undecided


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("1", "problem p"),
        (None, "problem p"),
        (CodeTests(), "problem p"),
        (CodeTests((CallTest((object(),), 1),), "f"), "plain builtins"),
        (CodeTests((CallTest((1,), 1),)), "entry_point"),
    ],
)
async def test_a_reference_that_cannot_be_tested_is_an_error(
    reference: object, message: str
) -> None:
    with pytest.raises(GradingError, match=message):
        await grade(reference, ScriptedSandbox(result()))


LONG = "x" * 3_000_000
ASSERTED = f"assert f() == {'x' * 1_000_000!r}\nassert f() == {'y' * 1_000_000!r}"


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (CodeTests((IoTest("", LONG), IoTest("", "y"))), 13_000_000),
        (CodeTests((CallTest((), [True] * 1_000_000), CallTest((), 1)), "f"), 13_000_000),
        (from_asserts(ASSERTED, "f"), 5_000_000),
    ],
    ids=["output", "values", "assertions"],
)
async def test_a_right_answer_has_room_for_its_output_however_long_it_is(
    tests: CodeTests, expected: int
) -> None:
    sandbox = ScriptedSandbox(result())
    await grade(tests, sandbox)
    assert expected <= sandbox.limits.output_bytes < expected + 1000


async def test_the_sandbox_is_opened_once_and_only_if_a_program_is_to_be_run(monkeypatch) -> None:
    opened: list[ScriptedSandbox] = []

    def open_sandbox() -> ScriptedSandbox:
        opened.append(ScriptedSandbox(result("1")))
        return opened[-1]

    monkeypatch.setattr(code, "open_sandbox", open_sandbox)
    grader, problem = CodeGrader(), Problem("p", "", IO, "t")
    unparsed = await grader.grade(problem, "no program")
    assert unparsed == Grade(False, None, unparsed.note)
    assert unparsed.note.startswith("unparsed")
    assert not opened
    await asyncio.gather(*(grader.grade(problem, ANSWER) for _ in range(8)))
    assert len(opened) == 1


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ConfigError, match="lcb-compat"):
        CodeGrader("lax")  # type: ignore[arg-type]


async def test_livecodebenchs_mode_puts_its_imports_first_and_has_its_limit() -> None:
    sandbox = ScriptedSandbox(result(replies=[encode((1, 2))]))
    tests = CodeTests((CallTest((), [1, 2]),), "f")
    assert (await grade(tests, sandbox, mode="lcb-compat")).correct is True
    assert sandbox.limits.cpu_s == 6
    (program,) = sandbox.programs
    assert program.startswith("from string import *\n")
    assert program.endswith("print(1)\n")
    uses = "x: Undefined = sqrt(gcd(16, 48))\ny = deque([inf])\n"
    space: dict[str, object] = {}
    exec(with_preamble(f"from __future__ import annotations\n{uses}"), space)
    assert (space["x"], repr(space["y"])) == (4.0, "deque([inf])")


async def test_assertions_share_a_process_and_other_tests_have_their_own() -> None:
    source = "assert f(1) == 1\nassert abs(f(2)) < 3\nassert f(3)\nassert not f(4)"
    others = (CallTest((1,), 1), CallTest((2,), 1), IoTest("", "1"))
    tests = CodeTests((*others, *from_asserts(source).tests), "f")
    sandbox = ScriptedSandbox(
        lambda run: result("1", replies=["1", "1", "1", "0"][: len(run.calls)])
    )
    assert (await grade(tests, sandbox)).correct is True
    assert [len(run.calls) for run in sandbox.runs] == [1, 1, 0, 4]


@pytest.mark.parametrize(
    ("replies", "right"),
    [
        ("1 4 9", True),
        ("1 4 8", False),
        ("1 5 9", False),
        ("1 4", False),
        ("", False),
        ("1 junk 9", False),
        ("[1,4,9]", False),
    ],
)
async def test_a_group_of_assertions_is_judged_one_by_one(replies: str, right: bool) -> None:
    tests = from_asserts("assert f(1) == 1\nassert f(2) == 4\nassert abs(f(3) - 9) < 1")
    sandbox = ScriptedSandbox(result(replies=replies.split()))
    assert (await grade(tests, sandbox)).correct is right
    assert len(sandbox.runs) == 1


BESIDE = CodeTests((), "f", "import mock\nassert f(1) == f(1)")
APART = CodeTests((), "f", "assert f(1) == f(1)", given="import math")


def report(run: Run, **changes: object) -> RunResult:
    """Reply to ``check`` as an honest driver would, with changes."""
    return result(replies=[encode({"nonce": run.calls[0][0][3], "fault": ""} | changes)])


async def test_a_judge_gets_the_tests_and_its_report_is_believed() -> None:
    sandbox = ScriptedSandbox(result(replies=[encode({"fault": ""})]))
    verdict = await grade(APART, sandbox)
    assert (verdict.correct, verdict.judged_by) == (True, "outside")
    (run,) = sandbox.runs
    assert run.judge is not None and run.judge.modules[-1] == "math"
    assert (run.entry_point, run.calls[0][0]) == ("serve", ("print(1)\n", "f"))
    asked = {"given": "import math", "tests": "assert f(1) == f(1)", "entry_point": "f"}
    assert json.loads(run.stdin) == asked
    sandbox = ScriptedSandbox(result(replies=[encode({"fault": "", "nonce": "x"})]))
    assert (await grade(APART, sandbox)).correct is False


async def test_the_program_is_an_argument_of_the_driver() -> None:
    sandbox = ScriptedSandbox(report)
    assert (await grade(BESIDE, sandbox)).correct is True
    assert "print(1)\n" not in sandbox.programs[0]
    assert sandbox.runs[0].entry_point == "check"


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (lambda run: report(run, nonce="guessed"), "not the driver's"),
        (lambda run: report(run, fault=None), "not the driver's"),
        (lambda run: report(run, fault="failed f: 1 != 2"), "failed f: 1 != 2"),
        (lambda run: replace(report(run), verdict=Verdict.CPU_TIMEOUT), "[scripted] cpu_timeout"),
        (result(), "ok"),
        (result(replies=["junk"]), "not the driver's"),
        (result(replies=["true"]), "not the driver's"),
        (result(replies=["[]"]), "not the driver's"),
    ],
)
async def test_a_report_is_believed_only_if_all_of_it_is_right(answer, note: str) -> None:
    verdict = await grade(BESIDE, ScriptedSandbox(answer))
    assert verdict.correct is False
    assert verdict.note.endswith(note)


ANSWERS = Path(__file__).with_name("answers.jsonl").read_text("utf-8")


@pytest.mark.parametrize("line", ANSWERS.splitlines())
def test_the_last_python_block_is_the_program(line: str) -> None:
    case = json.loads(line)
    program = read_program(case["answer"])
    assert (None if program is None else program.text) == case["program"]
