"""Do 95 % intervals hold the truth 95 times in 100, and are equals rarely called different? Seeded simulations.

Each question has a difficulty of its own, drawn anew each time (a Beta distribution around the mean
share, or the same for all), so what is covered is the mean over all questions that there could be,
not over those that were drawn.

Each test prints what it found (``pytest -rP``): docs/statistics.md has the figures. Grids are slow;
one cell of each is quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from openconductor.evaluation import statistics
from openconductor.measures import entropy_bits

SIMULATIONS = 1200
Array = np.ndarray[Any, Any]


def cells(quick: tuple[object, ...], *slow: tuple[object, ...]) -> list[object]:
    """Settings of a grid, of which the first is quick."""
    return [quick, *(pytest.param(*one, marks=pytest.mark.slow) for one in slow)]


def difficulties(
    rng: np.random.Generator, share: float, questions: int, alike: float | None
) -> Array:
    if alike is None:
        return np.full(questions, share)
    return rng.beta(share * alike, (1 - share) * alike, size=questions)


def asked(rng: np.random.Generator, chances: Array, repeats: int) -> Array:
    """Scores: a row a question, a column a repeat."""
    return (rng.random((len(chances), repeats)) < chances[:, None]).astype(float)


def drawn(
    rng: np.random.Generator, share: float, questions: int, repeats: int, alike: float | None
) -> Any:
    return asked(rng, difficulties(rng, share, questions, alike), repeats).tolist()


def assert_covered(
    intervals: Iterable[tuple[float, float]],
    truth: float,
    between: tuple[float, float] = (0.93, 0.97),
) -> None:
    held = [low <= truth <= high for low, high in intervals]
    share = sum(held) / len(held)
    print(f"covered {share:.3f}")
    assert len(held) >= 1000
    assert between[0] <= share <= between[1], f"covered {share:.3f}"


def pair(
    rng: np.random.Generator,
    share: float,
    gain: float,
    questions: int,
    repeats: int,
    alike: float,
    common: float,
) -> tuple[Array, Array]:
    """The scores of two systems; ``common`` is the share of questions that are equally hard for both."""
    first, own = (difficulties(rng, share, questions, alike) for _ in range(2))
    second = np.where(rng.random(questions) < common, first, own)
    better = second + (1 - second) * gain / (1 - share)
    return asked(rng, better, repeats), asked(rng, first, repeats)


def compared(
    ours: Array, theirs: Array, seed: int = 0, resamples: int = 1000
) -> statistics.Difference:
    first, second = (
        {("t", str(n)): row for n, row in enumerate(one.tolist())} for one in (ours, theirs)
    )
    found = statistics.difference(first, second, seed, resamples=resamples)
    assert found is not None
    return found


# ── one system ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    (
        "share",
        "questions",
        "repeats",
        "alike",
    ),  # alike: None is all the same; 0.5: most are near 0 or 1
    cells(
        (0.9, 100, 4, 0.5),
        *(
            (0.5, 100, 1, None),
            (0.8, 100, 1, None),
            (0.9, 100, 1, None),
            (0.5, 100, 2, 0.5),
            (0.1, 100, 2, 2.0),
        ),
        *(
            (0.95, 100, 4, 1.0),
            (0.05, 100, 16, 0.5),
            (0.3, 100, 16, 2.0),
            (0.8, 100, 4, None),
            (0.7, 200, 3, 1.0),
        ),
        *((0.97, 200, 2, 1.0), (0.03, 400, 8, 0.5), (0.6, 198, 16, 0.3)),
    ),
)
def test_a_clustered_mean_covers_as_it_claims(
    share: float, questions: int, repeats: int, alike: float | None
) -> None:
    rng = np.random.default_rng(11)
    found = (
        statistics.clustered_mean(drawn(rng, share, questions, repeats, alike))[2:]
        for _ in range(SIMULATIONS)
    )
    assert_covered(
        found, share, (0.93, 0.97 if repeats == 1 else 1.0)
    )  # repeats never count as more questions


def test_single_answers_are_covered_exactly_as_well_as_whole_numbers_allow() -> None:
    """Nothing is simulated: the chance of each count is known. No interval that is a function of the count does better
    at every share, for the counts are whole numbers."""
    questions = 100
    ends = np.array(
        [
            statistics.clustered_mean([[1.0]] * right + [[0.0]] * (questions - right))[2:]
            for right in range(101)
        ]
    )
    shares = np.linspace(0.03, 0.97, 941)
    rights = np.arange(questions + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((questions + 1 - rights[1:]) / rights[1:]))])
    chances = np.exp(
        log_ways
        + rights * np.log(shares)[:, None]
        + (questions - rights) * np.log1p(-shares)[:, None]
    )
    held = (chances * ((ends[:, 0] <= shares[:, None]) & (shares[:, None] <= ends[:, 1]))).sum(
        axis=1
    )
    assert np.mean((held >= 0.93) & (held <= 0.97)) > 0.99
    print(f"covered {held.min():.3f} to {held.max():.3f}, on average {held.mean():.3f}")
    assert held.min() > 0.925 and held.max() < 0.98
    assert held.mean() == pytest.approx(0.95, abs=0.005)


STRUCTURES: dict[str, Callable[[np.random.Generator, float, int], Array]] = {
    "all alike": lambda rng, share, questions: difficulties(rng, share, questions, None),
    "all or nothing": lambda rng, share, questions: (rng.random(questions) < share).astype(float),
    **{
        f"alike {alike}": lambda rng, share, questions, alike=alike: difficulties(
            rng, share, questions, alike
        )
        for alike in (0.1, 0.5, 2.0, 10.0)
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("questions", [30, 100, 400])
def test_a_mean_is_covered_over_the_whole_grid(questions: int, structure: str) -> None:
    """At least as often as Wilson's interval of single answers, less what 1,000 simulations leave open."""
    rng = np.random.default_rng(13)
    found: dict[tuple[float, int], float] = {}
    for share in (0.02, 0.05, 0.3, 0.5, 0.7, 0.95, 0.98):
        for repeats in (1, 4, 16):
            draws = (
                asked(rng, STRUCTURES[structure](rng, share, questions), repeats)
                for _ in range(1000)
            )
            ends = (statistics.clustered_mean(scores.tolist())[2:] for scores in draws)
            found[share, repeats] = float(np.mean([low <= share <= high for low, high in ends]))
    print(f"covered {min(found.values()):.3f} to {max(found.values()):.3f}")
    assert min(found.values()) >= 0.91, found
    assert np.mean(list(found.values())) >= 0.94
    assert statistics.clustered_mean([[1.0] * 16] * questions)[3] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("questions", [30, 100, 400])
