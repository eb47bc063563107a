"""The store in one SQLite file: everything that is paid for, written as it happens.

The file survives ``kill -9`` and a full disk, and can be read while it is written. The sink only
puts events into a queue. One thread writes: it takes all that is there, turns it into rows, commits
them in one transaction, and wakes whoever waited, so that many episodes share one wait for the
disk. What was handed over before ``wait_durable``, ``flush`` or ``close`` returned is on the disk;
``ask`` awaits that before it returns, steps do not. After an error of the disk nothing more is
written, and every use of the journal raises JournalError.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from openconductor.errors import ConfigError, JournalError
from openconductor.events import Event
from openconductor.privacy import Privacy
from openconductor.store.reader import JournalReader
from openconductor.store.retention import prune_for_ever
from openconductor.store.sqlite_file import explain, lock, open_for_writing
from openconductor.store.store import StoredRecord
from openconductor.store.writer import KEPT, BatchWriter, Item, Removal, Together

_BATCH = 4096  # events in a transaction, at most


class _End(NamedTuple):
    """Why nothing is written any more; ``cause`` is None after an orderly close."""

    reason: str
    cause: BaseException | None


class _Waiter(NamedTuple):
    """Somebody who waits for a commit: in an event loop, or in a blocked thread (loop None)."""

    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[_End | None] | Future[_End | None]


class Journal(JournalReader):
    """A store in one SQLite file; an ``on_event`` sink and a context manager.

    A file has one writer at a time. Reading it returns what is on the disk.

    Args:
        path: the file; a new one is created.
        content: ``"none"`` keeps questions, messages, subtasks, responses, answers and error
            messages out of it. Hashes, numbers and names stay, and no completion can be replayed.
        redact: changes each text before it is written, on the journal's own thread. A response that
            it changed is not replayed, because what came is no longer there.
        keep_days: removes episodes that began longer ago, in the background. None: nothing is
            removed. The space is used again; ``openconductor store prune`` gives it back.

    Raises:
        ConfigError: ``content`` has another value.
        JournalError: the file cannot be written, is not a journal, has a newer version, or has
            another writer.
    """

    wants_text = False

    def __init__(
        self,
        path: str | Path,
        *,
        content: Literal["full", "none"] = "full",
        redact: Callable[[str], str] | None = None,
        keep_days: float | None = None,
    ) -> None:
        if content not in ("full", "none"):
            raise ConfigError(f"Journal.content: got {content!r}, expected 'full' or 'none'")
        path = Path(path)
        with ExitStack() as undone:
            self._lock = undone.enter_context(closing(lock(path)))
            connection = undone.enter_context(closing(open_for_writing(path)))
            super().__init__(path)
            undone.pop_all()
        self.keeps_texts = content == "full"
        self._queue: queue.SimpleQueue[tuple[Item, float] | _Waiter | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._end: _End | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run,
            args=(connection, Privacy(redact), keep_days),
            name="openconductor-journal",
            daemon=True,
        )
        self._thread.start()

    @classmethod
    def reading(cls, path: str | Path) -> JournalReader:
        """Open a journal only to read it; its writer may continue meanwhile.

        Raises:
            JournalError: it cannot be opened, is not a journal, or has a newer version.
        """
        return JournalReader(path)

    def __call__(self, event: Event) -> None:
        """Take in an event; returns at once.

        Raises:
            JournalError: the journal has failed, or is closed.
        """
        if isinstance(event, KEPT):
            self._put(event)

    def put_episode(self, events: Sequence[Event]) -> None:
        """Take in all events of an episode in one commit; returns at once.

        An episode of one step that nobody planned becomes one row, beside those of its calls.

        Raises:
            JournalError: the journal has failed, or is closed.
        """
        self._put(Together(events))

    def put_record(self, key: str, value: Mapping[str, object], *, texts: bool = True) -> None:
        """Keep a value under a key; returns at once, and is durable as events are.

        Args:
            key: names the record. A later record of the same key replaces this one, which stays in
                the file (``records(history=True)``).
            value: JSON's own types; cleaned of secrets, and redacted.
            texts: False: the value holds no content, so it is kept even where content is not.

        Raises:
            JournalError: the journal has failed, is closed, or keeps no content and was given some.
        """
        if texts and not self.keeps_texts:
            raise JournalError(
                f"journal {self.path}: keeps no content, and the record {key!r} holds some"
            )
        self._put(StoredRecord(key, value, time.time()))

    def remove_texts(self, episode: str, *, records: Sequence[str] = ()) -> None:
        """Remove the texts of an episode, and all records of some keys; returns at once.

        Its numbers stay. Messages stay in the file until old episodes are removed from it.

        Raises:
            JournalError: the journal has failed, or is closed.
        """
        self._put(Removal(episode, records))

    async def wait_durable(self) -> None:
        """Wait until everything that was handed over before is on the disk.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_End | None] = loop.create_future()
        self._wait(_Waiter(loop, future))
        self._check(await future)

    def flush(self) -> None:
        """Wait as ``wait_durable`` does, blocking the thread.

        Raises:
            JournalError: that failed, or the journal is closed.
        """
        future: Future[_End | None] = Future()
        self._wait(_Waiter(None, future))
        self._check(future.result())

    def close(self) -> None:
        """Write what is left, and release the file; closing twice is allowed.

        Raises:
            JournalError: the journal had failed, or fails now.
        """
        # The reading connection first: the last to close moves the log into the file, and that
        # must be the writer.
        super().close()
        if self._process == os.getpid() and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._lock.close()
        if self._end is not None and self._end.cause is not None:
            self._check(self._end)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except JournalError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # the first error is the one to raise

    # ── the queue, and the thread that empties it ─────────────────────────────────────────────────
    def _put(self, item: Item) -> None:
        self._check(self._end)
        self._queue.put((item, time.time()))

    def _wait(self, waiter: _Waiter) -> None:
        """Have the waiter woken when all before it is on the disk, or never will be."""
        if self._process != os.getpid():
            raise JournalError(
                f"journal {self.path}: opened by process {self._process}, and used in a fork of it"
            )
        with self._gate:  # so that no waiter arrives after the last ones were woken
            self._check(self._end)
            self._queue.put(waiter)

    def _check(self, end: _End | None) -> None:
        if end is not None:
            # A new error for everybody: each may carry an episode.
            raise JournalError(f"journal {self.path}: {end.reason}") from end.cause

    def _run(
        self, connection: sqlite3.Connection, privacy: Privacy, keep_days: float | None
    ) -> None:
        waiting: list[_Waiter] = []
        end = _End("is closed", None)
        try:
            writer = BatchWriter(connection, privacy, content=self.keeps_texts)
            pruning: Iterator[float] = iter(())
            due: float | None = None
            if keep_days is not None:
                pruning = prune_for_ever(connection, keep_days, writer.forget)
                due = 0.0
            while self._write_next(writer, waiting, due):
                if due is not None and time.monotonic() >= due:
                    due = next(pruning)
        except (sqlite3.Error, OSError) as error:
            reason = f"could not be written: {explain(error)}; what was acknowledged before is kept"
            end = _End(reason, error)
        except JournalError as error:
            end = _End(str(error), error)
        except BaseException as error:  # a bug, or an event that no orchestrator sends
            end = _End(f"the writer ended in {explain(error)}", error)
            raise
        finally:  # whatever ended it, nobody waits for ever
            connection.close()
            with self._gate:
                self._end = end
                while not self._queue.empty():
                    item = self._queue.get()
                    if isinstance(item, _Waiter):
                        waiting.append(item)
            _wake(waiting, end)

    def _write_next(self, writer: BatchWriter, waiting: list[_Waiter], until: float | None) -> bool:
        """Write a batch of the queue, and wake its waiters. Return False at the end.

        It waits for a batch until a time by the monotonic clock.
        """
        batch: list[tuple[Item, float]] = []
        try:
            timeout = None if until is None else max(0.0, until - time.monotonic())
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return True
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
    """Wake all waiters, and clear the list. Each event loop is woken once."""
    for loop in {waiter.loop for waiter in waiters}:
        futures = [waiter.future for waiter in waiters if waiter.loop is loop]
        if loop is None:
            _resolve(futures, end)
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_resolve, futures, end)
    waiters.clear()


def _resolve(
    futures: list[asyncio.Future[_End | None] | Future[_End | None]], end: _End | None
) -> None:
    for future in futures:
        if not future.done():  # cancelled
            future.set_result(end)
