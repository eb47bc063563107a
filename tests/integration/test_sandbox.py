"""The door for one program, and what a sandbox is like from inside when nobody does harm."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, SandboxError
from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests, IoTest
from openconductor.sandboxes import (
    Limits,
    Run,
    RunResult,
    Verdict,
    bubblewrap,
    open_sandbox,
    run_untrusted,
    survey,
)
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.sandboxes.session import NOT_PRELOADED, BatchedSandbox, preloaded
from openconductor.types import Problem


@pytest.fixture(scope="module")
def sandbox(bubblewrap: BubblewrapSandbox) -> BubblewrapSandbox:
    return bubblewrap


def once(sandbox: BatchedSandbox, program: str) -> RunResult:
    (result,) = sandbox.run_now(program, [Run()], limits=Limits())
    return result


def test_one_program_has_a_door(sandbox: BatchedSandbox) -> None:
    result = run_untrusted("print(input()[::-1])\nimport sys\nsys.exit(3)", stdin="abc")
    assert (result.stdout, result.exit_code, result.verdict) == ("cba\n", 3, Verdict.RUNTIME_ERROR)
    assert result.level in {"bubblewrap", "docker"} and result.cpu_s > 0 and result.wall_s > 0


@pytest.mark.parametrize(
    ("program", "limit", "verdict"),
    [
        ("while True: pass", {"cpu_s": 0.2}, Verdict.CPU_TIMEOUT),
        ("import time; time.sleep(60)", {"wall_s": 0.2}, Verdict.WALL_TIMEOUT),
        ("x = bytearray(b'x') * (600 << 20)", {"memory_mb": 200}, Verdict.MEMORY),
    ],
    ids=str,
)
def test_the_limits_of_one_program_can_be_set(sandbox, program, limit, verdict) -> None:
    assert run_untrusted(program, **limit).verdict is verdict
    with pytest.raises(ConfigError):
        run_untrusted("", **dict.fromkeys(limit, 0))


def test_this_machine_has_a_sandbox(sandbox: BatchedSandbox) -> None:
    assert survey() == ("bubblewrap", {})
    assert open_sandbox().level == open_sandbox("bubblewrap").level == "bubblewrap"


def test_a_program_sees_an_ordinary_python(sandbox: BatchedSandbox) -> None:
    program = """