def test_a_difference_is_covered_near_the_ends_and_with_many_repeats(questions: int) -> None:
    rng = np.random.default_rng(28)
    for share, gain, repeats, structure in product(
        (0.5, 0.9, 0.98), (0.0, 0.02), (1, 16), ("all alike", "alike 0.5")
    ):
        held = 0
        for seed in range(200):
            first = STRUCTURES[structure](rng, share, questions)
            second = first + gain / (1 - share) * (1 - first)
            found = compared(
                asked(rng, second, repeats), asked(rng, first, repeats), seed, resamples=400
            )
            held += found.low <= gain <= found.high
        assert held / 200 >= 0.90, (share, gain, repeats, structure)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "k"), [(0.4, 120, 8, 1.0, 4), (0.1, 100, 16, 0.5, 5)]
)
def test_pass_at_k_and_avg_at_k_are_unbiased_and_cover_as_they_claim(
    share, questions, repeats, alike, k
) -> None:
    rng = np.random.default_rng(14)
    population = rng.beta(share * alike, (1 - share) * alike, size=400_000)
    solved = float(np.mean(1 - (1 - population) ** k))
    every = [drawn(rng, share, questions, repeats, alike) for _ in range(SIMULATIONS)]
    passed = [statistics.pass_at_k(scores, k) for scores in every]
    assert float(np.mean([one.mean for one in passed])) == pytest.approx(solved, abs=0.005)
    assert_covered((one[2:] for one in passed), solved, (0.93, 1.0))
    assert_covered(
        (statistics.clustered_mean([row[:k] for row in scores])[2:] for scores in every),
        share,
        (0.93, 1.0),
    )


