"""The grader's verdicts over a sandbox that says what a test wants it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from openconductor.errors import ConfigError, GradingError, SandboxError
from openconductor.graders import code
from openconductor.graders.code import CodeGrader, together
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts
from openconductor.sandboxes import Limits, Run, RunResult, Verdict
from openconductor.sandboxes.encoding import encode
from openconductor.types import Problem


class Said:
    """A sandbox that answers each run with a function's result; it keeps what it was asked."""

    level = "said"

    def __init__(self, answer: Callable[[Run], RunResult]) -> None:
        self._answer = answer
        self.programs: list[str] = []
        self.runs: list[Run] = []
        self.limits: Limits | None = None

    async def run_batch(
        self,
        program: str,
        runs: Sequence[Run],
        *,
        limits: Limits,
        go_on: Callable[[RunResult], bool] | None = None,
    ) -> list[RunResult]:
        self.programs.append(program)
        self.limits = limits
        results: list[RunResult] = []
        for run in runs:
            self.runs.append(run)
            results.append(self._answer(run))
            if go_on is not None and not go_on(results[-1]):
                break
        return results

    async def aclose(self) -> None:
        return


def result(
    stdout: str = "", verdict: Verdict = Verdict.OK, replies: tuple[str, ...] = (), stderr: str = ""
) -> RunResult:
    return RunResult(stdout, stderr, verdict, 0, 0.1, 0.1, "said", replies)


def problem(tests: object) -> Problem:
    return Problem("p", "", tests, "t")


ANSWER = "```python\nprint(1)\n```"
IO = CodeTests((IoTest("a", "1"), IoTest("b", "2"), IoTest("c", "3")))


async def test_all_tests_passed_is_right_and_the_note_names_the_level() -> None:
    sandbox = Said(lambda run: result({"a": "1", "b": "2.0", "c": " 3\n"}[run.stdin]))
    grade = await CodeGrader(sandbox=sandbox).grade(problem(IO), ANSWER)
    assert (grade.correct, grade.extracted, grade.note) == (True, "print(1)\n", "[said] passed")
    assert sandbox.limits is not None and sandbox.limits.cpu_s == Limits().cpu_s == 10


async def test_the_first_test_that_fails_ends_it() -> None:
    sandbox = Said(lambda run: result("1"))
    grade = await CodeGrader(sandbox=sandbox).grade(problem(IO), ANSWER)
    assert (grade.correct, grade.note) == (False, "[said] after 1 of 3 tests: wrong output: line 1 is '1'")
    assert [run.stdin for run in sandbox.runs] == ["a", "b"]


async def test_what_is_expected_never_goes_in() -> None:
    sandbox = Said(lambda run: result("1", replies=(encode(48151623),) * len(run.calls)))
    tests = CodeTests((IoTest("x", "1"), CallTest((2,), 48151623), CallTest((3,), condition="_ == 48151623")), "f")
    assert (await CodeGrader(sandbox=sandbox).grade(problem(tests), ANSWER)).correct is True
    assert "48151623" not in repr((sandbox.programs, sandbox.runs))


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
async def test_a_run_that_did_not_end_well_is_wrong_whatever_it_printed(verdict: Verdict) -> None:
    sandbox = Said(lambda run: result("1", verdict, stderr="Traceback\nZeroDivisionError: no\n"))
    grade = await CodeGrader(sandbox=sandbox).grade(problem(IO), ANSWER)
    assert grade.correct is False
    assert grade.note == f"[said] after 0 of 3 tests: {verdict.value}: ZeroDivisionError: no"


async def test_a_sandbox_that_fails_is_no_verdict_on_the_program() -> None:
    def fail(run: Run) -> RunResult:
        raise SandboxError("no namespaces here")

    grade = await CodeGrader(sandbox=Said(fail)).grade(problem(IO), ANSWER)
    assert (grade.correct, grade.note) == (None, "undecided: no namespaces here")


async def test_an_answer_without_a_program_is_wrong_and_says_so() -> None:
    grade = await CodeGrader(sandbox=Said(lambda run: result("1"))).grade(problem(IO), "I cannot.")
    assert (grade.correct, grade.extracted) == (False, None) and grade.note.startswith("unparsed")


@pytest.mark.parametrize("reference", ["1", None, CodeTests()])
async def test_a_problem_without_tests_is_an_error(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p"):
        await CodeGrader(sandbox=Said(lambda run: result())).grade(problem(reference), ANSWER)


async def test_arguments_that_cannot_be_sent_and_calls_of_nothing_are_errors() -> None:
    for tests, message in [
        (CodeTests((CallTest((object(),), 1),), "f"), "plain builtins"),
        (CodeTests((CallTest((1,), 1),)), "entry_point"),
    ]:
        with pytest.raises(GradingError, match=message):
            await CodeGrader(sandbox=Said(lambda run: result())).grade(problem(tests), ANSWER)


async def test_a_right_answer_has_room_for_its_output_however_long_it_is() -> None:
    for tests, wanted in [
        (CodeTests((IoTest("", "x" * 3_000_000), IoTest("", "y"))), 13_000_000),
        (CodeTests((CallTest((), [True] * 1_000_000), CallTest((), 1)), "f"), 13_000_000),
        (from_asserts(f"assert f() == {'x' * 1_000_000!r}\nassert f() == {'y' * 1_000_000!r}", "f"), 5_000_000),
    ]:
        sandbox = Said(lambda run: result())
        await CodeGrader(sandbox=sandbox).grade(problem(tests), ANSWER)
        assert sandbox.limits is not None and wanted <= sandbox.limits.output_bytes < wanted + 1000


async def test_the_sandbox_is_opened_once_however_many_ask_and_only_when_something_is_to_be_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Said] = []

    def open_one() -> Said:
        opened.append(Said(lambda run: result("1")))
        return opened[-1]

    monkeypatch.setattr(code, "open_sandbox", open_one)
    grader = CodeGrader()
    assert (await grader.grade(problem(IO), "no program")).correct is False and opened == []
    await asyncio.gather(*(grader.grade(problem(IO), ANSWER) for _ in range(8)))
    assert len(opened) == 1