import os, sys, tempfile, socket, hashlib, random
assert __name__ == "__main__" and sys.argv == ["program.py"] and sys.flags.optimize == 0
assert sys.stdin.encoding == sys.stdout.encoding == "utf-8" and sys.stdout.fileno() == 1
assert os.getcwd() == os.environ["HOME"] == tempfile.gettempdir() == "/tmp"
assert os.getuid() != 0 and os.listdir("/tmp") == [] and os.path.exists("/dev/null")
assert sys.getrecursionlimit() == 1000 and sys.version_info >= (3, 11)
server = socket.create_server(("127.0.0.1", 0))  # its own loopback
socket.create_connection(server.getsockname())
assert not [name for name in sys.modules if "openconductor" in name]
assert len(random.SystemRandom().randbytes(8)) == 8 and os.urandom(1) is not None
print("ordinary", "\\u00e9", list({"b", "a", "c"}))
"""
    results = sandbox.run_now(program, [Run(), Run()], limits=Limits())
    assert {result.verdict for result in results} == {Verdict.OK}, results[0].stderr
    assert results[0].stdout == results[1].stdout, "hashes are fixed"
    assert results[0].stdout.startswith("ordinary é")


def test_random_numbers_differ_between_runs(sandbox: BatchedSandbox) -> None:
    results = sandbox.run_now("import random\nprint(random.random())", [Run()] * 3, limits=Limits())
    assert len({result.stdout for result in results}) == 3


def test_a_failure_shows_the_programs_own_frames(sandbox: BatchedSandbox) -> None:
    result = once(sandbox, "def f():\n    raise KeyError('x')\nf()")
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert "supervisor" not in result.stderr and "candidate" not in result.stderr
    assert result.stderr.endswith("KeyError: 'x'\n")


def test_long_input_and_many_runs_go_through(sandbox: BatchedSandbox) -> None:
    runs = [Run("x" * size) for size in (0, 10, 100_000, 3_000_000, 5, 15_999, 16_001)] * 3
    results = sandbox.run_now("import sys\nprint(len(sys.stdin.read()))", runs, limits=Limits())
    assert [int(result.stdout) for result in results] == [len(run.stdin) for run in runs]


def test_every_module_that_process_1_may_import_for_a_program_leaves_it_as_it_is(
    sandbox: BatchedSandbox,
) -> None:
    names = sorted(sys.stdlib_module_names - NOT_PRELOADED)
    for start in range(0, len(names), 60):
        imports = [f"    import {name}\n" for name in names[start : start + 60]]
        text = "if False:\n" + "".join(imports)
        assert len(preloaded(text)) == len(imports)
        program = text + "import os, random, threading\nprint(len(os.listdir('/proc/self/task')))"
        for result in sandbox.run_now(program, [Run(), Run()], limits=Limits()):
            assert (result.verdict, result.stdout) == (Verdict.OK, "1\n"), result.stderr


def test_installed_packages_can_be_asked_for(sandbox: BatchedSandbox) -> None:
    without = once(sandbox, "import pytest")
    assert without.verdict is Verdict.RUNTIME_ERROR and "ModuleNotFoundError" in without.stderr
    assert once(BubblewrapSandbox(packages=True), "import pytest\nprint(7)").stdout == "7\n"


@pytest.mark.parametrize("under", ["/tmp", "/var/tmp"])
def test_packages_are_seen_wherever_they_lie_outside(sandbox, monkeypatch, under) -> None:
    program = "import os, planted_package\n"
    program += "print(planted_package.ANSWER, os.listdir('/tmp'))\nopen('/tmp/x', 'w')"
    with tempfile.TemporaryDirectory(dir=under) as folder:
        Path(folder).chmod(0o755)
        Path(folder, "planted_package.py").write_text("ANSWER = 7\n")
        planted = bubblewrap.interpreter_at(sys.executable)._replace(packages=[folder])
        monkeypatch.setattr(bubblewrap, "interpreter_at", lambda python: planted)
        results = BubblewrapSandbox(packages=True).run_now(program, [Run(), Run()], limits=Limits())
    for result in results:
        assert (result.verdict, result.stdout) == (Verdict.OK, "7 []\n"), result.stderr


async def test_a_batch_that_waits_for_a_core_can_be_cancelled(sandbox: BatchedSandbox) -> None:
    single = BubblewrapSandbox()
    single._threads = ThreadPoolExecutor(1)
    first, second = (
        asyncio.create_task(single.run_batch(program, [Run()], limits=Limits()))
        for program in ("import time\ntime.sleep(0.5)", "print(2)")
    )
    await asyncio.sleep(0.1)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first)[0].verdict is Verdict.OK
    await single.aclose()


async def test_the_interpreter_of_programs_can_be_chosen_and_stands_in_the_note(
    sandbox: BatchedSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCONDUCTOR_SANDBOX_PYTHON", sys.executable)
    other = open_sandbox()
    program = "import platform\nprint(platform.python_version())"
    result = once(other, program)
    assert result.stdout == f"{other.python}\n", result.stderr
    tests = CodeTests((IoTest("", result.stdout),))
    verdict = await CodeGrader(sandbox=other).grade(Problem("p", "", tests, "t"), program)
    assert verdict.note == f"[bubblewrap, Python {other.python}] passed"
    with pytest.raises(SandboxError, match="cannot run /nowhere/python"):
        BubblewrapSandbox(python="/nowhere/python")
    with pytest.raises(SandboxError, match=r"\(/bin/true\), expected 3.11"):
        BubblewrapSandbox(python="/bin/true")
