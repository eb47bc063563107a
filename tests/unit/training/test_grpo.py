"""What TRL is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.training.config import load_train_config
from openconductor.training.grpo import grpo_arguments

RECIPE = Path(__file__).parents[3] / "recipes" / "gym.toml"


@pytest.mark.parametrize(
    ("overrides", "micro", "steps"),
    [
        ([], 256, 1),
        (["optim.micro_batch=64"], 64, 4),
        (["rollout.questions=4", "rollout.completions=4"], 16, 1),  # fewer than the recipe's micro batch of 256
    ],
)
def test_a_backward_pass_takes_the_micro_batch_or_all_there_is(
    overrides: list[str], micro: int, steps: int, tmp_path: Path
) -> None:
    config = load_train_config(RECIPE, overrides)
    told = grpo_arguments(config, tmp_path, cpu=True)
    assert (told.per_device_train_batch_size, told.gradient_accumulation_steps) == (micro, steps)
    assert micro * steps == told.generation_batch_size == config.rollout.questions * config.rollout.completions
