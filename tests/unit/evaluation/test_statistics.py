"""Shares with intervals, differences on the same problems, and curves that go together."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from openconductor.evaluation import statistics


def compared(first: dict[str, list[float]], second: dict[str, list[float]]) -> Any:
    ours = {("t", name): scores for name, scores in first.items()}
    theirs = {("t", name): scores for name, scores in second.items()}
    return statistics.difference(ours, theirs)


# ── shares ──────────────────────────────────────────────────────────────────────────────────────
# From Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_published_one(successes, total, low, high) -> None:
    assert statistics.wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (statistics.wilson_interval, (3, 2), "successes: got 3"),
        (statistics.clustered_mean, ([[], []],), "got no score"),
        (statistics.clustered_mean, ([[1.5]],), "expected at least one, all in"),
        (statistics.share_interval, ([0.5, 1.0], 1), "draws: got 1"),
        (statistics.pass_at_k, ([[1, 0]], 3), "no problem has 3 decided repeats"),
        (statistics.pass_at_k, ([[1, 0]], 0), "k: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(function, arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_every_problem_of_a_task_weighs_the_same_however_many_samples_were_decided() -> None:
    scores = {("t", "1"): [1.0] * 8, ("t", "2"): [0.0], ("t", "3"): [0.0], ("u", "1"): [0.0]}
    estimate = statistics.estimate(scores, masked=3)
    assert estimate.value == pytest.approx((1 / 3 + 0) / 2)
    assert estimate.problems == 4
    assert estimate.masked == 3


def test_pass_at_k_is_one_minus_the_chance_that_k_drawn_without_repetition_are_all_wrong() -> None:
    # 2 right of 5: 1 - C(3, 2) / C(5, 2) = 0.7; 0 of 5: 0; 3 of 3: 1; one decided: left out.
    scores = [[1, 1, 0, 0, 0], [0] * 5, [1, 1, 1], [1]]
    assert statistics.pass_at_k(scores, 2).mean == pytest.approx(1.7 / 3)
    assert statistics.pass_at_k([[1, 0, 0, 0]], 1).mean == 0.25


# ── means ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("values", "reach"), [([0, 2], 12.706), ([0, 0, 3], 4.303), ([0, 0, 0, 0, 5], 2.776)]
)
def test_students_quantiles_are_the_tabulated_ones(values: list[float], reach: float) -> None:
    """The mean and its error are 1."""
    ends = statistics.mean_interval(values)
    assert ends == pytest.approx((1 - reach, 1 + reach), abs=1e-3)


def test_one_value_has_no_interval() -> None:
    assert statistics.mean_interval([3.0]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("t", "degrees", "p"), [(4, 9, 3.1104e-3), (6, 29, 1.5928e-6), (10, 99, 1.094e-16)]
)
def test_small_p_values_keep_their_figures(t: float, degrees: int, p: float) -> None:
    assert statistics.two_sided(t, degrees) == pytest.approx(p, rel=0.001)
    assert 0 < statistics.p_of_interval(0.9, 0.8, 1.0) < 1e-60


SCORES = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])


@given(st.lists(SCORES, min_size=2, max_size=30).filter(sum))
def test_a_difference_turned_around_has_the_same_interval_turned_around(
    values: list[float],
) -> None:
    low, high, p = statistics.bootstrap_mean(values, resamples=200)
    opposite = [-value for value in values]
    assert statistics.bootstrap_mean(opposite, resamples=200) == (-high, -low, p)


def test_a_cautious_mean_adds_half_a_question_to_each_side_and_changes_nothing_of_many() -> None:
    # Sum 4 and squares 5 of 101.
    mean = 4 / 101
    error = math.sqrt((5 - 16 / 101) / 100 / 101)
    low, high, p = statistics.cautious_mean([1.0] * 4 + [0.0] * 96)
    assert (low, high) == pytest.approx((mean - 1.984 * error, mean + 1.984 * error), abs=1e-5)
    assert p == pytest.approx(0.0735, abs=5e-4)
    rng = random.Random(4)
    values = [rng.gauss(0.05, 0.3) for _ in range(2000)]
    low, high, _ = statistics.cautious_mean(values)
    assert (low, high) == pytest.approx(statistics.mean_interval(values), abs=2e-4)


@pytest.mark.parametrize(
    ("value", "low", "high", "p"),
    [
        (0.2, 0.0, 0.5, 0.05),
        (-0.2, -0.5, 0.0, 0.05),
        (0.0, -0.1, 0.3, 1.0),
        (0.1, 0.1, 0.2, 0.0),
        (0.1, -0.1, 0.2, 0.327),
    ],
)
def test_an_interval_that_ends_at_0_has_a_p_value_of_5_percent(value, low, high, p) -> None:
    assert statistics.p_of_interval(value, low, high) == pytest.approx(p, abs=5e-4)


# ── differences ───────────────────────────────────────────────────────────────────────────────────
def test_pairing_takes_the_problems_difficulty_out_of_the_difference() -> None:
    """Ours is right wherever theirs is, and on one problem in ten more."""
    rng = random.Random(3)
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for number in range(300):
        right = float(rng.random() < 0.5)
        theirs[str(number)] = [right]
        ours[str(number)] = [1.0 if number % 10 == 0 else right]
    gap = compared(ours, theirs)
    single = statistics.clustered_mean([*ours.values()])
    other = statistics.clustered_mean([*theirs.values()])
    assert gap.value == pytest.approx(single.mean - other.mean)
    assert gap.low > 0
    assert gap.high - gap.low < single.high - single.low


def test_a_clear_difference_stays_clear_among_a_thousand_comparisons() -> None:
    values = [1.0] * 80 + [0.0] * 110 + [-1.0] * 10
    low, high, p = statistics.bootstrap_mean(values)
    assert (low, high) == pytest.approx((0.27, 0.43), abs=0.02)
    # Student's t is 0.35 / sqrt((90 - 200 * 0.35 ** 2) / 199 / 200) = 8.6: far beyond what 10,000
    # draws can tell.
    assert p < 1e-12
    assert statistics.holm([p] + [1.0] * 999)[0] < 0.001


def test_thirds_that_differ_by_the_same_are_equal_differences() -> None:
    # Two thirds less a third, and one less two thirds: as floats they are not the same, and spread
    # by 1e-17.
    gap = compared({"a": [1, 1, 0], "b": [1, 1, 1]}, {"a": [1, 0, 0], "b": [1, 1, 0]})
    assert gap.value == pytest.approx(1 / 3)
    assert gap.p == 1.0
    assert gap.low < 0 < gap.high


@pytest.mark.parametrize("apart", [-1.0, -0.5, -0.105, 0.02, 0.3])
@pytest.mark.parametrize("count", [1, 5, 6, 15, 30, 47, 300])
def test_the_interval_and_the_p_value_of_equal_differences_agree(apart: float, count: int) -> None:
    names = [str(number) for number in range(count)]
    ours = {name: [0.5 + apart / 2] for name in names}
    theirs = {name: [0.5 - apart / 2] for name in names}
    gap = compared(ours, theirs)
    holds_zero = gap.low <= 0 <= gap.high
    assert (gap.p < 0.05) != holds_zero
