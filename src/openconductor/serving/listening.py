"""The sockets that the server listens at, and the files that it may open.

Each connection is an open file, before any key is checked. ``listen`` raises the limit of open
files, and a ``ListeningSocket`` keeps half of it for the workers' connections and the journal.
"""

from __future__ import annotations

import errno
import logging
import math
import resource
import socket
import time
from contextlib import suppress
from typing import Any

MOST_FILES = 16_384
"""The most files that the server opens, if the system allows so many."""

_BACKLOG = 2048  # connections that wait to be accepted
_PAUSE_S = 0.5  # less than asyncio waits after an accept that failed
_REMIND_S = 60.0
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = logging.getLogger("openconductor.serving")


class OutOfFiles(OSError):
    """No connection can be accepted now. asyncio tries again in a second."""


class ListeningSocket(socket.socket):
    """A listening socket that accepts no connection while half of the files are open.

    Further connections wait in the system's queue, and requests under way keep what they need.

    Attributes:
        files: the files that the process may open.
    """

    files = MOST_FILES
    _paused_until = 0.0
    _reported = -math.inf

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OutOfFiles: too many files are open. A warning says so once a minute.
            BlockingIOError: there is no connection, or that was the case a moment ago.
        """
        now = time.monotonic()
        if now < self._paused_until:  # asyncio asks for more, although it was told to wait
            raise BlockingIOError
        try:
            client, address = super().accept()
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                raise self._pause(now) from error
            raise
        # The system gives a new file the lowest number that is free.
        if client.fileno() >= self.files // 2:
            client.close()
            raise self._pause(now)
        return client, address

    def _pause(self, now: float) -> OutOfFiles:
        self._paused_until = now + _PAUSE_S
        if now >= self._reported + _REMIND_S:
            self._reported = now
            log.warning(
                "too many open files: new connections wait. The limit is %d, and half of it is "
                "kept for requests under way. `ulimit -n` shows the limit of the system",
                self.files,
            )
        # This number of an error makes asyncio wait.
        return OutOfFiles(errno.EMFILE, "too many open files")


def listen(host: str, port: int) -> list[ListeningSocket]:
    """Raise the limit of open files, and listen at all addresses of a host.

    Raises:
        OSError: a port is in use or not allowed, or the host is unknown or another machine's.
    """
    files = _raise_file_limit()
    listeners: list[ListeningSocket] = []
    unavailable: OSError | None = None
    kind = socket.SOCK_STREAM
    addresses = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in addresses:
        try:
            opened = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            unavailable = error  # localhost may name ::1 where there is no IPv6
            continue
        listener = ListeningSocket(fileno=opened.detach())
        listener.files = files
        listeners.append(listener)
    if unavailable is not None and not listeners:
        raise unavailable
    return listeners


def _raise_file_limit() -> int:
    """Raise the soft limit of open files; return how many the server may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, MOST_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):  # macOS allows fewer than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return min(soft, MOST_FILES)
