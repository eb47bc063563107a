"""Means with standard errors and 95 % intervals, and differences on the same problems.

Undecided results are left out and counted apart. Everything is pure and seeded. scipy and numpy are
imported where they are needed; Wilson's interval needs neither.

Problems are what is drawn at random, so they are the clusters: repeats of one problem are averaged
first, and every problem weighs the same. ``docs/statistics.md`` says how the methods were chosen
and how well they cover.
"""

# scipy has no type stubs.
# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openconductor.evaluation.records import Record

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 30
"""The fewest questions on which a system is called better than another one, or as good."""
DISAGREEMENT = 0.1
"""The p-value below which tasks whose differences have different signs disagree."""
_AT_ONCE = 1_000_000
"""Numbers that the bootstrap draws at a time."""
REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors from the middle of an interval to its ends."""
WIDTH_OF_90 = 0.839
"""The width of a 90 % interval as a share of the width of a 95 % interval."""

Key = tuple[str, str]
"""A problem's task and id."""
Value = TypeVar("Value")
Scores = Mapping[Key, Sequence[float]]
"""The decided scores, in [0, 1], of each problem that has any."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval.

    Attributes:
        problems: how many problems it rests on.
        masked: how many undecided outcomes it leaves out.
    """

    value: float
    low: float
    high: float
    problems: int
    masked: int = 0


class Mean(NamedTuple):
    """A mean of scores in [0, 1], its standard error by problem, and its 95 % interval."""

    mean: float
    se: float
    low: float
    high: float


