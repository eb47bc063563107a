"""A trained tiny Conductor as a provider: a Qwen2 in numpy, in this process.

A checkpoint folder holds ``model.safetensors``, ``config.json``, ``tokenizer.json`` and
``conductor.json`` (how the Conductor was trained to be asked). Sources: arXiv 2407.10671 section
2.2 (the architecture), 2104.09864 (rotary positions). Not covered: rotary scaling, sliding windows,
activations other than SiLU, chat templates other than the messages' contents in a row (each is a
ConfigError). ``batching`` collects calls into batches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]
from tokenizers import Tokenizer

from openconductor.config import shorten, validate
from openconductor.errors import ConfigError
from openconductor.providers.batching import BatchingProvider, BatchRow, pad_prompts
from openconductor.providers.conductor_file import ConductorFile, read_conductor_file
from openconductor.types import Sampling

WEIGHTS = "model.safetensors"
# The only chat template that runs here: the messages' contents in a row.
PLAIN_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MAX_BATCH = 64  # the most calls generated together

T = TypeVar("T")
Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
# Keys and values of each layer, in turn. Each is [B, K, P, D]: B sequences, K key/value heads, P
# positions, D units a head.
Cache = list[Floats]


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Architecture:
    """The keys of ``config.json`` that a computation needs; other keys are ignored."""

    model_type: Literal["qwen2"]
    hidden_act: Literal["silu"]
    use_sliding_window: Literal[False]
    rope_type: Literal["default"]
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    max_position_embeddings: PositiveInt
    eos_token_id: NonNegativeInt
    pad_token_id: NonNegativeInt


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A language model with its tokenizer.

    Attributes:
        described: how the Conductor was trained to be asked.
        shape: the sizes.
        tokenizer: as ``tokenizers`` reads it.
        weights: by their names in the file, float32, linear ones [out, in].
    """

    described: ConductorFile
    shape: Architecture
    tokenizer: Tokenizer
    weights: dict[str, Floats]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder.

        Raises:
            ConfigError: a file is missing, malformed, or does not fit the others; the message names
                it.
        """
        described = read_conductor_file(folder)
        shape = _read_architecture(folder / "config.json")
        tokenizer = _read(
            folder / "tokenizer.json", _parse_tokenizer, "a tokenizer as `tokenizers` saves it"
        )
        last = max(tokenizer.get_vocab_size() - 1, shape.eos_token_id, shape.pad_token_id)
        if last >= shape.vocab_size:
            raise ConfigError(
                f"{folder / 'config.json'}: got tokens up to {last}, "
                f"expected below vocab_size, {shape.vocab_size}"
            )
        _check_chat(folder / "chat_template.jinja")

        def parse(path: Path) -> Self:
            loaded = cast("dict[str, NDArray[np.generic]]", load_file(path))
            weights = {name: array.astype(np.float32) for name, array in loaded.items()}
            checkpoint = cls(described, shape, tokenizer, weights)
            checkpoint.check()
            return checkpoint

        return _read(
            folder / WEIGHTS, parse, "the weights that training saved, of config.json's sizes"
        )

    def check(self) -> None:
        """Try the weights on one token.

        Raises:
            ValueError, KeyError: they do not fit the sizes.
        """
        zero = np.zeros((1, 1), np.int64)
        self.step(zero, zero + 1, zero, self.empty_cache(1))
        next_layer = f"model.layers.{self.shape.num_hidden_layers}.input_layernorm.weight"
        tokens = len(self.weights["model.embed_tokens.weight"])
        if next_layer in self.weights or tokens != self.shape.vocab_size:
            raise ValueError("more layers or other tokens than config.json names")

    def empty_cache(self, batch: int) -> Cache:
        """Return the cache of a batch before its first token."""
        shape = self.shape
        size = (batch, shape.num_key_value_heads, 0, shape.hidden_size // shape.num_attention_heads)
        return [np.zeros(size, np.float32)] * (2 * shape.num_hidden_layers)

    def step(self, ids: Ids, mask: Ids, places: Ids, cache: Cache) -> tuple[Floats, Cache]:
        """Read T new tokens of each sequence, after P cached ones.

        Args:
            ids: the tokens [B, T].
            mask: 0 at padding [B, P + T].
            places: positions of the tokens [B, T].
            cache: keys and values of the P earlier positions.

        Returns:
            The last position's logits [B, V], and the cache with the new positions.
        """
        shape = self.shape
        batch, new = ids.shape
        total = mask.shape[1]
        earlier = np.tri(new, total, total - new, dtype=np.bool_)
        seen = earlier & (mask[:, None, None, None, :] > 0)  # [B, 1, 1, T, P + T]
        turn = self._angles(places)
        # [B x T, C], as everywhere below
        hidden = self.weights["model.embed_tokens.weight"][ids.reshape(-1)]
        new_cache: Cache = []
        for layer in range(shape.num_hidden_layers):
            name = f"model.layers.{layer}"
            past = cache[2 * layer : 2 * layer + 2]
            normed = self._norm(f"{name}.input_layernorm", hidden)
            mixed, present = self._attention(f"{name}.self_attn", normed, seen, turn, past)
            hidden = hidden + mixed
            new_cache += present
            normed = self._norm(f"{name}.post_attention_layernorm", hidden)
            hidden = hidden + self._feed_forward(f"{name}.mlp", normed)
        last = self._norm("model.norm", hidden.reshape(batch, new, -1)[:, -1])
        head = "model.embed_tokens" if shape.tie_word_embeddings else "lm_head"
        return self._linear(head, last), new_cache

    def _angles(self, places: Ids) -> tuple[Floats, Floats]:
        """Return the cosines and sines of positions [B, T], each [B, 1, T, D / 2]."""
        shape = self.shape
        units = shape.hidden_size // shape.num_attention_heads
        exponents = np.arange(0, units, 2, dtype=np.float32) / np.float32(units)
        frequencies = np.float32(shape.rope_theta) ** -exponents
        angles = places.astype(np.float32)[:, None, :, None] * frequencies
        return np.cos(angles), np.sin(angles)

    def _linear(self, name: str, x: Floats) -> Floats:
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _norm(self, name: str, x: Floats) -> Floats:
        size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.shape.rms_norm_eps))
        return cast("Floats", x / size * self.weights[f"{name}.weight"])

    def _feed_forward(self, name: str, x: Floats) -> Floats:
        gate = self._linear(f"{name}.gate_proj", x)
        with np.errstate(over="ignore"):  # exp of a large number is infinity, and the gate shut
            gate = gate / (np.float32(1) + np.exp(-gate))
        return self._linear(f"{name}.down_proj", gate * self._linear(f"{name}.up_proj", x))

    def _attention(
        self,
        name: str,
        x: Floats,
        seen: NDArray[np.bool_],
        turn: tuple[Floats, Floats],
        past: Cache,
    ) -> tuple[Floats, Cache]:
        """Attend to cached and new positions; G query heads share each of K key heads.

        Returns:
            The mixed values [B x T, C], and the layer's keys and values with the new positions.
        """
        batch = seen.shape[0]
        new = seen.shape[3]
        past_keys, past_values = past
        shared = past_keys.shape[1]
        units = past_keys.shape[3]

        def heads(part: str) -> Floats:  # [B x T, heads x D] to [B, heads, T, D]
            projected = self._linear(f"{name}.{part}", x)
            return projected.reshape(batch, new, -1, units).transpose(0, 2, 1, 3)

        query = _rotate(heads("q_proj"), turn)
        query = query.reshape(batch, shared, -1, new, units)  # [B, K, G, T, D]
        keys = np.concatenate((past_keys, _rotate(heads("k_proj"), turn)), axis=2)
        values = np.concatenate((past_values, heads("v_proj")), axis=2)  # [B, K, P + T, D]
        scores = query @ keys[:, :, None].swapaxes(3, 4) * np.float32(units**-0.5)
        # Not minus infinity: a padded position sees nothing at all, and its softmax must still be a
        # number.
        scores = np.where(seen, scores, np.finfo(np.float32).min)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = scores @ values[:, :, None]
        mixed = mixed.transpose(0, 3, 1, 2, 4).reshape(batch * new, -1)
        return self._linear(f"{name}.o_proj", mixed), [keys, values]


def _rotate(heads: Floats, turn: tuple[Floats, Floats]) -> Floats:
    """Turn the pairs (unit i, unit i + D / 2) of each head by its position's angles."""
    cosine, sine = turn
    first, second = np.split(heads, 2, axis=3)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return cast("Floats", np.concatenate(turned, axis=3))


