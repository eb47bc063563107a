"""Do two curves go together? Planted curves, ties, trends, and how often chance is mistaken for an association."""

from __future__ import annotations

import random

import pytest

from openconductor.evaluation.association import association, spearman


def test_spearman_against_numbers_worked_out_by_hand() -> None:
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207827)
    assert spearman([1, 2, 3], [3, 2, 1]) == -1
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_curves_that_move_together_for_another_reason_than_time_keep_it_without_the_trend() -> None:
    rng = random.Random(1)
    shared = [rng.gauss(0, 1) for _ in range(200)]
    one = [place / 50 + value + rng.gauss(0, 0.3) for place, value in enumerate(shared)]
    other = [place / 50 + value + rng.gauss(0, 0.3) for place, value in enumerate(shared)]
    found = association(one, other)
    assert found is not None
    assert found.detrended is not None
    assert found.rho > 0.8
    assert found.detrended.low > 0.5


def test_two_trends_alone_are_no_association_once_the_trend_is_out() -> None:
    rng = random.Random(2)
    one, other = ([place / 20 + rng.gauss(0, 1) for place in range(200)] for _ in range(2))
    found = association(one, other)
    assert found is not None
    assert found.detrended is not None
    assert found.rho > 0.7
    assert found.detrended.low < 0 < found.detrended.high


def test_the_interval_seldom_leaves_zero_out_where_there_is_nothing() -> None:
    wrong = 0
    for seed in range(400):
        rng = random.Random(seed)
        found = association([rng.gauss(0, 1) for _ in range(60)], [rng.gauss(0, 1) for _ in range(60)])
        assert found is not None
        wrong += not found.low <= 0 <= found.high
    assert wrong <= 32, "20 are expected of 400"


@pytest.mark.parametrize("count", [0, 5, 19])
def test_too_few_places_say_nothing(count: int) -> None:
    assert association(list(range(count)), list(range(count))) is None


def test_places_without_a_value_are_left_out() -> None:
    values: list[float | None] = [float(place) for place in range(40)]
    gaps = [value if place % 2 else None for place, value in enumerate(values)]
    found = association(values, gaps)
    assert found is not None
    assert (found.places, found.rho) == (20, 1.0)


def test_a_curve_that_never_moves_goes_with_nothing() -> None:
    assert association([1.0] * 30, list(range(30))) is None
