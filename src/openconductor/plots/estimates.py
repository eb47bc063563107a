"""The numbers in the figures, with 95 % intervals: those of the tables, put together over tasks, and shares of things.

In: Records. Out: Estimates. Pure and seeded.

Accuracy and differences are what ``evaluation.statistics`` says of each task; of several tasks each weighs the same,
however many questions it has (as in the paper's averages). Masked records are never counted as wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist, fmean

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Estimate,
    Key,
    Scores,
    averaged_interval,
    clustered_mean,
    scores_by_problem,
    variance,
    wilson_interval,
)
from openconductor.evaluation.statistics import difference as difference_of_task

Z = NormalDist().inv_cdf(0.975)


def accuracy(records: Sequence[Record]) -> Estimate | None:
    """The share of right answers, every question and every task weighing the same; None where nothing was decided."""
    scores = scores_by_problem(records)
    return accuracy_of(scores, masked=sum(record.correct is None for record in records)) if scores else None


def accuracy_of(scores: Scores, *, masked: int = 0) -> Estimate:
    """``accuracy`` of at least one score; of several tasks as in the table's row ``average``."""
    means = [clustered_mean(list(of_task.values())) for of_task in _by_task(scores).values()]
    low, high = averaged_interval([(mean.mean, mean.low, mean.high) for mean in means])
    return Estimate(fmean(mean.mean for mean in means), low, high, len(scores), masked)


def difference_of(first: Scores, second: Scores) -> Estimate | None:
    """By how much the first is right more often on the questions that both decided; None where there are none.

    Of several tasks each weighs the same.
    """
    others = _by_task(second)
    found = [difference_of_task(scores, others.get(task, {})) for task, scores in _by_task(first).items()]
    parts = [part for part in found if part is not None]
    if not parts:
        return None
    low, high = averaged_interval([(part.value, part.low, part.high) for part in parts])
    return Estimate(fmean(part.value for part in parts), low, high, sum(part.problems for part in parts))


def share(parts: Mapping[Key, tuple[float, float]]) -> Estimate | None:
    """A share of things of which each question has its own number: steps of a worker among steps, and the like.

    Args:
        parts: for each question how many there are of the kind, and how many in all.

    Returns:
        The share of all things; its interval is Wilson's on as many things as the questions are worth (the variance is
        the linearised one of a ratio of totals; as many as there are questions where that is zero). None where there is
        nothing.
    """
    counted = [(of_kind, total) for of_kind, total in parts.values() if total]
    everything = math.fsum(total for _, total in counted)
    if not everything:
        return None
    of_kinds = math.fsum(of_kind for of_kind, _ in counted)
    value, count = of_kinds / everything, len(counted)
    spread = math.fsum((of_kind - value * total) ** 2 for of_kind, total in counted)
    of_ratio = spread * count / (count - 1) / everything**2 if count > 1 else 0.0
    # Rounding may leave a spread of 1e-33 where there is none.
    worth = float(count) if of_ratio < 1e-12 else min(everything, max(1.0, value * (1 - value) / of_ratio))
    return Estimate(value, *wilson_interval(min(value * worth, worth), worth), count)


def mean_cost(records: Iterable[Record], measure: Callable[[Record], float]) -> Estimate | None:
    """The mean of a cost over questions and tasks, what was masked included, for it was paid for as well.

    The interval is normal on the logarithm's scale (delta method), so it never reaches below zero. None without
    records.
    """
    by_task: dict[str, dict[str, list[float]]] = {}
    for record in records:
        by_task.setdefault(record.task, {}).setdefault(record.problem, []).append(measure(record))
    if not by_task:
        return None
    value = fmean(fmean(cost for of_one in of_task.values() for cost in of_one) for of_task in by_task.values())
    problems = sum(map(len, by_task.values()))
    if value <= 0:
        return Estimate(value, value, value, problems)
    means = [[fmean(of_one) for of_one in of_task.values()] for of_task in by_task.values()]
    of_sum = math.fsum(variance(values) / len(values) if len(values) > 1 else 0.0 for values in means)
    factor = math.exp(Z * math.sqrt(of_sum) / len(means) / value)
    return Estimate(value, value / factor, value * factor, problems)


def _by_task(scores: Scores) -> dict[str, dict[Key, Sequence[float]]]:
    found: dict[str, dict[Key, Sequence[float]]] = {}
    for key, values in scores.items():
        found.setdefault(key[0], {})[key] = values
    return found
