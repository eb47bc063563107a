"""Docker or Podman: a container a problem, where there is no bubblewrap (macOS) or where it is not allowed.

In: limits. Out: the command that starts a container without network, capabilities, new privileges
or anything of the caller's, read-only but for a private /tmp, with the limits of its control group
on memory and processes, and ``supervisor`` as process 1. The system-call filter is the engine's
own.

Not covered: what Docker's default filter lets through (ptrace among the program's own processes,
ignoring SIGCHLD); a container takes some hundred milliseconds to start, which is most of the time
of a short problem.
"""

from __future__ import annotations

import os
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

OVERHEAD_MB = 64
"""What process 1 and the kernel use of the control group's memory."""
CALLERS = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
)
"""What the engine's command, outside of the container, needs of the caller's environment."""
FIXED = (
    *(
        "run",
        "--rm",
        "--interactive",
        "--pull",
        "never",
        "--network",
        "none",
        "--read-only",
        "--user",
        "65534:65534",
    ),
    *(
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--ipc",
        "none",
        "--workdir",
        "/",
    ),
    *(part for name, value in ENVIRONMENT.items() for part in ("--env", f"{name}={value}")),
)


class DockerSandbox(BatchedSandbox):
    """See the module's docstring.

    Args:
        image: holds a ``python`` of version 3.11 or later; its packages can be imported. It is
            never pulled: that would take longer than a program may, so ``docker pull
            python:3.11-slim`` comes first.

    Raises:
        SandboxError: there is neither engine, or its service does not answer.
    """

    level = "docker"

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
        """A Launch; process 1 ends the container when its input ends, and --rm removes it."""
        memory = f"{limits.memory_mb + limits.file_mb + OVERHEAD_MB}m"
        limited = (
            "--memory",
            memory,
            "--memory-swap",
            memory,
            "--pids-limit",
            str(limits.processes + 2),
        )
        folder = f"/tmp:rw,nosuid,nodev,mode=1777,size={limits.file_mb}m,nr_inodes=2048"  # noqa: S108 - its own
        flags = [flag for flag in PYTHON_FLAGS if flag != "-S"]  # for the packages of the image
        python = (self._image, "python", *flags, "-c", BOOTSTRAP)
        environment = {name: os.environ[name] for name in CALLERS if name in os.environ}
        command = (self._engine, *FIXED, *limited, "--tmpfs", folder, *python)
        yield Launch(command, {}, environment=environment, same_python=False)
