"""Do 95 % intervals hold the truth 95 times in 100, and are equals rarely called different?

Seeded simulations. Each question has a difficulty of its own, drawn anew each time, so what is
covered is the mean over all questions that there could be, not over those that were drawn. A test
prints what it found (``pytest -rP``): docs/statistics.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from openconductor.evaluation import statistics
from openconductor.measures import entropy_bits

SIMULATIONS = 1000
Array = np.ndarray[Any, Any]
Rng = np.random.Generator
Interval = Callable[[], tuple[float, float]]


def settings(quick: tuple[object, ...], *slow: tuple[object, ...]) -> list[object]:
    """Return the settings of a test, of which only the first is quick."""
    return [quick, *(pytest.param(*setting, marks=pytest.mark.slow) for setting in slow)]


def difficulties(rng: Rng, share: float, questions: int, alike: float | None) -> Array:
    """Draw the chance to get each question; ``alike`` None: all the same, .5: most near 0 or 1."""
    if alike is None:
        return np.full(questions, share)
    return rng.beta(share * alike, (1 - share) * alike, size=questions)


def draw_scores(rng: Rng, chances: Array, repeats: int = 1) -> Array:
    """Draw scores: a row a question, a column a repeat."""
    draws = rng.random((len(chances), repeats))
    return (draws < chances[:, None]).astype(float)


def compared(ours: Array, theirs: Array, seed: int = 0, resamples: int = 1000) -> Any:
    first = {("t", str(n)): row for n, row in enumerate(ours.tolist())}
    second = {("t", str(n)): row for n, row in enumerate(theirs.tolist())}
    return statistics.difference(first, second, seed, resamples=resamples)


def assert_covers(interval: Interval, truth: float, most: float = 0.97) -> None:
    """Draw intervals, and check how many of them hold the truth."""
    held = 0
    for _ in range(SIMULATIONS):
        low, high = interval()
        held += low <= truth <= high
    share = held / SIMULATIONS
    print(f"covered {share:.3f}")
    assert 0.93 <= share <= most


def assert_rarely(false: int, most: int = 65) -> None:
    print(f"false {false} of {SIMULATIONS}")
    assert false <= most


# ── one system ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike"),
    settings(
        (0.9, 100, 4, 0.5),
        (0.5, 100, 1, None),
        (0.9, 100, 1, None),
        (0.1, 100, 2, 2.0),
        (0.05, 100, 16, 0.5),
        (0.98, 30, 16, 0.5),
        (0.97, 200, 2, 1.0),
        (0.6, 198, 16, 0.3),
    ),
)
def test_a_clustered_mean_covers_as_it_claims(share, questions, repeats, alike) -> None:
    rng = np.random.default_rng(11)

    def interval() -> tuple[float, float]:
        scores = draw_scores(rng, difficulties(rng, share, questions, alike), repeats)
        mean = statistics.clustered_mean(scores.tolist())
        return mean.low, mean.high

    # Repeats never count as more questions.
    assert_covers(interval, share, 0.97 if repeats == 1 else 1.0)


def test_single_answers_are_covered_as_well_as_whole_numbers_allow() -> None:
    """Nothing is simulated, because the chance of each count is known."""
    questions = 100
    covered: list[float] = []
    for share in np.linspace(0.03, 0.97, 941):
        total = 0.0
        for right in range(questions + 1):
            low, high = wilson(right, questions)
            if low <= share <= high:
                ways = math.comb(questions, right)
                total += ways * share**right * (1 - share) ** (questions - right)
        covered.append(total)
    print(f"covered {min(covered):.3f} to {max(covered):.3f}, on average {np.mean(covered):.3f}")
    assert min(covered) > 0.925
    assert max(covered) < 0.98
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)


wilson = cache(statistics.wilson_interval)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "k"), [(0.4, 120, 8, 1.0, 4), (0.1, 100, 16, 0.5, 5)]
)
def test_pass_at_k_is_unbiased_and_covers(share, questions, repeats, alike, k) -> None:
    rng = np.random.default_rng(14)
    population = difficulties(rng, share, 400_000, alike)
    truth = float(np.mean(1 - (1 - population) ** k))
    means: list[float] = []

    def interval() -> tuple[float, float]:
        scores = draw_scores(rng, difficulties(rng, share, questions, alike), repeats)
        passed = statistics.pass_at_k(scores.tolist(), k)
        means.append(passed.mean)
        return passed.low, passed.high

    assert_covers(interval, truth, 1.0)
    assert np.mean(means) == pytest.approx(truth, abs=0.005)


@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_a_mean_of_any_numbers_covers_as_it_claims(method: str) -> None:
    """Steps a workflow are whole numbers, tokens a question are skewed."""
    rng = np.random.default_rng(19)

    def interval_of(values: Array) -> tuple[float, float]:
        if method == "t":
            return statistics.mean_interval(values.tolist())
        low, high, _ = statistics.bootstrap_mean(values.tolist(), resamples=1000)
        return low, high

    assert_covers(lambda: interval_of(rng.integers(1, 6, size=100).astype(float)), 3.0)
    assert_covers(lambda: interval_of(rng.gamma(4.0, 25.0, size=120)), 100.0)


@pytest.mark.parametrize(
    ("shares", "questions"),
    settings(((0.97, 0.6, 0.9), (100, 198, 150)), ((0.99, 0.98), (100, 200))),
)
def test_an_average_over_tasks_covers_as_it_claims(shares, questions) -> None:
    rng = np.random.default_rng(23)

    def interval() -> tuple[float, float]:
        parts: list[statistics.Estimate] = []
        for share, count in zip(shares, questions, strict=True):
            right = int(rng.binomial(count, share))
            ends = statistics.wilson_interval(right, count)
            parts.append(statistics.Estimate(right / count, *ends, count))
        return statistics.averaged_interval(parts)

    assert_covers(interval, float(np.mean(shares)))


def test_a_ratio_covers_as_it_claims_and_is_silent_where_it_may_be_anything() -> None:
    rng = np.random.default_rng(21)

    def interval() -> Any:
        best = draw_scores(rng, difficulties(rng, 0.5, 200, 1.0))[:, 0]
        ours = np.where(rng.random(200) < 0.4, 1.0, best)
        oracle = np.where(rng.random(200) < 0.6, 1.0, best)
        return statistics.ratio_interval((ours - best).tolist(), (oracle - best).tolist())

    assert_covers(interval, 0.2 / 0.3)
    noise = rng.choice([-1.0, 0.0, 1.0], size=200)
    centred = noise - noise.mean()
    assert statistics.ratio_interval(noise.tolist(), centred.tolist()) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        [[1, 0, 0, 0], [0, 0.7, 0.3, 0], [0.8, 0.2, 0, 0]],
        [[0.9, 0.05, 0.05, 0]] * 3,
    ],
    ids=["by question", "collapsing"],
)
def test_an_entropy_by_jackknife_covers_as_it_claims(kinds: list[list[float]]) -> None:
    rng = np.random.default_rng(22)

    def interval() -> tuple[float, float]:
        drawn = rng.integers(0, len(kinds), size=150)
        counts = np.array([rng.multinomial(3, kinds[kind]) for kind in drawn])
        total = counts.sum(axis=0)
        without = [entropy_bits(rest) for rest in (total - counts).tolist()]
        _, low, high = statistics.jackknife_interval(entropy_bits(total.tolist()), without)
        return low, high

    truth = entropy_bits(np.mean(kinds, axis=0).tolist())
    assert_covers(interval, truth)


# ── two systems ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "gain", "questions", "repeats", "alike", "common"),
    [
        (0.5, 0.0, 100, 1, 1.0, 0.8),
        (0.9, 0.0, 100, 1, 1.0, 0.9),
        (0.8, 0.1, 100, 1, 1.0, 0.7),
        (0.9, 0.05, 100, 2, 0.5, 0.8),
        (0.7, 0.1, 100, 4, 1.0, 0.5),
        (0.98, 0.02, 30, 16, 0.5, 1.0),
    ],
)
def test_a_paired_difference_covers_and_equals_are_rarely_called_different(
    share, gain, questions, repeats, alike, common
) -> None:
    """``common`` of the questions are as hard for both systems."""
    rng = np.random.default_rng(15)
    p_values: list[float] = []

    def interval() -> tuple[float, float]:
        first = difficulties(rng, share, questions, alike)
        own = difficulties(rng, share, questions, alike)
        second = np.where(rng.random(questions) < common, first, own)
        better = second + (1 - second) * gain / (1 - share)
        ours = draw_scores(rng, better, repeats)
        gap = compared(ours, draw_scores(rng, first, repeats), seed=len(p_values))
        p_values.append(gap.p)
        return gap.low, gap.high

    assert_covers(interval, gain, 1.0 if repeats == 16 else 0.97)
    if not gain:
        assert_rarely(sum(p < 0.05 for p in p_values))


@cache
def single_answers(better: int, worse: int, questions: int) -> statistics.Difference:
    """Compare two systems asked once each, that differ on so many questions."""
    ours = np.zeros((questions, 1))
    theirs = np.zeros((questions, 1))
    ours[:better] = 1
    theirs[better : better + worse] = 1
    return compared(ours, theirs, resamples=4000)


def seldom(rng: Rng, apart: float, questions: int) -> statistics.Difference:
    """Compare equals that differ on such a share of questions."""
    better, worse, _ = rng.multinomial(questions, [apart / 2, apart / 2, 1 - apart]).tolist()
    return single_answers(better, worse, questions)


@pytest.mark.parametrize(
    ("tasks", "questions", "apart"),
    settings((2, 100, 0.01), (1, 100, 0.05), (2, 30, 0.06), (4, 100, 0.02), (7, 100, 0.1)),
)
def test_systems_that_seldom_differ_are_rarely_called_different(tasks, questions, apart) -> None:
    rng = np.random.default_rng(26)
    false = 0
    for _ in range(SIMULATIONS):
        gaps = [seldom(rng, apart, questions) for _ in range(tasks)]
        p = gaps[0].p
        if tasks > 1:
            mean = float(np.mean([gap.value for gap in gaps]))
            p = statistics.p_of_interval(mean, *statistics.averaged_interval(gaps))
        false += p < 0.05
    assert_rarely(false)


@pytest.mark.slow
def test_among_thirty_equals_a_false_difference_is_rare_after_holms_adjustment() -> None:
    """All thirty are compared with one reference, so that its luck is in every comparison."""
    rng = np.random.default_rng(27)
    false = 0
    for _ in range(SIMULATIONS):
        answers = (rng.random(30) < 0.6) ^ (rng.random((31, 30)) < 0.3)
        reference, others = answers[0], answers[1:]
        better = (others & ~reference).sum(axis=1).tolist()
        worse = (~others & reference).sum(axis=1).tolist()
        p = [single_answers(*counts, 30).p for counts in zip(better, worse, strict=True)]
        false += min(statistics.holm(p)) < 0.05
    assert_rarely(false, 50)


@pytest.mark.parametrize(
    ("questions", "better", "worse"),
    [(100, 4, 0), (100, 8, 0), (100, 12, 1), (30, 8, 0), (5, 4, 0), (6, 5, 0), (200, 20, 5)],
)
def test_a_few_differences_are_not_called_more_than_the_sign_test_allows(
    questions: int, better: int, worse: int
) -> None:
    """McNemar's exact test is conservative: at least about half its p-value is claimed."""
    gap = single_answers(better, worse, questions)
    differing = better + worse
    tail = sum(math.comb(differing, count) for count in range(worse + 1))
    exact = 2 * tail / 2**differing
    assert gap.p > 0.38 * exact
    assert (gap.p < 0.05) == (gap.low > 0)
    assert -1 <= gap.low < gap.value < gap.high <= 1
