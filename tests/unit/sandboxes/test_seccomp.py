"""The filter, tried on a small machine for BPF, and its numbers beside the kernel's headers."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import seccomp
from openconductor.sandboxes.seccomp import (
    CLONE,
    MMAP,
    PRLIMIT,
    SETAFFINITY,
    SETPRIORITY,
    SIGACTION,
    build_filter,
)

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = (
    0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
)
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEEDED = {
    "x86_64": (0, 1, 3, 12, 39, 60, 202, 231, 257, 318),
    "aarch64": (63, 64, 57, 214, 172, 93, 98, 94, 56, 278),
}
machines = pytest.mark.parametrize("machine", seccomp.MACHINES)


def verdict(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """Return what the filter returns for a system call."""
    if arch is None:
        arch = seccomp.MACHINES[machine][1]
    six = (*arguments, *[0] * 6)[:6]
    unsigned = [argument & (2**64 - 1) for argument in six]
    data = struct.pack("<IIQ6Q", number, arch, 0, *unsigned)
    program = list(struct.iter_unpack("<HBBI", build_filter(machine)))
    at, held = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            return value
        else:
            met = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if met else no


@machines
def test_everything_on_the_list_is_refused_and_what_every_program_needs_is_allowed(
    machine: str,
) -> None:
    column = seccomp.MACHINES[machine][0]
    for name, numbers in seccomp.DENIED.items():
        number = numbers[column]
        if number is not None:
            assert verdict(machine, number, 0, 0, 0) == EPERM, name
    assert {verdict(machine, number, 1, 2, 3) for number in NEEDED[machine]} == {ALLOW}


@machines
def test_of_the_newer_calls_and_of_those_to_come_only_the_harmless_are_there(machine: str) -> None:
    there = [number for number in range(424, 1000) if verdict(machine, number) != ENOSYS]
    assert there == list(seccomp.HARMLESS.values())
    assert 435 not in there, "clone3: its flags are out of sight"


# A call, arguments with which it is allowed, and others with which it is refused. SIGACTION: what
# becomes of ended children. MMAP: shared memory needs a file.
PARTLY = """
CLONE       | 17; 0x3D0F00    | 0x20011; 0x2000011; 0x4000011; 0x8000011; 0x10000011; 0x20000011
CLONE       | 17              | 0x40000011; 0x60000011; 0x7E000011
PRLIMIT     | 0 7             | 1 7
SETAFFINITY | 0 7             | 1 7
SETPRIORITY | 0 0 5           | 0 1 5; 2 0 5
SIGACTION   | 17 0; 2 0x1000  | 17 0x1000
MMAP        | 0 4096 3 0x02; 0 4096 3 0x22     | 0 4096 3 0x21; 0 4096 3 0x8021
MMAP        | 0 4096 3 0x01; 0 4096 3 0x4022   | 0 4096 3 0x23
"""


@machines
@pytest.mark.parametrize("line", PARTLY.strip().splitlines())
def test_a_call_that_is_allowed_in_part_is_refused_in_the_other(machine: str, line: str) -> None:
    name, allowed, refused = line.split("|")
    number = getattr(seccomp, name.strip())[seccomp.MACHINES[machine][0]]
    for calls, expected in ((allowed, ALLOW), (refused, EPERM)):
        for call in calls.split(";"):
            arguments = [int(argument, 0) for argument in call.split()]
            assert verdict(machine, number, *arguments) == expected, call


@machines
def test_sockets_are_of_families_that_a_network_namespace_holds(machine: str) -> None:
    socket = seccomp.SOCKET[seccomp.MACHINES[machine][0]]
    allowed = [family for family in range(64) if verdict(machine, socket, family, 1) == ALLOW]
    assert allowed == [1, 2, 10]
    assert verdict(machine, socket, 40, 1) == EAFNOSUPPORT


def test_calls_of_another_architecture_end_the_program() -> None:
    assert verdict("x86_64", 0, arch=0x40000003) == verdict("aarch64", 0, arch=0x40000028) == KILL
    assert verdict("x86_64", 0x40000000 + 1) == KILL
    with pytest.raises(SandboxError, match="riscv64"):
        build_filter("riscv64")


@machines
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    if not HEADERS[machine].is_file():
        pytest.skip(f"needs {HEADERS[machine]}, of the package linux-libc-dev")
    pattern = re.compile(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)")
    known = {name: int(number) for name, number in pattern.findall(HEADERS[machine].read_text())}
    ours = seccomp.DENIED | {
        "clone": CLONE,
        "mmap": MMAP,
        "setpriority": SETPRIORITY,
        "socket": seccomp.SOCKET,
    }
    ours |= {"prlimit64": PRLIMIT, "sched_setaffinity": SETAFFINITY, "rt_sigaction": SIGACTION}
    ours |= {name: (number, number) for name, number in seccomp.HARMLESS.items()}
    column = seccomp.MACHINES[machine][0]
    numbers_here = {name: numbers[column] for name, numbers in ours.items() if name in known}
    assert len(numbers_here) > 60
    assert numbers_here == {name: known[name] for name in numbers_here}
