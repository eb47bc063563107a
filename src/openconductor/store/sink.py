"""The half of a store that takes in: a queue, and one thread that writes what is in it.

The sink only puts items into the queue. The thread takes all that is there and hands it to its
writer, which commits it in one transaction; then it wakes whoever waited, so that many episodes
share one wait for the disk. What was handed over before ``wait_durable``, ``flush`` or ``close``
returned is durable; ``ask`` awaits that before it returns, steps do not. After an error of the
writer nothing more is written, and every use of the store raises JournalError.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, Protocol

from openconductor.errors import ConfigError, JournalError
from openconductor.events import Event
from openconductor.store.sqlite.sqlite_file import explain
from openconductor.store.store import StoredRecord
from openconductor.store.writer import KEPT, Item, Removal, Together

_BATCH = 4096  # items in a transaction, at most


class _End(NamedTuple):
    """Why nothing is written any more; ``cause`` is None after an orderly close."""

    reason: str
    cause: BaseException | None


class _Waiter(NamedTuple):
    """Somebody who waits for a commit: in an event loop, or in a blocked thread (loop None)."""

    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[_End | None] | Future[_End | None]


class Writer(Protocol):
    """Writes the items of a store, on the thread of its sink alone."""

    def write(self, batch: Sequence[tuple[Item, float]]) -> None:
        """Commit items, each with its time (seconds since 1970): then they are durable.

        Raises:
            JournalError, sqlite3.Error, OSError: nothing of the batch is committed.
        """
        ...

    def chores(self) -> Iterator[float]:
        """Do a part of what is to be done beside writing; yield when the next part is due.

        Yields:
            A time by the monotonic clock.
        """
        ...

    def close(self) -> None:
        """Release what the writer holds."""
        ...


class QueuedSink:
    """Takes in events and records. It is one base of each store; the other reads.

    Attributes:
        title: what and where the store is, as errors say it.
        keeps_texts: False: no content is kept.
    """

    wants_text = False
    title: str
    keeps_texts: bool

    def _start(self, writer: Writer) -> None:
        """Begin to write, on a thread that owns the writer."""
        self._queue: queue.SimpleQueue[tuple[Item, float] | _Waiter | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._end: _End | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run, args=(writer,), name="openconductor-journal", daemon=True
        )
        self._thread.start()

    def _stop(self) -> None:
        """Write what is left, and end the thread; stopping twice is allowed."""
        if self._process == os.getpid() and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _check_end(self) -> None:
        """Raise JournalError if the writer failed."""
        if self._end is not None and self._end.cause is not None:
            self._check(self._end)

    def __call__(self, event: Event) -> None:
        """Take in an event; returns at once.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        if isinstance(event, KEPT):
            self._put(event)

    def put_episode(self, events: Sequence[Event]) -> None:
        """Take in all events of an episode in one commit; returns at once.

        An episode of one step that nobody planned becomes one row, beside those of its calls.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        self._put(Together(events))

    def put_record(self, key: str, value: Mapping[str, object], *, texts: bool = True) -> None:
        """Keep a value under a key; returns at once, and is durable as events are.

        Args:
            key: names the record. A later record of the same key replaces this one, which stays in
                the store (``records(history=True)``).
            value: JSON's own types; cleaned of secrets, and redacted.
            texts: False: the value holds no content, so it is kept even where content is not.

        Raises:
            JournalError: the store has failed, is closed, or keeps no content and was given some.
        """
        if texts and not self.keeps_texts:
            raise JournalError(f"{self.title}: keeps no content, and the record {key!r} holds some")
        self._put(StoredRecord(key, value, time.time()))

    def remove_texts(self, episode: str, *, records: Sequence[str] = ()) -> None:
        """Remove the texts of an episode, and all records of some keys; returns at once.

        Its numbers stay. Messages stay until old episodes are removed.

        Raises:
            JournalError: the store has failed, or is closed.
        """
        self._put(Removal(episode, records))

    async def wait_durable(self) -> None:
        """Wait until everything that was handed over before is durable.

        Raises:
            JournalError: that failed, or the store is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_End | None] = loop.create_future()
        self._wait(_Waiter(loop, future))
        self._check(await future)

    def flush(self) -> None:
        """Wait as ``wait_durable`` does, blocking the thread.

        Raises:
            JournalError: that failed, or the store is closed.
        """
        future: Future[_End | None] = Future()
        self._wait(_Waiter(None, future))
        self._check(future.result())

    # ── the queue, and the thread that empties it ─────────────────────────────────────────────────
    def _put(self, item: Item) -> None:
        self._check(self._end)
        self._queue.put((item, time.time()))

    def _wait(self, waiter: _Waiter) -> None:
        """Have the waiter woken when all before it is durable, or never will be."""
        if self._process != os.getpid():
            raise JournalError(
                f"{self.title}: opened by process {self._process}, and used in a fork of it"
            )
        with self._gate:  # so that no waiter arrives after the last ones were woken
            self._check(self._end)
            self._queue.put(waiter)

    def _check(self, end: _End | None) -> None:
        if end is not None:
            # A new error for everybody: each may carry an episode.
            raise JournalError(f"{self.title}: {end.reason}") from end.cause

    def _run(self, writer: Writer) -> None:
        waiting: list[_Waiter] = []
        end = _End("is closed", None)
        try:
            chores = writer.chores()
            due = next(chores, None)
            while self._write_next(writer, waiting, due):
                if due is not None and time.monotonic() >= due:
                    due = next(chores)
        except (sqlite3.Error, OSError) as error:
            reason = f"could not be written: {explain(error)}; what was acknowledged before is kept"
            end = _End(reason, error)
        except JournalError as error:
            end = _End(str(error), error)
        except BaseException as error:  # a bug, or an event that no orchestrator sends
            end = _End(f"the writer ended in {explain(error)}", error)
            raise
        finally:  # whatever ended it, nobody waits for ever
            writer.close()
            with self._gate:
                self._end = end
                while not self._queue.empty():
                    item = self._queue.get()
                    if isinstance(item, _Waiter):
                        waiting.append(item)
            _wake(waiting, end)

    def _write_next(self, writer: Writer, waiting: list[_Waiter], until: float | None) -> bool:
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


def check_content(content: str) -> bool:
    """Return True if texts are kept.

    Raises:
        ConfigError: it is neither of the two values.
    """
    if content not in ("full", "none"):
        raise ConfigError(f"Journal.content: got {content!r}, expected 'full' or 'none'")
    return content == "full"


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
