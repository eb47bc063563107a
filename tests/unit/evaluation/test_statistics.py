"""Shares with intervals, and differences on the same problems."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.errors import RateLimited
from openconductor.evaluation.run import Outcome
from openconductor.evaluation.statistics import accuracy, bootstrap_interval, paired_difference, wilson_interval
from openconductor.types import Episode, Grade, Problem, Usage


def outcome(name: object, correct: bool | None, sample: int = 0) -> Outcome:
    error = RateLimited("too many") if correct is None else None
    episode = Episode("What?", (), None if error else "42", error, Usage(), 0.0)
    return Outcome(Problem(str(name), "What?", "42", "t"), episode, None if error else Grade(correct), sample)


# From Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(successes: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


@given(total=st.integers(1, 2000), data=st.data())
def test_wilsons_interval_holds_the_share_and_mirrors_its_opposite(total: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, total))
    low, high = wilson_interval(successes, total)
    assert 0 <= low <= successes / total <= high <= 1
    assert wilson_interval(total - successes, total) == pytest.approx((1 - high, 1 - low))


def test_nothing_counted_says_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert accuracy([]) is None
    assert accuracy([outcome(0, None)]) is None


@pytest.mark.parametrize(("successes", "total", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0)])
def test_impossible_counts_are_refused(successes: int, total: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="got"):
        wilson_interval(successes, total, confidence=confidence)


def test_single_samples_have_wilsons_interval_and_the_undecided_are_counted_apart() -> None:
    estimate = accuracy([outcome(index, index < 6) for index in range(8)] + [outcome(8, None), outcome(9, None)])
    assert estimate is not None
    assert (estimate.value, estimate.problems, estimate.masked) == (0.75, 8, 2)
    assert (estimate.low, estimate.high) == wilson_interval(6, 8)


def test_repeats_of_one_problem_do_not_count_as_more_problems() -> None:
    once = accuracy([outcome(index, index % 2 == 0) for index in range(60)])
    often = accuracy([outcome(index, index % 2 == 0, sample) for index in range(60) for sample in range(16)])
    assert once is not None and often is not None
    assert once.value == often.value == 0.5
    assert often.problems == 60
    assert often.high - often.low == pytest.approx(once.high - once.low, abs=0.03)


def test_every_problem_weighs_the_same_however_many_samples_were_decided() -> None:
    outcomes = [outcome("a", True, sample) for sample in range(4)] + [outcome("b", False), outcome("b", None, 1)]
    estimate = accuracy(outcomes)
    assert estimate is not None
    assert (estimate.value, estimate.masked) == (0.5, 1)


def test_a_bootstrap_interval_repeats_with_its_seed_and_is_near_the_normal_one() -> None:
    rng = random.Random(0)
    values = [rng.gauss(0.3, 1.0) for _ in range(400)]
    low, high = bootstrap_interval(values, seed=1)
    assert (low, high) == bootstrap_interval(values, seed=1)
    assert (low, high) != bootstrap_interval(values, seed=2)
    mean = sum(values) / 400
    assert (low, high) == pytest.approx((mean - 1.96 / math.sqrt(400), mean + 1.96 / math.sqrt(400)), abs=0.03)


def test_a_bootstrap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        bootstrap_interval([])


def test_pairing_takes_the_problems_difficulty_out_of_the_difference() -> None:
    rng = random.Random(3)
    easy = [rng.random() < 0.5 for _ in range(300)]
    # Ours is right wherever theirs is, and on one problem in ten more.
    theirs = [outcome(index, right) for index, right in enumerate(easy)]
    ours = [outcome(index, right or index % 10 == 0) for index, right in enumerate(easy)]
    difference = paired_difference(ours, theirs)
    single, other = accuracy(ours), accuracy(theirs)
    assert difference is not None and single is not None and other is not None
    assert difference.value == pytest.approx(single.value - other.value)
    assert difference.low > 0
    assert difference.high - difference.low < (single.high - single.low)


def test_only_problems_that_both_have_decided_are_compared() -> None:
    ours = [outcome("a", True), outcome("b", None), outcome("c", True)]
    theirs = [outcome("a", False), outcome("b", True), outcome("d", True)]
    difference = paired_difference(ours, theirs)
    assert difference is not None
    assert (difference.value, difference.problems, difference.masked) == (1.0, 1, 1)
    assert paired_difference(ours[1:2], theirs) is None


def test_problems_of_two_tasks_with_one_id_are_two_problems() -> None:
    first = outcome("1", True)
    second = Outcome(Problem("1", "What?", "42", "other"), first.episode, Grade(False))
    estimate = accuracy([first, second])
    assert estimate is not None and estimate.problems == 2
