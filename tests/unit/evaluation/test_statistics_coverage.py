"""Do 95 % intervals hold the truth 95 times in 100? Seeded simulations of every function that gives one of one system.

Each question has a difficulty of its own, drawn anew each time (a Beta distribution around the mean share, or the same
for all), so what is covered is the mean over all questions that there could be, not over those that were drawn.

Each test prints what it found (``pytest -rP``): docs/statistics.md has the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from simulated import SIMULATIONS, asked, assert_as_claimed, covered, difficulties

from openconductor.evaluation.intervals import (
    averaged_interval,
    bootstrap_interval,
    jackknife_interval,
    mean_interval,
    ratio_interval,
    wilson_interval,
)
from openconductor.evaluation.statistics import avg_at_k, clustered_mean, pass_at_k
from openconductor.measures import entropy_bits

SETTINGS = [
    # share, questions, repeats, how alike the difficulties are (None: all the same; 0.5: most are near 0 or 1)
    (0.5, 100, 1, None),
    (0.8, 100, 1, None),
    (0.9, 100, 1, None),
    (0.5, 100, 2, 0.5),
    (0.1, 100, 2, 2.0),
    (0.9, 100, 4, 0.5),
    (0.95, 100, 4, 1.0),
    (0.05, 100, 16, 0.5),
    (0.3, 100, 16, 2.0),
    (0.8, 100, 4, None),
    (0.7, 200, 3, 1.0),
    (0.97, 200, 2, 1.0),
    (0.03, 400, 8, 0.5),
    (0.6, 198, 16, 0.3),
]


@pytest.mark.parametrize(("share", "questions", "repeats", "alike"), SETTINGS)
def test_a_clustered_mean_covers_as_it_claims(share: float, questions: int, repeats: int, alike: float | None) -> None:
    rng = np.random.default_rng(11)

    def intervals() -> Iterator[tuple[float, float]]:
        for _ in range(SIMULATIONS):
            scores = asked(rng, difficulties(rng, share, questions, alike), repeats).tolist()
            yield clustered_mean(scores)[2:]

    assert_as_claimed(covered(intervals(), share))


def test_clustering_by_question_is_what_makes_it_cover() -> None:
    rng = np.random.default_rng(12)

    def intervals() -> Iterator[tuple[float, float]]:
        for _ in range(1000):
            scores = asked(rng, difficulties(rng, 0.6, 100, 0.5), 8)
            yield wilson_interval(int(scores.sum()), scores.size)

    share = covered(intervals(), 0.6)
    print(f"covered {share:.3f} without clustering")
    assert share < 0.7


def test_single_answers_are_covered_exactly_as_well_as_whole_numbers_allow() -> None:
    """Nothing is simulated: the chance of each count is known. No interval that is a function of the count does better
    at every share, for the counts are whole numbers."""
    questions = 100
    ends = np.array([clustered_mean([[1.0]] * right + [[0.0]] * (questions - right))[2:] for right in range(101)])
    shares = np.linspace(0.03, 0.97, 941)
    rights = np.arange(questions + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((questions + 1 - rights[1:]) / rights[1:]))])
    chances = np.exp(log_ways + rights * np.log(shares)[:, None] + (questions - rights) * np.log1p(-shares)[:, None])
    held = (chances * ((ends[:, 0] <= shares[:, None]) & (shares[:, None] <= ends[:, 1]))).sum(axis=1)
    assert np.mean((held >= 0.93) & (held <= 0.97)) > 0.99
    print(f"covered {held.min():.3f} to {held.max():.3f}, on average {held.mean():.3f}")
    assert held.min() > 0.925 and held.max() < 0.98
    assert held.mean() == pytest.approx(0.95, abs=0.005)


def test_near_the_ends_an_interval_errs_on_the_wide_side() -> None:
    rng = np.random.default_rng(13)
    for share, repeats, alike in ((0.02, 8, 0.5), (0.985, 4, 1.0), (0.99, 16, 2.0), (0.01, 2, 0.2)):
        held = covered(
            (
                clustered_mean(asked(rng, difficulties(rng, share, 100, alike), repeats).tolist())[2:]
                for _ in range(SIMULATIONS)
            ),
            share,
        )
        print(f"covered {held:.3f} of a share of {share}")
        assert 0.93 <= held <= 0.99, (share, repeats, alike, held)


@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "k"), [(0.4, 120, 8, 1.0, 4), (0.1, 100, 16, 0.5, 5)]
)
def test_pass_at_k_and_avg_at_k_are_unbiased_and_cover_as_they_claim(
    share: float, questions: int, repeats: int, alike: float, k: int
) -> None:
    rng = np.random.default_rng(14)
    population = rng.beta(share * alike, (1 - share) * alike, size=400_000)
    solved = float(np.mean(1 - (1 - population) ** k))
    passed: list[tuple[float, float]] = []
    averaged: list[tuple[float, float]] = []
    means: list[float] = []
    for _ in range(SIMULATIONS):
        scores = asked(rng, difficulties(rng, share, questions, alike), repeats).tolist()
        estimate = pass_at_k(scores, k)
        means.append(estimate.mean)
        passed.append(estimate[2:])
        averaged.append(avg_at_k(scores, k)[2:])
    assert float(np.mean(means)) == pytest.approx(solved, abs=0.005)
    assert_as_claimed(covered(iter(passed), solved))
    assert_as_claimed(covered(iter(averaged), share))


@pytest.mark.parametrize("interval", [mean_interval, partial(bootstrap_interval, resamples=1000)])
def test_a_mean_of_any_numbers_covers_as_it_claims(
    interval: Callable[[Sequence[float]], tuple[float, float]],
) -> None:
    """Steps a workflow, tokens a question: whole numbers, and skewed ones."""
    rng = np.random.default_rng(19)
    steps = (rng.integers(1, 6, size=100).astype(float).tolist() for _ in range(1000))
    assert_as_claimed(covered(map(interval, steps), 3.0))
    tokens = (rng.gamma(4.0, 25.0, size=120).tolist() for _ in range(1000))
    assert_as_claimed(covered(map(interval, tokens), 100.0))


@pytest.mark.parametrize(
    ("shares", "questions"), [((0.5, 0.8), (100, 100)), ((0.97, 0.6, 0.9), (100, 198, 150)), ((0.99, 0.98), (100, 200))]
)
def test_an_average_over_tasks_covers_as_it_claims(shares: tuple[float, ...], questions: tuple[int, ...]) -> None:
    rng = np.random.default_rng(23)

    def intervals() -> Iterator[tuple[float, float]]:
        for _ in range(SIMULATIONS):
            rights = rng.binomial(questions, shares).tolist()
            yield averaged_interval(
                [(right / n, *wilson_interval(right, n)) for right, n in zip(rights, questions, strict=True)]
            )

    assert_as_claimed(covered(intervals(), float(np.mean(shares))))


def test_a_ratio_covers_as_it_claims_and_is_silent_where_it_may_be_anything() -> None:
    rng = np.random.default_rng(21)
    held: list[bool] = []
    for _ in range(SIMULATIONS):
        best = asked(rng, difficulties(rng, 0.5, 200, 1.0), 1)[:, 0]
        ours = np.where(rng.random(200) < 0.4, 1.0, best)
        oracle = np.where(rng.random(200) < 0.6, 1.0, best)
        found = ratio_interval((ours - best).tolist(), (oracle - best).tolist())
        assert found is not None
        held.append(found[0] <= 0.2 / 0.3 <= found[1])
    assert_as_claimed(float(np.mean(held)))
    noise = rng.choice([-1.0, 0.0, 1.0], size=200)
    assert ratio_interval(noise.tolist(), (noise - noise.mean()).tolist()) is None


ROUTINGS = {
    "by question": [[1, 0, 0, 0], [0, 0.7, 0.3, 0], [0.8, 0.2, 0, 0]],
    "collapsing": [[0.9, 0.05, 0.05, 0]] * 3,
    "over eight": [[0.2] * 4 + [0.05] * 4, [0.3, 0.3, 0, 0, 0, 0, 0.2, 0.2], [0, 0, 0.6, 0.4, 0, 0, 0, 0]],
}


@pytest.mark.parametrize("name", ROUTINGS)
def test_an_entropy_by_jackknife_covers_as_it_claims(name: str) -> None:
    """Routing entropy is of this kind: shares over steps, questions drawn, several steps a question."""
    rng = np.random.default_rng(22)
    kinds = np.array(ROUTINGS[name])
    truth = entropy_bits(kinds.mean(axis=0).tolist())
    held: list[bool] = []
    for _ in range(1000):
        counts = np.array([rng.multinomial(3, kinds[kind]) for kind in rng.integers(0, 3, size=150)])
        total = counts.sum(axis=0)
        without = [entropy_bits(rest) for rest in (total - counts).tolist()]
        _, low, high = jackknife_interval(entropy_bits(total.tolist()), without)
        held.append(low <= truth <= high)
    assert_as_claimed(float(np.mean(held)))
