"""A sandbox seen from outside: start it, check what it became, send it runs, end it.

``run_batch`` is for the event loop, ``run_now`` blocks. More sandboxes at a time than cores would
only share the cores.

The first bytes sent are the code that runs inside (``encoding``, ``candidate``, ``place``,
``usage``, ``supervisor``), compiled already if the Python inside is the one outside. Then come the
frames that ``supervisor`` describes.
"""

from __future__ import annotations
import __future__

import asyncio
import functools
import marshal
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any, BinaryIO, cast

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, RunResult, Verdict
from openconductor.sandboxes.encoding import NotPlain, decode

PACKAGE = "openconductor.sandboxes"
INSIDE = ("encoding", "place", "candidate", "usage", "supervisor")
BOOTSTRAP = """
import gc, io, marshal, sys
gc.disable()
from posix import dup
control = io.BufferedReader(io.FileIO(dup(0), closefd=False))
code = control.read(int.from_bytes(control.read(4), "little")) or sys.exit("nothing was sent")
for name, code in marshal.loads(code):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(control)
"""
# Environment of process 1 and of programs, beside HOME. Hashes are fixed, so that the order of a
# set is the same in every run.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LOGNAME": "nobody",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
PYTHON_FLAGS = ("-s", "-S", "-P", "-B", "-X", "utf8")
FUTURE_LINE = "from __future__ import annotations\n"
START_S = 30.0
# Seconds beyond the run's own guard until a sandbox that does not answer is given up.
GRACE_S = 20.0
HEAD_BYTES = 4096
NOT_PRELOADED = {"antigravity", "this", "__main__", "idlelib", "turtle", "tkinter", "lib2to3"}
FOR_CHECKERS = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n)+", re.MULTILINE)
IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
MEMORY_ERROR = re.compile(r"^[\w.]*MemoryError\b", re.MULTILINE)
_NO_NAMESPACES = re.compile(r"bwrap: .*(namespace|not permitted|denied)", re.IGNORECASE)
_IN_A_CONTAINER = (
    "bubblewrap may not make namespaces here, as in most containers; docs/sandboxes.md says, under "
    "`In a container`, what has to be allowed"
)
GoOn = Callable[[RunResult], bool]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts its sandbox.

    Args:
        command: the command; the descriptors 0 and 1 of process 1 are one socket.
        setup: changes to ``SETUP``: ``uid`` (None: stay), ``scratch`` (the folder that may be
            written to, empty at the start), ``private`` (it must be process 1), ``paths`` (for
            imports) and ``count_processes`` (the kernel counts them for this sandbox alone).
        descriptors: passed on to the command.
        environment: the whole environment of the command.
        isolated: process 1 must be process 1, no root, without capabilities, filtered.
        same_python: the Python inside is this one, so that compiled code can be sent.
    """

    command: tuple[str, ...]
    setup: Mapping[str, object]
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)
    isolated: bool = False
    same_python: bool = True


SETUP = {"uid": None, "scratch": "/tmp", "private": True, "paths": (), "count_processes": False}  # noqa: S108 - its own


class _Broken(Exception):
    """A sandbox did not answer as it should; the message says what it did."""


class Batch:
    """One program and its runs in one sandbox; a run that leaves something behind ends it."""

    def __init__(
        self, sandbox: BatchedSandbox, program: str, runs: Sequence[Run], limits: Limits
    ) -> None:
        self._sandbox = sandbox
        self._program = program
        self._runs = runs
        self._limits = limits
        self._socket: socket.socket | None = None
        self._cancelled = False

    def run(self, go_on: GoOn | None) -> list[RunResult]:
        """Make the runs, in this thread.

        Raises:
            SandboxError: the sandbox could not be set up, failed, or was cancelled.
        """
        results: list[RunResult] = []
        while len(results) < len(self._runs):
            with self._sandbox.launching(self._limits) as launch, self._start(launch) as answers:
                for run in self._runs[len(results) :]:
                    result, clean = self._make_run(run, answers)
                    results.append(result)
                    if go_on is not None and not go_on(result):
                        return results
                    if not clean:
                        break
        return results

    def cancel(self) -> None:
        """Make the work of another thread here fail at once; safe at any time."""
        self._cancelled = True
        connection = self._socket  # the other thread may close it meanwhile
        if connection is not None:
            with suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _start(self, launch: Launch) -> Generator[BinaryIO, None, None]:
        """Start a sandbox and yield the stream of its answers; afterwards nothing of it runs."""
        ours, theirs = socket.socketpair()
        name = f"{self._sandbox.level} sandbox"
        with ours, ours.makefile("rb") as answers, tempfile.TemporaryFile() as stderr:
            self._socket = ours
            try:
                process = subprocess.Popen(  # noqa: S603 - what a sandbox is for
                    launch.command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=stderr,
                    env=dict(launch.environment),
                    cwd="/",
                    pass_fds=launch.descriptors,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"{name}: {launch.command[0]}: {error}") from error
            finally:
                theirs.close()
            try:
                self._greet(launch, answers)
                yield answers
            except _Broken as error:
                running = "" if ended(process, 1.0) else " (it still runs, and is ended)"
                if self._cancelled:
                    raise SandboxError(f"{name}: was cancelled") from error
                stderr.seek(0)
                words = stderr.read(HEAD_BYTES).decode("utf-8", "replace").strip()
                words = words or "nothing on stderr"
                if _NO_NAMESPACES.match(words):
                    words += f"; {_IN_A_CONTAINER}"
                raise SandboxError(f"{name}: {error}{running}: {words}") from error
            finally:
                self._socket = None
                end(ours, process)

    def _greet(self, launch: Launch, answers: BinaryIO) -> None:
        """Send the code, the limits and the program, and check what process 1 has become."""
        setup: dict[str, Any] = {**SETUP, **launch.setup, **asdict(self._limits)}
        setup["wall_s"] = self._limits.wall_guard_s
        setup["program"] = self._program
        setup["preload"] = preloaded(self._program)
        self._send(code_inside(launch.same_python), START_S)
        state = self._ask(setup, answers, START_S)
        if launch.isolated:
            check(state, self._sandbox.level)

    def _make_run(self, run: Run, answers: BinaryIO) -> tuple[RunResult, bool]:
        """Make a run; return its result, and True if the sandbox is clean after it."""
        frame = {
            "stdin": run.stdin.encode("utf-8", "surrogatepass"),
            "entry_point": run.entry_point,
            "calls": [(tuple(args), dict(keywords), truth) for args, keywords, truth in run.calls],
            "judge": None if run.judge is None else asdict(run.judge),
        }
        timeout_s = self._limits.wall_guard_s * 5 + GRACE_S
        if run.judge is not None:
            # What the judge reads is sent once the program's process has no part in it any more.
            self._ask({**frame, "stdin": b""}, answers, timeout_s)
        answer = self._ask(frame, answers, timeout_s)
        try:
            sizes = answer["sizes"]
            if max(sizes) > self._limits.output_bytes:
                raise _Broken(f"answered {max(sizes)} bytes")
            outputs = [answers.read(size).decode("utf-8", "replace") for size in sizes]
            stdout, stderr, reply = outputs
            replies = tuple(reply.split("\n")[:-1])
            status = cast(int, answer["status"])
            if answer["stopped"]:
                verdict = Verdict(answer["stopped"])
                exit_code = None
            else:
                replied = len(replies) == (1 if run.judge else len(run.calls))
                verdict = verdict_of(status, stderr, replied)
                exit_code = status
            result = RunResult(
                stdout=stdout,
                stderr=stderr,
                verdict=verdict,
                exit_code=exit_code,
                cpu_s=float(answer["cpu_s"] + 0),  # `+ 0`: a number, not a text of one
                wall_s=float(answer["wall_s"] + 0),
                level=self._sandbox.level,
                replies=replies,
            )
            return result, bool(answer["clean"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise _Broken(f"answered what is no result: {error!r}") from error

    def _send(self, content: bytes, timeout_s: float) -> None:
        """Send a frame; the timeout holds for it and its answer."""
        if self._cancelled or self._socket is None:
            raise _Broken("was cancelled")
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(len(content).to_bytes(4, "little") + content)
        except OSError as error:
            raise _Broken("ended while it was spoken to") from error

    def _ask(self, frame: dict[str, Any], answers: BinaryIO, timeout_s: float) -> dict[str, Any]:
        """Send a frame and return its answer."""
        self._send(marshal.dumps(frame, 2), timeout_s)  # a format of every Python 3
        line = b""
        answer = None
        try:
            line = answers.readline(HEAD_BYTES)
            if line.endswith(b"\n"):
                answer = decode(line.decode("ascii"))
        except TimeoutError as error:
            raise _Broken("did not answer in time") from error
        except (OSError, NotPlain, UnicodeDecodeError):
            answer = None
        if not isinstance(answer, dict):
            raise _Broken(f"answered {line[:80]!r}" if line else "ended without an answer")
        return cast("dict[str, Any]", answer)


class BatchedSandbox(ABC):
    """A backend. A subclass says how a sandbox is launched.

    Attributes:
        level: the backend's name.
        python: the version of the Python that runs programs; "": unknown.
    """

    level: str
    python: str = platform.python_version()

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def launching(self, limits: Limits) -> AbstractContextManager[Launch]:
        """Yield how to start one sandbox; release what it needs at the end of the context."""

    def run_now(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """Do as ``run_batch``, blocking, in the caller's thread."""
        return Batch(self, program, runs, limits).run(go_on)

    async def run_batch(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """Do as ``Sandbox.run_batch`` says. A cancelled call ends after its sandbox has ended."""
        if self._threads is None:
            cores = os.cpu_count() or 1
            if hasattr(os, "sched_getaffinity"):
                cores = len(os.sched_getaffinity(0))
            # Half as many more, because starting and ending a sandbox waits for the kernel.
            self._threads = ThreadPoolExecutor(cores + (cores + 1) // 2, f"sandbox-{self.level}")
        batch = Batch(self, program, runs, limits)
        future = self._threads.submit(batch.run, go_on)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            batch.cancel()
            if not future.cancel():
                await asyncio.to_thread(wait, (future,))
            raise

    async def aclose(self) -> None:
        """Wait for the runs under way (each is bounded) and release the threads."""
        if self._threads is not None:
            threads = self._threads
            self._threads = None
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)


def end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """End process 1 by closing its input, and with it everything inside; kill what does not end."""
    try:
        ours.shutdown(socket.SHUT_WR)
        ours.settimeout(2.0)
        while ours.recv(1 << 16):
            continue  # until process 1 and the command that launched it have closed their end
    except OSError:
        process.kill()
    if not ended(process, 2.0):
        process.kill()
    process.wait()


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return True if a process ends within this many seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def check(state: Mapping[str, object], level: str) -> None:
    """Check that process 1 is what the sandbox promises.

    Raises:
        SandboxError: it is not; says what it is.
    """
    unprivileged = state["uid"] != 0 and state["NoNewPrivs"] == "1"
    for name in ("CapEff", "CapPrm"):
        if int(str(state.get(name)) or "f", 16) != 0:
            unprivileged = False
    if state["pid"] != 1 or not unprivileged or state["Seccomp"] != "2":
        raise SandboxError(
            f"{level} sandbox: got {dict(state)}, expected process 1 of its own namespace, "
            "no root, no capability, no new privileges and a system-call filter (Seccomp 2)"
        )


def verdict_of(status: int, stderr: str, replied: bool) -> Verdict:
    """Return the verdict on a run that no limit has stopped."""
    if status == 0:
        return Verdict.OK if replied else Verdict.NO_VERDICT
    return Verdict.MEMORY if MEMORY_ERROR.search(stderr) else Verdict.RUNTIME_ERROR


def preloaded(program: str) -> list[str]:
    """Return the standard modules that a program seems to import.

    Process 1 imports them once for all runs. They are found by a pattern, because no parser outside
    should read an untrusted program.
    """
    names = dict.fromkeys(IMPORTS.findall(FOR_CHECKERS.sub("", program)))
    known = sys.stdlib_module_names - NOT_PRELOADED
    return [name for name in names if name in known][:64]


@functools.cache
def code_inside(compiled: bool) -> bytes:
    """Return the modules that run inside, marshalled as (name, code or text)."""
    modules: list[tuple[str, object]] = []
    for name in INSIDE:
        code: object = resources.files(PACKAGE).joinpath(f"{name}.py").read_text("utf-8")
        if compiled:
            # Without docstrings, and without an import that would be looked for on the disk. The
            # program inherits the flags of ``candidate``, which has no such import.
            text = str(code).replace(FUTURE_LINE, "\n")
            flags = 0 if text == code else __future__.annotations.compiler_flag
            code = compile(text, f"<{name}>", "exec", flags, dont_inherit=True, optimize=2)
        modules.append((f"{PACKAGE}.{name}", code))
    return marshal.dumps(modules, 4)
