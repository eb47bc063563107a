"""A checkpoint folder as it runs without torch: onnxruntime, tokenizers and numpy are all that it takes.

In: a folder with ``model.onnx`` (``training/export.py`` describes its interface), ``tokenizer.json``, ``config.json``
and ``conductor.json``. Out: tokens of texts and texts of tokens, and one step of the model for a batch.

``conductor.json`` says how the Conductor was trained: ``prompt`` (the fields of ``PromptOptions``), ``max_tokens``,
``max_steps``, and ``chat``, of which ``"plain"`` (the default: the messages' contents in a row) is the one kind known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from tokenizers import Tokenizer

from openconductor.config import shorten, validate
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]
Cache = list[NDArray[np.float32]]

INPUTS = ("input_ids", "attention_mask", "position_ids")
PAST = "past_key_values."


@dataclass(frozen=True, slots=True)
class Described:
    """What ``conductor.json`` says."""

    prompt: PromptOptions
    max_tokens: int
    max_steps: int = 5
    chat: Literal["plain"] = "plain"


class _Port(Protocol):
    """An input of a session, of which onnxruntime gives no types."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[object]: ...


class _Session(Protocol):
    def get_inputs(self) -> Sequence[_Port]: ...
    def get_outputs(self) -> Sequence[_Port]: ...
    def run(self, names: None, feed: dict[str, NDArray[np.generic]]) -> list[NDArray[np.float32]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A language model with its tokenizer.

    Attributes:
        described: how it was trained to be asked.
        positions: the most tokens of a prompt and its completion together.
        end, pad: the ids of the token that ends a completion, and of the one that fills up a batch.
    """

    described: Described
    positions: int
    end: int
    pad: int
    tokenizer: Tokenizer
    _session: _Session
    _cache: tuple[tuple[str, int, int], ...]  # of each cached tensor: name, heads, units

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder.

        Raises:
            ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
        """
        described = _read_described(folder / "conductor.json")
        where = folder / "config.json"
        config = _read_object(where)
        if config.get("model_type") != "qwen2":
            raise ConfigError(f"{where}: got architecture {config.get('model_type')!r}, expected 'qwen2'")
        words = _whole(config, "vocab_size", where)
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        if (size := tokenizer.get_vocab_size()) > words:
            raise ConfigError(f"{folder / 'tokenizer.json'}: got {size} tokens, expected at most the model's {words}")
        session = _open_session(folder / "model.onnx")
        cache = _check_session(folder / "model.onnx", session, words, _whole(config, "num_hidden_layers", where))
        return cls(
            described,
            _whole(config, "max_position_embeddings", where),
            _whole(config, "eos_token_id", where, below=words),
            _whole(config, "pad_token_id", where, below=words),
            tokenizer,
            session,
            cache,
        )

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; the spelling of a special token in it is text like any other."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def empty_cache(self, batch: int) -> Cache:
        """The cache of a batch of which nothing has been read yet."""
        return [np.zeros((batch, heads, 0, units), np.float32) for _, heads, units in self._cache]

    def step(self, ids: Ids, mask: Ids, places: Ids, cache: Cache) -> tuple[Logits, Cache]:
        """Read T new tokens [B, T] at their places [B, T], after P cached ones; ``mask`` [B, P + T] is 0 at padding.

        Returns:
            The last position's logits [B, V], and the cache with the new positions.
        """
        feed: dict[str, NDArray[np.generic]] = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
        feed |= {name: held for (name, _, _), held in zip(self._cache, cache, strict=True)}
        logits, *present = self._session.run(None, feed)
        return logits, present


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────
def _read_described(path: Path) -> Described:
    described = validate(_read_object(path), Described, where=str(path))
    for name in ("max_tokens", "max_steps"):
        if (got := getattr(described, name)) < 1:
            raise ConfigError(f"{path}: {name}: got {got}, expected at least 1")
    return described


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
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; expected a trained and exported Conductor: model.onnx, tokenizer.json, "
            "config.json, conductor.json"
        )


def _whole(config: dict[str, object], name: str, where: Path, *, below: int | None = None) -> int:
    got = config.get(name)
    if type(got) is not int or got < (1 if below is None else 0) or (below is not None and got >= below):
        expected = "a whole number from 1" if below is None else f"a token's id, from 0 to {below - 1}"
        raise ConfigError(f"{where}: {name}: got {shorten(got)}, expected {expected}")
    return got


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json``.

    Raises:
        ConfigError: there is none, or it is malformed.
    """
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


def _open_session(path: Path) -> _Session:
    """A session on the CPU, with one thread: a model so small loses more by handing work to a second than it saves."""
    _must_exist(path)
    runtime = cast(Any, onnxruntime)  # it has no types
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only: onnxruntime writes its warnings straight to stderr
    try:
        made = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime."):  # its errors share no base but Exception
            raise
        raise ConfigError(f"{path}: cannot be loaded: {error}; expected a model that `export` wrote") from error
    return cast(_Session, made)


def _check_session(path: Path, session: _Session, words: int, layers: int) -> tuple[tuple[str, int, int], ...]:
    """Make sure that a model has the interface of an export; its cached tensors: name, heads, units."""
    ports = {port.name: port.shape for port in session.get_inputs()}
    cached = [f"{PAST}{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    if list(ports) != [*INPUTS, *cached]:
        raise ConfigError(f"{path}: got the inputs {', '.join(ports)}; expected {', '.join((*INPUTS, *cached))}")
    outputs = session.get_outputs()
    if len(outputs) != 1 + len(cached) or list(outputs[0].shape[1:]) != [words]:
        found = ", ".join(f"{port.name} {list(port.shape)}" for port in outputs)
        raise ConfigError(f"{path}: got the outputs {found}; expected logits [batch, {words}] and {len(cached)} caches")
    sizes: list[tuple[str, int, int]] = []
    for name in cached:
        shape = ports[name]
        if len(shape) != 4 or type(shape[1]) is not int or type(shape[3]) is not int:
            raise ConfigError(f"{path}: {name}: got the shape {list(shape)}, expected [batch, heads, past, units]")
        sizes.append((name, shape[1], shape[3]))
    return tuple(sizes)
