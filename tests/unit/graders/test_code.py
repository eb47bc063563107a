"""The grader's verdicts over a sandbox that says what a test wants it to say; the program in an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from openconductor.errors import ConfigError, GradingError, SandboxError
from openconductor.graders import code
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts
from openconductor.graders.code_text import program_of, with_preamble
from openconductor.sandboxes import Limits, Run, RunResult, Verdict
from openconductor.sandboxes.encoding import encode
from openconductor.types import Grade, Problem


class Said:
    """A sandbox that answers each run with a function's result, or with one result; it keeps what it was asked."""

    level = "said"

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
    return RunResult(stdout, stderr, verdict, 0, 0.1, 0.1, "said", tuple(replies))


ANSWER = "```python\nprint(1)\n```"
IO = CodeTests((IoTest("a", "1"), IoTest("b", "2"), IoTest("c", "3")))


async def graded(tests: object, sandbox: Said | None, answer: str = ANSWER) -> Grade:
    return await CodeGrader(sandbox=sandbox).grade(Problem("p", "", tests, "t"), answer)


async def test_all_tests_passed_is_right_and_the_note_names_the_level() -> None:
    sandbox = Said(lambda run: result({"a": "1", "b": "2.0", "c": " 3\n"}[run.stdin]))
    assert await graded(IO, sandbox) == Grade(True, "print(1)\n", "[said] passed")
    assert sandbox.limits.cpu_s == Limits().cpu_s == 10


async def test_the_first_test_that_fails_ends_it() -> None:
    sandbox = Said(result("1"))
    assert await graded(IO, sandbox) == Grade(
        False, "print(1)\n", "[said] after 1 of 3 tests: wrong output: line 1 is '1'"
    )
    assert [run.stdin for run in sandbox.runs] == ["a", "b"]


async def test_what_is_expected_never_goes_in() -> None:
    sandbox = Said(lambda run: result("1", replies=[encode(48151623)] * len(run.calls)))
    tests = CodeTests(
        (IoTest("x", "1"), CallTest((2,), 48151623), CallTest((3,), condition="_ == 48151623")), "f"
    )
    assert (await graded(tests, sandbox)).correct is True
    assert "48151623" not in repr((sandbox.programs, sandbox.runs))


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
async def test_a_run_that_did_not_end_well_is_wrong_whatever_it_printed(verdict: Verdict) -> None:
    grade = await graded(
        IO, Said(result("1", verdict, stderr="Traceback\nZeroDivisionError: no\n"))
    )
    assert (grade.correct, grade.note) == (
        False,
        f"[said] after 0 of 3 tests: {verdict.value}: ZeroDivisionError: no",
    )


async def test_a_sandbox_that_fails_is_no_verdict_on_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(run: Run | None = None) -> Said:
        raise SandboxError("no namespaces here")

    wanted = Grade(None, "print(1)\n", "undecided: no namespaces here")
    assert await graded(IO, Said(fail)) == wanted  # type: ignore[arg-type]
    monkeypatch.setattr(code, "open_sandbox", fail)
    assert await graded(IO, None) == wanted


@pytest.mark.parametrize("reference", ["1", None, CodeTests()])
async def test_a_problem_without_tests_is_an_error(reference: object) -> None:
    with pytest.raises(GradingError, match="problem p"):
        await graded(reference, Said(result()))


async def test_arguments_that_cannot_be_sent_and_calls_of_nothing_are_errors() -> None:
    with pytest.raises(GradingError, match="plain builtins"):
        await graded(CodeTests((CallTest((object(),), 1),), "f"), Said(result()))
    with pytest.raises(GradingError, match="entry_point"):
        await graded(CodeTests((CallTest((1,), 1),)), Said(result()))


async def test_a_right_answer_has_room_for_its_output_however_long_it_is() -> None:
    for tests, wanted in [
        (CodeTests((IoTest("", "x" * 3_000_000), IoTest("", "y"))), 13_000_000),
        (CodeTests((CallTest((), [True] * 1_000_000), CallTest((), 1)), "f"), 13_000_000),
        (
            from_asserts(
                f"assert f() == {'x' * 1_000_000!r}\nassert f() == {'y' * 1_000_000!r}", "f"
            ),
            5_000_000,
        ),
    ]:
        sandbox = Said(result())
        await graded(tests, sandbox)
        assert wanted <= sandbox.limits.output_bytes < wanted + 1000


async def test_the_sandbox_is_opened_once_however_many_ask_and_only_when_something_is_to_be_run(
    monkeypatch,
) -> None:
    opened: list[Said] = []
    monkeypatch.setattr(
        code, "open_sandbox", lambda: opened.append(Said(result("1"))) or opened[-1]
    )
    grader = CodeGrader()
    without = await grader.grade(Problem("p", "", IO, "t"), "no program")
    assert (without.correct, without.extracted, without.note[:8], opened) == (
        False,
        None,
        "unparsed",
        [],
    )
    await asyncio.gather(*(grader.grade(Problem("p", "", IO, "t"), ANSWER) for _ in range(8)))
    assert len(opened) == 1


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ConfigError, match="lcb-compat"):
        CodeGrader("lax")  # type: ignore[arg-type]


