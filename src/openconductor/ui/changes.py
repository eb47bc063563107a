"""Streams that tell an open page when to load itself again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openconductor.errors import ConfigError, JournalError
from openconductor.ui.door import Visitor
from openconductor.ui.replies import PageProblem

_STREAM_S = 600.0  # a stream of changes ends then, and the browser opens another one
_MOST_STREAMS = 200  # of a key

log = logging.getLogger("openconductor.ui")


class PageState(NamedTuple):
    """The state of what a page shows.

    Attributes:
        version: changes with it.
        ended: True if it will not change again.
    """

    version: str
    ended: bool = False


class Changes:
    """The streams of all open pages.

    Args:
        stopping: returns True when streams are to end, because the server shuts down.
    """

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._open = Counter[Visitor]()

    def stream(
        self, request: Request, visitor: Visitor, look: Callable[[], PageState], poll_s: float
    ) -> Response:
        """Answer with the changes since the version that the request has ``seen``.

        Args:
            request: the page's.
            visitor: looks at the page.
            look: reads the state, in a thread.
            poll_s: seconds between two readings.
        """
        if self._open[visitor] >= _MOST_STREAMS:
            raise PageProblem(503, "Too many pages are open; reload this one to see changes.")
        changes = self._tell(visitor, look, poll_s, request.query_params.get("seen", ""))
        return StreamingResponse(changes, media_type="text/event-stream")

    async def _tell(
        self, visitor: Visitor, look: Callable[[], PageState], poll_s: float, seen: str
    ) -> AsyncIterator[str]:
        ends = time.monotonic() + _STREAM_S
        self._open[visitor] += 1
        try:
            yield ": a message is a change of the page\n\n"
            while time.monotonic() < ends and not self._stopping():
                state = await asyncio.to_thread(look)
                if state.version != seen:
                    seen = state.version
                    yield f"data: {seen}\n\n"
                if state.ended:
                    yield "event: end\ndata: end\n\n"
                    return
                await asyncio.sleep(poll_s)
        except (PageProblem, ConfigError, JournalError) as error:  # the answer has begun: it ends
            log.warning("a page is told of no more changes: %s", error)
        finally:
            self._open[visitor] -= 1


def version_of(shown: object) -> str:
    """Return what changes with what is shown."""
    return sha256(repr(shown).encode("utf-8", "replace")).hexdigest()[:16]