class MeanTest(NamedTuple):
    """The 95 % interval of a mean, and the two-sided p-value of a mean of 0."""

    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The lead of one system over another, on the problems that both have decided.

    Attributes:
        p: the two-sided p-value of no difference.
        better, worse: problems on which either did better.
    """

    value: float
    low: float
    high: float
    p: float
    problems: int
    better: int
    worse: int


def interval_90(number: Estimate | Difference) -> tuple[float, float]:
    """Return the 90 % interval of a number; each of its ends is a one-sided test at 5 %.

    >>> interval_90(Estimate(0.5, 0.4, 0.6, problems=9))
    (0.4161, 0.5839)
    """
    low = number.value - WIDTH_OF_90 * (number.value - number.low)
    high = number.value + WIDTH_OF_90 * (number.high - number.value)
    return low, high


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────
def wilson_interval(
    successes: float, total: float, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Wilson's score interval of a share (1927); (0, 1) if nothing was counted.

    Raises:
        ValueError: more successes than trials.

    >>> [round(end, 3) for end in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    if not 0 <= successes <= total:
        raise ValueError(f"successes: got {successes}, expected 0 to {total}")
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / total
    shrinking = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / shrinking
    variance_of_share = share * (1 - share) / total + z * z / (4 * total * total)
    half = z / shrinking * math.sqrt(variance_of_share)
    # At the ends the formula gives exactly 0 and 1 but for rounding.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high


def share_interval(means: Sequence[float], draws: int) -> tuple[float, float]:
    """Return the interval of a mean of shares, one a question.

    It is Wilson's, for as many draws as the spread of the means is worth (Kish's effective sample
    size), at most as many as there are questions: repeats never count as questions. Near 0 and 1
    few questions tell, so the spread is trusted by how many do.

    Args:
        means: the share of each question.
        draws: how many answers they rest on.

    Raises:
        ValueError: there are no means, one is outside [0, 1], or there are fewer draws than means.
    """
    count = len(means)
    if not count or not 0 <= min(means) <= max(means) <= 1:
        raise ValueError(f"means: got {list(means)[:5]}, expected at least one, all in [0, 1]")
    if draws < count:
        raise ValueError(f"draws: got {draws}, expected at least one a question: {count}")
    share = min(1.0, max(0.0, fmean(means)))
    full_variance = share * (1 - share)  # of a question's mean, if its repeats agree
    if share > 0.5:
        telling = sum(mean < 1 for mean in means)
    else:
        telling = sum(mean > 0 for mean in means)
    if draws == count or count < 2 or not telling or not full_variance:
        return wilson_interval(share * count, count)
    pooled = (telling * variance(means) + full_variance) / (telling + 1)
    effective = min(float(count), max(1.0, count * full_variance / pooled))
    return wilson_interval(share * effective, effective)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's t interval of a mean of any numbers, one a question.

    It holds all numbers if there is only one value.

    >>> [round(end, 2) for end in mean_interval([1, 2, 3, 4, 5])]
    [1.04, 4.96]
    """
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    centre = fmean(values)
    half = _student(count - 1) * math.sqrt(variance(values) / count)
    return centre - half, centre + half


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of any numbers, one a question, with the interval of ``mean_interval``."""
    return Estimate(fmean(values), *mean_interval(values), len(values))


def bootstrap_mean(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> MeanTest:
    """Test a mean of at least two values by the percentile bootstrap.

    The plain interval is too narrow by sqrt((n - 1) / n) and has normal tails instead of Student's;
    its percentiles are moved out by that (T. C. Hesterberg, The American Statistician 69, 2015,
    section 3.3). If no draw is beyond 0 the p-value is that of Student's t, if smaller: one in that
    many draws would leave nothing of a table after Holm.
    """
    if fmean(values) < 0:
        # One orientation, so that a difference turned around has its interval turned around.
        turned = bootstrap_mean([-value for value in values], seed=seed, resamples=resamples)
        return MeanTest(-turned.high, -turned.low, turned.p)
    from scipy.special import ndtr

    count = len(values)
    means = _resampled_means(values, seed, resamples)
    widening = math.sqrt(count / (count - 1))
    quantile = -widening * _student(count - 1)
    outside = min(int(ndtr(quantile) * resamples), (resamples - 1) // 2)
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    share_beyond = min(0.5, (beyond + 1) / (resamples + 1))
    t = -NormalDist().inv_cdf(share_beyond) / widening
    error = math.sqrt(variance(values) / count)
    if not beyond and error:
        t = max(t, fmean(values) / error)
    low = float(means[outside])
    high = float(means[-1 - outside])
    return MeanTest(low, high, two_sided(t, count - 1))


def _resampled_means(values: Sequence[float], seed: int, resamples: int) -> NDArray[Any]:
    """Return the means of samples drawn with replacement, sorted."""
    import numpy as np

    count = len(values)
    given = np.asarray(values, dtype=float)
    distinct, counts = np.unique(given, return_counts=True)
    generator = np.random.default_rng(seed)
    if len(distinct) <= max(8, count // 15):
        # A mean depends only on how often each distinct value is drawn.
        sums = generator.multinomial(count, counts / count, size=resamples) @ distinct
    else:
        at_once = max(1, _AT_ONCE // count)
        parts: list[NDArray[Any]] = []
        for start in range(0, resamples, at_once):
            size = min(at_once, resamples - start)
            parts.append(given[generator.integers(0, count, (size, count))].sum(axis=1))
        sums = np.concatenate(parts)
    return np.sort(np.round(sums / count, 12))  # rounded, so that what cancels is 0


def cautious_mean(values: Sequence[float]) -> MeanTest:
    """Test a mean by Student's t with one value more, that is half 1 and half -1.

    The value added speaks for neither side. Where few questions differ, and all in one direction,
    or by small shares of many repeats, their own spread is too small to go by. For differences of
    -1, 0 and 1 it adds half a question to each side (A. Agresti, Y. Min, Statistics in Medicine 24,
    2005).

    >>> [round(number, 3) for number in cautious_mean([1.0] * 4 + [0.0] * 96)]
    [-0.004, 0.083, 0.073]
    """
    count = len(values) + 1
    centre = math.fsum(values) / count
    squares = math.fsum(value * value for value in values) + 1
    spread = (squares - count * centre * centre) / (count - 1)
    error = math.sqrt(spread / count)
    half = _student(count - 1) * error
    return MeanTest(centre - half, centre + half, two_sided(centre / error, count - 1))


def jackknife_interval(whole: float, without: Sequence[float]) -> tuple[float, float, float]:
    """Return a smooth statistic without its first-order bias, and its interval.

    If its curvature is what makes it vary (an entropy near its most), the interval is widened by
    that: the variance of a square is twice its mean's square (M. Quenouille, J. Tukey).

    Args:
        whole: the statistic.
        without: the statistic without the first question, without the second …; if there are fewer
            than two, nothing is known.
    """
    count = len(without)
    if count < 2:
        return whole, -math.inf, math.inf
    pseudo = [count * whole - (count - 1) * one for one in without]
    value = fmean(pseudo)
    curvature = 2 * (whole - value) ** 2
    error = math.sqrt(variance(pseudo) / count + curvature)
    half = _student(count - 1) * error
    return value, value - half, value + half


def averaged_interval(
    parts: Sequence[Estimate] | Sequence[Difference],
) -> tuple[float, float]:
    """Return the interval of the mean of independent estimates, weighted alike.

    Distances of the ends from the values are added as variances are (MOVER: G. Y. Zou, A. Donner,
    Statistics in Medicine 27, 2008). So the interval is skewed where theirs are, and has a width
    where no part varied.

    >>> parts = [Estimate(0.5, 0.4, 0.6, problems=9), Estimate(1.0, 0.96, 1.0, problems=9)]
    >>> [round(end, 3) for end in averaged_interval(parts)]
    [0.696, 0.8]
    """
    if len(parts) == 1:
        return parts[0].low, parts[0].high
    centre = fmean(part.value for part in parts)
    below = math.fsum((part.value - part.low) ** 2 for part in parts)
    above = math.fsum((part.high - part.value) ** 2 for part in parts)
    return centre - math.sqrt(below) / len(parts), centre + math.sqrt(above) / len(parts)


def p_of_interval(value: float, low: float, high: float) -> float:
    """Return the two-sided p-value of 0 that belongs to a 95 % interval.

    >>> round(p_of_interval(0.1, 0.0, 0.2), 6), p_of_interval(0.0, -0.1, 0.1)
    (0.05, 1.0)
    """
    if not value:
        return 1.0
    reach = value - low
    if value < 0:
        reach = high - value
    if not reach:
        return 0.0
    z = REACH * abs(value) / reach
    return min(1.0, math.erfc(z / math.sqrt(2)))


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float] | None:
    """Return Fieller's interval of mean(tops) / mean(bottoms), both of the same questions.

    It holds every ratio r for which mean(tops - r x bottoms) may be 0 (E. C. Fieller, 1954). None:
    the lower mean may be 0 itself.
    """
    count = len(tops)
    if count < 2 or len(bottoms) != count:
        return None
    top, bottom = fmean(tops), fmean(bottoms)
    reach = _student(count - 1) ** 2 / count / (count - 1)
    top_apart = [one - top for one in tops]
    bottom_apart = [one - bottom for one in bottoms]
    of_tops = reach * math.fsum(one**2 for one in top_apart)
    of_bottoms = reach * math.fsum(one**2 for one in bottom_apart)
    products = (one * other for one, other in zip(top_apart, bottom_apart, strict=True))
    of_both = reach * math.fsum(products)
    # (top - r bottom)^2 <= variance(r) is lead r^2 - 2 middle r + rest <= 0.
    lead = bottom * bottom - of_bottoms
    if lead <= 0:
        return None
    middle = top * bottom - of_both
    rest = top * top - of_tops
    root = math.sqrt(max(0.0, middle * middle - lead * rest))
    return (middle - root) / lead, (middle + root) / lead


def two_sided(t: float, degrees: int) -> float:
    """Return the two-sided p-value of Student's t."""
    from scipy.special import stdtr

    tail = float(stdtr(degrees, -abs(t)))
    return min(1.0, 2 * tail)


