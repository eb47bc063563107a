"""The tiny Conductor: a Qwen2-architecture causal LM of a few hundred thousand parameters.

In: sizes and a seed. Out: a fresh model, or one loaded from a checkpoint folder together with its tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from openconductor.errors import ConfigError
from openconductor.training.tokenizer import end_id, pad_id

if TYPE_CHECKING:
    from openconductor.training.config import ModelConfig


def build_model(config: ModelConfig, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> Qwen2ForCausalLM:
    """A fresh model with weights drawn by seed."""
    torch.manual_seed(seed)
    architecture = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id(tokenizer),
        pad_token_id=pad_id(tokenizer),
        use_sliding_window=False,
        initializer_range=config.initializer_range,
    )
    return Qwen2ForCausalLM(architecture).float()


def load_model(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Load a checkpoint of the tiny Conductor.

    Raises:
        ConfigError: the folder holds no checkpoint, one of another architecture, or one whose weights do not fit it.
    """
    described = folder / "config.json"
    if not described.is_file():
        raise ConfigError(f"checkpoint {folder}: found no config.json, expected a folder saved by training")
    architecture = json.loads(described.read_text(encoding="utf-8")).get("model_type")
    if architecture != "qwen2":
        raise ConfigError(f"checkpoint {folder}: got architecture {architecture!r}, expected 'qwen2'")
    loaded = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    model, found = cast("tuple[Qwen2ForCausalLM, dict[str, object]]", loaded)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if wrong := found.get(what):  # transformers fills what is missing with random numbers, and only warns
            raise ConfigError(f"checkpoint {folder}: {what.replace('_', ' ')} in its weights: {wrong}, expected none")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return model, tokenizer


def is_tiny(name: str) -> bool:
    """Whether a name is the folder of a tiny Conductor that was saved here."""
    return (Path(name) / "conductor.json").is_file()


def load_base_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a base model from a folder or a hub, as its own configuration says; tiny Conductors from their folder.

    Raises:
        ConfigError: it cannot be loaded; the message names it and the cause.
    """
    if is_tiny(name):
        return load_model(Path(name))
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype="auto"), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.base {name!r}: could not be loaded: {error}") from error
