"""The study over seeds: what counts as learnt."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.errors import OpenConductorError
from openconductor.training.config import TrainConfig
from openconductor.training.study import study, summarise

LEVELS = {"random": 0.05, "best_worker": 0.2, "oracle": 0.8}


def _result(seed: int, greedy: float, *, control: str = "none", sampled: float = 0.0) -> dict[str, object]:
    measured = {"accuracy": greedy, "validity": 1.0, "routing_entropy_bits": 2.0, "steps_by_kind": {"single": 1.0}}
    return {
        "seed": seed,
        "control": control,
        "start": {**measured, "accuracy": 0.05},
        "sampled": {**measured, "accuracy": sampled},
        "greedy": measured,
        "seconds": {"start": 1.0, "learning": 2.0},
    }


def test_a_seed_has_learnt_when_it_beats_three_times_random_and_the_best_worker() -> None:
    summary = summarise([_result(1, 0.72), _result(2, 0.21), _result(3, 0.19), _result(4, 0.4)], LEVELS)
    assert (summary["learnt"], summary["seeds"]) == (3, 4)
    assert summary["median_share_of_oracle"] == pytest.approx((0.4 + 0.21) / 2 / 0.8)
    assert summary["worst_share_of_oracle"] == pytest.approx(0.19 / 0.8)
    assert summary["seconds"] == 12.0


def test_controls_are_compared_with_their_own_cold_start_and_count_as_no_seed() -> None:
    results = [_result(1, 0.7), _result(1, 0.0, control="shuffled", sampled=0.055), _result(1, 0, control="flipped")]
    summary = summarise(results, LEVELS)
    assert summary["seeds"] == 1
    assert summary["controls_over_start"] == {"shuffled": pytest.approx(1.1), "flipped": 0.0}


def test_a_run_that_fails_ends_the_study_with_what_it_said(tmp_path: Path) -> None:
    broken = TrainConfig.model_validate(
        {"model": {"base": ""}, "cold_start": {"steps": 0}, "rollout": {"max_tokens": 72}}
    )
    with pytest.raises(OpenConductorError, match=r"cold_start\.steps"):
        study(broken, tmp_path / "study", seeds=[1, 2], controls=False, jobs=2)
    assert not (tmp_path / "study" / "study.json").exists()
