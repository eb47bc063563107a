"""Code: a program is right if it passes every test, in a sandbox that never holds what the tests expect.

In: a Problem whose reference is CodeTests, and an answer that holds a program. Out: a Grade; its
note says which test failed and how, and begins with the sandbox's level. Undecided (None) where the
sandbox failed: that is no verdict on the program. CPU time judges; wall time only ends programs
that sleep.

Not covered: whether the tests tell right from wrong; problems with several right outputs. A program
may lie about its own value only, and does not know what is expected. Tests that cannot be judged
outside (``CodeTests.unittest``) are weaker: ``unittest_driver`` names what can get past them.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from typing import cast, get_args

from openconductor.config import one_of
from openconductor.errors import GradingError, SandboxError
from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.graders.code_text import program_of, with_preamble
from openconductor.sandboxes import Limits, Run, RunResult, Sandbox, Verdict, open_sandbox
from openconductor.sandboxes.encoding import NotPlain, decode, encode
from openconductor.types import Grade, Problem

Group = tuple[IoTest | CallTest, ...]
"""Tests that share a process."""
SHOWN = 200


class CodeGrader:
    """See the module's docstring.

    Args:
        mode: ``strict``, or ``lcb-compat`` for numbers to be held against LiveCodeBench's: its
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
        text = with_preamble(program) if self.mode == "lcb-compat" else program
        try:
            sandbox = self._sandbox or await asyncio.to_thread(self._opened)
            fault = await self._beside(sandbox, text, tests) or await self._outside(
                sandbox, text, tests
            )
        except SandboxError as error:
            return Grade(None, program, f"undecided: {error}")
        return Grade(not fault, program, f"[{sandbox.level}] {fault or 'passed'}")

    def _opened(self) -> Sandbox:
        with self._opening:
            if self._sandbox is None:
                self._sandbox = open_sandbox()
            return self._sandbox

    async def _outside(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """What is wrong, judged by outputs and values; empty where nothing is."""
        if not tests.tests:
            return ""
        groups = together(tests.tests)
        runs = [_run(group, tests.entry_point) for group in groups]
        faults: list[str] = []

        def go_on(result: RunResult) -> bool:
            faults.append(self._fault(groups[len(faults)], result))
            return not faults[-1]

        limits = replace(self._limits, output_bytes=self._limits.output_bytes + room(groups))
        await sandbox.run_batch(program, runs, limits=limits, go_on=go_on)
        passed = sum(map(len, groups[: len(faults) - 1]))
        return f"after {passed} of {len(tests.tests)} tests: {faults[-1]}" if any(faults) else ""

    def _fault(self, group: Group, result: RunResult) -> str:
        """What is wrong with a run of a group of tests; empty where nothing is."""
        if result.verdict is not Verdict.OK:
            return _ending(result)
        if isinstance(group[0], IoTest):
            return wrong_output(group[0], result.stdout, self.mode)
        if len(result.replies) != len(group):
            return "no_verdict: not a reply for each call"
        pairs = zip(cast("tuple[CallTest, ...]", group), result.replies, strict=True)
        faults = (wrong_value(test, reply, self.mode) for test, reply in pairs)
        return next((fault for fault in faults if fault), "")

    async def _beside(self, sandbox: Sandbox, program: str, tests: CodeTests) -> str:
        """What is wrong, as a test program in the answer's process reports; empty where nothing is."""
        if not tests.unittest:
            return ""
        nonce = secrets.token_hex(16)
        call = (
            (program, tests.unittest, tests.entry_point or "", nonce),
            dict[str, object](),
            False,
        )
        (result,) = await sandbox.run_batch(
            _driver(), [Run("", "check", [call])], limits=self._limits
        )
        if result.verdict is not Verdict.OK or len(result.replies) != 1:
            return _ending(result)
        with suppress(NotPlain):
            report = decode(result.replies[0])
            said = cast("dict[str, object]", report) if isinstance(report, dict) else {}
            if said.get("nonce") == nonce and isinstance(fault := said.get("fault"), str):
                return fault[:SHOWN]
        return "no_verdict: the report is not the driver's"


def room(groups: Sequence[Group]) -> int:
    """Bytes of output beyond the limit for which a right answer may have cause: some tests expect megabytes."""

    def largest(
        test: IoTest | CallTest,
    ) -> int:  # characters of four bytes; 1 may be returned as True
        return (
            4 * len(test.expected) if isinstance(test, IoTest) else 2 * len(encode(test.expected))
        )

    return max(sum(map(largest, group)) for group in groups)


def together(tests: Sequence[IoTest | CallTest]) -> list[Group]:
    """Which tests share a process: those next to each other that were assertions of one program, as they did there."""
    groups: list[Group] = []
    for test in tests:
        asserted = isinstance(test, CallTest) and test.equality == "python"
        before = groups[-1][-1] if groups else None
        if asserted and isinstance(before, CallTest) and before.equality == "python":
            groups[-1] += (test,)
        else:
            groups.append((test,))
    return groups


def _run(group: Group, entry_point: str | None) -> Run:
    if isinstance(group[0], IoTest):
        return Run(group[0].stdin)
    if entry_point is None:
        raise GradingError(
            "code tests: a CallTest without an entry point; expected CodeTests.entry_point"
        )
    calls = [
        (test.arguments, test.keywords, test.truth) for test in group if isinstance(test, CallTest)
    ]
    try:
        encode([(positional, dict(keywords)) for positional, keywords, _ in calls])
    except NotPlain as error:
        raise GradingError(
            f"code tests: the arguments hold {error}; expected plain builtins"
        ) from error
    return Run("", entry_point, calls)


def _ending(result: RunResult) -> str:
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return f"{result.verdict.value}: {lines[-1][:SHOWN]}" if lines else result.verdict.value


@functools.cache
def _driver() -> str:
    return (
        resources.files("openconductor.graders").joinpath("unittest_driver.py").read_text("utf-8")
    )
