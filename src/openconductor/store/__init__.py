"""The journal: every episode, round, step and call of what is paid for, in one SQLite file, written as it happens.

In: the events of ``ask`` and ``execute``: a Journal is an ``on_event`` sink. Out: a file that
survives ``kill -9`` and a full disk, can be read while it is written, and answers for what was paid
for already (``find_completion``).

The sink only puts events into a queue. One thread writes: it takes all that is there, turns it into
rows, commits them in one transaction, and wakes who waited: many episodes share one wait for the
disk. *Acknowledged*, and safe from then on, is what was handed over before ``wait_durable`` (or
``flush``, or ``close``) returned; ``ask`` awaits that before it returns, steps do not. After an
error of the disk nothing more is written: whoever uses the journal from then on gets a
JournalError, and what was acknowledged before is in the file.

Not covered: what is done with a completion found again (``providers.replay``).
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from openconductor.errors import ConfigError, JournalError
from openconductor.events import Answered, Asked, CallEnded, Event, RoundEnded, StepEnded
from openconductor.privacy import Privacy
from openconductor.store.file import explanation, lock, open_for_writing
from openconductor.store.keys import call_key
from openconductor.store.reading import (
    JournaledCall,
    JournaledEpisode,
    JournaledOutcome,
    JournalReader,
    Spending,
    Totals,
)
from openconductor.store.rows import BatchWriter, Item

__all__ = [
    "Journal",
    "JournalReader",
    "JournaledCall",
    "JournaledEpisode",
    "JournaledOutcome",
    "Spending",
    "Totals",
    "call_key",
]

_BATCH = 4096  # events a transaction, at most
_End = tuple[str, BaseException | None]
"""Why nothing is written any more, and what caused it: nothing where the journal was closed in good order."""


class _Waiter(NamedTuple):
    """Who waits for a commit, in an event loop or in a thread that is blocked meanwhile (None)."""

    loop: asyncio.AbstractEventLoop | None
    told: asyncio.Future[_End | None] | Future[_End | None]


class Journal(JournalReader):
    """Writes what happens into one file; an ``on_event`` sink and a context manager. One writer a file at a time.

    Reading it (``episodes``, ``calls``, ``totals``, ``find_completion``) sees what is on the disk.

    Args:
        path: the file; made where it is not there.
        content: ``"none"`` keeps questions, messages, subtasks, responses, answers and error
            messages out of it; hashes, numbers and names stay, and no completion can be found
            again.
        redact: changes each text before it is written, on a thread of the journal's own. A response
            that it changed is not found again: what came is not there, and something else is not
            what came.

    Raises:
        ConfigError: ``content`` is neither.
        JournalError: the file cannot be written, is no journal, is of another version, or has
            another writer.
    """

    wants_text = False

    def __init__(
        self,
        path: str | Path,
        *,
        content: Literal["full", "none"] = "full",
        redact: Callable[[str], str] | None = None,
    ) -> None:
        if content not in ("full", "none"):
            raise ConfigError(f"Journal.content: got {content!r}, expected 'full' or 'none'")
        path = Path(path)
        with ExitStack() as undone:
            self._lock = undone.enter_context(closing(lock(path)))
            connection = undone.enter_context(closing(open_for_writing(path)))
            super().__init__(path)
            undone.pop_all()
        self._keeps = content == "full"
        self._queue: queue.SimpleQueue[tuple[Item, float] | _Waiter | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._end: _End | None = None
        self._process = os.getpid()
        arguments = (connection, Privacy(redact))
        self._thread = threading.Thread(
            target=self._run, args=arguments, name="openconductor-journal", daemon=True
        )
        self._thread.start()

    @classmethod
    def reading(cls, path: str | Path) -> JournalReader:
        """Open a journal only to read it; its writer may continue meanwhile.

        Raises:
            JournalError: it cannot be opened, is no journal, or is of another version.
        """
        return JournalReader(path)

    def __call__(self, event: Event) -> None:
        """Take in an event; returns at once.

        Raises:
            JournalError: the journal has failed, or is closed.
        """
        if isinstance(event, Asked | CallEnded | StepEnded | RoundEnded | Answered):
            self._put(event)

    def put_outcome(self, key: str, record: Mapping[str, object], *, texts: bool = True) -> None:
        """Keep what became of a question; returns at once, and is durable as any event is (``wait_durable``).

        Args:
            key: which question, asked of whom, and which time; where it was there before, the later
                record counts and the earlier stays (``outcomes(history=True)``).
            record: plain values, as JSON has them; cleaned of secrets, and redacted, as everything
                here.
            texts: whether questions, answers and the like are among them; else it is written where
                no content is kept.

        Raises:
            JournalError: the journal has failed, or is closed, or keeps no content and was handed
                some.
        """
        if texts and not self._keeps:
            raise JournalError(
                f"journal {self.path}: keeps no content, and this outcome holds some"
            )
        self._put(JournaledOutcome(key, record, time.time()))

    async def wait_durable(self) -> None:
        """Wait until everything that was handed over before is on the disk.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[_End | None] = loop.create_future()
        self._wait(_Waiter(loop, told))
        self._check(await told)

    def flush(self) -> None:
        """As ``wait_durable``, blocking: for callers without an event loop.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        told: Future[_End | None] = Future()
        self._wait(_Waiter(None, told))
        self._check(told.result())

    def close(self) -> None:
        """Write what is left, and let go of the file; once is enough.

        Raises:
            JournalError: the journal had failed, or fails now.
        """
        super().close()  # first: the last to leave moves the log into the file, and that must be the writer
        if self._process == os.getpid() and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._lock.close()
        if self._end is not None and self._end[1] is not None:
            self._check(self._end)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except JournalError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # what went wrong first is what is told

    # ── the queue and the thread that empties it ──────────────────────────────────────────────────
    def _put(self, item: Item) -> None:
        self._check(self._end)
        self._queue.put((item, time.time()))

    def _wait(self, waiter: _Waiter) -> None:
        """Have the waiter woken when what was handed over before is on the disk, or never will be."""
        if self._process != os.getpid():
            raise JournalError(
                f"journal {self.path}: opened by process {self._process}, of which this one is a copy"
            )
        with self._gate:  # so that none comes in after the last were told about the end
            self._check(self._end)
            self._queue.put(waiter)

    def _check(self, end: _End | None) -> None:
        if end is not None:
            # A new error for each who is told: it may carry an episode.
            raise JournalError(f"journal {self.path}: {end[0]}") from end[1]

    def _run(self, connection: sqlite3.Connection, privacy: Privacy) -> None:
        waiting: list[_Waiter] = []
        end: _End = "is closed", None
        try:
            writer = BatchWriter(connection, privacy, content=self._keeps)
            while self._write_next(writer, waiting):
                pass
        except (sqlite3.Error, OSError) as error:
            end = (
                f"could not be written: {explanation(error)}; what was acknowledged before is in it",
                error,
            )
        except JournalError as error:
            end = str(error), error
        except BaseException as error:  # a fault of ours, or an event that no orchestrator sends
            end = f"the writer ended in {explanation(error)}", error
            raise
        finally:  # whatever ended it, nobody waits for ever
            connection.close()
            with self._gate:
                self._end = end
                while not self._queue.empty():
                    if isinstance(item := self._queue.get(), _Waiter):
                        waiting.append(item)
            _wake(waiting, end)

    def _write_next(self, writer: BatchWriter, waiting: list[_Waiter]) -> bool:
        """Write all that is there, at most a batch, and wake who waited for it; returns whether to go on."""
        batch: list[tuple[Item, float]] = []
        item = self._queue.get()
        while item is not None:
            if isinstance(item, _Waiter):
                waiting.append(item)
            else:
                batch.append(item)
            if len(batch) >= _BATCH or self._queue.empty():
                break
            item = self._queue.get()
        if batch:
            writer.write(batch)
        _wake(waiting, None)
        return item is not None


def _wake(waiters: list[_Waiter], end: _End | None) -> None:
    """Tell all who wait, and forget them. One wake-up a loop: each costs it a turn, and this thread the interpreter."""
    for loop in {waiter.loop for waiter in waiters}:
        those = [waiter.told for waiter in waiters if waiter.loop is loop]
        if loop is None:
            _tell(those, end)
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_tell, those, end)
    waiters.clear()


def _tell(those: list[asyncio.Future[_End | None] | Future[_End | None]], end: _End | None) -> None:
    for told in those:
        if not told.done():  # cancelled
            told.set_result(end)
