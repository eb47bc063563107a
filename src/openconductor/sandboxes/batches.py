"""What the backends share: batches of runs in threads, not many more at a time than there are cores.

In: a backend's ``launching`` (a context that yields a Launch). Out: ``run_batch`` for the event loop and ``run_now``
for everybody else. Many more sandboxes than cores would only share the cores.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager

from openconductor.errors import SandboxError
from openconductor.sandboxes.session import Launch, Session
from openconductor.sandboxes.values import Limits, Run, RunResult

GoOn = Callable[[RunResult], bool]


class Batch:
    """One program and its runs: a sandbox for all of them, and a new one where a run has left something behind."""

    def __init__(self, sandbox: BatchedSandbox, program: str, runs: Sequence[Run], limits: Limits) -> None:
        self._sandbox = sandbox
        self._program = program
        self._runs = list(runs)
        self._limits = limits
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._cancelled = False

    def run(self, go_on: GoOn | None) -> list[RunResult]:
        """Make the runs, in this thread.

        Raises:
            SandboxError: the sandbox could not be set up, failed, or was cancelled.
        """
        results: list[RunResult] = []
        while len(results) < len(self._runs):
            with (
                self._sandbox.launching(self._limits) as launch,
                self._entered(Session(launch, self._program, self._limits)).started() as session,
            ):
                for result in session.results(self._runs[len(results) :]):
                    results.append(result)
                    if go_on is not None and not go_on(result):
                        return results
        return results

    def cancel(self) -> None:
        """End it, from any thread."""
        with self._lock:
            self._cancelled = True
            if self._session is not None:
                self._session.cancel()

    def _entered(self, session: Session) -> Session:
        with self._lock:
            if self._cancelled:
                raise SandboxError(f"{self._sandbox.level} sandbox: was cancelled")
            self._session = session
        return session


class BatchedSandbox(ABC):
    """A backend: it says how a sandbox is launched; the rest is here.

    Args:
        concurrency: sandboxes at one time; None: half as many again as this process may use cores, for starting and
            ending one is in part waiting for the kernel.
    """

    level: str

    def __init__(self, *, concurrency: int | None = None) -> None:
        self._concurrency = concurrency or cores() + (cores() + 1) // 2
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def launching(self, limits: Limits) -> AbstractContextManager[Launch]:
        """How to start one sandbox; what it needs is released at the end of the context."""

    def run_now(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """``run_batch``, blocking, in the caller's thread and beyond ``concurrency``."""
        return Batch(self, program, runs, limits).run(go_on)

    async def run_batch(
        self, program: str, runs: Sequence[Run], *, limits: Limits, go_on: GoOn | None = None
    ) -> list[RunResult]:
        """See ``Sandbox.run_batch``. A cancelled caller is let go once its sandbox has ended."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"sandbox-{self.level}")
        batch = Batch(self, program, runs, limits)
        future = self._threads.submit(batch.run, go_on)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            batch.cancel()
            if not future.cancel():
                await asyncio.to_thread(_wait, future)
            raise

    async def aclose(self) -> None:
        """Wait for what still runs (each run is bounded) and release the threads."""
        if self._threads is not None:
            threads, self._threads = self._threads, None
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _wait(future: Future[list[RunResult]]) -> None:
    """Until a future is done, whatever came of it."""
    wait((future,))
