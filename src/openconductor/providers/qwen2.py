"""A Qwen2 in numpy. In: a checkpoint folder as training saves it. Out: tokens of texts, and the logits of one step.

The folder holds ``model.safetensors``, ``config.json``, ``tokenizer.json`` and ``conductor.json`` (how the Conductor
was trained to be asked). Sources: arXiv 2407.10671 section 2.2 (the architecture), 2104.09864 (rotary positions).

Not covered: rotary scaling, sliding windows, activations other than SiLU, chat templates (each is a ConfigError).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
from tokenizers import Tokenizer

from openconductor.config import shorten, validate
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions

WEIGHTS = "model.safetensors"
PLAIN_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""The one chat template that is known here: the messages' contents in a row."""

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Cache = list[Floats]
"""Keys and values of each layer, each [B, K, P, D]: B sequences, K key/value heads, P positions, D units a head."""
Positive = Annotated[int, Field(ge=1)]
TokenId = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Described:
    """What ``conductor.json`` says."""

    prompt: PromptOptions
    max_tokens: Positive
    max_steps: Positive = 5
    chat: Literal["plain"] = "plain"


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
    vocab_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive
    max_position_embeddings: Positive
    eos_token_id: TokenId
    pad_token_id: TokenId


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A language model with its tokenizer.

    Attributes:
        described: how it was trained to be asked.
        shape: its sizes.
        weights: by their names in the file, float32; linear ones are [out, in].
    """

    described: Described
    shape: Architecture
    tokenizer: Tokenizer
    weights: dict[str, Floats]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder.

        Raises:
            ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
        """
        described = validate(_read_object(folder / "conductor.json"), Described, where=str(folder / "conductor.json"))
        where = folder / "config.json"
        config = _read_object(where)
        config |= cast("dict[str, object]", config.get("rope_parameters") or {})
        known = {key.name: config[key.name] for key in fields(Architecture) if key.name in config}
        shape = validate(known, Architecture, where=str(where))
        tokenizer = _read_tokenizer(folder / "tokenizer.json")
        for what, got in (("tokens", tokenizer.get_vocab_size()), ("eos_token_id", shape.eos_token_id + 1)):
            if got > shape.vocab_size:
                raise ConfigError(f"{where}: got {what} up to {got - 1}, expected below vocab_size, {shape.vocab_size}")
        chat = folder / "chat_template.jinja"
        if chat.is_file() and (template := chat.read_text(encoding="utf-8")) != PLAIN_CHAT:
            raise ConfigError(
                f"{chat}: got {shorten(template)}, expected the contents in a row, {PLAIN_CHAT!r}; a larger model runs "
                "as transformers:FOLDER"
            )
        made = cls(described, shape, tokenizer, _read_weights(folder / WEIGHTS))
        one = np.zeros((1, 1), np.int64)
        try:
            made.step(one, one + 1, one, made.empty_cache(1))
            fits = f"model.layers.{shape.num_hidden_layers}.input_layernorm.weight" not in made.weights
        except (KeyError, ValueError, IndexError) as error:
            raise ConfigError(f"{folder / WEIGHTS}: {error}; expected the weights of config.json's sizes") from error
        if not fits or len(made.weights["model.embed_tokens.weight"]) != shape.vocab_size:
            raise ConfigError(f"{folder / WEIGHTS}: got more layers or other tokens than config.json names")
        return made

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; the spelling of a special token in it is text like any other."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

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
        frequencies = np.float32(shape.rope_theta) ** -(np.arange(0, units, 2, dtype=np.float32) / np.float32(units))
        angles = places.astype(np.float32)[:, None, :, None] * frequencies  # [B, 1, T, D / 2]
        turn = np.cos(angles), np.sin(angles)
        hidden = self.weights["model.embed_tokens.weight"][ids.reshape(-1)]  # [B x T, C], as everywhere below
        present: Cache = []
        for layer in range(shape.num_hidden_layers):
            name = f"model.layers.{layer}"
            read = self._norm(f"{name}.input_layernorm", hidden)
            mixed, held = self._attention(f"{name}.self_attn", read, seen, turn, cache[2 * layer : 2 * layer + 2])
            hidden = hidden + mixed
            present += held
            read = self._norm(f"{name}.post_attention_layernorm", hidden)
            gate = self._linear(f"{name}.mlp.gate_proj", read)
            with np.errstate(over="ignore"):  # exp of a large number is infinity, and the gate shut
                gate = gate / (np.float32(1) + np.exp(-gate))
            hidden = hidden + self._linear(f"{name}.mlp.down_proj", gate * self._linear(f"{name}.mlp.up_proj", read))
        last = self._norm("model.norm", hidden.reshape(batch, new, -1)[:, -1])
        return self._linear("model.embed_tokens" if shape.tie_word_embeddings else "lm_head", last), present

    def _linear(self, name: str, x: Floats) -> Floats:
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _norm(self, name: str, x: Floats) -> Floats:
        size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.shape.rms_norm_eps))
        return cast("Floats", x / size * self.weights[f"{name}.weight"])

    def _attention(
        self, name: str, x: Floats, seen: NDArray[np.bool_], turn: tuple[Floats, Floats], past: Cache
    ) -> tuple[Floats, Cache]:
        """Grouped-query attention over the cached and the new positions; G query heads share each of K keys."""
        batch, new = seen.shape[0], seen.shape[3]
        shared, units = past[0].shape[1], past[0].shape[3]

        def heads(part: str) -> Floats:  # [B x T, heads x D] to [B, heads, T, D]
            return self._linear(f"{name}.{part}", x).reshape(batch, new, -1, units).transpose(0, 2, 1, 3)

        query = _rotated(heads("q_proj"), turn).reshape(batch, shared, -1, new, units)  # [B, K, G, T, D]
        key = np.concatenate((past[0], _rotated(heads("k_proj"), turn)), axis=2)  # [B, K, P + T, D]
        value = np.concatenate((past[1], heads("v_proj")), axis=2)
        scores = query @ key[:, :, None].swapaxes(3, 4) * np.float32(units**-0.5)
        # Not minus infinity: a padded position sees nothing at all, and its softmax must still be a number.
        scores = np.where(seen, scores, np.finfo(np.float32).min)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value[:, :, None]).transpose(0, 3, 1, 2, 4).reshape(batch * new, -1)
        return self._linear(f"{name}.o_proj", mixed), [key, value]


