"""Learning: a cold start, imitation, and GRPO through TRL.

Needs the extra ``train`` (torch, transformers, trl); importing this package alone does not import
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.config import needing

if TYPE_CHECKING:
    from openconductor.training.run import train as train


def __getattr__(name: str) -> object:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needing("training", "train"):
        from openconductor.training.run import train

    return train
