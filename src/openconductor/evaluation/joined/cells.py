"""Cells of an evaluation that several processes share: each is asked by one of them.

A cell is claimed in the store when it is about to be asked, in batches of as many as can be asked
at once, and a few more. It is done when its record is in the store. The claims of a process that
was killed or paused end by their lease; another process then asks its cells, and calls whose
answers are in the store are not made again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Generic, Self, TypeVar

from openconductor.errors import JournalError
from openconductor.store import ClaimedRecords, RecordClaims

T = TypeVar("T")

_LEAST = 128  # keys that a statement looks at
_POLL_S = 0.25  # between two looks at cells of other processes
_PATIENCE_S = 60.0  # for a database that does not answer


class JoinedCells(Generic[T]):
    """The cells that this process may ask, one after the other, until all of them are done.

    Drawing a cell waits while all that are left belong to other processes. Several tasks may draw.

    Args:
        store: holds claims and records.
        cells: those whose records were not in the store, by the key of the record, in order.
        spare: how many more are claimed at a time than can be asked at once.
        on_kept: gets the number of cells that other processes have done.
    """

    def __init__(
        self,
        store: RecordClaims,
        cells: Mapping[str, T],
        on_kept: Callable[[int], None],
        *,
        spare: int = 0,
    ) -> None:
        self._store = store
        self._cells = cells
        self._on_kept = on_kept
        self._spare = spare
        self._fresh = dict.fromkeys(cells)  # not looked at since the last pause
        self._held: dict[str, None] = {}  # by other processes
        self._claimed: deque[str] = deque()
        self._hungry = 0  # tasks that wait for a cell
        self._drawing = asyncio.Lock()
        self._unconfirmed: dict[str, None] = {}
        self._confirmed: set[str] = set()
        self._confirming = asyncio.Lock()
        self._is_stopped = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return a cell that this process has claimed.

        Raises:
            JournalError: the store failed.
        """
        self._hungry += 1
        try:
            async with self._drawing:
                while not self._claimed and not self._is_stopped:
                    if not self._fresh and not self._held:
                        raise StopAsyncIteration
                    await self._claim_more()
                if self._is_stopped:
                    raise StopAsyncIteration
                return self._cells[self._claimed.popleft()]
        finally:
            self._hungry -= 1

    def stop(self) -> None:
        """Let no further cell be drawn: this process can ask none.

        What it has claimed and not asked is free when it closes the store.
        """
        self._is_stopped = True

    async def confirm(self, key: str) -> bool:
        """Return True if this process still has a cell, and so may keep its record.

        It has lost the cell if it was not heard of for the time of a lease.

        Raises:
            JournalError: the store failed.
        """
        self._unconfirmed[key] = None
        async with self._confirming:
            if key in self._unconfirmed:  # else another task has asked for it
                keys = list(self._unconfirmed)
                self._unconfirmed.clear()
                answer = await self._ask_store(keys, len(keys))
                self._confirmed.update(answer.claimed)
        if key in self._confirmed:
            self._confirmed.remove(key)
            return True
        self._held[key] = None
        return False

    async def _claim_more(self) -> None:
        """Claim a cell for each task that waits, as far as there are free ones."""
        if not self._fresh:
            await asyncio.sleep(_POLL_S)
            self._fresh, self._held = self._held, {}
        wanted = self._hungry + self._spare
        window = list(islice(self._fresh, max(_LEAST, 2 * wanted)))
        answer = await self._ask_store(window, wanted)
        self._claimed.extend(answer.claimed)
        gone = {*answer.claimed, *answer.kept}
        for key in gone:
            del self._fresh[key]
        if answer.kept:
            self._on_kept(len(answer.kept))
        if len(answer.claimed) < wanted:  # the others of the window are held
            for key in window:
                if key not in gone:
                    del self._fresh[key]
                    self._held[key] = None

    async def _ask_store(self, keys: Sequence[str], limit: int) -> ClaimedRecords:
        """Claim cells; wait for a database that was restarted."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return await asyncio.to_thread(self._store.claim_records, keys, limit)
            except JournalError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(_POLL_S)
