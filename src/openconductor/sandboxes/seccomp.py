"""The system-call filter of the bubblewrap sandbox, as the BPF program that the kernel takes.

It is a deny list: calls that reach into other processes, the kernel or other namespaces, or that
hold memory that nobody counts, fail with EPERM. Of the system calls since Linux 5.1, known or
future, only a few are there at all. It is written out here, because libseccomp's Python bindings
have no wheel for every machine, and the format is eight bytes an instruction.

Not covered: faults of the kernel in the calls that are allowed.
"""

from __future__ import annotations

import errno
import struct

from openconductor.errors import SandboxError

# A line a system call: its name and its numbers on x86-64 and arm64 ("-": it lacks the call), from
# the kernel's syscall tables, v6.18.
_DENIED = """
# into other processes
ptrace              101   117
process_vm_readv    310   270
process_vm_writev   311   271
kcmp                312   272
migrate_pages       256   238
move_pages          279   239
sched_setscheduler  144   119
sched_setparam      142   118
sched_setattr       314   274
ioprio_set          251    30
# mounts and namespaces
mount               165    40
umount2             166    39
pivot_root          155    41
chroot              161    51
unshare             272    97
setns               308   268
name_to_handle_at   303   264
open_by_handle_at   304   265
quotactl            179    60
fanotify_init       300   262
fanotify_mark       301   263
# large doors into the kernel
bpf                 321   280
perf_event_open     298   241
userfaultfd         323   282
add_key             248   217
request_key         249   218
keyctl              250   219
kexec_load          246   104
kexec_file_load     320   294
init_module         175   105
finit_module        313   273
delete_module       176   106
personality         135    92
modify_ldt          154     -
iopl                172     -
ioperm              173     -
# the machine's state
acct                163    89
swapon              167   224
swapoff             168   225
reboot              169   142
settimeofday        164   170
clock_settime       227   112
clock_adjtime       305   266
adjtimex            159   171
sethostname         170   161
setdomainname       171   162
syslog              103   116
vhangup             153    58
sync                162    81
syncfs              306   267
# instances that the kernel counts for a user, also outside: the host could be left without any
inotify_init        253     -
inotify_init1       294    26
# memory outside of what process 1 counts: not mapped by anybody, or kept by the kernel
memfd_create        319   279
shmget               29   194
msgget               68   186
semget               64   190
mq_open             240   180
vmsplice            278    75
"""


def _numbers_of(table: str) -> dict[str, list[int | None]]:
    """Return the numbers of a table's system calls, by name."""
    numbers: dict[str, list[int | None]] = {}
    for line in table.strip().splitlines():
        if not line.startswith("#"):
            name, *columns = line.split()
            numbers[name] = [None if column == "-" else int(column) for column in columns]
    return numbers


DENIED = _numbers_of(_DENIED)
# From here on the numbers are the same on all machines, and only ``HARMLESS`` is allowed. The rest,
# and all that a future kernel adds, is answered as if the kernel lacked it. So is clone3 (435): its
# flags lie in memory, where a filter cannot look, and C libraries fall back on clone.
FIRST_ALIKE = 424
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
CLONE = (56, 220)
MMAP = (9, 222)
SETPRIORITY = (141, 140)
SOCKET = (41, 198)
PRLIMIT = (302, 261)
SETAFFINITY = (203, 122)
SIGACTION = (13, 134)
# If a program ignores SIGCHLD, the kernel reaps its children unseen, and nobody counts their CPU
# time.
SIGCHLD = 17
NEW_NAMESPACES = 0x7E020000
# MAP_SHARED | MAP_ANONYMOUS: pages that one process fills and another keeps are in nobody's
# resident memory.
SHARED_ANONYMOUS = 0x21
# AF_UNIX, AF_INET, AF_INET6: a network namespace holds these, but not AF_VSOCK, which reaches the
# host of a virtual machine.
FAMILIES = (1, 2, 10)

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
# Offsets; of arguments the low half, because both machines are little-endian.
_NUMBER, _ARCH, _FIRST, _SECOND, _FOURTH = 0, 4, 16, 24, 40


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return an instruction; ``yes`` and ``no`` are the instructions that a test skips."""
    return struct.pack("<HBBI", code, yes, no, value)


def _error(number: int) -> bytes:
    return _op(_RETURN, 0x00050000 | number)


_ALLOW = _op(_RETURN, 0x7FFF0000)
_KILL = _op(_RETURN, 0x80000000)
_FAIL = _error(errno.EPERM)


def _own(argument: int) -> bytes:
    """Fail unless an argument is 0, which stands for the caller itself, or for nothing."""
    return _op(_LOAD, argument) + _op(_EQUAL, 0, 1, 0) + _FAIL


def _known_family() -> bytes:
    """Fail unless the first argument is one of ``FAMILIES``."""
    parts = [_op(_LOAD, _FIRST)]
    for index, family in enumerate(FAMILIES):
        parts.append(_op(_EQUAL, family, len(FAMILIES) - index, 0))
    return b"".join([*parts, _error(errno.EAFNOSUPPORT)])


_NO_NAMESPACE = _op(_LOAD, _FIRST) + _op(_ANY_BIT, NEW_NAMESPACES, 0, 1) + _FAIL
_FLAGS = _op(_LOAD, _FOURTH) + _op(_AND, SHARED_ANONYMOUS)
_NOT_SHARED = _FLAGS + _op(_EQUAL, SHARED_ANONYMOUS, 0, 1) + _FAIL

# The condition of each call that is allowed in part. It loads what it tests, and falls through if
# the call may pass.
_CONDITIONS = {
    CLONE: _NO_NAMESPACE,
    # else a program could limit or move process 1
    PRLIMIT: _own(_FIRST),
    SETAFFINITY: _own(_FIRST),
    SETPRIORITY: _own(_FIRST) + _own(_SECOND),
    MMAP: _NOT_SHARED,
    SIGACTION: _op(_LOAD, _FIRST) + _op(_EQUAL, SIGCHLD, 0, 3) + _own(_SECOND),
    SOCKET: _known_family(),
}


def build_filter(machine: str) -> bytes:
    """Return the filter for a machine, for ``bwrap --seccomp``.

    Args:
        machine: as ``platform.machine()`` names it.

    Raises:
        SandboxError: there is no table for that machine.
    """
    if machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise SandboxError(f"seccomp filter: got the machine {machine!r}, expected one of {known}")
    column, arch = MACHINES[machine]
    parts = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _KILL, _op(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the same calls under other numbers
        parts += [_op(_AT_LEAST, X32, 0, 1), _KILL]
    for number in HARMLESS.values():
        parts += [_op(_EQUAL, number, 0, 1), _ALLOW]
    parts += [_op(_AT_LEAST, FIRST_ALIKE, 0, 1), _error(errno.ENOSYS)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            parts += [_op(_EQUAL, number, 0, 1), _FAIL]
    for numbers, condition in _CONDITIONS.items():
        skipped = len(condition) // 8 + 1
        parts += [_op(_EQUAL, numbers[column], 0, skipped), condition, _ALLOW]
    return b"".join([*parts, _ALLOW])
