"""Loading a checkpoint: whole, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'train': pip install 'openconductor[train]'")

from safetensors.torch import load_file, save_file

from openconductor.errors import ConfigError
from openconductor.gym.bundled import bundled_folder
from openconductor.training.checkpoint import load_model

pytestmark = pytest.mark.train


def _copy(folder: Path, **changes: object) -> Path:
    copied = folder / "conductor"
    shutil.copytree(bundled_folder(), copied)
    weights = load_file(copied / "model.safetensors")
    for underscored, tensor in changes.items():
        name = underscored.replace("__", ".")
        if tensor is None:
            del weights[name]
        else:
            weights[name] = tensor  # type: ignore[assignment]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    return copied


def test_a_whole_checkpoint_loads(tmp_path: Path) -> None:
    model, tokenizer = load_model(_copy(tmp_path))
    assert model.config.vocab_size == len(tokenizer)


def test_weights_with_a_tensor_missing_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing keys.*norm\.weight"):
        load_model(_copy(tmp_path, model__norm__weight=None))


def test_weights_with_a_tensor_too_many_are_refused_by_name(tmp_path: Path) -> None:
    weights = load_file(bundled_folder() / "model.safetensors")
    with pytest.raises(ConfigError, match=r"unexpected keys.*spare"):
        load_model(_copy(tmp_path, spare=weights["model.norm.weight"]))
