"""How two curves go together: rank correlation, with an interval that knows that neighbours on a curve are alike.

In: two series over the same places. Out: Spearman's rho with a 95 % interval from leaving out a tenth of the curve at
a time (the block jackknife), or None where that cannot be said.

A correlation over a training is no cause: diversity and accuracy both move with time. So the same is also said of what
is left of the two when a straight line in time is taken out of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from openconductor.evaluation.intervals import jackknife_interval

BLOCKS = 10
FEWEST = 20
"""The fewest places that an association is looked for in."""


@dataclass(frozen=True, slots=True)
class Association:
    """Spearman's rank correlation of two curves.

    Attributes:
        rho: in [-1, 1].
        low, high: its 95 % interval.
        places: how many places both curves have a value at.
        detrended: the same with the straight line in time taken out of both.
    """

    rho: float
    low: float
    high: float
    places: int
    detrended: Association | None = None


def association(first: Sequence[float | None], second: Sequence[float | None]) -> Association | None:
    """The association of two curves; None with fewer than 20 common places, or where one of them never moves."""
    known = [
        (place, one, other)
        for place, (one, other) in enumerate(zip(first, second, strict=True))
        if one is not None and other is not None
    ]
    if len(known) < FEWEST:
        return None
    places = [float(place) for place, _, _ in known]
    ones, others = [one for _, one, _ in known], [other for _, _, other in known]
    plain = _rank_correlation(ones, others)
    if plain is None:
        return None
    left = _rank_correlation(_detrended(places, ones), _detrended(places, others))
    return Association(plain.rho, plain.low, plain.high, plain.places, left)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho, of ties the mean rank; None where one series never moves.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    return _pearson(_ranks(first), _ranks(second))


def _rank_correlation(first: Sequence[float], second: Sequence[float]) -> Association | None:
    whole = spearman(first, second)
    if whole is None:
        return None
    count = len(first)
    edges = [round(block * count / BLOCKS) for block in range(BLOCKS + 1)]
    without: list[float] = []
    for begin, end in pairwise(edges):
        one = spearman([*first[:begin], *first[end:]], [*second[:begin], *second[end:]])
        if one is None:
            return None
        # On Fisher's scale, where a correlation's spread does not depend on the correlation.
        without.append(_fisher(one))
    _, low, high = jackknife_interval(_fisher(whole), without)
    return Association(whole, math.tanh(low), math.tanh(high), count)


def _fisher(rho: float) -> float:
    return math.atanh(max(-0.999999, min(0.999999, rho)))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in range(start, end):
            ranks[order[place]] = (start + end - 1) / 2
        start = end
    return ranks


def _pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    middle, other = fmean(first), fmean(second)
    both = math.fsum((a - middle) * (b - other) for a, b in zip(first, second, strict=True))
    spread = math.fsum((a - middle) ** 2 for a in first) * math.fsum((b - other) ** 2 for b in second)
    return both / math.sqrt(spread) if spread > 0 else None


def _detrended(places: Sequence[float], values: Sequence[float]) -> list[float]:
    centre, middle = fmean(places), fmean(values)
    spread = math.fsum((place - centre) ** 2 for place in places)
    slope = math.fsum((p - centre) * (v - middle) for p, v in zip(places, values, strict=True)) / spread
    return [value - middle - slope * (place - centre) for place, value in zip(places, values, strict=True)]
