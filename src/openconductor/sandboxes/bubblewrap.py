"""The default sandbox on Linux: bubblewrap starts a Python in namespaces, behind a syscall filter.

A program inside sees /usr, /lib and the Python that runs it, all read-only; a private /tmp, /proc
and a handful of devices; no network but its own loopback; nobody else's processes; a fixed
environment. bubblewrap is started with that environment, so that no process inside has the
caller's. ``supervisor`` is process 1 (``--as-pid-1``) and adds the limits that the kernel does not
keep.

As root, bubblewrap makes no user namespace: ``supervisor`` gives up root for a uid that no other
sandbox has, since the kernel exempts root from the limit on processes. As a plain user there is a
user namespace, in which every process runs as nobody.

Not covered: faults of the kernel, which is shared; timing; reading /usr; memory of the machine that
bursts up within 50 ms; and on kernels before 5.14, as a plain user, fork bombs are ended after 50
ms instead of refused.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits
from openconductor.sandboxes.seccomp import build_filter
from openconductor.sandboxes.session import BOOTSTRAP, PYTHON_FLAGS, BatchedSandbox, Launch

# The range from which systemd takes short-lived users; below 65536, so containers have it too.
UIDS = range(61184, 65520)
# Capabilities that root needs without a user namespace: SETGID, SETUID, NET_ADMIN, SYS_ADMIN.
NEEDED_CAPABILITIES = (6, 7, 12, 21)
LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
LOADER_CACHE = "/etc/ld.so.cache"
ALTERNATIVES = "/etc/alternatives"
NAMESPACES = shlex.split("""
    --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try
    --hostname sandbox --as-pid-1 --die-with-parent --new-session
""")
AS_ROOT = shlex.split("--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID")
AS_USER = shlex.split("--unshare-user --uid 65534 --gid 65534")
# No /dev/zero: a shared mapping of it is memory that nobody counts.
FILES = shlex.split("""
    --proc /proc --dir /dev --symlink /tmp /dev/shm
    --dev-bind /dev/null /dev/null --dev-bind /dev/urandom /dev/urandom
    --symlink /proc/self/fd /dev/fd --symlink /proc/self/fd/0 /dev/stdin
    --symlink /proc/self/fd/1 /dev/stdout --symlink /proc/self/fd/2 /dev/stderr
