"""What the simulations of intervals and tests share: questions of many difficulties, and systems that answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

SIMULATIONS = 1200
Array = np.ndarray[Any, Any]


def difficulties(rng: np.random.Generator, share: float, questions: int, alike: float | None) -> Array:
    if alike is None:
        return np.full(questions, share)
    return rng.beta(share * alike, (1 - share) * alike, size=questions)


def asked(rng: np.random.Generator, chances: Array, repeats: int) -> Array:
    """Scores: a row a question, a column a repeat."""
    return (rng.random((len(chances), repeats)) < chances[:, None]).astype(float)


def covered(intervals: Iterator[tuple[float, float]], truth: float) -> float:
    held = [low <= truth <= high for low, high in intervals]
    assert len(held) >= 1000
    return sum(held) / len(held)


def assert_as_claimed(share: float) -> None:
    print(f"covered {share:.3f}")
    assert 0.93 <= share <= 0.97, f"covered {share:.3f}"


def pairs(
    rng: np.random.Generator, share: float, gain: float, questions: int, repeats: int, alike: float, common: float
) -> tuple[Array, Array]:
    """The scores of two systems; ``common`` is the share of questions that are equally hard for both."""
    first = difficulties(rng, share, questions, alike)
    own = difficulties(rng, share, questions, alike)
    second = np.where(rng.random(questions) < common, first, own)
    better = second + (1 - second) * gain / (1 - share)
    return asked(rng, better, repeats), asked(rng, first, repeats)


def keyed(scores: Array) -> dict[tuple[str, str], Sequence[float]]:
    return {("t", str(index)): row for index, row in enumerate(scores.tolist())}
