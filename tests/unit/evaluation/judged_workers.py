"""A pool of two workers and their judge, for answers that the rules cannot decide."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from openconductor.protocols import Provider
from openconductor.types import Completion, Message, Usage

asked: Counter[str] = Counter()
"""How often each worker was asked."""
faults: list[Exception] = []
"""What the judge raises, call by call, before it gives verdicts."""
verdict = {"text": ""}
"""What the judge says in place of a verdict, if anything."""


class Word(Provider):
    """A worker by its name. ``ann`` says what the rules know, in other words on even questions."""

    remote = False

    def __init__(self, name: str) -> None:
        self.identity = self.name = name

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        await asyncio.sleep(0)
        asked[self.name] += 1
        text = self.judge(messages) if self.name == "judge" else self.answer(messages)
        return Completion(text, usage=Usage(100, output_tokens=10))

    def answer(self, messages: list[Message]) -> str:
        if "model_id" in messages[-1].content or "model_id" in messages[0].content:
            return "model_id = [1]\nsubtasks = ['Answer.']\naccess_list = [[]]"
        number = int(re.findall(r"animal (\d)", messages[0].content)[0])
        speed = "slow" if self.name == "bob" else "fast"
        return rf"\boxed{{a {'quick' if number % 2 else speed} animal}}"

    def judge(self, messages: list[Message]) -> str:
        if faults:
            raise faults.pop()
        same = "a fast animal" in messages[0].content
        return verdict["text"] or f"Verdict: {'right' if same else 'wrong'}"
