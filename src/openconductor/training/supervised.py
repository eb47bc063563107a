"""Supervised learning of workflows: the cold start on random ones, and the gym's second act on varied ones of its own.

In: prompts and the workflows to write for them. Out: a model that was trained in place, by transformers' own loop, with
checkpoints that a later call resumes from. The random workflows are valid and ignorant of who is good at what: they
teach the form and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import PartialState
from torch.utils.data import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from openconductor.errors import ConfigError, WorkflowError
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.gym.world import COMPARE
from openconductor.parser import parse_workflow
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint, with_adapters
from openconductor.training.examples import Setup, training_problems
from openconductor.training.rollout import complete, write_prompt
from openconductor.training.train_config import ColdStartConfig, TrainConfig
from openconductor.types import Access, Step, Workflow

Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""

KEPT = 0.3
"""Share of the Conductor's own workflows that stay as they are when they are varied."""
_SPARE = 20  # one more question in this many, for plans that cannot be read
_WARMUP = 50  # steps
_IGNORED = -100  # the label of a token that is not learnt

FIRST = (
    "Solve the question step by step and state the final answer.",
    "Work through the question carefully. End with the answer in the form that is asked for.",
    "List what the question gives and what it asks for, then solve it.",
    "Plan how to solve the question, without solving it yet.",
    "Name the facts and formulas that this question needs.",
    "Solve the question in the most direct way that you can find.",
    "Write a complete solution and check each step as you go.",
)
"""Instructions for a step that sees nothing before it."""
LATER = (
    "Check the work so far for mistakes and give the corrected final answer.",
    "Compare the answers above, decide which one is right, and state it.",
    "Use what is above to solve the question and state the final answer.",
    "Carry on from the work above and finish the solution.",
    "Look for a case that the work above has missed, then answer the question.",
    "Put the results above together into one complete final answer.",
)
"""Instructions for a step that sees earlier ones."""
THOUGHTS = (
    "{} will do here.",
    "I will use {} for this.",
    "This question calls for {}.",
    "A plan of {}, so that a slip is found.",
)
"""What is said before the lists; the gap is the number of steps."""


