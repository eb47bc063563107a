"""A training with given completions, run by torchrun with one process or two.

In: a base folder and a folder for results. Out: in it, of the first process, ``rewards.json`` and
``gradients.pt``: by weight Adam's mean gradient. (Where a gradient is nearly 0, Adam moves a weight
by the sign of its rounding.)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from tests.learning.runs import recipe
from trl import GRPOTrainer

from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_workflow
from openconductor.store import Journal
from openconductor.tasks import load_task
from openconductor.training.checkpoint import whole_model
from openconductor.training.curves import Curve
from openconductor.training.grpo import ConductorTrainer, run_grpo
from openconductor.training.models import load_model
from openconductor.training.scoring import Rewards, Scorer, gathered
from openconductor.training.setup import Learner, Questions, Setup
from openconductor.types import Step, Workflow

RECIPE = """
prompt = { template = "compact", access = "index" }
rollout = { iterations = 2, questions = 2, completions = 8, max_tokens = 64 }
[optim]
learning_rate = 1e-4
schedule = "constant"
warmup = 0.0
micro_batch = 4
bf16 = false
"""
TEXTS = [
    render_workflow(Workflow([Step(worker, subtask)]))
    for worker in range(4)
    for subtask in ("Solve it.", "sort the list", "double every number")
] + ["no plan at all"]


def stored(
    trainer: ConductorTrainer, prompt_ids: Sequence[Any], *_: Any
) -> tuple[list[list[int]], None]:
    """The stored completions of the rows that this process holds."""
    start = trainer.accelerator.process_index * len(prompt_ids)
    tokenizer: Any = trainer.processing_class
    texts = [TEXTS[(7 * (start + index)) % len(TEXTS)] for index in range(len(prompt_ids))]
    return [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts], None


def main(base: str, folder: Path) -> None:
    state = PartialState(cpu=True)
    config = recipe(RECIPE, base=Path(base))
    folder.mkdir(parents=True, exist_ok=True)
    pool, grader = gym_pool(0), load_task("gym").grader
    journal = Journal(folder / "journal.sqlite") if state.is_main_process else None
    scorer = Scorer(config, pool, grader, journal) if journal is not None else None
    setup = Setup(config, folder, pool, Questions(grader), scorer, lambda _: None)
    problems = [question.problem() for question in draw_questions("train", 4, seed=1)]
    curve = Curve(folder / "curves.jsonl")
    advantages: list[list[float]] = []
    scored = GRPOTrainer._generate_and_score_completions

    def told(trainer: Any, inputs: Any) -> Any:
        made = scored(trainer, inputs)
        advantages.append(gathered(made["advantages"].tolist()))
        return made

    GRPOTrainer._generate_and_score_completions = told
    ConductorTrainer._generate_single_turn = stored
    model, tokenizer = load_model(base)
    learner = Learner(model, tokenizer, folder / "c")
    trainer = run_grpo(learner, Rewards(setup, problems, curve))
    learnt = whole_model(trainer)
    if learnt is not None:
        optimizer: Any = trainer.optimizer
        gradients = {
            name: optimizer.state[weight]["exp_avg"] for name, weight in learnt.named_parameters()
        }
        torch.save(gradients, folder / "gradients.pt")
        rewards = [record["reward"] for record in curve.records]
        (folder / "rewards.json").write_text(
            json.dumps({"rewards": rewards, "advantages": advantages})
        )
    if scorer is not None and journal is not None:
        scorer.close()
        journal.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
