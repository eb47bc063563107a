"""What a sandbox takes and gives: limits, runs, results; and the socket that every backend fits.

In: nothing. Out: frozen values. What these do not cover: which layers a backend has (see each), and whether what a
program printed is right (the graders' business).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from openconductor.errors import ConfigError


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
        wall_s: seconds by the clock, less those that the program waited for a free core. This only guards against
            programs that sleep. None: three times ``cpu_s``, and five more.
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
    """One run of a program: as a script that reads ``stdin``, or a ``call`` of one of its functions.

    Args:
        stdin: the text on standard input.
        call: (entry point, encoded arguments). The entry point is ``"function"`` or ``"Class.method"``; where a class
            ``Solution`` has a method of the function's name, that is called. The arguments are ``encode((positional,
            keywords))``; or the encoding of a list of such pairs, for as many calls in one process, one after the
            other, and the reply is then the encoding of the list of the replies. The program is then a module, not
            a script: ``__name__`` is not ``"__main__"``.
        truth: of the value that a call returns, only whether it is true is wanted; it may then be of any type.
    """

    stdin: str = ""
    call: tuple[str, bytes] | None = None
    truth: bool = False


class OwnProgram(str):
    """A program of this package's own, such as a driver: it may be sent compiled, which saves time inside."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did.

    ``exit_code`` is negative for a signal, None where the sandbox ended the run. ``cpu_s`` is that of all processes.
    ``level`` names the backend. ``reply`` is the encoded value that a call returned, as the program claims: a program
    can lie about its own value, and about nothing else.
    """

    stdout: str
    stderr: str
    verdict: Verdict
    exit_code: int | None
    cpu_s: float
    wall_s: float
    level: str
    reply: bytes = b""


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
