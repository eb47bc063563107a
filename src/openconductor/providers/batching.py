"""Models that run in this process. In: turns, sampling. Out: a Completion; what waits together is generated together.

Calls that come while a batch runs are the next batch, in one thread a model. A request's draws do
not depend on its batch, for each has random numbers of its own; only the rounding of floats can
tell (padding changes the last bits of a logit). A caller that has gone (``Meter`` ends a call at
its deadline) leaves its batch at the next token.
"""

from __future__ import annotations

import asyncio
import math
import os
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b

import numpy as np

from openconductor.errors import ConfigError, ContextTooLong, Rejected, WorkerError
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling, Usage

Reply = str | Completion | WorkerError
"""What the thread sends: a piece of text, the end, or the failure."""


@dataclass(slots=True, eq=False)
class BatchRow:
    """One call under way; made by its event loop, then filled in by the thread alone, but for ``over``."""

    messages: Sequence[Message]
    sampling: Sampling
    call: CallContext
    streams: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    replies: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue[Reply])
    over: bool = False
    prompt: list[int] = field(default_factory=list[int])
    limit: int = 0
    draws: np.random.Generator | None = None
    ids: list[int] = field(default_factory=list[int])
    streamed: int = 0
    seconds: float = 0.0

    def reply(self, said: Reply) -> None:
        """Send to the caller, from the thread."""
        self.over = self.over or not isinstance(said, str)
        with suppress(RuntimeError):  # the loop has closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self.replies.put_nowait, said)


@cache
def _thread(name: str, process: int) -> ThreadPoolExecutor:
    """The one thread of a process that generates under this name; a fork has its own."""
    return ThreadPoolExecutor(1, f"openconductor-{name}-{process}")


class BatchingProvider(Provider):
    """A causal LM whose subclass reads prompts, generates and decodes; any number of event loops may call at once.

    Args:
        thread: the name of the thread that generates; models of one name take turns.
        positions: how many tokens prompt and completion may have together.
        max_tokens: the limit of a completion where ``Sampling`` names none.
        ends: the tokens that end a completion.
        batch: the most requests generated together.
    """

    prices_itself = True
    may_be_blank = True

    def __init__(
        self, thread: str, *, positions: int, max_tokens: int, ends: Sequence[int], batch: int
    ) -> None:
        self._thread = thread
        self._positions = positions
        self._max_tokens = max_tokens
        self._ends = frozenset(ends)
        self._batch = batch
        self._waiting: deque[BatchRow] = deque()

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation; ``on_text`` gets the text as it grows.

        Greedy where the temperature is None or 0. Otherwise the draws are keyed by
        ``sampling.seed`` (None is 0), the texts of the turns, and the call's sample, round, step
        and attempt: the same call draws the same text.

        A completion may be blank: that is what the model wrote, and no failure. It ends with
        ``finish_reason`` "length" at ``sampling.max_tokens`` (None: the model's), or at the model's
        last position. ``usage.seconds`` is the call's share of the time that its batches took; what
        runs here costs 0 dollars.

        Raises:
            ContextTooLong: the prompt leaves no position for a token.
            Rejected: a message has parts (images), the turns have no text, or the chat template
                refuses them.
            WorkerError: the computation failed.
            ConfigError: the temperature is negative or no number, ``max_tokens`` is below 1, or the
                body holds what this model does not know.
        """
        if not 0 <= (sampling.temperature or 0.0) < math.inf:
            raise ConfigError(
                f"sampling.temperature: got {sampling.temperature}, expected a number of at least 0"
            )
        if sampling.max_tokens is not None and sampling.max_tokens < 1:
            raise ConfigError(
                f"sampling.max_tokens: got {sampling.max_tokens}, expected at least 1"
            )
        self._check_body(sampling)
        row = BatchRow(tuple(messages), sampling, call, streams=on_text is not None)
        self._waiting.append(row)
        # Not at once: whoever asks in the same turn of the loop gets into the same batch.
        row.loop.call_soon(_thread(self._thread, os.getpid()).submit, self._work)
        try:
            while isinstance(said := await row.replies.get(), str):
                if on_text is not None:
                    on_text(said)
        finally:
            row.over = True
        if isinstance(said, WorkerError):
            raise said
        return said

    # ── what a model says of itself; all but the first in the thread ──────────────────────────────
    @abstractmethod
    def _check_body(self, sampling: Sampling) -> None:
        """Raise a ConfigError where ``sampling.body`` holds what is not known here."""

    @abstractmethod
    def _tokens(self, row: BatchRow) -> list[int]:
        """The prompt of a request; raises Rejected where it cannot be written."""

    @abstractmethod
    def _decoded(self, ids: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""

    @abstractmethod
    def _generate(self, rows: list[BatchRow]) -> None:
        """Complete all requests together: ``_take`` for each next token, until each row is over."""

    # ── the thread ────────────────────────────────────────────────────────────────────────────────
    def _work(self) -> None:
        """Generate what waits; it comes here once a call, and finds nothing where a batch was whole."""
        batch = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
        try:
            for row in batch:
                try:
                    self._read(row)
                except WorkerError as error:
                    row.reply(error)
            if rows := [row for row in batch if not row.over]:
                self._generate(rows)
        except Exception as error:  # noqa: BLE001 - the thread's boundary: else its callers would wait for ever
            for row in batch:
                failure = WorkerError(f"{self!r}: {type(error).__name__}: {error}")
                failure.__cause__ = error
                row.reply(failure)

    def _read(self, row: BatchRow) -> None:
        sampling, call = row.sampling, row.call
        if any(message.parts for message in row.messages):
            raise Rejected(f"{self!r}: got a message with parts (images), expected text alone")
        row.prompt = self._tokens(row)
        count = len(row.prompt)
        if not count:
            raise Rejected(f"{self!r}: the prompt is empty, expected some text")
        if count >= self._positions:
            raise ContextTooLong(
                f"{self!r}: a prompt of {count} tokens, expected at most {self._positions - 1}"
            )
        row.limit = min(sampling.max_tokens or self._max_tokens, self._positions - count)
        if (
            sampling.temperature
        ):  # random numbers of its own: the same whenever and beside whatever it is made
            text = "".join(message.content for message in row.messages)
            key = (
                f"{sampling.seed or 0}/{call.sample}/{call.round}/{call.step}/{call.attempt}/{text}"
            )
            digest = blake2b(
                key.encode("utf-8", "surrogatepass"), digest_size=16, person=b"onnx-lm"
            ).digest()
            row.draws = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))

    def _take(self, row: BatchRow, token: int) -> None:
        """Add a token to a row: send its text if it is streamed, and the completion if it is the last."""
        row.ids.append(token)
        ended = token in self._ends
        last = ended or len(row.ids) >= row.limit
        if not (last or row.streams):
            return
        text = self._decoded(row.ids[:-1] if ended else row.ids)
        # Half a character, whose other bytes are yet to come, is decoded as U+FFFD.
        sure = text if last else text.rstrip("\ufffd")
        if row.streams and (piece := sure[row.streamed :]):
            row.streamed = len(sure)
            row.reply(piece)
        if last:
            usage = Usage(
                input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds
            )
            row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))
