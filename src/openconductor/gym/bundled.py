"""The Conductor that ships with the package, as a training of the gym's recipe wrote it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from openconductor.errors import ConfigError

FILES = ("conductor.json", "config.json", "model.safetensors", "tokenizer.json")
"""The files that the Conductor needs; the record of its training lies beside them."""


def bundled_folder() -> Path:
    """Return the folder of the bundled Conductor.

    Raises:
        ConfigError: it is missing, not whole, or not in plain files (a package in an archive).
    """
    folder = files("openconductor.gym") / "bundled"
    if not isinstance(folder, Path):
        raise ConfigError(
            f"the bundled Conductor: got {folder}, expected plain files; install the package "
            "unpacked"
        )
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"the bundled Conductor, {folder}: found no {', '.join(missing)}; install the whole "
            "package, or name the folder of a Conductor that you trained"
        )
    return folder
