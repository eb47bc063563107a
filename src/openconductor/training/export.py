"""A trained Conductor as ``model.onnx``, which runs without torch.

In: a checkpoint folder of the tiny Conductor. Out: one file beside the weights, whole or not at all, with a key/value
cache, so that each further token costs one position. The interface (B sequences, T new positions, P cached ones; P may
be 0; K key/value heads of D units, V tokens):

    input_ids [B, T], attention_mask [B, P + T], position_ids [B, T]                          int64
    past_key_values.<layer>.key and .value [B, K, P, D]                                       float32
    logits [B, V] of the last position; present.<layer>.key and .value [B, K, P + T, D]       float32
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import torch
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from openconductor.errors import ConfigError
from openconductor.providers.onnx_checkpoint import read_tokenizer
from openconductor.storage import write_whole
from openconductor.training.graph import qwen2_graph
from openconductor.training.model import load_model

MODEL = "model.onnx"
TOLERANCE = 1e-3
"""The largest difference to torch, in units of a logit, with which a file is handed out."""


def export_onnx(folder: Path) -> Path:
    """Write a checkpoint's ``model.onnx``; the same checkpoint gives the same bytes.

    The new file is compared with torch, on a padded batch and with a cache, before it takes its place.

    Args:
        folder: a checkpoint that training saved.

    Returns:
        The file's path.

    Raises:
        ConfigError: the folder holds no whole checkpoint, or one of another architecture, or one whose chat template is
            more than the messages' contents in a row; or the exported model does not compute what the checkpoint does.
        JournalError: the disk failed; a ``model.onnx`` that was there before is unchanged.
    """
    folder = Path(folder)
    model, tokenizer = _load(folder)
    _check_architecture(folder, model.config)
    _check_chat(folder, tokenizer)
    content = qwen2_graph(model).SerializeToString(deterministic=True)
    difference = largest_difference(content, model)
    if not difference <= TOLERANCE:
        raise ConfigError(
            f"checkpoint {folder}: the exported model's logits differ by {difference:.2g}, expected at most {TOLERANCE}"
        )
    path = folder / MODEL
    write_whole(path, content)
    return path


def largest_difference(content: bytes, model: Qwen2ForCausalLM) -> float:
    """How far an exported model's logits are from torch's, at most, on random tokens.

    Two left-padded sequences are read at once, as a prompt and then a token at a time through the cache, and each
    position is compared with the logits that the original computes of the whole text without one.
    """
    config: Qwen2Config = model.config
    length = min(12, config.max_position_embeddings)
    ids = torch.randint(config.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, : length // 3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = model.eval()(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    cache = [given for given in session.get_inputs() if given.name.startswith("past_key_values.")]
    past = [np.zeros((2, given.shape[1], 0, given.shape[3]), np.float32) for given in cache]
    worst, start = 0.0, 0
    for end in range(length // 2, length + 1):
        feed = {
            "input_ids": ids[:, start:end].numpy(),
            "attention_mask": mask[:, :end].numpy(),
            "position_ids": positions[:, start:end].numpy(),
            **{given.name: held for given, held in zip(cache, past, strict=True)},
        }
        logits, *past = session.run(None, feed)
        worst = max(worst, float(np.abs(logits - expected[:, end - 1].numpy()).max()))
        start = end
    return worst


def _load(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ConfigError(f"checkpoint {folder}: found no {name}, expected a folder saved by training")
    read_tokenizer(folder / "tokenizer.json")
    try:
        return load_model(folder)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"checkpoint {folder}: cannot be loaded: {error}; expected a whole checkpoint") from error


def _check_architecture(folder: Path, config: Qwen2Config) -> None:
    rope = cast("dict[str, object]", config.rope_parameters)
    for what, got, expected in (
        ("use_sliding_window", config.use_sliding_window, False),
        ("rope_type", rope.get("rope_type"), "default"),
        ("hidden_act", config.hidden_act, "silu"),
    ):
        if got != expected:
            raise ConfigError(f"checkpoint {folder}: {what}: got {got!r}, expected {expected!r}")


def _check_chat(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """What runs the file knows no chat templates: it puts the messages' contents in a row."""
    if tokenizer.chat_template is None:
        return
    chat = [{"role": "system", "content": "One."}, {"role": "user", "content": "Two."}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    if text != "One.Two.":
        raise ConfigError(
            f"checkpoint {folder}: got a chat template that writes {text!r}, expected the contents in a row, 'One.Two.'"
        )
