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

ENTRIES = 5
"""The most categories on a card, of one task."""
NEAR = 2 / 3
"""A category is on a card if its rate is at least this share of the best one of its task."""


@dataclass(frozen=True, slots=True)
class Count:
    """Right answers among ``n`` decided ones."""

    right: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n or self.n == 0:
            expected = "expected right from 0 to n, and n from 1"
            raise ConfigError(f"right = {self.right}, n = {self.n}: {expected}")

    @property
    def rate(self) -> float:
        """The share of right answers."""
        return self.right / self.n


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


def write_card(rates: Mapping[str, float]) -> str:
    """Return a worker's card: its best categories with the share that it gets right, in tenths.

    Args:
        rates: by category, the share of the questions that it got right, 0 to 1; at least one.

    >>> write_card({"algebra": 0.91, "law": 0.4, "history": 0.78})
    'algebra 90%, history 80%'
    """
    best = max(rates.values())
    ranked = sorted(rates, key=lambda category: -rates[category])
    kept = [category for category in ranked if rates[category] >= NEAR * best][:ENTRIES]
    entries: list[str] = []
    for category in kept:
        tenths = round(10 * rates[category])
        entries.append(f"{category.replace(',', '')} {10 * tenths}%")
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
        rates = {name: count.rate for name, count in calibration.categories.items()}
        if len(calibrations) > 1:
            rates = {f"{task} {name}": rate for name, rate in rates.items()}
        parts.append(write_card(rates or {task: calibration.rate}))
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
