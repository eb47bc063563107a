"""Observations, and what is read off them without training: the best column, the observed oracle."""

from __future__ import annotations

import sys
from math import comb, prod
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted import answers, planted_pool

from openconductor.baselines.observed import Observations, oracle_observed
from openconductor.baselines.planned import BestFixed
from openconductor.errors import ConfigError, WorkflowError
from openconductor.gym.levels import BEST_FIXED
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.types import Step, Workflow

SEEN = Observations(
    ("a", "b", "c", "d"),
    ("x", "y"),
    ((1.0, 0.0), (0.5, 1.0), (None, 1.0), (0.25, None)),
    (("1", "2"), ("3", None), (None, "4"), ("5", None)),
)


def oracle_accuracy(seen: Observations) -> float:
    return float(np.mean([share for share, _ in oracle_observed(seen) if share is not None]))


PAIR = Workflow((Step(0, "Begin."), Step(1, "End.", "all")))


# ── the table itself ─────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), ("x",), ()), "0 questions"),
        ((("a",), ("x", "x"), ((1, 0),)), "each name once"),
        ((("a",), ("x", "y"), ((1,),)), r"right: got 1 rows of \[1\] entries, expected 1 of 2"),
        ((("a", "b"), ("x",), ((1,), (0,)), (("1",),)), r"answers: got 1 rows"),
        ((("a",), ("x",), ((1.5,),)), "got 1.5, expected a share"),
    ],
)
def test_a_table_of_another_shape_is_refused(arguments: tuple[tuple[object, ...], ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Observations(*arguments)  # type: ignore[arg-type]


def test_workers_are_compared_on_the_questions_that_all_decided() -> None:
    assert SEEN.shares() == {"x": 0.75, "y": 0.5}  # on a and b alone, though y is right on c
    assert SEEN.best() == "x"
    lonely = Observations(("a", "b"), ("x", "y"), ((1, None), (None, 0.5)))
    assert lonely.shares() == {"x": 1.0, "y": 0.5}
    with pytest.raises(ConfigError, match="nothing was decided"):
        Observations(("a",), ("x",), ((None,),)).best()


# ── the observed oracle ──────────────────────────────────────────────────────────────────────────────────────────────
def test_the_observed_oracle_is_the_best_of_each_question() -> None:
    assert oracle_observed(SEEN) == ((1.0, "x"), (1.0, "y"), (1.0, "y"), (0.25, "x"))
    assert oracle_accuracy(SEEN) == 3.25 / 4
    assert oracle_observed(Observations(("a",), ("x",), ((None,),)))[0] == (None, None)


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.3, 0.6, 0.6)])
def test_the_observed_oracle_is_above_the_best_worker_by_what_chance_gives(
    shares: tuple[float, ...], samples: int
) -> None:
    # Questions say nothing here, so no router can beat the best share; hindsight can: E[max of binomials / samples].
    def at_most(share: float, right: int) -> float:
        return sum(comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(right + 1))

    predicted = (
        sum(1 - prod(at_most(share, right - 1) for share in shares) for right in range(1, samples + 1)) / samples
    )
    names = tuple("abc"[: len(shares)])
    means: list[float] = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = tuple(tuple(rng.binomial(samples, share) / samples for share in shares) for _ in range(200))
        found = oracle_accuracy(Observations(tuple(map(str, range(200))), names, rows))
        means.append(found)
    error = np.std(means, ddof=1) / 20**0.5
    assert abs(np.mean(means) - predicted) < 3.9 * error  # Student's t with 19 degrees of freedom, 99.9 %
    assert predicted > max(shares)


# ── the best fixed workflow ──────────────────────────────────────────────────────────────────────────────────────────
async def test_the_best_worker_of_the_selection_split_answers_everything() -> None:
    pool = planted_pool(y=lambda *_: "from y", x=lambda *_: "from x")
    assert await answers(BestFixed(pool, observations=SEEN), ["e", "f"]) == ["from x", "from x"]


def test_a_best_column_that_is_no_worker_of_the_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="pair"):
        BestFixed(planted_pool(x=lambda *_: "4"), observations=Observations(("a",), ("x", "pair"), ((0, 1),)))


async def test_a_given_workflow_is_played_and_must_be_valid() -> None:
    pool = planted_pool(x=lambda *_: "from x", z=lambda *_: "from z")
    assert (await BestFixed(pool, workflow=PAIR).ask("e")).answer == "from z"
    with pytest.raises(WorkflowError, match="unknown_worker"):
        BestFixed(pool.subset([0]), workflow=PAIR)
    with pytest.raises(ConfigError, match="one of them at most"):
        BestFixed(pool, workflow=PAIR, observations=SEEN)


async def test_in_the_gym_the_constant_is_that_of_its_search() -> None:
    question = draw_questions("test", 1, seed=0)[0]
    episode = await BestFixed(gym_pool()).ask(question.text)
    assert episode.rounds[0].workflow is not None
    assert tuple(step.worker for step in episode.rounds[0].workflow) == BEST_FIXED.workers
    with pytest.raises(ConfigError, match="outside the gym"):
        await BestFixed(gym_pool()).ask("What is 6 * 7?")
    with pytest.raises(ConfigError, match="which the pool lacks"):
        await BestFixed(gym_pool().subset([0, 1])).ask(question.text)
