"""Reads from /proc what the processes of a sandbox use: memory, waiting for a core, files.

The text of this file is sent into the sandbox, beside ``supervisor``.
"""

# ``os`` is made of ``posix``, as in ``supervisor``.

from __future__ import annotations

import io
import posix as os

CHUNK = 1 << 16
PAGE = os.sysconf("SC_PAGE_SIZE")
# The most files and folders in /tmp: bubblewrap cannot limit their number, nor their size before
# 0.7.
FILES = 2_000
FEW_SOCKETS = 16  # up to here the memory of sockets is not worth counting
SOCKET_BYTES = 1 << 19  # the most that a socket's buffers hold, if it is no connection of TCP


def read_start(path: str) -> bytes:
    """Return the first 64 KiB of a file of /proc."""
    with io.FileIO(path) as file:
        return file.read(CHUNK)


def living_thread(pid: str, fields: list[bytes]) -> tuple[int, int]:
    """Return a thread of a process that has not ended, and the resident bytes of the process.

    Once the first thread has ended, it shows no memory, though the process holds as much as before.

    Args:
        pid: the process.
        fields: what is known of its first thread; it is returned if there is no other.
    """
    if fields[0] == b"Z":
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                known = read_start(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()
                if known[0] != b"Z":
                    return int(thread), int(known[21]) * PAGE
        except OSError:
            return int(pid), 0  # all have ended
    return int(pid), int(fields[21]) * PAGE


def held_by_sockets() -> int:
    """Return the bytes that the kernel may hold for the sockets of this network namespace.

    What waits in connections is counted. Of other sockets only their number is known, so that
    each counts as much as it may hold.
    """
    try:
        used = int(read_start("/proc/net/sockstat").split(b"\n", 1)[0].split()[-1])
        if used <= FEW_SOCKETS:
            return 0
        waiting = 0
        for name in ("tcp", "tcp6"):
            with io.FileIO(f"/proc/net/{name}") as file:
                for line in file.readall().splitlines()[1:]:
                    sent, _, received = line.split()[4].partition(b":")
                    waiting += int(sent, 16) + int(received, 16)
    except (OSError, ValueError, IndexError):
        return 0  # this system does not say
    return waiting + used * SOCKET_BYTES


def proportional(pid: int, resident: int) -> int:
    """Return the resident bytes of a process, with its share of those that it shares.

    ``resident`` if that is hidden, 0 if the process has just ended.
    """
    try:
        lines = read_start(f"/proc/{pid}/smaps_rollup").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return resident
    for line in lines:
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return resident


def waited_for_core(pid: int) -> float:
    """Return the seconds that a process's first thread waited for a core; 0 if nobody counts."""
    try:
        return int(read_start(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def too_full(folder: str, megabytes: int) -> bool:
    """Return True if the file system of a private folder holds too many bytes or files."""
    room = os.statvfs(folder)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    return room.f_files - room.f_ffree > FILES or used > megabytes << 20
