"""Are equals rarely called different? Seeded simulations of pairs of systems of the same skill.

Each test prints what it found (``pytest -rP``): docs/statistics.md has the figures.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from simulated import keyed, pairs

from openconductor.evaluation.intervals import averaged_interval, p_of_interval
from openconductor.evaluation.statistics import Difference, difference, holm


@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "common"),
    [(0.5, 100, 1, 1.0, 0.0), (0.7, 200, 1, 0.5, 0.8), (0.9, 100, 1, 0.5, 0.95), (0.8, 100, 4, 1.0, 0.9)],
)
def test_two_systems_of_equal_skill_are_rarely_called_different(
    share: float, questions: int, repeats: int, alike: float, common: float
) -> None:
    rng = np.random.default_rng(16)
    false = 0
    for seed in range(1000):
        ours, theirs = pairs(rng, share, 0.0, questions, repeats, alike, common)
        found = difference(keyed(ours), keyed(theirs), seed, resamples=1000)
        assert found is not None
        false += found.p < 0.05
    print(f"false {false} of 1000")
    assert false <= 65


def test_average_differences_of_equal_systems_are_rarely_called_different() -> None:
    rng = np.random.default_rng(24)
    false = 0
    for seed in range(1000):
        found: list[tuple[float, float, float]] = []
        for share in (0.6, 0.9):
            ours, theirs = pairs(rng, share, 0.0, 100, 1, 1.0, 0.8)
            part = difference(keyed(ours), keyed(theirs), seed, resamples=1000)
            assert part is not None
            found.append((part.value, part.low, part.high))
        low, high = averaged_interval(found)
        p = p_of_interval(sum(value for value, _, _ in found) / 2, low, high)
        assert (p < 0.05) == (low > 0 or high < 0)
        false += p < 0.05
    print(f"false {false} of 1000")
    assert false <= 65


@cache
def single_answers(better: int, worse: int, questions: int) -> Difference:
    """Two systems asked once each, that differ on so many questions."""
    ours = np.array([[1.0]] * better + [[0.0]] * (questions - better))
    theirs = np.array([[0.0]] * better + [[1.0]] * worse + [[0.0]] * (questions - better - worse))
    found = difference(keyed(ours), keyed(theirs), resamples=4000)
    assert found is not None
    return found


def seldom(rng: np.random.Generator, apart: float, questions: int) -> Difference:
    """Equals that differ on such a share of questions."""
    better, worse, _ = rng.multinomial(questions, [apart / 2, apart / 2, 1 - apart]).tolist()
    return single_answers(better, worse, questions)


def test_systems_that_seldom_differ_are_rarely_called_different() -> None:
    """Some five in a hundred questions tell the two apart: where a bootstrap has least to go on."""
    rng = np.random.default_rng(25)
    false = sum(seldom(rng, apart, 100).p < 0.05 for apart in rng.choice([0.02, 0.03, 0.05, 0.07], size=1000))
    print(f"false {false} of 1000")
    assert false <= 65


@pytest.mark.parametrize(
    ("tasks", "questions", "apart"), [(2, 100, 0.01), (2, 30, 0.06), (4, 100, 0.02), (7, 100, 0.1)]
)
def test_averages_of_systems_that_seldom_differ_are_rarely_called_different(
    tasks: int, questions: int, apart: float
) -> None:
    rng = np.random.default_rng(26)
    false = 0
    for _ in range(1000):
        parts = [(one.value, one.low, one.high) for one in (seldom(rng, apart, questions) for _ in range(tasks))]
        value = sum(value for value, _, _ in parts) / tasks
        false += p_of_interval(value, *averaged_interval(parts)) < 0.05
    print(f"false {false} of 1000")
    assert false <= 65


def test_among_thirty_equals_a_false_difference_is_rare_after_holms_adjustment() -> None:
    """All thirty are compared with one reference, so that its luck is in every comparison."""
    rng = np.random.default_rng(27)
    false = 0
    for _ in range(1000):
        answers = (rng.random(30) < 0.6) ^ (rng.random((31, 30)) < 0.3)
        better, worse = (answers[1:] & ~answers[0]).sum(axis=1), (~answers[1:] & answers[0]).sum(axis=1)
        compared = zip(better.tolist(), worse.tolist(), strict=True)
        false += min(holm([single_answers(*counts, 30).p for counts in compared])) < 0.05
    print(f"false {false} of 1000")
    assert false <= 50


@pytest.mark.parametrize(
    ("questions", "better", "worse"),
    [(100, 4, 0), (100, 8, 0), (100, 10, 0), (100, 12, 1), (30, 8, 0), (5, 4, 0), (6, 5, 0), (200, 20, 5)],
)
def test_a_few_differences_are_not_called_more_than_the_sign_test_allows(
    questions: int, better: int, worse: int
) -> None:
    """McNemar's exact test is conservative: half its p-value, about its mid-p, is the least to be claimed."""
    found = single_answers(better, worse, questions)
    told = better + worse
    exact = 2 * sum(math.comb(told, count) for count in range(worse + 1)) / 2**told
    assert found.p > 0.38 * exact
    assert (found.p < 0.05) == (found.low > 0)
    assert -1 <= found.low < found.value < found.high <= 1
