"""Several servers on one host, as processes that listen at the same address.

The first process opens the sockets and starts the others, each with the same command line. It
starts one again that ended, after pauses that grow if it ends soon, and at SIGHUP all anew, one
after the other. It serves nothing itself.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from openconductor.serving.listening import ListeningSocket

_PLACE = "OPENCONDUCTOR_REPLICA"  # tells a process that it is one of several
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
_PAUSE_S = 1.0  # before a replica that ended is started again, at first
_LONGEST_PAUSE_S = 30.0  # before one that ends soon each time
_STEADY_S = 60.0  # after which the end of a replica counts as its first
_START_S = 300.0  # in which a replica begins to serve


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """What one of several processes was given.

    Attributes:
        number: from 1.
        is_first_start: True if it was not started again.
        sockets: to listen at: those that it shares, and its own.
    """

    number: int
    is_first_start: bool
    sockets: tuple[ListeningSocket, ...]
    _ready: int
    _alive: int

    @property
    def speaks(self) -> bool:
        """True if this process tells the operator what is served, for all."""
        return self.number == 1 and self.is_first_start

    def say_ready(self) -> None:
        """Tell the first process that requests are answered from now on."""
        os.write(self._ready, b"r")
        os.close(self._ready)

    def end_with_parent(self) -> None:
        """End this process, as at SIGTERM, when the first process has ended."""

        def wait() -> None:
            os.read(self._alive, 1)  # nobody writes: it returns at the end
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=wait, name="openconductor-parent", daemon=True).start()


def own_place() -> ReplicaPlace | None:
    """Return what the first process gave to this one. None: this process is not one of several."""
    given = os.environ.pop(_PLACE, None)
    if given is None:
        return None
    number, is_first_start, ready, alive, *files = map(int, given.split(","))
    sockets = tuple(ListeningSocket(fileno=file) for file in files)
    return ReplicaPlace(number, bool(is_first_start), sockets, ready, alive)


class _Replica:
    """A process that serves.

    Args:
        number: from 1.
        sockets: to listen at.
        alive: the end of a pipe that is closed when the first process ends.
        is_first_start: True if it is not started again.
    """

    def __init__(
        self, number: int, sockets: Sequence[ListeningSocket], alive: int, *, is_first_start: bool
    ) -> None:
        self.number = number
        self._ready, told = os.pipe()
        files = [told, alive, *(socket.fileno() for socket in sockets)]
        place = [number, int(is_first_start), *files]
        self.process = subprocess.Popen(  # noqa: S603 - our own command line
            # -P: no module is taken from the folder in which the server was started.
            [sys.executable, "-P", "-m", "openconductor", *sys.argv[1:]],
            env={**os.environ, _PLACE: ",".join(map(str, place))},
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is for the first process alone
            preexec_fn=_unblock_signals,  # noqa: PLW1509 - there are no threads
        )
        os.close(told)

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self.process.poll() is not None

    def wait_until_ready(self) -> bool:
        """Wait until it answers requests. Return False if it ended, or everything is to stop."""
        end = time.monotonic() + _START_S
        try:
            while time.monotonic() < end and not _STOPS & signal.sigpending():
                readable, _, _ = select.select([self._ready], [], [], 0.2)
                if readable:
                    return bool(os.read(self._ready, 1))
        finally:
            os.close(self._ready)
        return False

    def stop(self) -> None:
        """Tell it to drain and end, or at the second time to end at once."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)


class BackOff:
    """The pauses before a replica is started again. They grow while it ends soon each time.

    Args:
        clock: seconds that never jump.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._pause_s = _PAUSE_S
        self._due: float | None = None  # None: it has not ended

    def end(self) -> float | None:
        """Note that it has ended; return the pause until it is started. None: it was noted."""
        if self._due is not None:
            return None
        now = self._clock()
        if now - self._started > _STEADY_S:
            self._pause_s = _PAUSE_S
        pause = self._pause_s
        self._pause_s = min(2 * pause, _LONGEST_PAUSE_S)
        self._due = now + pause
        return pause

    @property
    def is_due(self) -> bool:
        """True if it has ended, and the pause is over."""
        return self._due is not None and self._clock() >= self._due

    def start(self) -> None:
        """Note that it is started."""
        self._started = self._clock()
        self._due = None


class Supervisor:
    """Keeps several replicas running.

    Args:
        shared: the sockets at which all of them listen.
        own: the sockets of each replica alone.
        say: tells the operator something.
        reloads: True if SIGHUP starts all replicas anew; False: it stops them.
    """

    def __init__(
        self,
        shared: Sequence[ListeningSocket],
        own: Sequence[Sequence[ListeningSocket]],
        *,
        say: Callable[[str], None],
        reloads: bool,
    ) -> None:
        self._sockets = [(*shared, *sockets) for sockets in own]
        self._say = say
        self._reloads = reloads
        self._replicas: list[_Replica] = []
        self._draining: list[_Replica] = []
        self._back_offs = [BackOff() for _ in own]
        # The other end is closed when this process ends, however it does.
        self._alive, self._end = os.pipe()

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for place in range(len(self._sockets)):
            self._replicas.append(self._start(place, is_first_start=True))
        for replica in self._replicas:
            if not replica.wait_until_ready():
                self._stop()
                return replica.process.returncode or 0
        while True:
            received = signal.sigtimedwait(_SIGNALS, _PAUSE_S)
            number = None if received is None else received.si_signo
            if number in _STOPS or (number == signal.SIGHUP and not self._reloads):
                self._stop()
                return 0
            if number == signal.SIGHUP:
                self._reload()
            elif number is None:
                self._start_again()

    def _start(self, place: int, *, is_first_start: bool = False) -> _Replica:
        sockets = self._sockets[place]
        self._back_offs[place].start()
        return _Replica(place + 1, sockets, self._alive, is_first_start=is_first_start)

    def _start_again(self) -> None:
        """Start those that ended without being told to."""
        self._draining = [replica for replica in self._draining if not replica.has_ended]
        for place, replica in enumerate(self._replicas):
            if not replica.has_ended:
                continue
            back_off = self._back_offs[place]
            pause = back_off.end()
            if pause is not None:
                status = replica.process.returncode
                number = replica.number
                self._say(f"replica {number} ended ({status}); it is started again in {pause:g} s")
            elif back_off.is_due:
                self._replicas[place] = started = self._start(place)
                started.wait_until_ready()

    def _reload(self) -> None:
        """Start all anew, one after the other: what is in flight ends as it began."""
        for place, replica in enumerate(self._replicas):
            started = self._start(place)
            if not started.wait_until_ready():
                started.stop()
                self._say(f"replica {replica.number} could not be started anew; the old one serves")
                return
            self._replicas[place] = started
            self._draining.append(replica)
            replica.stop()
        self._say("the config is loaded anew")

    def _stop(self) -> None:
        """Stop all, and wait until they have ended; a second signal ends them at once."""
        replicas = [*self._replicas, *self._draining]
        for replica in replicas:
            replica.stop()
        while not all(replica.has_ended for replica in replicas):
            received = signal.sigtimedwait(_SIGNALS, _PAUSE_S)
            if received is not None and received.si_signo in _STOPS:
                for replica in replicas:
                    replica.stop()


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
