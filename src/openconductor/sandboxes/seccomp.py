"""The system-call filter of the bubblewrap sandbox, as the BPF program that the kernel takes.

In: a machine name (``platform.machine()``). Out: bytes for ``bwrap --seccomp``. A deny list: what
reaches into other processes, the kernel or other namespaces, and what holds memory that nobody
counts, fails with EPERM. Of the system calls since Linux 5.1, and of those to come, only a few are
there at all. Written out here, because libseccomp's Python bindings are no wheel that every machine
has, and the format is eight bytes an instruction.

Not covered: faults of the kernel in what is allowed.
"""

from __future__ import annotations

import errno
import struct

from openconductor.errors import SandboxError

# name: (x86-64, arm64); None where that machine has no such call. From the kernel's syscall tables,
# v6.18.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # into other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # large doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    # the machine's state
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sync": (162, 81),
    "syncfs": (306, 267),
    # instances that the kernel counts for a user, those outside too: a sandbox could leave none to
    # the host
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    # memory outside of what process 1 counts: not mapped by anybody, or kept by the kernel
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "vmsplice": (278, 75),
}
FIRST_ALIKE = 424
"""From here on the numbers are the same on all machines, and only what is listed next is there; the rest, and with it
whatever a future kernel adds, is answered as if the kernel did not have it. So is clone3 (435): its
flags lie in
memory, where a filter cannot look, and C libraries fall back on clone."""
HARMLESS = {
    "pidfd_send_signal": 424,
    "pidfd_open": 434,
    "close_range": 436,
    "openat2": 437,
    "faccessat2": 439,
    "epoll_pwait2": 441,
    "futex_waitv": 449,
    "cachestat": 451,
    "fchmodat2": 452,
    "futex_wake": 454,
    "futex_wait": 455,
    "futex_requeue": 456,
}
# Allowed in part.
CLONE, MMAP, SETPRIORITY, SOCKET = (56, 220), (9, 222), (141, 140), (41, 198)
PRLIMIT, SETAFFINITY = (302, 261), (203, 122)
SIGACTION, SIGCHLD = (13, 134), 17
"""Who ignores SIGCHLD has the kernel reap children unseen: nobody would count the processor time that they took."""
NEW_NAMESPACES = 0x7E020000
SHARED_ANONYMOUS = 0x21
"""MAP_SHARED | MAP_ANONYMOUS: pages that one process fills and another keeps are in nobody's resident memory."""
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: a network namespace holds these, but not AF_VSOCK, which reaches a virtual machine's
host."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCH, _FIRST, _SECOND, _FOURTH = (
    0,
    4,
    16,
    24,
    40,
)  # the low halves: both machines are little-endian


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


_ALLOW, _KILL = _op(_RETURN, 0x7FFF0000), _op(_RETURN, 0x80000000)
_FAIL, _ABSENT, _NO_FAMILY = (
    _op(_RETURN, 0x00050000 | no) for no in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
)


def _own(argument: int) -> bytes:
    """Fails unless an argument is 0, which stands for the caller itself, or for nothing."""
    return _op(_LOAD, argument) + _op(_EQUAL, 0, 1, 0) + _FAIL


_PARTLY = {
    CLONE: _op(_LOAD, _FIRST) + _op(_ANY_BIT, NEW_NAMESPACES, 0, 1) + _FAIL,
    # else a program could limit or move process 1
    PRLIMIT: _own(_FIRST),
    SETAFFINITY: _own(_FIRST),
    SETPRIORITY: _own(_FIRST) + _own(_SECOND),
    MMAP: _op(_LOAD, _FOURTH)
    + _op(_AND, SHARED_ANONYMOUS)
    + _op(_EQUAL, SHARED_ANONYMOUS, 0, 1)
    + _FAIL,
    SIGACTION: _op(_LOAD, _FIRST) + _op(_EQUAL, SIGCHLD, 0, 3) + _own(_SECOND),
    SOCKET: _op(_LOAD, _FIRST)
    + b"".join(
        _op(_EQUAL, family, len(FAMILIES) - index, 0) for index, family in enumerate(FAMILIES)
    )
    + _NO_FAMILY,
}
"""What a call must pass that is allowed in part; it begins by loading what it looks at, and falls through if it may."""


def build_filter(machine: str) -> bytes:
    """The filter for a machine.

    Raises:
        SandboxError: there is no table for that machine.
    """
    if machine not in MACHINES:
        raise SandboxError(
            f"seccomp filter: got the machine {machine!r}, expected one of {', '.join(MACHINES)}"
        )
    column, arch = MACHINES[machine]
    parts = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _KILL, _op(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the same calls under other numbers
        parts += [_op(_AT_LEAST, X32, 0, 1), _KILL]
    for number in HARMLESS.values():
        parts += [_op(_EQUAL, number, 0, 1), _ALLOW]
    parts += [_op(_AT_LEAST, FIRST_ALIKE, 0, 1), _ABSENT]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            parts += [_op(_EQUAL, number, 0, 1), _FAIL]
    for numbers, test in _PARTLY.items():
        parts += [_op(_EQUAL, numbers[column], 0, len(test) // 8 + 1), test, _ALLOW]
    return b"".join([*parts, _ALLOW])
