"""Supervised learning of workflows: transformers' own loop, and the cold start on random workflows.

In: a model. Out: one that was trained, with checkpoints that a later call resumes from. The random
workflows of the cold start are valid and ignorant of who is good at what: they teach the form and
nothing else.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

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

from openconductor.baselines.observed import text_of
from openconductor.errors import ConfigError
from openconductor.prompt import count_steps, render_workflow
from openconductor.tasks.simulated import simulations
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint, with_adapters
from openconductor.training.examples import Setup
from openconductor.training.rollout import draw_pool, write_prompt
from openconductor.training.train_config import SupervisedConfig, TrainConfig
from openconductor.types import Access, Problem, Step, Workflow

T = TypeVar("T")
Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""

WARMUP = 50  # steps
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
    "{} for this question.",
    "{}: no more is needed.",
    "{}, so that a slip is found.",
)
"""What is said before the lists; it begins with the number of steps."""
SHAPES = (
    "{}: a single one.",
    "{}: each sees those before.",
    "{}: attempts, and a last one that sees them all.",
)
"""What is said instead where shapes are named (``cold_start.shapes``)."""


def cold_start(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, setup: Setup, folder: Path
) -> Trainer:
    """Train the model on random workflows, from the last checkpoint in the folder on; returns the trainer."""
    config, settings = setup.config, setup.config.cold_start
    problems, simulation = setup.questions.learnt, setup.questions.simulation

    def row(index: int) -> Row:
        rng = random.Random(f"cold-start/{config.seed}/{index}")
        pool = draw_pool(config, setup.pool, f"cold-start/{index}")
        max_steps = config.rollout.max_steps
        if simulation is None:
            question = rng.choice(problems).question
            draw = shaped_plan if settings.shapes else random_plan
            workflow, thought = draw(rng, pool.ordinals, max_steps=max_steps, config=config)
            prompt = write_prompt(tokenizer, question, config, pool)
            return row_of(tokenizer, prompt, render_workflow(workflow, thought))
        if index < settings.reading * settings.batch:
            return reading_row(tokenizer, setup, f"cold-start/{index}")
        plan = simulation.draw_plan(
            rng,
            index,
            pool,
            max_steps=max_steps,
            rounds=config.rollout.rounds,
            cards=config.prompt.cards,
        )
        prompt = write_prompt(tokenizer, plan.question, config, pool, plan.previous)
        return row_of(tokenizer, prompt, render_workflow(plan.workflow, plan.thought))

    warmup = min(WARMUP, settings.steps // 4)
    trainer = WholeCheckpoints(
        model=with_adapters(model, config.model),
        args=arguments(
            config, settings, folder, schedule="linear", warmup=warmup, steps=settings.steps
        ),
        train_dataset=Rows(row, settings.steps * settings.batch),
        data_collator=lambda rows: collated(rows, cast("int", tokenizer.pad_token_id)),
        callbacks=[_Told(setup.say, settings.steps)],
    )
    return trained(trainer, folder)


def fresh_phrases(config: TrainConfig, learnt: Sequence[Problem]) -> list[str]:
    """Return the texts that a fresh model reads and writes as one token.

    They are the phrases of all simulated tasks, so that every fresh model can also learn these;
    then those of random plans, and the words of at least one in a hundred of the learnt questions.
    """
    phrases: list[str] = []
    for simulation in simulations():
        phrases += simulation.phrases(cards=config.prompt.cards)
    if not learnt:
        return phrases
    words = Counter(
        word
        for problem in learnt
        for word in set(re.findall(" [A-Za-z]+", text_of(problem.question)))
    )
    phrases += [*FIRST, *LATER, *(thought.format("") for thought in THOUGHTS + SHAPES)]
    return phrases + sorted(word for word, count in words.items() if count * 100 >= len(learnt))


def reading_row(tokenizer: PreTrainedTokenizerBase, setup: Setup, key: str) -> Row:
    """An exercise in reading cards: the workers that the key draws, and who of them is listed for what."""
    assert setup.questions.simulation is not None
    pool = draw_pool(setup.config, setup.pool, key)
    prompt = write_prompt(tokenizer, "?", setup.config, pool)
    return row_of(tokenizer, prompt, setup.questions.simulation.write_index(pool.cards))


def random_plan(
    rng: random.Random, ordinals: Sequence[int], *, max_steps: int, config: TrainConfig
) -> tuple[Workflow, str]:
    """A valid workflow for any question, and a thought: its length, workers, accesses and wordings are drawn uniformly.

    The last of several steps always sees some: else they were for nothing, and a worker that puts
    answers together would look bad before access is learnt.
    """
    steps: list[Step] = []
    size = rng.randint(1, max_steps)
    for index in range(size):
        access: Access = ()
        if index and (index == size - 1 or rng.random() < 0.7):
            seen = sorted(rng.sample(range(index), rng.randint(1, index)))
            access = "all" if config.prompt.access == "binary" else tuple(seen)
        steps.append(
            Step(rng.choice(list(ordinals)), rng.choice(LATER if access else FIRST), access)
        )
    return Workflow(tuple(steps)), rng.choice(THOUGHTS).format(count_steps(size))


def shaped_plan(
    rng: random.Random, ordinals: Sequence[int], *, max_steps: int, config: TrainConfig
) -> tuple[Workflow, str]:
    """A plan of one of three shapes, and a thought that names it: a single step, a chain, attempts and a merge.

    Its steps are by different workers, any of them in any place; attempts, whose order is nothing,
    stand in the order of their workers, so that it is soon learnt that they differ. Its length is
    drawn uniformly, and so is its shape from three steps on.
    """
    size = rng.randint(1, min(max_steps, len(ordinals)))
    shape = min(size - 1, rng.randint(1, 2))
    *before, last = rng.sample(list(ordinals), size)
    steps: list[Step] = []
    for index, worker in enumerate((*(sorted(before) if shape > 1 else before), last)):
        seen = tuple(range(index)) if shape == 1 or index == size - 1 else ()
        access: Access = "all" if seen and config.prompt.access == "binary" else seen
        steps.append(Step(worker, rng.choice(LATER if seen else FIRST), access))
    return Workflow(tuple(steps)), SHAPES[shape].format(count_steps(size))


def row_of(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: str) -> Row:
    """A prompt and what is to be written for it, as a row."""
    said = tokenizer.encode(completion, add_special_tokens=False)
    return tokenizer.encode(prompt, add_special_tokens=False), [
        *said,
        cast("int", tokenizer.eos_token_id),
    ]


class Rows(Dataset[T]):
    """Rows that are made as they are needed."""

    def __init__(self, row: Callable[[int], T], count: int) -> None:
        self._row, self._count = row, count

    def __getitem__(self, index: int) -> T:
        return self._row(index)

    def __len__(self) -> int:
        return self._count


class _Told(TrainerCallback):
    """Tells the loss, ten times in all."""

    def __init__(self, say: Callable[[str], None], steps: int) -> None:
        self._say, self._steps = say, steps

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """What transformers calls when it logs a step."""
        step, logged = state.global_step - 1, options.get("logs") or {}
        if (
            state.is_world_process_zero
            and "loss" in logged
            and step % max(1, self._steps // 10) == 0
        ):
            self._say(
                f"cold start: step {step} of {self._steps}, loss {logged['loss']:.3f} nats a token"
            )


def arguments(
    config: TrainConfig,
    settings: SupervisedConfig,
    folder: Path,
    *,
    schedule: str,
    warmup: int,
    steps: int,
    save: int | None = None,
) -> TrainingArguments:
    """How both kinds of supervised learning are done.

    Raises:
        ConfigError: a batch cannot be shared out evenly among the processes.
    """
    cpu, processes = not torch.cuda.is_available(), PartialState().num_processes
    micro = min(settings.micro_batch, max(1, settings.batch // processes))
    if settings.batch % (micro * processes):
        raise ConfigError(
            f"supervised learning: got a batch of {settings.batch} over {processes} processes with micro_batch "
            f"{settings.micro_batch}, expected a whole number of micro batches in each process"
        )
    return TrainingArguments(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.batch // (micro * processes),
        learning_rate=settings.learning_rate,
        lr_scheduler_type=schedule,
        warmup_steps=warmup,
        adam_beta2=0.98,
        weight_decay=0.01,
        bf16=config.optim.bf16,
        gradient_checkpointing=config.optim.checkpointing,
        use_cpu=cpu,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not cpu,
        remove_unused_columns=False,
        save_steps=save or config.save_every,
        save_total_limit=2,  # one counts until the next is whole
        logging_steps=1,
        train_sampling_strategy="sequential",  # rows are drawn by their place
        report_to=[],
        disable_tqdm=True,
    )


def trained(trainer: Trainer, folder: Path) -> Trainer:
    """The trainer after its training, from the last whole checkpoint in the folder on."""
    trainer.remove_callback(PrinterCallback)
    checkpoint, _ = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer


def collated(rows: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
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
