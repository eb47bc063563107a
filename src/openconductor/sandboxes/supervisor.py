"""Process 1 of a sandbox: forks a process a run, counts what it uses, ends it, and answers outside.

It reads frames (a length, then a marshalled dict): first the set-up and the program, then one frame
a run. On descriptor 1 it answers each with a line of tagged JSON; after that of a run come the
bytes of its output. The text of this file is sent into the sandbox and runs there, with
``encoding``, ``candidate`` and ``place`` beside it and no other part of the package. It never runs
the program's code itself.

Whatever the program does: process 1 of a process-id namespace gets no signal from inside; it is not
dumpable, so that no process inside can open its memory or its descriptors; the system-call filter
keeps others from changing its limits and priority. Outside such a namespace (backend ``plain``)
none of that holds.

Not covered: without our filter (``docker``, ``plain``), CPU time of children that a program has the
kernel reap unseen (SIGCHLD ignored), once they ended; kernel memory of pipes, which only the
limits on files and processes bound.
"""

# ``os`` is made of ``posix``; it takes 1 ms to import itself, in every sandbox, and ``typing`` 3.

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
from openconductor.sandboxes.usage import (
    held_by_sockets,
    living_thread,
    proportional,
    read_start,
    too_full,
    waited_for_core,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK_S = 0.05
CHUNK = 1 << 16
STARVED_FACTOR = 4  # a run ends after this many times its wall guard, however busy the machine is
LOOKS_AT_MEMORY = 3  # measurements in a row that must all exceed the limit
STATE = ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
LINUX = sys.platform == "linux"


def main(control: io.BufferedReader) -> None:
    """Serve until the frames end; then end, and with process 1 everything inside."""
    out = io.BufferedWriter(io.FileIO(os.dup(1), "w", closefd=False))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    setup = read_frame(control)
    if setup is None:
        return
    place = Place(setup["scratch"], private=setup["private"])
    harden(setup)
    import_all(setup["preload"])
    gc.freeze()  # objects from before the forks are shared by all, and stay so
    answer: list[bytes] = [f"{encode(describe_state())}\n".encode()]
    while True:
        out.writelines(answer)
        out.flush()
        run = read_frame(control)
        if run is None:
            os._exit(0)  # pyright: ignore[reportPrivateUsage]
        supervised = Supervised(setup, place, run, control.fileno())
        if run["judge"] is not None:
            out.write(f"{encode({})}\n".encode())
            out.flush()
            later = read_frame(control) or run
            supervised.feed(later["stdin"])
        answer = supervised.result()


def read_frame(control: io.BufferedReader) -> dict[str, Any] | None:
    """Return the next frame. None: the end."""
    content = control.read(int.from_bytes(control.read(4), "little"))
    return marshal.loads(content) if content else None  # noqa: S302 - from the process outside


def import_all(names: list[str]) -> None:
    """Import modules for all processes to share; a program will say itself what is missing."""
    for name in names:
        try:
            __import__(name)
        except ImportError:
            continue


def harden(setup: dict[str, Any]) -> None:
    """Give up root, hide this process, and set the limits that all processes share."""
    signals: Any = __import__("_signal")
    # Process 1 does not get the signals that it does not handle.
    signals.signal(signals.SIGINT, signals.SIG_DFL)
    if LINUX:  # if the machine runs out of memory, the processes in here go first
        with io.FileIO("/proc/self/oom_score_adj", "w") as file:
            file.write(b"1000")
    uid = setup["uid"]
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    # A change of uid has made this process not dumpable already: its files in /proc are root's
    # then. That shows only where root's uid is in sight.
    if LINUX and (os.getuid() == 0 or os.stat("/proc/self/maps").st_uid != 0):
        prctl(PR_SET_DUMPABLE, 0)
    os.umask(0o077)
    os.chdir(setup["scratch"])
    # ``os.environ`` is made from this, if a program imports it.
    os.environ[b"HOME"] = setup["scratch"].encode()
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, setup["file_mb"] << 20)
    lower(resource.RLIMIT_NOFILE, 64)
    lower(resource.RLIMIT_STACK, STACK_BYTES)
    lower(resource.RLIMIT_MEMLOCK, 0)
    if setup["count_processes"]:
        lower(resource.RLIMIT_NPROC, setup["processes"] + 1)
    if LINUX:
        lower(resource.RLIMIT_MSGQUEUE, 0)
    sys.path[:0] = setup["paths"]
    if not hasattr(builtins, "exit"):  # Python started without ``site``, which defines these two
        builtins.exit = builtins.quit = leave


def leave(code: object = None) -> None:
    """Do as ``exit`` and ``quit`` of ``site``."""
    raise SystemExit(code)


def describe_state() -> dict[str, object]:
    """Return what this process has become, for the process outside to check before any run."""
    state: dict[str, object] = dict.fromkeys(STATE, "")
    state |= {"pid": os.getpid(), "uid": os.getuid()}
    if LINUX:
        for line in read_start("/proc/self/status").splitlines():
            name, _, value = line.decode("utf-8", "replace").partition(":\t")
            if name in STATE:
                state[name] = value.strip()
    return state


