"""Process 1 of a sandbox: forks a process a run, counts what it uses, ends it, and answers outside.

In: frames on descriptor 0 (a length, then an encoded dict): first the set-up and the program, then one frame a run.
Out: a frame each on descriptor 1. The text of this file is sent into the sandbox and runs there, with ``encoding`` and
``candidate`` and ``place`` beside it and no other part of the package. It never runs the program's code itself.

What holds here, whatever the program does: process 1 of a process-id namespace gets no signal from inside; it is not
dumpable, so that nobody inside can open its memory or its descriptors; the system-call filter keeps others from
changing its limits and priority. Outside such a namespace (backend ``plain``) none of that holds.

Not covered: processor time of children that a program has the kernel reap unseen (SIGCHLD ignored), once they ended;
kernel memory of pipes and sockets, bounded by the limits on files and processes alone.
"""

# ``posix`` is what ``os`` is made of: ``os`` itself takes 1 ms to import, in every sandbox, and ``pathlib`` 10.

from __future__ import annotations

import builtins
import gc
import posix as os
import select
import sys
import time

from openconductor.sandboxes.candidate import SIGINT, SIGNALS, Asked, Setup, be_candidate, prctl, set_limits
from openconductor.sandboxes.encoding import decode, encode
from openconductor.sandboxes.place import Place

TICK_S = 0.05
FILES = 2_000
"""Files and folders in /tmp at one time: bubblewrap has no option for their number, and none for their size before 0.7.
"""
CHUNK = 1 << 16
STARVED_FACTOR = 4
"""However busy the machine, a run ends after this many times its wall guard."""
LOOKS_AT_MEMORY = 3
"""So many looks in a row must find too much of it."""
PR_SET_DUMPABLE = 4
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
TYPE_CHECKING = False  # ``typing`` itself would take 3 ms to import
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Serve until descriptor 0 ends; then end, and with process 1 everything inside."""
    control = Control()
    first = control.receive()
    if first is None:
        return
    setup = Setup(first)
    place = Place(setup.scratch, private=setup.private)
    harden(setup)
    for name in setup.preload:
        try:
            __import__(name)
        except ImportError:
            continue  # the program will say so itself
    gc.freeze()  # what is there now is shared by all forks, and stays so
    control.send(state())
    while (frame := control.receive()) is not None:
        control.send(Supervised(setup, place, Asked(frame), control.descriptor).result())
    os._exit(0)  # pyright: ignore[reportPrivateUsage]


class Control:
    """The frames from and to the process outside, on a descriptor that no program sees."""

    def __init__(self) -> None:
        self.descriptor = os.dup(0)
        self._out = os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)

    def receive(self) -> dict[str, object] | None:
        """The next frame, or None at the end."""
        head = self._take(4)
        content = None if head is None else self._take(int.from_bytes(head, "little"))
        frame: Any = None if content is None else decode(content)
        return frame

    def send(self, frame: dict[str, object]) -> None:
        """Answer with one frame."""
        content = encode(frame)
        view = memoryview(len(content).to_bytes(4, "little") + content)
        while view:
            view = view[os.write(self._out, view) :]

    def _take(self, count: int) -> bytes | None:
        parts: list[bytes] = []
        while count:
            part = os.read(self.descriptor, min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def harden(setup: Setup) -> None:
    """Give up root, and let nobody look into this process; then the limits that all share."""
    SIGNALS.signal(SIGINT, SIGNALS.SIG_DFL)  # process 1 is spared the signals that it does not handle, and only those
    if sys.platform == "linux":
        offer_to_be_ended_first()
    if setup.uid is not None:
        os.setgroups([])
        os.setresgid(setup.uid, setup.uid, setup.uid)
        os.setresuid(setup.uid, setup.uid, setup.uid)
    if sys.platform == "linux" and not hidden():
        prctl(PR_SET_DUMPABLE, 0)
    os.umask(0o077)
    os.chdir(setup.scratch)
    os.environ[b"HOME"] = setup.scratch.encode()  # from which ``os.environ`` is made, if it is imported
    set_limits(setup)
    sys.path[:0] = setup.paths
    if not hasattr(builtins, "exit"):  # Python was started without ``site``, which defines these two
        builtins.exit = builtins.quit = leave


def offer_to_be_ended_first() -> None:
    """Where the machine runs out of memory, what is in here goes first, and the largest of it before the rest."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"1000")
    os.close(descriptor)


