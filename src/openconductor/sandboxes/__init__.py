"""Sandboxes: one file a way to run a program that nobody trusts.

In: a program's text and its runs. Out: what each run did (``RunResult``), never whether it is right
(the graders' business). Which layers hold is the backend's ``level``, and every result carries it.
"""

from __future__ import annotations

import functools
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
PROBED_S = 60.0
"""For so long a backend that did not work is not tried again."""


class Verdict(StrEnum):
    """How a run ended. None of these says that an answer is right; a fault of the sandbox is a SandboxError."""

    OK = "ok"
    """The program ended by itself with exit code 0, and a called function returned a plain value."""
    RUNTIME_ERROR = "runtime_error"
    """An exception, an exit code other than 0, a signal; or a called function returned what is no plain value."""
    CPU_TIMEOUT = "cpu_timeout"
    WALL_TIMEOUT = "wall_timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    """Too much was printed, or too many files were made."""
    NO_VERDICT = "no_verdict"
    """The program ended with exit code 0 before the function that was asked for had returned."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    Args:
        cpu_s: seconds of CPU, of all its processes together. This judges.
        wall_s: seconds by the clock, less those that the program waited for a free core. This only
            guards against programs that sleep. None: three times ``cpu_s``, and five more.
        memory_mb: resident memory of all its processes together, in MiB.
        output_bytes: the longest stdout, stderr and reply, each.
        file_mb: the size of the private /tmp, and of the largest file, in MiB.
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
        for name in ("cpu_s", "wall_s", "memory_mb", "output_bytes", "file_mb", "processes"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"Limits.{name}: got {value!r}, expected a positive number")

    @property
    def wall_guard_s(self) -> float:
        """The seconds of ``wall_s``, worked out."""
        return 3 * self.cpu_s + 5 if self.wall_s is None else self.wall_s


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: as a script that reads ``stdin``, or as a module of which one function is called.

    Args:
        stdin: the text on standard input.
        entry_point: the function: ``"function"`` or ``"Class.method"``; where a class ``Solution``
            has a method of the function's name, that is called. ``__name__`` is then not
            ``"__main__"``.
        calls: (positional arguments, keywords, truth) for each call, one after the other in one
            process; plain builtins. With ``truth`` only whether the returned value is true is
            wanted; it may then be of any type.
    """

    stdin: str = ""
    entry_point: str | None = None
    calls: Sequence[tuple[Sequence[object], Mapping[str, object], bool]] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did.

    ``exit_code`` is negative for a signal, None where the sandbox ended the run. ``cpu_s`` is that
    of all processes. ``level`` names the backend. ``replies`` are the values that the calls
    returned, as tagged JSON (``encoding``) and as the program claims: a program can lie about its
    own values, and about nothing else.
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
    """Runs programs that nobody trusts."""

    level: str

    async def run_batch(
        self,
        program: str,
        runs: Sequence[Run],
        *,
        limits: Limits,
        go_on: Callable[[RunResult], bool] | None = None,
    ) -> list[RunResult]:
        """Run a program several times, in one sandbox but each time in a fresh process with an empty /tmp.

        Args:
            program: the text of a Python program.
            runs: in this order, one after the other.
            limits: for each run.
            go_on: asked after each run, in another thread; False skips the runs that are left.

        Returns:
            A result for each run that was made.

        Raises:
            SandboxError: the sandbox could not be set up, or failed by itself.
        """
        ...

    async def aclose(self) -> None:
        """End what still runs and release the threads."""
        ...


def open_sandbox(name: str = "auto", *, unsafe: bool = False, **options: object) -> BatchedSandbox:
    """A sandbox by name.

    Args:
        name: one of ``SANDBOXES``, or ``"auto"``: the first of bubblewrap and Docker that works
            here.
        unsafe: allows ``"plain"``, which protects nothing, also as what is left of ``"auto"``.
        **options: those of its class.

    Raises:
        SandboxError: it cannot be set up here; for ``"auto"`` it says why for each.
        ConfigError: an unknown name, or ``"plain"`` without ``unsafe``.
    """
    if name == "auto":
        best, faults = survey()
        if best is None and not unsafe:
            raise SandboxError("no sandbox works here: " + "; ".join(faults.values()))
        name = best or "plain"
    if name not in SANDBOXES:
        raise ConfigError(
            f"sandbox: got {name!r}, expected one of {', '.join((*SANDBOXES, 'auto'))}"
        )
    module, _, attribute = SANDBOXES[name].partition(":")
    made: Callable[..., BatchedSandbox] = getattr(importlib.import_module(module), attribute)
    return made(**options, **({"unsafe": unsafe} if name == "plain" else {}))


def run_untrusted(
    code: str,
    *,
    stdin: str = "",
    cpu_s: float = 10.0,
    wall_s: float | None = None,
    memory_mb: int = 1024,
) -> RunResult:
    """Run a Python program that nobody trusts, in the best sandbox that this machine has. Blocks.

    Args:
        code: the program.
        stdin: its standard input.
        cpu_s: seconds of CPU, of all its processes together.
        wall_s: seconds by the clock; None: three times ``cpu_s``, and five more.
        memory_mb: resident memory of all its processes together, in MiB.

    Returns:
        What it printed, how it ended (``verdict``), what it used, and the sandbox's ``level``.

    Raises:
        SandboxError: there is no sandbox here, or it failed.
        ConfigError: a limit is not positive.
    """
    limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
    return _shared().run_now(code, [Run(stdin)], limits=limits)[0]


def survey() -> tuple[str | None, dict[str, str]]:
    """The sandbox that ``"auto"`` opens here, None where none works; and why those before it do not, by name.

    That one works is found out once; that it does not may pass, and is found out again after
    ``PROBED_S``.
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
    """Why a backend does not work here, found out by running a program in it; empty where it does."""
    try:
        (result,) = open_sandbox(name).run_now("print(6 * 7)", [Run()], limits=Limits(cpu_s=5))
    except SandboxError as error:
        return str(error)
    said = f"{name} sandbox: got {result.verdict} and {result.stdout!r} of a program that prints 42"
    return "" if (result.verdict, result.stdout.strip()) == (Verdict.OK, "42") else said


@functools.cache
def _shared() -> BatchedSandbox:
    return open_sandbox()
