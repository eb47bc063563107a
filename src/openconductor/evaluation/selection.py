"""The best of several, honestly: what choosing on the very questions that are scored adds, and how to do without.

In: scores by problem of several systems. Out: scores by problem of the best one, naive and corrected.

The best of noisy scores looks better than it is. Two corrections, both of them scores by problem again, so that every
interval and paired test takes them like any system's:

- **The best single worker** is chosen on other questions than those it is scored on (ten folds, drawn many times). The
  naive value is too high, this one at most a little too low; a gain must hold against the naive one.
- **The best worker of each question** (the observed oracle) is chosen by all repeats but one and scored on that one.
  Two fair coins have a naive oracle of .75 and a corrected one of .5. The naive value is too high; the corrected one is
  what choosing by the other repeats reaches, which is below the true oracle.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

Key = tuple[str, str]
Scores = Mapping[Key, Sequence[float]]
"""The decided scores of each problem (task and id) that has any."""

FOLDS = 10
PARTITIONS = 20


@dataclass(frozen=True, slots=True)
class BestSingle:
    """The best of several systems.

    Attributes:
        name: which is best on these questions, of those that have decided at least half as many as any; of equals the
            first.
        naive: its scores.
        fitted: for each question the score of the system that is best on other questions; where there are none, of the
            best on this one. A question that the chosen system has not decided is left out.
        chosen: how often each system was the best on other questions; shares that add up to 1.
    """

    name: str
    naive: Scores
    fitted: Scores
    chosen: Mapping[str, float]


def best_single(
    systems: Mapping[str, Scores], *, seed: int = 0, folds: int = FOLDS, partitions: int = PARTITIONS
) -> BestSingle | None:
    """The best system, as it seems and by cross-fitting.

    Args:
        systems: their scores.
        seed: of the folds.
        folds: how many parts the questions are cut into; each is scored by what the others choose.
        partitions: how often they are cut anew; a question's score is the mean over these.

    Returns:
        None where nothing was decided.
    """
    means = {name: {key: fmean(of_one) for key, of_one in scores.items()} for name, scores in systems.items() if scores}
    if not means:
        return None
    most = max(map(len, means.values()))  # one that failed on all but a few easy questions is not the best
    means = {name: of_one for name, of_one in means.items() if 2 * len(of_one) >= most}
    name = max(means, key=lambda one: fmean(means[one].values()))
    questions = sorted({key for scores in means.values() for key in scores})
    rng = random.Random(f"folds/{seed}")
    found: dict[Key, list[float]] = {}
    chosen = dict.fromkeys(means, 0)
    totals = {one: (sum(of_one.values()), len(of_one)) for one, of_one in means.items()}
    for _ in range(partitions):
        rng.shuffle(questions)
        for part in range(min(folds, len(questions))):
            inside = questions[part::folds]
            best = _best_outside(means, totals, inside) or name
            chosen[best] += len(inside)
            for key in inside:
                if key in means[best]:
                    found.setdefault(key, []).append(means[best][key])
    fitted = {key: [fmean(found[key])] for key in sorted(found)}
    total = max(1, sum(chosen.values()))
    return BestSingle(name, systems[name], fitted, {one: count / total for one, count in chosen.items()})


def _best_outside(
    means: Mapping[str, Mapping[Key, float]], totals: Mapping[str, tuple[float, int]], inside: Sequence[Key]
) -> str | None:
    """The best system on the questions outside a fold, of equals the first; None where nothing was decided there."""
    best: tuple[float, str] | None = None
    for name, of_one in means.items():
        within = [of_one[key] for key in inside if key in of_one]
        total, count = totals[name]
        if count > len(within):
            # Rounded, so that what was added up in another order is equal.
            outside = round((total - sum(within)) / (count - len(within)), 12)
            if best is None or outside > best[0]:
                best = (outside, name)
    return best[1] if best is not None else None


def naive_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]]:
    """For each question the best mean score of any system: what hindsight reaches, noise included."""
    found: dict[Key, list[float]] = {}
    for scores in systems.values():
        for key, of_one in scores.items():
            found[key] = [max(fmean(of_one), *found.get(key, ()))] if key in found else [fmean(of_one)]
    return found


def corrected_oracle(systems: Mapping[str, Scores]) -> dict[Key, list[float]] | None:
    """For each question the score, on one repeat, of the system that is best on its other repeats; mean over repeats.

    Of equals each counts the same.

    Returns:
        None where no question has two decided repeats of a system: single answers cannot be told from luck.
    """
    found: dict[Key, list[float]] = {}
    for key in {key: None for scores in systems.values() for key in scores}:
        repeated = [scores[key] for scores in systems.values() if len(scores.get(key, ())) > 1]
        held_out: list[float] = []
        for repeat in range(max(map(len, repeated), default=0)):
            rest = [
                ((sum(scores) - scores[repeat]) / (len(scores) - 1), scores[repeat])
                for scores in repeated
                if repeat < len(scores)
            ]
            best = max(others for others, _ in rest)
            held_out.append(fmean(score for others, score in rest if others == best))
        if held_out:
            found[key] = [fmean(held_out)]
    return found or None
