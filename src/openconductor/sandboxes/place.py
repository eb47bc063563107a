"""What process 1 of a sandbox works in and ends after each run, and the proof that nobody else's is among it.

In: a folder, and whether there is a namespace around it. Out: a Place, which cannot be had where it
could harm anybody; nothing else in this package signals many processes, and nothing at all in the
sandbox removes files: a folder that a run has touched is left to the sandbox's end. The text of
this file is sent into the sandbox.

Two kinds. *Private*: this is process 1 of a process-id namespace and was alone in it when the Place
was made, so that a signal to everybody reaches only what has been started since; the folder is a
mount of its own, and empty. *Not private* (backend ``plain``): the folder bears our name, is ours
alone, no link, and empty; only the process group of one child is ended, while the child is not
reaped yet, so that its number cannot be somebody else's.

Not covered: not private, processes of a program that have left its group, and whatever these do to
the folder.
"""

# ``posix`` is what ``os`` is made of: ``os`` itself takes 1 ms to import, in every sandbox, and
# ``pathlib`` 10.

from __future__ import annotations

import posix as os
import sys

SIGKILL = 9
TEMPORARY = "openconductor-"
"""How the name of a folder begins that is made for one sandbox, where there is no private file system."""


class Place:
    """A folder and a set of processes that are a sandbox's own.

    Args:
        folder: an absolute path; nothing in it.
        private: a namespace of processes and a mount are expected, which nobody else uses.

    Raises:
        SystemExit: this is not such a place. Nothing has been touched.
    """

    def __init__(self, folder: str, *, private: bool) -> None:
        if private and not alone():
            sys.exit(
                f"got process {os.getpid()}, expected process 1, alone in a namespace of its own"
            )
        self.private = private
        try:
            self._descriptor = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError as error:
            sys.exit(f"got {error}, expected an empty folder of its own")
        held = len(os.listdir(self._descriptor))
        if held or not (self._is_mounted(folder) if private else self._is_temporary(folder)):
            sys.exit(
                f"got the folder {folder} with {held} things in it, expected an empty one of its own"
            )
        self._found = os.fstat(self._descriptor)

    def untouched(self) -> bool:
        """Whether the folder is empty and nothing about it has changed; else nothing should be run here again."""
        now, found = os.fstat(self._descriptor), self._found
        unchanged = (now.st_mode, now.st_ctime_ns) == (found.st_mode, found.st_ctime_ns)
        return unchanged and not os.listdir(self._descriptor)

    def end_everybody(self, first: int) -> None:
        """Kill every process of the namespace but this one; without a namespace, the group of one child.

        Args:
            first: the child of this process that leads the group, and that nobody has reaped.
        """
        if self.private and os.getpid() == 1:
            kills = [(os.kill, -1)]
        else:
            kills = [(os.killpg, first), (os.kill, first)] if first > 1 and not self.private else []
        for kill, whom in kills:
            try:
                kill(whom, SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # there is nobody; or it leads no group yet, or has become another user

    def _is_mounted(self, folder: str) -> bool:
        return os.fstat(self._descriptor).st_dev != os.lstat(f"{folder}/..").st_dev

    def _is_temporary(self, folder: str) -> bool:
        status = os.fstat(self._descriptor)
        named = folder.rpartition("/")[2].startswith(TEMPORARY)
        return named and status.st_uid == os.getuid() and not status.st_mode & 0o077


def alone() -> bool:
    """Whether this is process 1 of a namespace, and nobody else is in it."""
    if sys.platform != "linux" or os.getpid() != 1 or os.readlink("/proc/self") != "1":
        return False
    return [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]
