"""What a score is worth: shares with 95 % intervals, and differences between two systems on the same problems.

In: Outcomes. Out: estimates. Undecided outcomes are left out and counted apart. Pure, seeded, standard library only.

With one sample a problem the interval is Wilson's score interval: the problems are independent draws of a yes or no.
With several samples those of one problem hang together, so whole problems are drawn again (percentile bootstrap). Both
say how far the score on another draw of problems of the same kind may lie.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from openconductor.evaluation.run import Outcome

RESAMPLES = 2000


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


def wilson_interval(successes: int, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927); (0, 1) where nothing was counted.

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
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    # At the ends the formula gives exactly 0 and 1 but for rounding.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high


def accuracy(outcomes: Iterable[Outcome], *, seed: int = 0) -> Estimate | None:
    """The share of right answers; each problem weighs the same, however many of its samples were decided.

    Args:
        outcomes: of one system.
        seed: of the bootstrap, which is needed only where problems have several samples.

    Returns:
        The estimate; None where nothing was decided.
    """
    scores, masked = _scores(outcomes)
    if not scores:
        return None
    means = [fmean(of_one) for of_one in scores.values()]
    if all(len(of_one) == 1 for of_one in scores.values()):
        low, high = wilson_interval(round(sum(means)), len(means))
    else:
        low, high = bootstrap_interval(means, seed=seed)
    return Estimate(fmean(means), low, high, len(means), masked)


def paired_difference(ours: Iterable[Outcome], theirs: Iterable[Outcome], *, seed: int = 0) -> Estimate | None:
    """By how much the first system is right more often than the second, on the problems that both have decided.

    Pairing by problem takes the problems' own difficulty out of the interval, which so is narrower than what two single
    intervals suggest.

    Returns:
        The estimate in [-1, 1] (percentile bootstrap over problems); None where no problem was decided by both.
    """
    first, first_masked = _scores(ours)
    second, second_masked = _scores(theirs)
    both = [key for key in first if key in second]
    if not both:
        return None
    differences = [fmean(first[key]) - fmean(second[key]) for key in both]
    low, high = bootstrap_interval(differences, seed=seed)
    return Estimate(fmean(differences), low, high, len(both), first_masked + second_masked)


def bootstrap_interval(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES, confidence: float = 0.95
) -> tuple[float, float]:
    """The percentile bootstrap interval of a mean; the same seed gives the same interval.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("values: got none, expected at least one")
    rng = random.Random(seed)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(resamples))
    outside = round((1 - confidence) / 2 * resamples)
    return means[outside], means[-1 - outside]


def _scores(outcomes: Iterable[Outcome]) -> tuple[dict[tuple[str, str], list[float]], int]:
    """The decided scores by problem (task and id), and how many outcomes were undecided."""
    scores: dict[tuple[str, str], list[float]] = {}
    masked = 0
    for outcome in outcomes:
        correct = outcome.correct
        if correct is None:
            masked += 1
        else:
            scores.setdefault((outcome.problem.task, outcome.problem.id), []).append(float(correct))
    return scores, masked
