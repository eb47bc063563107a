"""Does it learn, and does it fail to learn where there is nothing to learn from?

A short stretch of GRPO from the bundled run's cold start, on one-operation questions: enough to see the direction.
Whether the whole recipe is robust over seeds is `make learn`'s question; its figures are in docs/log.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openconductor.gym.bundled import bundled_folder
from openconductor.training.run import train
from openconductor.training.train_config import TrainConfig, load_train_config

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(900)]

RECIPE = Path(__file__).parents[2] / "recipes" / "gym.toml"


def _short(control: str, iterations: int) -> TrainConfig:
    cold_start = bundled_folder() / "cold_start"
    return load_train_config(
        RECIPE,
        [
            f'model.base="{cold_start.as_posix()}"',
            "cold_start.steps=0",
            "widen.steps=0",
            f"rollout.iterations={iterations}",
            "data.easy=[1.0, 0.0, 0.0, 0.0]",
            "data.curriculum=1.0",
            "optim.kl=0.0",
            "optim.schedule=constant",
            "save_every=1000",
            "held_out.questions=8",  # these tests read the curve alone
            "start.prompts=8",
            "start.workflows=8",
            f"reward.control={control}",
        ],
    )


def _mean_accuracy(folder: Path, start: int, end: int) -> float:
    """The mean accuracy on questions of one operation over some iterations (the mix of kinds moves on the way)."""
    records = [json.loads(line) for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    return sum(record["accuracy_by_kind"]["single"] for record in records[start:end]) / (end - start)


def test_accuracy_rises_on_true_rewards(tmp_path: Path) -> None:
    train(_short("none", 40), tmp_path / "run")
    first, last = _mean_accuracy(tmp_path / "run", 0, 4), _mean_accuracy(tmp_path / "run", 30, 40)
    assert last > 1.25 * first, (first, last)


@pytest.mark.parametrize("control", ["shuffled", "flipped"])
def test_accuracy_does_not_rise_on_broken_rewards(control: str, tmp_path: Path) -> None:
    train(_short(control, 26), tmp_path / "run")
    first, last = _mean_accuracy(tmp_path / "run", 0, 4), _mean_accuracy(tmp_path / "run", 16, 26)
    assert last <= 1.3 * first, (first, last)