async def test_where_there_is_no_sandbox_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_works() -> Said:
        raise SandboxError("no sandbox works here: bubblewrap sandbox: got no bwrap on the PATH")

    monkeypatch.setattr(code, "open_sandbox", nothing_works)
    grade = await CodeGrader().grade(problem(IO), ANSWER)
    assert grade.correct is None and grade.note.startswith("undecided: no sandbox works here")


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ConfigError, match="lcb-compat"):
        CodeGrader("lax")  # type: ignore[arg-type]


async def test_livecodebenchs_mode_puts_its_imports_first_and_has_its_limit() -> None:
    sandbox = Said(lambda run: result(replies=(encode((1, 2)),)))
    tests = CodeTests((CallTest((), [1, 2]),), "f")
    assert (await CodeGrader("lcb-compat", sandbox=sandbox).grade(problem(tests), ANSWER)).correct is True
    assert sandbox.programs[0].startswith("from string import *\n") and sandbox.programs[0].endswith("print(1)\n")
    assert sandbox.limits is not None and sandbox.limits.cpu_s == 6


def test_assertions_share_a_process_and_other_tests_have_their_own() -> None:
    one, two = from_asserts("assert f(1) == 1\nassert f(2)\nassert not f(3)\nassert f(4) == 4").tests[:2]
    asserted = from_asserts(
        "assert f(1) == 1\nassert abs(f(2)) < 3\nassert f(3)\nassert not f(4)\nassert f(5) == 1"
    ).tests
    assert [len(group) for group in together(asserted)] == [5]
    rows = (CallTest((1,), 1), CallTest((2,), 2), IoTest("", ""), one, two)
    assert [len(group) for group in together(rows)] == [1, 1, 1, 2]


async def test_a_group_of_assertions_is_judged_one_by_one() -> None:
    tests = from_asserts("assert f(1) == 1\nassert f(2) == 4\nassert abs(f(3) - 9) < 1")
    for values, right in [((1, 4, 9), True), ((1, 4, 8), False), ((1, 5, 9), False), ((1, 4), False), ((), False)]:
        replies = tuple(encode(value) for value in values)
        sandbox = Said(lambda run, replies=replies: result(replies=replies))  # type: ignore[misc]
        grade = await CodeGrader(sandbox=sandbox).grade(problem(tests), ANSWER)
        assert grade.correct is right and len(sandbox.runs) == 1
    for replies in (("1", "junk", "9"), (), ("[1, 4, 9]",)):
        sandbox = Said(lambda run, replies=replies: result(replies=replies))  # type: ignore[misc]
        assert (await CodeGrader(sandbox=sandbox).grade(problem(tests), ANSWER)).correct is False


def report(run: Run, **changes: object) -> RunResult:
    """What an honest driver would reply to ``check``, with changes."""
    honest = {"nonce": run.calls[0][0][3], "fault": ""}
    return result(replies=(encode(honest | changes),))


BESIDE = CodeTests((), "f", "assert f(1) == f(1)")


async def test_a_report_is_believed_only_if_all_of_it_is_right() -> None:
    assert (await CodeGrader(sandbox=Said(report)).grade(problem(BESIDE), ANSWER)).correct is True
    for changes, note in [
        ({"nonce": "guessed"}, "not the driver's"),
        ({"fault": None}, "not the driver's"),
        ({"fault": "failed f: 1 != 2"}, "failed f: 1 != 2"),
    ]:
        sandbox = Said(lambda run, changes=changes: report(run, **changes))  # type: ignore[misc]
        grade = await CodeGrader(sandbox=sandbox).grade(problem(BESIDE), ANSWER)
        assert grade.correct is False and note in grade.note
    for replies in ((), ("junk",), ("true",), ("[]",)):
        sandbox = Said(lambda run, replies=replies: result(replies=replies))  # type: ignore[misc]
        assert (await CodeGrader(sandbox=sandbox).grade(problem(BESIDE), ANSWER)).correct is False


async def test_a_run_beside_its_tests_that_did_not_end_well_is_wrong_whatever_it_reports() -> None:
    sandbox = Said(lambda run: replace(report(run), verdict=Verdict.CPU_TIMEOUT))
    grade = await CodeGrader(sandbox=sandbox).grade(problem(BESIDE), ANSWER)
    assert (grade.correct, grade.note) == (False, "[said] cpu_timeout")


async def test_the_answer_is_an_argument_of_the_driver_and_not_the_program() -> None:
    sandbox = Said(report)
    await CodeGrader(sandbox=sandbox).grade(problem(BESIDE), ANSWER)
    (run,) = sandbox.runs
    assert "print(1)\n" not in sandbox.programs[0] and run.entry_point == "check"
