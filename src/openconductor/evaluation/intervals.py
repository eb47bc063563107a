"""95 % intervals of numbers that questions give: shares, means, differences, and whatever is made of such means.

In: one number a question (or a statistic that can be computed without any one of them). Out: (low, high). Pure and
seeded; the bootstrap needs numpy, all else the standard library only.

Questions are what is drawn at random, so they are the clusters: repeats of one question are averaged first and never
count as more questions. ``docs/statistics.md`` says how the methods were chosen and how well they cover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

RESAMPLES = 10_000
CONFIDENCE = 0.95
_FEW = 8  # distinct values up to which their counts are drawn, however few values there are
_PER_DISTINCT = 15  # values for each distinct one from which on that is the faster way
_AT_ONCE = 1_000_000  # numbers drawn at a time
_NORMAL = NormalDist()
_REACH = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2)  # standard errors from the middle of an interval to its ends


def wilson_interval(successes: float, total: float, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927); (0, 1) where nothing was counted.

    Args:
        successes: how many; a fraction where ``total`` is an effective number.
        total: of how many.
        confidence: how often the interval holds the truth.

    Raises:
        ValueError: more successes than trials, or a confidence outside (0, 1).

    >>> [round(end, 3) for end in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    if not 0 <= successes <= total:
        raise ValueError(f"successes: got {successes}, expected 0 to {total}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}, expected a number between 0 and 1")
    if total == 0:
        return 0.0, 1.0
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    share = successes / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    # At the ends the formula gives exactly 0 and 1 but for rounding.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high


def share_interval(means: Sequence[float], draws: int) -> tuple[float, float]:
    """The interval of a mean of shares, one a question: Wilson's, with as many questions as the spread is worth.

    Questions whose repeats agree are worth one draw each, questions whose repeats are independent are worth all of
    them; the spread of the means says where between the two a set of questions stands (Kish's effective sample size).
    Near 0 and 1 only few questions tell, so that measured spread is trusted by how many do: with none it is as if
    all repeats of a question agreed. With one draw a question this is Wilson's interval itself.

    Args:
        means: each question's share, in [0, 1].
        draws: how many draws they rest on, of all questions together.

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
    effective = min(float(draws), max(1.0, count * full / pooled))
    return wilson_interval(share * effective, effective)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval of a mean of any numbers, one a question; all numbers for a single one.

    Raises:
        ValueError: there are no values.

    >>> [round(end, 2) for end in mean_interval([1, 2, 3, 4, 5])]
    [1.04, 4.96]
    """
    if not values:
        raise ValueError("values: got none, expected at least one")
    if len(values) < 2:
        return -math.inf, math.inf
    centre = fmean(values)
    half = student(_REACH, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return centre - half, centre + half


def bootstrap_interval(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The percentile bootstrap interval of a mean, widened for few values; the same seed gives the same interval.

    The plain percentile interval is too narrow by sqrt((n - 1) / n) and has normal tails instead of Student's; its
    percentiles are moved out by just that (T. C. Hesterberg, The American Statistician 69, 2015, section 3.3).

    Raises:
        ValueError: there are fewer than two values.
    """
    low, high, _ = bootstrap_mean(values, seed=seed, resamples=resamples)
    return low, high


def bootstrap_mean(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """The interval of ``bootstrap_interval``, and the two-sided p-value of a mean of 0 that belongs to it.

    The p-value is below 0.05 where the 95 % interval leaves 0 out, but for rounding to the draws. Where not one draw is
    beyond 0 it is that of Student's t, if that is smaller: a p-value that cannot fall below one in so many draws would
    leave nothing of a large table after Holm's adjustment.

    Raises:
        ValueError: there are fewer than two values.
    """
    count = len(values)
    if count < 2:
        raise ValueError(f"values: got {list(values) or 'none'}, expected at least two")
    if fmean(values) < 0:  # one orientation, so that a difference turned around has the same interval turned around
        low, high, p = bootstrap_mean([-value for value in values], seed=seed, resamples=resamples)
        return -high, -low, p
    import numpy as np

    distinct, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    generator = np.random.default_rng(seed)
    if len(distinct) <= max(
        _FEW, count // _PER_DISTINCT
    ):  # how often each distinct value is drawn is all that a mean depends on
        sums = generator.multinomial(count, counts / count, size=resamples) @ distinct
    else:
        given = np.asarray(values, dtype=float)
        blocks = range(0, resamples, max(1, _AT_ONCE // count))
        sizes = np.diff([*blocks, resamples])
        sums = np.concatenate([given[generator.integers(0, count, (size, count))].sum(axis=1) for size in sizes])
    means = np.sort(np.round(sums / count, 12))  # rounded, so that what cancels is 0
    widening = math.sqrt(count / (count - 1))
    tail = _beyond(widening * student(_REACH, count - 1))
    outside = min(int(tail * resamples), (resamples - 1) // 2)
    below, above = int((means <= 0).sum()), int((means >= 0).sum())
    share = min(0.5, (min(below, above) + 1) / (resamples + 1))
    t = -_NORMAL.inv_cdf(share) / widening
    spread = math.sqrt(variance(values) / count)
    if not min(below, above) and spread:  # no draw is beyond 0: how far it lies, only the formula can tell
        t = max(t, abs(fmean(values)) / spread)
    return float(means[outside]), float(means[-1 - outside]), two_sided(t, count - 1)


def cautious_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Student's t interval of a mean with one value more, that speaks for neither side, and the p-value of a mean of 0.

    The value added is half up, half down, by the root mean square of those that are not 0. Of many differences it
    changes nothing. Where few differ, and all in one direction, their own spread is too small to go by: of equals that
    differ on four questions, one pair in eight has all four the same way. For differences of -1, 0 and 1 it adds half
    a question to each side (A. Agresti, Y. Min, Statistics in Medicine 24, 2005).

    Raises:
        ValueError: no value is other than 0.

    >>> [round(number, 3) for number in cautious_mean([1.0] * 4 + [0.0] * 96)]
    [-0.004, 0.083, 0.073]
    """
    telling = [value * value for value in values if value]
    if not telling:
        raise ValueError(f"values: got {len(values)} that are 0, expected another among them")
    count = len(values) + 1
    centre = math.fsum(values) / count
    squares = math.fsum(telling) * (1 + 1 / len(telling))
    error = math.sqrt((squares - count * centre * centre) / (count - 1) / count)
    half = student(_REACH, count - 1) * error
    return centre - half, centre + half, two_sided(centre / error, count - 1)


def jackknife_interval(whole: float, without: Sequence[float]) -> tuple[float, float, float]:
    """The estimate and interval of a smooth statistic from leaving out each question once (M. Quenouille, J. Tukey).

    Args:
        whole: the statistic of all questions.
        without: the statistic without the first question, without the second, and so on.

    Returns:
        The statistic with its bias removed to first order, and the interval's ends; for fewer than two questions
        ``whole`` and all numbers. Where the statistic is so flat that its curvature is what makes it vary (an entropy
        near its most), the interval is widened by that: the variance of a square is twice its mean's square.
    """
    count = len(without)
    if count < 2:
        return whole, -math.inf, math.inf
    pseudo = [count * whole - (count - 1) * each for each in without]
    value = fmean(pseudo)
    spread = math.sqrt(variance(pseudo) / count + 2 * (whole - value) ** 2)
    half = student(_REACH, count - 1) * spread
    return value, value - half, value + half


def averaged_interval(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The interval of the mean of independent estimates, each of the same weight, from their own intervals.

    Args:
        parts: of each estimate its value, its interval's lower and its upper end.

    Returns:
        The ends: distances of the parts' ends from their values, added as variances are (MOVER: G. Y. Zou, A. Donner,
        Statistics in Medicine 27, 2008). So the interval is skewed where theirs are, and has a width where no part
        varied.

    Raises:
        ValueError: there are no parts.

    >>> [round(end, 3) for end in averaged_interval([(0.5, 0.4, 0.6), (1.0, 0.96, 1.0)])]
    [0.696, 0.8]
    """
    if not parts:
        raise ValueError("parts: got none, expected at least one")
    centre = fmean(value for value, _, _ in parts)
    below = math.sqrt(math.fsum((value - low) ** 2 for value, low, _ in parts)) / len(parts)
    above = math.sqrt(math.fsum((high - value) ** 2 for value, _, high in parts)) / len(parts)
    return centre - below, centre + above


def p_of_interval(value: float, low: float, high: float) -> float:
    """The two-sided p-value of 0 that belongs to an interval: 0.05 where a 95 % interval's end is 0.

    The end towards 0 stands as many standard errors from the value as the normal quantile of the confidence.

    >>> round(p_of_interval(0.1, 0.0, 0.2), 6), p_of_interval(0.0, -0.1, 0.1)
    (0.05, 1.0)
    """
    reach = value - low if value > 0 else high - value
    if not value or not reach:
        return 0.0 if value else 1.0
    return min(1.0, 2 * _beyond(_REACH * abs(value) / reach))


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float] | None:
    """Fieller's interval of mean(tops) / mean(bottoms), both of the same questions (E. C. Fieller, 1954).

    It holds every ratio r for which mean(tops - r x bottoms) may be 0, so it stays right where the lower mean is
    small against its noise.

    Returns:
        None where the lower mean may be 0 itself: the ratio can then be anything.
    """
    count = len(tops)
    if count < 2 or len(bottoms) != count:
        return None
    top, bottom = fmean(tops), fmean(bottoms)
    reach = student(_REACH, count - 1) ** 2 / count / (count - 1)
    of_tops = reach * math.fsum((one - top) ** 2 for one in tops)
    of_bottoms = reach * math.fsum((one - bottom) ** 2 for one in bottoms)
    of_both = reach * math.fsum((one - top) * (other - bottom) for one, other in zip(tops, bottoms, strict=True))
    lead = bottom * bottom - of_bottoms  # (top - r bottom)^2 <= variance(r), as lead r^2 - 2 middle r + rest <= 0
    if lead <= 0:
        return None
    middle, rest = top * bottom - of_both, top * top - of_tops
    root = math.sqrt(max(0.0, middle * middle - lead * rest))
    return (middle - root) / lead, (middle + root) / lead


def agreeing_bound(count: int) -> float:
    """The largest share of questions that may be different where all ``count`` were alike (two-sided).

    >>> round(agreeing_bound(100), 3)
    0.036
    """
    return 1 - ((1 - CONFIDENCE) / 2) ** (1 / count) if count else 1.0


@lru_cache(maxsize=1024)
def student(z: float, degrees: int) -> float:
    """Student's t quantile at the probability at which the normal quantile is ``z``.

    Exact for 1 and 2 degrees of freedom; else the expansion 26.7.5 of Abramowitz and Stegun, within 0.1 % for |z| <= 2.

    >>> [round(student(1.959964, degrees), 3) for degrees in (1, 2, 10, 99)]
    [12.706, 4.303, 2.228, 1.984]
    """
    if degrees < 1:
        raise ValueError(f"degrees: got {degrees}, expected at least 1")
    if degrees < 3:
        tail = _beyond(z)
        return 1 / math.tan(math.pi * tail) if degrees == 1 else (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    square = z * z
    first = (square + 1) / 4
    second = ((5 * square + 16) * square + 3) / 96
    third = (((3 * square + 19) * square + 17) * square - 15) / 384
    fourth = ((((79 * square + 776) * square + 1482) * square - 1920) * square - 945) / 92160
    return z * (1 + (first + (second + (third + fourth / degrees) / degrees) / degrees) / degrees)


def two_sided(t: float, degrees: int) -> float:
    """The two-sided p-value of Student's t: the inverse of ``student``, by halving."""
    low, high = 0.0, 37.0  # beyond it, doubles have no probabilities left
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student.__wrapped__(middle, degrees) < abs(t) else (low, middle)
    return min(1.0, 2 * _beyond(high))


def variance(values: Sequence[float]) -> float:
    """The sample variance (with n - 1) of at least two values."""
    centre = fmean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _beyond(z: float) -> float:
    """How likely a normal number is above ``z``; unlike ``NormalDist.cdf(-z)`` it has all its figures far out."""
    return math.erfc(z / math.sqrt(2)) / 2
