"""A model of ``transformers`` in this process (extra ``local``). In: turns, sampling. Out: a Completion and its tokens.

What is asked at the same time is generated together, one batch after the other, in a thread: calls that come while a
batch runs are the next one. A request's draws do not depend on its batch: each has random numbers of its own, and only
the rounding of floats can tell (padding changes the last bits of a logit).
"""

# torch and transformers are typed in part only; everything else of strict mode holds.
# pyright: reportMissingTypeStubs=false, reportPrivateImportUsage=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
import transformers as hf
from jinja2 import TemplateError

from openconductor.errors import ConfigError, ContextTooLong, Rejected, WorkerError
from openconductor.protocols import CallContext, OnText
from openconductor.providers.http import attempt
from openconductor.types import Completion, Message, Sampling, Usage

MAX_BATCH = 16
"""The most requests generated together."""

MAX_TOKENS = 4096
"""The limit where ``Sampling.max_tokens`` and the model's own generation settings name none."""

DTYPES = ("auto", "float32", "bfloat16", "float16")

Reply = str | Completion | WorkerError
"""What the thread sends: a piece of text, the end, or the failure."""


@dataclass(slots=True, eq=False)
class _Request:
    """One call under way; made by its event loop, then filled in by the thread alone, but for ``dropped``."""

    messages: Sequence[Message]
    sampling: Sampling
    call: CallContext
    streams: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    replies: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue[Reply])
    dropped: bool = False
    prompt: list[int] = field(default_factory=list[int])
    limit: int = 0
    draws: Random | None = None
    ids: list[int] = field(default_factory=list[int])
    finished: bool = False
    streamed: int = 0
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.finished or self.dropped

    def reply(self, said: Reply) -> None:
        with suppress(RuntimeError):  # the loop has closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self.replies.put_nowait, said)


