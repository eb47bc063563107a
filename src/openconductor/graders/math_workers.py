"""Math workers: processes that can be killed, for formulas that can be bombs.

In: pairs of formulas, from any thread. Out: what ``math_worker`` says of each, or how the process
that read it ended.

A pool judges as many pairs at once as it has processes; one more stands by, so that a verdict after
a bomb waits for no start. CPU time alone makes a bomb, counted by the kernel, so that a busy
machine makes none; and a process that did not give a verdict is not believed at once: another one,
which has been waiting, tries the pair again. The first try has a part of the CPU time, the second
one all of it.

The processes are started by path (``python -P math_worker.py``): not forked from this one, not
importing its ``__main__``. They have no environment but their paths, ignore the keyboard, end when
this process does, and spend no more than their CPU time even where nobody is left to kill them. A
forked child starts its own.
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
    "equal", "different", "unread gold", "unread answer", "memory", "cpu", "crash", "starved"
]
"""What a worker says of a pair; or how it ended: out of memory, of CPU time, in a crash, or hardly running."""
DECIDED: tuple[Verdict, ...] = ("equal", "different", "unread gold", "unread answer")

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
        self._pipe, theirs = multiprocessing.Pipe()
        self._ready = False
        with theirs:
            # -P: the program's folder, where a math.py lies, stays out of sys.path.
            command = [sys.executable, "-P", str(_PROGRAM), str(theirs.fileno()), str(memory)]
            try:
                super().__init__(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={
                        name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ
                    },
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                raise GradingError(
                    f"math worker: {error}; expected to start {command[0]}"
                ) from error

    def judge(self, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        """The verdict on a pair, and whether the gold had been read by then.

        Raises:
            GradingError: the process did not start.
        """
        if not self._ready and self._said_within(START_S) != "ready":
            raise GradingError(f"math worker: {_PROGRAM.name} did not start within {START_S:g} s")
        self._ready, gold_read = True, False
        deadline = time.monotonic() + STARVED_S
        with suppress(OSError):  # of one that has ended: nothing will be read, either
            self._pipe.send_bytes(json.dumps(pair).encode())
        while (said := self._said_within(deadline - time.monotonic())) == "gold":
            gold_read = True
        if said == "":
            said = "cpu" if self.wait() == -signal.SIGPROF else "crash"
        return cast("Verdict", said or "starved"), gold_read

    def _said_within(self, seconds: float) -> str | None:
        """What it says by then; "" where it has ended, None where it says nothing."""
        try:
            return self._pipe.recv_bytes().decode() if self._pipe.poll(max(seconds, 0)) else None
        except (EOFError, OSError):
            return ""


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
            raise ConfigError(
                'grader math: math-verify is not installed; pip install "openconductor[grade]"'
            )
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
        with self._lock:
            self._idle = [
                process for process in self._idle if process.poll() is None
            ]  # some may have been killed
            while (
                len(self._idle) < 2
            ):  # the second one is the spare, which starts while the first one works
                self._idle.insert(0, self._started())
            process = self._idle.pop()
        verdict = None
        try:
            verdict, gold_read = process.judge(pair)
            return verdict, gold_read
        finally:
            with self._lock:
                if verdict in DECIDED:
                    self._idle.append(
                        process
                    )  # last in, first out: it has parsed golds in its memory
                else:
                    process.kill()
                    process.wait()
                    self._all.discard(process)

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
