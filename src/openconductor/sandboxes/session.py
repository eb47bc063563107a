"""Sandboxes, seen from outside: start one, check what it became, send it runs, end it; batches of runs in threads.

In: a backend's ``launching`` (a context that yields a ``Launch``), a program, runs. Out: a
RunResult a run, or a SandboxError. ``run_batch`` is for the event loop, ``run_now`` for everybody
else. Many more sandboxes at a time than cores would only share the cores.

The first bytes sent are the code that runs inside (``encoding``, ``candidate``, ``place``,
``supervisor``), compiled already where the Python inside is the one outside; then come frames, as
``supervisor`` says.
"""

from __future__ import annotations

import asyncio
import functools
import marshal
import os
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
INSIDE = ("encoding", "place", "candidate", "supervisor")
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
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LOGNAME": "nobody",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What a program inside sees, and process 1 too, and HOME. Hashes are fixed, so that the order of a set is no luck."""
PYTHON_FLAGS = ("-s", "-S", "-P", "-B", "-X", "utf8")
START_S = 30.0
GRACE_S = 20.0
"""Seconds beyond the run's own guard, before a sandbox that does not answer is given up."""
HEAD_BYTES = 4096
NOT_PRELOADED = {"antigravity", "this", "__main__", "idlelib", "turtle", "tkinter", "lib2to3"}
FOR_CHECKERS = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n)+", re.MULTILINE)
IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
MEMORY_ERROR = re.compile(r"^[\w.]*MemoryError\b", re.MULTILINE)
GoOn = Callable[[RunResult], bool]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts its sandbox.

    Args:
        command: what to execute; the descriptors 0 and 1 of process 1 are one socket.
        setup: what process 1 is told beside the limits, where it differs from the default: ``uid``
            (None: stay), ``scratch`` (the folder that may be written to, empty at the start),
            ``private`` (it must be process 1), ``paths`` (for imports) and ``count_processes``
            (whether the kernel counts them for this sandbox alone).
        descriptors: passed on to the command.
        environment: of the command, all of it.
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
    """What a sandbox did instead of answering."""


