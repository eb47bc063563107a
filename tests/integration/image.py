"""The image of deploy/Containerfile, built and run without a container engine.

Each command of the file runs as it stands there, in bubblewrap: over the files of this machine,
which it cannot change, with what the image has of its own in its place.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Instruction(NamedTuple):
    """An instruction of a Containerfile, and the number of its stage."""

    stage: int
    name: str
    value: str


def read_instructions(file: Path) -> list[Instruction]:
    """Read a Containerfile; what stands before the first FROM is of stage 0."""
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    instructions: list[Instruction] = []
    stage = 0
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            stage += name == "FROM"
            instructions.append(Instruction(stage, name, value))
    return instructions


class Image:
    """The image.

    Args:
        root: the repository.
        folder: an empty folder for the files of the image.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._instructions = read_instructions(root / "deploy" / "Containerfile")
        for name in ("source", "opt", "data", "etc"):
            (folder / name).mkdir()

    def build(self) -> None:
        """Copy what the first stage copies, and run its commands."""
        source = self._folder / "source"
        (workdir,) = self._values(1, "WORKDIR")
        for value in self._values(1, "COPY"):
            *paths, target = value.split()
            for path in paths:
                place = source / target / Path(path).name if len(paths) > 1 else source / target
                if (self._root / path).is_dir():
                    unwanted = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(self._root / path, place, ignore=unwanted)
                else:
                    shutil.copy(self._root / path, place)
        arguments = dict(value.split("=", 1) for value in self._values(1, "ARG"))
        places = {workdir: source, "/opt/openconductor": self._folder / "opt"}
        command = ["bwrap", *_root_without("/opt/openconductor")]
        for inside, outside in places.items():
            command += ["--bind", str(outside), inside]
        command += ["--chdir", workdir]
        environment = {**os.environ, **arguments, "PATH": f"/base:{SYSTEM_PATH}"}
        for step in self._values(1, "RUN"):
            run = [*command, "sh", "-euc", step]
            built = subprocess.run(
                run, env=environment, capture_output=True, text=True, check=False, timeout=600
            )
            assert built.returncode == 0, built.stderr

    @property
    def entry_point(self) -> list[str]:
        """The command of the container, without its arguments."""
        (value,) = self._values(2, "ENTRYPOINT")
        return json.loads(value)

    @property
    def arguments(self) -> list[str]:
        """The default arguments."""
        (value,) = self._values(2, "CMD")
        return json.loads(value)

    @property
    def health_check(self) -> list[str]:
        """The command that says whether the container is healthy."""
        (value,) = self._values(2, "HEALTHCHECK")
        return json.loads(value.partition("CMD ")[2])

    @property
    def user(self) -> str:
        """The user of the container."""
        (value,) = self._values(2, "USER")
        return value

    def run(
        self, command: Sequence[str], files: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the image, whose file system is read-only, without a network.

        Args:
            command: the command.
            files: the texts in /etc/openconductor.
        """
        for name, text in (files or {}).items():
            (self._folder / "etc" / name).write_text(text, "utf-8")
        (workdir,) = self._values(2, "WORKDIR")
        user, _, group = self.user.partition(":")
        run = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
        run += ["--uid", user, "--gid", group]
        run += _root_without("/opt/openconductor", "/etc/openconductor")
        run += ["--ro-bind", str(self._folder / "opt"), "/opt/openconductor"]
        run += ["--ro-bind", str(self._folder / "etc"), "/etc/openconductor"]
        run += ["--bind", str(self._folder / "data"), "/data", "--remount-ro", "/", "--clearenv"]
        for variable, value in self._environment().items():
            run += ["--setenv", variable, value]
        run += ["--die-with-parent", "--chdir", workdir, *command]
        return subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)

    def _environment(self) -> dict[str, str]:
        (value,) = self._values(2, "ENV")
        pairs = dict(pair.split("=", 1) for pair in shlex.split(value))
        return {name: Template(text).substitute(PATH=SYSTEM_PATH) for name, text in pairs.items()}

    def _values(self, stage: int, name: str) -> list[str]:
        return [one.value for one in self._instructions if one[:2] == (stage, name)]


def _root_without(*replaced: str) -> list[str]:
    """Return bubblewrap's options for a root of this machine's files, but for some places."""
    parents = {str(Path(path).parent) for path in replaced}
    base = sys._base_executable  # type: ignore[attr-defined]
    options = ["--symlink", base, "/base/python"]  # as the image below has one
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    entries = [entry for entry in Path("/").iterdir() if entry.name not in {"proc", "dev", "tmp"}]
    for entry in list(entries):
        if str(entry) in parents:
            entries.remove(entry)
            options += ["--dir", str(entry)]
            entries += [inner for inner in entry.iterdir() if str(inner) not in replaced]
    for entry in entries:
        if entry.is_symlink():
            options += ["--symlink", str(entry.readlink()), str(entry)]
        else:
            options += ["--ro-bind-try", str(entry), str(entry)]
    return options
