"""A trained Conductor as ``model.onnx``, which runs without torch.

In: a checkpoint folder of the tiny Conductor. Out: one file beside the weights, whole or not at all, with a key/value
cache, so that each further token costs one position. The interface (B sequences, T new positions, P cached ones; P may
be 0; K key/value heads of D units):

    input_ids [B, T], attention_mask [B, P + T], position_ids [B, T]                 int64
    past_key_values.<layer>.key and .value [B, K, P, D]                              float32
    logits [B, V] of the last position; present.<layer>.key and .value [B, K, P + T, D]     float32
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2DecoderLayer

from openconductor.errors import ConfigError
from openconductor.training.model import load_model
from openconductor.training.storage import storing

MODEL = "model.onnx"
OPSET = 18
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
    _check_chat(folder, tokenizer)
    cached = CachedQwen2(model).eval()
    content = _to_bytes(cached)
    difference = largest_difference(content, model)
    if not difference <= TOLERANCE:
        raise ConfigError(
            f"checkpoint {folder}: the exported model's logits differ by {difference:.2g}, expected at most {TOLERANCE}"
        )
    path = folder / MODEL
    _write(path, content)
    return path


class CachedQwen2(nn.Module):
    """A Qwen2 whose cache goes in and out as plain tensors; it shares the weights of the model that it is made of.

    Source: arXiv 2407.10671 section 2.2 (grouped-query attention with biases, SwiGLU, RMSNorm, rotary positions).

    Raises:
        ConfigError: the model has rotary scaling, or attention through a sliding window.
    """

    frequencies: Tensor

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        super().__init__()
        config: Qwen2Config = model.config
        if config.use_sliding_window:
            raise ConfigError("checkpoint: got attention through a sliding window, expected full attention")
        rope = cast("dict[str, object]", config.rope_parameters)
        if rope.get("rope_type") != "default":
            raise ConfigError(f"checkpoint: got rotary positions of type {rope.get('rope_type')!r}, expected 'default'")
        self.embed = model.model.embed_tokens
        self.blocks = model.model.layers
        self.norm = model.model.norm
        self.head = model.lm_head
        first = self._layers()[0].self_attn
        self.width: int = first.head_dim
        self.key_heads = first.k_proj.out_features // self.width
        powers = torch.arange(0, self.width, 2, dtype=torch.float32) / self.width
        self.register_buffer("frequencies", cast(float, rope["rope_theta"]) ** -powers, persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """The last position's logits [B, V], then each layer's keys and values [B, K, P + T, D]."""
        new, total = input_ids.shape[1], attention_mask.shape[1]
        bias = self._bias(attention_mask, new, total)
        angles = position_ids[:, None, :, None].float() * self.frequencies
        turn = (angles.cos(), angles.sin())
        hidden = self.embed(input_ids)
        present: list[Tensor] = []
        for index, block in enumerate(self._layers()):
            mixed, key, value = self._attend(
                block.self_attn, block.input_layernorm(hidden), turn, bias, (past[2 * index], past[2 * index + 1])
            )
            hidden = hidden + mixed
            hidden = hidden + block.mlp(block.post_attention_layernorm(hidden))
            present += (key, value)
        return self.head(self.norm(hidden[:, -1])), *present

    def _layers(self) -> Sequence[Qwen2DecoderLayer]:
        return cast("Sequence[Qwen2DecoderLayer]", self.blocks)

    @staticmethod
    def _bias(attention_mask: Tensor, new: int, total: int) -> Tensor:
        """0 where a new position sees a key, else the smallest number, [B, 1, T, P + T].

        Not minus infinity: a padded position sees nothing at all, and its softmax must still be a number.
        """
        places = torch.arange(total, device=attention_mask.device)
        earlier = places[None, :] <= places[total - new :, None]
        seen = earlier[None, None] & (attention_mask[:, None, None, :] > 0)
        return torch.where(seen, 0.0, torch.finfo(torch.float32).min)

    def _attend(
        self, layer: Qwen2Attention, x: Tensor, turn: tuple[Tensor, Tensor], bias: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over past and new positions: the mixed values [B, T, units], all keys, all values."""
        query = _rotate(self._heads(layer.q_proj(x)), turn)
        key = torch.cat((past[0], _rotate(self._heads(layer.k_proj(x)), turn)), dim=2)
        value = torch.cat((past[1], self._heads(layer.v_proj(x))), dim=2)
        groups = query.shape[1] // self.key_heads
        keys, values = (key, value) if groups == 1 else (_repeat(key, groups), _repeat(value, groups))
        scores = query @ keys.transpose(2, 3) * self.width**-0.5 + bias
        mixed = (scores.softmax(dim=-1) @ values).transpose(1, 2)
        return layer.o_proj(mixed.flatten(2)), key, value

    def _heads(self, projected: Tensor) -> Tensor:
        """[B, T, heads x D] to [B, heads, T, D]."""
        return projected.unflatten(2, (-1, self.width)).transpose(1, 2)


def _rotate(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (unit i, unit i + D / 2) of each head by the position's angles (arXiv 2104.09864)."""
    cosine, sine = turn
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _repeat(heads: Tensor, groups: int) -> Tensor:
    """Each key/value head as often as there are query heads that share it."""
    return heads[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)


def cache_names(layers: int, prefix: str) -> list[str]:
    """The names of a cache's tensors, in order; ``prefix`` is ``past_key_values`` or ``present``."""
    return [f"{prefix}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


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


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _load(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ConfigError(f"checkpoint {folder}: found no {name}, expected a folder saved by training")
    try:
        return load_model(folder)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"checkpoint {folder}: cannot be loaded: {error}; expected a whole checkpoint") from error


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


def _to_bytes(cached: CachedQwen2) -> bytes:
    layers, heads, width = len(cached.blocks), cached.key_heads, cached.width
    batch, new, past = (torch.export.Dim(name, min=least) for name, least in (("batch", 1), ("new", 1), ("past", 0)))
    sequence = {0: batch, 1: new}
    # Sizes of 0 and 1 would be taken as fixed ones, and one tensor in two places as one input.
    ids, places, mask = (torch.zeros(2, length, dtype=torch.long) for length in (3, 3, 8))
    cache = [torch.zeros(2, heads, 5, width) for _ in range(2 * layers)]
    with _quiet():
        program = torch.onnx.export(
            cached,
            (ids, mask, places, cache),
            input_names=["input_ids", "attention_mask", "position_ids", *cache_names(layers, "past_key_values")],
            output_names=["logits", *cache_names(layers, "present")],
            dynamic_shapes=(
                sequence,
                {0: batch, 1: torch.export.Dim.DYNAMIC},
                sequence,
                [{0: batch, 2: past}] * len(cache),
            ),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise AssertionError("torch.onnx.export(dynamo=True) returned no program")
    return _anonymous(program.model_proto).SerializeToString(deterministic=True)


def _anonymous(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without the exporter's notes: they hold stack traces, and with them the paths of this machine."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    del graph.value_info[:]
    for given in graph.input:
        if given.name == "attention_mask":
            given.type.tensor_type.shape.dim[1].dim_param = "past + new"  # the exporter knows no better name than s53
    return model


@contextmanager
def _quiet() -> Generator[None]:
    """The exporter's own warnings and progress are about its insides."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _write(path: Path, content: bytes) -> None:
    """Write the file whole: to a neighbour first, which then takes its place."""
    part = path.with_name(path.name + ".part")
    with storing(path):
        try:
            with part.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