""")
# Folder inside for packages that lie under /tmp outside. The sandbox's own /tmp, which must be
# empty, hides them there.
MOVED = "/packages"
# The first bubblewrap with ``--size``. For an older one ``supervisor`` checks every 50 ms.
SIZES_TMPFS = (0, 7)
# Asks an interpreter for the fields of an ``Interpreter``, a line each.
QUESTION = """
import os, platform, sys, sysconfig
print(os.path.realpath(sys.executable), platform.python_version(), sys.base_prefix, sep="\\n")
print(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sep="\\n")
"""
INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"


class Interpreter(NamedTuple):
    """A Python that runs programs: its file, version, prefix, and the folders of its packages."""

    path: str
    version: str
    prefix: str
    packages: list[str]


@functools.cache
def interpreter_at(python: str) -> Interpreter:
    """Ask an interpreter about itself.

    Raises:
        SandboxError: it does not start, or is older than 3.11.
    """
    lines = _lines_of(python, "-I", "-c", QUESTION)
    if len(lines) != 5 or numbers_in(lines[1]) < (3, 11):
        version = " ".join(lines[1:2])
        raise SandboxError(
            f"bubblewrap sandbox: got Python {version} ({python}), expected 3.11 or later"
        )
    path, version, prefix, *folders = lines
    packages = [folder for folder in dict.fromkeys(folders) if Path(folder).is_dir()]
    return Interpreter(path, version, prefix, packages)


class BubblewrapSandbox(BatchedSandbox):
    """The backend ``bubblewrap``; the module's docstring says what it protects.

    Args:
        packages: programs can import the packages of the interpreter (its site-packages become
            readable).
        python: the interpreter that runs programs, 3.11 or later; "": this one.

    Raises:
        SandboxError: not Linux, no bubblewrap, no filter for this machine, or an interpreter that
            does not start.
    """

    level = "bubblewrap"

    def __init__(self, *, packages: bool = False, python: str = "") -> None:
        super().__init__()
        if sys.platform != "linux":
            raise SandboxError(
                f"bubblewrap sandbox: got {sys.platform}, expected Linux; Docker works elsewhere"
            )
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxError(f"bubblewrap sandbox: got no bwrap on the PATH; {INSTALL}")
        self._filter = build_filter(platform.machine())
        self._sized = version(bwrap) >= SIZES_TMPFS
        self._uids: Iterator[int] | None = None
        if may_give_up_root():
            self._uids = itertools.count(int.from_bytes(os.urandom(2), "little"))
        interpreter = interpreter_at(python or sys.executable)
        self.python = interpreter.version
        self._same_python = not python
        self._python = (interpreter.path, *PYTHON_FLAGS, "-c", BOOTSTRAP)
        self._paths: list[str] = []  # of packages, inside
        moved: dict[str, str] = {}  # paths inside, by those outside
        folders = interpreter.packages if packages else []
        for folder in folders:
            inside = folder
            if Path(folder).is_relative_to("/tmp"):  # noqa: S108 - hidden by the sandbox's own
                inside = moved[folder] = f"{MOVED}/{len(moved)}"
            self._paths.append(inside)
        kept = [folder for folder in self._paths if folder not in moved.values()]
        command = [bwrap, *NAMESPACES, *(AS_USER if self._uids is None else AS_ROOT)]
        command += ["--ro-bind", "/usr", "/usr", *_libraries()]
        command += ["--ro-bind-try", LOADER_CACHE, LOADER_CACHE]
        if packages:
            command += ["--ro-bind-try", ALTERNATIVES, ALTERNATIVES]
        bound = {folder: folder for folder in outermost((interpreter.prefix, *kept))}
        for folder, inside in (bound | moved).items():
            # The parents that bubblewrap makes for a bind are for root alone, those of --dir are
            # for all.
            command += ["--dir", str(Path(inside).parent), "--ro-bind", folder, inside]
        self._command = [*command, *FILES, "--perms", "1777"]

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """Yield a Launch with a filter on a descriptor, and as root with a uid of its own.

        The last thousands of sandboxes had other uids.
        """
        uid = None
        if self._uids is not None:
            uid = UIDS[next(self._uids) % len(UIDS)]
        # Before 5.14 a plain user's processes are not counted for each user namespace.
        counted = uid is not None or numbers_in(platform.release()) >= (5, 14)
        setup = {"uid": uid, "paths": self._paths, "count_processes": counted}
        size = ["--size", str(limits.file_mb << 20)] if self._sized else []
        folders = [*size, "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/"]  # noqa: S108
        reader, writer = os.pipe()
        try:
            os.write(writer, self._filter)  # shorter than a pipe
            os.close(writer)
            command = (*self._command, *folders, "--seccomp", str(reader), "--", *self._python)
            same = self._same_python
            yield Launch(command, setup, (reader,), isolated=True, same_python=same)
        finally:
            os.close(reader)


def numbers_in(text: str) -> tuple[int, int]:
    """Return the first version in a text, major and minor; (0, 0) if there is none."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@functools.cache
def version(bwrap: str) -> tuple[int, int]:
    """Return a bubblewrap's version, (0, 0) if it names none.

    Raises:
        SandboxError: it does not start.
    """
    return numbers_in("".join(_lines_of(bwrap, "--version")))


def _lines_of(*command: str) -> list[str]:
    """Run a command; return the lines that it prints.

    Raises:
        SandboxError: it does not start, or fails.
    """
    try:
        run = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"bubblewrap sandbox: cannot run {command[0]}: {error}") from error
    return run.stdout.splitlines()


def outermost(folders: Sequence[str]) -> list[str]:
    """Return the folders that are in none of the others, nor in /usr, which is there anyway."""
    distinct = {os.path.realpath(folder) for folder in folders}
    distinct |= {os.path.normpath(folder) for folder in folders}
    kept: list[str] = []
    for folder in sorted(distinct):
        if not any(Path(folder).is_relative_to(other) for other in ("/usr", *kept)):
            kept.append(folder)
    return kept


def _libraries() -> list[str]:
    """Return options for /lib and its like: links into /usr on most systems, folders on others."""
    options: list[str] = []
    for path in LIBRARIES:
        if Path(path).is_symlink():
            options += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            options += ["--ro-bind", path, path]
    return options


def may_give_up_root() -> bool:
    """Return True if this is root with the capabilities to become one of ``UIDS``."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text("ascii", "replace")
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    held = int(capabilities[1], 16) if capabilities else 0
    if not all(held >> number & 1 for number in NEEDED_CAPABILITIES):
        return False
    tables = (Path(f"/proc/self/{name}").read_text("ascii") for name in ("uid_map", "gid_map"))
    return all(_maps_uids(table) for table in tables)


def _maps_uids(table: str) -> bool:
    for line in table.splitlines():
        first, _, count = map(int, line.split())
        if first <= UIDS[0] and UIDS[-1] < first + count:
            return True
    return False
