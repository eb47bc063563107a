"""Every baseline reaches what its definition predicts on planted pools.

Gains nothing where it must not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from formulas import noise_of, triplets
from planted import answers, planted_pool
from predictions import ASKED, LEVEL, SEEDS, Case, cases, questions_of
from workers import by_count, fixed, merging, noisy, revising

from openconductor.baselines.consensus import Consensus, MixtureOfAgents
from openconductor.baselines.single import LongContext, Reflection, SingleWorker
from openconductor.baselines.smoothie import estimate_noise
from openconductor.evaluation.statistics import wilson_interval

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.system}: {case.pool}")
async def test_a_system_reaches_what_its_definition_predicts(case: Case) -> None:
    right = 0
    for seed in SEEDS:
        rights, calls = await case.play(seed)
        low, high = wilson_interval(sum(rights), len(rights), confidence=LEVEL)
        assert low <= case.predicted <= high, f"seed {seed}"
        assert case.calls is None or calls == case.calls * len(rights)
        right += sum(rights)
    low, high = wilson_interval(right, ASKED * len(SEEDS), confidence=LEVEL)
    assert low <= case.predicted <= high
    if abs(case.predicted - case.single) > high - low:  # the interval must tell them apart
        assert not low <= case.single <= high


@pytest.mark.parametrize(
    ("workers", "system"),
    [
        ({"a": fixed(0.6)}, lambda pool: Consensus(pool, "a", n=5)),
        ({"a": revising(0.6, 0.0, 0.0)}, lambda pool: Reflection(pool, "a", n=5)),
        (
            dict.fromkeys("abc", merging(fixed(0.6), by_count)),
            lambda pool: MixtureOfAgents(pool, "a"),
        ),
        ({"a": noisy(0.6)}, lambda pool: LongContext(pool, "a", max_tokens=10)),
    ],
    ids=[
        "consensus of one opinion",
        "reflection that changes nothing",
        "mixture of one opinion",
        "no use for tokens",
    ],
)
async def test_where_more_calls_bring_nothing_new_every_answer_is_the_single_workers(
    workers, system
) -> None:
    questions = questions_of(0)
    pool = planted_pool(**workers)
    assert await answers(system(pool), questions) == await answers(
        SingleWorker(pool, "a"), questions
    )


def test_the_triplet_formula_is_the_same_in_two_writings() -> None:
    apart = np.random.default_rng(0).random((5, 5))
    apart += apart.T
    assert np.allclose(triplets(apart), estimate_noise(apart))
    assert noise_of((0.4, 0.85, 0.65, 0.1)).argsort().tolist() == [1, 2, 0, 3]


def test_the_table_of_the_docs_holds_every_case_with_its_prediction() -> None:
    page = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text("utf-8")
    for case in CASES:
        assert f"| `{case.system}` | {case.pool} | {case.rule} | {case.predicted:.3f} |" in page