@pytest.mark.parametrize(
    "interval",
    [
        statistics.mean_interval,
        lambda values: statistics.bootstrap_mean(values, resamples=1000)[:2],
    ],
    ids=["t", "bootstrap"],
)
def test_a_mean_of_any_numbers_covers_as_it_claims(interval) -> None:
    """Steps a workflow, tokens a question: whole numbers, and skewed ones."""
    rng = np.random.default_rng(19)
    steps = (rng.integers(1, 6, size=100).astype(float).tolist() for _ in range(1000))
    assert_covered(map(interval, steps), 3.0)
    tokens = (rng.gamma(4.0, 25.0, size=120).tolist() for _ in range(1000))
    assert_covered(map(interval, tokens), 100.0)


@pytest.mark.parametrize(
    ("shares", "questions"),
    cells(
        ((0.97, 0.6, 0.9), (100, 198, 150)), ((0.5, 0.8), (100, 100)), ((0.99, 0.98), (100, 200))
    ),
)
def test_an_average_over_tasks_covers_as_it_claims(
    shares: tuple[float, ...], questions: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(23)
    intervals = [
        statistics.averaged_interval(
            [
                (right / n, *statistics.wilson_interval(right, n))
                for right, n in zip(rights, questions, strict=True)
            ]
        )
        for rights in (rng.binomial(questions, shares).tolist() for _ in range(SIMULATIONS))
    ]
    assert_covered(intervals, float(np.mean(shares)))


def test_a_ratio_covers_as_it_claims_and_is_silent_where_it_may_be_anything() -> None:
    rng = np.random.default_rng(21)
    intervals: list[tuple[float, float]] = []
    for _ in range(SIMULATIONS):
        best = asked(rng, difficulties(rng, 0.5, 200, 1.0), 1)[:, 0]
        ours = np.where(rng.random(200) < 0.4, 1.0, best)
        oracle = np.where(rng.random(200) < 0.6, 1.0, best)
        found = statistics.ratio_interval((ours - best).tolist(), (oracle - best).tolist())
        assert found is not None
        intervals.append(found)
    assert_covered(intervals, 0.2 / 0.3)
    noise = rng.choice([-1.0, 0.0, 1.0], size=200)
    assert statistics.ratio_interval(noise.tolist(), (noise - noise.mean()).tolist()) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        [[1, 0, 0, 0], [0, 0.7, 0.3, 0], [0.8, 0.2, 0, 0]],
        [[0.9, 0.05, 0.05, 0]] * 3,
        [[0.2] * 4 + [0.05] * 4, [0.3, 0.3, 0, 0, 0, 0, 0.2, 0.2], [0, 0, 0.6, 0.4, 0, 0, 0, 0]],
    ],
    ids=["by question", "collapsing", "over eight"],
)
def test_an_entropy_by_jackknife_covers_as_it_claims(kinds: list[list[float]]) -> None:
    """Routing entropy is of this kind: shares over steps, questions drawn, several steps a question."""
    rng = np.random.default_rng(22)
    intervals: list[tuple[float, float]] = []
    for _ in range(1000):
        counts = np.array(
            [rng.multinomial(3, kinds[kind]) for kind in rng.integers(0, 3, size=150)]
        )
        total = counts.sum(axis=0)
        without = [entropy_bits(rest) for rest in (total - counts).tolist()]
        intervals.append(statistics.jackknife_interval(entropy_bits(total.tolist()), without)[1:])
    assert_covered(intervals, entropy_bits(np.mean(kinds, axis=0).tolist()))


# ── two systems ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "gain", "questions", "repeats", "alike", "common"),
    [
        *((0.5, 0.0, 100, 1, 1.0, 0.8), (0.9, 0.0, 100, 1, 1.0, 0.9), (0.8, 0.1, 100, 1, 1.0, 0.7)),
        *(
            (0.9, 0.05, 100, 2, 0.5, 0.8),
            (0.3, 0.05, 200, 1, 0.3, 1.0),
            (0.7, 0.1, 100, 4, 1.0, 0.5),
        ),
        (0.5, 0.02, 150, 8, 2.0, 1.0),
    ],
)
def test_a_paired_difference_covers_as_it_claims(
    share, gain, questions, repeats, alike, common
) -> None:
    rng = np.random.default_rng(15)
    found = (
        compared(*pair(rng, share, gain, questions, repeats, alike, common), seed)
        for seed in range(1000)
    )
    assert_covered(((one.low, one.high) for one in found), gain)


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


