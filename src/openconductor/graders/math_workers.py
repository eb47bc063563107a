"""Math workers: processes that can be killed, for formulas that can be bombs.

In: pairs of formulas, from any thread. Out: what ``math_worker`` says of each, or how the process that read it ended.

A pool judges as many pairs at once as it has processes; one more stands by, so that a verdict after a bomb waits for
no start. What ends a bomb is the kernel's count of CPU time. When the wall time is over as well, a pair that has had
its fair share of CPU time (a hundred times what a verdict takes) is a bomb, too; one that has had less is starved by a
busy machine, which is no answer's fault, and goes on for a while.

The processes are started by path (``python -P math_worker.py``): not forked from this one, not importing its
``__main__``. They have no environment but their paths, ignore the keyboard, end when their stdin does, and spend no
more than their CPU time even where nobody is left to kill them. The first use starts them, the end of the interpreter
ends them, and a forked child lets go of its parent's and starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from openconductor.errors import ConfigError, GradingError

Said = Literal["equal", "different", "unread gold", "unread answer"]
Verdict = Said | Literal["memory", "cpu", "crash", "starved"]
"""What a worker says of a pair; or how it ended: out of memory, of CPU time, in a crash, or hardly running."""

_SAID: dict[str | None, Verdict] = {word: word for word in (*get_args(Said), "memory")}

CPU_S = 1.5
WALL_S = 2.0
FAIR_S = 0.3
STARVED_S = 30.0
MEMORY = 2 << 30
START_S = 60.0

_PROGRAM = Path(__file__).with_name("math_worker.py")
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class MathProcess:
    """One worker process, for one thread at a time.

    Raises:
        GradingError: it cannot be started.
    """

    def __init__(self, *, cpu_s: float, wall_s: float, memory: int) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        # -P: the program's folder, where a math.py lies, stays out of sys.path.
        command = [sys.executable, "-P", str(_PROGRAM), str(cpu_s), str(memory)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise GradingError(f"math worker: {error}; expected to start {command[0]}") from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._pipes = self.process.stdin, self.process.stdout
        self._unread = b""
        self._ready = False

    def judge(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        """The verdict on a pair, and whether the gold had been read by then.

        Raises:
            GradingError: the process did not start.
        """
        if not self._ready:
            self._await_start()
        pair = json.dumps({"gold": gold, "answers": list(answers), "tolerance": tolerance})
        gold_read = False
        sent, spent_before = time.monotonic(), self._cpu_spent()
        deadline = sent + self._wall_s
        try:
            self._send(pair.encode() + b"\n")
            while (line := self._line(deadline)) not in _SAID:
                if line == "gold":
                    gold_read = True
                elif self._cpu_spent() - spent_before >= min(FAIR_S, self._cpu_s):
                    return "cpu", gold_read
                elif deadline - sent > STARVED_S:
                    return "starved", gold_read
                else:
                    deadline += 0.1
        except (EOFError, OSError):
            return "cpu" if self.process.wait() == -signal.SIGPROF else "crash", gold_read
        return _SAID[line], gold_read

    def _await_start(self) -> None:
        try:
            self._ready = self._line(time.monotonic() + START_S) == "ready"
        except EOFError:
            self._ready = False
        if not self._ready:
            raise GradingError(f"math worker: {_PROGRAM.name} did not start within {START_S:g} s")

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in self._pipes:
            pipe.close()

    def abandon(self) -> None:
        """Let go of it in a forked child, whose process it is not."""
        self.process.returncode = 0  # else this child would wait for it
        for pipe in self._pipes:
            pipe.close()

    def _send(self, data: bytes) -> None:
        """A pipe holds less than a long pair, so what it does not take at once is written again."""
        while data:
            data = data[os.write(self._pipes[0].fileno(), data) :]

    def _cpu_spent(self) -> float:
        """CPU time of the process so far, in seconds; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self, deadline: float) -> str | None:
        """The next line that it says by then; None where it says none.

        Raises:
            EOFError: it has ended.
        """
        said = self._pipes[1]
        with selectors.DefaultSelector() as selector:
            selector.register(said, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return None
                more = os.read(said.fileno(), 4096)
                if not more:
                    raise EOFError
                self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode("ascii", "replace")


class MathWorkers:
    """A pool of worker processes.

    Args:
        processes: how many judge at once; None is one a core, at most 8.
        cpu_s: CPU time that one pair may take, in seconds.
        wall_s: wall time that one pair may take, in seconds.
        memory: address space of each process, in bytes.

    Raises:
        ConfigError: math-verify is not installed.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        cpu_s: float = CPU_S,
        wall_s: float = WALL_S,
        memory: int = MEMORY,
    ) -> None:
        if find_spec("math_verify") is None or find_spec("antlr4") is None:
            raise ConfigError('grader math: math-verify is not installed; pip install "openconductor[grade]"')
        self.processes = processes or min(os.cpu_count() or 1, 8)
        self.cpu_s = cpu_s
        self.wall_s = wall_s
        self.memory = memory
        self._open()
        _watch(self)

    def _open(self) -> None:
        self._threads = ThreadPoolExecutor(self.processes, thread_name_prefix="math-worker")
        self._lock = threading.Lock()
        self._idle: list[MathProcess] = []
        self._all: set[MathProcess] = set()
        self._closed = False

    async def judge(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        """The verdict on one pair, and whether the gold had been read by then; callable from any event loop.

        A process that crashes or runs out of memory is not believed at once: a fresh one tries the pair again.

        Args:
            gold: the reference, normalised.
            answers: the items of the answer, normalised.
            tolerance: the largest error, relative to the gold's numbers; None is exact.

        Raises:
            GradingError: no process could be started, or the pool is closed.
        """
        try:
            future = self._threads.submit(self._judge, gold, answers, tolerance)
        except RuntimeError as error:
            raise GradingError(f"math workers: {error}; expected an open pool") from error
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End all processes; who waits for a verdict still gets a GradingError."""
        with self._lock:
            self._closed = True
            for process in self._all:
                process.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.kill()
        self._all.clear()
        self._idle.clear()

    def abandon(self) -> None:
        """Begin anew in a forked child: the parent's processes and threads are not ours."""
        for process in self._all:
            process.abandon()
        self._open()

    def _judge(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        verdict, gold_read = self._judge_once(gold, answers, tolerance)
        if verdict in ("crash", "memory"):
            verdict, gold_read = self._judge_once(gold, answers, tolerance)
        return verdict, gold_read

    def _judge_once(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        process = self._take()
        healthy = False
        try:
            verdict, gold_read = process.judge(gold, answers, tolerance)
            healthy = verdict in get_args(Said)
        finally:
            self._give_back(process, healthy=healthy)
        return verdict, gold_read

    def _take(self) -> MathProcess:
        with self._lock:
            for dead in [process for process in self._idle if process.process.poll() is not None]:
                self._idle.remove(dead)  # somebody killed it while it did nothing
                self._all.remove(dead)
                dead.kill()
            process = self._idle.pop() if self._idle else self._started()
            if not self._idle:
                self._idle.append(self._started())  # the spare, which starts while this one works
        return process

    def _give_back(self, process: MathProcess, *, healthy: bool) -> None:
        with self._lock:
            if healthy and not self._closed:
                self._idle.append(process)  # last in, first out: it has parsed golds in its memory
                return
            if process in self._all and not self._closed:
                self._all.remove(process)
        process.kill()

    def _started(self) -> MathProcess:
        if self._closed:
            raise GradingError("math workers: the pool is closed, expected an open one")
        process = MathProcess(cpu_s=self.cpu_s, wall_s=self.wall_s, memory=self.memory)
        self._all.add(process)
        return process


_watched: weakref.WeakSet[MathWorkers] | None = None
_shared: MathWorkers | None = None
_shared_lock = threading.Lock()


def shared_workers() -> MathWorkers:
    """The pool that all graders of this process share.

    Raises:
        ConfigError: math-verify is not installed.
    """
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = MathWorkers()
        return _shared


def _watch(workers: MathWorkers) -> None:
    """See to it that the pool ends with the interpreter and does not outlive a fork."""
    global _watched
    if _watched is None:
        _watched = weakref.WeakSet()
        atexit.register(_close_all)
        os.register_at_fork(after_in_child=_abandon_all)
    _watched.add(workers)


def _close_all() -> None:
    for workers in list(_watched or ()):
        workers.close()


def _abandon_all() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()  # another thread of the parent may have held it
    for workers in list(_watched or ()):
        workers.abandon()
