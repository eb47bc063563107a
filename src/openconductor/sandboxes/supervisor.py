"""Process 1 of a sandbox: forks a process a run, counts what it uses, ends it, and answers outside.

In: frames (a length, then a marshalled dict): first the set-up and the program, then one frame a
run. Out, on descriptor 1: a line of tagged JSON each; after that of a run come the bytes of its
output. The text of this file is sent into the sandbox and runs there, with ``encoding``,
``candidate`` and ``place`` beside it and no other part of the package. It never runs the program's
code itself.

What holds here, whatever the program does: process 1 of a process-id namespace gets no signal from
inside; it is not dumpable, so that nobody inside can open its memory or its descriptors; the
system-call filter keeps others from changing its limits and priority. Outside such a namespace
(backend ``plain``) none of that holds.

Not covered: without our filter (``docker``, ``plain``), processor time of children that a program
has the kernel reap unseen (SIGCHLD ignored), once they ended; kernel memory of pipes and sockets,
bounded by the limits on files and processes alone.
"""

# ``posix`` is what ``os`` is made of: ``os`` itself takes 1 ms to import, in every sandbox, and
# ``typing`` 3.

from __future__ import annotations

import builtins
import gc
import io
import marshal
import posix as os
import resource
import select
import sys
import time

from openconductor.sandboxes.candidate import (
    PR_SET_DUMPABLE,
    STACK_BYTES,
    be_candidate,
    lower,
    prctl,
)
from openconductor.sandboxes.encoding import encode
from openconductor.sandboxes.place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK_S = 0.05
FILES = 2_000
"""Files and folders in /tmp at one time: bubblewrap has no option for their number, and none for their size before 0.7.
"""
CHUNK = 1 << 16
STARVED_FACTOR = 4
"""However busy the machine, a run ends after this many times its wall guard."""
LOOKS_AT_MEMORY = 3
"""This many looks in a row must find too much of it."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LINUX = sys.platform == "linux"


def main(control: io.BufferedReader) -> None:
    """Serve until the frames end; then end, and with process 1 everything inside."""
    out = io.BufferedWriter(io.FileIO(os.dup(1), "w", closefd=False))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    setup = received(control)
    if setup is None:
        return
    place = Place(setup["scratch"], private=setup["private"])
    harden(setup)
    for name in setup["preload"]:
        try:
            __import__(name)
        except ImportError:
            continue  # the program will say so itself
    gc.freeze()  # what is there now is shared by all forks, and stays so
    answer: list[bytes] = [f"{encode(state())}\n".encode()]
    while True:
        out.writelines(answer)
        out.flush()
        run = received(control)
        if run is None:
            os._exit(0)  # pyright: ignore[reportPrivateUsage]
        answer = Supervised(setup, place, run, control.fileno()).result()


def received(control: io.BufferedReader) -> dict[str, Any] | None:
    """The next frame, or None at the end."""
    content = control.read(int.from_bytes(control.read(4), "little"))
    return marshal.loads(content) if content else None  # noqa: S302 - from the process outside


def harden(setup: dict[str, Any]) -> None:
    """Give up root, and let nobody look into this process; then the limits that all share."""
    signals: Any = __import__("_signal")
    signals.signal(
        signals.SIGINT, signals.SIG_DFL
    )  # process 1 is spared the signals that it does not handle
    if LINUX:  # where the machine runs out of memory, what is in here goes first
        with io.FileIO("/proc/self/oom_score_adj", "w") as file:
            file.write(b"1000")
    if setup["uid"] is not None:
        os.setgroups([])
        os.setresgid(setup["uid"], setup["uid"], setup["uid"])
        os.setresuid(setup["uid"], setup["uid"], setup["uid"])
    # A change of uid has made this process not dumpable already: its files in /proc are root's
    # then. That can be told only with root's uid in sight.
    if LINUX and (os.getuid() == 0 or os.stat("/proc/self/maps").st_uid != 0):
        prctl(PR_SET_DUMPABLE, 0)
    os.umask(0o077)
    os.chdir(setup["scratch"])
    os.environ[b"HOME"] = setup[
        "scratch"
    ].encode()  # from which ``os.environ`` is made, if it is imported
    limits = {
        "CORE": 0,
        "FSIZE": setup["file_mb"] << 20,
        "NOFILE": 64,
        "STACK": STACK_BYTES,
        "MEMLOCK": 0,
    }
    if setup["count_processes"]:
        limits["NPROC"] = setup["processes"] + 1
    if LINUX:
        limits["MSGQUEUE"] = 0
    for name, value in limits.items():
        lower(getattr(resource, f"RLIMIT_{name}"), value)
    sys.path[:0] = setup["paths"]
    if not hasattr(
        builtins, "exit"
    ):  # Python was started without ``site``, which defines these two
        builtins.exit = builtins.quit = leave


def leave(code: object = None) -> None:
    """What ``site`` calls exit and quit."""
    raise SystemExit(code)


def state() -> dict[str, object]:
    """What this process has become, for the process outside to check before it makes any run."""
    lines = read("/proc/self/status").decode("utf-8", "replace").splitlines() if LINUX else []
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    wanted = ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp")
    return {
        "pid": os.getpid(),
        "uid": os.getuid(),
        **{name: fields.get(name, "").strip() for name in wanted},
    }


def read(path: str) -> bytes:
    """The first 64 KiB of a file of /proc."""
    with io.FileIO(path) as file:
        return file.read(CHUNK)


class Supervised:
    """One run, from its fork to the end of everything that it started."""

    def __init__(
        self, setup: dict[str, Any], place: Place, run: dict[str, Any], control: int
    ) -> None:
        self._setup, self._place, self._control = setup, place, control
        self._stopped, self._over, self._status = "", False, 0
        self._reaped_s = self._live_s = 0.0
        self._begun = self._ticked = time.monotonic()
        self._stdin = memoryview(run["stdin"])
        stdin, self._feed = os.pipe()
        pipes = [os.pipe() for _ in ("stdout", "stderr", "reply")]
        inner = [stdin, *(writer for _, writer in pipes)]
        self._output = {reader: bytearray() for reader, _ in pipes}
        self._child = os.fork()
        if self._child == 0:
            be_candidate(setup, run, inner)
        for descriptor in inner:
            os.close(descriptor)
        self._poll = select.poll()
        self._poll.register(control, 0)  # only to hear that the process outside has gone
        for descriptor in (self._feed, *self._output):
            os.set_blocking(descriptor, False)
            self._poll.register(
                descriptor, select.POLLOUT if descriptor == self._feed else select.POLLIN
            )
        self._open = {self._feed, *self._output}
        try:  # readable once the child has ended; where the kernel has none, ticks are shorter
            ended = os.pidfd_open(self._child)
            self._open.add(ended)
            self._poll.register(ended, select.POLLIN)
            self._tick_ms = int(TICK_S * 1000)
        except (AttributeError, OSError):
            self._tick_ms = int(TICK_S * 100)

    def result(self) -> list[bytes]:
        """Wait for the end, end what is left, and say how it was: a line, then stdout, stderr and reply."""
        while not self._over and not self._stopped:
            self._wait()
        wall_s = time.monotonic() - self._begun
        self._place.end_everybody(self._child)
        self._reap(0)
        for descriptor in self._open:
            while descriptor in self._output and self._read(descriptor):
                pass  # what the dead have left in the pipes
            os.close(descriptor)
        if not self._stopped and self._reaped_s > self._setup["cpu_s"]:
            self._stopped = "cpu_timeout"
        outputs = [
            bytes(content[: self._setup["output_bytes"]]) for content in self._output.values()
        ]
        end = {"stopped": self._stopped, "status": self._status, "clean": self._place.untouched()}
        used = {
            "cpu_s": max(self._reaped_s, self._live_s),
            "wall_s": wall_s,
            "sizes": list(map(len, outputs)),
        }
        return [f"{encode({**end, **used})}\n".encode(), *outputs]

    def _wait(self) -> None:
        for descriptor, _ in self._poll.poll(self._tick_ms):
            if descriptor == self._control:
                self._place.end_everybody(self._child)
                os._exit(0)  # pyright: ignore[reportPrivateUsage]
            elif descriptor == self._feed:
                self._write()
            elif descriptor in self._output and not self._read(descriptor):
                self._poll.unregister(descriptor)
        # Outside of a namespace the child is not reaped before all are ended: see ``Place``.
        if self._place.private or not hasattr(os, "waitid"):
            self._reap(os.WNOHANG)
        else:
            self._over = (
                os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            )
        if not self._over and time.monotonic() - self._ticked >= TICK_S:
            self._tick()

    def _write(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._feed, self._stdin[:CHUNK]) :]
        except BrokenPipeError:  # it reads no further, as it may
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._poll.unregister(self._feed)
            self._open.remove(self._feed)
            os.close(self._feed)
            self._feed = -1

    def _read(self, descriptor: int) -> bool:
        """Take what is there; False at the end, or when there is nothing yet."""
        try:
            part = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        kept = self._output[descriptor]
        if len(kept) <= self._setup["output_bytes"]:
            kept += part
        if len(kept) > self._setup["output_bytes"] and not self._stopped:
            self._stopped = "output_limit"
        return bool(part)

    def _reap(self, options: int) -> None:
        """Take in processes that have ended: the run's first one, and orphans that fell to process 1."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, options)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped_s += usage.ru_utime + usage.ru_stime
            if pid == self._child:
                self._over, self._status = True, os.waitstatus_to_exitcode(status)

    def _tick(self) -> None:
        """What the limits of single processes cannot see: sums over all of them, files, and the clock."""
        self._ticked = time.monotonic()
        setup, processes = self._setup, self._processes()
        self._live_s = self._reaped_s + sum(seconds for _, seconds, _ in processes)
        wall_s = self._ticked - self._begun
        if self._live_s > setup["cpu_s"]:
            self._stopped = "cpu_timeout"
        elif (
            sum(resident for _, _, resident in processes) > setup["memory_mb"] << 20
            and self._too_heavy()
        ):
            self._stopped = "memory"
        elif (
            len(processes) > 2 * setup["processes"]
        ):  # where the kernel's own limit could not be set
            self._stopped = "runtime_error"
        elif self._place.private and too_full(setup["scratch"], setup["file_mb"]):
            self._stopped = "output_limit"
        elif max(wall_s - waited_for_core(self._child), wall_s / STARVED_FACTOR) > setup["wall_s"]:
            self._stopped = "wall_timeout"

    def _too_heavy(self) -> bool:
        """Whether the processes hold more bytes than the limit, what they share counted once.

        One look may err: a process that ends meanwhile leaves its share to those that are looked at
        after it.
        """
        return all(
            sum(proportional(pid, resident) for pid, _, resident in self._processes())
            > self._setup["memory_mb"] << 20
            for _ in range(LOOKS_AT_MEMORY)
        )

    def _processes(self) -> list[tuple[int, float, int]]:
        """(pid, CPU seconds with those of its ended children, resident bytes) of each process of the run."""
        found: list[tuple[int, float, int]] = []
        for name in os.listdir("/proc") if LINUX else ():
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            if (
                self._place.private or int(fields[3]) == self._child
            ):  # outside a namespace: the child's session
                found.append(
                    (
                        int(name),
                        sum(map(int, fields[11:15])) / TICKS_A_SECOND,
                        int(fields[21]) * PAGE,
                    )
                )
        return found


def proportional(pid: int, resident: int) -> int:
    """Resident bytes of a process, those that it shares with others by its share.

    ``resident`` where that is hidden, 0 where it has just ended.
    """
    try:
        lines = read(f"/proc/{pid}/smaps_rollup").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return resident
    return next(
        (int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), resident
    )


def waited_for_core(pid: int) -> float:
    """Seconds that the first thread of a process was ready to run while every core was busy; 0 where nobody counts."""
    try:
        return int(read(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def too_full(folder: str, megabytes: int) -> bool:
    """Whether the file system of a private folder holds more than so much, or more than ``FILES`` files and folders."""
    room = os.statvfs(folder)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    return room.f_files - room.f_ffree > FILES or used > megabytes << 20
