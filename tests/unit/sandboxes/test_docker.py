"""The command for a container engine. ``tests/integration/test_sandbox_docker.py`` runs one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits
from openconductor.sandboxes.docker import DockerSandbox


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``docker`` on the PATH that only ever succeeds."""
    script = tmp_path / "docker"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("A_SECRET", "seen")
    return script


def test_a_container_has_nothing_of_the_callers(engine: Path) -> None:
    with DockerSandbox(image="some/image").launching(Limits(memory_mb=100, file_mb=7, processes=9)) as launch:
        asked = " ".join(launch.command)
    assert launch.command[0] == str(engine)
    for option in (
        *(
            "run --rm --interactive --pull never",
            "--network none",
            "--read-only",
            "--user 65534:65534",
            "--cap-drop ALL",
        ),
        *("--security-opt no-new-privileges", "--memory 171m --memory-swap 171m", "--pids-limit 11", "--ipc none"),
        "--tmpfs /tmp:rw,nosuid,nodev,mode=1777,size=7m,nr_inodes=2048",
    ):
        assert option in asked
    assert " some/image python " in asked and "--volume" not in asked and "--mount" not in asked
    assert "A_SECRET" not in launch.environment and "A_SECRET" not in asked
    assert "private" not in launch.setup


def test_what_is_sent_into_a_container_is_text_for_whatever_python_is_there(engine: Path) -> None:
    with DockerSandbox().launching(Limits()) as launch:
        assert launch.same_python is False and sys.executable not in launch.command


def test_an_engine_is_asked_whether_its_service_answers(engine: Path) -> None:
    engine.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SandboxError, match="service answers"):
        DockerSandbox()


def test_no_engine_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="docker or podman"):
        DockerSandbox()
