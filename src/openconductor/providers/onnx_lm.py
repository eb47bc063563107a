"""A checkpoint folder as a provider, without torch. In: turns and sampling. Out: a Completion with its tokens counted.

The messages' contents are put in a row (the tiny Conductor's chat template), and what is asked at the same time is
generated together: calls that come while a batch runs are the next batch. A request's tokens do not depend on its
batch: greedy ones by arithmetic (but for the rounding of floats, some 1e-6 of a logit), sampled ones because each
request draws from a generator of its own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import Lock, Thread
from typing import Self

import numpy as np
from tokenizers.decoders import DecodeStream

from openconductor.errors import ConfigError, ContextTooLong, WorkerError, WorkerTimeout
from openconductor.prompt import PromptOptions
from openconductor.protocols import CallContext, OnText
from openconductor.providers.onnx_checkpoint import Checkpoint, Ids, Logits
from openconductor.types import Completion, Message, Sampling, Usage

MAX_BATCH = 64
"""The most requests generated together."""

Reply = str | Completion | WorkerError
"""What the thread sends: a piece of text, the end, or the failure."""


@dataclass(slots=True, eq=False)
class _Request:
    """One call under way; made by its event loop, then filled in by the thread alone, but for ``dropped``."""

    text: str
    limit: int
    temperature: float
    draws: np.random.Generator | None
    reply: Callable[[Reply], None]
    stream: DecodeStream | None
    dropped: bool = False
    prompt: list[int] = field(default_factory=list[int])
    ids: list[int] = field(default_factory=list[int])
    finished: bool = False
    streamed: int = 0
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.finished or self.dropped


class OnnxProvider:
    """A trained Conductor that runs in this process, on one thread (``from_folder`` makes it).

    A batch is generated in a thread, so that event loops stay free; the thread lives while there are requests. Any
    number of event loops may call at once. ``sampling`` and ``prompt_options`` are what the checkpoint was trained
    with, and what ``Conductor`` takes for its defaults. Nothing that runs here has a price: a call costs 0 dollars.

    Attributes:
        folder: where it was read from.
        prompt_options: how to ask it.
        sampling: greedy, up to the checkpoint's ``max_tokens``.
        max_steps: the most steps of a workflow that it was trained to write.
        identity: what it is behind its name: the folder, and which model lies there (its size and time).
    """

    prices_itself = True
    may_be_blank = True

    def __init__(self, checkpoint: Checkpoint, *, folder: Path) -> None:
        self.folder = folder
        self.prompt_options: PromptOptions = checkpoint.described.prompt
        self.sampling = Sampling(max_tokens=checkpoint.described.max_tokens)
        self.max_steps = checkpoint.described.max_steps
        model = (folder / "model.onnx").stat()
        self.identity = f"onnx {folder.resolve()} {model.st_size} {model.st_mtime_ns}"
        self._checkpoint = checkpoint
        self._lock = Lock()
        self._waiting: deque[_Request] = deque()
        self._thread: Thread | None = None

    @classmethod
    def from_folder(cls, path: str | Path) -> Self:
        """Read a checkpoint folder that training wrote and ``export`` has put ``model.onnx`` into.

        Raises:
            ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
        """
        folder = Path(path)
        return cls(Checkpoint.read(folder), folder=folder)

    def __repr__(self) -> str:
        return f"OnnxProvider({str(self.folder)!r})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
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
            WorkerError: a message has parts (images), which this model cannot read; or onnxruntime failed.
            ConfigError: the temperature is negative or no number, ``max_tokens`` is below 1, or there is a ``body``.
        """
        loop = asyncio.get_running_loop()
        if call.deadline is not None and call.deadline <= loop.time():
            raise WorkerTimeout("the deadline had passed before the call began")
        replies: asyncio.Queue[Reply] = asyncio.Queue()

        def reply(said: Reply) -> None:
            with suppress(RuntimeError):  # the loop has closed, and nobody waits any more
                loop.call_soon_threadsafe(replies.put_nowait, said)

        request = self._request(messages, sampling, call, reply, streams=on_text is not None)
        with self._lock:
            self._waiting.append(request)
        loop.call_soon(self._wake)  # not at once: whoever asks in the same turn of the loop gets into the same batch
        scope = asyncio.timeout_at(call.deadline)
        try:
            async with scope:
                return await _outcome(replies, on_text)
        except TimeoutError as error:
            if isinstance(error, WorkerError) or not scope.expired():
                raise
            raise WorkerTimeout("no whole completion by the deadline") from None
        finally:
            request.dropped = True

    def _request(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        call: CallContext,
        reply: Callable[[Reply], None],
        *,
        streams: bool,
    ) -> _Request:
        if any(message.parts for message in messages):
            raise WorkerError("got a message with parts (images), expected text alone", retryable=False)
        if sampling.body:
            raise ConfigError(f"sampling.body: got {dict(sampling.body)!r}; a checkpoint that runs here takes none")
        limit = self.sampling.max_tokens if sampling.max_tokens is None else sampling.max_tokens
        if limit is None or limit < 1:
            raise ConfigError(f"sampling.max_tokens: got {limit}, expected at least 1")
        temperature = sampling.temperature or 0.0
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"sampling.temperature: got {temperature}, expected a number of at least 0")
        text = "".join(message.content for message in messages)
        draws = _draws(text, sampling, call) if temperature else None
        return _Request(
            text, limit, temperature, draws, reply, DecodeStream(skip_special_tokens=True) if streams else None
        )

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _wake(self) -> None:
        """Start the thread, unless it runs; one that a fork left behind does not."""
        with self._lock:
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(target=self._work, name="openconductor-onnx")
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                if not batch:
                    self._thread = None
                    return
            try:
                generate(self._checkpoint, [request for request in batch if self._admitted(request)])
            except Exception as error:  # noqa: BLE001 - the thread's boundary: else its callers would wait for ever
                for request in batch:
                    failure = WorkerError(f"{self!r}: {type(error).__name__}: {error}")
                    failure.__cause__ = error
                    request.reply(failure)

    def _admitted(self, request: _Request) -> bool:
        """Read a request's prompt; tell its caller where it does not fit."""
        if request.dropped:
            return False
        most = self._checkpoint.positions - 1
        request.prompt = self._checkpoint.encode(request.text)
        if not request.prompt:
            request.reply(WorkerError(f"{self!r}: the prompt is empty, expected some text", retryable=False))
            return False
        if (got := len(request.prompt)) > most:
            request.reply(ContextTooLong(f"{self!r}: a prompt of {got} tokens, expected at most {most}"))
            return False
        request.limit = min(request.limit, self._checkpoint.positions - got)
        return True


