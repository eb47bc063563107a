"""What the unit tests share: an event loop whose clock jumps, so that nothing ever sleeps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Where the loop would wait for its next timer, its clock jumps there instead."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(
                5.0
            )  # a thread's answer; a test that waits for nothing at all fails by its timeout
        self.jumped += max(timeout, 0.0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: an hour of sleep takes no time but by ``loop.time()``."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1000.0 + self._jumping.jumped


@pytest.fixture
def in_virtual_time() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine to its end in a loop whose clock jumps."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(coroutine)

    return run
