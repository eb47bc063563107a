"""One sandbox, seen from outside: start it, check what it became, send it runs, end it.

In: a ``Launch`` (a command that a backend has put together), a program, runs. Out: a RunResult a run, or a
SandboxError. Blocking: it lives in a thread of ``batches`` (or in the caller's, for ``run_untrusted``); ``cancel`` may
be called from any other.

The first bytes sent are the code that runs inside (``encoding``, ``candidate``, ``place``, ``supervisor``), compiled
already where the Python inside is the one outside; then come frames, as ``supervisor`` says.
"""

from __future__ import annotations

import functools
import marshal
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, cast

from openconductor.errors import SandboxError
from openconductor.sandboxes.encoding import NotPlain, decode, encode
from openconductor.sandboxes.values import Limits, OwnProgram, Run, RunResult, Verdict

PACKAGE = "openconductor.sandboxes"
INSIDE = ("encoding", "candidate", "place", "supervisor")
BOOTSTRAP = """
import gc, sys, marshal
gc.disable()
from posix import read
def take(count):
    taken = b""
    while len(taken) < count:
        part = read(0, count - len(taken))
        if not part:
            sys.exit("nothing was sent")
        taken += part
    return taken
for name, code in marshal.loads(take(int.from_bytes(take(4), "little"))):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main()
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
SHORT = 16_000
NOT_PRELOADED = {"antigravity", "this", "__main__", "idlelib", "turtle", "tkinter", "lib2to3"}
IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
MEMORY_ERROR = re.compile(r"^[\w.]*MemoryError\b", re.MULTILINE)
NOT_PLAIN = 97


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts its sandbox.

    Args:
        command: what to execute; the descriptors 0 and 1 of process 1 are one socket.
        level: the backend's name.
        setup: what process 1 is told beside the limits: ``uid`` (None: stay), ``scratch`` (the folder that may be
            written to, empty at the start), ``private`` (it must be process 1), ``paths`` (for imports) and
            ``count_processes`` (whether the kernel counts them for this sandbox alone).
        descriptors: passed on to the command.
        environment: of the command, all of it.
        isolated: process 1 must be process 1, no root, without capabilities, filtered.
        same_python: the Python inside is this one, so that compiled code can be sent.
    """

    command: tuple[str, ...]
    level: str
    setup: Mapping[str, object]
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)
    isolated: bool = True
    same_python: bool = True


