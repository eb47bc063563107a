"""A proxy before a PostgreSQL server, whose connections stand still or lose replies.

It listens on a socket of its own; each connection has two threads.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"


class PostgresProxy:
    """Forwards what clients and the server say.

    Args:
        server: the folder of the server's socket.
        folder: gets the proxy's socket.

    Attributes:
        lost_commits: how many commits got no reply.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self.folder = folder
        self.lost_commits = 0
        self._server = server / _SOCKET
        self._commits_to_lose = 0
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        self._listener.listen()
        _start(self._accept)

    def pause(self) -> None:
        """Hold back what is said on all connections, without closing one."""
        self._flows.clear()

    def resume(self) -> None:
        """Forward what was held back, and all that comes."""
        self._flows.set()

    def lose_replies_of_commits(self, count: int) -> None:
        """Forward the next ``count`` commits, and swallow all further replies to their clients."""
        self._commits_to_lose = count

    def close(self) -> None:
        """Accept no more connections; those that are open end with their clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.resume()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(str(self._server))
                except OSError:  # it is not running now
                    client.close()
                    continue
                is_mute = threading.Event()
                _start(self._forward_requests, client, server, is_mute)
                _start(self._forward_replies, server, client, is_mute)

    def _forward_requests(
        self, client: socket.socket, server: socket.socket, is_mute: threading.Event
    ) -> None:
        for request in _received(client):
            self._flows.wait()
            if b"COMMIT" in request and self.lost_commits < self._commits_to_lose:
                self.lost_commits += 1
                is_mute.set()
            with suppress(OSError):  # it was killed, which a mute connection does not tell
                server.sendall(request)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        client.close()

    def _forward_replies(
        self, server: socket.socket, client: socket.socket, is_mute: threading.Event
    ) -> None:
        for reply in _received(server):
            self._flows.wait()
            if not is_mute.is_set():
                with suppress(OSError):
                    client.sendall(reply)
        if not is_mute.is_set():
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        server.close()


@contextmanager
def proxied(url: str) -> Iterator[tuple[PostgresProxy, str]]:
    """Run a proxy before the server of a URL; give it and the URL that leads through it."""
    before, _, after = url.partition("host=")
    server, _, options = after.partition("&")
    with tempfile.TemporaryDirectory(prefix="proxy-") as folder:
        proxy = PostgresProxy(Path(server), Path(folder))
        try:
            yield proxy, f"{before}host={folder}&{options}"
        finally:
            proxy.close()


def _received(connection: socket.socket) -> Iterator[bytes]:
    """Return what comes over a connection until its end."""
    with suppress(OSError):
        while True:
            received = connection.recv(65_536)
            if not received:
                return
            yield received


def _start(work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()