def _rotated(heads: Floats, turn: tuple[Floats, Floats]) -> Floats:
    """Turn the pairs (unit i, unit i + D / 2) of each head by the position's angles (arXiv 2104.09864)."""
    cosine, sine = turn
    half = cosine.shape[3]
    first, second = heads[..., :half], heads[..., half:]
    turned = np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=3)
    return cast("Floats", turned)


def _read_object(path: Path) -> dict[str, object]:
    """A JSON file that holds an object."""
    _must_exist(path)
    try:
        read = cast(object, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or not JSON
        raise ConfigError(f"{path}: {error}; expected a JSON object") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{path}: got {shorten(read)}, expected a JSON object")
    return cast("dict[str, object]", read)


def _must_exist(path: Path) -> None:
    if path.is_file():
        return
    if path.name == WEIGHTS and path.with_name("model.onnx").is_file():
        raise ConfigError(
            f"{path}: no such file, but model.onnx, which earlier versions ran; expected the weights that it was "
            f"exported from: the folder `conductor` of its training run holds {WEIGHTS}, so name that folder"
        )
    raise ConfigError(
        f"{path}: no such file; expected a trained Conductor: {WEIGHTS}, tokenizer.json, config.json, conductor.json"
    )


def _read_tokenizer(path: Path) -> Tokenizer:
    _must_exist(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        if type(error) is not Exception:  # the library raises nothing narrower
            raise
        raise ConfigError(f"{path}: cannot be read: {error}; expected a tokenizer as `tokenizers` saves it") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a question that spells "<end>" does not end anything
    return tokenizer


def _read_weights(path: Path) -> dict[str, Floats]:
    _must_exist(path)
    try:
        return {name: weight.astype(np.float32) for name, weight in load_file(path).items()}
    except (OSError, SafetensorError, KeyError, TypeError) as error:  # the last two: a kind of number unknown to numpy
        raise ConfigError(f"{path}: cannot be loaded: {error!r}; expected weights that training saved") from error
