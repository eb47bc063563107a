"""The container backend, with a stand-in for the engine that uses bubblewrap."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Verdict
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox
from openconductor.sandboxes.docker import DockerSandbox
from openconductor.sandboxes.encoding import encode

# What stands before the image is the engine's business; behind it stand the program and its
# arguments.
ENGINE = """#!/bin/sh
[ "$1" = version ] && exit 0
while [ "$1" != "python:3.11-slim" ]; do shift; done
shift; shift
exec {bwrap} --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp \\
    --unshare-pid --as-pid-1 --die-with-parent --chdir / --clearenv -- {python} "$@"
"""


@pytest.fixture
def sandbox(
    bubblewrap: BubblewrapSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DockerSandbox:
    script = tmp_path / "docker"
    script.write_text(
        ENGINE.format(bwrap=shutil.which("bwrap"), python=os.path.realpath(sys.executable))
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return DockerSandbox()


def test_a_program_runs_in_a_container(sandbox: DockerSandbox, tmp_path: Path) -> None:
    program = "import os\nprint(input(), os.getcwd(), os.listdir('/tmp'), os.getpid() > 1)\n"
    program += "open('/tmp/left', 'w').close()"
    first, second = sandbox.run_now(program, [Run("a"), Run("b")], limits=Limits())
    assert (first.verdict, first.stdout, first.level) == (Verdict.OK, "a /tmp [] True\n", "docker")
    assert second.stdout == "b /tmp [] True\n"
    assert not Path("/tmp/left").exists() and tmp_path.exists()

    call = Run("", "f", [((3,), {}, False)])
    (result,) = sandbox.run_now("def f(n): return (n, {n})", [call], limits=Limits())
    assert (result.verdict, result.replies) == (Verdict.OK, (encode((3, {3})),))


def test_an_engine_that_gives_no_container_runs_nothing(
    sandbox: DockerSandbox, tmp_path: Path
) -> None:
    """Its folder would be the machine's own /tmp, and everybody's processes within reach."""
    (tmp_path / "docker").write_text(
        '#!/bin/sh\nwhile [ "$1" != python:3.11-slim ]; do shift; done\n'
        f'shift; shift\nexec {sys.executable} "$@"\n'
    )
    with tempfile.NamedTemporaryFile(dir="/tmp") as canary:
        with pytest.raises(SandboxError, match="expected process 1, alone in a namespace"):
            sandbox.run_now("print(1)", [Run()], limits=Limits())
        assert Path(canary.name).exists()


def test_a_container_has_nothing_of_the_callers(
    sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "seen")
    with DockerSandbox(image="some/image").launching(
        Limits(memory_mb=100, file_mb=7, processes=9)
    ) as launch:
        asked = " ".join(launch.command)
    for option in (
        *(
            "run --rm --interactive --pull never --network none --read-only --user 65534:65534",
            "--cap-drop ALL",
        ),
        *(
            "--security-opt no-new-privileges",
            "--memory 171m --memory-swap 171m",
            "--pids-limit 11",
            "--ipc none",
        ),
        "--tmpfs /tmp:rw,nosuid,nodev,mode=1777,size=7m,nr_inodes=2048",
    ):
        assert option in asked
    assert " some/image python " in asked and "--volume" not in asked and "--mount" not in asked
    assert "A_SECRET" not in launch.environment and "A_SECRET" not in asked
    assert "private" not in launch.setup, "the default: a namespace of its own"
    assert launch.same_python is False, "text is sent, for whatever Python is there"


def test_an_engine_is_asked_whether_its_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="docker or podman"):
        DockerSandbox()
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(SandboxError, match="service answers"):
        DockerSandbox()
