"""A trained tiny Conductor as a provider, in this process: a Qwen2 in numpy. In: turns and sampling. Out: a Completion.

A checkpoint folder holds ``model.safetensors``, ``config.json``, ``tokenizer.json`` and
``conductor.json`` (how the Conductor was trained to be asked). Sources: arXiv 2407.10671 section
2.2 (the architecture), 2104.09864 (rotary positions). Not covered: rotary scaling, sliding windows,
activations other than SiLU, chat templates other than the messages' contents in a row (each is a
ConfigError). ``batching`` says how calls become batches.
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
from openconductor.providers.batching import BatchingProvider, BatchRow
from openconductor.providers.conductor_file import ConductorFile, read_conductor_file
from openconductor.types import Sampling

WEIGHTS = "model.safetensors"
PLAIN_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""The one chat template that is known here: the messages' contents in a row."""
MAX_BATCH = 64
"""The most requests generated together."""

T = TypeVar("T")
Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Cache = list[Floats]
"""Keys and values of each layer, each [B, K, P, D]: B sequences, K key/value heads, P positions, D units a head."""


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Architecture:
    """What ``config.json`` says of how to compute; the rest of it is not looked at."""

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
    """A language model with its tokenizer; ``weights`` by their names in the file, float32, linear ones [out, in]."""

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
        where = folder / "config.json"
        config = _read(where, _json, "a JSON object")
        config |= cast("dict[str, object]", config.get("rope_parameters") or {})
        known = {key.name: config[key.name] for key in fields(Architecture) if key.name in config}
        shape = validate(known, Architecture, where=str(where))
        tokenizer = _read(
            folder / "tokenizer.json", _tokenizer, "a tokenizer as `tokenizers` saves it"
        )
        if (
            last := max(tokenizer.get_vocab_size() - 1, shape.eos_token_id, shape.pad_token_id)
        ) >= shape.vocab_size:
            raise ConfigError(
                f"{where}: got tokens up to {last}, expected below vocab_size, {shape.vocab_size}"
            )
        chat = folder / "chat_template.jinja"
        if chat.is_file() and (template := chat.read_text(encoding="utf-8")) != PLAIN_CHAT:
            raise ConfigError(
                f"{chat}: got {shorten(template)}, expected the contents in a row, {PLAIN_CHAT!r}; a larger model runs "
                "as transformers:FOLDER"
            )

        def tried(path: Path) -> Self:
            made = cls(
                described,
                shape,
                tokenizer,
                {name: one.astype(np.float32) for name, one in load_file(path).items()},
            )
            place = np.zeros((1, 1), np.int64)
            made.step(place, place + 1, place, made.empty_cache(1))
            more = f"model.layers.{shape.num_hidden_layers}.input_layernorm.weight" in made.weights
            if more or len(made.weights["model.embed_tokens.weight"]) != shape.vocab_size:
                raise ValueError("more layers or other tokens than config.json names")
            return made

        return _read(
            folder / WEIGHTS, tried, "the weights that training saved, of config.json's sizes"
        )

    def empty_cache(self, batch: int) -> Cache:
        """The cache of a batch of which nothing has been read yet."""
        shape = self.shape
        size = (batch, shape.num_key_value_heads, 0, shape.hidden_size // shape.num_attention_heads)
        return [np.zeros(size, np.float32)] * (2 * shape.num_hidden_layers)

    def step(self, ids: Ids, mask: Ids, places: Ids, cache: Cache) -> tuple[Floats, Cache]:
        """Read T new tokens [B, T] at their places [B, T], after P cached ones; ``mask`` [B, P + T] is 0 at padding.

        Returns:
            The last position's logits [B, V], and the cache with the new positions.
        """
        (batch, new), total, shape = ids.shape, mask.shape[1], self.shape
        earlier = np.tri(new, total, total - new, dtype=np.bool_)
        seen = earlier & (mask[:, None, None, None, :] > 0)  # [B, 1, 1, T, P + T]
        units = shape.hidden_size // shape.num_attention_heads
        frequencies = np.float32(shape.rope_theta) ** -(
            np.arange(0, units, 2, dtype=np.float32) / np.float32(units)
        )
        angles = places.astype(np.float32)[:, None, :, None] * frequencies  # [B, 1, T, D / 2]
        turn = np.cos(angles), np.sin(angles)
        hidden = self.weights["model.embed_tokens.weight"][
            ids.reshape(-1)
        ]  # [B x T, C], as everywhere below
        present: Cache = []
        for layer in range(shape.num_hidden_layers):
            name = f"model.layers.{layer}"
            read = self._norm(f"{name}.input_layernorm", hidden)
            mixed, held = self._attention(
                f"{name}.self_attn", read, seen, turn, cache[2 * layer : 2 * layer + 2]
            )
            hidden = hidden + mixed
            present += held
            read = self._norm(f"{name}.post_attention_layernorm", hidden)
            gate = self._linear(f"{name}.mlp.gate_proj", read)
            with np.errstate(over="ignore"):  # exp of a large number is infinity, and the gate shut
                gate = gate / (np.float32(1) + np.exp(-gate))
            hidden = hidden + self._linear(
                f"{name}.mlp.down_proj", gate * self._linear(f"{name}.mlp.up_proj", read)
            )
        last = self._norm("model.norm", hidden.reshape(batch, new, -1)[:, -1])
        return self._linear(
            "model.embed_tokens" if shape.tie_word_embeddings else "lm_head", last
        ), present

    def _linear(self, name: str, x: Floats) -> Floats:
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _norm(self, name: str, x: Floats) -> Floats:
        size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.shape.rms_norm_eps))
        return cast("Floats", x / size * self.weights[f"{name}.weight"])

    def _attention(
        self,
        name: str,
        x: Floats,
        seen: NDArray[np.bool_],
        turn: tuple[Floats, Floats],
        past: Cache,
    ) -> tuple[Floats, Cache]:
        """Grouped-query attention over the cached and the new positions; G query heads share each of K keys."""
        batch, new = seen.shape[0], seen.shape[3]
        shared, units = past[0].shape[1], past[0].shape[3]

        def heads(part: str) -> Floats:  # [B x T, heads x D] to [B, heads, T, D]
            return (
                self._linear(f"{name}.{part}", x)
                .reshape(batch, new, -1, units)
                .transpose(0, 2, 1, 3)
            )

        query = _rotated(heads("q_proj"), turn).reshape(
            batch, shared, -1, new, units
        )  # [B, K, G, T, D]
        key = np.concatenate((past[0], _rotated(heads("k_proj"), turn)), axis=2)  # [B, K, P + T, D]
        value = np.concatenate((past[1], heads("v_proj")), axis=2)
        scores = query @ key[:, :, None].swapaxes(3, 4) * np.float32(units**-0.5)
        # Not minus infinity: a padded position sees nothing at all, and its softmax must still be a
        # number.
        scores = np.where(seen, scores, np.finfo(np.float32).min)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value[:, :, None]).transpose(0, 3, 1, 2, 4).reshape(batch * new, -1)
        return self._linear(f"{name}.o_proj", mixed), [key, value]


