"""Smoothie's estimate of noise, and what becomes of answers that are missing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from planted import answers, planted_pool
from topics import draw_topics
from workers import knowing, truth

from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import fit_encoder
from openconductor.baselines.smoothie import Smoothie, distances, estimate_noise, mean_distances
from openconductor.errors import ConfigError, Refused, ServerFailed
from openconductor.pool import WorkerPool
from openconductor.types import Message

BEFORE, NOW = draw_topics(120, seed=5), draw_topics(200, seed=6)


async def observed(pool: WorkerPool) -> Observations:
    """What the workers answered before; nothing of it is graded."""
    from openconductor.baselines.single import SingleWorker

    questions = [question for question, _ in BEFORE]
    columns = [await answers(SingleWorker(pool, ordinal), questions) for ordinal in pool.ordinals]
    names = tuple(worker.name for _, worker in pool)
    table = tuple(zip(*columns, strict=True))
    return Observations(
        tuple(questions), names, tuple((None,) * len(names) for _ in questions), table
    )


# ── the estimator ─────────────────────────────────────────────────────────────────────────────────
def test_answers_that_are_missing_are_left_out() -> None:
    tables = np.array(
        [
            distances(row, fit_encoder("hashed", []))
            for row in (["a b", "a b", None, "c"], ["a b", "c d", "e", None])
        ]
    )
    means = mean_distances(tables)
    assert means[0, 1] == pytest.approx(
        (0 + 2) / 2
    )  # orthogonal unit vectors are at a squared distance of 2
    assert means[0, 2] == pytest.approx(2)
    assert np.isnan(means[2, 3])
    assert np.isinf(estimate_noise(np.full((3, 3), np.nan))).all()


# ── routing ───────────────────────────────────────────────────────────────────────────────────────
async def test_who_declines_is_not_chosen_and_who_fails_ends_the_episode() -> None:
    def decline(messages: Sequence[Message], rng: random.Random) -> str:
        raise Refused("no")

    def fail(messages: Sequence[Message], rng: random.Random) -> str:
        raise ServerFailed("no")

    best = planted_pool(best=knowing(1.0), good=knowing(0.8), poor=knowing(0.3))
    seen = await observed(best)
    silent = planted_pool(best=decline, good=knowing(1.0), poor=knowing(0.0))
    question = NOW[0][0]
    assert (
        await Smoothie(silent, mode="independent", observations=seen).ask(question)
    ).answer == truth(question)
    broken = planted_pool(best=knowing(1.0), good=knowing(1.0), poor=fail)
    episode = await Smoothie(broken, mode="independent", observations=seen).ask(question)
    assert episode.answer is None
    assert isinstance(episode.error, ServerFailed)


async def test_what_cannot_be_judged_is_refused() -> None:
    pool = planted_pool(a=knowing(1.0), b=knowing(1.0), c=knowing(1.0))
    seen = await observed(pool)
    for workers, options, message in (
        (pool, {"mode": "independent"}, "expected observations"),
        (pool, {"mode": "local"}, "expected one of independent, dependent"),
        (pool.subset([0, 1]), {}, "at least 3"),
        (
            pool,
            {"observations": Observations(seen.questions, seen.workers, seen.right)},
            "no answers of the pool's",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            Smoothie(workers, **options)  # type: ignore[arg-type]