async def _outcome(replies: asyncio.Queue[Reply], on_text: OnText | None) -> Completion:
    """Pass the pieces on until the end; what ``on_text`` raises ends the call."""
    while True:
        said = await replies.get()
        if isinstance(said, Completion):
            return said
        if isinstance(said, WorkerError):
            raise said
        if on_text is not None:
            on_text(said)


def _draws(text: str, sampling: Sampling, call: CallContext) -> np.random.Generator:
    """The random numbers of one request, the same whenever and beside whatever it is made."""
    key = f"{sampling.seed or 0}/{call.sample}/{call.round}/{call.step}/{call.attempt}/{text}"
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, person=b"onnx-lm").digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


# ── generation ───────────────────────────────────────────────────────────────────────────────────────────────────────
def generate(checkpoint: Checkpoint, requests: Sequence[_Request]) -> None:
    """Complete all requests together and reply to each as it ends; prompts are padded on the left.

    Once half of the rows are over, the others go on without them; a row whose caller has gone is over.
    """
    rows: list[_Request] = list(requests)
    going = len(rows)
    if not rows:
        return
    ids, mask = _padded([row.prompt for row in rows], checkpoint.pad)
    places = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    cache = checkpoint.empty_cache(len(rows))
    while going:
        started = time.perf_counter()
        logits, cache = checkpoint.step(ids, mask, places, cache)
        tokens = _choose(logits, rows)
        share = (time.perf_counter() - started) / going
        for row, token in zip(rows, tokens.tolist(), strict=True):
            if not row.over:
                row.seconds += share
                _take(checkpoint, row, token)
        ids, places = tokens[:, None], places[:, -1:] + 1
        mask = np.hstack((mask, np.ones_like(ids)))
        kept = [index for index, row in enumerate(rows) if not row.over]
        going = len(kept)
        if 2 * going <= len(rows):
            rows = [rows[index] for index in kept]
            ids, mask, places = ids[kept], mask[kept], places[kept]
            cache = [held[kept] for held in cache]


def _padded(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Ids, Ids]:
    """The prompts' tokens, right-aligned, and a mask that is 0 at the padding; both [B, T]."""
    longest = max(map(len, prompts))
    ids = np.full((len(prompts), longest), pad, np.int64)
    mask = np.zeros_like(ids)
    for index, prompt in enumerate(prompts):
        ids[index, longest - len(prompt) :] = prompt
        mask[index, longest - len(prompt) :] = 1
    return ids, mask


def _choose(logits: Logits, rows: Sequence[_Request]) -> Ids:
    """The next token of each row [B]: the likeliest, or one drawn from the softmax at the row's temperature."""
    tokens: Ids = logits.argmax(axis=1)
    drawn = [(index, row, row.draws) for index, row in enumerate(rows) if row.draws is not None]
    if drawn:
        indices = [index for index, _, _ in drawn]
        scaled = logits[indices].astype(np.float64)
        scaled = (scaled - scaled.max(axis=1, keepdims=True)) / np.array([[row.temperature] for _, row, _ in drawn])
        mass = np.exp(scaled).cumsum(axis=1)
        points = np.array([[draws.random()] for _, _, draws in drawn]) * mass[:, -1:]
        tokens[indices] = np.minimum((mass <= points).sum(axis=1), mass.shape[1] - 1)
    return tokens


def _take(checkpoint: Checkpoint, row: _Request, token: int) -> None:
    """Add a token to a row: send its text if it is streamed, and the completion if it is the last."""
    row.ids.append(token)
    ended = token == checkpoint.end
    if row.stream is not None and not ended:
        piece = row.stream.step(checkpoint.tokenizer, token)
        if piece:
            row.streamed += len(piece)
            row.reply(piece)
    if not ended and len(row.ids) < row.limit:
        return
    row.finished = True
    text = checkpoint.decode(row.ids[:-1] if ended else row.ids)
    if row.stream is not None and (rest := text[row.streamed :]):
        row.reply(rest)
    usage = Usage(input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds)
    row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))
