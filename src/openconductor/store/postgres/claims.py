"""Claims: a call is made by one process at a time, and the others wait for its answer.

A claim is a row by the call's key. It goes when its holder gives it back, in the transaction that
keeps the answer, or when the holder's process counts as dead. One thread of each process asks for
all keys that its event loops want, in batches.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from openconductor.errors import JournalError
from openconductor.store.postgres.database import Database
from openconductor.types import Completion

_POLL_S = 0.1  # between two looks for the answers of other processes
_BATCH = 256  # keys in a statement
_PATIENCE_S = 60.0  # for a database that does not answer

# A row is taken over if its owner counts as dead, or is this process. It asks only for what it does
# not hold, so such a claim was committed, but its reply was lost.
_CLAIM = """INSERT INTO claims (key, owner) SELECT key, ? FROM unnest(?::text[]) AS wanted (key)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner
    WHERE claims.owner = excluded.owner OR NOT EXISTS (
        SELECT FROM processes WHERE id = claims.owner AND until > clock_timestamp())
    RETURNING key"""

Find = Callable[[Sequence[str]], Mapping[str, Completion]]


class _Request(NamedTuple):
    """A call that an event loop wants to make."""

    key: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Completion | None]


class Claims:
    """Claims calls for one process.

    Args:
        database: holds the claims.
        owner: names this process.
        find: returns the completions that are stored, by key.
        release: gives a claim back.
        held: the keys that this process has claimed; the writer takes out what was given back.
    """

    def __init__(
        self,
        database: Database,
        owner: str,
        find: Find,
        release: Callable[[str], None],
        held: set[str],
    ) -> None:
        self._database = database
        self._owner = owner
        self._find = find
        self._release = release
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._end: str | None = None  # why nothing is claimed any more
        self._held = held
        self._waiting: defaultdict[str, deque[_Request]] = defaultdict(deque)
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="openconductor-claims", daemon=True)
        self._thread.start()

    async def claim(self, key: str) -> Completion | None:
        """Return the completion of a call, or None once this caller may make it.

        It waits while somebody else makes the call.

        Raises:
            JournalError: the database failed, or nothing is claimed any more.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion | None] = loop.create_future()
        with self._gate:  # so that no request arrives after the last ones were answered
            if self._end is not None:
                raise JournalError(self._end)
            self._queue.put(_Request(key, loop, future))
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None and future.result() is None:
                self._release(key)  # it was claimed in the moment of the cancellation
            raise

    def close(self) -> None:
        """End the thread; who still waits gets a JournalError. Closing twice is allowed."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    # ── the thread ────────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        end = f"{self._database.title}: is closed"
        try:
            while self._receive():
                self._answer_all()
        except BaseException as error:  # a bug
            end = f"{self._database.title}: no call is claimed any more, after {error!r}"
            raise
        finally:  # whatever ended it, nobody waits for ever
            with self._gate:
                self._end = end
                while not self._queue.empty():
                    request = self._queue.get()
                    if request is not None:
                        self._waiting[request.key].append(request)
            self._fail_all(end)

    def _receive(self) -> bool:
        """Take in what is wanted, after a pause if nothing new is. Return False at the end."""
        timeout = _POLL_S if self._waiting else None
        with suppress(queue.Empty):
            request = self._queue.get(timeout=timeout)
            while request is not None:
                self._waiting[request.key].append(request)
                request = self._queue.get_nowait()
            return False
        return True

    def _answer_all(self) -> None:
        try:
            keys = sorted(self._waiting)
            for start in range(0, len(keys), _BATCH):
                self._answer(keys[start : start + _BATCH])
            self._failing_since = None
        except JournalError as error:
            self._failed(error)

    def _answer(self, keys: Sequence[str]) -> None:
        """Answer the requests for these keys, as far as that is possible now."""
        found = dict(self._find(keys))
        wanted = [key for key in keys if key not in found and key not in self._held]
        claimed = self._claim(wanted)
        if claimed:
            # Between the two statements another process may have kept the answer.
            late = self._find(claimed)
            self._held.update(claimed)
            for key in late:
                self._release(key)
            found.update(late)
        for key, completion in found.items():
            for request in self._waiting.pop(key):
                _resolve(request, completion)
        for key in claimed:
            if key not in found:
                self._hand_over(key)

    def _claim(self, keys: Sequence[str]) -> list[str]:
        """Claim those of these keys that are free, and return them."""
        if not keys:
            return []
        with self._database.explained():
            rows = self._database.fetch(_CLAIM, (self._owner, list(keys)))
        return [row["key"] for row in rows]

    def _hand_over(self, key: str) -> None:
        """Let the first who asked for a claimed key make the call."""
        requests = self._waiting[key]
        request = requests.popleft()
        if not requests:
            del self._waiting[key]

        def allow() -> None:
            if request.future.done():  # cancelled
                self._release(key)
            else:
                request.future.set_result(None)

        try:
            request.loop.call_soon_threadsafe(allow)
        except RuntimeError:  # the loop is closed
            self._release(key)

    def _failed(self, error: JournalError) -> None:
        """Try again for a while, then tell who waits of the error."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > _PATIENCE_S:
            self._fail_all(str(error))

    def _fail_all(self, reason: str) -> None:
        for requests in self._waiting.values():
            for request in requests:
                _resolve(request, JournalError(reason))
        self._waiting.clear()


def _resolve(request: _Request, outcome: Completion | JournalError) -> None:
    """Give an event loop the outcome of its request."""

    def resolve() -> None:
        if request.future.done():  # cancelled
            return
        if isinstance(outcome, JournalError):
            request.future.set_exception(outcome)
        else:
            request.future.set_result(outcome)

    with suppress(RuntimeError):  # the loop is closed
        request.loop.call_soon_threadsafe(resolve)