class Supervised:
    """One run, from its fork to the end of everything that it started."""

    def __init__(
        self, setup: dict[str, Any], place: Place, run: dict[str, Any], control: int
    ) -> None:
        self._setup = setup
        self._place = place
        self._control = control
        self._stopped = ""  # the verdict of the limit that stopped the run
        self._over = False
        self._status = 0
        self._reaped_s = 0.0  # CPU seconds of processes that have ended
        self._live_s = 0.0  # and of all, when last looked at
        self._begun = self._ticked = time.monotonic()
        # A later run must not find what a judge has read here.
        self._judged = run["judge"] is not None
        self._stdin = memoryview(run["stdin"])
        stdin, self._feed = os.pipe()
        inner = [stdin]
        self._output: dict[int, bytearray] = {}  # of stdout, stderr and reply
        for _ in range(3):
            reader, writer = os.pipe()
            inner.append(writer)
            self._output[reader] = bytearray()
        if self._judged:
            import_all(run["judge"]["modules"])
        self._child = os.fork()
        if self._child == 0:
            be_candidate(setup, run, inner)
        for descriptor in inner:
            os.close(descriptor)
        self._poll = select.poll()
        self._open: set[int] = set()
        self._poll.register(control, 0)  # only to hear that the process outside has gone
        self._watch(self._feed, select.POLLOUT)
        for descriptor in self._output:
            self._watch(descriptor, select.POLLIN)
        self._tick_ms = int(TICK_S * 100)
        try:
            ended = os.pidfd_open(self._child)  # readable once the child has ended
        except (AttributeError, OSError):
            return  # the kernel has none, so that ticks stay short
        self._open.add(ended)
        self._poll.register(ended, select.POLLIN)
        self._tick_ms = int(TICK_S * 1000)

    def feed(self, stdin: bytes) -> None:
        """Set what is still to be written to standard input."""
        self._stdin = memoryview(stdin)

    def _watch(self, descriptor: int, event: int) -> None:
        os.set_blocking(descriptor, False)
        self._poll.register(descriptor, event)
        self._open.add(descriptor)

    def result(self) -> list[bytes]:
        """Wait for the end, and end what is left.

        Returns:
            A line that says how it was, then stdout, stderr and reply.
        """
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
        most = self._setup["output_bytes"]
        outputs = [bytes(content[:most]) for content in self._output.values()]
        line = {
            "stopped": self._stopped,
            "status": self._status,
            "clean": self._place.untouched() and not self._judged,
            "cpu_s": max(self._reaped_s, self._live_s),
            "wall_s": wall_s,
            "sizes": [len(output) for output in outputs],
        }
        return [f"{encode(line)}\n".encode(), *outputs]

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
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            self._over = os.waitid(os.P_PID, self._child, options) is not None
        if not self._over and time.monotonic() - self._ticked >= TICK_S:
            self._tick()

    def _write(self) -> None:
        try:
            written = os.write(self._feed, self._stdin[:CHUNK])
        except BrokenPipeError:  # it reads no further, as it may
            written = len(self._stdin)
        self._stdin = self._stdin[written:]
        if not self._stdin:
            self._poll.unregister(self._feed)
            self._open.remove(self._feed)
            os.close(self._feed)
            self._feed = -1

    def _read(self, descriptor: int) -> bool:
        """Read what is there; False at the end, or if there is nothing yet."""
        try:
            part = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        kept = self._output[descriptor]
        most = self._setup["output_bytes"]
        if len(kept) <= most:
            kept += part
        if len(kept) > most and not self._stopped:
            self._stopped = "output_limit"
        return bool(part)

    def _reap(self, options: int) -> None:
        """Reap processes that have ended: the run's first one, and orphans."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, options)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped_s += usage.ru_utime + usage.ru_stime
            if pid == self._child:
                self._over = True
                self._status = os.waitstatus_to_exitcode(status)

    def _tick(self) -> None:
        """Check what no limit of a single process sees: sums over all, files, and the clock."""
        self._ticked = time.monotonic()
        setup = self._setup
        processes = self._processes()
        sockets = held_by_sockets() if self._place.private else 0
        resident = sum(size for _, _, size in processes) + sockets
        self._live_s = self._reaped_s + sum(seconds for _, seconds, _ in processes)
        wall_s = self._ticked - self._begun
        pids = [pid for pid, _, _ in processes] if self._judged else [self._child]
        waited_s = sum(waited_for_core(pid) for pid in pids)
        working_s = max(wall_s - waited_s, wall_s / STARVED_FACTOR)
        if self._live_s > setup["cpu_s"]:
            self._stopped = "cpu_timeout"
        elif resident > setup["memory_mb"] << 20 and self._too_heavy(sockets):
            self._stopped = "memory"
        elif len(processes) > 2 * setup["processes"]:  # the kernel's own limit could not be set
            self._stopped = "runtime_error"
        elif self._place.private and too_full(setup["scratch"], setup["file_mb"]):
            self._stopped = "output_limit"
        elif working_s > setup["wall_s"]:
            self._stopped = "wall_timeout"

    def _too_heavy(self, sockets: int) -> bool:
        """Return True if the processes hold more bytes than the limit, shared ones counted once.

        Those that ``sockets`` hold count, too.

        One measurement may err: a process that ends meanwhile leaves its share to those that are
        measured after it.
        """
        for _ in range(LOOKS_AT_MEMORY):
            total = sum(proportional(pid, resident) for pid, _, resident in self._processes())
            if total + sockets <= self._setup["memory_mb"] << 20:
                return False
        return True

    def _processes(self) -> list[tuple[int, float, int]]:
        """Return the processes of the run.

        Returns:
            Of each its pid (that of another thread where the first one has ended), its CPU seconds
            with those of its ended children, and its resident bytes.
        """
        processes: list[tuple[int, float, int]] = []
        names = os.listdir("/proc") if LINUX else []
        for name in names:
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                fields = read_start(f"/proc/{name}/stat").rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            # Outside a namespace those of the child's session count.
            if self._place.private or int(fields[3]) == self._child:
                seconds = sum(map(int, fields[11:15])) / TICKS_A_SECOND
                thread, resident = living_thread(name, fields)
                processes.append((thread, seconds, resident))
        return processes