def hidden() -> bool:
    """Whether a change of uid has made this process not dumpable: its files in /proc are root's then.

    Only with root's uid in sight can that be told from their being everybody's.
    """
    return os.getuid() != 0 and os.stat("/proc/self/maps").st_uid == 0


def leave(code: object = None) -> None:
    """What ``site`` calls exit and quit."""
    raise SystemExit(code)


def state() -> dict[str, object]:
    """What this process has become, for the process outside to check before it sends any program."""
    fields: dict[str, str] = {}
    if sys.platform == "linux":
        lines = read("/proc/self/status").decode("utf-8", "replace").splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    wanted = ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp")
    return {"pid": os.getpid(), "uid": os.getuid(), **{name: fields.get(name, "").strip() for name in wanted}}


def read(path: str) -> bytes:
    """The first 64 KiB of a file of /proc."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, CHUNK)
    finally:
        os.close(descriptor)


class Supervised:
    """One run, from its fork to the end of everything that it started."""

    def __init__(self, setup: Setup, place: Place, run: Asked, control: int) -> None:
        self._setup = setup
        self._place = place
        self._cpu_s, self._wall_s = setup.cpu_us / 1e6, setup.wall_us / 1e6
        self._stopped = ""
        self._over = False
        self._status: int | None = None
        self._reaped_s = 0.0
        self._live_s = 0.0
        self._starved_s = 0.0
        self._begun = self._ticked = time.monotonic()
        self._output = {"stdout": bytearray(), "stderr": bytearray(), "reply": bytearray()}
        self._poll = select.poll()
        self._poll.register(control, 0)  # only to hear that the process outside has gone
        self._control = control
        self._stdin = memoryview(run.stdin)
        inner, self._readers = self._pipes()
        self._child = os.fork()
        if self._child == 0:
            be_candidate(setup, run, inner)
        for descriptor in inner:
            os.close(descriptor)
        self._end = self._watch_end()
        if not self._stdin:
            self._close_stdin()

    def result(self) -> dict[str, object]:
        """Wait for the end, clear away what is left, and say how it was."""
        while not self._over and not self._stopped:
            self._wait()
        wall_s = time.monotonic() - self._begun
        self._kill()
        self._drain()
        if not self._stopped and self._reaped_s > self._cpu_s:
            self._stopped = "cpu_timeout"
        clean = self._place.clear()
        limit = self._setup.output_bytes
        outputs = {name: bytes(content[:limit]) for name, content in self._output.items()}
        cpu_s = max(self._reaped_s, self._live_s)
        end = {"stopped": self._stopped, "status": self._status, "clean": clean}
        return {**end, "cpu_us": int(cpu_s * 1e6), "wall_us": int(wall_s * 1e6), **outputs}

    def _pipes(self) -> tuple[list[int], dict[int, str]]:
        stdin, self._feed = os.pipe()
        os.set_blocking(self._feed, False)
        self._poll.register(self._feed, select.POLLOUT)
        inner, readers = [stdin], dict[int, str]()
        for name in self._output:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._poll.register(reader, select.POLLIN)
            readers[reader] = name
            inner.append(writer)
        return inner, readers

    def _watch_end(self) -> int | None:
        """A descriptor that is readable once the child has ended; None where the kernel has none (then: ticks)."""
        try:
            descriptor = os.pidfd_open(self._child)
        except (AttributeError, OSError):
            return None
        self._poll.register(descriptor, select.POLLIN)
        return descriptor

    def _wait(self) -> None:
        timeout = TICK_S if self._end is not None else TICK_S / 10
        for descriptor, _ in self._poll.poll(int(timeout * 1000)):
            if descriptor == self._control:
                self._kill()
                os._exit(0)  # pyright: ignore[reportPrivateUsage]
            elif descriptor == self._feed:
                self._write()
            elif descriptor in self._readers:
                self._read(descriptor)
        self._look()
        if not self._over and time.monotonic() - self._ticked >= TICK_S:
            self._tick()

    def _write(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._feed, self._stdin[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads no further, as it may
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._feed >= 0:
            self._poll.unregister(self._feed)
            os.close(self._feed)
            self._feed = -1

    def _read(self, descriptor: int) -> bool:
        """Take what is there; False at the end, or when there is nothing yet."""
        try:
            part = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not part:
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._readers[descriptor]
            return False
        kept = self._output[self._readers[descriptor]]
        if len(kept) <= self._setup.output_bytes:
            kept += part
        if len(kept) > self._setup.output_bytes and not self._stopped:
            self._stopped = "output_limit"
        return True

    def _look(self) -> None:
        """Notice the end of the run's first process. Outside of a namespace it is not reaped yet: see ``Place``."""
        if self._place.private or not hasattr(os, "waitid"):
            self._reap(os.WNOHANG)
        else:
            self._over = os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

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
        processes = self._processes()
        self._live_s = self._reaped_s + sum(process[1] for process in processes)
        memory = sum(process[2] for process in processes)
        limit = self._setup.memory_mb << 20
        if self._live_s > self._cpu_s:
            self._stopped = "cpu_timeout"
        elif memory > limit and self._too_heavy(limit):
            self._stopped = "memory"
        elif len(processes) > 2 * self._setup.processes:  # where the kernel's own limit could not be set
            self._stopped = "runtime_error"
        elif self._place.private and too_full(self._setup.scratch, self._setup.file_mb):
            self._stopped = "output_limit"
        else:
            wall = self._ticked - self._begun
            self._starved_s = waited_for_core(self._child)
            if wall - self._starved_s > self._wall_s or wall > STARVED_FACTOR * self._wall_s:
                self._stopped = "wall_timeout"

    def _too_heavy(self, limit: int) -> bool:
        """Whether the processes hold more bytes than the limit, what they share counted once.

        One look may err: a process that ends meanwhile leaves its share to those that are looked at after it.
        """
        return all(
            sum(proportional(pid, resident) for pid, _, resident in self._processes()) > limit
            for _ in range(LOOKS_AT_MEMORY)
        )

    def _processes(self) -> list[tuple[int, float, int]]:
        """(pid, CPU seconds, resident bytes) of each process of the run that is alive."""
        found: list[tuple[int, float, int]] = []
        for name in os.listdir("/proc") if sys.platform == "linux" else ():
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            if (
                self._place.private or int(fields[3]) == self._child
            ):  # outside a namespace: those of the child's session
                seconds = (
                    sum(int(ticks) for ticks in fields[11:15]) / TICKS_A_SECOND
                )  # with those of its ended children
                found.append((int(name), seconds, int(fields[21]) * PAGE))
        return found

    def _kill(self) -> None:
        """End everything that the run has started, and wait until it has."""
        if self._place.private:
            self._place.end_everybody()
        elif self._status is None:
            self._place.end_session(self._child, [process[0] for process in self._processes()])
        self._reap(0)

    def _drain(self) -> None:
        """Read what the dead have left in the pipes; close everything."""
        for descriptor in list(self._readers):
            while self._read(descriptor):
                pass
        for descriptor in [*self._readers, *([] if self._end is None else [self._end])]:
            os.close(descriptor)
        self._close_stdin()


def proportional(pid: int, resident: int) -> int:
    """Resident bytes of a process, those that it shares with others by its share.

    ``resident`` where that is hidden, 0 where it has just ended.
    """
    try:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        pass
    return resident


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
