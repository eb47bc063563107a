"""Math workers: processes that can be killed, for formulas that can be bombs.

In: pairs of formulas, from any thread. Out: what ``math_worker`` says of each, or how the process that read it ended.

A pool judges as many pairs at once as it has processes; one more stands by, so that a verdict after a bomb waits for
no start. CPU time alone makes a bomb, counted by the kernel, so that a busy machine makes none; and a process that did
not give a verdict is not believed at once: another one, which has been waiting, tries the pair again. The first try has
a part of the CPU time, the second one all of it.

The processes are started by path (``python -P math_worker.py``): not forked from this one, not importing its
``__main__``. They have no environment but their paths, ignore the keyboard, end when this process does, and spend no
more than their CPU time even where nobody is left to kill them. A forked child starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from openconductor.errors import ConfigError, GradingError

Said = Literal["equal", "different", "unread gold", "unread answer"]
Verdict = Said | Literal["memory", "cpu", "crash", "starved"]
"""What a worker says of a pair; or how it ended: out of memory, of CPU time, in a crash, or hardly running."""

_SAID: dict[str, Verdict] = {word: word for word in (*get_args(Said), "memory")}

FIRST_CPU_S = 0.5
CPU_S = 1.5
STARVED_S = 60.0
START_S = 60.0
MEMORY = 2 << 30

_PROGRAM = Path(__file__).with_name("math_worker.py")
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class MathProcess:
    """One worker process, for one thread at a time.

    Raises:
        GradingError: it cannot be started.
    """

    def __init__(self, memory: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._ready = False
        # -P: the program's folder, where a math.py lies, stays out of sys.path.
        command = [sys.executable, "-P", str(_PROGRAM), str(theirs.fileno()), str(memory)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        except OSError as error:
            self._pipe.close()
            raise GradingError(f"math worker: {error}; expected to start {command[0]}") from error
        finally:
            theirs.close()

    def judge(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        """The verdict on a pair, and whether the gold had been read by then.

        Raises:
            GradingError: the process did not start.
        """
        if not self._ready and self._said_within(START_S) != "ready":
            raise GradingError(f"math worker: {_PROGRAM.name} did not start within {START_S:g} s")
        self._ready = True
        gold_read = False
        deadline = time.monotonic() + STARVED_S
        try:
            self._pipe.send_bytes(json.dumps(pair).encode())
        except OSError:
            return "crash", False
        while (said := self._said_within(deadline - time.monotonic())) == "gold":
            gold_read = True
        if said is None:
            return "starved", gold_read
        crash = "cpu" if not said and self.process.wait() == -signal.SIGPROF else "crash"
        return _SAID.get(said, crash), gold_read

    def _said_within(self, seconds: float) -> str | None:
        """What it says by then; "" where it has ended, None where it says nothing."""
        try:
            return self._pipe.recv_bytes().decode("ascii", "replace") if self._pipe.poll(max(seconds, 0)) else None
        except (EOFError, OSError):
            return ""

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._pipe.close()


class MathWorkers:
    """A pool of worker processes, which end with this one.

    Args:
        processes: how many judge at once; None is one a core, at most 8.
        memory: address space of each process, in bytes.

    Raises:
        ConfigError: math-verify is not installed.
    """

    def __init__(self, processes: int | None = None, *, memory: int = MEMORY) -> None:
        if find_spec("math_verify") is None or find_spec("antlr4") is None:
            raise ConfigError('grader math: math-verify is not installed; pip install "openconductor[grade]"')
        self.processes = processes or min(os.cpu_count() or 1, 8)
        self.memory = memory
        self._open()
        atexit.register(self.close)

    def _open(self) -> None:
        self._pid = os.getpid()
        self._threads = ThreadPoolExecutor(self.processes, thread_name_prefix="math-worker")
        self._lock = threading.Lock()
        self._idle: list[MathProcess] = []
        self._all: set[MathProcess] = set()
        self._closed = False

    async def judge(self, gold: str, answers: Sequence[str], tolerance: float | None) -> tuple[Verdict, bool]:
        """The verdict on one pair, and whether the gold had been read by then; callable from any event loop.

        Args:
            gold: the reference, normalised.
            answers: the items of the answer, normalised.
            tolerance: the largest error, relative to the gold's numbers; None is exact.

        Raises:
            GradingError: no process could be started, or the pool is closed.
        """
        if self._pid != os.getpid():  # a forked child: the processes and threads are its parent's
            self._open()
        pair = {"gold": gold, "answers": list(answers), "tolerance": tolerance}
        try:
            future = self._threads.submit(self._judge, pair)
        except RuntimeError as error:
            raise GradingError(f"math workers: {error}; expected an open pool") from error
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End all processes; who waits for a verdict still gets a GradingError."""
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            for process in self._all:
                process.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.kill()
        self._all.clear()
        self._idle.clear()

    def _judge(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        try:
            verdict, gold_read = self._judge_once({**pair, "cpu_s": FIRST_CPU_S})
        except GradingError:  # killed while it started, perhaps
            return self._judge_once({**pair, "cpu_s": CPU_S})
        return (verdict, gold_read) if verdict in get_args(Said) else self._judge_once({**pair, "cpu_s": CPU_S})

    def _judge_once(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        process = self._take()
        healthy = False
        try:
            verdict, gold_read = process.judge(pair)
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
            if not self._closed:
                self._all.discard(process)
        process.kill()

    def _started(self) -> MathProcess:
        if self._closed:
            raise GradingError("math workers: the pool is closed, expected an open one")
        process = MathProcess(self.memory)
        self._all.add(process)
        return process


@cache
def shared_workers() -> MathWorkers:
    """The pool that all graders of this process share.

    Raises:
        ConfigError: math-verify is not installed.
    """
    return MathWorkers()
