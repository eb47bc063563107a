"""A trained tiny Conductor as a provider, in this process. In: turns and sampling. Out: a Completion.

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
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]
from tokenizers.decoders import DecodeStream

from openconductor.errors import ConfigError, ContextTooLong, WorkerError, WorkerTimeout
from openconductor.prompt import PromptOptions
from openconductor.protocols import CallContext, OnText
from openconductor.providers.qwen2 import WEIGHTS, Checkpoint, Floats, Ids
from openconductor.types import Completion, Message, Sampling, Usage

MAX_BATCH = 64
"""The most requests generated together."""
_ONE_THREAD = Lock()
"""Held while a batch runs on one thread, which is a setting of the process: a second one makes it ten times slower."""
Reply = str | Completion | WorkerError
"""What the thread sends: a piece of text, the end, or the failure."""


@dataclass(slots=True, eq=False)
class _Request:
    """One call under way; made by its event loop, then filled in by the thread alone, but for ``dropped``."""

    prompt: list[int]
    limit: int
    temperature: float
    draws: np.random.Generator | None
    reply: Callable[[Reply], None]
    stream: DecodeStream | None
    dropped: bool = False
    finished: bool = False
    ids: list[int] = field(default_factory=list[int])
    streamed: int = 0
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.finished or self.dropped


class TinyProvider:
    """A trained Conductor that runs in this process, on one thread (``from_folder`` makes it).

    A batch is generated in a thread, so that event loops stay free; the thread lives while there are requests. Any
    number of event loops may call at once. ``sampling`` and ``prompt_options`` are what the checkpoint was trained
    with, and what ``Conductor`` takes for its defaults. Nothing that runs here has a price: a call costs 0 dollars.

    Attributes:
        folder: where it was read from.
        prompt_options: how to ask it.
        sampling: greedy, up to the checkpoint's ``max_tokens``.
        max_steps: the most steps of a workflow that it was trained to write.
        identity: what it is behind its name: the folder, and which model is there (its size and time).
    """

    prices_itself = True
    may_be_blank = True

    def __init__(self, checkpoint: Checkpoint, *, folder: Path) -> None:
        self.folder = folder
        self.prompt_options: PromptOptions = checkpoint.described.prompt
        self.sampling = Sampling(max_tokens=checkpoint.described.max_tokens)
        self.max_steps = checkpoint.described.max_steps
        model = (folder / WEIGHTS).stat()
        self.identity = f"tiny {folder.resolve()} {model.st_size} {model.st_mtime_ns}"
        self._checkpoint = checkpoint
        self._lock = Lock()
        self._waiting: deque[_Request] = deque()
        self._thread: Thread | None = None

    @classmethod
    def from_folder(cls, path: str | Path) -> Self:
        """Read a checkpoint folder that training saved.

        Raises:
            ConfigError: a file is missing, malformed, or does not fit the others; the message names it.
        """
        folder = Path(path)
        return cls(Checkpoint.read(folder), folder=folder)

    def __repr__(self) -> str:
        return f"TinyProvider({str(self.folder)!r})"

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
                while isinstance(said := await replies.get(), str):
                    if on_text is not None:
                        on_text(said)
        except TimeoutError as error:
            if isinstance(error, WorkerError) or not scope.expired():  # on_text's own
                raise
            raise WorkerTimeout("no whole completion by the deadline") from None
        finally:
            request.dropped = True
        if isinstance(said, WorkerError):
            raise said
        return said

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
        prompt, positions = self._checkpoint.encode(text), self._checkpoint.shape.max_position_embeddings
        if not prompt:
            raise WorkerError(f"{self!r}: the prompt is empty, expected some text", retryable=False)
        if len(prompt) >= positions:
            raise ContextTooLong(f"{self!r}: a prompt of {len(prompt)} tokens, expected at most {positions - 1}")
        draws = None
        if temperature:  # random numbers of its own: the same whenever and beside whatever it is made
            key = f"{sampling.seed or 0}/{call.sample}/{call.round}/{call.step}/{call.attempt}/{text}"
            digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, person=b"onnx-lm").digest()
            draws = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
        stream = DecodeStream(skip_special_tokens=True) if streams else None
        return _Request(prompt, min(limit, positions - len(prompt)), temperature, draws, reply, stream)

    def _wake(self) -> None:
        """Start the thread, unless it runs; one that a fork left behind does not."""
        with self._lock:
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(target=self._work, name="openconductor-tiny")
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                if not batch:
                    self._thread = None
                    return
            try:
                with _ONE_THREAD, threadpool_limits(1, "blas"):
                    generate(self._checkpoint, [request for request in batch if not request.dropped])
            except Exception as error:  # noqa: BLE001 - the thread's boundary: else its callers would wait for ever
                for request in batch:
                    failure = WorkerError(f"{self!r}: {type(error).__name__}: {error}")
                    failure.__cause__ = error
                    request.reply(failure)


# ── generation ───────────────────────────────────────────────────────────────────────────────────────────────────────
def generate(checkpoint: Checkpoint, rows: list[_Request]) -> None:
    """Complete all requests together and reply to each as it ends; prompts are padded on the left.

    Once half of the rows are over, the others go on without them; a row whose caller has gone is over.
    """
    going = len(rows)
    longest = max((len(row.prompt) for row in rows), default=0)
    padding = [longest - len(row.prompt) for row in rows]
    pad = checkpoint.shape.pad_token_id
    ids = np.array([[pad] * less + row.prompt for less, row in zip(padding, rows, strict=True)], np.int64)
    mask = np.array([[0] * less + [1] * (longest - less) for less in padding], np.int64)
    places = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    cache = checkpoint.empty_cache(going)
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
    row.finished = True
    text = checkpoint.decode(row.ids[:-1] if ended else row.ids)
    if row.stream is not None and (rest := text[row.streamed :]):
        row.reply(rest)
    usage = Usage(input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds)
    row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))