def assert_rarely(false: int, most: int = 65) -> None:
    print(f"false {false} of 1000")
    assert false <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "questions", "repeats", "alike", "common"),
    [
        (0.5, 100, 1, 1.0, 0.0),
        (0.7, 200, 1, 0.5, 0.8),
        (0.9, 100, 1, 0.5, 0.95),
        (0.8, 100, 4, 1.0, 0.9),
    ],
)
def test_two_systems_of_equal_skill_are_rarely_called_different(
    share, questions, repeats, alike, common
) -> None:
    rng = np.random.default_rng(16)
    found = (
        compared(*pair(rng, share, 0.0, questions, repeats, alike, common), seed)
        for seed in range(1000)
    )
    assert_rarely(sum(one.p < 0.05 for one in found))


@cache
def single_answers(better: int, worse: int, questions: int) -> statistics.Difference:
    """Two systems asked once each, that differ on so many questions."""
    ours = np.array([[1.0]] * better + [[0.0]] * (questions - better))
    theirs = np.array([[0.0]] * better + [[1.0]] * worse + [[0.0]] * (questions - better - worse))
    return compared(ours, theirs, resamples=4000)


def seldom(rng: np.random.Generator, apart: float, questions: int) -> statistics.Difference:
    """Equals that differ on such a share of questions."""
    better, worse, _ = rng.multinomial(questions, [apart / 2, apart / 2, 1 - apart]).tolist()
    return single_answers(better, worse, questions)


def test_systems_that_seldom_differ_are_rarely_called_different() -> None:
    """Some five in a hundred questions tell the two apart: where a bootstrap has least to go on."""
    rng = np.random.default_rng(25)
    assert_rarely(
        sum(
            seldom(rng, apart, 100).p < 0.05
            for apart in rng.choice([0.02, 0.03, 0.05, 0.07], size=1000)
        )
    )


@pytest.mark.parametrize(
    ("tasks", "questions", "apart"),
    cells((2, 100, 0.01), (2, 30, 0.06), (4, 100, 0.02), (7, 100, 0.1)),
)
def test_averages_of_systems_that_seldom_differ_are_rarely_called_different(
    tasks, questions, apart
) -> None:
    rng = np.random.default_rng(26)
    false = 0
    for _ in range(1000):
        parts = [
            (one.value, one.low, one.high)
            for one in (seldom(rng, apart, questions) for _ in range(tasks))
        ]
        false += (
            statistics.p_of_interval(
                sum(value for value, _, _ in parts) / tasks, *statistics.averaged_interval(parts)
            )
            < 0.05
        )
    assert_rarely(false)


@pytest.mark.slow
def test_among_thirty_equals_a_false_difference_is_rare_after_holms_adjustment() -> None:
    """All thirty are compared with one reference, so that its luck is in every comparison."""
    rng = np.random.default_rng(27)
    false = 0
    for _ in range(1000):
        answers = (rng.random(30) < 0.6) ^ (rng.random((31, 30)) < 0.3)
        better, worse = (
            (answers[1:] & ~answers[0]).sum(axis=1),
            (~answers[1:] & answers[0]).sum(axis=1),
        )
        counts = zip(better.tolist(), worse.tolist(), strict=True)
        false += min(statistics.holm([single_answers(*one, 30).p for one in counts])) < 0.05
    assert_rarely(false, 50)


@pytest.mark.parametrize(
    ("questions", "better", "worse"),
    [
        (100, 4, 0),
        (100, 8, 0),
        (100, 10, 0),
        (100, 12, 1),
        (30, 8, 0),
        (5, 4, 0),
        (6, 5, 0),
        (200, 20, 5),
    ],
)
def test_a_few_differences_are_not_called_more_than_the_sign_test_allows(
    questions, better, worse
) -> None:
    """McNemar's exact test is conservative: half its p-value, about its mid-p, is the least to be claimed."""
    found = single_answers(better, worse, questions)
    told = better + worse
    exact = 2 * sum(math.comb(told, count) for count in range(worse + 1)) / 2**told
    assert found.p > 0.38 * exact
    assert (found.p < 0.05) == (found.low > 0)
    assert -1 <= found.low < found.value < found.high <= 1
