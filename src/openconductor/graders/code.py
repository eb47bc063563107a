"""Grades programs: right if every test passes, in a sandbox that never holds the expected outputs.

``CodeGrader`` takes problems whose reference is ``CodeTests``. Its note names the test that failed
and begins with the sandbox's level. A failure of the sandbox is no verdict on the program, so the
grade is undecided. CPU time judges; wall time only ends programs that sleep.

Not covered: tests that do not tell right from wrong, and problems with several right outputs. A
program can lie only about its own value, and does not know the expected one. Test programs are
judged outside where they can be (``code_outside``); the others are weaker, and ``drivers.beside``
names the gaps. ``Grade.judged_by`` says which way it was.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import cast, get_args

from openconductor.config import one_of, shorten
from openconductor.errors import GradingError, SandboxError
from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_outside import modules_of
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.graders.code_text import official_program, read_program, with_preamble
from openconductor.graders.reading.program import Program
from openconductor.sandboxes import (
    JudgeProgram,
    Limits,
    Run,
    RunResult,
    Sandbox,
    Verdict,
    open_sandbox,
)
from openconductor.sandboxes.encoding import NotPlain, decode, encode
from openconductor.types import Grade, Problem

Group = IoTest | tuple[CallTest, ...]
"""Tests that share a process: one of standard input, or calls."""
SHOWN = 200
SHORT = 20_000
"""Characters of an answer that is read in the event loop; longer ones take a thread."""
USED_BY_DRIVERS = ("ast", "json", "pickle")
FUTURE_LINE = "from __future__ import annotations\n"


class CodeGrader:
    """Grades programs by tests.

    Args:
        mode: ``strict``, or ``lcb-compat`` for numbers that are compared with LiveCodeBench's: its
            comparisons (a returned tuple is a list) and its imports before every program. What its
            runner breaks (reading stdin by other means than ``input``, ``global``) works in both.
        sandbox: where programs run; None: the best that this machine has, opened at the first
            grade.
        limits: of each test; None: 10 s of CPU, and 6 s (LiveCodeBench's) in ``lcb-compat``.

    Raises:
        ConfigError: an unknown mode.
    """

    def __init__(
        self, mode: Mode = "strict", sandbox: Sandbox | None = None, limits: Limits | None = None
    ) -> None:
        one_of("code grader, mode", mode, get_args(Mode))
        self.mode: Mode = mode
        self._sandbox = sandbox
        self._opening = threading.Lock()
        self._limits = limits or Limits(cpu_s=10.0 if mode == "strict" else 6.0)

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Run the answer's program against the tests, until one fails.

        Raises:
            GradingError: the problem's reference is not CodeTests, or holds no test.
        """
        tests = problem.reference
        if not isinstance(tests, CodeTests) or not (tests.tests or tests.unittest):
            raise GradingError(
                f"problem {problem.id}: got the reference {shorten(tests)}, "
                "expected CodeTests with tests"
            )
        program = await self._find_program(answer, tests)
        if program is None:
            return Grade(False, None, "unparsed: no program in the answer")
        text = program.text
        if self.mode == "lcb-compat":
            text = with_preamble(text)
        try:
            sandbox = self._sandbox or await asyncio.to_thread(self._open_sandbox)
            fault = ""
            if tests.unittest:
                fault = await self._run_test_program(sandbox, text, tests)
            if tests.tests and not fault:
                fault = await self._run_outside(sandbox, text, tests)
        except SandboxError as error:
            return Grade(None, program.text, f"undecided: {error}")
        python = getattr(sandbox, "python", "")
        where = f"{sandbox.level}, Python {python}" if python else sandbox.level
        note = f"[{where}] {fault or 'passed'}"
        if program.taken:
            note += f"; program: {program.taken}"
        return Grade(not fault, program.text, note, tests.judged_by)

    async def _find_program(self, answer: str, tests: CodeTests) -> Program | None:
        """Return the program of an answer, as the mode finds it."""
        if self.mode == "lcb-compat":
            return official_program(answer)
        calls = tests.unittest or any(isinstance(test, CallTest) for test in tests.tests)
        entry_point = tests.entry_point if calls else None
        if len(answer) < SHORT:
            return read_program(answer, entry_point)
        return await asyncio.to_thread(read_program, answer, entry_point)

    def _open_sandbox(self) -> Sandbox:
        with self._opening:
            if self._sandbox is None:
                self._sandbox = open_sandbox()
            return self._sandbox

    async def _run_outside(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """Return the first fault, judged by outputs and values outside; "" if there is none."""
        groups = group_tests(tests.tests)
        runs = [_run_of(group, tests.entry_point) for group in groups]
        allowance = output_allowance(groups)
        limits = replace(self._limits, output_bytes=self._limits.output_bytes + allowance)
        judge = _Judge(groups, self.mode)
        await sandbox.run_batch(program, runs, limits=limits, go_on=judge.go_on)
        if not judge.fault:
            return ""
        return f"after {judge.passed} of {len(tests.tests)} tests: {judge.fault}"

    async def _run_test_program(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """Return the fault that a problem's test program reports; "" if there is none."""
        entry_point = tests.entry_point or ""
        unittest = tests.unittest or ""
        proof: dict[str, str] = {}
        if tests.judged_by == "outside":
            task = {"given": tests.given, "tests": unittest, "entry_point": entry_point}
            modules = [*USED_BY_DRIVERS, *modules_of(unittest, tests.given)]
            judge = JudgeProgram(_driver("unpacking", "cases", "tests"), "judge", modules)
            driver = _driver("packing", "answer")
            run = Run(json.dumps(task), "serve", [((program, entry_point), {}, False)], judge)
        else:
            proof["nonce"] = secrets.token_hex(16)
            driver = _driver("cases", "beside")
            call = (program, unittest, entry_point, proof["nonce"])
            run = Run("", "check", [(call, {}, False)])
        (result,) = await sandbox.run_batch(driver, [run], limits=self._limits)
        return _reported_fault(result, proof)


class _Judge:
    """Judges the results of groups of tests as they arrive, until the first fault."""

    def __init__(self, groups: Sequence[Group], mode: Mode) -> None:
        self.passed = 0
        self.fault = ""
        self._groups = iter(groups)
        self._mode: Mode = mode

    def go_on(self, result: RunResult) -> bool:
        """Judge the next result; return True if it has no fault."""
        group = next(self._groups)
        self.fault = self._find_fault(group, result)
        if not self.fault:
            self.passed += 1 if isinstance(group, IoTest) else len(group)
        return not self.fault

    def _find_fault(self, group: Group, result: RunResult) -> str:
        if result.verdict is not Verdict.OK:
            return _ending(result)
        if isinstance(group, IoTest):
            return wrong_output(group, result.stdout, self._mode)
        if len(result.replies) != len(group):
            return "no_verdict: not a reply for each call"
        for test, reply in zip(group, result.replies, strict=True):
            fault = wrong_value(test, reply, self._mode)
            if fault:
                return fault
        return ""


def group_tests(tests: Sequence[IoTest | CallTest]) -> list[Group]:
    """Group tests that share a process: neighbouring assertions of one test program."""
    groups: list[Group] = []
    for test in tests:
        if isinstance(test, IoTest):
            groups.append(test)
            continue
        last = groups[-1] if groups else None
        if isinstance(last, tuple) and last[-1].equality == test.equality == "python":
            groups[-1] = (*last, test)
        else:
            groups.append((test,))
    return groups


def output_allowance(groups: Sequence[Group]) -> int:
    """Return the bytes of output that a right answer may need: some tests expect megabytes."""
    return max(_largest_output(group) for group in groups)


def _largest_output(group: Group) -> int:
    if isinstance(group, IoTest):
        return 4 * len(group.expected)  # characters of four bytes
    return sum(2 * len(encode(test.expected)) for test in group)  # 1 may be returned as True


def _run_of(group: Group, entry_point: str | None) -> Run:
    if isinstance(group, IoTest):
        return Run(group.stdin)
    if entry_point is None:
        raise GradingError("code tests: a CallTest requires CodeTests.entry_point; got None")
    try:
        encode([(test.arguments, dict(test.keywords)) for test in group])
    except NotPlain as error:
        message = f"code tests: the arguments hold {error}; expected plain builtins"
        raise GradingError(message) from error
    calls = [(test.arguments, test.keywords, test.truth) for test in group]
    return Run("", entry_point, calls)


def _ending(result: RunResult) -> str:
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return f"{result.verdict.value}: {lines[-1][:SHOWN]}" if lines else result.verdict.value


def _reported_fault(result: RunResult, proof: dict[str, str]) -> str:
    """Return the fault in a driver's report, which must hold a proof, or that there is none."""
    if result.verdict is not Verdict.OK or len(result.replies) != 1:
        return _ending(result)
    try:
        report = decode(result.replies[0])
    except NotPlain:
        report = None
    if isinstance(report, dict):
        fields = cast("dict[str, object]", report)
        fault = fields.pop("fault", None)
        if fields == proof and isinstance(fault, str):
            return fault[:SHOWN]
    return "no_verdict: the report is not the driver's"


@functools.cache
def _driver(*names: str) -> str:
    """Return the text of drivers, one after the other."""
    folder = resources.files("openconductor.graders.drivers")
    texts = [folder.joinpath(f"{name}.py").read_text("utf-8") for name in names]
    return FUTURE_LINE + "".join(texts).replace(FUTURE_LINE, "")
