"""Math workers: processes that can be killed, for formulas that can be bombs.

``MathWorkers.judge`` takes pairs of formulas from any thread, and returns the verdict of
``math_worker`` or how its process ended.

A pool judges as many pairs at once as it has processes; one more stands by, so that a verdict after
a bomb waits for no start. Only CPU time makes a bomb. The kernel counts it, so that a busy machine
makes none. A process without a verdict is not believed at once: another one, which has been
waiting, tries the pair again. The first try has a part of the CPU time, the second one all of it.

The processes are started by path (``python -P math_worker.py``): not forked from this one, and
without its ``__main__``. They have no environment but their paths, ignore the keyboard, and end
when this process does. They spend no more than their CPU time even if nobody is left to kill them.
A forked child starts its own.
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
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from openconductor.errors import ConfigError, GradingError

Verdict = Literal[
    "equal",
    "different",
    "unread gold",
    "unread answer",
    "error",
    "memory",
    "cpu",
    "crash",
    "starved",
]
"""A verdict, or the end of a worker: out of memory, out of CPU time, a crash, hardly any CPU."""
DECIDED: tuple[Verdict, ...] = ("equal", "different", "unread gold", "unread answer", "error")

FIRST_CPU_S = 0.5
CPU_S = 1.5
STARVED_S = 60.0
START_S = 60.0
MEMORY = 2 << 30

_PROGRAM = Path(__file__).with_name("math_worker.py")
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class MathProcess(subprocess.Popen[bytes]):
    """One worker process, for one thread at a time.

    Raises:
        GradingError: it cannot be started.
    """

    def __init__(self, memory: int) -> None:
        self._pipe, remote = multiprocessing.Pipe()
        self._ready = False
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        with remote:
            # -P: the program's folder, where a math.py lies, stays out of sys.path.
            command = [sys.executable, "-P", str(_PROGRAM), str(remote.fileno()), str(memory)]
            try:
                super().__init__(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                    pass_fds=[remote.fileno()],
                )
            except OSError as error:
                message = f"math worker: cannot start {command[0]}: {error}"
                raise GradingError(message) from error

    def judge(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        """Return the verdict on a pair, and True if the gold had been read by then.

        Raises:
            GradingError: the process did not start.
        """
        if not self._ready and self._receive(START_S) != "ready":
            raise GradingError(f"math worker: {_PROGRAM.name} did not start within {START_S:g} s")
        self._ready = True
        deadline = time.monotonic() + STARVED_S
        with suppress(OSError):  # the process has ended, which the next read shows
            self._pipe.send_bytes(json.dumps(pair).encode())
        gold_read = False
        word = self._receive(STARVED_S)
        while word == "gold":
            gold_read = True
            word = self._receive(deadline - time.monotonic())
        if word is None:
            return "starved", gold_read
        if word == "":
            return "cpu" if self.wait() == -signal.SIGPROF else "crash", gold_read
        return cast("Verdict", word), gold_read

    def _receive(self, seconds: float) -> str | None:
        """Return the next word of the process; "": it has ended, None: it says nothing in time."""
        try:
            if not self._pipe.poll(max(seconds, 0)):
                return None
            return self._pipe.recv_bytes().decode()
        except (EOFError, OSError):
            return ""


class MathWorkers:
    """A pool of worker processes, which end with this one.

    Args:
        processes: the number of pairs judged at once; None: one a core, at most 8.
        memory: address space of each process, in bytes.

    Raises:
        ConfigError: sympy is not installed.
    """

    def __init__(self, processes: int | None = None, *, memory: int = MEMORY) -> None:
        if find_spec("sympy") is None:
            message = 'grader math: sympy is not installed; pip install "openconductor[grade]"'
            raise ConfigError(message)
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

    async def judge(
        self, gold: str, answers: Sequence[str], tolerance: float | None
    ) -> tuple[Verdict, bool]:
        """Return the verdict on one pair, and True if the gold had been read by then.

        Any event loop may call it.

        Args:
            gold: the reference, normalised.
            answers: the items of the answer, normalised.
            tolerance: the largest error, relative to the gold's numbers; None: exact.

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
        """End all processes; pending verdicts become a GradingError."""
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            for process in self._all:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.wait()

    def _judge(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        with suppress(GradingError):  # killed while it started, perhaps
            verdict, gold_read = self._judge_once({**pair, "cpu_s": FIRST_CPU_S})
            if verdict in DECIDED:
                return verdict, gold_read
        return self._judge_once({**pair, "cpu_s": CPU_S})

    def _judge_once(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        process = self._take()
        verdict = None
        try:
            verdict, gold_read = process.judge(pair)
            return verdict, gold_read
        finally:
            with self._lock:
                if verdict in DECIDED:
                    # Last in, first out, because it has parsed golds in its memory.
                    self._idle.append(process)
                else:
                    process.kill()
                    process.wait()
                    self._all.discard(process)

    def _take(self) -> MathProcess:
        """Take an idle process; a second one, the spare, starts while the first one works."""
        with self._lock:
            # Some may have been killed.
            self._idle = [process for process in self._idle if process.poll() is None]
            while len(self._idle) < 2:
                if self._closed:
                    raise GradingError("math workers: the pool is closed, expected an open one")
                process = MathProcess(self.memory)
                self._all.add(process)
                self._idle.insert(0, process)
            return self._idle.pop()


@cache
def shared_workers() -> MathWorkers:
    """Return the pool that all graders of this process share.

    Raises:
        ConfigError: sympy is not installed.
    """
    return MathWorkers()