def cold_start(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, setup: Setup, folder: Path) -> Trainer:
    """Train the model on random workflows, from the last checkpoint in the folder on; returns the trainer."""
    config, settings = setup.config, setup.config.cold_start
    problems = [] if config.data.task == "gym" else training_problems(config, setup.questions)

    def row(index: int) -> Row:
        rng = random.Random(f"cold-start/{config.seed}/{index}")
        if problems:
            question = rng.choice(problems).question
            workflow = random_plan(rng, setup.pool.ordinals, max_steps=config.rollout.max_steps, config=config)
            thought = rng.choice(THOUGHTS).format("one step" if len(workflow) == 1 else f"{len(workflow)} steps")
        else:
            drawn = draw_question("train", KINDS[index % len(KINDS)], rng)
            workflow = random_workflow(rng, drawn, setup.pool.ordinals, max_steps=config.rollout.max_steps)
            question, thought = drawn.text, write_thought(workflow, drawn)
        return _row(tokenizer, write_prompt(tokenizer, question, config, setup.pool), workflow, thought)

    every = max(1, settings.steps // 10)

    def told(step: int, loss: float) -> None:
        if step % every == 0:
            setup.say(f"cold start: step {step} of {settings.steps}, loss {loss:.3f} nats a token")

    return imitate(model, tokenizer, row, setup, settings, folder, warmup=_WARMUP, on_step=told)


def random_plan(rng: random.Random, ordinals: Sequence[int], *, max_steps: int, config: TrainConfig) -> Workflow:
    """A valid workflow for any question: its length, workers, accesses and wordings are drawn uniformly."""
    steps: list[Step] = []
    for index in range(rng.randint(1, max_steps)):
        access: Access = ()
        if index and rng.random() < 0.7:
            seen = sorted(rng.sample(range(index), rng.randint(1, index)))
            access = "all" if config.prompt.access == "binary" else tuple(seen)
        steps.append(Step(rng.choice(list(ordinals)), rng.choice(LATER if access else FIRST), access))
    return Workflow(tuple(steps))


def widen(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, setup: Setup, folder: Path) -> Trainer | None:
    """Train the model on its own workflows, most of them varied; None where it could plan nothing."""
    config, pool = setup.config, setup.pool
    settings, max_steps = config.widen, config.rollout.max_steps
    rng = random.Random(f"widen/{config.seed}")
    count = settings.steps * settings.batch
    questions = [draw_question("train", KINDS[index % len(KINDS)], rng) for index in range(count + count // _SPARE)]
    prompts = [write_prompt(tokenizer, question.text, config, pool) for question in questions]
    completions = complete(model, tokenizer, prompts, config=config, temperature=1.0, seed=config.seed)
    rows: list[Row] = []
    for question, prompt, completion in zip(questions, prompts, completions, strict=True):
        with suppress(WorkflowError):
            plan = parse_workflow(completion.text, pool.ordinals, max_steps=max_steps)
            if rng.random() >= KEPT:
                plan = vary(plan, rng, pool.ordinals, max_steps=max_steps)
            rows.append(_row(tokenizer, prompt, plan, write_thought(plan, question)))
    if not rows:
        setup.say("the second act: none of the Conductor's own plans can be read, so nothing is varied")
        return None
    fewer = settings.model_copy(update={"steps": min(settings.steps, -(-len(rows) // settings.batch))})
    return imitate(model, tokenizer, lambda index: rows[index % len(rows)], setup, fewer, folder, warmup=0)


def vary(plan: Workflow, rng: random.Random, ordinals: Sequence[int], *, max_steps: int) -> Workflow:
    """The plan in a random number of independent attempts, then a comparison by a random worker.

    A plan that has no room for a comparison stays as it is.
    """
    room = (max_steps - 1) // len(plan)
    if room < 1:
        return plan
    steps: list[Step] = []
    for attempt in range(rng.randint(1, room)):
        start = attempt * len(plan)
        steps += [
            Step(step.worker, step.subtask, tuple(start + seen for seen in plan.visible(index)))
            for index, step in enumerate(plan)
        ]
    return Workflow((*steps, Step(rng.choice(list(ordinals)), rng.choice(COMPARE), "all")))


def _row(tokenizer: PreTrainedTokenizerBase, prompt: str, workflow: Workflow, thought: str) -> Row:
    completion = tokenizer.encode(render_workflow(workflow, thought), add_special_tokens=False)
    return tokenizer.encode(prompt, add_special_tokens=False), [*completion, cast("int", tokenizer.eos_token_id)]


class _Rows(Dataset[Row]):
    """Rows that are made as they are needed."""

    def __init__(self, row: Callable[[int], Row], count: int) -> None:
        self._row, self._count = row, count

    def __getitem__(self, index: int) -> Row:
        return self._row(index)

    def __len__(self) -> int:
        return self._count


class _Told(TrainerCallback):
    """Tells each step's loss."""

    def __init__(self, on_step: Callable[[int, float], None]) -> None:
        self._on_step = on_step

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any) -> None:
        """What transformers calls when it logs a step."""
        if state.is_world_process_zero and "loss" in (logged := options.get("logs") or {}):
            self._on_step(state.global_step - 1, logged["loss"])


def imitate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    row: Callable[[int], Row],
    setup: Setup,
    settings: ColdStartConfig,
    folder: Path,
    *,
    warmup: int,
    on_step: Callable[[int, float], None] | None = None,
) -> Trainer:
    """``settings.steps`` steps of supervised learning on the completions of rows 0, 1, …; resumes in the folder.

    Raises:
        ConfigError: a batch cannot be shared out evenly among the processes.
    """
    config, cpu, processes = setup.config, not torch.cuda.is_available(), PartialState().num_processes
    micro = min(settings.micro_batch, max(1, settings.batch // processes))
    if settings.batch % (micro * processes):
        raise ConfigError(
            f"supervised learning: got a batch of {settings.batch} over {processes} processes with micro_batch "
            f"{settings.micro_batch}, expected a whole number of micro batches in each process"
        )
    trainer = WholeCheckpoints(
        model=with_adapters(model, config.model),
        args=TrainingArguments(
            output_dir=str(folder),
            seed=config.seed,
            data_seed=config.seed,
            max_steps=settings.steps,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=settings.batch // (micro * processes),
            learning_rate=settings.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=warmup,
            adam_beta2=0.98,
            weight_decay=0.01,
            bf16=config.optim.bf16 and not cpu,
            gradient_checkpointing=config.optim.checkpointing,
            use_cpu=cpu,
            ddp_find_unused_parameters=False,
            dataloader_pin_memory=not cpu,
            remove_unused_columns=False,
            save_steps=config.save_every,
            save_total_limit=2,  # one counts until the next is whole
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=_Rows(row, settings.steps * settings.batch),
        data_collator=lambda rows: _collated(rows, cast("int", tokenizer.pad_token_id)),
        callbacks=None if on_step is None else [_Told(on_step)],
    )
    trainer.remove_callback(PrinterCallback)
    checkpoint, _ = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer


def _collated(rows: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
    """Rows as tensors [B, T], filled up on the right; only the completions have labels."""
    longest = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids, labels = torch.full((len(rows), longest), pad), torch.full((len(rows), longest), _IGNORED)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for index, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[index, :end] = torch.tensor(prompt + completion)
        labels[index, len(prompt) : end] = torch.tensor(completion)
        mask[index, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