def variance(values: Sequence[float]) -> float:
    """Return the sample variance (with n - 1) of at least two values."""
    centre = fmean(values)
    squares = math.fsum((value - centre) ** 2 for value in values)
    return squares / (len(values) - 1)


def _student(degrees: int) -> float:
    """Return the standard errors from the middle of Student's 95 % interval to its ends."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


# ── one system ────────────────────────────────────────────────────────────────────────────────────
def clustered_mean(scores_by_problem: Sequence[Sequence[float]]) -> Mean:
    """Return the mean over problems of the mean over repeats (avg@k).

    Problems without a decided score are left out. ``se`` is the spread of the problems' means over
    the root of their number (0.5 for a single problem, the most it could be); the interval is
    ``share_interval``'s.

    Raises:
        ValueError: there is no score at all, or one is outside [0, 1].

    >>> [round(number, 3) for number in clustered_mean([[1, 1], [1, 0], [0, 0], [1, 1]])]
    [0.625, 0.239, 0.219, 0.908]
    """
    decided = [scores for scores in scores_by_problem if scores]
    if not decided:
        raise ValueError("scores_by_problem: got no score, expected at least one")
    return _mean([fmean(scores) for scores in decided], sum(map(len, decided)))


def pass_at_k(scores_by_problem: Sequence[Sequence[float]], k: int) -> Mean:
    """Return the chance that at least one of ``k`` answers is right.

    It is unbiased, from n >= k repeats (Chen et al., 2021). Problems with fewer are left out.

    Raises:
        ValueError: ``k`` is below 1, or no problem has ``k`` decided repeats.

    >>> round(pass_at_k([[1, 0, 0, 0], [0, 0, 0, 0]], 2).mean, 3)
    0.25
    """
    if k < 1:
        raise ValueError(f"k: got {k}, expected at least 1")
    enough = [scores for scores in scores_by_problem if len(scores) >= k]
    if not enough:
        raise ValueError(f"scores_by_problem: no problem has {k} decided repeats, expected one")
    chances: list[float] = []
    for scores in enough:
        failed = sum(score <= 0.5 for score in scores)
        ways = math.comb(len(scores), k)
        chances.append(1 - math.comb(failed, k) / ways)
    return _mean(chances, sum(map(len, enough)))


def grouped(decided: Iterable[tuple[Key, float | None]]) -> dict[Key, list[float]]:
    """Group scores by problem, in the order given; None is undecided and left out."""
    scores: dict[Key, list[float]] = {}
    for key, score in decided:
        if score is not None:
            scores.setdefault(key, []).append(float(score))
    return scores


def scores_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Return the decided scores of each problem that has any, in the order of the records."""
    return grouped((record.key, record.correct) for record in records)


