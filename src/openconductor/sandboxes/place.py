"""What process 1 of a sandbox empties and ends after each run, and the proof that nobody else's is among it.

In: a folder, and whether there is a namespace around it. Out: a Place, which cannot be had where it could harm anybody;
nothing else in this package removes files or signals many processes. The text of this file is sent into the sandbox.

Two kinds. *Private*: this is process 1 of a process-id namespace and was alone in it when the Place was made, so that a
signal to everybody reaches only what has been started since; the folder is a mount of its own, and empty. *Not
private* (backend ``plain``): the folder bears our name, is ours alone, no link, and empty; only the process group of
one child is ended, while the child is not reaped yet, so that its number cannot be somebody else's.

Not covered: not private, processes of a program that have left its group, and whatever these do to the folder.
"""

# ``posix`` is what ``os`` is made of: ``os`` itself takes 1 ms to import, in every sandbox, and ``pathlib`` 10.

from __future__ import annotations

import posix as os
import sys
from _stat import S_ISDIR

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
            sys.exit(f"got process {os.getpid()}, expected process 1, alone in a namespace of its own")
        self.folder = folder
        self.private = private
        try:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            sys.exit(f"got {error}, expected an empty folder of its own")
        held = len(os.listdir(self._descriptor))
        if held or not (self._is_mounted() if private else self._is_temporary()):
            sys.exit(f"got the folder {folder} with {held} things in it, expected an empty one of its own")

    def clear(self) -> bool:
        """Remove everything in the folder, however deep: what a folder holds is moved up before it is removed.

        False where that failed, or where another folder is in its place: nothing should be run here again.
        """
        try:
            named, ours = os.lstat(self.folder), os.fstat(self._descriptor)
            if (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino):
                return False
            if ours.st_uid == os.getuid():
                os.fchmod(self._descriptor, 0o700)
            while names := os.listdir(self._descriptor):
                for name in names:
                    if is_folder(name, self._descriptor):
                        self._unpack(name)
                        os.rmdir(name, dir_fd=self._descriptor)
                    else:
                        os.unlink(name, dir_fd=self._descriptor)
        except OSError:
            return False
        return True

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

    def _is_mounted(self) -> bool:
        return os.fstat(self._descriptor).st_dev != os.lstat(f"{self.folder}/..").st_dev

    def _is_temporary(self) -> bool:
        status = os.fstat(self._descriptor)
        named = self.folder.rpartition("/")[2].startswith(TEMPORARY)
        return named and status.st_uid == os.getuid() and not status.st_mode & 0o077

    def _unpack(self, name: str) -> None:
        """Move what a folder within this one holds up into this one, under names that nobody has."""
        os.chmod(name, 0o700, dir_fd=self._descriptor)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        try:
            prefix = os.urandom(8).hex()
            for number, item in enumerate(os.listdir(inner)):
                if is_folder(item, inner):
                    os.chmod(item, 0o700, dir_fd=inner)  # else it cannot be moved
                os.rename(item, f"{prefix}.{number}", src_dir_fd=inner, dst_dir_fd=self._descriptor)
        finally:
            os.close(inner)


def alone() -> bool:
    """Whether this is process 1 of a namespace, and nobody else is in it."""
    if sys.platform != "linux" or os.getpid() != 1 or os.readlink("/proc/self") != "1":
        return False
    return [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]


def is_folder(name: str, within: int) -> bool:
    """Whether something in a folder (a descriptor) is a folder itself, not a link to one."""
    return S_ISDIR(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
