"""Docker or Podman: a container a problem, where bubblewrap is absent (macOS) or not allowed.

The container has no network, no capabilities, no new privileges and nothing of the caller's. It is
read-only but for a private /tmp. Its control group limits memory and processes; ``supervisor`` is
process 1. The system-call filter is the engine's own.

Not covered: calls that Docker's default filter lets through (ptrace among the program's own
processes, ignoring SIGCHLD). A container takes some hundred milliseconds to start, which is most of
the time of a short problem.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits
from openconductor.sandboxes.session import (
    BOOTSTRAP,
    ENVIRONMENT,
    PYTHON_FLAGS,
    BatchedSandbox,
    Launch,
)

OVERHEAD_MB = 64  # memory of the control group that process 1 and the kernel use
# Variables of the caller's environment that the engine's command, outside the container, needs.
CALLERS = shlex.split("""
    PATH HOME DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG CONTAINER_HOST XDG_RUNTIME_DIR
""")
FIXED = shlex.split("""
    run --rm --interactive --pull never --network none --read-only --user 65534:65534
    --cap-drop ALL --security-opt no-new-privileges --ipc none --workdir /
""")


class DockerSandbox(BatchedSandbox):
    """The backend ``docker``; the module's docstring says what it protects.

    Args:
        image: holds a ``python`` of version 3.11 or later; its packages can be imported. It is
            never pulled, because that would take longer than a program may: run ``docker pull
            python:3.11-slim`` first.

    Raises:
        SandboxError: neither engine is installed, or its service does not answer.
    """

    level = "docker"
    python = ""  # the image's

    def __init__(self, *, image: str = "python:3.11-slim") -> None:
        super().__init__()
        self._image = image
        self._engine = shutil.which("docker") or shutil.which("podman") or ""
        if not self._engine:
            raise SandboxError("docker sandbox: got no docker or podman on the PATH; install one")
        try:
            subprocess.run([self._engine, "version"], capture_output=True, check=True, timeout=20)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxError(
                f"docker sandbox: no Docker or Podman whose service answers: {error}"
            ) from error

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """Yield a Launch. Process 1 ends the container when its input ends, and --rm removes it."""
        command = [self._engine, *FIXED]
        for name, value in ENVIRONMENT.items():
            command += ["--env", f"{name}={value}"]
        memory = f"{limits.memory_mb + limits.file_mb + OVERHEAD_MB}m"
        command += ["--memory", memory, "--memory-swap", memory]
        command += ["--pids-limit", str(limits.processes + 2)]
        size = f"size={limits.file_mb}m,nr_inodes=2048"
        command += ["--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,{size}"]  # noqa: S108 - its own
        flags = [flag for flag in PYTHON_FLAGS if flag != "-S"]  # for the packages of the image
        command += [self._image, "python", *flags, "-c", BOOTSTRAP]
        environment = {name: os.environ[name] for name in CALLERS if name in os.environ}
        yield Launch(tuple(command), {}, environment=environment, same_python=False)
