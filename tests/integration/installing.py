"""Packages that tests fetch from a registry, once, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

NPM_INSTALL = "npm install --no-package-lock --no-audit --no-fund --ignore-scripts"


def node_packages(name: str, package_json: Path) -> Path:
    """Return the packages that a ``package.json`` names; skip where npm cannot have them."""
    return installed(name, package_json, [NPM_INSTALL]) / "node_modules"


def installed(name: str, beside: Path, commands: Sequence[str]) -> Path:
    """Return a folder in the user's cache, with a copy of the file ``beside``, filled by commands;
    skip where they fail.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    known_by = beside.read_bytes() + repr(commands).encode()
    digest = hashlib.sha256(known_by).hexdigest()
    folder = cache / "openconductor-tests" / f"{name}-{digest[:12]}"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(beside, folder)
        try:
            for command in commands:
                words = command.split()
                subprocess.run(words, cwd=folder, capture_output=True, timeout=400, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"what {name} needs cannot be installed: {error}")
        (folder / ".ready").touch()
    return folder
