"""What a score is worth: means with standard errors and 95 % intervals, differences on the same problems.

In: Outcomes, Records, or scores by problem. Out: estimates; undecided results are left out and
counted apart. Pure and seeded; scipy and numpy are imported where they are needed, and Wilson's
interval needs neither.

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
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from openconductor.evaluation.records import Record

RESAMPLES = 10_000
CONFIDENCE = 0.95
_AT_ONCE = 1_000_000  # numbers that the bootstrap draws at a time
_REACH = NormalDist().inv_cdf(
    (1 + CONFIDENCE) / 2
)  # standard errors from the middle of an interval to its ends

Key = tuple[str, str]
"""A problem's task and id."""
Value = TypeVar("Value")
Scores = Mapping[Key, Sequence[float]]
"""The decided scores, in [0, 1], of each problem that has any."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval, how many problems it rests on, and how many undecided outcomes it leaves out."""

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

    ``p`` is the two-sided p-value of no difference; ``better`` and ``worse`` count problems on
    which either did better.
    """

    value: float
    low: float
    high: float
    p: float
    problems: int
    better: int
    worse: int


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────
def wilson_interval(
    successes: float, total: float, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927); (0, 1) where nothing was counted.

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
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (
        z
        / (1 + z * z / total)
        * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    )
    # At the ends the formula gives exactly 0 and 1 but for rounding.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high


def share_interval(means: Sequence[float], draws: int) -> tuple[float, float]:
    """The interval of a mean of shares, one a question: Wilson's, with as many draws as the spread is worth.

    ``draws`` is how many answers they rest on. The spread of the means says how many draws a set of
    questions is worth (Kish's effective sample size), at most as many as there are questions:
    repeats never count as questions. Near 0 and 1 few questions tell, so the spread is trusted by
    how many do.

    Raises:
        ValueError: there are no means, one is outside [0, 1], or there are fewer draws than means.
    """
    count = len(means)
    if not count or not 0 <= min(means) <= max(means) <= 1:
        raise ValueError(f"means: got {list(means)[:5]}, expected at least one, all in [0, 1]")
    if draws < count:
        raise ValueError(f"draws: got {draws}, expected at least one a question: {count}")
    share = min(1.0, max(0.0, fmean(means)))
    full = share * (1 - share)  # the variance of a question's mean where its repeats agree
    telling = sum(mean < 1 for mean in means) if share > 0.5 else sum(mean > 0 for mean in means)
    if draws == count or count < 2 or not telling or not full:
        return wilson_interval(share * count, count)
    pooled = (telling * variance(means) + full) / (telling + 1)
    effective = min(float(count), max(1.0, count * full / pooled))
    return wilson_interval(share * effective, effective)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval of a mean of any numbers, one a question; all numbers for a single one.

    >>> [round(end, 2) for end in mean_interval([1, 2, 3, 4, 5])]
    [1.04, 4.96]
    """
    if len(values) < 2:
        return -math.inf, math.inf
    centre, half = (
        fmean(values),
        _student(len(values) - 1) * math.sqrt(variance(values) / len(values)),
    )
    return centre - half, centre + half


def bootstrap_mean(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """The percentile bootstrap interval of a mean of at least two values, and the two-sided p-value of a mean of 0.

    The plain interval is too narrow by sqrt((n - 1) / n) and has normal tails instead of Student's;
    its percentiles are moved out by that (T. C. Hesterberg, The American Statistician 69, 2015,
    section 3.3). Where no draw is beyond 0 the p-value is that of Student's t, if smaller: one in
    that many draws would leave nothing of a table after Holm.
    """
    import numpy as np
    from scipy.special import ndtr

    count = len(values)
    if (
        fmean(values) < 0
    ):  # one orientation, so that a difference turned around has the same interval turned around
        low, high, p = bootstrap_mean([-value for value in values], seed=seed, resamples=resamples)
        return -high, -low, p
    given = np.asarray(values, dtype=float)
    distinct, counts = np.unique(given, return_counts=True)
    generator = np.random.default_rng(seed)
    if len(distinct) <= max(
        8, count // 15
    ):  # how often each distinct value is drawn is all that a mean depends on
        sums = generator.multinomial(count, counts / count, size=resamples) @ distinct
    else:
        blocks = range(0, resamples, max(1, _AT_ONCE // count))
        sizes = np.diff([*blocks, resamples])
        sums = np.concatenate(
            [given[generator.integers(0, count, (size, count))].sum(axis=1) for size in sizes]
        )
    means = np.sort(np.round(sums / count, 12))  # rounded, so that what cancels is 0
    widening = math.sqrt(count / (count - 1))
    outside = min(int(ndtr(-widening * _student(count - 1)) * resamples), (resamples - 1) // 2)
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    t = -NormalDist().inv_cdf(min(0.5, (beyond + 1) / (resamples + 1))) / widening
    spread = math.sqrt(variance(values) / count)
    if not beyond and spread:
        t = max(t, fmean(values) / spread)
    return float(means[outside]), float(means[-1 - outside]), two_sided(t, count - 1)


def cautious_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Student's t interval of a mean with one value more, that speaks for neither side, and the p-value of a mean of 0.

    The value added is half 1 and half -1, a whole answer either way. Where few questions differ,
    and all in one direction, or by small shares of many repeats, their own spread is too small to
    go by. For differences of -1, 0 and 1 it adds half a question to each side (A. Agresti, Y. Min,
    Statistics in Medicine 24, 2005).

    >>> [round(number, 3) for number in cautious_mean([1.0] * 4 + [0.0] * 96)]
    [-0.004, 0.083, 0.073]
    """
    count = len(values) + 1
    centre = math.fsum(values) / count
    squares = math.fsum(value * value for value in values) + 1
    error = math.sqrt((squares - count * centre * centre) / (count - 1) / count)
    half = _student(count - 1) * error
    return centre - half, centre + half, two_sided(centre / error, count - 1)


def jackknife_interval(whole: float, without: Sequence[float]) -> tuple[float, float, float]:
    """A smooth statistic without its first-order bias, and its interval, from leaving out each question once.

    ``without`` holds the statistic without the first question, without the second …; with fewer
    than two nothing is known. Where its curvature is what makes it vary (an entropy near its most),
    the interval is widened by that: the variance of a square is twice its mean's square (M.
    Quenouille, J. Tukey).
    """
    count = len(without)
    if count < 2:
        return whole, -math.inf, math.inf
    pseudo = [count * whole - (count - 1) * each for each in without]
    value = fmean(pseudo)
    half = _student(count - 1) * math.sqrt(variance(pseudo) / count + 2 * (whole - value) ** 2)
    return value, value - half, value + half


def averaged_interval(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The interval of the mean of independent estimates (value, low, high), each of the same weight.

    Distances of the ends from the values are added as variances are (MOVER: G. Y. Zou, A. Donner,
    Statistics in Medicine 27, 2008), so the interval is skewed where theirs are, and has a width
    where no part varied.

    >>> [round(end, 3) for end in averaged_interval([(0.5, 0.4, 0.6), (1.0, 0.96, 1.0)])]
    [0.696, 0.8]
    """
    if len(parts) == 1:
        return parts[0][1:]
    centre = fmean(value for value, _, _ in parts)
    below = math.sqrt(math.fsum((value - low) ** 2 for value, low, _ in parts)) / len(parts)
    above = math.sqrt(math.fsum((high - value) ** 2 for value, _, high in parts)) / len(parts)
    return centre - below, centre + above


def p_of_interval(value: float, low: float, high: float) -> float:
    """The two-sided p-value of 0 that belongs to an interval: 0.05 where a 95 % interval's end is 0.

    >>> round(p_of_interval(0.1, 0.0, 0.2), 6), p_of_interval(0.0, -0.1, 0.1)
    (0.05, 1.0)
    """
    reach = value - low if value > 0 else high - value
    if not value or not reach:
        return 0.0 if value else 1.0
    return min(1.0, math.erfc(_REACH * abs(value) / reach / math.sqrt(2)))


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float] | None:
    """Fieller's interval of mean(tops) / mean(bottoms), both of the same questions (E. C. Fieller, 1954).

    It holds every ratio r for which mean(tops - r x bottoms) may be 0; None where the lower mean
    may be 0 itself.
    """
    count = len(tops)
    if count < 2 or len(bottoms) != count:
        return None
    top, bottom = fmean(tops), fmean(bottoms)
    reach = _student(count - 1) ** 2 / count / (count - 1)
    of_tops = reach * math.fsum((one - top) ** 2 for one in tops)
    of_bottoms = reach * math.fsum((one - bottom) ** 2 for one in bottoms)
    of_both = reach * math.fsum(
        (one - top) * (other - bottom) for one, other in zip(tops, bottoms, strict=True)
    )
    lead = (
        bottom * bottom - of_bottoms
    )  # (top - r bottom)^2 <= variance(r), as lead r^2 - 2 middle r + rest <= 0
    if lead <= 0:
        return None
    middle, rest = top * bottom - of_both, top * top - of_tops
    root = math.sqrt(max(0.0, middle * middle - lead * rest))
    return (middle - root) / lead, (middle + root) / lead


def two_sided(t: float, degrees: int) -> float:
    """The two-sided p-value of Student's t."""
    from scipy.special import stdtr

    return min(1.0, 2 * float(stdtr(degrees, -abs(t))))


def variance(values: Sequence[float]) -> float:
    """The sample variance (with n - 1) of at least two values."""
    centre = fmean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _student(degrees: int) -> float:
    """How many standard errors the ends of Student's 95 % interval are from its middle."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


# ── one system ────────────────────────────────────────────────────────────────────────────────────
def clustered_mean(scores_by_problem: Sequence[Sequence[float]]) -> Mean:
    """The mean over problems of the mean over repeats (avg@k); a problem without a decided score is left out.

    ``se`` is the spread of the problems' means over the root of their number (0.5 for a single
    problem, the most it could be); the interval is ``share_interval``'s.

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
    """The chance that at least one of ``k`` answers is right: unbiased, from n >= k repeats (Chen et al., 2021).

    Raises:
        ValueError: ``k`` is below 1, or no problem has ``k`` decided repeats; those that have fewer
            are left out.

    >>> round(pass_at_k([[1, 0, 0, 0], [0, 0, 0, 0]], 2).mean, 3)
    0.25
    """
    if k < 1:
        raise ValueError(f"k: got {k}, expected at least 1")
    enough = [scores for scores in scores_by_problem if len(scores) >= k]
    if not enough:
        raise ValueError(
            f"scores_by_problem: no problem has {k} decided repeats, expected at least one that has"
        )
    wrong = [(len(scores), sum(score <= 0.5 for score in scores)) for scores in enough]
    return _mean(
        [1 - math.comb(failed, k) / math.comb(total, k) for total, failed in wrong],
        sum(map(len, enough)),
    )


def grouped(decided: Iterable[tuple[Key, float | None]]) -> dict[Key, list[float]]:
    """The scores of each problem that has any, in the order given; None is undecided and left out."""
    scores: dict[Key, list[float]] = {}
    for key, score in decided:
        if score is not None:
            scores.setdefault(key, []).append(float(score))
    return scores


def scores_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """The decided scores of each problem that has any, in the order of the records."""
    return grouped(((one.task, one.problem), one.correct) for one in records)


def estimate(scores: Scores, masked: int = 0) -> Estimate:
    """The mean of scores by problem, every task weighing the same, with its interval."""
    means = [clustered_mean(list(of_one.values())) for of_one in by_task(scores).values()]
    low, high = averaged_interval([(one.mean, one.low, one.high) for one in means])
    return Estimate(fmean(one.mean for one in means), low, high, len(scores), masked)


def by_task(scores: Mapping[Key, Value]) -> dict[str, dict[Key, Value]]:
    """What is known of each problem, task by task."""
    found: dict[str, dict[Key, Value]] = {}
    for key, value in scores.items():
        found.setdefault(key[0], {})[key] = value
    return found


def task_mean(means: Mapping[Key, float]) -> float:
    """The mean of a number of each problem, every task weighing the same.

    >>> task_mean({("sums", "1"): 1.0, ("sums", "2"): 0.0, ("words", "1"): 1.0})
    0.75
    """
    return fmean(fmean(of_one.values()) for of_one in by_task(means).values())


def _mean(means: Sequence[float], draws: int) -> Mean:
    se = math.sqrt(variance(means) / len(means)) if len(means) > 1 else 0.5
    return Mean(fmean(means), se, *share_interval(means, draws))


# ── two systems ───────────────────────────────────────────────────────────────────────────────────
def difference(
    first: Scores, second: Scores, seed: int = 0, *, resamples: int = RESAMPLES
) -> Difference | None:
    """The mean of first - second, paired by problem, every task weighing the same; None where nothing can be paired.

    Pairing takes the problems' own difficulty out of the interval: the wider of the bootstrap's and
    of ``cautious_mean``'s, with the larger p-value. Where all differences are the same, it is what
    as many equal problems leave open (Clopper and Pearson, 1934).
    """
    # Rounded, so that two thirds less a third are what one less two thirds are.
    paired = {
        key: round(fmean(first[key]) - fmean(second[key]), 12) for key in first if key in second
    }
    parts = [
        _difference(list(of_one.values()), seed, resamples) for of_one in by_task(paired).values()
    ]
    if len(parts) < 2:
        return parts[0] if parts else None
    value = fmean(one.value for one in parts)
    low, high = averaged_interval([(one.value, one.low, one.high) for one in parts])
    counts = (sum(getattr(one, name) for one in parts) for name in ("problems", "better", "worse"))
    return Difference(value, low, high, p_of_interval(value, low, high), *counts)


def _difference(differences: Sequence[float], seed: int, resamples: int) -> Difference:
    """The mean of the paired differences on one task."""
    better, worse = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    value, count = fmean(differences), len(differences)
    if min(differences) == max(differences):
        apart = 1 - ((1 - CONFIDENCE) / 2) ** (1 / count)  # the largest share that may be otherwise
        low, high = value - apart * (1 + value), value + apart * (1 - value)
        # The interval's, turned around; where all differ by a whole answer it is the sign test's.
        p = min(1.0, 2 * (1 + abs(value)) ** -count) if value else 1.0
    else:
        drawn, cautious = (
            bootstrap_mean(differences, seed=seed, resamples=resamples),
            cautious_mean(differences),
        )
        low, high = max(-1.0, min(drawn[0], cautious[0])), min(1.0, max(drawn[1], cautious[1]))
        p = max(drawn[2], cautious[2])
    return Difference(value, low, high, p, count, better, worse)


def holm(pvalues: Sequence[float]) -> list[float]:
    """The p-values of several tests, in [0, 1], adjusted for their number (S. Holm, 1979); in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(pvalues)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(pvalues)), key=lambda place: pvalues[place])):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[index]))
        adjusted[index] = largest
    return adjusted
