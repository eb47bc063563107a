"""Workers that add, for tests of whole evaluations: no network, no key, no model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from openconductor.errors import OpenConductorError
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import Provider
from openconductor.types import Completion, Price, Sampling, Usage

_SUM = re.compile(r"What is (\d+) plus (\d+)\?")


class Adder(Provider):
    """Answers ``What is a plus b?``, off by ``error``; raises what is in ``failing`` under a.

    Attributes:
        asked: the first numbers of what it was asked, in order.
        samples: the sample numbers of these calls.
        most: the most calls at once.
        hanging: whether it never answers.
    """

    def __init__(self, error: int = 0) -> None:
        self.identity = f"adder {error}"
        self.error = error
        self.asked: list[int] = []
        self.samples: list[int] = []
        self.failing: dict[int, OpenConductorError] = {}
        self.hanging = False
        self.most = self._now = 0

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        found = _SUM.search(messages[0].content)
        assert found is not None, messages
        first, second = int(found[1]), int(found[2])
        self.asked.append(first)
        self.samples.append(call.sample)
        if first in self.failing:
            raise self.failing[first]
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            for _ in range(20):
                await asyncio.sleep(0)
            if self.hanging:
                await asyncio.Future()
        finally:
            self._now -= 1
        return Completion(
            f"It is \\boxed{{{first + second + self.error}}}.", usage=Usage(100, output_tokens=10)
        )


def pool_of(*, max_tokens: int | None = None, **adders: Adder) -> WorkerPool:
    """A pool of adders by name; $1 a million tokens, $2 for what they write: $0.00012 a call."""
    price, sampling = Price(Decimal(1), Decimal(2)), Sampling(max_tokens=max_tokens)
    return WorkerPool(
        [
            Worker(adder, name=name, price=price, sampling=sampling, retries=0)
            for name, adder in adders.items()
        ]
    )


def write_sums(path: Path, numbers: Sequence[int]) -> Path:
    """A file of questions in GSM8K's shape: what is n plus 2n."""
    rows = [{"question": f"What is {n} plus {2 * n}?", "answer": f"#### {3 * n}"} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
