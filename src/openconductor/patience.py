"""Waiting while circuits are open. In: workers of whom any would do, a deadline. Out: whether one may be called again.

A server that is down for half a minute must not fail every question of an evaluation, or mask every rollout of a
training, within one second: where nobody else can be asked, a call that was not sent waits. One that stays down must
not hold up those that ask others, either: what counts is how long it has been down, not how long a call has waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import SystemRandom
from typing import Protocol, runtime_checkable

PATIENCE_S = 120.0
"""Nobody waits for a worker that has been down for longer; between the probes of its circuit its calls fail at once."""

LOOK_S = 0.25
"""After so long, or a part of it, a waiting call looks again whether a circuit has closed."""

_jitter = SystemRandom()  # draws nothing from the generators that results depend on


@runtime_checkable
class Healing(Protocol):
    """What can be waited for: a Worker."""

    @property
    def healthy(self) -> bool:
        """Whether a call would be sent now."""
        ...

    @property
    def down_since(self) -> float | None:
        """The event loop's time at which its circuit opened; None where it is closed."""
        ...


async def until_healthy(workers: Collection[Healing], *, deadline: float | None = None) -> bool:
    """Wait until one of the workers may be called.

    Args:
        workers: any of them would do.
        deadline: the event loop's time at which the question ends; None is no limit.

    Returns:
        Whether one may be called now; False where all have been down for too long, or the deadline has passed.
    """
    now = asyncio.get_running_loop().time
    while not any(worker.healthy for worker in workers):
        left = max((worker.down_since or 0.0) + PATIENCE_S for worker in workers) - now() if workers else 0.0
        if deadline is not None:
            left = min(left, deadline - now())
        if left <= 0:
            return False
        # Not all at once: of those that wait for one circuit the first is its probe, the others wait on.
        await asyncio.sleep(min(left, _jitter.uniform(0.5, 1.0) * LOOK_S))
    return True
