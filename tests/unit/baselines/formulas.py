"""What the definitions of the baselines predict, from the workers' chances alone: nothing here asks a worker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, prod

import numpy as np


def majority(share: float, n: int) -> float:
    """The chance that more than half of ``n`` independent answers are right; ``n`` is odd."""
    return sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n // 2 + 1, n + 1))


def plurality(shares: Sequence[float], n: int) -> float:
    """The chance that the first of several answers wins; of those said as often, the one said first does."""
    total = 0.0
    for said in product(range(len(shares)), repeat=n):
        if max(said, key=lambda one: (said.count(one), -said.index(one))) == 0:
            total += prod(shares[one] for one in said)
    return total


def jury(shares: Sequence[float]) -> float:
    """The chance that more than half of unequal, independent workers are right."""
    return sum(
        prod(share if right else 1 - share for share, right in zip(shares, votes, strict=True))
        for votes in product((True, False), repeat=len(shares))
        if sum(votes) > len(shares) / 2
    )


def revised(first: float, mends: float, breaks: float, n: int) -> float:
    """A chain of two states after ``n`` steps."""
    share = first
    for _ in range(n):
        share = share * (1 - breaks) + (1 - share) * mends
    return share


def noise_of(shares: Sequence[float]) -> np.ndarray:
    """Smoothie's estimate where wrong answers all differ: D_ij is in proportion to 1 - p_i p_j."""
    return triplets(1 - np.outer(shares, shares))


def triplets(apart: np.ndarray) -> np.ndarray:
    """The mean over pairs (j, k) of the others of (D_ij + D_ik - D_jk) / 2, written down once more from the paper.

    Of one table or of many: the last two axes are the workers.
    """
    count = apart.shape[-1]
    others = [[one for one in range(count) if one != worker] for worker in range(count)]
    pairs = [[(j, k) for j in others[i] for k in others[i] if j < k] for i in range(count)]
    return np.stack(
        [
            np.mean(
                [(apart[..., i, j] + apart[..., i, k] - apart[..., j, k]) / 2 for j, k in pairs[i]],
                axis=0,
            )
            for i in range(count)
        ],
        axis=-1,
    )


def neighbourly(
    shares_by_topic: Sequence[Sequence[float]], neighbours: int, draws: int = 4000
) -> float:
    """What dependent Smoothie reaches where all neighbours are of the question's topic, by drawing what it sees.

    A question and its neighbours: who is right is drawn, wrong answers all differ, the least noisy
    is taken.
    """
    rng = np.random.default_rng(0)
    got: list[float] = []
    for shares in shares_by_topic:
        right = (rng.random((draws, neighbours + 1, len(shares))) < np.asarray(shares)).astype(
            float
        )
        apart = 1 - np.einsum("dni,dnj->dij", right, right) / (neighbours + 1)
        taken = triplets(apart).argmin(axis=-1)
        got.append(float(right[np.arange(draws), 0, taken].mean()))
    return float(np.mean(got))
