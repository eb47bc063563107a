"""The server's log: JSON lines on stderr, at level ``info`` one for each request.

``configure_log`` sets it up. The line of a request holds no text and no key of a client: names come
from the config, ids and paths from the server.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openconductor.serving.apis.wire import as_json
from openconductor.serving.serve_config import LogLevel

_PROBES = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})

log = logging.getLogger("openconductor.access")


class _JsonLines(logging.Formatter):
    """Writes a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _line(record.created, record.levelname, fields)


def _line(seconds: float, level: str, fields: Mapping[str, object]) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return as_json({"time": moment, "level": level.lower(), **fields}).decode()


def configure_log(level: LogLevel) -> None:
    """Write the log of this process to stderr, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    others = "ERROR" if level == "error" else "WARNING"  # uvicorn, asyncio
    logging.basicConfig(level=others, handlers=[handler], force=True)
    logging.getLogger("openconductor").setLevel(level.upper())


def log_request(began: float, status: int, **fields: object) -> None:
    """Log a request that has ended; ``began`` is its time on the monotonic clock.

    The line goes to stderr without a record of ``logging``, which would take four times as long.
    """
    if log.isEnabledFor(logging.INFO):
        milliseconds = round(1000 * (time.monotonic() - began), 1)
        line = _line(time.time(), "info", {**fields, "ms": milliseconds, "status": status})
        with suppress(OSError):  # nobody reads the log any more
            sys.stderr.write(f"{line}\n")


class PageLog:
    """Logs requests, but not what an endpoint of an API logs; probes only at ``debug``.

    Args:
        app: answers the requests.
        endpoints: answer and log POST requests, by path. They are called at once, which saves the
            search for their route.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and log it."""
        path = scope["path"]
        if scope["method"] == "POST" and path in self._endpoints:
            await self._endpoints[path](scope, receive, send)
            return
        began = time.monotonic()
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if path not in _PROBES or log.isEnabledFor(logging.DEBUG):
                # The path that the client wrote may hold a secret.
                known = getattr(scope.get("route"), "path_format", "unknown")
                log_request(began, status, method=scope["method"], path=known)
