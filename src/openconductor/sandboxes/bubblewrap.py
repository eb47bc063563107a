"""The default on Linux: bubblewrap puts a Python into namespaces of its own, behind a system-call filter.

In: limits. Out: the command that starts it. A program inside sees /usr, /lib and the Python that
runs it, all read-only; a private /tmp, /proc and a handful of devices; no network but its own
loopback; nobody else's processes; a fixed environment. bubblewrap is started with that environment,
so that no process inside has the caller's. ``supervisor`` is process 1 (``--as-pid-1``) and adds
the limits that the kernel does not keep.

As root, bubblewrap makes no user namespace: ``supervisor`` gives up root for a uid that no other
sandbox has, since the kernel exempts root from the limit on processes. As a plain user there is a
user namespace, inside of which nobody is anybody.

Not covered: faults of the kernel, which is shared; timing; reading what is in /usr; memory of the
machine that bursts up within 50 ms; and on kernels before 5.14, as a plain user, fork bombs are
ended after 50 ms instead of refused.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits
from openconductor.sandboxes.seccomp import build_filter
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, BatchedSandbox, Launch

UIDS = range(61184, 65520)
"""Where systemd takes short-lived users from; below 65536, so that containers have them too."""
NEEDED_CAPABILITIES = (6, 7, 12, 21)
"""Of root, to do without a user namespace: SETGID, SETUID, NET_ADMIN, SYS_ADMIN."""
LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
LOADER_CACHE, ALTERNATIVES = "/etc/ld.so.cache", "/etc/alternatives"
NAMESPACES = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--new-session"),
)
AS_ROOT = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
AS_USER = ("--unshare-user", "--uid", "65534", "--gid", "65534")
FILES = (
    *("--proc", "/proc", "--dir", "/dev", "--symlink", "/tmp", "/dev/shm"),  # noqa: S108 - its own
    # no zero: a shared mapping of it is memory that nobody counts
    *("--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom"),
    *("--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin"),
    *("--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr"),
)
MOVED = "/packages"
"""Where packages are inside that lie under /tmp outside, which the sandbox's own /tmp hides and which must be empty."""
SIZES_TMPFS = (0, 7)
"""The first bubblewrap with ``--size``. Under older ones ``supervisor`` looks at the size every 50 ms."""
INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"


class BubblewrapSandbox(BatchedSandbox):
    """See the module's docstring.

    Args:
        packages: whether programs can import what is installed for this interpreter (its
            site-packages become readable).

    Raises:
        SandboxError: not Linux, no bubblewrap, or no filter for this machine.
    """

    level = "bubblewrap"

    def __init__(self, *, packages: bool = False) -> None:
        super().__init__()
        if sys.platform != "linux":
            raise SandboxError(
                f"bubblewrap sandbox: got {sys.platform}, expected Linux; Docker works elsewhere"
            )
        found = shutil.which("bwrap")
        if found is None:
            raise SandboxError(f"bubblewrap sandbox: got no bwrap on the PATH; {INSTALL}")
        self._bwrap = found
        paths = sysconfig.get_paths() if packages else {}
        named = dict.fromkeys(paths.get(name, "") for name in ("purelib", "platlib"))
        found_here = [path for path in named if path and Path(path).is_dir()]
        hidden = [path for path in found_here if Path(path).is_relative_to("/tmp")]  # noqa: S108 - by the sandbox's own
        self._moved = {path: f"{MOVED}/{number}" for number, path in enumerate(hidden)}
        self._packages = [path for path in found_here if path not in self._moved]
        self._filter = build_filter(platform.machine())
        self._sized = version(found) >= SIZES_TMPFS
        self._uids = (
            itertools.count(int.from_bytes(os.urandom(2), "little")) if may_give_up_root() else None
        )

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """A Launch with a filter on a descriptor, and as root a uid that no other of the last thousands has."""
        uid = None if self._uids is None else UIDS[next(self._uids) % len(UIDS)]
        # Before 5.14 a plain user's processes are not counted for each user namespace.
        counted = uid is not None or numbers_in(platform.release()) >= (5, 14)
        python = (os.path.realpath(sys.executable), *PYTHON_FLAGS, "-c", BOOTSTRAP)
        reader, writer = os.pipe()
        try:
            os.write(writer, self._filter)  # shorter than a pipe
            os.close(writer)
            setup = {
                "uid": uid,
                "paths": [*self._packages, *self._moved.values()],
                "count_processes": counted,
            }
            command = (*self._command(limits), "--seccomp", str(reader), "--", *python)
            yield Launch(command, setup, (reader,), isolated=True)
        finally:
            os.close(reader)

    def _command(self, limits: Limits) -> list[str]:
        command = [self._bwrap, *NAMESPACES, *(AS_USER if self._uids is None else AS_ROOT)]
        command += ["--ro-bind", "/usr", "/usr", *_libraries()]
        for path in (LOADER_CACHE, *([ALTERNATIVES] if self._packages or self._moved else [])):
            command += ["--ro-bind-try", path, path]
        seen = {folder: folder for folder in outermost((sys.base_prefix, *self._packages))}
        for folder, inside in (seen | self._moved).items():
            # Folders on the way that bubblewrap makes for a bind are for root alone, those of --dir
            # are for all.
            command += ["--dir", str(Path(inside).parent), "--ro-bind", folder, inside]
        size = ["--size", str(limits.file_mb << 20)] if self._sized else []
        command += [*FILES, "--perms", "1777", *size, "--tmpfs", "/tmp"]  # noqa: S108 - its own
        return [*command, "--remount-ro", "/", "--chdir", "/"]


def numbers_in(text: str) -> tuple[int, int]:
    """The first version in a text, major and minor; (0, 0) where there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.cache
def version(bwrap: str) -> tuple[int, int]:
    """A bubblewrap's version.

    Raises:
        SandboxError: it does not say.
    """
    try:
        asked = subprocess.run(  # noqa: S603
            [bwrap, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"bubblewrap sandbox: {bwrap}: {error}") from error
    if (numbers := numbers_in(asked.stdout)) == (0, 0):
        raise SandboxError(
            f"bubblewrap sandbox: {bwrap} --version: got {asked.stdout!r}, expected a version"
        )
    return numbers


def outermost(folders: tuple[str, ...]) -> list[str]:
    """The folders that are in none of the others, nor in /usr, which is there anyway."""
    distinct = {os.path.realpath(folder) for folder in folders} | {
        os.path.normpath(folder) for folder in folders
    }
    kept: list[str] = []
    for folder in sorted(distinct):
        if not any(Path(folder).is_relative_to(other) for other in ("/usr", *kept)):
            kept.append(folder)
    return kept


@functools.cache
def _libraries() -> tuple[str, ...]:
    """/lib and its like: links into /usr on most systems, folders on the others."""
    options: list[str] = []
    for path in LIBRARIES:
        if Path(path).is_symlink():
            options += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            options += ["--ro-bind", path, path]
    return tuple(options)


def may_give_up_root() -> bool:
    """Whether this is root with what it takes, and with uids to give away."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text("ascii", "replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    held = int(found[1], 16) if found else 0
    mapped = (Path(f"/proc/self/{name}").read_text("ascii") for name in ("uid_map", "gid_map"))
    return all(held >> number & 1 for number in NEEDED_CAPABILITIES) and all(
        map(_gives_uids, mapped)
    )


def _gives_uids(table: str) -> bool:
    lines = [[int(number) for number in line.split()] for line in table.splitlines()]
    return any(first <= UIDS[0] and UIDS[-1] < first + count for first, _, count in lines)
