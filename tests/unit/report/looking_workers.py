"""A pool of a planner that looks at answers and two workers that count."""

from __future__ import annotations

import re

from openconductor.protocols import Provider
from openconductor.types import Completion, Usage

shown: list[tuple[str, str]] = []
"""The question and the answer of each second round that the planner was asked for."""


class Zoo(Provider):
    """A worker by its name; ``planner`` asks for a second answer where the first is 2, 4, or 6."""

    remote = False

    def __init__(self, name: str) -> None:
        self.identity = self.name = name

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        text = self.plan(messages[-1].content) if self.name == "planner" else self.answer(messages)
        return Completion(text, usage=Usage(100, output_tokens=10))

    def plan(self, prompt: str) -> str:
        first = "model_id = [1]\nsubtasks = ['Answer.']\naccess_list = [[]]"
        answer = re.search(r"<response>\s*(\d+)", prompt)
        if answer is None:
            return first
        question = re.findall(r"animal (\d+)\?", prompt)[-1]
        shown.append((question, answer[1]))
        if int(answer[1]) % 2:
            return "model_id = []\nsubtasks = []\naccess_list = []"
        return first.replace("[1]", "[2]")

    def answer(self, messages) -> str:
        number = int(re.findall(r"animal (\d+)\?", messages[0].content)[0])
        right = self.name == "bob" or number % 2
        return f"{number}: \\boxed{{{number if right else 0}}}"
