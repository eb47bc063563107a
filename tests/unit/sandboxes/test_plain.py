"""Plain processes: limits hold, and every result says that nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.sandboxes import Limits, Run, RunResult, Verdict
from openconductor.sandboxes.encoding import decode
from openconductor.sandboxes.plain import PlainSandbox


@pytest.fixture(scope="module")
def sandbox() -> PlainSandbox:
    return PlainSandbox(unsafe=True)


def run(sandbox: PlainSandbox, program: str, *runs: Run, **limits: float) -> list[RunResult]:
    """Run a program, once without input where no runs are given."""
    return sandbox.run_now(program, runs or [Run()], limits=Limits(**limits))  # type: ignore[arg-type]


def test_a_result_says_that_nothing_was_protected(sandbox: PlainSandbox) -> None:
    (result,) = run(sandbox, "print(input())", Run("hello"))
    assert (result.verdict, result.exit_code) == (Verdict.OK, 0)
    assert (result.stdout, result.level) == ("hello\n", "plain")
    assert 0 < result.cpu_s < 5 and 0 < result.wall_s < 60


SOLUTION = "class Solution:\n    def add(self, a, b=1): return ('ours', a + b, __name__)"


@pytest.mark.parametrize(
    ("program", "entry_point", "wanted"),
    [
        ("def add(a, b): return {'sum': a + b}, __name__", "add", ({"sum": 3}, "program")),
        (SOLUTION, "Solution.add", ("ours", 3, "program")),
        (
            f"from operator import *\n{SOLUTION}",
            "add",
            ("ours", 3, "program"),
        ),  # before what was imported
        ("from operator import *\nclass Solution: pass", "add", 3),
    ],
)
def test_a_function_is_called_with_values_and_replies_with_one(
    sandbox, program, entry_point, wanted
) -> None:
    call = (
        ((1, 2), {}, False) if wanted == 3 else ((1,), {"b": 2}, False)
    )  # an operator takes no keywords
    (result,) = run(sandbox, program, Run("", entry_point, [call]))
    assert decode(result.replies[0]) == wanted


def test_many_calls_in_one_process_have_a_reply_each(sandbox: PlainSandbox) -> None:
    program = "seen = []\ndef f(n):\n    seen.append(n)\n    return list(seen)"
    calls = [((n,), {}, n == 1) for n in range(3)]
    (result,) = run(sandbox, program, Run("", "f", calls))
    assert [decode(reply) for reply in result.replies] == [[0], True, [0, 1, 2]]


def test_of_a_value_that_is_not_plain_only_its_truth_can_be_had(sandbox: PlainSandbox) -> None:
    program = "import re\ndef f(text): return re.match('a', text)"
    runs = [Run("", "f", [(("abc",), {}, truth)]) for truth in (False, True)]
    plain, truth = run(sandbox, program, *runs)
    assert plain.verdict is Verdict.RUNTIME_ERROR and "type Match" in plain.stderr
    assert truth.replies == ("true",)


ENDS = r"""
import sys; sys.exit(3)        | 3  | runtime_error |
exit('no')                     | 1  | runtime_error | no\n
1 / 0                          | 1  | runtime_error | ZeroDivisionError: division by zero\n
def f(:                        | 1  | runtime_error | SyntaxError: invalid syntax\n
raise SystemExit               | 0  | ok            |
import os; os.abort()          | -6 | runtime_error |
import sys; sys.stdout.close() | 0  | ok            |
\0                             | 1  | runtime_error | null bytes\n
\ud800                         | 1  | runtime_error | surrogates not allowed\n
"""


@pytest.mark.parametrize("line", ENDS.strip().splitlines())
def test_an_end_is_reported_as_it_was(sandbox: PlainSandbox, line: str) -> None:
    program, code, verdict, message = map(str.strip, line.split("|"))
    text = program.encode().decode("unicode_escape")
    (result,) = run(sandbox, text)
    assert (result.exit_code, result.verdict) == (int(code), verdict)
    assert result.stderr.endswith(message.replace(r"\n", "\n"))


def test_limits_on_time_and_output_hold(sandbox: PlainSandbox) -> None:
    limits = {"cpu_s": 0.3, "wall_s": 20, "output_bytes": 1000}
    (spin,) = run(sandbox, "while True: pass", **limits)
    assert spin.verdict is Verdict.CPU_TIMEOUT and spin.cpu_s >= 0.3
    (endless,) = run(sandbox, "while True: print('x' * 100)", **limits)
    assert endless.verdict is Verdict.OUTPUT_LIMIT and len(endless.stdout) == 1000
    (sleep,) = run(sandbox, "import time; time.sleep(60)", wall_s=0.2)
    assert sleep.verdict is Verdict.WALL_TIMEOUT and sleep.exit_code is None and sleep.wall_s < 30


def test_each_run_finds_an_empty_folder_that_is_gone_afterwards(sandbox: PlainSandbox) -> None:
    program = "import os\nprint(os.getcwd(), os.listdir())\n"
    program += "os.makedirs('a/b')\nopen('a/b/c', 'w').write('x')"
    results = run(sandbox, program, Run(), Run())
    for result in results:
        folder, _, listing = result.stdout.partition(" ")
        assert listing == "[]\n" and not Path(folder).exists()


def test_the_runs_that_are_left_can_be_skipped(sandbox: PlainSandbox) -> None:
    runs = [Run(text) for text in "abc"]
    go_on = lambda result: result.stdout != "b\n"  # noqa: E731
    results = sandbox.run_now("print(input())", runs, limits=Limits(), go_on=go_on)
    assert [result.stdout for result in results] == ["a\n", "b\n"]


async def test_a_batch_runs_beside_the_event_loop_and_the_sandbox_can_be_used_after_closing() -> (
    None
):
    sandbox = PlainSandbox(unsafe=True)
    for _ in range(2):
        (result,) = await sandbox.run_batch("print(1)", [Run()], limits=Limits())
        assert result.stdout == "1\n"
        await sandbox.aclose()