class Session:
    """A sandbox that holds one program and runs it as often as it is asked to."""

    def __init__(self, launch: Launch, program: str, limits: Limits) -> None:
        self._launch = launch
        self._program = program
        self._limits = limits
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    @contextmanager
    def started(self) -> Generator[Session, None, None]:
        """Start the sandbox; afterwards nothing of it is left running.

        Raises:
            SandboxError: it does not start, or is not what it should be.
        """
        try:
            self._start()
            yield self
        finally:
            self._end()

    def cancel(self) -> None:
        """Make whatever another thread does here fail at once; safe at any time."""
        self._cancelled = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # not connected any more

    def results(self, runs: Sequence[Run]) -> Generator[RunResult, None, None]:
        """Make runs, as long as the sandbox is clean; the next one is sent ahead, so that nobody waits for it.

        Raises:
            SandboxError: the sandbox failed or did not answer.
        """
        guard = self._limits.wall_guard_s * 5 + GRACE_S
        sent = 0
        for number, run in enumerate(runs):
            while sent == number or (sent <= number + 1 < len(runs) and _is_short(runs[sent])):
                stdin = runs[sent].stdin.encode("utf-8", "surrogatepass")
                call = runs[sent].call
                self._tell({"stdin": stdin, "call": None if call is None else (*call, runs[sent].truth)}, guard)
                sent += 1
            answer = self._answer(guard)
            try:
                result, clean = self._result(answer, run), bool(answer["clean"])
            except (KeyError, TypeError, ValueError) as error:
                raise self._failure(f"answered what is no result: {error!r}") from error
            yield result
            if not clean:
                return

    def _result(self, answer: dict[str, Any], run: Run) -> RunResult:
        stdout, stderr = (str(answer[name], "utf-8", "replace") for name in ("stdout", "stderr"))
        reply = b""
        raw = cast(bytes, answer["reply"])
        if run.call is not None and len(raw) >= 4 and int.from_bytes(raw[:4], "little") == len(raw) - 4:
            reply = raw[4:]
        status = None if answer["stopped"] else cast(int, answer["status"])
        if answer["stopped"]:
            verdict = Verdict(answer["stopped"])
        elif status != 0:
            verdict = Verdict.MEMORY if MEMORY_ERROR.search(stderr) else Verdict.RUNTIME_ERROR
        elif run.call is not None and not reply:
            verdict = Verdict.NO_VERDICT
        else:
            verdict = Verdict.OK
        cpu_s, wall_s = cast(int, answer["cpu_us"]) / 1e6, cast(int, answer["wall_us"]) / 1e6
        return RunResult(stdout, stderr, verdict, status, cpu_s, wall_s, self._launch.level, reply)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        ours.setblocking(False)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - what a sandbox is for
                self._launch.command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env=dict(self._launch.environment),
                cwd="/",
                pass_fds=self._launch.descriptors,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"{self._launch.level} sandbox: {self._launch.command[0]}: {error}") from error
        finally:
            theirs.close()
        code = code_inside(self._launch.same_python)
        self._send(len(code).to_bytes(4, "little") + code, START_S)
        self._tell(self._setup(), START_S)
        state = self._answer(START_S)
        if self._launch.isolated:
            check(state, self._launch.level)

    def _compiles(self) -> bool:
        return self._launch.same_python and isinstance(self._program, OwnProgram)

    def _setup(self) -> dict[str, object]:
        limits = self._limits
        return {
            **self._launch.setup,
            "program": compiled(self._program) if self._compiles() else str(self._program),
            "preload": preloaded(self._program),
            "cpu_us": int(limits.cpu_s * 1e6),
            "wall_us": int(limits.wall_guard_s * 1e6),
            "memory_mb": limits.memory_mb,
            "output_bytes": limits.output_bytes,
            "file_mb": limits.file_mb,
            "processes": limits.processes,
        }

    def _tell(self, frame: Mapping[str, object], seconds: float) -> None:
        content = encode(dict(frame))
        self._send(len(content).to_bytes(4, "little") + content, seconds)

    def _answer(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        count = int.from_bytes(self._receive(4, deadline), "little")
        if count > 3 * self._limits.output_bytes + SHORT:
            raise self._failure(f"answered {count} bytes")
        try:
            return cast(dict[str, Any], decode(self._receive(count, deadline)))
        except NotPlain as error:
            raise self._failure(f"answered {error}") from error

    def _send(self, content: bytes, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        view = memoryview(content)
        while view:
            self._await(select.POLLOUT, deadline)
            try:
                view = view[self._connection.send(view) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._failure("ended while it was spoken to") from error

    def _receive(self, count: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        while count:
            self._await(select.POLLIN, deadline)
            try:
                part = self._connection.recv(min(count, 1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:
                raise self._failure("ended without an answer")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    @property
    def _connection(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def _await(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._connection, event)
        if self._cancelled:
            raise self._failure("was cancelled")
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise self._failure("did not answer in time")

    def _failure(self, what: str) -> SandboxError:
        """What is known of a sandbox that failed: what it or its launcher wrote on stderr."""
        if self._cancelled:
            return SandboxError(f"{self._launch.level} sandbox: was cancelled")
        said = b""
        if self._process is not None and self._process.stderr is not None:
            os.set_blocking(self._process.stderr.fileno(), False)
            if not ended(self._process, 1.0):
                what += " (it still runs, and is ended)"
            said = self._process.stderr.read(4096) or b""
        text = said.decode("utf-8", "replace").strip() or "nothing on stderr"
        return SandboxError(f"{self._launch.level} sandbox: {what}: {text}")

    def _end(self) -> None:
        """Close the connection, on which process 1 ends and everything inside with it; then make sure."""
        if self._socket is not None:
            self._socket.close()
        if self._process is None:
            return
        if not ended(self._process, 2.0):
            self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends within so many seconds. ``Popen.wait`` with a timeout would sleep in steps."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def check(state: Mapping[str, object], level: str) -> None:
    """That process 1 is what the sandbox promises.

    Raises:
        SandboxError: it is not; says what it is.
    """
    no_capabilities = all(int(str(state[name]) or "f", 16) == 0 for name in ("CapEff", "CapPrm"))
    held = state["pid"] == 1 and state["uid"] != 0 and no_capabilities and state["NoNewPrivs"] == "1"
    if not held or state["Seccomp"] != "2":
        raise SandboxError(
            f"{level} sandbox: got {dict(state)}, expected process 1 of its own namespace, no root, no capability, no "
            "new privileges and a system-call filter (Seccomp 2)"
        )


def preloaded(program: str) -> list[str]:
    """Modules of the standard library that a program seems to import: process 1 imports them once for all runs.

    Read off by a pattern: no parser of ours takes apart what nobody trusts.
    """
    found = dict.fromkeys(IMPORTS.findall(program))
    return [name for name in found if name in sys.stdlib_module_names and name not in NOT_PRELOADED][:64]


def _is_short(run: Run) -> bool:
    """Whether a run can be sent while the sandbox does something else: a socket takes that much at once."""
    return len(run.stdin) + (len(run.call[1]) if run.call else 0) < SHORT


@functools.lru_cache(maxsize=16)
def compiled(program: str) -> bytes:
    """A program of our own as marshalled code."""
    return marshal.dumps(compile(program, "program.py", "exec", dont_inherit=True))


@functools.cache
def code_inside(compiled: bool) -> bytes:
    """The modules that run inside, marshalled as (name, code or text); format 2 is the same in every Python 3."""
    modules: list[tuple[str, object]] = []
    for name in INSIDE:
        text = resources.files(PACKAGE).joinpath(f"{name}.py").read_text("utf-8")
        modules.append(
            (f"{PACKAGE}.{name}", compile(text, f"<{name}>", "exec", dont_inherit=True) if compiled else text)
        )
    return marshal.dumps(modules) if compiled else marshal.dumps(modules, 2)
