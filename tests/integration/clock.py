"""The clock of the running event loop, which a test sets forward."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from faults.server import FaultServer, Record

SILENT = {"hang", "hang_midway", "drip_head", "drip_text", "drip_nothing"}
"""The faults that only a deadline ends."""


def skip(seconds: float) -> None:
    """Set the loop's clock forward: each timer that is due by then is due now.

    So a test sees a long deadline pass without waiting for it, and a call that begins afterwards
    has all of its time, however slow the machine is.
    """
    loop = asyncio.get_running_loop()
    read_clock = loop.time
    patch.object(loop, "time", lambda: read_clock() + seconds).start()


async def skip_silence(server: FaultServer, seconds: float) -> None:
    """Skip these seconds whenever all calls under way are silent, until this task is cancelled."""
    before: list[Record] = []
    while True:
        await asyncio.sleep(0.05)  # by then the clients, in this very loop, have read what was sent
        busy = server.busy
        if busy and busy == before and SILENT.issuperset(record.fate for record in busy):
            skip(seconds)
        before = busy
