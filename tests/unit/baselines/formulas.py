"""The accuracies that the definitions of the baselines predict, from the workers' chances alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, prod

import numpy as np


def majority(share: float, n: int) -> float:
    """Return the chance that more than half of ``n`` independent answers are right.

    ``n`` is odd.
    """
    return sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n // 2 + 1, n + 1))


def jury(shares: Sequence[float]) -> float:
    """Return the chance that more than half of unequal, independent workers are right."""
    total = 0.0
    for votes in product((True, False), repeat=len(shares)):
        if sum(votes) > len(shares) / 2:
            chances = zip(shares, votes, strict=True)
            total += prod(share if right else 1 - share for share, right in chances)
    return total


def revised(first: float, mends: float, breaks: float, n: int) -> float:
    """Return the share of right answers of a chain of two states after ``n`` steps."""
    share = first
    for _ in range(n):
        share = share * (1 - breaks) + (1 - share) * mends
    return share


def noise_of(shares: Sequence[float]) -> np.ndarray:
    """Return Smoothie's estimate if wrong answers all differ.

    D_ij is in proportion to 1 - p_i p_j.
    """
    return triplets(1 - np.outer(shares, shares))


def triplets(apart: np.ndarray) -> np.ndarray:
    """Return the mean over pairs (j, k) of the others of (D_ij + D_ik - D_jk) / 2."""
    count = len(apart)
    noise = np.zeros(count)
    for i in range(count):
        others = [one for one in range(count) if one != i]
        noise[i] = np.mean(
            [(apart[i, j] + apart[i, k] - apart[j, k]) / 2 for j in others for k in others if j < k]
        )
    return noise
