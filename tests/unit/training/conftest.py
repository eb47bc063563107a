"""Setups for tests of training; everything here needs the extra 'train'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")

from openconductor.graders.freeform import FreeFormGrader
from openconductor.gym.workers import gym_pool
from openconductor.tasks.simulated import find_simulation
from openconductor.training.setup import Questions, Setup
from openconductor.training.train_config import TrainConfig

MakeSetup = Callable[..., Setup]


@pytest.fixture
def make_setup(tmp_path: Path) -> MakeSetup:
    """A setup over the gym, with two questions and two completions an iteration."""

    def make(say: Callable[[str], None] = print, **tables: object) -> Setup:
        config = TrainConfig.model_validate({"pool": "gym", "data": {"task": "gym"}, **tables})
        small = {"questions": 2, "completions": 2}
        rollout = config.rollout.model_copy(update=small)
        questions = Questions(FreeFormGrader(), find_simulation("gym"))
        config = config.model_copy(update={"rollout": rollout})
        return Setup(config, tmp_path, gym_pool(), questions, None, say)

    return make
