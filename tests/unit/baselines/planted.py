"""Workers that are a function and a draw, for tests of the baselines.

Pools made of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, Orchestrator, Provider
from openconductor.types import Completion, Message, Price, Question, Sampling, Usage

Say = Callable[[Sequence[Message], random.Random], str]
PRICE = Price(Decimal(1), Decimal(4))


class Planted(Provider):
    """A worker by definition.

    What it says is a function of the turns and of a draw of that call's own.
    """

    def __init__(self, name: str, say: Say) -> None:
        self.identity = f"planted {name}"
        self.calls: list[tuple[Sequence[Message], Sampling]] = []
        self.most_at_once = 0
        self._say = say
        self._at_work = 0

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        self.calls.append((messages, sampling))
        self._at_work += 1
        self.most_at_once = max(self.most_at_once, self._at_work)
        try:
            await asyncio.sleep(0)
        finally:
            self._at_work -= 1
        text = self.says(messages, call.sample, call.round, call.step)
        return Completion(text, usage=Usage(input_tokens=10, output_tokens=5))

    def says(
        self, messages: Sequence[Message], sample: int = 0, round_: int = 0, step: int = 0
    ) -> str:
        """Return its answer, by default in the first step of the first sample."""
        key = f"{self.identity}/{asked(messages)}/{sample}/{round_}/{step}"
        return self._say(messages, random.Random(key))


def planted_pool(**workers: Say) -> WorkerPool:
    pool: list[Worker] = []
    for name, say in workers.items():
        pool.append(Worker(Planted(name, say), name=name, price=PRICE))
    return WorkerPool(pool)


def calls_of(pool: WorkerPool) -> int:
    return sum(len(provider_of(pool, ordinal).calls) for ordinal in pool.ordinals)


def provider_of(pool: WorkerPool, ordinal: int) -> Planted:
    provider: Any = pool[ordinal].provider
    assert isinstance(provider, Planted)
    return provider


def asked(messages: Sequence[Message]) -> str:
    """The question of the turns: the first line of the user."""
    return next(message.content for message in messages if message.role == "user").split("\n")[0]


def attempts(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "assistant"]


async def hang(messages: Sequence[Message]) -> str:
    """A worker that never answers."""
    await asyncio.Event().wait()
    return ""


async def answers(
    system: Orchestrator, questions: Sequence[Question], *, sample: int = 0
) -> list[str | None]:
    """Return one answer a question, many asked at once."""
    gate = asyncio.Semaphore(64)

    async def ask(question: Question) -> str | None:
        async with gate:
            episode = await system.ask(question, context=CallContext(sample=sample))
            return episode.answer

    return await asyncio.gather(*map(ask, questions))
