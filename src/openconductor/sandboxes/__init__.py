"""Sandboxes: one file a way to run untrusted programs.

A sandbox reports what each run of a program did (``RunResult``); graders decide whether that is
right. Every result carries the backend's ``level``, which says what layers protect the machine.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from openconductor.errors import ConfigError, SandboxError

if TYPE_CHECKING:
    from openconductor.sandboxes.session import BatchedSandbox

SANDBOXES = {
    "bubblewrap": "openconductor.sandboxes.bubblewrap:BubblewrapSandbox",
    "docker": "openconductor.sandboxes.docker:DockerSandbox",
    "plain": "openconductor.sandboxes.plain:PlainSandbox",
}
PROBED_S = 60.0  # time until a backend that did not work is tried again


class Verdict(StrEnum):
    """The end of a run. None says that an answer is right. A fault of the sandbox is an error."""

    OK = "ok"
    """The program ended with exit code 0, and a called function returned a plain value."""
    RUNTIME_ERROR = "runtime_error"
    """An exception, an exit code other than 0, a signal, or a returned value that is not plain."""
    CPU_TIMEOUT = "cpu_timeout"
    WALL_TIMEOUT = "wall_timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    """Too much was printed, or too many files were made."""
    NO_VERDICT = "no_verdict"
    """The program ended with exit code 0 before the called function had returned."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run.

    Args:
        cpu_s: CPU seconds of all its processes together. This limit judges.
        wall_s: seconds by the clock, without those in which the program waited for a free core. It
            only guards against programs that sleep. None: three times ``cpu_s``, and five more.
        memory_mb: resident memory of all its processes together, in MiB.
        output_bytes: the longest stdout, stderr and reply, each.
        file_mb: size of the private /tmp, and of the largest file, in MiB.
        processes: processes and threads alive at one time.

    Raises:
        ConfigError: a limit is not positive and finite.
    """

    cpu_s: float = 10.0
    wall_s: float | None = None
    memory_mb: int = 1024
    output_bytes: int = 1_000_000
    file_mb: int = 32
    processes: int = 32

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"Limits.{name}: got {value!r}, expected a positive number")

    @property
    def wall_guard_s(self) -> float:
        """``wall_s``, or its default."""
        return 3 * self.cpu_s + 5 if self.wall_s is None else self.wall_s


@dataclass(frozen=True, slots=True)
class JudgeProgram:
    """A trusted program that runs beside an untrusted one, in a process that is out of its reach.

    Two pipes join the processes. The program reads from descriptor 4 and writes to 3, the judge
    writes to 4 and reads from 5.

    Args:
        program: its text.
        entry_point: a function without arguments. What it returns is the run's only reply.
        modules: imported before the two processes part.
    """

    program: str
    entry_point: str
    modules: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: a script that reads ``stdin``, or a module whose function is called.

    Args:
        stdin: the text on standard input.
        entry_point: the function: ``"function"`` or ``"Class.method"``. If a class ``Solution`` has
            a method of the function's name, that is called. ``__name__`` is then not
            ``"__main__"``.
        calls: (positional arguments, keywords, truth) of each call, one after the other in one
            process; plain builtins. With ``truth`` the reply is the returned value's truth, and the
            value may be of any type.
        judge: gets ``stdin`` and makes the reply; the program's own replies go to it.
    """

    stdin: str = ""
    entry_point: str | None = None
    calls: Sequence[tuple[Sequence[object], Mapping[str, object], bool]] = ()
    judge: JudgeProgram | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Attributes:
        stdout, stderr: the output.
        verdict: how the run ended.
        exit_code: negative for a signal. None: the sandbox ended the run.
        cpu_s: CPU seconds of all processes.
        wall_s: seconds by the clock.
        level: the backend.
        replies: the values that the calls returned, as tagged JSON (``encoding``). A program can
            lie about its own values, and about nothing else.
    """

    stdout: str
    stderr: str
    verdict: Verdict
    exit_code: int | None
    cpu_s: float
    wall_s: float
    level: str
    replies: tuple[str, ...] = ()


class Sandbox(Protocol):
    """Runs untrusted programs."""

    level: str

    async def run_batch(
        self,
        program: str,
        runs: Sequence[Run],
        *,
        limits: Limits,
        go_on: Callable[[RunResult], bool] | None = None,
    ) -> list[RunResult]:
        """Run a program several times in one sandbox, each time in a fresh process.

        Args:
            program: the text of a Python program.
            runs: made in this order, one after the other, each with an empty /tmp.
            limits: of each run.
            go_on: called after each run, in another thread; False skips the remaining runs.

        Returns:
            A result for each run that was made.

        Raises:
            SandboxError: the sandbox could not be set up, or failed by itself.
        """
        ...

    async def aclose(self) -> None:
        """End the runs under way and release the threads."""
        ...


def open_sandbox(name: str = "auto", *, unsafe: bool = False) -> BatchedSandbox:
    """Return a sandbox.

    In bubblewrap the interpreter that the environment variable ``OPENCONDUCTOR_SANDBOX_PYTHON``
    names runs programs, else this one.

    Args:
        name: one of ``SANDBOXES``, or ``"auto"``: the first of bubblewrap and Docker that works
            here.
        unsafe: allows ``"plain"``, which protects nothing, also if ``"auto"`` finds no other.

    Raises:
        SandboxError: it cannot be set up here; for ``"auto"`` the message says why for each.
        ConfigError: an unknown name, or ``"plain"`` without ``unsafe``.
    """
    if name == "auto":
        best, faults = survey()
        if best is None and not unsafe:
            raise SandboxError("no sandbox works here: " + "; ".join(faults.values()))
        name = best or "plain"
    if name not in SANDBOXES:
        known = ", ".join((*SANDBOXES, "auto"))
        raise ConfigError(f"sandbox: got {name!r}, expected one of {known}")
    options: dict[str, object] = {}
    if name == "plain":
        options["unsafe"] = unsafe
    elif name == "bubblewrap":
        options["python"] = os.environ.get("OPENCONDUCTOR_SANDBOX_PYTHON", "")
    module, _, attribute = SANDBOXES[name].partition(":")
    backend: Callable[..., BatchedSandbox] = getattr(importlib.import_module(module), attribute)
    return backend(**options)


def run_untrusted(
    code: str,
    *,
    stdin: str = "",
    cpu_s: float = 10.0,
    wall_s: float | None = None,
    memory_mb: int = 1024,
) -> RunResult:
    """Run an untrusted Python program in the best sandbox of this machine. Blocks.

    Args:
        code: the program.
        stdin: its standard input.
        cpu_s: CPU seconds of all its processes together.
        wall_s: seconds by the clock. None: three times ``cpu_s``, and five more.
        memory_mb: resident memory of all its processes together, in MiB.

    Raises:
        SandboxError: no sandbox works here, or it failed.
        ConfigError: a limit is not positive.
    """
    limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
    return _shared().run_now(code, [Run(stdin)], limits=limits)[0]


def survey() -> tuple[str | None, dict[str, str]]:
    """Return the sandbox that ``"auto"`` opens (None: none works), and the faults of the others.

    A backend that works is tried once. A fault may pass, so it is tried again after ``PROBED_S``.
    """
    faults: dict[str, str] = {}
    for name in ("bubblewrap", "docker"):
        when, fault = _probed.get(name, (-PROBED_S, "not tried"))
        if fault and time.monotonic() - when >= PROBED_S:
            fault = _probe(name)
            _probed[name] = (time.monotonic(), fault)
        if not fault:
            return name, faults
        faults[name] = fault
    return None, faults


_probed: dict[str, tuple[float, str]] = {}


def _probe(name: str) -> str:
    """Run a program in a backend; return why the backend does not work here ("": it does)."""
    try:
        (result,) = open_sandbox(name).run_now("print(6 * 7)", [Run()], limits=Limits(cpu_s=5))
    except SandboxError as error:
        return str(error)
    if result.verdict == Verdict.OK and result.stdout.strip() == "42":
        return ""
    got = f"{result.verdict} and {result.stdout!r}"
    return f"{name} sandbox: got {got} of a program that prints 42"


@functools.cache
def _shared() -> BatchedSandbox:
    return open_sandbox()
