"""Models that run in this process, and the batches in which they answer.

Calls that wait together are generated together. Calls that come while a batch runs form the next
one, in one thread a model. Each call has random numbers of its own, so its draws do not depend on
its batch, except for the rounding of floats (padding changes the last bits of a logit). A call
whose caller has gone leaves its batch at the next token.
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
from traceback import clear_frames

import numpy as np
from numpy.typing import NDArray

from openconductor.errors import ConfigError, ContextTooLong, Rejected, WorkerError
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Sampling, Usage

# A message of the thread to the caller: a piece of text, the end, or the failure.
Reply = str | Completion | WorkerError


@dataclass(slots=True, eq=False)
class BatchRow:
    """One call under way. Once it waits, only the thread changes it, except for ``over``.

    Attributes:
        messages, sampling, call: as sent.
        streams: the caller wants pieces of text.
        adapter: the adapter that completes it; "": none.
        loop: the caller's event loop.
        replies: the messages to the caller.
        over: the call has ended, or its caller has gone.
        prompt: the tokens of the prompt.
        limit: the most tokens of the completion.
        draws: random numbers of its own. None: greedy.
        ids: the tokens of the completion so far.
        streamed: number of characters sent so far.
        seconds: its share of the time that its batches took.
    """

    messages: Sequence[Message]
    sampling: Sampling
    call: CallContext
    streams: bool
    adapter: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    replies: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue[Reply])
    over: bool = False
    prompt: list[int] = field(default_factory=list[int])
    limit: int = 0
    draws: np.random.Generator | None = None
    ids: list[int] = field(default_factory=list[int])
    streamed: int = 0
    seconds: float = 0.0

    def reply(self, message: Reply) -> None:
        """Send a message to the caller, from the thread."""
        if not isinstance(message, str):
            self.over = True
        with suppress(RuntimeError):  # the loop has closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self.replies.put_nowait, message)


def thread_of(name: str) -> ThreadPoolExecutor:
    """Return the thread that generates under this name. A forked process has threads of its own."""
    return _thread(name, os.getpid())


@cache
def _thread(name: str, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, f"openconductor-{name}-{process}")


class BatchingProvider(Provider):
    """A causal LM. A subclass writes prompts, generates and decodes.

    Any number of event loops may call at once.

    Args:
        thread: name of the thread that generates; models of one name take turns.
        positions: the most tokens of prompt and completion together.
        max_tokens: limit of a completion for which ``Sampling`` sets none.
        ends: the tokens that end a completion.
        batch: the most calls generated together.
        waiting: the calls that wait, which providers of one model share; None: its own.
        adapter: completes the calls of this provider; "": none does.
    """

    prices_itself = True
    may_be_blank = True

    def __init__(
        self,
        thread: str,
        *,
        positions: int,
        max_tokens: int,
        ends: Sequence[int],
        batch: int,
        waiting: deque[BatchRow] | None = None,
        adapter: str = "",
    ) -> None:
        self._thread = thread
        self._positions = positions
        self._max_tokens = max_tokens
        self._ends = frozenset(ends)
        self._batch = batch
        self._waiting: deque[BatchRow] = deque() if waiting is None else waiting
        self._adapter = adapter

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
        row = BatchRow(
            tuple(messages), sampling, call, streams=on_text is not None, adapter=self._adapter
        )
        self._waiting.append(row)
        # Soon, not at once: calls of the same turn of the event loop then share a batch.
        row.loop.call_soon(thread_of(self._thread).submit, self._work)
        try:
            reply = await row.replies.get()
            while isinstance(reply, str):
                if on_text is not None:
                    on_text(reply)
                reply = await row.replies.get()
        finally:
            row.over = True
        if isinstance(reply, WorkerError):
            raise reply
        return reply

    # ── the parts of a model; all but the first run in the thread ─────────────────────────────────
    @abstractmethod
    def _check_body(self, sampling: Sampling) -> None:
        """Raise a ConfigError if ``sampling.body`` holds an unknown key."""

    @abstractmethod
    def _encode(self, row: BatchRow) -> list[int]:
        """Return the tokens of a call's prompt; raise Rejected if it cannot be written."""

    @abstractmethod
    def _decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without the special ones."""

    @abstractmethod
    def _generate(self, rows: list[BatchRow]) -> None:
        """Complete all rows together: ``_take`` each next token until every row is over."""

    # ── the thread ────────────────────────────────────────────────────────────────────────────────
    def _work(self) -> None:
        """Generate the calls that wait. Runs once a call, though one run may take several."""
        count = min(self._batch, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        try:
            for row in batch:
                try:
                    self._prepare(row)
                except WorkerError as error:
                    row.reply(error)
            rows = [row for row in batch if not row.over]
            if rows:
                self._generate(rows)
        except Exception as error:  # noqa: BLE001 - the end of the thread: callers must not wait for ever
            clear_frames(error.__traceback__)  # their variables hold the batch's memory
            for row in batch:
                failure = WorkerError(f"{self!r}: {type(error).__name__}: {error}")
                failure.__cause__ = error
                row.reply(failure)

    def _prepare(self, row: BatchRow) -> None:
        """Fill in the prompt, the limit and the random numbers of a row."""
        if any(message.parts for message in row.messages):
            raise Rejected(f"{self!r}: got a message with parts (images), expected text alone")
        row.prompt = self._encode(row)
        count = len(row.prompt)
        if not count:
            raise Rejected(f"{self!r}: the prompt is empty, expected some text")
        room = self._positions - count
        if room < 1:
            raise ContextTooLong(
                f"{self!r}: a prompt of {count} tokens, expected at most {self._positions - 1}"
            )
        row.limit = min(row.sampling.max_tokens or self._max_tokens, room)
        if row.sampling.temperature:
            row.draws = _random_numbers(row)

    def _take(self, row: BatchRow, token: int) -> None:
        """Add a token to a row; send its new text if it streams, and the completion at its end."""
        row.ids.append(token)
        ended = token in self._ends
        last = ended or len(row.ids) >= row.limit
        if not (last or row.streams):
            return
        text = self._decode(row.ids[:-1] if ended else row.ids)
        if row.streams:
            # Half a character, whose other bytes are yet to come, is decoded as U+FFFD.
            whole = text if last else text.rstrip("\ufffd")
            piece = whole[row.streamed :]
            if piece:
                row.streamed = len(whole)
                row.reply(piece)
        if last:
            usage = Usage(
                input_tokens=len(row.prompt), output_tokens=len(row.ids), seconds=row.seconds
            )
            row.reply(Completion(text, usage=usage, finish_reason="stop" if ended else "length"))


def pad_prompts(
    rows: Sequence[BatchRow], filler: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the prompts of a batch, padded on the left, and the mask: 0 at padding, else 1."""
    longest = max(len(row.prompt) for row in rows)
    ids = np.full((len(rows), longest), filler, np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        start = longest - len(row.prompt)
        ids[index, start:] = row.prompt
        mask[index, start:] = 1
    return ids, mask


def _random_numbers(row: BatchRow) -> np.random.Generator:
    """Return random numbers that depend on the call alone, not on its batch or the time."""
    call = row.call
    text = "".join(message.content for message in row.messages)
    place = f"{call.sample}/{call.round}/{call.step}/{call.attempt}"
    key = f"{row.sampling.seed or 0}/{place}/{text}".encode("utf-8", "surrogatepass")
    digest = blake2b(key, digest_size=16, person=b"onnx-lm").digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
