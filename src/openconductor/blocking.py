"""Asynchronous code for callers without ``await``. In: what makes a coroutine. Out: its result.

It runs in an event loop of its own: here, or, where a loop already runs here (a notebook), in a thread beside it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(ask: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a coroutine to its end, in a loop of its own: here, or in a thread where a loop already runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    cancel: list[Callable[[], object]] = []

    async def cancellable() -> T:
        task = asyncio.current_task()
        if task is not None:
            cancel.append(partial(_cancel, asyncio.get_running_loop(), task))
        return await ask()

    with ThreadPoolExecutor(1, thread_name_prefix="openconductor-ask") as thread:
        future = thread.submit(contextvars.copy_context().run, asyncio.run, cancellable())
        try:
            return future.result()
        except KeyboardInterrupt:
            if cancel and not future.done():
                cancel[0]()  # else leaving the block would wait for the whole episode
            raise


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    loop.call_soon_threadsafe(task.cancel)
