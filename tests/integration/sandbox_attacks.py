"""What hostile programs try in a sandbox, and a way to try all of it as another user.

    python sandbox_attacks.py          (prints {attack: what went wrong, or null} as JSON)

The programs are in ``programs/attacks.md``. Nothing here needs pytest.

They kill and write whatever they can reach. Each one looks first whether it is inside of
a sandbox, and stops where it is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from code_programs import read_programs

from openconductor.sandboxes import Limits, Run, Verdict, bubblewrap
from openconductor.sandboxes.session import BatchedSandbox

GUARD = """
import os
if os.uname().nodename != "sandbox" or os.getppid() != 1 or os.path.exists("/etc/passwd"):
    raise SystemExit("GOT no sandbox: nothing was tried")
"""
SETTING = re.compile(r"^#: (\w+) = (.+)\n", re.MULTILINE)


@dataclass
class World:
    """What there is outside to be stolen, reached or killed."""

    folder: Path
    token: str
    marker: str
    port: int
    victim: subprocess.Popen[bytes]


@dataclass(frozen=True)
class Attack:
    """A hostile program, written with the fields of World in braces of the kind ``<<name>>``."""

    program: str
    verdicts: tuple[Verdict, ...]
    limits: Limits
    runs: int


def read_attack(program: str) -> Attack:
    """Read the settings of a program, which are lines such as ``#: runs = 2``."""
    settings = dict(SETTING.findall(program))
    ends = settings.pop("ends", "ok").split()
    runs = int(settings.pop("runs", "1"))
    limits = {"cpu_s": 4, "wall_s": 15}
    limits |= {name: json.loads(value) for name, value in settings.items()}
    return Attack(program, tuple(map(Verdict, ends)), Limits(**limits), runs)


ATTACKS = {
    name: read_attack(program) for name, program in read_programs("attacks")["Attacks"].items()
}


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Put something outside to be stolen, reached or killed."""
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
            yield World(folder, token, uuid.uuid4().hex, listener.getsockname()[1], victim)
        finally:
            victim.kill()
            victim.wait()
            del os.environ["SANDBOX_TEST_SECRET"]


def fault(attack: Attack, world: World, sandbox: BatchedSandbox) -> str | None:
    """Make an attack; return what it got, None where it was held."""
    program = GUARD + attack.program
    values = {**vars(world), "victim": world.victim.pid, "parent": os.getpid()}
    for name, value in values.items():
        program = program.replace(f"<<{name}>>", str(value))
    started = time.monotonic()
    results = sandbox.run_now(program, [Run()] * attack.runs, limits=attack.limits)
    if time.monotonic() - started > 60:
        return "it took more than a minute"
    for result in results:
        printed = result.stdout + result.stderr
        if "GOT" in printed or result.verdict not in attack.verdicts:
            return f"{result.verdict} {result.exit_code}: {printed[:500]} {printed[-500:]}"
        if len(printed) > 1_000_000:
            return f"{len(printed)} characters came out"
    return damage(world) or leftovers(world.marker)


def damage(world: World) -> str | None:
    """Describe the damage to the folder and the process outside; None: there is none."""
    names = sorted(path.name for path in world.folder.iterdir())
    if names != ["secret"] or (world.folder / "secret").read_text() != world.token:
        return f"the folder outside now holds {names}"
    return None if world.victim.poll() is None else "the process outside was ended"


def leftovers(marker: str) -> str | None:
    """List what still runs of a sandbox whose bootstrap, or whose daemon, carries a marker."""
    running: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker in path.read_text("utf-8", "replace"):
                running.append(path.parent.name)
    return f"still running: {running}" if running else None


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
