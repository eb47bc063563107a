"""The observed oracle: for each question the best that any worker was seen to do. In: Observations. Out: scores.

Nothing can be served by it: it looks back at what happened. It is a row of tables, computed from what the other rows'
systems did. The best of several noisy shares is above the best true share, so with few samples a question it flatters
the pool (two fair coins have an observed oracle of .75); read it as an upper end, not as what a router could reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from openconductor.baselines.observed import Observations


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The best of one question.

    Attributes:
        question: its index in the observations.
        right: the largest share of right answers; None where nothing was decided.
        worker: who reached it, of several the first; None where nothing was decided.
    """

    question: int
    right: float | None
    worker: str | None


def oracle_observed(observations: Observations) -> tuple[Hindsight, ...]:
    """The best worker of each question, in hindsight.

    >>> seen = Observations(("a", "b", "c"), ("x", "y"), ((0, 1), (0.5, 0.25), (None, None)))
    >>> [(best.right, best.worker) for best in oracle_observed(seen)]
    [(1, 'y'), (0.5, 'x'), (None, None)]
    """
    rows: list[Hindsight] = []
    for index, row in enumerate(observations.right):
        decided = [(share, -column) for column, share in enumerate(row) if share is not None]
        if decided:
            share, place = max(decided)
            rows.append(Hindsight(index, share, observations.workers[-place]))
        else:
            rows.append(Hindsight(index, None, None))
    return tuple(rows)


def oracle_accuracy(observations: Observations) -> float | None:
    """The mean of ``oracle_observed`` over the questions that were decided; None where there are none."""
    decided = [best.right for best in oracle_observed(observations) if best.right is not None]
    return sum(decided) / len(decided) if decided else None
