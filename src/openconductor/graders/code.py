"""Code: a program is right if it passes every test, in a sandbox that never holds what the tests expect.

In: a Problem whose reference is CodeTests, and an answer that holds a program. Out: a Grade; its note says which test
failed and how, and begins with the sandbox's level. Undecided (None) where the sandbox failed: that is no verdict on
the program. CPU time judges; wall time only ends programs that sleep.

Not covered: whether the tests tell right from wrong; problems with several right outputs. A program may lie about its
own value only, and does not know what is expected. Tests that cannot be judged outside (``CodeTests.unittest``) are
weaker: ``unittest_driver`` names what can get past them.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import cast, get_args

from openconductor.errors import ConfigError, GradingError, SandboxError
from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_programs import imported_by, tests_of
from openconductor.graders.code_tests import HOLE, CallTest, CodeTests, IoTest
from openconductor.graders.code_text import program_of, with_preamble
from openconductor.sandboxes import Limits, Run, RunResult, Sandbox, Verdict, open_sandbox
from openconductor.sandboxes.encoding import NotPlain, decode, encode
from openconductor.sandboxes.values import OwnProgram
from openconductor.types import Grade, Problem

Group = tuple[IoTest | CallTest, ...]
"""Tests that share a process."""
SHOWN = 200


class CodeGrader:
    """See the module's docstring.

    Args:
        mode: ``strict``, or ``lcb-compat`` for numbers to be held against LiveCodeBench's: its comparisons (a returned
            tuple is a list) and its imports before every program. What its runner breaks (reading stdin by other means
            than ``input``, ``global``) works in both.
        sandbox: where programs run; None: the best that this machine has, opened at the first grade.
        limits: of each test; None: 10 s of CPU, and 6 s (LiveCodeBench's) in ``lcb-compat``.

    Raises:
        ConfigError: an unknown mode.
    """

    def __init__(self, mode: Mode = "strict", sandbox: Sandbox | None = None, limits: Limits | None = None) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"code grader: got the mode {mode!r}, expected one of {', '.join(get_args(Mode))}")
        self.mode: Mode = mode
        self._sandbox = sandbox
        self._opening = threading.Lock()
        self._limits = limits or Limits(cpu_s=10.0 if mode == "strict" else 6.0)

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Run the answer's program against the tests, until one fails.

        Raises:
            GradingError: the problem's reference is no CodeTests, or holds no test.
        """
        tests = problem.reference
        if not isinstance(tests, CodeTests) or not (tests.tests or tests.unittest):
            raise GradingError(
                f"problem {problem.id}: got the reference {str(tests)[:SHOWN]!r}, expected CodeTests with tests"
            )
        program = program_of(answer)
        if program is None:
            return Grade(False, None, "unparsed: no program in the answer")
        try:
            return await self._judged(program, tests)
        except SandboxError as error:
            return Grade(None, program, f"undecided: {error}")

    async def _judged(self, program: str, tests: CodeTests) -> Grade:
        sandbox = self._sandbox or await asyncio.to_thread(self._opened)
        fault = await self._beside(sandbox, program, tests) if tests.unittest else ""
        if not fault and tests.tests:
            fault = await self._outside(sandbox, program, tests)
        return Grade(not fault, program, f"[{sandbox.level}] {fault or 'passed'}")

    def _opened(self) -> Sandbox:
        with self._opening:
            if self._sandbox is None:
                self._sandbox = open_sandbox()
            return self._sandbox

    async def _outside(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """What is wrong, judged by outputs and values; empty where nothing is."""
        groups = together(tests.tests)
        runs = [_run(group, tests.entry_point) for group in groups]
        faults: list[str] = []

        def go_on(result: RunResult) -> bool:
            faults.append(self._fault(groups[len(faults)], result))
            return not faults[-1]

        text = with_preamble(program) if self.mode == "lcb-compat" else program
        limits = replace(self._limits, output_bytes=self._limits.output_bytes + room(groups))
        await sandbox.run_batch(text, runs, limits=limits, go_on=go_on)
        before = sum(len(group) for group in groups[: len(faults) - 1])
        return f"after {before} of {len(tests.tests)} tests: {faults[-1]}" if faults[-1] else ""

    def _fault(self, group: Group, result: RunResult) -> str:
        """What is wrong with a run of a group of tests; empty where nothing is."""
        if result.verdict is not Verdict.OK:
            return _ending(result)
        first = group[0]
        if isinstance(first, IoTest):
            return wrong_output(first, result.stdout, self.mode)
        if len(group) == 1:
            return wrong_value(first, result.reply, self.mode)
        replies = _reported(result)
        if not isinstance(replies, list) or len(cast("list[object]", replies)) != len(group):
            return "no_verdict: not a reply for each call"
        pairs = zip(cast("tuple[CallTest, ...]", group), cast("list[object]", replies), strict=True)
        faults = (wrong_value(test, reply if isinstance(reply, bytes) else b"", self.mode) for test, reply in pairs)
        return next((fault for fault in faults if fault), "")

    async def _beside(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """What is wrong, as a test program in the answer's process reports; empty where nothing is."""
        assert tests.unittest is not None
        nonce = secrets.token_hex(16)
        text = with_preamble(program) if self.mode == "lcb-compat" else program
        wanted, imports = list(tests_of(tests.unittest)), list(imported_by(tests.unittest))
        arguments = (text, tests.unittest, tests.entry_point or "", wanted, imports, nonce)
        keywords: dict[str, object] = {}
        run = Run(call=("check", encode((arguments, keywords))))
        (result,) = await sandbox.run_batch(_driver(), [run], limits=self._limits)
        report = _reported(result)
        if result.verdict is not Verdict.OK or not isinstance(report, dict):
            return _ending(result)
        return _fault_of_report(cast("Mapping[str, object]", report), wanted, nonce)


def room(groups: Sequence[Group]) -> int:
    """Bytes of output beyond the limit for which a right answer may have cause: some tests expect megabytes."""
    longest = 0
    for group in groups:
        texts = sum(len(test.expected) for test in group if isinstance(test, IoTest))
        values = sum(len(encode(test.expected)) for test in group if isinstance(test, CallTest))
        longest = max(longest, 4 * texts + 8 * values)  # characters of four bytes; True may be returned as 1
    return longest


def together(tests: Sequence[IoTest | CallTest]) -> list[Group]:
    """Which tests share a process: those next to each other that were assertions of one program, as they did there."""
    groups: list[Group] = []
    for test in tests:
        if groups and _asserted(test) and _asserted(groups[-1][-1]) and _truth(test) is _truth(groups[-1][-1]):
            groups[-1] = (*groups[-1], test)
        else:
            groups.append((test,))
    return groups


def _asserted(test: IoTest | CallTest) -> bool:
    return isinstance(test, CallTest) and test.equality == "python"


def _truth(test: IoTest | CallTest) -> bool:
    return isinstance(test, CallTest) and test.condition in {HOLE, f"not {HOLE}"}


def _run(group: Group, entry_point: str | None) -> Run:
    first = group[0]
    if isinstance(first, IoTest):
        return Run(stdin=first.stdin)
    if entry_point is None:
        raise GradingError("code tests: a CallTest without an entry point; expected CodeTests.entry_point")
    calls = [(tuple(test.arguments), dict(test.keywords)) for test in group if isinstance(test, CallTest)]
    try:
        arguments = encode(calls if len(calls) > 1 else calls[0])
        return Run(call=(entry_point, arguments), truth=_truth(first))
    except NotPlain as error:
        raise GradingError(f"code tests: the arguments hold {error}; expected plain builtins") from error


def _ending(result: RunResult) -> str:
    last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
    return f"{result.verdict.value}: {last[:SHOWN]}" if last else result.verdict.value


def _reported(result: RunResult) -> object:
    try:
        return decode(result.reply) if result.reply else None
    except NotPlain:
        return None


def _fault_of_report(report: Mapping[str, object], wanted: list[str], nonce: str) -> str:
    if report.get("nonce") != nonce or report.get("ran") != wanted:
        return "no_verdict: the report is not the driver's"
    names = ("suspicious", "tampered", "failed")
    suspicious, tampered, failed = (cast("Sequence[object]", report.get(name) or ()) for name in names)
    if suspicious or tampered:
        said = ", ".join(map(str, suspicious)) or f"changed {', '.join(map(str, tampered))}"
        return f"suspicious: {said}"[:SHOWN]
    return f"failed {failed[0]}" if failed else ""


@functools.cache
def _driver() -> OwnProgram:
    text = resources.files("openconductor.graders").joinpath("unittest_driver.py").read_text("utf-8")
    return OwnProgram(text)
