"""The system-call filter of the bubblewrap sandbox, as the BPF program that the kernel takes.

In: a machine name (``platform.machine()``). Out: bytes for ``bwrap --seccomp``. A deny list: what reaches into other
processes, the kernel or other namespaces, and what holds memory that nobody counts, fails with EPERM. Written out
here, because libseccomp's Python bindings are no wheel that every machine has, and the format is eight bytes an
instruction.

Not covered: a system call that a future kernel adds and that this list does not know.
"""

from __future__ import annotations

import errno
import struct

from openconductor.errors import SandboxError

# name: (x86-64, arm64); None where that machine has no such call. From the kernel's syscall tables, v6.18.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # into other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
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
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # large doors into the kernel
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
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
    # instances that the kernel counts for a user, those outside too: a sandbox could leave none to the host
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    # memory outside of what process 1 counts: not mapped by anybody, or kept by the kernel
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "vmsplice": (278, 75),
}
OF_ANOTHER_PROCESS = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}
"""Allowed where the first argument is 0, the caller itself: else a program could limit or move process 1."""
CLONE, CLONE3, MMAP, SETPRIORITY, SOCKET = (56, 220), (435, 435), (9, 222), (141, 140), (41, 198)
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
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH = 0, 4


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _argument(index: int) -> int:
    return 16 + 8 * index  # the low half: both machines are little-endian


def _fail(number: int = errno.EPERM) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _where(call: tuple[int, int], column: int, test: bytes) -> bytes:
    """``test`` for one system call; the number is loaded again behind it."""
    after = test + _op(_LOAD, _NUMBER)
    return _op(_EQUAL, call[column], 0, len(after) // 8) + after


def build_filter(machine: str) -> bytes:
    """The filter for a machine.

    Raises:
        SandboxError: there is no table for that machine.
    """
    if machine not in MACHINES:
        raise SandboxError(f"seccomp filter: got the machine {machine!r}, expected one of {', '.join(MACHINES)}")
    column, arch = MACHINES[machine]
    parts = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the same calls under other numbers
        parts += [_op(_AT_LEAST, X32, 0, 1), _op(_RETURN, _KILL)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            parts += [_op(_EQUAL, number, 0, 1), _fail()]
    # Its flags lie in memory, where a filter cannot look: C libraries then fall back on clone.
    parts += [_op(_EQUAL, CLONE3[column], 0, 1), _fail(errno.ENOSYS)]
    parts.append(_where(CLONE, column, _op(_LOAD, _argument(0)) + _op(_ANY_BIT, NEW_NAMESPACES, 0, 1) + _fail()))
    for numbers in OF_ANOTHER_PROCESS.values():
        parts.append(_where(numbers, column, _op(_LOAD, _argument(0)) + _op(_EQUAL, 0, 1, 0) + _fail()))
    own = _op(_LOAD, _argument(0)) + _op(_EQUAL, 0, 1, 0) + _fail() + _op(_LOAD, _argument(1)) + _op(_EQUAL, 0, 1, 0)
    parts.append(_where(SETPRIORITY, column, own + _fail()))
    shared = _op(_LOAD, _argument(3)) + _op(_AND, SHARED_ANONYMOUS) + _op(_EQUAL, SHARED_ANONYMOUS, 0, 1) + _fail()
    parts.append(_where(MMAP, column, shared))
    told = (
        _op(_LOAD, _argument(0))
        + _op(_EQUAL, SIGCHLD, 0, 3)
        + _op(_LOAD, _argument(1))
        + _op(_EQUAL, 0, 1, 0)
        + _fail()
    )
    parts.append(_where(SIGACTION, column, told))
    families = b"".join(_op(_EQUAL, family, len(FAMILIES) - index, 0) for index, family in enumerate(FAMILIES))
    parts.append(_where(SOCKET, column, _op(_LOAD, _argument(0)) + families + _fail(errno.EAFNOSUPPORT)))
    parts.append(_op(_RETURN, _ALLOW))
    return b"".join(parts)
