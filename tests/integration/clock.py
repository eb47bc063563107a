"""The clock of the running event loop, which a test sets forward."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from faults.server import FaultServer

SILENT = {"hang", "hang_midway", "drip_head", "drip_text", "drip_nothing"}
"""The faults that only a deadline ends."""
_TURNS = 200  # of the loop, in which whoever is not silent is heard of


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
    while True:
        await asyncio.sleep(0.05)
        if await _stays_silent(server):
            skip(seconds)


async def _stays_silent(server: FaultServer) -> bool:
    """Return True if nothing is under way but silence, neither here nor at the clients.

    The server and its clients share this loop. A client that has not read an answer yet, or whose
    request has not come yet, gets the turns of the loop that it needs; a jump of the clock before
    would break off a call whose answer was sent.
    """
    silent = server.busy
    requests = len(server.records)
    for _ in range(_TURNS):
        if not silent or silent != server.busy or requests != len(server.records):
            return False
        await asyncio.sleep(0)
    return SILENT.issuperset(record.fate for record in silent)
