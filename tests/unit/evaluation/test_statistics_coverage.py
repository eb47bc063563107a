"""Do 95 % intervals hold the truth 95 times in 100? Seeded simulations of every function that gives one.

Each question has a difficulty of its own, drawn anew each time (a Beta distribution around the mean share, or the same
for all), so what is covered is the mean over all questions that there could be, not over those that were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from openconductor.evaluation.intervals import (
    bootstrap_interval,
    bootstrap_mean,
    jackknife_interval,
    mean_interval,
    ratio_interval,
    wilson_interval,
)
from openconductor.evaluation.run import Outcome
from openconductor.evaluation.statistics import (
    accuracy,
    avg_at_k,
    clustered_mean,
    difference,
    paired_difference,
    pass_at_k,
)
from openconductor.measures import entropy_bits
from openconductor.types import Episode, Grade, Problem, Usage

SIMULATIONS = 1200
Array = np.ndarray[Any, Any]
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
    assert 0.93 <= share <= 0.97, f"covered {share:.3f}"


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

    assert covered(intervals(), 0.6) < 0.7


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
            found = difference(keyed(ours), keyed(theirs), seed, resamples=2000)
            assert found is not None
            yield found.low, found.high

    assert_as_claimed(covered(intervals(), gain))


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
        found = difference(keyed(ours), keyed(theirs), seed, resamples=2000)
        assert found is not None
        false += found.p < 0.05
    assert false <= 65


def test_a_real_difference_is_mostly_found() -> None:
    rng = np.random.default_rng(17)
    found = 0
    for seed in range(200):
        ours, theirs = pairs(rng, 0.6, 0.15, 200, 2, 1.0, 0.9)
        answer = difference(keyed(ours), keyed(theirs), seed, resamples=2000)
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
        estimate, gain = accuracy(second), paired_difference(first, second, seed=seed)
        assert estimate is not None and gain is not None
        single.append((estimate.low, estimate.high))
        paired.append((gain.low, gain.high))
    assert_as_claimed(covered(iter(single), 0.6))
    assert_as_claimed(covered(iter(paired), 0.1))


@pytest.mark.parametrize("interval", [mean_interval, partial(bootstrap_interval, resamples=2000)])
def test_a_mean_of_any_numbers_covers_as_it_claims(
    interval: Callable[[Sequence[float]], tuple[float, float]],
) -> None:
    """Steps a workflow, tokens a question: whole numbers, and skewed ones."""
    rng = np.random.default_rng(19)
    steps = (rng.integers(1, 6, size=100).astype(float).tolist() for _ in range(1000))
    assert_as_claimed(covered(map(interval, steps), 3.0))
    tokens = (rng.gamma(4.0, 25.0, size=120).tolist() for _ in range(1000))
    assert_as_claimed(covered(map(interval, tokens), 100.0))


def test_the_p_value_and_the_interval_of_a_bootstrap_agree() -> None:
    rng = np.random.default_rng(20)
    for seed in range(200):
        values = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=100).tolist()
        low, high, p = bootstrap_mean(values, seed=seed)
        if abs(p - 0.05) > 0.004:
            assert (p < 0.05) == (low > 0 or high < 0)


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