def estimate(scores: Scores, masked: int = 0) -> Estimate:
    """Estimate the mean of scores by problem, every task weighing the same."""
    parts: list[Estimate] = []
    for of_task in by_task(scores).values():
        mean = clustered_mean(list(of_task.values()))
        parts.append(Estimate(mean.mean, mean.low, mean.high, len(of_task)))
    value = fmean(part.value for part in parts)
    return Estimate(value, *averaged_interval(parts), len(scores), masked)


def by_task(scores: Mapping[Key, Value]) -> dict[str, dict[Key, Value]]:
    """Group values by the task of their problem."""
    tasks: dict[str, dict[Key, Value]] = {}
    for key, value in scores.items():
        task, _ = key
        tasks.setdefault(task, {})[key] = value
    return tasks


def task_mean(means: Mapping[Key, float]) -> float:
    """Return the mean of a number of each problem, every task weighing the same.

    >>> task_mean({("sums", "1"): 1.0, ("sums", "2"): 0.0, ("words", "1"): 1.0})
    0.75
    """
    return fmean(fmean(of_task.values()) for of_task in by_task(means).values())


def mean_score(scores: Scores) -> float:
    """Return the mean over problems of the mean over repeats, every task weighing the same."""
    return task_mean({key: fmean(repeats) for key, repeats in scores.items()})


def cross_fitted(candidates: Sequence[Scores], keys: Sequence[Key]) -> Scores:
    """Return for each problem the scores of the candidate that is best on the other half."""
    chosen: dict[Key, Sequence[float]] = {}
    for half, other_half in ((keys[::2], keys[1::2]), (keys[1::2], keys[::2])):
        if candidates:
            best = max(candidates, key=lambda scores: _mean_of(scores, other_half))
            chosen |= {key: best[key] for key in half if key in best}
    return chosen


def _mean_of(scores: Scores, keys: Sequence[Key]) -> float:
    """Return the mean over some problems; 0 if none of them has scores."""
    values = [fmean(scores[key]) for key in keys if key in scores]
    return fmean(values) if values else 0.0


def _mean(means: Sequence[float], draws: int) -> Mean:
    se = math.sqrt(variance(means) / len(means)) if len(means) > 1 else 0.5
    low, high = share_interval(means, draws)
    return Mean(fmean(means), se, low, high)


