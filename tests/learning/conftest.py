"""A recipe small enough for seconds, for all learning tests."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")

from tests.learning.runs import recipe

from openconductor.training.train_config import TrainConfig

TINY = """
name = "tiny"
seed = 3
save_every = 2
model = { base = "", hidden = 32, intermediate = 64, layers = 1, heads = 2 }
cold_start = { steps = 12, batch = 8 }
prompt = { template = "compact", access = "index" }
rollout = { iterations = 6, questions = 4, completions = 4, max_tokens = 24 }
optim = { learning_rate = 1e-3, micro_batch = 16, bf16 = false }
start = { validity = 0.0, prompts = 20, workflows = 20 }
held_out = { questions = 20 }
"""


@pytest.fixture(scope="session")
def tiny() -> TrainConfig:
    """A recipe that runs a cold start and GRPO in seconds; too short to learn much."""
    return recipe(TINY)
