"""Do intervals of differences hold the truth? Seeded simulations of pairs of systems.

Each test prints what it found (``pytest -rP``): docs/statistics.md has the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from simulated import Array, assert_as_claimed, covered, keyed, pairs

from openconductor.evaluation.intervals import bootstrap_mean
from openconductor.evaluation.run import Outcome
from openconductor.evaluation.statistics import accuracy, difference, paired_difference
from openconductor.types import Episode, Grade, Problem, Usage


@pytest.mark.parametrize(
    ("share", "gain", "questions", "repeats", "alike", "common"),
    [
        (0.5, 0.0, 100, 1, 1.0, 0.8),
        (0.9, 0.0, 100, 1, 1.0, 0.9),
        (0.8, 0.1, 100, 1, 1.0, 0.7),
        (0.9, 0.05, 100, 2, 0.5, 0.8),
        (0.3, 0.05, 200, 1, 0.3, 1.0),
        (0.7, 0.1, 100, 4, 1.0, 0.5),
        (0.5, 0.02, 150, 8, 2.0, 1.0),
    ],
)
def test_a_paired_difference_covers_as_it_claims(
    share: float, gain: float, questions: int, repeats: int, alike: float, common: float
) -> None:
    rng = np.random.default_rng(15)

    def intervals() -> Iterator[tuple[float, float]]:
        for seed in range(1000):
            ours, theirs = pairs(rng, share, gain, questions, repeats, alike, common)
            found = difference(keyed(ours), keyed(theirs), seed, resamples=1000)
            assert found is not None
            yield found.low, found.high

    assert_as_claimed(covered(intervals(), gain))


def test_a_real_difference_is_mostly_found() -> None:
    rng = np.random.default_rng(17)
    found = 0
    for seed in range(200):
        ours, theirs = pairs(rng, 0.6, 0.15, 200, 2, 1.0, 0.9)
        answer = difference(keyed(ours), keyed(theirs), seed, resamples=1000)
        found += answer is not None and answer.p < 0.05 and answer.low > 0
    assert found > 190


ASKED = [
    {
        (sample, score): Outcome(
            Problem(str(index), "?", "!", "t"), Episode("?", (), "!", None, Usage(), 0.0), Grade(score > 0.5), sample
        )
        for sample in range(2)
        for score in (0.0, 1.0)
    }
    for index in range(100)
]


def outcomes(scores: Array) -> list[Outcome]:
    return [
        of_one[sample, score]
        for of_one, row in zip(ASKED, scores.tolist(), strict=True)
        for sample, score in enumerate(row)
    ]


def test_estimates_of_outcomes_cover_as_they_claim() -> None:
    rng = np.random.default_rng(18)
    single: list[tuple[float, float]] = []
    paired: list[tuple[float, float]] = []
    for seed in range(1000):
        ours, theirs = pairs(rng, 0.6, 0.1, 100, 2, 1.0, 0.7)
        first, second = outcomes(ours), outcomes(theirs)
        estimate, gain = accuracy(second), paired_difference(first, second, seed=seed, resamples=1000)
        assert estimate is not None and gain is not None
        single.append((estimate.low, estimate.high))
        paired.append((gain.low, gain.high))
    assert_as_claimed(covered(iter(single), 0.6))
    assert_as_claimed(covered(iter(paired), 0.1))


def test_the_p_value_and_the_interval_of_a_bootstrap_agree() -> None:
    rng = np.random.default_rng(20)
    for seed in range(200):
        values = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=100).tolist()
        low, high, p = bootstrap_mean(values, seed=seed)
        if abs(p - 0.05) > 0.004:
            assert (p < 0.05) == (low > 0 or high < 0)
