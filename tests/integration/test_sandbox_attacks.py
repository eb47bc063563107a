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
from pathlib import Path

import lazy_loader
import pytest
from sandbox_attacks import ATTACKS, World, fault, leftovers, world

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict, bubblewrap, session
from openconductor.sandboxes.encoding import encode
from openconductor.sandboxes.session import BatchedSandbox

NOBODY = 65534
ALLOW_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)


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


def readable_python() -> str | None:
    """Return a Python of our version or later that a plain user may run."""
    question = "import sys, json, select; sys.exit(sys.version_info < (3, 11))"
    for candidate in (
        os.path.realpath(sys.executable),
        "/usr/bin/python3",
        "/usr/local/bin/python3",
    ):
        try:
            asked = subprocess.run(
                [candidate, "-c", question], user=NOBODY, group=NOBODY, extra_groups=[], check=False
            )
        except OSError:
            continue
        if asked.returncode == 0:
            return candidate
    return None


@pytest.fixture
def readable_code(root: Path) -> Iterator[Path]:
    """A copy of code and attacks that a plain user may read, unlike a checkout of root's."""
    with tempfile.TemporaryDirectory(prefix="openconductor-readable-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        shutil.copytree(
            root / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "bundled")
        )
        here = Path(__file__).parent
        shutil.copy(here / "sandbox_attacks.py", place)
        shutil.copy(here / "code_programs.py", place)
        shutil.copytree(here / "programs", place / "programs")
        shutil.copytree(
            Path(lazy_loader.__file__).parent, place / "src" / "lazy_loader"
        )  # what the package needs
        yield place


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have run as a plain user already")
def test_all_attacks_are_held_as_a_plain_user(readable_code: Path, sandbox: BatchedSandbox) -> None:
    python = readable_python()
    if python is None:
        pytest.skip(
            "needs a Python 3.11 that a plain user may run; root's own lies in a closed folder"
        )
    done = subprocess.run(
        [python, "-B", str(readable_code / "sandbox_attacks.py")],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PYTHONPATH": str(readable_code / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    faults = json.loads(done.stdout)
    assert set(faults) == set(ATTACKS)
    assert {name: found for name, found in faults.items() if found} == {}


def test_the_attacks_get_through_where_the_filter_is_missing(outside, sandbox, monkeypatch) -> None:
    """Else the table would prove nothing: these are held by the system-call filter alone."""
    monkeypatch.setattr(bubblewrap, "build_filter", lambda machine: ALLOW_ALL)
    open_door = bubblewrap.BubblewrapSandbox()
    for name in ("ptrace", "new namespaces", "memory that nobody maps", "doors into the kernel"):
        assert "GOT" in (fault(ATTACKS[name], outside, open_door) or ""), name
    try:
        limited = fault(ATTACKS["limits and priority of process 1"], outside, open_door)
    except SandboxError as error:  # process 1 was given limits that it cannot live with
        limited = str(error)
    assert limited


def test_a_big_file_is_held_where_bubblewrap_cannot_size_a_file_system(
    sandbox, monkeypatch
) -> None:
    monkeypatch.setattr(bubblewrap, "SIZES_TMPFS", (99, 0))
    fill = "for name in range(1000):\n    open(f'/tmp/{name}', 'wb').write(b'x' * (1 << 20))\n"
    fill += "print('GOT')"
    (result,) = bubblewrap.BubblewrapSandbox().run_now(fill, [Run()], limits=Limits())
    assert (result.verdict, result.stdout) == (Verdict.OUTPUT_LIMIT, "")


def test_a_sandbox_that_is_not_what_it_should_be_is_refused(sandbox: BatchedSandbox) -> None:
    state = {
        "pid": 1,
        "uid": 61184,
        "CapEff": "0",
        "CapPrm": "0",
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    session.check(state, "bubblewrap")
    for name, value in {
        "pid": 7,
        "uid": 0,
        "CapEff": "c0",
        "CapPrm": "",
        "NoNewPrivs": "0",
        "Seccomp": "0",
    }.items():
        with pytest.raises(SandboxError, match="expected process 1"):
            session.check({**state, name: value}, "bubblewrap")


def test_the_limit_on_memory_counts_what_processes_share_once(sandbox: BatchedSandbox) -> None:
    program = (
        "import os, time\ndata = bytearray(b'x') * (100 << 20)\n"
        "for _ in range(8):\n    if os.fork() == 0:\n        time.sleep(0.5)\n        os._exit(0)\n"
        "for _ in range(8):\n    os.wait()\nprint('shared')"
    )
    (result,) = sandbox.run_now(program, [Run()], limits=Limits(cpu_s=10, memory_mb=300))
    assert (result.verdict, result.stdout) == (Verdict.OK, "shared\n")


def test_a_forged_reply_is_only_the_programs_own_value(sandbox: BatchedSandbox) -> None:
    forge = "import os\ndef f():\n    os.write(3, b'true' + bytes([10]))\n    os._exit(0)\n"
    junk = "import os\ndef f():\n    os.write(3, b'no whole line')\n    os._exit(0)\n"
    early = "import os\nos._exit(0)\ndef f(): return True\n"
    call = Run("", "f", [((), {}, False)])
    forged, broken, gone = (
        sandbox.run_now(text, [call], limits=Limits())[0] for text in (forge, junk, early)
    )
    assert (forged.verdict, forged.replies) == (Verdict.OK, (encode(True),))
    assert (
        (broken.verdict, broken.replies) == (gone.verdict, gone.replies) == (Verdict.NO_VERDICT, ())
    )


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
    batch = asyncio.gather(
        *(
            sandbox.run_batch("import time\ntime.sleep(1)", [Run()], limits=Limits())
            for _ in range(2)
        )
    )
    longest, last = 0.0, time.monotonic()
    while not batch.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert [result.verdict for (result,) in await batch] == [Verdict.OK] * 2
    assert longest < 0.9, "the loop stood still for as long as a program ran"


def test_a_killed_parent_takes_its_sandboxes_with_it(
    root: Path, outside: World, sandbox: BatchedSandbox
) -> None:
    child = f"""
from openconductor.sandboxes import Limits, Run, bubblewrap
bubblewrap.BOOTSTRAP += "# {outside.marker}\\n"
print("started", flush=True)
bubblewrap.BubblewrapSandbox().run_now("import time\\ntime.sleep(60)", [Run()], limits=Limits())
"""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", child], stdout=subprocess.PIPE, env=environment
    ) as parent:
        parent.stdout.readline()
        deadline = time.monotonic() + 20
        while leftovers(outside.marker) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert leftovers(outside.marker) is not None
        time.sleep(0.2)
        parent.kill()
    deadline = time.monotonic() + 10
    while (found := leftovers(outside.marker)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found is None