def _rotated(heads: Floats, turn: tuple[Floats, Floats]) -> Floats:
    """Turn the pairs (unit i, unit i + D / 2) of each head by the position's angles (arXiv 2104.09864)."""
    (cosine, sine), (first, second) = turn, np.split(heads, 2, axis=3)
    return cast(
        "Floats",
        np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=3),
    )


def _read(path: Path, parse: Callable[[Path], T], expected: str) -> T:
    if not path.is_file():
        wanted = "expected a trained Conductor: conductor.json, config.json, tokenizer.json, model.safetensors"
        if path.name == WEIGHTS and path.with_name("model.onnx").is_file():
            wanted = "but model.onnx, which earlier versions ran; expected the folder `conductor` of its training run"
        raise ConfigError(f"{path}: no such file; {wanted}")
    try:
        return parse(path)
    except Exception as error:  # a file is what it is; `tokenizers` raises nothing narrower
        raise ConfigError(f"{path}: cannot be read: {error!r}; expected {expected}") from error


def _json(path: Path) -> dict[str, object]:
    return {**cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))}


def _tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a question that spells "<end>" does not end anything
    return tokenizer


# ── the provider ──────────────────────────────────────────────────────────────────────────────────
class TinyProvider(BatchingProvider):
    """A trained Conductor, read from its checkpoint folder, that runs in this process, on one thread.

    ``sampling`` and ``prompt_options`` are what the checkpoint was trained with, and what
    ``Conductor`` takes for its defaults.

    Attributes:
        folder: where it was read from.
        prompt_options: how to ask it.
        sampling: greedy, up to the checkpoint's ``max_tokens``.
        max_steps: the most steps of a workflow that it was trained to write.
        identity: what it is behind its name: the folder, and which model is there (its size and
            time).

    Raises:
        ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path)
        self._checkpoint = Checkpoint.read(self.folder)
        described, shape, model = (
            self._checkpoint.described,
            self._checkpoint.shape,
            (self.folder / WEIGHTS).stat(),
        )
        self.prompt_options = described.prompt
        self.sampling = Sampling(max_tokens=described.max_tokens)
        self.max_steps = described.max_steps
        self.identity = f"tiny {self.folder.resolve()} {model.st_size} {model.st_mtime_ns}"
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
                f"sampling.body: got {dict(sampling.body)!r}; a checkpoint that runs here takes none"
            )

    def _tokens(self, row: BatchRow) -> list[int]:
        text = "".join(message.content for message in row.messages)
        return self._checkpoint.tokenizer.encode(text, add_special_tokens=False).ids

    def _decoded(self, ids: Sequence[int]) -> str:
        return self._checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True)

    def _generate(self, rows: list[BatchRow]) -> None:
        """Complete all requests together; prompts are padded on the left, and a row that is over leaves."""
        checkpoint, longest = self._checkpoint, max(len(row.prompt) for row in rows)
        padding = [longest - len(row.prompt) for row in rows]
        pad = checkpoint.shape.pad_token_id
        ids = np.array(
            [[pad] * less + row.prompt for less, row in zip(padding, rows, strict=True)], np.int64
        )
        mask = np.array([[0] * less + [1] * (longest - less) for less in padding], np.int64)
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
                ids, places = tokens[kept, None], places[kept, -1:] + 1
                mask = np.hstack((mask[kept], np.ones_like(ids)))
                cache = [held[kept] for held in cache]


def _choose(logits: Floats, rows: Sequence[BatchRow]) -> Ids:
    """The next token of each row [B]: the likeliest, or one drawn from the softmax at the row's temperature."""
    tokens: Ids = logits.argmax(axis=1)
    for index, row in enumerate(rows):
        if row.draws is not None:
            scaled = logits[index].astype(np.float64)
            mass = np.exp((scaled - scaled.max()) / (row.sampling.temperature or 1.0)).cumsum()
            tokens[index] = min(int((mass <= row.draws.random() * mass[-1]).sum()), len(mass) - 1)
    return tokens
