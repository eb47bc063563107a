"""The journal: every episode, round, step and call of what is paid for, in one SQLite file, written as it happens.

In: the events of ``ask`` and ``execute``: a Journal is an ``on_event`` sink. Out: a file that survives ``kill -9`` and
a full disk, can be read while it is written, and answers for what was paid for already (``find_completion``).

The sink only puts events into a queue. One thread writes: it takes all that is there, turns it into rows, commits them
in one transaction, and wakes who waited: many episodes share one wait for the disk. *Acknowledged*, and safe from then
on, is what was handed over before ``wait_durable`` (or ``flush``, or ``close``) returned; ``ask`` awaits that before it
returns, steps do not. After an error of the disk nothing more is written: whoever uses the journal from then on gets a
JournalError, and what was acknowledged before stands in the file.

Not covered: what is done with a completion found again (``providers.replay``), and StepStarted and StepText, which are
not written. SQLite comes with Python, so nothing is pulled in; its own command line and DuckDB read the file, too.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from openconductor.errors import ConfigError, JournalError
from openconductor.events import Answered, Asked, CallEnded, Event, Planned, RoundEnded, StepEnded
from openconductor.journal.privacy import Privacy
from openconductor.journal.reading import (
    JournaledCall,
    JournaledEpisode,
    JournaledOutcome,
    JournalReader,
    Spending,
    Totals,
)
from openconductor.journal.rows import Rows
from openconductor.journal.schema import explanation, lock, next_text, open_for_writing
from openconductor.journal.text import CallPath, key_of, request_hash
from openconductor.journal.writing import BatchWriter, Begun, CallRecord, Item, Kept, Recent
from openconductor.protocols import CallContext
from openconductor.types import Completion, Message, Sampling

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
_OPEN_EPISODES = 65_536  # whose sample and path are remembered; the calls of one that is still older get no key
_WRITTEN = (Planned, StepEnded, RoundEnded)


def call_key(worker: str, identity: str, messages: Sequence[Message], sampling: Sampling, call: CallContext) -> str:
    """Name a call by what is asked of whom, and by where in which sample it stands: 32 hexadecimal digits.

    Neither the attempt nor the episode's id counts: the same question asked again, by another process, makes the same
    calls. Sixty-four samples of one question make sixty-four different ones.

    Args:
        worker: the worker's name.
        identity: what stands behind that name.
        messages: the turns.
        sampling: how it is to sample, ``body`` included.
        call: its round, step, sample and path count.
    """
    asked = request_hash(messages, sampling)
    return key_of(asked, worker, identity, sample=call.sample, round=call.round, step=call.step, path=call.path)


class Journal(JournalReader):
    """Writes what happens into one file; an ``on_event`` sink and a context manager. One writer a file at a time.

    Reading it (``episodes``, ``calls``, ``totals``, ``export_parquet``) sees what is on the disk.

    Args:
        path: the file; made where it is not there, brought to today's version where it is older.
        content: ``"none"`` keeps questions, messages, subtasks, responses, answers and error messages out of it;
            hashes, numbers and names stay, and no completion can be found again.
        redact: changes each text before it is written, on a thread of the journal's own or on the caller's. A response
            that it changed is not found again: what came is not there, and something else is not what came.

    Raises:
        ConfigError: ``content`` is neither.
        JournalError: the file cannot be written, is no journal, is a later version's, or has another writer.
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
        self._lock = lock(path)
        try:
            connection = open_for_writing(path)
            try:
                rows = Rows(Privacy(redact), content=content == "full", first_text=next_text(connection))
                super().__init__(path)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            self._lock.close()
            raise
        self._closed = False
        self._keeps = content == "full"
        self._places: dict[str, tuple[int, CallPath]] = {}
        self._recent = Recent(rows)
        self._writer = _Writer(path, connection, rows, self._recent)

    @classmethod
    def reading(cls, path: str | Path) -> JournalReader:
        """Open a journal only to read it; its writer may go on meanwhile.

        Raises:
            JournalError: it cannot be opened, is no journal, or is of another version.
        """
        return JournalReader(path)

    def __call__(self, event: Event) -> None:
        """Take in an event; returns at once.

        Raises:
            JournalError: the journal has failed, or is closed.
        """
        kind = type(event)
        if kind is CallEnded:
            assert isinstance(event, CallEnded)
            record = CallRecord(event, self._places.get(event.episode))
            if self._keeps:
                self._recent.add(record)
            self._writer.put(record)
        elif isinstance(event, _WRITTEN):
            self._writer.put(event)
        elif isinstance(event, Asked):
            if len(self._places) >= _OPEN_EPISODES:
                self._places.pop(next(iter(self._places)), None)
            self._places[event.episode] = (event.sample, event.path)
            self._writer.put(Begun(event, time.time()))
        elif isinstance(event, Answered):
            self._places.pop(event.episode, None)
            self._writer.put(event)

    def put_outcome(self, key: str, record: Mapping[str, object]) -> None:
        """Keep what became of a question; returns at once, and is durable as any event is (``wait_durable``).

        Args:
            key: which question, asked of whom, and which time; where it was there before, the later record counts and
                the earlier stays (``outcomes(history=True)``).
            record: plain values, as JSON has them; cleaned of secrets, and redacted, as everything here.

        Raises:
            JournalError: the journal has failed, or is closed, or keeps no content.
        """
        if not self._keeps:
            raise JournalError(f"journal {self.path}: keeps no content, and an outcome is nothing else")
        self._writer.put(Kept(key, time.time(), record))

    async def wait_durable(self) -> None:
        """Wait until everything that was handed over before is on the disk.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[_Told] = loop.create_future()
        self._writer.wait((loop, waiter))
        end = await waiter
        if end is not None:
            raise end.error()

    def flush(self) -> None:
        """As ``wait_durable``, blocking: for callers without an event loop.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        waiter: Future[_Told] = Future()
        self._writer.wait(waiter)
        end = waiter.result()
        if end is not None:
            raise end.error()

    def close(self) -> None:
        """Write what is left, and let go of the file; once is enough.

        Raises:
            JournalError: the journal had failed, or fails now.
        """
        if self._closed:
            return
        self._closed = True
        super().close()  # first: the last to leave moves the log into the file, and that must be the writer
        try:
            self._writer.close()
        finally:
            self._lock.close()

    def find_completion(self, key: str) -> Completion | None:
        """The completion of a call of this key that succeeded, also where it is not on the disk yet; or None.

        A response that redaction changed, or that is not kept, is none.
        """
        if not self._keeps:
            return None
        return self._recent.find(key) or super().find_completion(key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except JournalError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # what went wrong first is what is told


@dataclass(frozen=True, slots=True)
class _End:
    """Why nothing is written any more; ``cause`` is None where the journal was closed in good order."""

    message: str
    cause: BaseException | None = None

    def error(self) -> JournalError:
        error = JournalError(self.message)  # a new one for each who is told: it may carry an episode
        error.__cause__ = self.cause
        return error


_Told = _End | None
_Waiter = Future[_Told] | tuple[asyncio.AbstractEventLoop, asyncio.Future[_Told]]


class _Writer:
    """The thread that writes, and the queue to it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, rows: Rows, recent: Recent) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[Item | _Waiter | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._end: _End | None = None
        self._waiting: list[_Waiter] = []
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run, args=(connection, rows, recent), name="openconductor-journal", daemon=True
        )
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over something to write."""
        if self._end is not None:
            raise self._end.error()
        self._queue.put(item)

    def wait(self, waiter: _Waiter) -> None:
        """Have the waiter woken when what was handed over before is on the disk, or never will be."""
        if self._process != os.getpid():
            raise JournalError(f"journal {self._path}: opened by process {self._process}, of which this one is a copy")
        with self._gate:  # so that none comes in after the last were told of the end
            if self._end is not None:
                raise self._end.error()
            self._queue.put(waiter)

    def close(self) -> None:
        """End the thread when all is written."""
        if self._process == os.getpid():
            self._queue.put(None)
            self._thread.join()
        if self._end is not None and self._end.cause is not None:
            raise self._end.error()

    def _run(self, connection: sqlite3.Connection, rows: Rows, recent: Recent) -> None:
        end = _End(f"journal {self._path}: is closed")
        try:
            writer = BatchWriter(connection, rows, recent)
            while self._write_next(writer):
                pass
        except (sqlite3.Error, OSError) as error:
            why = f"could not be written: {explanation(error)}; what was acknowledged before stands in it"
            end = _End(f"journal {self._path}: {why}", error)
        except JournalError as error:
            end = _End(f"journal {self._path}: {error}", error)
        except BaseException as error:  # a fault of ours, or an event that no orchestrator sends
            end = _End(f"journal {self._path}: the writer ended in {explanation(error)}", error)
            raise
        finally:  # whatever ended it, nobody waits for ever
            connection.close()
            with self._gate:
                self._end = end
                while not self._queue.empty():
                    item = self._queue.get()
                    if isinstance(item, Future | tuple):
                        self._waiting.append(item)
            _wake(self._waiting, end)

    def _write_next(self, writer: BatchWriter) -> bool:
        """Write all that is there, at most a batch; returns whether to go on."""
        batch: list[Item] = []
        item = self._queue.get()
        while item is not None:
            if isinstance(item, Future | tuple):
                self._waiting.append(item)
            else:
                batch.append(item)
            if len(batch) >= _BATCH:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        if batch:
            writer.write(batch)
        waiting, self._waiting = self._waiting, []
        _wake(waiting, None)
        return item is not None


def _wake(waiters: Sequence[_Waiter], end: _Told) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[_Told]]] = {}
    for waiter in waiters:
        if isinstance(waiter, tuple):
            loops.setdefault(waiter[0], []).append(waiter[1])
        else:
            waiter.set_result(end)
    for loop, futures in loops.items():  # one wake-up a loop: each costs it a turn
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_tell, futures, end)


def _tell(futures: Sequence[asyncio.Future[_Told]], end: _Told) -> None:
    for future in futures:
        if not future.done():  # cancelled
            future.set_result(end)
