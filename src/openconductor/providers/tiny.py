"""A trained tiny Conductor as a provider, in this process: a Qwen2 in numpy. In: turns and sampling. Out: a Completion.

A checkpoint folder holds ``model.safetensors``, ``config.json``, ``tokenizer.json`` and ``conductor.json`` (how the
Conductor was trained to be asked). Sources: arXiv 2407.10671 section 2.2 (the architecture), 2104.09864 (rotary
positions). Not covered: rotary scaling, sliding windows, activations other than SiLU, chat templates other than the
messages' contents in a row (each is a ConfigError).

What is asked at the same time is generated together: calls that come while a batch runs are the next batch. A request's
tokens do not depend on its batch: greedy ones by arithmetic (but for the rounding of floats, some 1e-6 of a logit),
sampled ones because each request draws from a generator of its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from openconductor.config import shorten, validate
from openconductor.errors import ConfigError, ContextTooLong, WorkerError, WorkerTimeout
from openconductor.prompt import PromptOptions
from openconductor.protocols import CallContext, OnText
from openconductor.types import Completion, Message, Sampling, Usage

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
Reply = str | Completion | WorkerError
"""What the thread sends: a piece of text, the end, or the failure."""


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Described:
    """What ``conductor.json`` says."""

    prompt: PromptOptions
    max_tokens: PositiveInt
    max_steps: PositiveInt = 5
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
        where = folder / "conductor.json"
        described = validate(_read(where, _json, "a JSON object"), Described, where=str(where))
        where = folder / "config.json"
        config = _read(where, _json, "a JSON object")
        config |= cast("dict[str, object]", config.get("rope_parameters") or {})
        known = {key.name: config[key.name] for key in fields(Architecture) if key.name in config}
        shape = validate(known, Architecture, where=str(where))
        tokenizer = _read(folder / "tokenizer.json", _tokenizer, "a tokenizer as `tokenizers` saves it")
        if (last := max(tokenizer.get_vocab_size() - 1, shape.eos_token_id, shape.pad_token_id)) >= shape.vocab_size:
            raise ConfigError(f"{where}: got tokens up to {last}, expected below vocab_size, {shape.vocab_size}")
        chat = folder / "chat_template.jinja"
        if chat.is_file() and (template := chat.read_text(encoding="utf-8")) != PLAIN_CHAT:
            raise ConfigError(
                f"{chat}: got {shorten(template)}, expected the contents in a row, {PLAIN_CHAT!r}; a larger model runs "
                "as transformers:FOLDER"
            )

        def tried(path: Path) -> Self:
            made = cls(
                described, shape, tokenizer, {name: one.astype(np.float32) for name, one in load_file(path).items()}
            )
            place = np.zeros((1, 1), np.int64)
            made.step(place, place + 1, place, made.empty_cache(1))
            more = f"model.layers.{shape.num_hidden_layers}.input_layernorm.weight" in made.weights
            if more or len(made.weights["model.embed_tokens.weight"]) != shape.vocab_size:
                raise ValueError("more layers or other tokens than config.json names")
            return made

        return _read(folder / WEIGHTS, tried, "the weights that training saved, of config.json's sizes")

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
    (cosine, sine), (first, second) = turn, np.split(heads, 2, axis=3)
    return cast("Floats", np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=3))


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


# ── the provider ─────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True, eq=False)
class _Request:
    """One call under way; made by its event loop, then filled in by the thread."""

    prompt: list[int]
    limit: int
    temperature: float
    draws: np.random.Generator | None
    stream: DecodeStream | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    replies: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue[Reply])
    over: bool = False
    ids: list[int] = field(default_factory=list[int])
    streamed: int = 0
    seconds: float = 0.0

    def reply(self, said: Reply) -> None:
        with suppress(RuntimeError):  # the loop has closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self.replies.put_nowait, said)


@cache
def _thread(process: int) -> ThreadPoolExecutor:
    """The one thread of a process that generates (two on all cores are ten times slower); a fork has its own."""
    return ThreadPoolExecutor(1, f"openconductor-tiny-{process}")


class TinyProvider:
    """A trained Conductor, read from its checkpoint folder, that runs in this process, on one thread.

    Any number of event loops may call at once, and stay free. ``sampling`` and ``prompt_options`` are what the
    checkpoint was trained with, and what ``Conductor`` takes for its defaults. What runs here costs 0 dollars a call.

    Attributes:
        folder: where it was read from.
        prompt_options: how to ask it.
        sampling: greedy, up to the checkpoint's ``max_tokens``.
        max_steps: the most steps of a workflow that it was trained to write.
        identity: what it is behind its name: the folder, and which model is there (its size and time).

    Raises:
        ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
    """

    prices_itself = True
    may_be_blank = True

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path)
        self._checkpoint = Checkpoint.read(self.folder)
        described, model = self._checkpoint.described, (self.folder / WEIGHTS).stat()
        self.prompt_options: PromptOptions = described.prompt
        self.sampling = Sampling(max_tokens=described.max_tokens)
        self.max_steps = described.max_steps
        self.identity = f"tiny {self.folder.resolve()} {model.st_size} {model.st_mtime_ns}"
        self._waiting: deque[_Request] = deque()

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        """Complete the conversation; ``on_text`` gets the text of each token.

        Greedy where the temperature is None or 0. Otherwise the draws are keyed by ``sampling.seed`` (None is 0), the
        prompt, and the call's sample, round, step and attempt: the same call draws the same text.

        A completion may be blank: that is what the model wrote, and no failure. It ends with ``finish_reason`` "length"
        at ``sampling.max_tokens`` (None: the checkpoint's), or at the model's last position. ``usage.seconds`` is the
        call's share of the time that its batches took.

        Raises:
            ContextTooLong: the prompt leaves no position for a token.
            WorkerTimeout: ``call.deadline`` passed; the request leaves its batch at the next token.
            WorkerError: a message has parts (images), which this model cannot read; or the computation failed.
            ConfigError: the temperature is negative or no number, ``max_tokens`` is below 1, or there is a ``body``.
        """
        request = self._request(messages, sampling, call)
        if on_text is not None:
            request.stream = DecodeStream(skip_special_tokens=True)
        self._waiting.append(request)
        # Not at once: whoever asks in the same turn of the loop gets into the same batch.
        request.loop.call_soon(_thread(os.getpid()).submit, self._work)
        scope = asyncio.timeout_at(call.deadline)
        try:
            async with scope:
                while isinstance(said := await request.replies.get(), str):
                    if on_text is not None:
                        on_text(said)
        except TimeoutError:
            if not scope.expired():  # on_text's own
                raise
            raise WorkerTimeout("no whole completion by the deadline") from None
        finally:
            request.over = True
        if isinstance(said, WorkerError):
            raise said
        return said

    def _request(self, messages: Sequence[Message], sampling: Sampling, call: CallContext) -> _Request:
        described, positions = self._checkpoint.described, self._checkpoint.shape.max_position_embeddings
        limit = described.max_tokens if sampling.max_tokens is None else sampling.max_tokens
        temperature = sampling.temperature or 0.0
        if any(message.parts for message in messages):
            raise WorkerError("got a message with parts (images), expected text alone", retryable=False)
        if sampling.body:
            raise ConfigError(f"sampling.body: got {dict(sampling.body)!r}; a checkpoint that runs here takes none")
        if limit < 1:
            raise ConfigError(f"sampling.max_tokens: got {limit}, expected at least 1")
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"sampling.temperature: got {temperature}, expected a number of at least 0")
        text = "".join(message.content for message in messages)
        prompt = self._checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
        if not prompt:
            raise WorkerError(f"{self.folder}: the prompt is empty, expected some text", retryable=False)
        if len(prompt) >= positions:
            raise ContextTooLong(f"{self.folder}: a prompt of {len(prompt)} tokens, expected at most {positions - 1}")
        draws = None
        if temperature:  # random numbers of its own: the same whenever and beside whatever it is made
            key = f"{sampling.seed or 0}/{call.sample}/{call.round}/{call.step}/{call.attempt}/{text}"
            digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, person=b"onnx-lm").digest()
            draws = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
        return _Request(prompt, min(limit, positions - len(prompt)), temperature, draws)

    def _work(self) -> None:
        """Generate what waits, in the thread: it comes here once a call, and finds nothing where a batch was whole."""
        batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
        if not batch:
            return
        try:
            with threadpool_limits(1, "blas"):
                generate(self._checkpoint, [request for request in batch if not request.over])
        except Exception as error:  # noqa: BLE001 - the thread's boundary: else its callers would wait for ever
            failure = WorkerError(f"{self.folder}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            for request in batch:
                request.reply(failure)


def generate(checkpoint: Checkpoint, rows: list[_Request]) -> None:
    """Complete all requests together and reply to each as it ends; prompts are padded on the left.

    The others go on without a row that is over or whose caller has gone.
    """
    longest = max((len(row.prompt) for row in rows), default=0)
    padding = [longest - len(row.prompt) for row in rows]
    pad = checkpoint.shape.pad_token_id
    ids = np.array([[pad] * less + row.prompt for less, row in zip(padding, rows, strict=True)], np.int64)
    mask = np.array([[0] * less + [1] * (longest - less) for less in padding], np.int64)
    places = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    cache = checkpoint.empty_cache(len(rows))
    while rows:
        started = time.perf_counter()
        logits, cache = checkpoint.step(ids, mask, places, cache)
        tokens = _choose(logits, rows)
        share = (time.perf_counter() - started) / len(rows)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            row.seconds += share
            _take(checkpoint, row, token)
        kept = [index for index, row in enumerate(rows) if not row.over]
        rows = [rows[index] for index in kept]
        ids, places = tokens[kept, None], places[kept, -1:] + 1
        mask = np.hstack((mask[kept], np.ones_like(ids)))
        cache = [held[kept] for held in cache]


def _choose(logits: Floats, rows: Sequence[_Request]) -> Ids:
    """The next token of each row [B]: the likeliest, or one drawn from the softmax at the row's temperature."""
    tokens: Ids = logits.argmax(axis=1)
    for index, row in enumerate(rows):
        if row.draws is not None:
            scaled = logits[index].astype(np.float64)
            mass = np.exp((scaled - scaled.max()) / row.temperature).cumsum()
            tokens[index] = min(int((mass <= row.draws.random() * mass[-1]).sum()), len(mass) - 1)
    return tokens


def _take(checkpoint: Checkpoint, row: _Request, token: int) -> None:
    """Add a token to a row: send its text if it is streamed, and the completion if it is the last."""
    row.ids.append(token)
    ended = token == checkpoint.shape.eos_token_id
    if row.stream is not None and not ended and (piece := row.stream.step(checkpoint.tokenizer, token)):
        row.streamed += len(piece)
        row.reply(piece)
    if not ended and len(row.ids) < row.limit:
        return
    row.over = True
    text = checkpoint.tokenizer.decode(row.ids[:-1] if ended else row.ids, skip_special_tokens=True)
    if row.stream is not None and (rest := text[row.streamed :]):
        row.reply(rest)
    usage = Usage(input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds)
    row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))
