"""Waiting while circuits are open. In: workers of whom any would do, a deadline. Out: whether one may be called again.

A server that is down for half a minute must not fail every question of an evaluation, or mask every rollout of a
training, within one second: where nobody else can be asked, a call that was not sent waits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection

from openconductor.worker import Worker

PATIENCE_S = 120.0
"""So long a call waits in all, or until the deadline of its question: several probes of a circuit."""

LOOK_S = 0.25
"""After so long, or a part of it, it looks again whether a circuit has closed."""


class Patience:
    """What one call has left of its time to wait; it begins to run with the first wait.

    Args:
        deadline: the event loop's time at which the question ends; None is no limit.
    """

    __slots__ = ("_deadline", "_end")

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._end: float | None = None

    async def wait(self, workers: Collection[Worker]) -> bool:
        """Wait until one of the workers may be called; returns False where the time was over first."""
        now = asyncio.get_running_loop().time
        if self._end is None:
            self._end = now() + PATIENCE_S
            if self._deadline is not None:
                self._end = min(self._end, self._deadline)
        while not any(worker.healthy for worker in workers):
            left = self._end - now()
            if left <= 0:
                return False
            # Not all at once: of those that wait for one circuit the first is its probe, the others wait on.
            await asyncio.sleep(min(left, random.uniform(0.5, 1.0) * LOOK_S))
        return now() < self._end