async def test_livecodebenchs_mode_puts_its_imports_first_and_has_its_limit() -> None:
    sandbox = Said(result(replies=[encode((1, 2))]))
    tests = CodeTests((CallTest((), [1, 2]),), "f")
    grade = await CodeGrader("lcb-compat", sandbox=sandbox).grade(
        Problem("p", "", tests, "t"), ANSWER
    )
    assert (grade.correct, sandbox.limits.cpu_s) == (True, 6)
    assert sandbox.programs[0].startswith("from string import *\n") and sandbox.programs[
        0
    ].endswith("print(1)\n")
    text = with_preamble(
        "from __future__ import annotations\nx: Undefined = sqrt(gcd(16, 48))\ny = deque([inf])\n"
    )
    space: dict[str, object] = {}
    exec(text, space)
    assert space["x"] == 4.0 and repr(space["y"]) == "deque([inf])"


async def test_assertions_share_a_process_and_other_tests_have_their_own() -> None:
    asserted = from_asserts(
        "assert f(1) == 1\nassert abs(f(2)) < 3\nassert f(3)\nassert not f(4)"
    ).tests
    tests = CodeTests((CallTest((1,), 1), CallTest((2,), 1), IoTest("", "1"), *asserted), "f")
    sandbox = Said(lambda run: result("1", replies=["1", "1", "1", "0"][: len(run.calls)]))
    assert (await graded(tests, sandbox)).correct is True
    assert [len(run.calls) for run in sandbox.runs] == [1, 1, 0, 4]


async def test_a_group_of_assertions_is_judged_one_by_one() -> None:
    tests = from_asserts("assert f(1) == 1\nassert f(2) == 4\nassert abs(f(3) - 9) < 1")
    for values, right in [
        ((1, 4, 9), True),
        ((1, 4, 8), False),
        ((1, 5, 9), False),
        ((1, 4), False),
        ((), False),
    ]:
        sandbox = Said(result(replies=[encode(value) for value in values]))
        assert (await graded(tests, sandbox)).correct is right and len(sandbox.runs) == 1
    for replies in (("1", "junk", "9"), ("[1, 4, 9]",)):
        assert (await graded(tests, Said(result(replies=replies)))).correct is False


BESIDE = CodeTests((), "f", "assert f(1) == f(1)")


def report(run: Run, **changes: object) -> RunResult:
    """What an honest driver would reply to ``check``, with changes."""
    return result(replies=[encode({"nonce": run.calls[0][0][3], "fault": ""} | changes)])


async def test_a_report_is_believed_only_if_all_of_it_is_right() -> None:
    sandbox = Said(report)
    assert (await graded(BESIDE, sandbox)).correct is True
    assert (
        "print(1)\n" not in sandbox.programs[0] and sandbox.runs[0].entry_point == "check"
    )  # an argument of it
    for changes, note in [
        ({"nonce": "guessed"}, "not the driver's"),
        ({"fault": None}, "not the driver's"),
        ({"fault": "failed f: 1 != 2"}, "failed f: 1 != 2"),
    ]:
        grade = await graded(BESIDE, Said(lambda run, changes=changes: report(run, **changes)))  # type: ignore[misc]
        assert grade.correct is False and note in grade.note
    for replies in ((), ("junk",), ("true",), ("[]",)):
        assert (await graded(BESIDE, Said(result(replies=replies)))).correct is False
    grade = await graded(
        BESIDE, Said(lambda run: replace(report(run), verdict=Verdict.CPU_TIMEOUT))
    )
    assert (grade.correct, grade.note) == (False, "[said] cpu_timeout")


F = "```"
PROGRAMS = {
    f"Here:\n{F}python\nx = 1\n{F}\nDone.": "x = 1\n",
    f"{F}\nx = 1\n{F}": "x = 1\n",
    f"{F}py\na\n{F}\nthen\n{F}Python3\nb\n{F}": "b\n",
    f"{F}python\na\n{F}\n{F}text\n7\n{F}": "a\n",
    f"{F}python\na\n{F}\n{F}\n\n{F}": "a\n",
    f"{F}python\nnever closed\nx": "never closed\nx",
    f"{F}{F}python\ns = '''\n{F}\n'''\n{F}{F}": f"s = '''\n{F}\n'''\n",
    f"  {F}python title=x\n  a\n  {F}": "  a\n",
    f"Perhaps\n{F}python\nno\n{F}\n</think>\n{F}python\nyes\n{F}": "yes\n",
    "~~~python\na\n~~~": "a\n",
    "def f():\n    return 1": "def f():\n    return 1",
    "\nimport sys\nprint(1)": "\nimport sys\nprint(1)",
    "a, b = map(int, input().split())": "a, b = map(int, input().split())",
}
NO_PROGRAM = ["", "I do not know.", f"{F}cpp\nint main;\n{F}", "<think>def f(): pass", f"{F}\n{F}"]
NO_PROGRAM += [
    "<think>def f(): pass</think>",
    f"Perhaps\n{F}python\nno\n{F}\n</think>\nI do not know.",
]


def test_the_last_python_block_is_the_program() -> None:
    assert {answer: program_of(answer) for answer in PROGRAMS} == PROGRAMS
    assert [program_of(answer) for answer in NO_PROGRAM] == [None] * len(NO_PROGRAM)