class TransformersProvider:
    """A causal LM that ``transformers`` loads, asked through its chat template.

    It is loaded when it is made. Any number of event loops may call at once. Nothing that runs here has a price: a call
    costs 0 dollars.

    Args:
        model: a folder, or a name on the hub (downloaded by ``transformers`` where it is not in its cache).
        device: where it runs (``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``); None: a GPU where there is one.
        dtype: of its weights: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, as they were saved.

    Attributes:
        model: as given.
        identity: what stands behind a worker's name.

    Raises:
        ConfigError: it cannot be loaded, has no chat template, or the device or the dtype is none.
    """

    prices_itself = True
    may_be_blank = True

    def __init__(self, model: str | Path, *, device: str | None = None, dtype: str = "auto") -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
        self.model = str(model)
        self._device = _checked_device(device)
        self._tokenizer, self._lm = _loaded(self.model, dtype)
        cast(Any, self._lm).to(self._device).eval()
        commit = getattr(self._lm.config, "_commit_hash", None) or ""
        self.identity = f"transformers {self.model} {self._lm.dtype} {commit}".strip()
        given = cast("int | list[int] | None", getattr(self._lm.generation_config, "eos_token_id", None))
        ends = [given] if isinstance(given, int) else given or [self._tokenizer.eos_token_id]
        self._ends = frozenset(cast(int, end) for end in ends if end is not None)
        positions = cast("int | None", getattr(self._lm.config.get_text_config(), "max_position_embeddings", None))
        self._positions = positions or sys.maxsize
        self._waiting: deque[_Request] = deque()
        self._thread = ThreadPoolExecutor(1, "openconductor-transformers")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, device={str(self._device)!r})"

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        """Complete the conversation; ``on_text`` gets the text as it grows.

        Greedy where the temperature is None or 0. Otherwise the draws are keyed by ``sampling.seed`` (None is 0), the
        prompt, and the call's sample, round, step and attempt: the same call draws the same text. Of ``sampling.body``,
        ``chat_template_kwargs`` is known: what the chat template takes (``{"enable_thinking": False}``).

        It ends with ``finish_reason`` "length" at ``sampling.max_tokens``, or at the model's last position.
        ``usage.seconds`` is the call's share of the time that its batches took.

        Raises:
            ContextTooLong: the prompt leaves no position for a token.
            WorkerTimeout: ``call.deadline`` passed; the request leaves its batch at the next token.
            Rejected: a message has parts (images), or the chat template refuses the turns.
            WorkerError: the model failed.
            ConfigError: the temperature is negative or no number, ``max_tokens`` is below 1, or the body holds more.
        """
        _check(sampling)
        request = _Request(tuple(messages), sampling, call, streams=on_text is not None)
        try:
            async with attempt(repr(self), None, call.deadline):
                self._waiting.append(request)
                # Not at once: whoever asks in the same turn of the loop gets into the same batch.
                request.loop.call_soon(self._thread.submit, self._work)
                while isinstance(said := await request.replies.get(), str):
                    if on_text is not None:
                        on_text(said)
                if isinstance(said, WorkerError):
                    raise said
                return said
        finally:
            request.dropped = True

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _work(self) -> None:
        """Generate those who wait, up to MAX_BATCH; each has asked for this once, so nobody is left over."""
        batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
        rows: list[_Request] = []
        try:
            for request in batch:
                try:
                    self._read(request)
                    rows.append(request)
                except WorkerError as error:
                    request.reply(error)
            if rows := [row for row in rows if not row.dropped]:
                self._generate(rows)
        except Exception as error:  # noqa: BLE001 - the thread's boundary: else its callers would wait for ever
            for request in batch:
                failure = WorkerError(f"{type(error).__name__}: {error}")
                failure.__cause__ = error
                request.reply(failure)

    def _read(self, request: _Request) -> None:
        """Read a request's prompt; here, for tokenizers are for one thread only."""
        sampling, call, own = request.sampling, request.call, self._lm.generation_config
        if any(message.parts for message in request.messages):
            raise Rejected("got a message with parts (images), expected text alone")
        turns = [{"role": message.role, "content": message.content} for message in request.messages]
        options = {**cast("Mapping[str, Any]", sampling.body.get("chat_template_kwargs", {}))}
        options |= {"tokenize": True, "add_generation_prompt": True, "return_dict": False}
        try:
            ids = cast("list[int]", self._tokenizer.apply_chat_template(turns, **options))
        except (TemplateError, ValueError, TypeError) as error:
            raise Rejected(f"its chat template refuses the turns: {error}") from error
        if not ids:
            raise Rejected("the prompt is empty, expected some text")
        if len(ids) >= self._positions:
            raise ContextTooLong(f"a prompt of {len(ids)} tokens, expected at most {self._positions - 1}")
        request.prompt = ids
        given = sampling.max_tokens or cast("int | None", own and own.max_new_tokens) or MAX_TOKENS
        request.limit = min(given, self._positions - len(ids))
        if sampling.temperature:  # random numbers of its own: the same whenever and beside whatever it is made
            key = f"{sampling.seed or 0}/{call.sample}/{call.round}/{call.step}/{call.attempt}/{ids}"
            digest = blake2b(key.encode(), digest_size=16, person=b"transformers").digest()
            request.draws = Random(int.from_bytes(digest, "big"))

    def _generate(self, rows: Sequence[_Request]) -> None:
        """Complete all requests together and reply to each as it ends; prompts are padded on the left."""
        longest = max(len(row.prompt) for row in rows)
        filler = min(self._ends, default=0)  # hidden by the mask
        ids = [[filler] * (longest - len(row.prompt)) + row.prompt for row in rows]
        mask = [[0] * (longest - len(row.prompt)) + [1] * len(row.prompt) for row in rows]
        settings = hf.GenerationConfig(
            max_new_tokens=max(row.limit for row in rows), do_sample=False, pad_token_id=filler, eos_token_id=None
        )
        last = time.perf_counter()

        def watch(input_ids: torch.Tensor, *_: object, **_more: object) -> torch.Tensor:
            """Which rows are over, once each has taken its token."""
            nonlocal last
            now = time.perf_counter()
            share = (now - last) / max(1, sum(not row.over for row in rows))
            last = now
            for row, token in zip(rows, input_ids[:, -1].tolist(), strict=True):
                if not row.over:
                    row.seconds += share
                    self._take(row, token)
            return torch.tensor([row.over for row in rows], device=input_ids.device)

        with torch.inference_mode():
            cast(Any, self._lm).generate(
                torch.tensor(ids, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=settings,
                logits_processor=hf.LogitsProcessorList(cast(Any, [partial(_draw, rows)])),
                stopping_criteria=hf.StoppingCriteriaList(cast(Any, [watch])),
            )

    def _take(self, row: _Request, token: int) -> None:
        """Add a token to a row: send its text if it is streamed, and the completion if it is the last."""
        row.ids.append(token)
        ended = token in self._ends
        row.finished = ended or len(row.ids) >= row.limit
        if not (row.finished or row.streams):
            return
        text = cast("str", self._tokenizer.decode(row.ids[:-1] if ended else row.ids, skip_special_tokens=True))
        # Half a character, whose other bytes are yet to come, is decoded as U+FFFD.
        sure = text if row.finished else text.rstrip("\ufffd")
        if row.streams and (piece := sure[row.streamed :]):
            row.streamed = len(sure)
            row.reply(piece)
        if row.finished:
            usage = Usage(input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds)
            row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))


