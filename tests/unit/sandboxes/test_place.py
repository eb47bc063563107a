"""No folder but a sandbox's own is ever emptied, and no process but its own ended. Canaries say so."""

from __future__ import annotations

import posix
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor.sandboxes import place
from openconductor.sandboxes.place import Place, alone

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file in a folder, a file in the machine's folder of temporary files, and a process; all live on."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with tempfile.NamedTemporaryFile() as temporary, subprocess.Popen(SLEEP, start_new_session=True) as process:
        yield precious
        assert precious.read_text() == "kept"
        assert Path(temporary.name).exists()
        assert process.poll() is None
        process.kill()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "openconductor-scratch"
    folder.mkdir(mode=0o700)
    return folder


def pretended(**changes: object) -> SimpleNamespace:
    """``posix``, with changes; whoever would kill somebody with it fails the test."""

    def never(*arguments: object) -> None:
        raise AssertionError(f"a signal was sent: {arguments}")

    return SimpleNamespace(**{**vars(posix), "kill": never, "killpg": never, **changes})


@pytest.mark.parametrize("private", [True, False])
def test_the_machines_folder_of_temporary_files_is_no_place(canary: Path, private: bool) -> None:
    with pytest.raises(SystemExit, match="of its own"):
        Place(tempfile.gettempdir(), private=private)


@pytest.mark.parametrize("private", [True, False])
def test_a_folder_that_holds_something_is_no_place(canary: Path, private: bool) -> None:
    with pytest.raises(SystemExit, match="of its own"):
        Place(str(canary.parent), private=private)


def test_a_folder_of_our_name_that_holds_something_is_no_place(canary: Path, scratch: Path) -> None:
    (scratch / "precious").write_text("kept")
    with pytest.raises(SystemExit, match="with 1 things in it"):
        Place(str(scratch), private=False)
    assert (scratch / "precious").read_text() == "kept"


@pytest.mark.parametrize("change", ["name", "link", "open to others", "gone", "file"])
def test_a_folder_that_was_not_made_for_a_sandbox_is_no_place(scratch: Path, tmp_path: Path, change: str) -> None:
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
def test_a_place_is_private_only_for_process_1_that_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alone() is False
    for pid, link, listing, wanted in [
        (1, "1", ["1", "meminfo", "self"], True),
        (1, "1", ["1", "2", "self"], False),  # the first process of somebody's container
        (1, "4711", ["1", "4711"], False),  # /proc shows another namespace than this process's
        (7, "7", ["1", "7"], False),
    ]:
        told = {"getpid": lambda pid=pid: pid, "readlink": lambda path, link=link: link}
        monkeypatch.setattr(place, "os", pretended(**told, listdir=lambda path, listing=listing: listing))
        assert alone() is wanted


def test_an_empty_folder_is_no_private_place_where_it_is_no_mount(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "alone", lambda: True)
    with pytest.raises(SystemExit, match="of its own"):
        Place(str(scratch), private=True)


def test_everybody_is_ended_by_process_1_of_a_private_place_alone(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    for private, pid, first, wanted in [
        (True, 1, 7, [(-1, 9)]),
        (True, 2, 7, []),
        (False, 1, 7, [(7, 9), (7, 9)]),
        *((False, 5, number, []) for number in (1, 0, -1)),  # cannot be a child's
    ]:
        monkeypatch.setattr(place, "alone", lambda: True)
        monkeypatch.setattr(Place, "_is_mounted", lambda self, folder: True)
        there = Place(str(scratch), private=private)
        sent.clear()
        send = lambda *told: sent.append(told)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(place, "os", SimpleNamespace(getpid=lambda pid=pid: pid, kill=send, killpg=send))
            there.end_everybody(first)
        assert sent == wanted


def test_a_group_is_ended_and_nobody_else(canary: Path, scratch: Path) -> None:
    there = Place(str(scratch), private=False)
    with subprocess.Popen(SLEEP, start_new_session=True) as first, subprocess.Popen(SLEEP) as other:
        there.end_everybody(first.pid)
        assert first.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("touch", ["a file", "a file that is gone", "its mode", "a link in its place", "nothing"])
def test_a_folder_that_a_run_has_touched_is_not_used_again_and_nothing_in_it_is_removed(
    canary: Path, scratch: Path, touch: str
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
