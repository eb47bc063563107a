"""GRPO through TRL, with the workflow's reward.

In: a model, rows and the reward of one completion. Out: a trained model, checkpoints, a curve. The trainer is TRL's
own; what is added here is a KL term that fades, the two controls that must not learn, and the curve.
"""

from __future__ import annotations

import asyncio
import atexit
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerState
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.grpo_trainer import RewardFunc
from trl.trainer.utils import shutdown_event_loop_in_daemon

from openconductor.errors import JournalError
from openconductor.training.checkpoint import COMPLETE, storing
from openconductor.training.curves import Curve, measure
from openconductor.training.examples import Setup
from openconductor.training.rollout import completion_of, render_chat, score_all
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem


def grpo_arguments(config: TrainConfig, folder: Path, *, cpu: bool) -> GRPOConfig:
    """The recipe in TRL's words (TRL 1.16; ``warmup_steps`` below 1 is a share of the steps)."""
    rollout, optim = config.rollout, config.optim
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=rollout.iterations,
        num_generations=rollout.completions,
        per_device_train_batch_size=config.micro_batch,
        gradient_accumulation_steps=rollout.batch // config.micro_batch,
        generation_batch_size=rollout.batch,
        max_completion_length=rollout.max_tokens,
        temperature=rollout.temperature,
        learning_rate=optim.learning_rate,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_scheduler_type=optim.schedule,
        warmup_steps=optim.warmup,
        max_grad_norm=optim.grad_clip,
        epsilon=optim.epsilon,
        beta=optim.kl,
        loss_type="grpo",
        scale_rewards=optim.scale,
        shuffle_dataset=False,
        remove_unused_columns=False,
        bf16=optim.bf16 and not cpu,
        gradient_checkpointing=not cpu,
        use_cpu=cpu,
        dataloader_pin_memory=not cpu,
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )


_REPORT_EVERY = 10  # iterations


@dataclass(slots=True)
class WorkflowReward:
    """TRL's async reward function over a whole batch; every completion's workflow runs at the same time.

    A failure of infrastructure is None (masked), never a number. Into the trainer only what stops a run is raised: a
    wrong key, a wrong setting, a failing disk.

    Attributes:
        setup: of the run; its recipe is the act's.
        problems: what the rows' ``problem`` is an index into.
        curve: what each batch's record is appended to.
        end: the id of the token that ends a completion.
    """

    setup: Setup
    problems: Sequence[Problem]
    curve: Curve
    end: int
    clock: float = field(default_factory=time.perf_counter)
    __name__ = "workflow"

    async def __call__(
        self,
        prompts: Sequence[object],
        completions: Sequence[Sequence[dict[str, str]]],
        completion_ids: Sequence[Sequence[int]],
        *,
        problem: Sequence[int],
        trainer_state: TrainerState,
        **_: object,
    ) -> list[float | None]:
        """One reward a completion, in order: the true ones, but for the two controls."""
        config, say = self.setup.config, self.setup.say
        iteration, group = self.curve.after + int(trainer_state.global_step), config.rollout.completions
        asked = [self.problems[index] for index in problem]
        said = [
            completion_of(completion[0]["content"], ids, self.end)
            for completion, ids in zip(completions, completion_ids, strict=True)
        ]
        samples = [iteration * group + index % group for index in range(len(asked))]
        scored = await score_all(self.setup.score, zip(asked, said, samples, strict=True))
        now = time.perf_counter()
        measured = measure(asked, scored, self.setup.pool, group=group)
        record = {"iteration": iteration, "seconds": now - self.clock, **measured}
        self.clock = now
        for warning in self.curve.append(record):
            say(f"warning: iteration {iteration}: {warning}")
        if iteration % _REPORT_EVERY == 0:
            say(
                f"iteration {iteration} of {self.curve.after + config.rollout.iterations}: accuracy "
                f"{record['accuracy']:.3f}, validity {record['validity']:.3f}, routing entropy "
                f"{record['routing_entropy_bits']:.2f} bits"
            )
        rewards = [one.reward for one in scored]
        if config.reward.control == "flipped":
            return [None if reward is None else 1.0 - reward for reward in rewards]
        if config.reward.control == "shuffled":
            random.Random(f"shuffled/{config.seed}/{iteration}").shuffle(rewards)
        return rewards


class ConductorTrainer(GRPOTrainer):
    """TRL's trainer with a KL term that fades, checkpoints that are whole or not there, and an end that leaves nothing.

    TRL keeps its ``beta`` constant; here it falls in a straight line (explore near the start, then go where the reward
    leads), and at 0 TRL skips the reference model's forward pass.
    """

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        super().__init__(**options)
        self._kl = config.optim.kl
        self._fades = max(config.optim.kl_until * config.rollout.iterations, 1e-9)
        self.remove_callback(PrinterCallback)  # the curve says it all

    def training_step(self, *args: Any, **options: Any) -> Any:
        """TRL's, with the weight that the KL term has in this iteration."""
        self.beta = self._kl * max(0.0, 1 - self.state.global_step / self._fades)
        return super().training_step(*args, **options)

    def train(self, *args: Any, **options: Any) -> Any:
        """Train, and close the event loop that the rewards ran on, with the workers' connections.

        TRL leaves its loop to the end of the process, where the connections on it can no longer be closed.
        """
        try:
            return super().train(*args, **options)
        finally:
            loop, thread = self.async_loop, self.async_loop_thread
            if not loop.is_closed():
                asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result()
                atexit.unregister(shutdown_event_loop_in_daemon)
                shutdown_event_loop_in_daemon(thread, loop)
                loop.close()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        path = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        try:
            with storing(path):
                super()._save_checkpoint(model, trial)
                (path / COMPLETE).write_text("", encoding="utf-8")
        except JournalError:
            shutil.rmtree(path, ignore_errors=True)
            raise


def run_grpo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    reward: WorkflowReward,
    folder: Path,
    *,
    checkpoint: Path | None,
) -> None:
    """Train the model in place on the reward's problems, from a checkpoint in the folder on."""
    config, pool = reward.setup.config, reward.setup.pool
    rows = [
        {"prompt": render_chat(problem.question, config, pool), "problem": index}
        for index, problem in enumerate(reward.problems)
    ]
    trainer = ConductorTrainer(
        config,
        model=model,
        reward_funcs=cast("RewardFunc", reward),
        args=grpo_arguments(config, folder, cpu=not torch.cuda.is_available()),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