def _draw(rows: Sequence[_Request], _ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The scores, but for the rows that sample: one token is left to each, drawn by a number of its own."""
    drawn = [(index, row, row.draws) for index, row in enumerate(rows) if row.draws and not row.over]
    if not drawn:
        return scores
    indices = [index for index, _, _ in drawn]
    heat = torch.tensor([[row.sampling.temperature] for _, row, _ in drawn], device=scores.device)
    logits = scores[indices].float()
    mass = ((logits - logits.amax(dim=1, keepdim=True)) / heat).exp().cumsum(dim=1)
    points = torch.tensor([[draws.random()] for _, _, draws in drawn], device=scores.device) * mass[:, -1:]
    tokens = (mass <= points).sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)
    chosen = torch.full_like(scores[indices], -torch.inf).scatter(1, tokens, 0.0)
    return scores.index_copy(0, torch.tensor(indices, device=scores.device), chosen)


def _check(sampling: Sampling) -> None:
    """Make sure that it can be sampled so, before a thread is asked to."""
    if not 0 <= (sampling.temperature or 0.0) < math.inf:
        raise ConfigError(f"sampling.temperature: got {sampling.temperature}, expected a number of at least 0")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise ConfigError(f"sampling.max_tokens: got {sampling.max_tokens}, expected at least 1")
    options, got = sampling.body.get("chat_template_kwargs", {}), dict(sampling.body)
    if set(got) - {"chat_template_kwargs"} or not isinstance(options, Mapping):
        raise ConfigError(f"sampling.body: got {got!r}, expected nothing but a table `chat_template_kwargs`")


# ── loading ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def _loaded(name: str, dtype: str) -> tuple[hf.PreTrainedTokenizerBase, hf.PreTrainedModel]:
    # AutoTokenizer rebuilds the tokenizer of some architectures (qwen2), which changes its ids: one that was saved as a
    # file of its own kind is loaded as it is.
    reader = hf.AutoTokenizer
    with suppress(OSError, ValueError, AttributeError):
        described = json.loads((Path(name) / "tokenizer_config.json").read_text(encoding="utf-8"))
        if described.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            reader = hf.PreTrainedTokenizerFast
    try:
        tokenizer = cast("hf.PreTrainedTokenizerBase", reader.from_pretrained(name))
        model = cast("hf.PreTrainedModel", hf.AutoModelForCausalLM.from_pretrained(name, dtype=dtype))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(f"model {name!r}: could not be loaded: {' '.join(str(error).split())}") from error
    if not tokenizer.chat_template:
        raise ConfigError(f"model {name!r}: its tokenizer has no chat template, expected a model that can chat")
    return tokenizer, model


def _checked_device(name: str | None) -> torch.device:
    if name is None:
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for it
        raise ConfigError(f"device: got {name!r}, which is not there: {' '.join(str(error).split())}") from error
    return device
