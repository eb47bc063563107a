"""What runs inside refuses to work where it could harm anybody. Every folder here is the test's own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, BatchedSandbox, Launch


class Placed(BatchedSandbox):
    """The supervisor as a plain process, told whatever a test wants it to be told."""

    level = "placed"

    def __init__(self, **setup: object) -> None:
        super().__init__()
        told = {"uid": None, "paths": [], "count_processes": False, "private": False, **setup}
        self._launch = Launch((sys.executable, *PYTHON_FLAGS, "-c", BOOTSTRAP), told)

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        yield self._launch


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file in a folder, a file in the machine's folder of temporary files, and a process; all live on."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with tempfile.NamedTemporaryFile() as temporary, subprocess.Popen(command) as process:
        yield precious
        assert precious.read_text() == "kept"
        assert Path(temporary.name).exists()
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize("private", [True, False])
def test_the_machines_folder_of_temporary_files_is_never_worked_in(canary: Path, private: bool) -> None:
    with pytest.raises(SandboxError, match="of its own"):
        Placed(scratch=tempfile.gettempdir(), private=private).run_now("print(1)", [Run()], limits=Limits())


def test_a_folder_that_holds_something_is_never_worked_in(canary: Path) -> None:
    with pytest.raises(SandboxError, match="with 1 things in it, expected an empty one"):
        Placed(scratch=str(canary.parent)).run_now("print(1)", [Run()], limits=Limits())


def test_where_it_should_be_process_1_nothing_is_run_otherwise(canary: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "openconductor-scratch"
    scratch.mkdir(mode=0o700)
    with pytest.raises(SandboxError, match="expected process 1, alone in a namespace"):
        Placed(scratch=str(scratch), private=True).run_now("print(1)", [Run()], limits=Limits())


def test_a_folder_that_a_program_has_replaced_is_not_emptied(canary: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "openconductor-scratch"
    scratch.mkdir(mode=0o700)
    program = f"import os\nos.rmdir({str(scratch)!r})\nos.symlink({str(tmp_path)!r}, {str(scratch)!r})"
    with pytest.raises(SandboxError, match="placed sandbox"):  # the second run's sandbox finds the link and stops
        Placed(scratch=str(scratch)).run_now(program, [Run(), Run()], limits=Limits())


def test_what_a_program_leaves_running_in_its_group_is_ended_and_nobody_else(canary: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "openconductor-scratch"
    scratch.mkdir(mode=0o700)
    program = (
        "import os, time\nreader, writer = os.pipe()\nif os.fork() == 0:\n"
        "    os.close(1), os.close(2)\n    os.write(writer, b'x')\n    time.sleep(600)\n"
        "os.read(reader, 1)\nprint(os.getsid(0))"
    )
    (result,) = Placed(scratch=str(scratch)).run_now(program, [Run()], limits=Limits())
    assert result.verdict is Verdict.OK
    deadline = time.monotonic() + 20
    while (left := members(int(result.stdout))) and time.monotonic() < deadline:
        continue  # killed, and perhaps not gone yet
    assert left == []


def members(session: int) -> list[str]:
    """The processes of a session that have not ended."""
    found: list[str] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(status.parent.name)
    return found