# ── reading a folder ──────────────────────────────────────────────────────────────────────────────
def _read(path: Path, parse: Callable[[Path], T], expected: str) -> T:
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; expected a trained Conductor: "
            "conductor.json, config.json, tokenizer.json, model.safetensors"
        )
    try:
        return parse(path)
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise ConfigError(f"{path}: cannot be read: {error!r}; expected {expected}") from error


def _read_architecture(path: Path) -> Architecture:
    config = _read(path, _parse_json, "a JSON object")
    config |= cast("dict[str, object]", config.get("rope_parameters") or {})
    known = {key.name: config[key.name] for key in fields(Architecture) if key.name in config}
    return validate(known, Architecture, where=str(path))


def _check_chat(path: Path) -> None:
    if not path.is_file():
        return
    template = path.read_text(encoding="utf-8")
    if template != PLAIN_CHAT:
        raise ConfigError(
            f"{path}: got {shorten(template)}, expected the contents in a row, {PLAIN_CHAT!r}; "
            "a larger model runs as transformers:FOLDER"
        )


def _parse_json(path: Path) -> dict[str, object]:
    return {**cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))}


def _parse_tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a question that spells "<end>" does not end anything
    return tokenizer


# ── the provider ──────────────────────────────────────────────────────────────────────────────────
class TinyProvider(BatchingProvider):
    """A trained Conductor, read from its checkpoint folder, on one thread of this process.

    ``prompt_options``, ``max_steps``, ``trained_with`` and ``sampling`` (greedy, up to the
    checkpoint's ``max_tokens``) are those it was trained with. ``identity`` holds the folder, and
    the size and the time of the weights.

    Attributes:
        folder: where it was read from.

    Raises:
        ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path)
        self._checkpoint = Checkpoint.read(self.folder)
        described = self._checkpoint.described
        shape = self._checkpoint.shape
        weights = (self.folder / WEIGHTS).stat()
        self.prompt_options = described.prompt
        self.sampling = Sampling(max_tokens=described.max_tokens)
        self.max_steps = described.max_steps
        self.trained_with = described.trained_with
        self.identity = f"tiny {self.folder.resolve()} {weights.st_size} {weights.st_mtime_ns}"
        super().__init__(
            "tiny",  # for all checkpoints: two threads on all cores are ten times slower
            positions=shape.max_position_embeddings,
            max_tokens=described.max_tokens,
            ends=(shape.eos_token_id,),
            batch=MAX_BATCH,
        )

    def __repr__(self) -> str:
        return f"TinyProvider({str(self.folder)!r})"

    def _check_body(self, sampling: Sampling) -> None:
        if sampling.body:
            raise ConfigError(
                f"sampling.body: got {dict(sampling.body)!r}; a tiny Conductor takes none"
            )

    def _encode(self, row: BatchRow) -> list[int]:
        text = "".join(message.content for message in row.messages)
        return self._checkpoint.tokenizer.encode(text, add_special_tokens=False).ids

    def _decode(self, ids: Sequence[int]) -> str:
        return self._checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True)

    def _generate(self, rows: list[BatchRow]) -> None:
        checkpoint = self._checkpoint
        ids, mask = pad_prompts(rows, checkpoint.shape.pad_token_id)
        places = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
        cache = checkpoint.empty_cache(len(rows))
        with threadpool_limits(1, "blas"):
            while rows:
                started = time.perf_counter()
                logits, cache = checkpoint.step(ids, mask, places, cache)
                tokens = _choose(logits, rows)
                share = (time.perf_counter() - started) / len(rows)
                for row, token in zip(rows, tokens.tolist(), strict=True):
                    row.seconds += share
                    self._take(row, token)
                kept = [index for index, row in enumerate(rows) if not row.over]
                rows = [rows[index] for index in kept]
                ids = tokens[kept, None]
                places = places[kept, -1:] + 1
                mask = np.hstack((mask[kept], np.ones_like(ids)))
                cache = [held[kept] for held in cache]


def _choose(logits: Floats, rows: Sequence[BatchRow]) -> Ids:
    """Return each row's next token [B]: the likeliest, or one drawn at the row's temperature."""
    tokens: Ids = logits.argmax(axis=1)
    for index, row in enumerate(rows):
        if row.draws is not None:
            scaled = logits[index].astype(np.float64)
            mass = np.exp((scaled - scaled.max()) / (row.sampling.temperature or 1.0)).cumsum()
            point = row.draws.random() * mass[-1]
            tokens[index] = min(int((mass <= point).sum()), len(mass) - 1)
    return tokens
