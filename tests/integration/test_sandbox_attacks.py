"""The default sandbox holds hostile programs, as root and as a plain user; nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lazy_loader
import pytest
from sandbox_attacks import ATTACKS, World, fault, leftovers, world

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict, bubblewrap, session
from openconductor.sandboxes.encoding import encode
from openconductor.sandboxes.session import BatchedSandbox

HERE = Path(__file__).parent
NOBODY = 65534
ALLOW_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)
PLAIN_USER: Any = {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@pytest.fixture(scope="module")
def outside() -> Iterator[World]:
    with world() as there:
        yield there


@pytest.fixture(scope="module")
def sandbox(outside: World) -> Iterator[BatchedSandbox]:
    bootstrap = bubblewrap.BOOTSTRAP
    bubblewrap.BOOTSTRAP += f"# {outside.marker}\n"
    try:
        made = bubblewrap.BubblewrapSandbox()
        made.run_now("print(1)", [Run()], limits=Limits())
    except SandboxError as error:
        pytest.skip(f"needs bubblewrap: {error}")
    yield made
    bubblewrap.BOOTSTRAP = bootstrap


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_held(name: str, outside: World, sandbox: BatchedSandbox) -> None:
    assert fault(ATTACKS[name], outside, sandbox) is None


def readable_python() -> str:
    """Return a Python of our version or later that a plain user may run; skip if there is none."""
    question = "import sys, json, select; sys.exit(sys.version_info < (3, 11))"
    ours = os.path.realpath(sys.executable)
    for candidate in (ours, "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            asked = subprocess.run([candidate, "-c", question], **PLAIN_USER, check=False)
            if asked.returncode == 0:
                return candidate
    pytest.skip("needs a Python 3.11 that a plain user may run; root's own lies in a closed folder")


@pytest.fixture
def readable_code(root: Path) -> Iterator[Path]:
    """A copy of code and attacks that a plain user may read, unlike a checkout of root's."""
    left_out = shutil.ignore_patterns("__pycache__", "bundled")
    with tempfile.TemporaryDirectory(prefix="openconductor-readable-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        shutil.copytree(root / "src", place / "src", ignore=left_out)
        for name in ("sandbox_attacks.py", "code_programs.py"):
            shutil.copy(HERE / name, place)
        shutil.copytree(HERE / "programs", place / "programs")
        # What the package needs.
        shutil.copytree(Path(lazy_loader.__file__).parent, place / "src" / "lazy_loader")
        yield place


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have run as a plain user already")
def test_all_attacks_are_held_as_a_plain_user(readable_code: Path, sandbox: BatchedSandbox) -> None:
    done = subprocess.run(
        [readable_python(), "-B", str(readable_code / "sandbox_attacks.py")],
        **PLAIN_USER,
        env={"PYTHONPATH": str(readable_code / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(ATTACKS)


def test_the_attacks_get_through_where_the_filter_is_missing(outside, sandbox, monkeypatch) -> None:
    """Else the table would prove nothing: these are held by the system-call filter alone."""
    monkeypatch.setattr(bubblewrap, "build_filter", lambda machine: ALLOW_ALL)
    open_door = bubblewrap.BubblewrapSandbox()
    for name in ("ptrace", "new namespaces", "memory that nobody maps", "doors into the kernel"):
        assert "GOT" in (fault(ATTACKS[name], outside, open_door) or ""), name
    with suppress(SandboxError):  # where process 1 was given limits that it cannot live with
        assert fault(ATTACKS["limits and priority of process 1"], outside, open_door)


def test_a_big_file_is_held_where_bubblewrap_cannot_size_a_file_system(
    sandbox, monkeypatch
) -> None:
    monkeypatch.setattr(bubblewrap, "SIZES_TMPFS", (99, 0))
    fill = "for name in range(1000):\n    open(f'/tmp/{name}', 'wb').write(b'x' * (1 << 20))\n"
    fill += "print('GOT')"
    (result,) = bubblewrap.BubblewrapSandbox().run_now(fill, [Run()], limits=Limits())
    assert (result.verdict, result.stdout) == (Verdict.OUTPUT_LIMIT, "")


STATE = {"pid": 1, "uid": 61184, "CapEff": "0", "CapPrm": "0", "NoNewPrivs": "1", "Seccomp": "2"}
OTHER = {"pid": 7, "uid": 0, "CapEff": "c0", "CapPrm": "", "NoNewPrivs": "0", "Seccomp": "0"}


@pytest.mark.parametrize("name", STATE)
def test_a_sandbox_that_is_not_what_it_should_be_is_refused(name: str) -> None:
    session.check(STATE, "bubblewrap")
    with pytest.raises(SandboxError, match="expected process 1"):
        session.check({**STATE, name: OTHER[name]}, "bubblewrap")


def test_the_limit_on_memory_counts_what_processes_share_once(sandbox: BatchedSandbox) -> None:
    program = (
        "import os, time\ndata = bytearray(b'x') * (100 << 20)\n"
        "for _ in range(8):\n    if os.fork() == 0:\n        time.sleep(0.5)\n        os._exit(0)\n"
        "for _ in range(8):\n    os.wait()\nprint('shared')"
    )
    (result,) = sandbox.run_now(program, [Run()], limits=Limits(cpu_s=10, memory_mb=300))
    assert (result.verdict, result.stdout) == (Verdict.OK, "shared\n")


LEAVES = "import os\ndef f():\n    os.write(3, %s)\n    os._exit(0)\n"


@pytest.mark.parametrize(
    ("program", "verdict", "replies"),
    [
        (LEAVES % "b'true' + bytes([10])", Verdict.OK, (encode(True),)),
        (LEAVES % "b'no whole line'", Verdict.NO_VERDICT, ()),
        ("import os\nos._exit(0)\ndef f(): return True\n", Verdict.NO_VERDICT, ()),
    ],
    ids=["forged", "broken", "gone"],
)
def test_a_forged_reply_is_only_the_programs_own_value(sandbox, program, verdict, replies) -> None:
    (result,) = sandbox.run_now(program, [Run("", "f", [((), {}, False)])], limits=Limits())
    assert (result.verdict, result.replies) == (verdict, replies)


async def test_a_cancelled_batch_ends_at_once_and_leaves_nothing(
    outside: World, sandbox: BatchedSandbox
) -> None:
    program = "import os, time\nif os.fork() == 0:\n"
    program += f"    os.execv('/bin/sleep', ['{outside.marker}', '60'])\ntime.sleep(60)"
    task = asyncio.create_task(sandbox.run_batch(program, [Run()] * 3, limits=Limits()))
    await asyncio.sleep(0.4)
    assert not task.done()
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 10
    assert leftovers(outside.marker) is None


async def test_the_event_loop_goes_on_while_programs_run(sandbox: BatchedSandbox) -> None:
    sleep = "import time\ntime.sleep(1)"
    batch = asyncio.gather(
        sandbox.run_batch(sleep, [Run()], limits=Limits()),
        sandbox.run_batch(sleep, [Run()], limits=Limits()),
    )
    turns = 0
    while not batch.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert [result.verdict for (result,) in await batch] == [Verdict.OK] * 2
    assert turns > 10, "the loop stood still for as long as a program ran"


def test_a_killed_parent_takes_its_sandboxes_with_it(
    root: Path, outside: World, sandbox: BatchedSandbox
) -> None:
    child = f"""
from openconductor.sandboxes import Limits, Run, bubblewrap
bubblewrap.BOOTSTRAP += "# {outside.marker}\\n"
print("started", flush=True)
bubblewrap.BubblewrapSandbox().run_now("import time\\ntime.sleep(60)", [Run()], limits=Limits())
"""
    command, environment = [sys.executable, "-c", child], {"PYTHONPATH": str(root / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | environment) as parent:
        parent.stdout.readline()
        assert wait_for_leftovers(outside.marker, wanted=True)
        time.sleep(0.2)
        parent.kill()
    assert not wait_for_leftovers(outside.marker, wanted=False)


def wait_for_leftovers(marker: str, *, wanted: bool) -> str | None:
    """Return what is left of a sandbox as soon as there is something, or nothing, as wanted."""
    deadline = time.monotonic() + 60
    while bool(leftovers(marker)) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return leftovers(marker)
