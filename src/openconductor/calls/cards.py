"""Cards: what a worker is good at, as it was measured, in one line.

A card names the categories of questions that a worker gets right most often, the best first. It is
made of a worker's ``Calibration`` on each task, which ``openconductor pool calibrate`` writes.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import fmean

from openconductor.errors import ConfigError
from openconductor.measures import MOST_MASKED

ENTRIES = 5
"""The most categories on a card, of one task."""
NEAR = 2 / 3
"""A category is on a card if its rate is at least this share of the best one of its task."""


@dataclass(frozen=True, slots=True)
class Count:
    """Right answers among ``n`` decided ones.

    ``answers`` are all answers, also those that could not be decided. None: as many as ``n``.
    """

    right: int
    n: int
    answers: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n or self.n == 0:
            expected = "expected right from 0 to n, and n from 1"
            raise ConfigError(f"right = {self.right}, n = {self.n}: {expected}")
        if self.total < self.n:
            raise ConfigError(f"answers = {self.total}, n = {self.n}: expected answers from n on")

    @property
    def total(self) -> int:
        """The number of all answers."""
        return self.n if self.answers is None else self.answers

    @property
    def rate(self) -> float:
        """The share of right answers among the decided ones."""
        return self.right / self.n

    @property
    def least_rate(self) -> float:
        """The share of right answers among all, those that could not be decided counting as wrong.

        Workers are compared by it, as systems are that a run puts to work.
        """
        return self.right / self.total

    @property
    def is_marked(self) -> bool:
        """True if more than ``MOST_MASKED`` of the answers could not be decided."""
        return self.total - self.n > MOST_MASKED * self.total


@dataclass(frozen=True, slots=True)
class Calibration(Count):
    """The measurement of one worker on one task.

    Attributes:
        date: the day of the measurement.
        seconds: the median time of an answer.
        dollars: the mean cost of an answer. None: unknown.
        categories: the kinds of question that have enough answers.
    """

    date: dt.date
    seconds: float
    dollars: float | None = None
    categories: Mapping[str, Count] = field(default_factory=dict[str, Count])


Calibrations = Mapping[str, Mapping[str, Calibration]]
"""The measurements of workers, by the worker's name and the task."""


def write_card(counts: Mapping[str, Count], *, step: int = 1) -> str:
    """Return a worker's card: its best categories with the share that it gets right.

    Args:
        counts: by category; at least one.
        step: the percentages are multiples of it.

    >>> write_card({"algebra": Count(91, 100), "law": Count(40, 100), "history": Count(78, 100)})
    'algebra 91%, history 78%'
    >>> write_card({"algebra": Count(25, 25, answers=60)})
    'algebra 100% (25 of 60 decided)'
    """
    best = max(count.rate for count in counts.values())
    ranked = sorted(counts, key=lambda category: -counts[category].rate)
    kept = [category for category in ranked if counts[category].rate >= NEAR * best]
    entries: list[str] = []
    for category in kept[:ENTRIES]:
        count = counts[category]
        percent = step * round(100 / step * count.rate)
        entry = f"{category.replace(',', '')} {percent}%"
        if count.is_marked:
            entry += f" ({count.n} of {count.total} decided)"
        entries.append(entry)
    return ", ".join(entries)


def read_card(card: str) -> dict[str, float]:
    """Return the shares that a worker gets right, by category, as its card says; skip other text.

    >>> read_card("algebra 90%, history 80%; $0.003 and 2 s an answer")
    {'algebra': 0.9, 'history': 0.8}
    """
    return {category: int(percent) / 100 for category, percent in _ENTRY.findall(card)}


_ENTRY = re.compile(r"([^,; ][^,;]*) (\d+)%")


def describe(calibrations: Mapping[str, Calibration]) -> str:
    """Return the card of a worker that was measured on these tasks; "": on none.

    A task without categories is shown as a whole. With several tasks, a category is shown after its
    task's name.
    """
    if not calibrations:
        return ""
    parts: list[str] = []
    for task, calibration in calibrations.items():
        counts = dict(calibration.categories)
        if len(calibrations) > 1:
            counts = {f"{task} {name}": count for name, count in counts.items()}
        parts.append(write_card(counts or {task: calibration}))
    return f"{'; '.join(parts)}; {_cost(list(calibrations.values()))}"


def _cost(calibrations: list[Calibration]) -> str:
    """Say what an answer costs and how long it takes, every task weighing the same."""
    seconds = fmean(calibration.seconds for calibration in calibrations)
    text = f"{_two_digits(seconds)} s an answer"
    dollars = [calibration.dollars for calibration in calibrations]
    known = [amount for amount in dollars if amount is not None]
    if len(known) == len(dollars):
        text = f"${_two_digits(fmean(known))} and {text}"
    return text


def _two_digits(number: float) -> str:
    """Write a number in two digits, without an exponent."""
    return f"{Decimal(f'{number:.2g}'):f}"
