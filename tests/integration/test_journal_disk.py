"""A disk that is full, and one that does not keep what it was given, for real: typed errors, and
nothing old is lost.

Each case runs in a child of its own, for its limits, mounts and filters cannot be taken back. The
child says what it found as JSON; the file is then looked at from outside.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import JournalError
from openconductor.store import Journal

PLAN = "model_id = [0]\nsubtasks = ['Say it.']\naccess_list = [[]]"
TEXT = "a response of some length, " * 100
ENOUGH = 5_000  # episodes; each limit comes long before

SYSCALLS = {"x86_64": (317, 74, 75), "aarch64": (277, 82, 83)}  # seccomp, fsync, fdatasync
NOTHING_DONE = 77  # a child's exit code: this machine does not allow the case


# ── what the children do ──────────────────────────────────────────────────────────────────────────
async def ask(journal: Journal, number: int) -> str:
    """Play one episode; return its id, which is acknowledged."""
    pool = WorkerPool([Worker(lambda messages: f"{number} {TEXT}", name="w")])
    episode = await Conductor(lambda messages: PLAN, pool=pool).ask(
        f"Question {number}?", on_event=journal
    )
    return episode.id


def failure_of(use: Callable[[], object]) -> str | None:
    """Return the JournalError that a use of the journal raises, as text."""
    try:
        use()
    except JournalError as error:
        return str(error)
    return None


def write_until_it_fails(path: Path, break_disk: Callable[[], None]) -> dict[str, Any]:
    """Answer some questions, break the disk, go on until the journal fails; then say what it tells
    whom.
    """
    journal = Journal(path)
    acknowledged = [asyncio.run(ask(journal, number)) for number in range(3)]
    break_disk()
    error = ""
    for number in range(3, ENOUGH):
        try:
            acknowledged.append(asyncio.run(ask(journal, number)))
        except JournalError as failure:
            error = str(failure)
            break
    with Journal.reading(path) as reader:
        readable = [one.id for one in reader.episodes(limit=None) if one.outcome == "answered"]
        totals = reader.totals().spent.calls
    return {
        "acknowledged": acknowledged,
        "error": error,
        "next": failure_of(lambda: asyncio.run(ask(journal, ENOUGH))),
        "flush": failure_of(journal.flush),
        "close": failure_of(journal.close),
        "readable": readable,
        "calls": totals,
    }


def start_again(path: Path) -> dict[str, Any]:
    """Write to the same journal again, the disk being whole again."""
    with Journal(path) as journal:
        again = [asyncio.run(ask(journal, ENOUGH + number)) for number in range(3)]
        return {
            "again": again,
            "kept": [one.id for one in journal.episodes(limit=None) if one.outcome == "answered"],
        }


def limited_file(folder: Path) -> dict[str, Any]:
    """Let no file grow beyond a limit."""
    path = folder / "journal.sqlite"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def break_disk() -> None:
        written = Path(f"{path}-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (written + 300_000, hard))

    report = write_until_it_fails(path, break_disk)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return report | start_again(path)


def mount_small_disk(folder: Path) -> Callable[[], None]:
    """Mount a file system of 4 MB, for this process only; returns what makes it read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    private, recursive, new_mounts, read_only_again = 1 << 18, 1 << 14, 0x20000, 33
    if (
        libc.unshare(new_mounts)
        or libc.mount(b"none", b"/", None, private | recursive, None)
        or libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, b"size=4m")
    ):
        print(f"no tmpfs may be mounted here: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        raise SystemExit(NOTHING_DONE)

    def make_read_only() -> None:
        assert libc.mount(None, str(folder).encode(), None, read_only_again, None) == 0

    return make_read_only


def full_disk(folder: Path) -> dict[str, Any]:
    """Fill a file system of 4 MB, of which something else takes half until it is deleted."""
    mount_small_disk(folder)
    ballast = folder / "something else"
    ballast.write_bytes(bytes(2_000_000))
    report = write_until_it_fails(folder / "journal.sqlite", lambda: None)
    with suppress(OSError), (folder / "more").open("wb", buffering=0) as more:
        while more.write(bytes(4096)):  # to the last byte
            pass
    report["full"] = failure_of(lambda: start_again(folder / "journal.sqlite"))
    ballast.unlink()
    (folder / "more").unlink()
    report |= start_again(folder / "journal.sqlite")
    return report | {"integrity": integrity(folder / "journal.sqlite")}


def read_only_disk(folder: Path) -> dict[str, Any]:
    """Read a journal that was closed, on a file system that became read-only."""
    make_read_only = mount_small_disk(folder)
    path = folder / "journal.sqlite"
    written = start_again(path)["again"]
    make_read_only()
    with Journal.reading(path) as reader:
        readable = [one.id for one in reader.episodes(limit=None)]
    return {"written": written, "readable": readable, "writing": failure_of(lambda: Journal(path))}


def failing_fsync(folder: Path) -> dict[str, Any]:
    """Have fsync and fdatasync fail with EIO from some moment on, in every thread."""
    return write_until_it_fails(folder / "journal.sqlite", refuse_fsync)


def refuse_fsync() -> None:
    """Have the kernel answer fsync and fdatasync with EIO: a seccomp filter over all threads of
    this process.
    """
    numbers = SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        print("no seccomp filter is known for this machine", file=sys.stderr)
        raise SystemExit(NOTHING_DONE)
    seccomp, fsync, fdatasync = numbers
    load, equal, give, eio, allow = 0x20, 0x15, 0x06, 0x00050005, 0x7FFF0000
    program = [
        (load, 0, 0, 0),
        (equal, 1, 0, fsync),
        (equal, 0, 1, fdatasync),
        (give, 0, 0, eio),
        (give, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    filtered = Program(len(program), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter, all_threads = 38, 1, 1
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.syscall(
        seccomp, set_filter, all_threads, ctypes.byref(filtered)
    ):
        print(
            f"no seccomp filter may be set here: {os.strerror(ctypes.get_errno())}", file=sys.stderr
        )
        raise SystemExit(NOTHING_DONE)
    with suppress(OSError), Path(__file__).open("rb") as file:
        os.fsync(file.fileno())
        raise AssertionError("the filter does not filter")


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────
def run_case(case: Callable[[Path], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What a child found that ran one of the cases above; skips where this machine does not allow
    it.
    """
    command = [sys.executable, __file__, case.__name__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode == NOTHING_DONE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_told_and_kept(report: dict[str, Any]) -> None:
    """Check that all users of the journal were told, and what was acknowledged can be read."""
    assert len(report["acknowledged"]) >= 3
    assert "journal.sqlite" in report["error"]
    assert report["error"] == report["next"] == report["flush"] == report["close"]
    assert set(report["acknowledged"]) <= set(report["readable"])
    assert report["calls"] >= 2 * len(report["acknowledged"])


@pytest.mark.parametrize("case", [limited_file, full_disk, failing_fsync])
def test_a_disk_that_fails_is_a_typed_error_and_the_old_data_stay(
    case: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    report = run_case(case, tmp_path)
    assert_told_and_kept(report)
    if case is failing_fsync:  # the first that could not be synced was the first to fail
        assert len(report["acknowledged"]) == 3
        report |= start_again(tmp_path / "journal.sqlite")
    if case is full_disk:
        assert "journal.sqlite" in report["full"]  # opened while the disk is full
    else:
        report["integrity"] = integrity(tmp_path / "journal.sqlite")
    assert report["integrity"] == "ok"
    assert set(report["acknowledged"]) | set(report["again"]) <= set(report["kept"])


def test_a_journal_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    report = run_case(read_only_disk, tmp_path)
    assert report["readable"] == report["written"][::-1]
    assert "journal.sqlite" in report["writing"]


if __name__ == "__main__":
    case = globals()[sys.argv[1]]
    print(json.dumps(case(Path(sys.argv[2]))))
