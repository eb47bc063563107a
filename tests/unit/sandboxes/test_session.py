"""What is said to a sandbox, and how a sandbox that fails is told from a program that does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, RunResult
from openconductor.sandboxes.encoding import encode
from openconductor.sandboxes.session import (
    Batch,
    BatchedSandbox,
    Launch,
    code_inside,
    preloaded,
    verdict_of,
)


class Scripted(BatchedSandbox):
    """A sandbox whose command is a Python text that speaks on descriptors 0 and 1."""

    level = "scripted"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._launch = Launch((sys.executable, "-c", text), {})

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        yield self._launch


ANSWER = {"stopped": "", "status": 0, "clean": True, "cpu_s": 0.5, "wall_s": 1.0}
WAIT = "\nwhile os.read(0, 1 << 20): pass"


def frame(value: object, *parts: bytes) -> bytes:
    """Write an answer as process 1 does; that of a run has three parts."""
    head = {**value, "sizes": list(map(len, parts))} if parts and isinstance(value, dict) else value
    return f"{encode(head)}\n".encode() + b"".join(parts)


def says(*frames: bytes) -> Scripted:
    return Scripted(f"import os; os.write(1, {b''.join(frames)!r}){WAIT}")


def run(sandbox: BatchedSandbox, *runs: Run) -> list[RunResult]:
    """Run nothing, without calls where none are given."""
    return sandbox.run_now("", runs or [Run()], limits=Limits())


def test_a_sandbox_that_does_not_start_is_an_error_that_says_why() -> None:
    with pytest.raises(SandboxError, match=r"scripted sandbox: .*no room for namespaces"):
        run(Scripted("import sys; sys.exit('no room for namespaces')"))
    missing = Scripted("")
    missing._launch = Launch(("/no/such/command",), {})
    with pytest.raises(SandboxError, match="no/such/command"):
        run(missing)


@pytest.mark.parametrize(
    "answer",
    [
        b"what\n",
        b"\xff\n",
        b"x" * 5000,
        frame([1]),
        frame({}),
        frame({**ANSWER, "stopped": "by magic"}, b"", b"", b""),
        frame({**ANSWER, "cpu_s": "long"}, b"", b"", b""),
        frame(ANSWER, b"", b""),
        frame({**ANSWER, "sizes": [1 << 32, 0, 0]}),
        frame({**ANSWER, "sizes": ["1", 0, 0]}),
    ],
)
def test_an_answer_that_is_no_result_is_an_error(answer: bytes) -> None:
    with pytest.raises(SandboxError, match="answered"):
        run(says(frame({}), answer))


def test_a_sandbox_that_ends_in_the_middle_is_an_error() -> None:
    text = f"import os; os.write(1, {frame({})!r}); os.read(0, 1 << 20); os._exit(3)"
    with pytest.raises(SandboxError, match=r"scripted sandbox: .*(ended|answered)"):
        run(Scripted(text))


CALL = Run("", "f", [((), {}, False)])


VERDICTS = r"""
0   True  MemoryError                                    = ok
0   False                                                = no_verdict
1   True                                                 = runtime_error
-11 False                                                = runtime_error
1   False Traceback ...\nMemoryError\n                    = memory
1   False x\nnumpy.core._exceptions._ArrayMemoryError: x = memory
"""


@pytest.mark.parametrize("line", VERDICTS.strip().splitlines())
def test_a_run_that_no_limit_stopped_has_one_verdict(line: str) -> None:
    ending, verdict = line.split(" = ")
    status, replied, *stderr = ending.split(maxsplit=2)
    text = "".join(stderr).strip().replace(r"\n", "\n")
    assert verdict_of(int(status), text, replied == "True") == verdict


@pytest.mark.parametrize(
    ("changes", "reply", "verdict"),
    [
        ({}, b"null\n", "ok"),
        ({}, b"null", "no_verdict"),
        ({}, b"null\nnull\n", "no_verdict"),
        ({"status": -9, "stopped": "memory"}, b"", "memory"),
    ],
)
def test_a_result_is_what_the_sandbox_answered(changes, reply, verdict) -> None:
    sandbox = says(frame({}), frame({**ANSWER, **changes}, b"o\xff", b"", reply))
    (result,) = run(sandbox, CALL)
    assert result.verdict == verdict
    assert result.exit_code == (None if changes else ANSWER["status"])
    assert (result.stdout, result.level) == ("o\ufffd", "scripted")
    assert (result.cpu_s, result.wall_s) == (0.5, 1.0)
    assert result.replies == tuple(reply.decode().split("\n")[:-1])


def test_a_run_that_leaves_something_gets_the_next_one_a_new_sandbox() -> None:
    left = {**ANSWER, "clean": False}
    sandbox = says(frame({}), frame(left, b"one", b"", b""), frame(left, b"never", b"", b""))
    results = run(sandbox, Run(), Run())
    assert [result.stdout for result in results] == ["one", "one"]


def test_a_cancelled_batch_fails_at_once_whatever_it_waits_for() -> None:
    early, late = (
        Batch(Scripted("import time; time.sleep(60)"), "", [Run()], Limits()) for _ in range(2)
    )
    early.cancel()
    timer = threading.Timer(0.3, late.cancel)
    begun = time.monotonic()
    timer.start()
    for batch in (early, late):
        with pytest.raises(SandboxError, match="cancelled"):
            batch.run(None)
    assert time.monotonic() - begun < 20


def test_modules_are_preloaded_that_a_program_seems_to_import() -> None:
    program = "import math, os\nfrom collections import deque\n  import heapq as h\n"
    program += "from numpy import array\nimport this"
    assert preloaded(program) == ["math", "collections", "heapq"]
    assert preloaded("import " + "a" * 100_000) == []
    whole = [f"import {name}" for name in sorted(sys.stdlib_module_names)]
    assert len(preloaded("\n".join(whole))) == 64


def test_what_is_sent_in_is_compiled_only_for_the_same_python() -> None:
    assert b"def be_candidate" in code_inside(False)
    assert b"def be_candidate" not in code_inside(True)
