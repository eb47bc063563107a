"""Answers that the plan itself tells: then the planner may have answered, and workers repeated it.

``find_told`` looks for the right answers of a system in the subtasks of its own plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from openconductor.baselines.consensus import answer_key
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key, grouped, mean_estimate

MOST_ANSWERS = 40
"""The most right answers to other questions that are looked for in a plan."""
FEW_ANSWERS = 12
"""The most different answers of a task that are taken for choices, which a subtask may all name."""


@dataclass(frozen=True, slots=True)
class Told:
    """Subtasks that say the answer which comes back.

    Attributes:
        share: the share of right answers that a subtask names, more often than any other choice.
        by_chance: the share of right answers to other questions that these subtasks name.
        beyond: the first share less the second.
    """

    share: float
    by_chance: float
    beyond: Estimate


class _Check(NamedTuple):
    """A right answer held against its plan: if it is told, and how often others would be."""

    key: Key
    told: bool
    chance: float


def find_told(records: Sequence[Record], wrong: Mapping[Key, set[str]]) -> Told | None:
    """Find the right answers that the subtasks of a system's first rounds say.

    None: no planned answer is right.

    Args:
        records: the system's.
        wrong: the wrong answers of others to each question.
    """
    answers = _Answers(records, wrong)
    checks: list[_Check] = []
    for record in records:
        text = answer_text(record)
        if record.correct and record.valid and record.workflows and text:
            subtasks = [step.subtask for step in record.workflows[0]]
            checks.append(answers.check(record, text, plain_words(" \n".join(subtasks))))
    if not checks:
        return None
    by_question = grouped((check.key, check.told - check.chance) for check in checks)
    beyond = [fmean(values) for values in by_question.values()]
    return Told(
        share=fmean(check.told for check in checks),
        by_chance=fmean(check.chance for check in checks),
        beyond=mean_estimate(beyond),
    )


class _Answers:
    """The answers of a system and of others, among which an answer is told or named by chance."""

    def __init__(self, records: Iterable[Record], wrong: Mapping[Key, set[str]]) -> None:
        self._wrong = wrong
        self._by_task: dict[str, set[str]] = {}
        self._right: dict[tuple[str, str], dict[Key, str]] = {}
        for record in records:
            text = answer_text(record)
            self._by_task.setdefault(record.task, set()).add(text)
            if record.correct:
                self._right.setdefault((record.task, record.kind), {})[record.key] = text

    def check(self, record: Record, text: str, plan: str) -> _Check:
        """Hold a right answer, and right answers to other questions of its kind, against a plan."""
        choices = set(self._wrong.get(record.key, ()))
        answers = self._by_task[record.task]
        if len(answers) <= FEW_ANSWERS:
            choices |= answers
        right = self._right[record.task, record.kind]
        others = [other for key, other in right.items() if key != record.key]
        sample = others[:: max(1, len(others) // MOST_ANSWERS)]
        named = [_tells(plan, other, choices) for other in sample]
        chance = fmean(named) if named else 0.0
        return _Check(record.key, _tells(plan, text, choices), chance)


def answer_text(record: Record) -> str:
    """Return a record's answer in plain words; "" if there is none."""
    if record.extracted is not None:
        return plain_words(record.extracted)
    if not record.answer:
        return ""
    return plain_words(answer_key(record.answer) or record.answer)


def plain_words(text: str) -> str:
    r"""Return a text's words in one case, between blanks, without markup and punctuation.

    >>> plain_words("It is **\\boxed{1,234.0}**, (B)."), plain_words("_7_ or 4.42")
    ('it is 1234 b', '7 or 4.42')
    """
    text = re.sub(r"\\(boxed|text\w*|mathrm|mathbf)\b", " ", text.casefold())
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"[^\w.+\-/^<>%\\]|_", " ", text)
    words = [word.strip(".") for word in text.split()]
    return " ".join(re.sub(r"^(-?\d+)\.0+$", r"\1", word) for word in words if word)


def _tells(plan: str, answer: str, choices: set[str]) -> bool:
    """Return True if a plan names an answer, and more often than any other choice."""
    named = _count(plan, answer)
    if not named:
        return False
    others = [choice for choice in choices if choice and choice != answer]
    return all(_count(plan, other) < named for other in others)


def _count(plan: str, answer: str) -> int:
    """Count how often an answer stands in a plan, as whole words."""
    if not answer:
        return 0
    # Blanks are doubled, so that neighbours do not share one.
    spaced = plan.replace(" ", "  ")
    phrase = answer.replace(" ", "  ")
    return f"  {spaced}  ".count(f" {phrase} ")
