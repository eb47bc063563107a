"""A planner that routes by the words that it reads, and workers that know one subject each."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

from openconductor import Dataset, Grade, Item, Message, Problem, Row, Shape
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

SUBJECTS = ("algebra", "botany", "carpentry", "dentistry", "etymology")
"""The subjects of the questions, one a worker."""


def worker(subject: str) -> Callable[[Sequence[Message]], str]:
    """Return a worker that is right in one subject."""
    return lambda messages: "right" if subject in messages[-1].content else "wrong"


def planner(name: str) -> Callable[[Sequence[Message]], str]:
    """Return a planner that asks the worker whose line names the question's subject, or any."""
    del name

    def plan(messages: Sequence[Message]) -> str:
        instructions, question = messages[0].content, messages[-1].content
        lines = re.findall(r"^Model (\d+)(.*)$", instructions, re.MULTILINE)
        subject = next(word for word in SUBJECTS if word in question)
        chosen = zlib.crc32(question.encode()) % len(lines)
        for number, card in lines:
            if subject in card:
                chosen = int(number)
        return render_workflow(Workflow((Step(chosen, "Answer."),)))

    return plan


class Right:
    """Grades an answer by its word."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(answer == problem.reference)


def _item(row: Row) -> Item:
    return row.item(row.text("ask"), "right", "right")


QUESTIONS = Dataset("questions", shapes=(Shape(("ask",), _item),), grader=Right)