# ── two systems ───────────────────────────────────────────────────────────────────────────────────
def difference(
    first: Scores,
    second: Scores,
    seed: int = 0,
    *,
    resamples: int = RESAMPLES,
    pooled: bool = False,
) -> Difference | None:
    """Return the mean of first - second, paired by problem; None: no problem is in both.

    Every task weighs the same; with ``pooled``, where the tasks agree, a task weighs by the inverse
    of its variance. They agree if all means have one sign, or differ by no more than chance
    (Cochran's Q). Pairing takes the problems' own difficulty out of the interval.
    The interval is the wider of the bootstrap's and of ``cautious_mean``'s, with the larger p. If
    all differences are the same, it is what as many equal problems leave open (Clopper and
    Pearson, 1934).
    """
    paired: dict[Key, float] = {}
    for key, scores in first.items():
        if key in second:
            # Rounded, so that two thirds less a third are what one less two thirds are.
            paired[key] = round(fmean(scores) - fmean(second[key]), 12)
    parts: list[Difference] = []
    for of_task in by_task(paired).values():
        parts.append(_difference(list(of_task.values()), seed, resamples))
    if len(parts) < 2:
        return parts[0] if parts else None
    value = fmean(part.value for part in parts)
    low, high = averaged_interval(parts)
    if pooled and _agree(parts):
        value, low, high = _pool(parts)
    return Difference(
        value=value,
        low=low,
        high=high,
        p=p_of_interval(value, low, high),
        problems=sum(part.problems for part in parts),
        better=sum(part.better for part in parts),
        worse=sum(part.worse for part in parts),
    )


def _agree(parts: Sequence[Difference]) -> bool:
    """Return True if all differences have one sign, or differ by no more than chance."""
    if all(part.value > 0 for part in parts) or all(part.value < 0 for part in parts):
        return True
    from scipy.special import chdtrc

    value, _, _ = _pool(parts)
    squares = [((part.value - value) / (part.high - part.low)) ** 2 for part in parts]
    statistic = math.fsum(squares) * (2 * REACH) ** 2
    return float(chdtrc(len(parts) - 1, statistic)) >= DISAGREEMENT


def _pool(parts: Sequence[Difference]) -> tuple[float, float, float]:
    """Return the mean of independent differences by inverse variance, and its interval.

    Distances of the ends are added as in ``averaged_interval``.
    """
    inverse = [1 / (part.high - part.low) ** 2 for part in parts]
    weights = [one / math.fsum(inverse) for one in inverse]
    pairs = list(zip(weights, parts, strict=True))
    value = math.fsum(weight * part.value for weight, part in pairs)
    below = math.fsum((weight * (part.value - part.low)) ** 2 for weight, part in pairs)
    above = math.fsum((weight * (part.high - part.value)) ** 2 for weight, part in pairs)
    return value, value - math.sqrt(below), value + math.sqrt(above)


def _difference(differences: Sequence[float], seed: int, resamples: int) -> Difference:
    """Return the mean of the paired differences on one task."""
    value = fmean(differences)
    if min(differences) == max(differences):
        test = _equal_differences(value, len(differences))
    else:
        drawn = bootstrap_mean(differences, seed=seed, resamples=resamples)
        cautious = cautious_mean(differences)
        low = max(-1.0, min(drawn.low, cautious.low))
        high = min(1.0, max(drawn.high, cautious.high))
        test = MeanTest(low, high, max(drawn.p, cautious.p))
    return Difference(
        value,
        *test,
        problems=len(differences),
        better=sum(one > 0 for one in differences),
        worse=sum(one < 0 for one in differences),
    )


def _equal_differences(value: float, count: int) -> MeanTest:
    """Test a mean of differences that are all the same."""
    apart = 1 - ((1 - CONFIDENCE) / 2) ** (1 / count)  # the largest share that may be otherwise
    low, high = value - apart * (1 + value), value + apart * (1 - value)
    if not value:
        return MeanTest(low, high, 1.0)
    # The interval's, turned around. If all differ by a whole answer it is the sign test's.
    p = 2 * (1 + abs(value)) ** -count
    return MeanTest(low, high, min(1.0, p))


def holm(pvalues: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests for their number (S. Holm, 1979); in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(pvalues)
    largest = 0.0
    in_order = sorted(range(len(pvalues)), key=lambda index: pvalues[index])
    for rank, index in enumerate(in_order):
        adjusted_p = (len(pvalues) - rank) * pvalues[index]
        largest = max(largest, min(1.0, adjusted_p))
        adjusted[index] = largest
    return adjusted
