"""Smoothie's estimate of noise, and what becomes of answers that are missing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from planted import Say, answers, planted_pool
from topics import draw_topics
from workers import knowing, truth

from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import fit_encoder
from openconductor.baselines.single import SingleWorker
from openconductor.baselines.smoothie import Smoothie, distances, estimate_noise, mean_distances
from openconductor.errors import ConfigError, Refused, ServerFailed
from openconductor.pool import WorkerPool
from openconductor.types import Message

BEFORE, NOW = draw_topics(120, seed=5), draw_topics(200, seed=6)


async def observed(pool: WorkerPool) -> Observations:
    """Return what the workers answered before; nothing of it is graded."""
    questions = tuple(question for question, _ in BEFORE)
    names = tuple(worker.name for _, worker in pool)
    columns = [await answers(SingleWorker(pool, ordinal), questions) for ordinal in pool.ordinals]
    unknown = tuple([(None,) * len(names)] * len(questions))
    return Observations(questions, names, unknown, tuple(zip(*columns, strict=True)))


# ── the estimator ─────────────────────────────────────────────────────────────────────────────────
# ── the estimator ─────────────────────────────────────────────────────────────────────────────────
def test_answers_that_are_missing_are_left_out() -> None:
    """Orthogonal unit vectors are at a squared distance of 2."""
    encode = fit_encoder("hashed", [])
    first = distances(["a b", "a b", None, "c"], encode)
    second = distances(["a b", "c d", "e", None], encode)
    means = mean_distances(np.array([first, second]))
    assert means[0, 1] == pytest.approx((0 + 2) / 2)
    assert means[0, 2] == pytest.approx(2)
    assert np.isnan(means[2, 3])
    assert np.isinf(estimate_noise(np.full((3, 3), np.nan))).all()


# ── routing ───────────────────────────────────────────────────────────────────────────────────────
def failing(error: Exception) -> Say:
    def fail(messages: Sequence[Message], rng: random.Random) -> str:
        raise error

    return fail


# ── routing ───────────────────────────────────────────────────────────────────────────────────────
async def test_who_declines_is_not_chosen_and_who_fails_ends_the_episode() -> None:
    seen = await observed(planted_pool(best=knowing(1.0), good=knowing(0.8), poor=knowing(0.3)))
    question, _ = NOW[0]
    decline, fail = failing(Refused("no")), failing(ServerFailed("no"))
    silent = planted_pool(best=decline, good=knowing(1.0), poor=knowing(0.0))
    episode = await Smoothie(silent, mode="independent", observations=seen).ask(question)
    assert episode.answer == truth(question)
    broken = planted_pool(best=knowing(1.0), good=knowing(1.0), poor=fail)
    episode = await Smoothie(broken, mode="independent", observations=seen).ask(question)
    assert episode.answer is None
    assert isinstance(episode.error, ServerFailed)


@pytest.mark.parametrize(
    ("workers", "options", "message"),
    [
        (3, {"mode": "independent"}, "expected observations"),
        (3, {"mode": "local"}, "expected one of independent, dependent"),
        (2, {}, "at least 3"),
        (3, {"observations": Observations(("a",), ("a", "b", "c"), ((1, 0, 0),))}, "no answers"),
    ],
)
def test_what_cannot_be_judged_is_refused(workers: int, options, message: str) -> None:
    pool = planted_pool(a=knowing(1.0), b=knowing(1.0), c=knowing(1.0))
    with pytest.raises(ConfigError, match=message):
        Smoothie(pool.subset(range(workers)), **options)
