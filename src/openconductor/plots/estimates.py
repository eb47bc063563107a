"""The numbers in the figures, with 95 % intervals: accuracies, shares of things, costs.

Accuracy is what ``evaluation.statistics`` says of each task; of several tasks each weighs the same,
as in the paper's averages. Masked records are never counted as wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean
from typing import TypeVar

from openconductor.evaluation import statistics
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, by_task, grouped

Name = TypeVar("Name", bound=Hashable)


def accuracy(records: Sequence[Record]) -> Estimate | None:
    """Return the share of right answers; None: nothing was decided.

    Every question weighs the same, and so does every task.
    """
    scores = statistics.scores_by_problem(records)
    if not scores:
        return None
    masked = sum(record.correct is None for record in records)
    return statistics.estimate(scores, masked)


def share(counts: Sequence[float], totals: Sequence[float]) -> Estimate | None:
    """Return a share of things of which each question has its own number, such as steps.

    The interval is Wilson's, on as many things as the questions are worth: the variance is the
    linearised one of a ratio of totals. If that is zero, they are worth the number of questions.
    None: there is nothing to share.

    Args:
        counts: the things of the kind, of each question.
        totals: all things, of each question.
    """
    parts = [(count, total) for count, total in zip(counts, totals, strict=True) if total]
    everything = math.fsum(total for _, total in parts)
    if not everything:
        return None
    questions = len(parts)
    value = math.fsum(count for count, _ in parts) / everything
    distances = [count - value * total for count, total in parts]
    spread = math.fsum(distance**2 for distance in distances)
    variance = 0.0
    if questions > 1:
        variance = spread * questions / (questions - 1) / everything**2
    worth = float(questions)
    if variance >= 1e-12:  # rounding may leave 1e-33 of a spread of zero
        effective = value * (1 - value) / variance
        worth = min(everything, max(1.0, effective))
    of_kind = min(value * worth, worth)
    low, high = statistics.wilson_interval(of_kind, worth)
    return Estimate(value, low, high, questions)


def shares_of(things: Sequence[Counter[Name]], names: Iterable[Name]) -> dict[Name, Estimate]:
    """Return the share of each name among the things of all questions; empty: there is nothing.

    Args:
        things: the things of each question, counted by name.
        names: the names, in order.
    """
    totals = [counts.total() for counts in things]
    shares: dict[Name, Estimate] = {}
    for name in names:
        of_name = share([counts[name] for counts in things], totals)
        if of_name is not None:
            shares[name] = of_name
    return shares


def mean_cost(records: Iterable[Record], measure: Callable[[Record], float]) -> Estimate | None:
    """Return the mean of a cost over questions and tasks, masked answers included.

    The interval is normal on the logarithm's scale (delta method), so it never reaches below zero.
    None: there are no records.
    """
    by_question = grouped((record.key, measure(record)) for record in records)
    costs = by_task(by_question)
    if not costs:
        return None
    task_means: list[float] = []
    variances: list[float] = []
    for by_problem in costs.values():
        all_costs = [cost for repeats in by_problem.values() for cost in repeats]
        task_means.append(fmean(all_costs))
        means = [fmean(repeats) for repeats in by_problem.values()]
        if len(means) > 1:
            variances.append(statistics.variance(means) / len(means))
    value = fmean(task_means)
    problems = len(by_question)
    if value <= 0:
        return Estimate(value, value, value, problems)
    spread = math.sqrt(math.fsum(variances))
    factor = math.exp(statistics.REACH * spread / len(costs) / value)
    return Estimate(value, value / factor, value * factor, problems)
