"""The study over seeds: what counts as learnt."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, OpenConductorError
from openconductor.gym.exact import oracle_workflow
from openconductor.gym.levels import reference_levels
from openconductor.gym.questions import draw_questions
from openconductor.prompt import render_workflow
from openconductor.store import Journal
from openconductor.training.setup import HELD_OUT_SEED
from openconductor.training.study import study, summarise
from openconductor.training.train_config import TrainConfig, dump_train_config
from openconductor.types import Step, Workflow

LEVELS = {"random": 0.05, "best_worker": 0.2, "oracle": 0.8}


def _result(
    seed: int, greedy: float, *, control: str = "none", sampled: float = 0.0
) -> dict[str, object]:
    measured = {
        "accuracy": greedy,
        "validity": 1.0,
        "routing_entropy_bits": 2.0,
        "steps_by_kind": {"single": 1.0},
    }
    return {
        "seed": seed,
        "control": control,
        "start": {**measured, "accuracy": 0.05},
        "sampled": {**measured, "accuracy": sampled},
        "greedy": measured,
        "exact": {"sampled": {"all": sampled}, "greedy": {"all": greedy, "single": greedy}},
        "seconds": {"start": 1.0, "learning": 2.0},
    }


def test_a_seed_has_learnt_when_it_beats_three_times_random_and_the_best_worker() -> None:
    controls = [
        _result(1, 0.0, control="shuffled", sampled=0.055),
        _result(1, 0, control="flipped"),
    ]
    summary = summarise(
        [_result(1, 0.72), _result(2, 0.21), _result(3, 0.19), _result(4, 0.4), *controls], LEVELS
    )
    assert (summary["learnt"], summary["seeds"]) == (3, 4)
    assert summary["median_share_of_oracle"] == pytest.approx((0.4 + 0.21) / 2 / 0.8)
    assert summary["worst_share_of_oracle"] == pytest.approx(0.19 / 0.8)
    assert summary["seconds"] == 18.0
    assert summary["controls_over_start"] == {"shuffled": pytest.approx(1.1), "flipped": 0.0}


def test_a_run_that_fails_ends_the_study_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *seed-1*) echo "no room left" >&2; exit 3;; esac\nexec sleep 60\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    said: list[str] = []
    with pytest.raises(OpenConductorError, match=r"seed-1: exit 3: no room left"):
        study(
            TrainConfig.model_validate(RECIPE),
            tmp_path / "study",
            seeds=[1, 2, 3],
            controls=False,
            on_progress=said.append,
        )
    assert said == ["seed-1: started", "seed-2: started"], "and seed 2 has been ended"
    assert not (tmp_path / "study" / "study.json").exists()


RECIPE = {
    "pool": "gym",
    "data": {"task": "gym"},
    "rollout": {"max_tokens": 72},
    "held_out": {"questions": 3},
}


def _finished(folder: Path, config: TrainConfig) -> None:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(dump_train_config(config), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(_result(config.seed, 0.7)), encoding="utf-8")
    questions = draw_questions("test", 3, seed=HELD_OUT_SEED)
    with Journal(folder / "journal.sqlite") as journal:
        for phase in ("start", "sampled", "greedy"):
            for place, question in enumerate(questions):
                # Of three greedy plans one is the oracle's, one asks for nothing, and one cannot be
                # read.
                plans = (
                    render_workflow(oracle_workflow(question)[0]),
                    render_workflow(IDLE),
                    "I would rather not.",
                )
                said = place if phase == "greedy" else 2
                record = {"completion": plans[said], "invalid": "unparsable" if said == 2 else None}
                journal.put_record(f"{phase}/{place}", record)


IDLE = Workflow((Step(0, "do nothing"),))


def test_a_run_of_another_recipe_is_not_mixed_into_a_study(tmp_path: Path) -> None:
    config = TrainConfig.model_validate({**RECIPE, "seed": 1})
    _finished(tmp_path / "seed-1", config)
    summary = study(config, tmp_path, seeds=[1], controls=False)
    levels = reference_levels(draw_questions("test", 3, seed=HELD_OUT_SEED))
    expected = {"random": levels.random, "best_worker": levels.best_worker, "oracle": levels.oracle}
    assert (summary["levels"], [row["seed"] for row in summary["rows"]]) == (expected, [1]), (
        "the same is taken"
    )
    oracle = oracle_workflow(draw_questions("test", 1, seed=HELD_OUT_SEED)[0])[1]
    assert summary["rows"][0]["share_of_oracle"] == pytest.approx(oracle / 3 / levels.oracle), (
        "exact, not 0.7"
    )
    assert summary["rows"][0]["sampled_share_of_oracle"] == 0.0
    (tmp_path / "study.json").unlink()
    again = TrainConfig.model_validate({**RECIPE, "held_out": {"questions": 5}})
    with pytest.raises(
        ConfigError,
        match=r"seed-1 holds a run of another recipe.*held_out\.questions: 3 there, 5 here",
    ):
        study(again, tmp_path, seeds=[1], controls=False)
    assert not (tmp_path / "study.json").exists()
    (tmp_path / "seed-1" / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"config\.toml: no such file"):
        study(config, tmp_path, seeds=[1], controls=False)


def test_a_study_needs_the_same_workers_for_every_question(tmp_path: Path) -> None:
    config = TrainConfig.model_validate(RECIPE | {"pool": "gym:drawn"})
    with pytest.raises(
        ConfigError, match=r"other workers for each question, expected the same for all"
    ):
        study(config, tmp_path, seeds=[1], controls=False)
