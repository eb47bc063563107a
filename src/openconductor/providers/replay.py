"""Replay as a provider. In: a provider and a journal. Out: one that is not called for what the journal holds.

A call's key is what was asked, of whom, and where in the question it stands, its sample among it: repeats of a question
stay different calls. Two equal calls at the same time are both made: each is a sample of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from openconductor.events import CallEnded
from openconductor.journal import call_key
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Call, Completion, Message, Price, Sampling

_OUTCOMES = {"length": "cut", "content_filter": "refused"}


class CompletionStore(Protocol):
    """Where completions that were paid for are found again: a Journal."""

    def find_completion(self, key: str) -> Completion | None:
        """The completion of an earlier call with this key; None where there was none."""
        ...


class ReplayProvider:
    """Answers from a journal what stands there, and calls its provider for the rest.

    A replayed call is told of (``CallEnded``) with what it cost when it was made, marked as replayed; ``on_text`` gets
    its text in one piece.

    Args:
        provider: what is called where the journal holds nothing.
        journal: where completions are found.
        worker: the worker's name.
        identity: what the worker is behind its name.
        price: its price, in US dollars a million tokens; None is not known.
        nested: whether it is an orchestrator; its call is then replayed as a whole, without the calls below it.
    """

    __slots__ = ("_identity", "_journal", "_nested", "_price", "_provider", "_worker")

    def __init__(
        self,
        provider: Provider,
        journal: CompletionStore,
        *,
        worker: str,
        identity: str,
        price: Price | None,
        nested: bool = False,
    ) -> None:
        self._provider = provider
        self._journal = journal
        self._worker = worker
        self._identity = identity
        self._price = price
        self._nested = nested

    def __repr__(self) -> str:
        return f"ReplayProvider({self._provider!r})"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """The journal's completion of this call, or else the provider's.

        Raises:
            JournalError: the journal cannot be read.
            WorkerError: as the provider raises it.
        """
        key = call_key(self._worker, self._identity, messages, sampling, call)
        said = self._journal.find_completion(key)
        if said is None:
            return await self._provider.complete(messages, sampling, call=call, on_text=on_text)
        if call.on_event is not None:
            at = asyncio.get_running_loop().time() - call.origin
            record = Call(
                self._worker,
                _OUTCOMES.get(said.finish_reason, "answered"),
                tuple(messages),
                sampling,
                said,
                attempt=call.attempt,
                usage=said.usage,
                price=self._price,
                started=at,
                identity=self._identity,
                nested=self._nested,
                replayed=True,
            )
            call.on_event(CallEnded(call.episode, call.round, at, call.step, record))
        if on_text is not None and said.text:
            on_text(said.text)
        return said
