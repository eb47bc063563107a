"""The folder and processes of a sandbox, and the proof that nobody else's are among them.

A Place is refused wherever its use could harm anybody. Nothing else in this package signals many
processes. Nothing in the sandbox removes files: a folder that a run has touched is left to the
sandbox's end. The text of this file is sent into the sandbox.

*Private*: this is process 1 of a process-id namespace and was alone in it when the Place was made,
so that a signal to everybody reaches only processes started since. The folder is a mount of its
own, and empty. *Not private* (backend ``plain``): the folder bears our name, is ours alone, no
link, and empty. Only the process group of one child is ended, while the child is not reaped yet, so
that its number cannot be somebody else's.

Not covered: not private, processes of a program that have left its group, and whatever these do to
the folder.
"""

# ``os`` is made of ``posix``; it takes 1 ms to import itself, in every sandbox, and ``pathlib`` 10.

from __future__ import annotations

import posix as os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIGKILL = 9
# Prefix of the name of a folder that is made for one sandbox without a private file system.
TEMPORARY = "openconductor-"


class Place:
    """A folder and a set of processes that are a sandbox's own.

    Args:
        folder: an absolute path of an empty folder.
        private: expect a namespace of processes and a mount that nobody else uses.

    Raises:
        SystemExit: this is not such a place. Nothing has been touched.
    """

    def __init__(self, folder: str, *, private: bool) -> None:
        if private and not alone():
            sys.exit(
                f"got process {os.getpid()}, expected process 1, alone in a namespace of its own"
            )
        self.private = private
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(folder, flags)
        except OSError as error:
            sys.exit(f"got {error}, expected an empty folder of its own")
        count = len(os.listdir(self._descriptor))
        is_own = self._is_mounted(folder) if private else self._is_temporary(folder)
        if count or not is_own:
            sys.exit(
                f"got the folder {folder} with {count} things in it, "
                "expected an empty one of its own"
            )
        self._status = os.fstat(self._descriptor)

    def untouched(self) -> bool:
        """Return True if the folder is empty and unchanged, so that the next run may use it."""
        before = self._status
        now = os.fstat(self._descriptor)
        if now.st_mode != before.st_mode or now.st_ctime_ns != before.st_ctime_ns:
            return False
        return not os.listdir(self._descriptor)

    def end_everybody(self, first: int) -> None:
        """Kill every process of the namespace but this one; without one, the group of a child.

        Args:
            first: the child of this process that leads the group, and that nobody has reaped.
        """
        if self.private and os.getpid() == 1:
            _kill(os.kill, -1)
        elif first > 1 and not self.private:
            _kill(os.killpg, first)
            _kill(os.kill, first)

    def _is_mounted(self, folder: str) -> bool:
        return os.fstat(self._descriptor).st_dev != os.lstat(f"{folder}/..").st_dev

    def _is_temporary(self, folder: str) -> bool:
        status = os.fstat(self._descriptor)
        named = folder.rpartition("/")[2].startswith(TEMPORARY)
        return named and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _kill(kill: Callable[[int, int], None], number: int) -> None:
    try:
        kill(number, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody is there; or it leads no group yet, or has become another user


def alone() -> bool:
    """Return True if this is process 1 of a namespace, and nobody else is in it."""
    if sys.platform != "linux" or os.getpid() != 1 or os.readlink("/proc/self") != "1":
        return False
    return [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]
