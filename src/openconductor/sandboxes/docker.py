"""Docker or Podman: a container a problem, where there is no bubblewrap (macOS) or where it is not allowed.

In: limits. Out: the command that starts a container without network, capabilities, new privileges or anything of the
caller's, read-only but for a private /tmp, with the limits of its control group on memory and processes, and
``supervisor`` as process 1. The system-call filter is the engine's own.

Not covered: what Docker's default filter lets through (ptrace among the program's own processes); a container takes
some hundred milliseconds to start, which is most of the time of a short problem.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from openconductor.errors import SandboxError
from openconductor.sandboxes.batches import BatchedSandbox
from openconductor.sandboxes.session import BOOTSTRAP, ENVIRONMENT, PYTHON_FLAGS, Launch
from openconductor.sandboxes.values import Limits

IMAGE = "python:3.11-slim"
ENGINES = ("docker", "podman")
OVERHEAD_MB = 64
"""What process 1 and the kernel use of the control group's memory."""
CALLERS = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_RUNTIME_DIR")
"""What the engine's command, outside of the container, needs of the caller's environment."""


class DockerSandbox(BatchedSandbox):
    """See the module's docstring.

    Args:
        image: holds a ``python`` of version 3.11 or later; its packages can be imported. It is never pulled: that would
            take longer than a program may, so ``docker pull python:3.11-slim`` comes first.
        engine: ``docker`` or ``podman``; None: the first of them on the PATH.
        concurrency: containers at one time; None: half as many again as cores.

    Raises:
        SandboxError: no such engine.
    """

    level = "docker"

    def __init__(self, *, image: str = IMAGE, engine: str | None = None, concurrency: int | None = None) -> None:
        super().__init__(concurrency=concurrency)
        found = next((path for name in ((engine,) if engine else ENGINES) if (path := shutil.which(name))), None)
        if found is None:
            raise SandboxError(f"docker sandbox: got no {engine or ' or '.join(ENGINES)} on the PATH; install one")
        self._engine = found
        self._image = image

    @contextmanager
    def launching(self, limits: Limits) -> Generator[Launch, None, None]:
        """A Launch; process 1 ends the container when its input ends, and --rm removes it."""
        yield Launch(
            command=(self._engine, *self._options(limits), self._image, "python", *self._flags(), "-c", BOOTSTRAP),
            level=self.level,
            setup={
                "uid": None,
                "scratch": "/tmp",  # noqa: S108 - its own
                "private": True,
                "paths": [],
                "count_processes": False,
            },
            environment={name: os.environ[name] for name in CALLERS if name in os.environ},
            isolated=False,
            same_python=False,
        )

    @staticmethod
    def _flags() -> tuple[str, ...]:
        return tuple(flag for flag in PYTHON_FLAGS if flag != "-S")

    def _options(self, limits: Limits) -> list[str]:
        memory = f"{limits.memory_mb + limits.file_mb + OVERHEAD_MB}m"
        options = [
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
        ]
        options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "none", "--workdir", "/"]
        options += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes + 2)]
        options += ["--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={limits.file_mb}m,nr_inodes=2048"]  # noqa: S108 - its own
        for name, value in ENVIRONMENT.items():
            options += ["--env", f"{name}={value}"]
        return options


def engine_answers(engine: str | None = None) -> bool:
    """Whether an engine is installed and its service answers."""
    path = shutil.which(engine) if engine else next(filter(None, map(shutil.which, ENGINES)), None)
    if path is None:
        return False
    try:
        asked = subprocess.run([path, "version"], capture_output=True, check=False, timeout=20)  # noqa: S603 - its own name
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
