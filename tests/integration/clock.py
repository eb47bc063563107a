"""The clock of the running event loop, which a test sets forward."""

from __future__ import annotations

import asyncio


def skip(seconds: float) -> None:
    """Set the loop's clock forward: each timer that is due by then is due now.

    So a test sees a long deadline pass without waiting for it, and a call that begins afterwards
    has all of its time, however slow the machine is.
    """
    loop = asyncio.get_running_loop()
    read_clock = loop.time
    loop.time = lambda: read_clock() + seconds  # type: ignore[method-assign]
