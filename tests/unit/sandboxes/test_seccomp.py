"""The filter says what it should, tried on a small machine for BPF; its numbers are those of the kernel's headers."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import seccomp
from openconductor.sandboxes.seccomp import build_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter returns for a system call."""
    data = struct.pack("<IIQ", number, seccomp.MACHINES[machine][1] if arch is None else arch, 0)
    data += b"".join(struct.pack("<Q", argument & (2**64 - 1)) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6])
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


def column(machine: str) -> int:
    return seccomp.MACHINES[machine][0]


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_everything_on_the_list_is_refused(machine: str) -> None:
    for name, numbers in seccomp.DENIED.items():
        number = numbers[column(machine)]
        assert number is None or verdict(machine, number, 0, 0, 0) == EPERM, name


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_what_every_program_needs_is_allowed(machine: str) -> None:
    needed = {
        "x86_64": (0, 1, 3, 12, 39, 60, 202, 231, 257, 318),
        "aarch64": (63, 64, 57, 214, 172, 93, 98, 94, 56, 278),
    }
    for number in needed[machine]:
        assert verdict(machine, number, 1, 2, 3) == ALLOW


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_a_clone_may_make_threads_and_processes_and_no_namespace(machine: str) -> None:
    clone = seccomp.CLONE[column(machine)]
    assert verdict(machine, clone, 17) == verdict(machine, clone, 0x003D0F00) == ALLOW
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(machine, clone, flag | 17) == EPERM
    assert verdict(machine, 435, 0) == ENOSYS, "clone3: its flags are out of sight"


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_of_the_newer_calls_and_of_those_to_come_only_the_harmless_are_there(machine: str) -> None:
    there = [number for number in range(424, 1000) if verdict(machine, number) != ENOSYS]
    assert there == list(seccomp.HARMLESS.values())


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_limits_and_priorities_are_for_the_caller_itself(machine: str) -> None:
    for numbers in (seccomp.PRLIMIT, seccomp.SETAFFINITY):
        assert verdict(machine, numbers[column(machine)], 0, 7) == ALLOW
        assert verdict(machine, numbers[column(machine)], 1, 7) == EPERM
    setpriority = seccomp.SETPRIORITY[column(machine)]
    assert verdict(machine, setpriority, 0, 0, 5) == ALLOW
    assert verdict(machine, setpriority, 0, 1, 5) == verdict(machine, setpriority, 2, 0, 5) == EPERM


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_what_becomes_of_ended_children_is_not_for_the_program_to_say(machine: str) -> None:
    sigaction = seccomp.SIGACTION[column(machine)]
    assert verdict(machine, sigaction, 17, 0x1000) == EPERM
    assert verdict(machine, sigaction, 17, 0) == verdict(machine, sigaction, 2, 0x1000) == ALLOW


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_shared_memory_needs_a_file(machine: str) -> None:
    mmap = seccomp.MMAP[column(machine)]
    private, shared, anonymous = 0x02, 0x01, 0x20
    for flags in (private, private | anonymous, shared, private | anonymous | 0x4000):
        assert verdict(machine, mmap, 0, 4096, 3, flags) == ALLOW
    for flags in (shared | anonymous, shared | anonymous | 0x8000, 0x03 | anonymous):
        assert verdict(machine, mmap, 0, 4096, 3, flags) == EPERM


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_sockets_are_of_families_that_a_network_namespace_holds(machine: str) -> None:
    socket = seccomp.SOCKET[column(machine)]
    assert [family for family in range(64) if verdict(machine, socket, family, 1) == ALLOW] == [1, 2, 10]
    assert verdict(machine, socket, 40, 1) == EAFNOSUPPORT


def test_calls_of_another_architecture_end_the_program() -> None:
    assert verdict("x86_64", 0, arch=0x40000003) == verdict("aarch64", 0, arch=0x40000028) == KILL
    assert verdict("x86_64", 0x40000000 + 1) == KILL


def test_a_machine_without_a_table_is_an_error() -> None:
    with pytest.raises(SandboxError, match="riscv64"):
        build_filter("riscv64")


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_fits_a_pipe_and_the_kernel(machine: str) -> None:
    assert len(build_filter(machine)) // 8 < 4096  # BPF_MAXINSNS


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    if not HEADERS[machine].is_file():
        pytest.skip(f"needs {HEADERS[machine]}, of the package linux-libc-dev")
    pattern = re.compile(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)")
    known = {name: int(number) for name, number in pattern.findall(HEADERS[machine].read_text())}
    parts = {"clone": "CLONE", "mmap": "MMAP", "setpriority": "SETPRIORITY", "socket": "SOCKET", "prlimit64": "PRLIMIT"}
    parts |= {"rt_sigaction": "SIGACTION", "sched_setaffinity": "SETAFFINITY"}
    ours = seccomp.DENIED | {name: getattr(seccomp, part) for name, part in parts.items()}
    ours |= {name: (number, number) for name, number in seccomp.HARMLESS.items()}
    checked = [name for name in ours if name in known]
    assert len(checked) > 60
    assert {
        name: (ours[name][column(machine)], known[name])
        for name in checked
        if ours[name][column(machine)] != known[name]
    } == {}
