"""What is said to a sandbox, and how a sandbox that fails is told from a program that does."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict
from openconductor.sandboxes.batches import Batch, BatchedSandbox, cores
from openconductor.sandboxes.encoding import encode
from openconductor.sandboxes.plain import PlainSandbox
from openconductor.sandboxes.session import Launch, code_inside, ended, preloaded


class Scripted(BatchedSandbox):
    """A sandbox whose command is a Python text that speaks on descriptors 0 and 1."""

    level = "scripted"

    def __init__(self, text: str, **options: object) -> None:
        super().__init__()
        self._launch = Launch((sys.executable, "-c", text), self.level, setup={}, isolated=False, **options)  # type: ignore[arg-type]

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        yield self._launch


def frame(value: object) -> bytes:
    content = encode(value)
    return len(content).to_bytes(4, "little") + content


def test_a_sandbox_that_does_not_start_is_an_error_that_says_why() -> None:
    broken = Scripted("import sys; sys.exit('no room for namespaces')")
    with pytest.raises(SandboxError, match=r"scripted sandbox: .*no room for namespaces"):
        broken.run_now("print(1)", [Run()], limits=Limits())


def test_a_command_that_is_not_there_is_an_error() -> None:
    class Missing(Scripted):
        @contextmanager
        def launching(self, limits: Limits) -> Generator[Launch, None, None]:
            yield Launch(("/no/such/command",), "missing", setup={})

    with pytest.raises(SandboxError, match="no/such/command"):
        Missing("").run_now("print(1)", [Run()], limits=Limits())


def test_an_answer_that_is_no_frame_is_an_error() -> None:
    babbling = Scripted("import os; os.write(1, b'\\x04\\0\\0\\0what')\nwhile os.read(0, 1 << 20): pass")
    with pytest.raises(SandboxError, match="answered"):
        babbling.run_now("print(1)", [Run()], limits=Limits())


@pytest.mark.parametrize("said", [{}, {"stopped": "by magic"}, {"stdout": 1}, [1]])
def test_an_answer_that_is_no_result_is_an_error(said: object) -> None:
    answer = {"stopped": "", "status": 0, "cpu_us": 0, "wall_us": 0, "stderr": b"", "reply": b"", "clean": True}
    answered = {**answer, "stdout": b"", **said} if isinstance(said, dict) and said else said
    text = f"import os; os.write(1, {frame({}) + frame(answered)!r})\nwhile os.read(0, 1 << 20): pass"
    with pytest.raises(SandboxError, match="answered"):
        Scripted(text).run_now("", [Run()], limits=Limits())


def test_an_answer_that_is_too_long_is_not_waited_for() -> None:
    text = f"import os; os.write(1, {frame({}) + bytes([255] * 4)!r})\nwhile os.read(0, 1 << 20): pass"
    with pytest.raises(SandboxError, match="answered 4294967295 bytes"):
        Scripted(text).run_now("", [Run()], limits=Limits())


def test_a_sandbox_that_ends_in_the_middle_is_an_error() -> None:
    text = f"import os, time; os.write(1, {frame({})!r}); time.sleep(0.1); os.read(0, 1 << 20); os._exit(3)"
    with pytest.raises(SandboxError, match="ended"):
        Scripted(text).run_now("print(1)", [Run()], limits=Limits())


@pytest.mark.parametrize(
    ("said", "run", "verdict"),
    [
        ({}, Run(), Verdict.OK),
        ({"status": 1}, Run(), Verdict.RUNTIME_ERROR),
        ({"status": -11}, Run(), Verdict.RUNTIME_ERROR),
        ({"status": 1, "stderr": b"Traceback ...\nMemoryError\n"}, Run(), Verdict.MEMORY),
        ({"status": 1, "stderr": b"Traceback\nnumpy.core._exceptions._ArrayMemoryError: x\n"}, Run(), Verdict.MEMORY),
        ({"status": 0, "stderr": b"MemoryError\n"}, Run(), Verdict.OK),
        ({"status": None, "stopped": "cpu_timeout"}, Run(), Verdict.CPU_TIMEOUT),
        ({"status": -9, "stopped": "memory"}, Run(), Verdict.MEMORY),
        ({"reply": b""}, Run(call=("f", b"")), Verdict.NO_VERDICT),
        ({"reply": b"\x09\0\0\0N"}, Run(call=("f", b"")), Verdict.NO_VERDICT),
        ({"reply": b"\x01\0\0\0N"}, Run(call=("f", b"")), Verdict.OK),
        ({"reply": b"\x01\0\0\0N", "status": 1}, Run(call=("f", b"")), Verdict.RUNTIME_ERROR),
    ],
)
def test_a_runs_end_has_one_verdict(said: dict[str, object], run: Run, verdict: Verdict) -> None:
    answer = {"stopped": "", "status": 0, "clean": True, "cpu_us": 500_000, "wall_us": 1_000_000}
    answer |= {"stdout": b"o\xff", "stderr": b"", "reply": b""} | said
    text = (
        f"import os; os.write(1, {frame({}) + frame(answer)!r}); os.read(0, 1 << 20)\nwhile os.read(0, 1 << 20): pass"
    )
    result = Scripted(text).run_now("", [run], limits=Limits())[0]
    assert result.verdict is verdict
    assert result.exit_code == (None if said.get("stopped") else answer["status"])
    assert (result.stdout, result.level, result.cpu_s, result.wall_s) == ("o\ufffd", "scripted", 0.5, 1.0)
    assert result.reply == (b"N" if answer["reply"] == b"\x01\0\0\0N" else b"")


def test_a_run_that_leaves_something_gets_the_next_one_a_new_sandbox() -> None:
    answer = {"stopped": "", "status": 0, "cpu_us": 0, "wall_us": 0, "stderr": b"", "reply": b"", "clean": False}
    text = (
        f"import os; os.write(1, {frame({})!r}); os.write(1, {frame({**answer, 'stdout': b'one'})!r}); "
        f"os.write(1, {frame({**answer, 'stdout': b'never'})!r})\nwhile os.read(0, 1 << 20): pass"
    )
    results = Scripted(text).run_now("", [Run(), Run()], limits=Limits())
    assert [result.stdout for result in results] == ["one", "one"]


def test_a_cancelled_batch_does_not_start() -> None:
    batch = Batch(Scripted(""), "", [Run()], Limits())
    batch.cancel()
    with pytest.raises(SandboxError, match="cancelled"):
        batch.run(None)


def test_a_cancelled_session_fails_at_once_whatever_it_waits_for() -> None:
    batch = Batch(Scripted("import os, time; time.sleep(60)"), "", [Run()], Limits())
    timer = threading.Timer(0.3, batch.cancel)
    begun = time.monotonic()
    timer.start()
    with pytest.raises(SandboxError, match="cancelled"):
        batch.run(None)
    assert time.monotonic() - begun < 20


def test_modules_are_preloaded_that_a_program_seems_to_import() -> None:
    program = (
        "import math, os\nfrom collections import deque\n  import heapq as h\nfrom numpy import array\nimport this"
    )
    assert preloaded(program) == ["math", "collections", "heapq"]
    assert preloaded("import " + "a" * 100_000) == []
    assert len(preloaded("\n".join(f"import {name}" for name in sorted(sys.stdlib_module_names)))) == 64


def test_what_is_sent_in_is_compiled_only_for_the_same_python() -> None:
    assert b"def be_candidate" in code_inside(False)
    assert b"def be_candidate" not in code_inside(True)


def test_the_end_of_a_process_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert ended(process, 0.05) is False
        assert process.stdin is not None
        process.stdin.close()
        assert ended(process, 30) is True


def test_there_is_a_core() -> None:
    assert cores() >= 1
    assert PlainSandbox(unsafe=True)._concurrency > cores() - 1
