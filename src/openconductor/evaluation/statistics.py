"""What a score is worth: means with standard errors and 95 % intervals, and differences on the same problems.

In: Outcomes, Records, or scores by problem. Out: estimates. Undecided results are left out and counted apart. Pure and
seeded; only what draws bootstrap samples needs numpy.

Every problem weighs the same, however many of its repeats were decided, and every standard error and interval is
clustered by problem: it says how far the score on another draw of problems of the same kind may lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from openconductor.evaluation.intervals import (
    RESAMPLES,
    agreeing_bound,
    bootstrap_interval,
    bootstrap_mean,
    cautious_mean,
    share_interval,
    variance,
    wilson_interval,
)
from openconductor.evaluation.records import Record
from openconductor.evaluation.run import Outcome

Key = tuple[str, str]
"""A problem's task and id."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval.

    Attributes:
        value: the estimate (a share, or a difference of shares).
        low: the interval's lower end.
        high: its upper end.
        problems: how many problems it rests on.
        masked: how many outcomes were undecided, and are left out.
    """

    value: float
    low: float
    high: float
    problems: int
    masked: int = 0


class Mean(NamedTuple):
    """A mean of scores in [0, 1], its standard error clustered by problem, and its 95 % interval."""

    mean: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much one system is right more often than another, on the problems that both have decided.

    Attributes:
        value: the difference of the two shares, in [-1, 1].
        low, high: its 95 % interval.
        p: the two-sided p-value of no difference; below 0.05 where the interval leaves 0 out.
        problems: how many problems both have decided.
        better, worse: on how many of them the first, and the second, did better.
    """

    value: float
    low: float
    high: float
    p: float
    problems: int
    better: int
    worse: int


# ── one system ───────────────────────────────────────────────────────────────────────────────────────────────────────
def clustered_mean(scores_by_problem: Sequence[Sequence[float]]) -> Mean:
    """The mean over problems of the mean over repeats (avg@k), with what it is worth.

    Args:
        scores_by_problem: of each problem the decided scores, in [0, 1]; a problem without any is left out.

    Returns:
        ``se`` is the spread of the problems' means over the root of their number (0.5 for a single problem, the most it
        could be); the interval is Wilson's with the effective number of draws (``intervals.share_interval``).

    Raises:
        ValueError: there is no score at all, or one is outside [0, 1].

    >>> [round(number, 3) for number in clustered_mean([[1, 1], [1, 0], [0, 0], [1, 1]])]
    [0.625, 0.239, 0.221, 0.907]
    """
    decided = [scores for scores in scores_by_problem if scores]
    if not decided:
        raise ValueError("scores_by_problem: got no score, expected at least one")
    return _mean([fmean(scores) for scores in decided], sum(map(len, decided)))


def avg_at_k(scores_by_problem: Sequence[Sequence[float]], k: int) -> Mean:
    """The mean score over the first ``k`` repeats of each problem (fewer where fewer were decided).

    Raises:
        ValueError: ``k`` is below 1, or there is no score at all.
    """
    if k < 1:
        raise ValueError(f"k: got {k}, expected at least 1")
    return clustered_mean([scores[:k] for scores in scores_by_problem])


def pass_at_k(scores_by_problem: Sequence[Sequence[float]], k: int) -> Mean:
    """The chance that at least one of ``k`` answers is right: unbiased, from n >= k repeats (Chen et al., 2021).

    Args:
        scores_by_problem: of each problem the decided scores; above one half is right. A problem with fewer than ``k``
            is left out, for nothing unbiased can be said about it.
        k: how many answers.

    Raises:
        ValueError: ``k`` is below 1, or no problem has ``k`` repeats.

    >>> round(pass_at_k([[1, 0, 0, 0], [0, 0, 0, 0]], 2).mean, 3)
    0.25
    """
    if k < 1:
        raise ValueError(f"k: got {k}, expected at least 1")
    enough = [scores for scores in scores_by_problem if len(scores) >= k]
    if not enough:
        raise ValueError(f"scores_by_problem: no problem has {k} decided repeats, expected at least one that has")
    wrong = [(len(scores), sum(score <= 0.5 for score in scores)) for scores in enough]
    return _mean([1 - math.comb(failed, k) / math.comb(total, k) for total, failed in wrong], sum(map(len, enough)))


def accuracy(outcomes: Iterable[Outcome]) -> Estimate | None:
    """The share of right answers of one system; None where nothing was decided."""
    scores, masked = _scores(outcomes)
    if not scores:
        return None
    mean = clustered_mean(list(scores.values()))
    return Estimate(mean.mean, mean.low, mean.high, len(scores), masked)


