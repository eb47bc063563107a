"""The numbers in the figures, with 95 % intervals: those of the tables, put together over tasks, and shares of things.

In: Records. Out: Estimates. Pure and seeded.

Accuracy is what ``evaluation.statistics`` says of each task; of several tasks each weighs the same,
however many questions it has (as in the paper's averages). Masked records are never counted as
wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist, fmean

from openconductor.evaluation import statistics
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key

Z = NormalDist().inv_cdf(0.975)


def accuracy(records: Sequence[Record]) -> Estimate | None:
    """The share of right answers, every question and every task weighing the same; None where nothing was decided."""
    scores = statistics.scores_by_problem(records)
    masked = sum(record.correct is None for record in records)
    return statistics.estimate(scores, masked) if scores else None


def share(parts: Mapping[Key, tuple[float, float]]) -> Estimate | None:
    """A share of things of which each question has its own number: steps of a worker among steps, and the like.

    Args:
        parts: for each question how many there are of the kind, and how many in all.

    Returns:
        The share of all things; its interval is Wilson's on as many things as the questions are
        worth (the variance is the linearised one of a ratio of totals; as many as there are
        questions where that is zero). None where there is nothing.
    """
    counted = [(of_kind, total) for of_kind, total in parts.values() if total]
    everything = math.fsum(total for _, total in counted)
    if not everything:
        return None
    value, count = math.fsum(of_kind for of_kind, _ in counted) / everything, len(counted)
    spread = math.fsum((of_kind - value * total) ** 2 for of_kind, total in counted)
    of_ratio = spread * count / (count - 1) / everything**2 if count > 1 else 0.0
    # Rounding may leave a spread of 1e-33 where there is none.
    worth = (
        float(count)
        if of_ratio < 1e-12
        else min(everything, max(1.0, value * (1 - value) / of_ratio))
    )
    return Estimate(value, *statistics.wilson_interval(min(value * worth, worth), worth), count)


def shares_of(things: Mapping[Key, Counter[str]], names: Iterable[str]) -> dict[str, Estimate]:
    """The ``share`` of each name among the things of all questions, in order; empty where there is nothing."""
    found = {
        name: share({key: (one[name], one.total()) for key, one in things.items()})
        for name in names
    }
    return {name: one for name, one in found.items() if one is not None}


def mean_cost(records: Iterable[Record], measure: Callable[[Record], float]) -> Estimate | None:
    """The mean of a cost over questions and tasks, what was masked included, for it was paid for as well.

    The interval is normal on the logarithm's scale (delta method), so it never reaches below zero.
    None without records.
    """
    by_task: dict[str, dict[str, list[float]]] = {}
    for record in records:
        by_task.setdefault(record.task, {}).setdefault(record.problem, []).append(measure(record))
    if not by_task:
        return None
    value = fmean(
        fmean(cost for of_one in of_task.values() for cost in of_one)
        for of_task in by_task.values()
    )
    means = [[fmean(of_one) for of_one in of_task.values()] for of_task in by_task.values()]
    of_sum = math.fsum(
        statistics.variance(values) / len(values) for values in means if len(values) > 1
    )
    factor = math.exp(Z * math.sqrt(of_sum) / len(means) / value) if value > 0 else 1.0
    return Estimate(value, value / factor, value * factor, sum(map(len, means)))
