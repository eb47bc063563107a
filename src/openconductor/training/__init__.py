"""Learning: a cold start, then GRPO through TRL. In: a recipe. Out: a run folder with checkpoints and curves.

Needs the extra ``train`` (torch, transformers, trl); importing this package alone does not import them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.training.run import train as train

_NEEDED = ("torch", "transformers", "trl", "datasets", "peft")


def __getattr__(name: str) -> object:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra()
    from openconductor.training.run import train

    return train


def require_extra() -> None:
    """Make sure that the libraries of learning are installed.

    Raises:
        ConfigError: one is missing; the message says the command that installs it.
    """
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise ConfigError(f'training: {", ".join(missing)} not installed; pip install "openconductor[train]"')