def scores_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """The decided scores of each problem that has any, in the order of the records."""
    scores: dict[Key, list[float]] = {}
    for record in records:
        if record.correct is not None:
            scores.setdefault((record.task, record.problem), []).append(float(record.correct))
    return scores


def _mean(means: Sequence[float], draws: int) -> Mean:
    low, high = share_interval(means, draws)
    se = math.sqrt(variance(means) / len(means)) if len(means) > 1 else 0.5
    return Mean(fmean(means), se, low, high)


# ── two systems ──────────────────────────────────────────────────────────────────────────────────────────────────────
def paired_bootstrap(
    a: Iterable[Record], b: Iterable[Record], seed: int = 0, *, resamples: int = RESAMPLES
) -> Difference | None:
    """Whether system ``a`` is better than system ``b``, from problems that both have decided, drawn again and again.

    Pairing by problem takes the problems' own difficulty out of the interval. Where few problems tell the two apart,
    the bootstrap knows too little: its interval is widened to ``intervals.cautious_mean``'s, and the larger p-value
    counts. Where all differences are the same it knows nothing, and the interval is what so many equal problems leave
    open.

    Args:
        a: the records of one system.
        b: those of the other.
        seed: of the bootstrap.
        resamples: how often the problems are drawn.

    Returns:
        The difference a - b; None where no problem was decided by both.
    """
    return difference(scores_by_problem(a), scores_by_problem(b), seed, resamples=resamples)


def difference(
    first: Mapping[Key, Sequence[float]],
    second: Mapping[Key, Sequence[float]],
    seed: int = 0,
    *,
    resamples: int = RESAMPLES,
) -> Difference | None:
    """``paired_bootstrap`` over scores in [0, 1] by problem."""
    # Rounded, so that two thirds less a third are what one less two thirds are.
    differences = [round(fmean(first[key]) - fmean(second[key]), 12) for key in first if key in second]
    if not differences:
        return None
    better, worse = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    value, count = fmean(differences), len(differences)
    if min(differences) == max(differences):
        apart = agreeing_bound(count)
        low, high = value - apart * (1 + value), value + apart * (1 - value)
        # The interval's, turned around; where all differ by a whole answer it is the sign test's.
        p = min(1.0, 2 * (1 + abs(value)) ** -count) if value else 1.0
    else:
        drawn, cautious = bootstrap_mean(differences, seed=seed, resamples=resamples), cautious_mean(differences)
        low, high = max(-1.0, min(drawn[0], cautious[0])), min(1.0, max(drawn[1], cautious[1]))
        p = max(drawn[2], cautious[2])
    return Difference(value, low, high, p, count, better, worse)


def paired_difference(
    ours: Iterable[Outcome], theirs: Iterable[Outcome], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate | None:
    """``paired_bootstrap`` over Outcomes; None where no problem was decided by both."""
    first, first_masked = _scores(ours)
    second, second_masked = _scores(theirs)
    found = difference(first, second, seed, resamples=resamples)
    if found is None:
        return None
    return Estimate(found.value, found.low, found.high, found.problems, first_masked + second_masked)


def holm(pvalues: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted so that any false rejection has the chance claimed (S. Holm, 1979).

    Returns:
        The adjusted p-values in the order given: compare each with 0.05.

    Raises:
        ValueError: one is outside [0, 1].

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    for index, p in enumerate(pvalues):
        if not 0 <= p <= 1:
            raise ValueError(f"pvalues[{index}]: got {p!r}, expected a number in [0, 1]")
    adjusted = [0.0] * len(pvalues)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(pvalues)), key=lambda place: pvalues[place])):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[index]))
        adjusted[index] = largest
    return adjusted


def _scores(outcomes: Iterable[Outcome]) -> tuple[dict[Key, list[float]], int]:
    """The decided scores by problem (task and id), and how many outcomes were undecided."""
    scores: dict[Key, list[float]] = {}
    masked = 0
    for outcome in outcomes:
        correct = outcome.correct
        if correct is None:
            masked += 1
        else:
            scores.setdefault((outcome.problem.task, outcome.problem.id), []).append(float(correct))
    return scores, masked


__all__ = [
    "Difference",
    "Estimate",
    "Mean",
    "accuracy",
    "avg_at_k",
    "bootstrap_interval",
    "clustered_mean",
    "difference",
    "holm",
    "paired_bootstrap",
    "paired_difference",
    "pass_at_k",
    "scores_by_problem",
    "wilson_interval",
]
