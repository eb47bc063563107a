"""Only a sandbox's own folder is worked in, and only its own processes are ended."""

from __future__ import annotations

import posix
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict, place
from openconductor.sandboxes.place import Place, alone
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, BatchedSandbox, Launch


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "openconductor-scratch"
    folder.mkdir(mode=0o700)
    return folder


class Placed(BatchedSandbox):
    """The supervisor as a plain process, which works wherever a test wants."""

    level = "placed"

    def __init__(self, scratch: Path | str, *, private: bool = False) -> None:
        super().__init__()
        setup = {"scratch": str(scratch), "private": private}
        self._launch = Launch((sys.executable, *PYTHON_FLAGS, "-c", BOOTSTRAP), setup)

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        yield self._launch


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("kind", ["temporary files", "full", "full, of our name"])
def test_a_folder_of_somebody_elses_is_no_place(
    canary: Path, scratch: Path, kind: str, private: bool
) -> None:
    (scratch / "precious").write_text("kept")
    folder = {
        "temporary files": tempfile.gettempdir(),
        "full": canary.parent,
        "full, of our name": scratch,
    }[kind]
    with pytest.raises(SystemExit, match="of its own"):
        Place(str(folder), private=private)
    with pytest.raises(SandboxError, match="of its own"):
        Placed(folder, private=private).run_now("print(1)", [Run()], limits=Limits())
    assert (scratch / "precious").read_text() == "kept"


@pytest.mark.parametrize("change", ["name", "link", "open to others", "gone", "file"])
def test_a_folder_that_was_not_made_for_a_sandbox_is_no_place(
    scratch: Path, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "openconductor-other"
    if change == "name":
        folder = scratch.rename(tmp_path / "other")
    elif change == "link":
        folder.symlink_to(scratch)
    elif change == "open to others":
        scratch.chmod(0o755)
        folder = scratch
    elif change == "file":
        folder.write_text("kept")
    with pytest.raises(SystemExit, match="of its own"):
        Place(str(folder), private=False)


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@pytest.mark.parametrize(
    ("pid", "link", "listing", "wanted"),
    [
        (1, "1", ["1", "meminfo", "self"], True),
        (1, "1", ["1", "2", "self"], False),  # the first process of somebody's container
        (1, "4711", ["1", "4711"], False),  # /proc shows another namespace than this process's
        (7, "7", ["1", "7"], False),
    ],
)
def test_a_place_is_private_only_for_process_1_that_is_alone(
    monkeypatch, pid, link, listing, wanted
) -> None:
    double = SimpleNamespace(**vars(posix))
    double.getpid, double.readlink = lambda: pid, lambda path: link
    double.listdir = lambda path: listing
    monkeypatch.setattr(place, "os", double)
    assert alone() is wanted


def test_an_empty_folder_is_no_private_place_where_it_is_no_mount(scratch, monkeypatch) -> None:
    with pytest.raises(SandboxError, match="expected process 1, alone in a namespace"):
        Placed(scratch, private=True).run_now("print(1)", [Run()], limits=Limits())
    monkeypatch.setattr(place, "alone", lambda: True)
    with pytest.raises(SystemExit, match="of its own"):
        Place(str(scratch), private=True)


@pytest.mark.parametrize(
    ("private", "pid", "first", "wanted"),
    [
        (True, 1, 7, [(-1, 9)]),
        (True, 2, 7, []),
        (False, 1, 7, [(7, 9), (7, 9)]),
        *((False, 5, number, []) for number in (1, 0, -1)),  # cannot be a child's
    ],
)
def test_everybody_is_ended_by_process_1_of_a_private_place_alone(
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    private: bool,
    pid: int,
    first: int,
    wanted: list[tuple[int, int]],
) -> None:
    monkeypatch.setattr(place, "alone", lambda: True)
    monkeypatch.setattr(Place, "_is_mounted", lambda self, folder: True)
    there, sent = Place(str(scratch), private=private), list[tuple[int, ...]]()
    with monkeypatch.context() as patch:
        doubles = SimpleNamespace(
            getpid=lambda: pid, kill=lambda *to: sent.append(to), killpg=lambda *to: sent.append(to)
        )
        patch.setattr(place, "os", doubles)
        there.end_everybody(first)
    assert sent == wanted


@pytest.mark.parametrize(
    "touch", ["a file", "a file that is gone", "its mode", "a link in its place", "nothing"]
)
def test_a_folder_that_a_run_has_touched_is_not_used_again_and_nothing_in_it_is_removed(
    canary, scratch, touch
) -> None:
    there = Place(str(scratch), private=False)
    time.sleep(0.02)  # the kernel's clock of files moves on
    if touch == "its mode":
        scratch.chmod(0o500)
    elif touch == "a link in its place":
        scratch.rename(scratch.with_name("moved"))
        scratch.symlink_to(canary.parent)
    elif touch != "nothing":
        (scratch / "left").write_text("x")
        if touch == "a file that is gone":
            (scratch / "left").unlink()
    assert there.untouched() is (touch == "nothing")
    assert touch != "a file" or (scratch / "left").exists()


def test_a_link_that_a_program_put_in_the_folders_place_is_not_worked_in(
    canary: Path, scratch: Path
) -> None:
    program = f"import os\nos.rmdir({str(scratch)!r})\n"
    program += f"os.symlink({str(canary.parent)!r}, {str(scratch)!r})"
    with pytest.raises(
        SandboxError, match="placed sandbox"
    ):  # the second run's sandbox finds the link and stops
        Placed(scratch).run_now(program, [Run(), Run()], limits=Limits())


def test_what_a_program_leaves_running_in_its_group_is_ended_and_nobody_else(
    canary: Path, scratch: Path
) -> None:
    program = (
        "import os, time\nreader, writer = os.pipe()\nif os.fork() == 0:\n"
        "    os.close(1), os.close(2)\n    os.write(writer, b'x')\n    time.sleep(600)\n"
        "os.read(reader, 1)\nprint(os.getsid(0))"
    )
    (result,) = Placed(scratch).run_now(program, [Run()], limits=Limits())
    assert result.verdict is Verdict.OK
    deadline = time.monotonic() + 60
    while (left := members(int(result.stdout))) and time.monotonic() < deadline:
        continue  # killed, and perhaps not gone yet
    assert left == []


def members(session: int) -> list[str]:
    """Return the processes of a session that have not ended."""
    names: list[str] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            names.append(status.parent.name)
    return names
