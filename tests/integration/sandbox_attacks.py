"""What hostile programs try in a sandbox, and a way to try all of it as another user.

    python sandbox_attacks.py          (prints {attack: what went wrong, or null} as JSON)

A program prints ``GOT ...`` for each thing that it should not have got. Nothing here needs pytest.

These programs kill and write whatever they can reach. Each one looks first whether it is inside of
a sandbox, and stops where it is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from openconductor.sandboxes import Limits, Run, RunResult, Verdict, bubblewrap
from openconductor.sandboxes.session import BatchedSandbox

GUARD = """
import os
if os.uname().nodename != "sandbox" or os.getppid() != 1 or os.path.exists("/etc/passwd"):
    raise SystemExit("GOT no sandbox: nothing was tried")
"""
SYSCALLS = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
def call(x86, arm, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(x86 if X86 else arm), *map(ctypes.c_long, arguments))
    return result, ctypes.get_errno()
def refused(name, x86, arm, *arguments):
    result, number = call(x86, arm, *arguments)
    if result != -1 or number not in (1, 38, 97):
        print("GOT", name, result, number)
"""


@dataclass
class World:
    """What there is outside to be stolen, reached or killed."""

    folder: Path
    token: str
    marker: str
    port: int
    abstract: str
    victim: subprocess.Popen[bytes]


@dataclass(frozen=True)
class Attack:
    """A hostile program, written with the fields of World in braces of the kind ``<<name>>``."""

    program: str
    verdicts: tuple[Verdict, ...] = (Verdict.OK,)
    limits: Limits = field(default_factory=lambda: Limits(cpu_s=4, wall_s=15))
    runs: int = 1
    outside: Callable[[World, list[RunResult]], str | None] = lambda world, results: None


def _untouched(world: World, results: list[RunResult]) -> str | None:
    found = sorted(path.name for path in world.folder.iterdir())
    if found != ["secret"] or (world.folder / "secret").read_text() != world.token:
        return f"the folder outside now holds {found}"
    return None


def _alive(world: World, results: list[RunResult]) -> str | None:
    return None if world.victim.poll() is None else "the process outside was ended"


def _short(world: World, results: list[RunResult]) -> str | None:
    sizes = [max(len(result.stdout), len(result.stderr)) for result in results]
    return None if max(sizes) <= 1_000_000 else f"{sizes} characters came out"