class Batch:
    """One program and its runs: a sandbox for all of them, and a new one where a run has left something behind."""

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
            with self._sandbox.launching(self._limits) as launch, self._started(launch) as talk:
                for run in self._runs[len(results) :]:
                    result, clean = self._made(run, talk)
                    results.append(result)
                    if go_on is not None and not go_on(result):
                        return results
                    if not clean:
                        break
        return results

    def cancel(self) -> None:
        """Make whatever another thread does here fail at once; safe at any time."""
        self._cancelled = True
        connection = self._socket  # the other thread may be done with it meanwhile
        if connection is not None:
            with suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _started(self, launch: Launch) -> Generator[BinaryIO, None, None]:
        """A sandbox, as the stream of its answers; afterwards nothing of it is left running."""
        ours, theirs = socket.socketpair()
        level = self._sandbox.level
        with ours, ours.makefile("rb") as talk, tempfile.TemporaryFile() as said:
            self._socket = ours
            try:
                process = subprocess.Popen(  # noqa: S603 - what a sandbox is for
                    launch.command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=said,
                    env=dict(launch.environment),
                    cwd="/",
                    pass_fds=launch.descriptors,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"{level} sandbox: {launch.command[0]}: {error}") from error
            finally:
                theirs.close()
            try:
                self._greet(launch, talk)
                yield talk
            except _Broken as error:
                what = "" if ended(process, 1.0) else " (it still runs, and is ended)"
                said.seek(0)
                text = (
                    said.read(HEAD_BYTES).decode("utf-8", "replace").strip() or "nothing on stderr"
                )
                fault = "was cancelled" if self._cancelled else f"{error}{what}: {text}"
                raise SandboxError(f"{level} sandbox: {fault}") from error
            finally:
                self._socket = None
                end(ours, process)

    def _greet(self, launch: Launch, talk: BinaryIO) -> None:
        limits = asdict(self._limits) | {"wall_s": self._limits.wall_guard_s}
        self._tell(code_inside(launch.same_python), START_S)
        told = {"program": self._program, "preload": preloaded(self._program)}
        state = self._asked({**SETUP, **launch.setup, **limits, **told}, talk, START_S)
        if launch.isolated:
            check(state, self._sandbox.level)

    def _made(self, run: Run, talk: BinaryIO) -> tuple[RunResult, bool]:
        """A run's result, and whether the sandbox is clean after it."""
        stdin = run.stdin.encode("utf-8", "surrogatepass")
        calls = [
            (tuple(positional), dict(keywords), truth) for positional, keywords, truth in run.calls
        ]
        frame = {"stdin": stdin, "entry_point": run.entry_point, "calls": calls}
        answer: dict[str, Any] = self._asked(frame, talk, self._limits.wall_guard_s * 5 + GRACE_S)
        try:
            if max(answer["sizes"]) > self._limits.output_bytes:
                raise _Broken(f"answered {max(answer['sizes'])} bytes")
            stdout, stderr, reply = (
                talk.read(size).decode("utf-8", "replace") for size in answer["sizes"]
            )
            replies = tuple(reply.split("\n")[:-1])
            stopped, status = answer["stopped"], cast(int, answer["status"])
            verdict = (
                Verdict(stopped)
                if stopped
                else verdict_of(status, stderr, len(replies) == len(calls))
            )
            used = float(answer["cpu_s"] + 0), float(answer["wall_s"] + 0)
            exit_code = None if stopped else status
            result = RunResult(
                stdout, stderr, verdict, exit_code, *used, self._sandbox.level, replies
            )
            return result, bool(answer["clean"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise _Broken(f"answered what is no result: {error!r}") from error

    def _tell(self, content: bytes, seconds: float) -> None:
        """Send a frame; ``seconds`` are the patience for it and its answer."""
        if self._cancelled or self._socket is None:
            raise _Broken("was cancelled")
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(len(content).to_bytes(4, "little") + content)
        except OSError as error:
            raise _Broken("ended while it was spoken to") from error

    def _asked(self, frame: dict[str, Any], talk: BinaryIO, seconds: float) -> dict[str, Any]:
        self._tell(marshal.dumps(frame, 2), seconds)  # a format that is the same in every Python 3
        line, answer = b"", None
        try:
            line = talk.readline(HEAD_BYTES)
            answer = decode(line.decode("ascii")) if line.endswith(b"\n") else None
        except TimeoutError as error:
            raise _Broken("did not answer in time") from error
        except (OSError, NotPlain, UnicodeDecodeError):
            answer = None
        if not isinstance(answer, dict):
            raise _Broken(f"answered {line[:80]!r}" if line else "ended without an answer")
        return cast("dict[str, Any]", answer)


class BatchedSandbox(ABC):
    """A backend: it says how a sandbox is launched; the rest is here."""

    level: str

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def launching(self, limits: Limits) -> AbstractContextManager[Launch]:
        """How to start one sandbox; what it needs is released at the end of the context."""

    def run_now(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """``run_batch``, blocking, in the caller's thread."""
        return Batch(self, program, runs, limits).run(go_on)

    async def run_batch(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """See ``Sandbox.run_batch``. A cancelled caller is let go once its sandbox has ended."""
        if self._threads is None:  # starting and ending a sandbox is in part waiting for the kernel
            cores = (
                len(os.sched_getaffinity(0))
                if hasattr(os, "sched_getaffinity")
                else os.cpu_count() or 1
            )
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
        """Wait for what still runs (each run is bounded) and release the threads."""
        if self._threads is not None:
            threads, self._threads = self._threads, None
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)


def end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Say that this is all, on which process 1 ends and everything inside with it; then make sure."""
    try:
        ours.shutdown(socket.SHUT_WR)
        ours.settimeout(2.0)
        while ours.recv(1 << 16):
            continue  # until process 1 and whatever launched it have closed their end
    except OSError:
        process.kill()
    if not ended(process, 2.0):
        process.kill()
    process.wait()


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends within this many seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def check(state: Mapping[str, object], level: str) -> None:
    """That process 1 is what the sandbox promises.

    Raises:
        SandboxError: it is not; says what it is.
    """
    no_capabilities = all(
        int(str(state.get(name)) or "f", 16) == 0 for name in ("CapEff", "CapPrm")
    )
    private = state["pid"] == 1 and state["uid"] != 0
    if not (private and no_capabilities and state["NoNewPrivs"] == "1" and state["Seccomp"] == "2"):
        raise SandboxError(
            f"{level} sandbox: got {dict(state)}, expected process 1 of its own namespace, no root, no capability, no "
            "new privileges and a system-call filter (Seccomp 2)"
        )


def verdict_of(status: int, stderr: str, replied: bool) -> Verdict:
    """How a run ended that no limit has stopped."""
    if status != 0:
        return Verdict.MEMORY if MEMORY_ERROR.search(stderr) else Verdict.RUNTIME_ERROR
    return Verdict.OK if replied else Verdict.NO_VERDICT


def preloaded(program: str) -> list[str]:
    """Modules of the standard library that a program seems to import: process 1 imports them once for all runs.

    Read off by a pattern: no parser of ours takes apart what nobody trusts.
    """
    found = dict.fromkeys(IMPORTS.findall(FOR_CHECKERS.sub("", program)))
    return [
        name for name in found if name in sys.stdlib_module_names and name not in NOT_PRELOADED
    ][:64]


@functools.cache
def code_inside(compiled: bool) -> bytes:
    """The modules that run inside, marshalled as (name, code or text)."""
    modules: list[tuple[str, object]] = []
    for name in INSIDE:
        text = resources.files(PACKAGE).joinpath(f"{name}.py").read_text("utf-8")
        code = compile(text, f"<{name}>", "exec", dont_inherit=True) if compiled else text
        modules.append((f"{PACKAGE}.{name}", code))
    return marshal.dumps(modules, 4)
