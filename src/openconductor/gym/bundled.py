"""The Conductor that ships with the package. In: nothing. Out: its folder, as ``Conductor`` takes it.

The folder holds what a training of the gym's recipe wrote, with the record of that run.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from openconductor.errors import ConfigError

FILES = ("conductor.json", "config.json", "model.safetensors", "tokenizer.json")
"""What the Conductor cannot do without; the record of its training lies beside them."""


def bundled_folder() -> Path:
    """The folder of the bundled Conductor.

    Raises:
        ConfigError: it is not there, not whole, or not in plain files (a package that is run from
            an archive).
    """
    folder = files("openconductor.gym") / "bundled"
    if not isinstance(folder, Path):
        raise ConfigError(
            f"the bundled Conductor: got {folder}, expected plain files: install the package unpacked"
        )
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"the bundled Conductor, {folder}: found no {', '.join(missing)}; expected the whole package, or a "
            "Conductor of your own: train one, and name its folder"
        )
    return folder