ATTACKS: dict[str, Attack] = {
    "write outside": Attack(
        """
import os, sys
for folder in ["<<folder>>", sys.prefix, *"/ /usr /usr/bin /etc /dev /proc /home /root /var/tmp /run".split()]:
    try:
        with open(os.path.join(folder, "written"), "w") as file:
            file.write("x")
        print("GOT", folder)
    except OSError:
        pass
for change in (lambda: os.remove("/usr/bin/env"), lambda: os.rename("/usr/bin", "/usr/bon"),
               lambda: os.chmod("/", 0o777), lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0))):
    try:
        change()
        print("GOT a change")
    except OSError:
        pass
""",
        outside=_untouched,
    ),
    "write through symlinks": Attack(
        """
import os
for number, target in enumerate(["<<folder>>/written", "/proc/self/root<<folder>>/written", "/etc/written",
                                 "/proc/1/root<<folder>>/written", "/proc/1/cwd/written", "../..<<folder>>/written"]):
    link = f"/tmp/link{number}"
    os.symlink(target, link)
    try:
        with open(link, "w") as file:
            file.write("x")
        if "cwd" not in target:
            print("GOT", target)
    except OSError:
        pass
""",
        outside=_untouched,
    ),
    "environment and /proc secrets": Attack(
        """
import os
texts = [repr(os.environ).encode()]
for folder, _, files in os.walk("/proc"):
    if folder.count("/") > 3:
        continue
    for name in ("environ", "cmdline"):
        try:
            with open(f"{folder}/{name}", "rb") as file:
                texts.append(file.read(100000))
        except OSError:
            pass
if any(b"<<token>>" in text for text in texts):
    print("GOT the token")
known = "PATH LANG LOGNAME HOME PYTHONHASHSEED MALLOC_ARENA_MAX OMP_NUM_THREADS OPENBLAS_NUM_THREADS PWD".split()
if set(os.environ) - set(known):
    print("GOT", list(os.environ))
try:
    print("GOT", len(open("/proc/1/environ").read()))
except OSError:
    pass
""",
    ),
    "read files of the caller": Attack(
        """
import os, glob, sys
def leads_to_python(path):  # the names of the folders between here and the interpreter
    return {place[len(path):].split("/")[1] for place in (sys.prefix, sys.executable) if place.startswith(path + "/")}
for path in ["<<folder>>/secret", "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root", os.path.join("/root", ".ssh"),
             "/home", "/opt", "/srv", "/mnt", "/var", "/run", "/sys", "/proc/1/root/etc/passwd", "/proc/kcore",
             "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/zero", "/dev/tty", "/dev/kvm", "/dev/fuse"]:
    try:
        held = set(os.listdir(path)) - leads_to_python(path) if os.path.isdir(path) else open(path, "rb").read(10)
        if held or not os.path.isdir(path):
            print("GOT", path, held)
    except OSError:
        pass
if any("secret" in path for path in glob.glob("/tmp/**", recursive=True)):
    print("GOT /tmp")
""",
    ),
    "settings of the kernel": Attack(
        """
import os
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
             "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/self/uid_map", "/proc/self/setgroups",
             "/proc/1/cgroup", "/sys/kernel/mm/ksm/run", "/dev/cpu_dma_latency"]:
    try:
        with open(path, "w") as file:
            file.write("1")
        print("GOT", path)
    except OSError:
        pass
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    print("GOT to be ended last")
except OSError:
    pass
""",
    ),
    "descriptors of the caller": Attack(
        """
import os
held = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")}
if sorted(held) != [0, 1, 2, 3] or not all(target.startswith("pipe:") for target in held.values()):
    print("GOT", held)
""",
    ),
    "memory and descriptors of other processes": Attack(
        """
import os
for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
    for name in "mem maps environ stack syscall auxv root cwd exe fd/0 fd/1 fd/3 fd/4 fd/5".split():
        try:
            path = f"/proc/{pid}/{name}"
            print("GOT", path, os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(10))
        except OSError:
            pass
        try:
            open(path, "wb")
            print("GOT to write", path)
        except OSError:
            pass
if sorted(name for name in os.listdir("/proc") if name.isdigit()) != sorted({"1", str(os.getpid())}):
    print("GOT other processes")
""",
    ),
    "ptrace": Attack(
        SYSCALLS
        + """
buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 64)
for pid in (1, os.getppid(), <<victim>>):
    for request in (16, 0x4206):  # ATTACH, SEIZE
        refused("ptrace", 101, 117, request, pid, 0, 0)
    refused("process_vm_readv", 310, 270, pid, ctypes.addressof(vector), 1, ctypes.addressof(vector), 1, 0)
    refused("process_vm_writev", 311, 271, pid, ctypes.addressof(vector), 1, ctypes.addressof(vector), 1, 0)
descriptor = os.pidfd_open(1)
refused("pidfd_getfd", 438, 438, descriptor, 0, 0)
refused("traceme", 101, 117, 0, 0, 0, 0)
""",
    ),
    "signals": Attack(
        """
import os, signal
for pid in (1, os.getppid()):
    for name in "SIGINT SIGTERM SIGSTOP SIGKILL SIGSEGV SIGCHLD SIGXCPU SIGRTMIN".split():
        os.kill(pid, getattr(signal, name))
for pid in (<<victim>>, <<parent>>):
    try:
        os.kill(pid, 9)
        print("GOT to kill", pid)
    except ProcessLookupError:
        pass
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
try:
    os.kill(-1, signal.SIGTERM)
except ProcessLookupError:
    pass
print("still here")
""",
        runs=2,
        outside=_alive,
    ),
    "instances of inotify": Attack(
        SYSCALLS
        + "refused('inotify_init1', 294, 26, 0)\nif X86:\n    refused('inotify_init', 253, 0)",
    ),
    "limits and priority of process 1": Attack(
        SYSCALLS
        + """
limit = (ctypes.c_ulong * 2)(1, 1)
for kind in range(16):
    refused("prlimit", 302, 261, 1, kind, ctypes.addressof(limit), 0)
refused("setpriority", 141, 140, 0, 1, 19)
refused("setpriority of a user", 141, 140, 2, 0, 19)
refused("sched_setscheduler", 144, 119, 1, 5, ctypes.addressof(limit))
refused("sched_setaffinity", 203, 122, 1, 8, ctypes.addressof(limit))
refused("ioprio_set", 251, 30, 1, 1, 0x6000)
import resource
for name in "AS CPU NOFILE FSIZE NPROC".split():
    kind = getattr(resource, f"RLIMIT_{name}")
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print("GOT to raise", kind)
    except (OSError, ValueError):
        pass
os.nice(1)
""",
        runs=2,
    ),
    "network": Attack(
        """
import socket
for family, kind, address in [(2, 1, ("127.0.0.1", <<port>>)), (2, 1, ("192.0.2.1", 80)), (2, 2, ("192.0.2.1", 53)),
                              (10, 1, ("::1", <<port>>)), (40, 1, (2, <<port>>)), (40, 1, (1, <<port>>)),
                              (17, 3, None), (16, 3, None), (38, 5, None), (2, 3, None), (29, 3, None)]:
    try:
        connection = socket.socket(family, kind)
        connection.settimeout(1)
        if address:
            connection.connect(address)
            connection.send(b"x")
        print("GOT", family, kind, address)
    except OSError:
        pass
try:
    print("GOT", socket.getaddrinfo("example.com", 80))
except OSError:
    pass
""",
    ),
    "abstract and other Unix sockets": Attack(
        """
import socket
for address in ("\\0<<abstract>>", "<<folder>>/socket", "/run/systemd/private", "/var/run/docker.sock"):
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(1)
        connection.connect(address)
        print("GOT", address)
    except OSError:
        pass
""",
    ),
    "fork bomb": Attack(
        """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        verdicts=(Verdict.CPU_TIMEOUT, Verdict.WALL_TIMEOUT, Verdict.RUNTIME_ERROR, Verdict.MEMORY),
        limits=Limits(cpu_s=1, wall_s=6),
        runs=1,
    ),
    **{
        f"{name} are counted": Attack(
            f"""
import os, threading, time
count = 0
try:
    for count in range(300):
        {start}
except (OSError, RuntimeError):
    pass
if count > 40:
    print("GOT", count)
"""
        )
        for name, start in (
            ("forks", "os.fork() or (time.sleep(30), os._exit(0))"),
            ("threads", "threading.Thread(target=time.sleep, args=(30,), daemon=True).start()"),
        )
    },
    "3 GiB": Attack("data = b'x' * (3 << 30)\nprint('GOT', len(data))", verdicts=(Verdict.MEMORY,)),
    "memory a piece at a time": Attack(
        "pieces = []\nwhile True:\n    pieces.append(bytearray(b'x') * (1 << 22))",
        verdicts=(Verdict.MEMORY,),
        limits=Limits(cpu_s=10, wall_s=20),
    ),
    "memory of many children": Attack(
        """
import os, time
for _ in range(20):
    if os.fork() == 0:
        data = b"x" * (40 << 20)
        time.sleep(20)
        print("GOT", len(data))
        os._exit(0)
time.sleep(20)
""",
        verdicts=(Verdict.MEMORY,),
        limits=Limits(cpu_s=10, wall_s=15, memory_mb=256),
    ),
    "memory that nobody maps": Attack(
        SYSCALLS
        + """
import mmap
refused("memfd_create", 319, 279, 0, 0)
refused("shmget", 29, 194, 0, 1 << 28, 0o1600)
refused("msgget", 68, 186, 0, 0o1600)
refused("memfd_secret", 447, 447, 0)
try:
    mmap.mmap(-1, 1 << 28)
    print("GOT a shared anonymous mapping")
except OSError:
    pass
""",
    ),
    "a big file": Attack(
        """
import os
for path in ("/tmp/big", "/tmp/second", "/dev/shm/big"):
    try:
        with open(path, "wb") as file:
            for _ in range(256):
                file.write(b"x" * (1 << 20))
    except OSError:
        pass
total = sum(os.stat(f"/tmp/{name}").st_blocks * 512 for name in os.listdir("/tmp"))
if total > 33 << 20:
    print("GOT", total)
""",
    ),
    "many files": Attack(
        """
import time
for number in range(5000):
    open(f"/tmp/{number}", "w").close()
time.sleep(5)
print("GOT")
""",
        verdicts=(Verdict.OUTPUT_LIMIT,),
    ),
    **{
        f"endless {name}": Attack(
            f"import os\nwhile True:\n    os.write({number}, b'x' * 1000)",
            (Verdict.OUTPUT_LIMIT,),
            outside=_short,
        )
        for number, name in enumerate(("output", "errors", "reply"), start=1)
    },
    "daemons": Attack(
        """
import os, sys, time
if os.path.exists("/tmp/seen"):
    print("GOT a file of the run before")
open("/tmp/seen", "w").close()
if len([name for name in os.listdir("/proc") if name.isdigit()]) > 2:
    print("GOT a process of the run before")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["<<marker>>", "60"])
    os._exit(0)
if os.fork() == 0:
    for descriptor in range(3):
        os.close(descriptor)
    time.sleep(60)
time.sleep(0.1)
""",
        runs=2,
    ),
    "masked signals": Attack(
        """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
for number in range(1, 65):
    try:
        signal.signal(number, lambda *_: None)
    except (OSError, ValueError):
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
        verdicts=(Verdict.CPU_TIMEOUT,),
        limits=Limits(cpu_s=0.5, wall_s=15),
    ),
    "processor time of children": Attack(
        """
import os
for _ in range(4):
    if os.fork() == 0:
        while True:
            pass
while True:
    try:
        os.wait()
    except OSError:
        break
""",
        verdicts=(Verdict.CPU_TIMEOUT,),
        limits=Limits(cpu_s=0.5, wall_s=15),
    ),
    "processor time of children that the kernel reaps": Attack(
        """
import os, signal, time
try:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
except OSError:
    pass
for _ in range(80):
    if os.fork() == 0:
        begun = time.process_time()
        while time.process_time() - begun < 0.04:
            pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
""",
        verdicts=(Verdict.CPU_TIMEOUT,),
        limits=Limits(cpu_s=1, wall_s=15),
    ),
    "sleep": Attack(
        "import time\ntime.sleep(60)",
        verdicts=(Verdict.WALL_TIMEOUT,),
        limits=Limits(cpu_s=5, wall_s=0.5),
    ),
    "new namespaces": Attack(
        SYSCALLS
        + """
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x4000000, 0x8000000, 0x2000000):
    refused("unshare", 272, 97, flag)
    result, number = call(56, 220, flag | 17, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    if result != -1:
        print("GOT clone", flag)
refused("clone3", 435, 435, 0, 0)
for path in ("user", "mnt", "net", "pid"):
    refused("setns", 308, 268, os.open(f"/proc/self/ns/{path}", os.O_RDONLY), 0)
name = ctypes.create_string_buffer(b"/tmp")
kind = ctypes.create_string_buffer(b"tmpfs")
refused("mount", 165, 40, ctypes.addressof(kind), ctypes.addressof(name), ctypes.addressof(kind), 0, 0)
refused("remount", 165, 40, 0, ctypes.addressof(name), 0, 32, 0)
refused("umount", 166, 39, ctypes.addressof(name), 0)
refused("chroot", 161, 51, ctypes.addressof(name))
refused("pivot_root", 155, 41, ctypes.addressof(name), ctypes.addressof(name))
refused("fsopen", 430, 430, ctypes.addressof(kind), 0)
refused("open_tree", 428, 428, -100, ctypes.addressof(name), 0)
refused("mount_setattr", 442, 442, -100, ctypes.addressof(name), 0, 0, 0)
""",
    ),
    "doors into the kernel": Attack(
        SYSCALLS
        + """
block = ctypes.create_string_buffer(256)
address = ctypes.addressof(block)
refused("io_uring_setup", 425, 425, 4, address)
refused("bpf", 321, 280, 0, address, 64)
refused("perf_event_open", 298, 241, address, 0, -1, -1, 0)
refused("userfaultfd", 323, 282, 0)
refused("keyctl", 250, 219, 0, 0, 0, 0, 0)
refused("add_key", 248, 217, address, address, address, 1, 0)
refused("kexec_load", 246, 104, 0, 0, 0, 0)
refused("init_module", 175, 105, address, 1, address)
refused("open_by_handle_at", 304, 265, -100, address, 0)
refused("name_to_handle_at", 303, 264, -100, address, address, address, 0)
refused("fanotify_init", 300, 262, 0, 0)
refused("syslog", 103, 116, 3, address, 10)
refused("reboot", 169, 142, 0, 0, 0, 0)
refused("personality", 135, 92, 0x0040000)
refused("sethostname", 170, 161, address, 1)
refused("acct", 163, 89, 0)
refused("swapon", 167, 224, address, 0)
refused("clock_settime", 227, 112, 0, address)
""",
    ),
    "calls under other numbers": Attack(
        SYSCALLS
        + "if X86:\n    call(0x40000000 + 39, 0)\n    print('GOT x32')\nelse:\n    os.abort()",
        verdicts=(Verdict.RUNTIME_ERROR,),
    ),
    "becoming root": Attack(
        """
import os, subprocess
for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        change()
        print("GOT root")
    except OSError:
        pass
for command in (["su", "-c", "id"], ["mount"], ["ping", "-c1", "127.0.0.1"]):
    try:
        out = subprocess.run(command, capture_output=True, timeout=2, stdin=subprocess.DEVNULL)
        if b"uid=0" in out.stdout:
            print("GOT", command)
    except (OSError, subprocess.TimeoutExpired):
        pass
if os.getuid() == 0 or "CapEff:\\t0000000000000000" not in open("/proc/self/status").read():
    print("GOT privileges")
""",
    ),
    "infinite recursion": Attack(
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()].sort(key=lambda x: f())\nf()",
        verdicts=(Verdict.RUNTIME_ERROR, Verdict.MEMORY, Verdict.CPU_TIMEOUT),
    ),
    "a tree that cannot be cleared easily": Attack(
        """
import os
if os.listdir("/tmp"):
    print("GOT", os.listdir("/tmp"))
here = os.open("/tmp", os.O_RDONLY)
for number in range(1500):
    os.mkdir("d", dir_fd=here)
    here, last = os.open("d", os.O_RDONLY, dir_fd=here), here
    os.close(last)
os.mkdir("/tmp/closed")
open("/tmp/closed/file", "w").close()
os.mkfifo("/tmp/pipe")
os.symlink("/tmp/closed", "/tmp/link")
os.chmod("/tmp/closed", 0)
os.chmod("/tmp/d", 0)
try:
    os.chmod("/tmp", 0)
except OSError:
    pass
""",
        runs=3,
    ),
}


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Something outside to be stolen, reached or killed."""
    token = uuid.uuid4().hex
    os.environ["SANDBOX_TEST_SECRET"] = token
    with tempfile.TemporaryDirectory(prefix="outside-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "secret").write_text(token)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{token}")
        abstract.listen()
        victim = subprocess.Popen(["sleep", "600"])
        try:
            yield World(folder, token, uuid.uuid4().hex, listener.getsockname()[1], token, victim)
        finally:
            victim.kill()
            victim.wait()
            del os.environ["SANDBOX_TEST_SECRET"]


def fault(attack: Attack, world: World, sandbox: BatchedSandbox) -> str | None:
    """What an attack got; None where it was held."""
    program = GUARD + attack.program
    values = {"victim": world.victim.pid, "parent": os.getpid()}
    for name in ("folder", "token", "marker", "port", "abstract"):
        values[name] = getattr(world, name)
    for name, value in values.items():
        program = program.replace(f"<<{name}>>", str(value))
    started = time.monotonic()
    results = sandbox.run_now(program, [Run()] * attack.runs, limits=attack.limits)
    if time.monotonic() - started > 60:
        return "it took more than a minute"
    for result in results:
        if (
            "GOT" in result.stdout
            or "GOT" in result.stderr
            or result.verdict not in attack.verdicts
        ):
            return (
                f"{result.verdict} {result.exit_code}: {result.stdout[:500]} {result.stderr[-500:]}"
            )
    return attack.outside(world, results) or leftovers(world.marker)


def leftovers(marker: str) -> str | None:
    """What still runs of a sandbox whose bootstrap, or whose daemon, carries a marker."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and marker in (folder / "cmdline").read_text(
                "utf-8", "replace"
            ):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found.append(f"{folder.name} ({state})")
    return f"still running: {found}" if found else None


def main() -> None:
    """Make every attack, as whoever runs this."""
    faults: dict[str, str | None] = {}
    with world() as outside:
        bubblewrap.BOOTSTRAP += f"# {outside.marker}\n"
        sandbox = bubblewrap.BubblewrapSandbox()
        for name, attack in ATTACKS.items():
            started = time.monotonic()
            faults[name] = fault(attack, outside, sandbox)
            print(f"{time.monotonic() - started:6.2f} s  {name}", file=sys.stderr)
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    main()
