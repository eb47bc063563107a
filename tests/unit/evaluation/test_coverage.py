"""Do 95 % intervals hold the truth 95 times in 100, and are equals rarely called different?

Seeded simulations. Each question has a difficulty of its own, drawn anew each time, so what is
covered is the mean over all questions that there could be, not over those that were drawn. A test
prints what it found (``pytest -rP``): docs/statistics.md has the figures.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from openconductor.evaluation import statistics
from openconductor.measures import entropy_bits

SIMULATIONS = 1000
Array = np.ndarray[Any, Any]
Rng = np.random.Generator


def settings(quick: tuple[object, ...], *slow: tuple[object, ...]) -> list[object]:
    """Return the settings of a test, of which only the first is quick."""
    return [quick, *(pytest.param(*one, marks=pytest.mark.slow) for one in slow)]


def difficulties(rng: Rng, share: float, questions: int, alike: float | None) -> Array:
    """Draw the chance to get each question; ``alike`` None: all the same, .5: most near 0 or 1."""
    if alike is None:
        return np.full(questions, share)
    return rng.beta(share * alike, (1 - share) * alike, size=questions)


def asked(rng: Rng, chances: Array, repeats: int = 1) -> Array:
    """Draw scores: a row a question, a column a repeat."""
    return (rng.random((len(chances), repeats)) < chances[:, None]).astype(float)


def compared(ours: Array, theirs: Array, seed: int = 0, resamples: int = 1000) -> Any:
    first = {("t", str(n)): row for n, row in enumerate(ours.tolist())}
    second = {("t", str(n)): row for n, row in enumerate(theirs.tolist())}
    return statistics.difference(first, second, seed, resamples=resamples)


def assert_covered(ends: list[tuple[float, float]], truth: float, most: float = 0.97) -> None:
    share = sum(low <= truth <= high for low, high in ends) / len(ends)
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
def test_a_clustered_mean_covers_as_it_claims(
    share: float, questions: int, repeats: int, alike: float | None
) -> None:
    rng = np.random.default_rng(11)
    ends: list[tuple[float, float]] = []
    for _ in range(SIMULATIONS):
        scores = asked(rng, difficulties(rng, share, questions, alike), repeats)
        mean = statistics.clustered_mean(scores.tolist())
        ends.append((mean.low, mean.high))
    # Repeats never count as more questions.
    assert_covered(ends, share, 0.97 if repeats == 1 else 1.0)


def test_single_answers_are_covered_as_well_as_whole_numbers_allow() -> None:
    """Nothing is simulated, because the chance of each count is known."""
    questions = 100
    rights = np.arange(questions + 1)
    ends = np.array([statistics.wilson_interval(int(right), questions) for right in rights])
    ways = np.array([math.comb(questions, int(right)) for right in rights], dtype=float)
    covered: list[float] = []
    for share in np.linspace(0.03, 0.97, 941):
        chances = ways * share**rights * (1 - share) ** (questions - rights)
        held = (ends[:, 0] <= share) & (share <= ends[:, 1])
        covered.append(float((chances * held).sum()))
    print(f"covered {min(covered):.3f} to {max(covered):.3f}, on average {np.mean(covered):.3f}")
    assert min(covered) > 0.925
    assert max(covered) < 0.98
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "k"), [(0.4, 120, 8, 1.0, 4), (0.1, 100, 16, 0.5, 5)]
)
def test_pass_at_k_is_unbiased_and_covers(share, questions, repeats, alike, k) -> None:
    rng = np.random.default_rng(14)
    population = rng.beta(share * alike, (1 - share) * alike, size=400_000)
    truth = float(np.mean(1 - (1 - population) ** k))
    passed: list[statistics.Mean] = []
    for _ in range(SIMULATIONS):
        scores = asked(rng, difficulties(rng, share, questions, alike), repeats)
        passed.append(statistics.pass_at_k(scores.tolist(), k))
    assert np.mean([one.mean for one in passed]) == pytest.approx(truth, abs=0.005)
    assert_covered([(one.low, one.high) for one in passed], truth, 1.0)


@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_a_mean_of_any_numbers_covers_as_it_claims(method: str) -> None:
    """Steps a workflow are whole numbers, tokens a question are skewed."""
    rng = np.random.default_rng(19)

    def interval(values: Array) -> tuple[float, float]:
        if method == "t":
            return statistics.mean_interval(values.tolist())
        found = statistics.bootstrap_mean(values.tolist(), resamples=1000)
        return found.low, found.high

    steps = [interval(rng.integers(1, 6, size=100).astype(float)) for _ in range(SIMULATIONS)]
    assert_covered(steps, 3.0)
    tokens = [interval(rng.gamma(4.0, 25.0, size=120)) for _ in range(SIMULATIONS)]
    assert_covered(tokens, 100.0)


@pytest.mark.parametrize(
    ("shares", "questions"),
    settings(((0.97, 0.6, 0.9), (100, 198, 150)), ((0.99, 0.98), (100, 200))),
)
def test_an_average_over_tasks_covers_as_it_claims(shares, questions) -> None:
    rng = np.random.default_rng(23)
    ends: list[tuple[float, float]] = []
    for _ in range(SIMULATIONS):
        parts: list[tuple[float, float, float]] = []
        for share, count in zip(shares, questions, strict=True):
            right = int(rng.binomial(count, share))
            parts.append((right / count, *statistics.wilson_interval(right, count)))
        ends.append(statistics.averaged_interval(parts))
    assert_covered(ends, float(np.mean(shares)))


def test_a_ratio_covers_as_it_claims_and_is_silent_where_it_may_be_anything() -> None:
    rng = np.random.default_rng(21)
    ends: list[tuple[float, float]] = []
    for _ in range(SIMULATIONS):
        best = asked(rng, difficulties(rng, 0.5, 200, 1.0))[:, 0]
        ours = np.where(rng.random(200) < 0.4, 1.0, best)
        oracle = np.where(rng.random(200) < 0.6, 1.0, best)
        found = statistics.ratio_interval((ours - best).tolist(), (oracle - best).tolist())
        assert found is not None
        ends.append(found)
    assert_covered(ends, 0.2 / 0.3)
    noise = rng.choice([-1.0, 0.0, 1.0], size=200)
    assert statistics.ratio_interval(noise.tolist(), (noise - noise.mean()).tolist()) is None


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
    ends: list[tuple[float, float]] = []
    for _ in range(SIMULATIONS):
        drawn = rng.integers(0, len(kinds), size=150)
        counts = np.array([rng.multinomial(3, kinds[kind]) for kind in drawn])
        total = counts.sum(axis=0)
        without = [entropy_bits(rest) for rest in (total - counts).tolist()]
        _, low, high = statistics.jackknife_interval(entropy_bits(total.tolist()), without)
        ends.append((low, high))
    assert_covered(ends, entropy_bits(np.mean(kinds, axis=0).tolist()))


# ── two systems ───────────────────────────────────────────────────────────────────────────────────
def pair(
    rng: Rng, share: float, gain: float, questions: int, repeats: int, alike: float, common: float
) -> tuple[Array, Array]:
    """Draw the scores of two systems; ``common`` of the questions are as hard for both."""
    first = difficulties(rng, share, questions, alike)
    own = difficulties(rng, share, questions, alike)
    second = np.where(rng.random(questions) < common, first, own)
    better = second + (1 - second) * gain / (1 - share)
    return asked(rng, better, repeats), asked(rng, first, repeats)


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
    rng = np.random.default_rng(15)
    found: list[statistics.Difference] = []
    for seed in range(SIMULATIONS):
        found.append(compared(*pair(rng, share, gain, questions, repeats, alike, common), seed))
    assert_covered([(one.low, one.high) for one in found], gain, 1.0 if repeats == 16 else 0.97)
    if not gain:
        assert_rarely(sum(one.p < 0.05 for one in found))


def test_a_real_difference_is_mostly_found() -> None:
    rng = np.random.default_rng(17)
    found = [compared(*pair(rng, 0.6, 0.15, 200, 2, 1.0, 0.9), seed) for seed in range(100)]
    assert sum(one.p < 0.05 and one.low > 0 for one in found) > 94


def test_the_p_value_and_the_interval_of_a_bootstrap_agree() -> None:
    rng = np.random.default_rng(20)
    for seed in range(100):
        values = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=100).tolist()
        low, high, p = statistics.bootstrap_mean(values, seed=seed)
        assert abs(p - 0.05) <= 0.004 or (p < 0.05) == (low > 0 or high < 0)


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
        parts = [seldom(rng, apart, questions) for _ in range(tasks)]
        p = parts[0].p
        if tasks > 1:
            low, high = statistics.averaged_interval(
                [(one.value, one.low, one.high) for one in parts]
            )
            p = statistics.p_of_interval(float(np.mean([one.value for one in parts])), low, high)
        false += p < 0.05
    assert_rarely(false)


@pytest.mark.slow
def test_among_thirty_equals_a_false_difference_is_rare_after_holms_adjustment() -> None:
    """All thirty are compared with one reference, so that its luck is in every comparison."""
    rng = np.random.default_rng(27)
    false = 0
    for _ in range(SIMULATIONS):
        answers = (rng.random(30) < 0.6) ^ (rng.random((31, 30)) < 0.3)
        better = (answers[1:] & ~answers[0]).sum(axis=1).tolist()
        worse = (~answers[1:] & answers[0]).sum(axis=1).tolist()
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
    found = single_answers(better, worse, questions)
    differing = better + worse
    exact = 2 * sum(math.comb(differing, count) for count in range(worse + 1)) / 2**differing
    assert found.p > 0.38 * exact
    assert (found.p < 0.05) == (found.low > 0)
    assert -1 <= found.low < found.value < found.high <= 1
