"""Supervised learning of workflows, and the cold start on random ones.

The random workflows of the cold start are valid and ignore who is good at what, so they teach the
form and nothing else.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from accelerate import PartialState
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from openconductor.errors import ConfigError
from openconductor.measures import Pace
from openconductor.pool import WorkerPool
from openconductor.prompt import count_steps, render_workflow
from openconductor.tasks.simulated import Plan, simulations
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint
from openconductor.training.completions import check_room, draw_pool, write_prompt
from openconductor.training.models import build_tokenizer, with_adapters
from openconductor.training.setup import Learner, Phase, Questions, Setup
from openconductor.training.train_config import SupervisedConfig, TrainConfig
from openconductor.types import Access, Step, Workflow

T = TypeVar("T")
Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""

_IGNORED = -100  # the label of a token that is not learnt
_MEASURED_PLANS = 64  # of a cold start, one of which has to fit into a completion
_WORD = re.compile(r"(?:^| )[^\W\d_]+", re.MULTILINE)  # with the blank before it

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
"""Texts before the lists; each begins with the number of steps."""
SHAPES = (
    "{}: a single one.",
    "{}: each sees those before.",
    "{}: attempts, and a last one that sees them all.",
)
"""Texts before the lists where shapes are named (``cold_start.shapes``)."""


# ── the cold start ────────────────────────────────────────────────────────────────────────────────
def cold_start(setup: Setup, learner: Learner) -> Trainer:
    """Train the model on random workflows, from the last checkpoint on; return the trainer."""
    settings = setup.config.cold_start
    return supervise(
        setup,
        learner,
        settings,
        lambda index: _cold_start_row(setup, learner.tokenizer, index),
        callbacks=[_LossReport(setup.say, settings.steps)],
    )


COLD_START = Phase(
    "cold_start", cold_start, lambda config: config.cold_start.steps > 0, graded=False
)


def _cold_start_row(setup: Setup, tokenizer: PreTrainedTokenizerBase, index: int) -> Row:
    """Return exercise number ``index``: a question, and a random workflow for it."""
    config, settings = setup.config, setup.config.cold_start
    if index < settings.reading * settings.batch:
        return reading_row(tokenizer, setup, f"cold-start/{index}")
    pool = draw_pool(config, setup.pool, f"cold-start/{index}")
    plan = _draw_plan(config, setup.questions, pool, index)
    prompt = write_prompt(tokenizer, plan.question, config, pool, plan.previous)
    return make_row(tokenizer, prompt, render_workflow(plan.workflow, plan.thought))


def _draw_plan(config: TrainConfig, questions: Questions, pool: WorkerPool, index: int) -> Plan:
    """Draw plan number ``index`` of the cold start, over the workers on offer."""
    rng = random.Random(f"cold-start/{config.seed}/{index}")
    if questions.simulation is None:
        question = questions.planned(rng.choice(questions.learnt))
        draw = shaped_plan if config.cold_start.shapes else random_plan
        workflow, thought = draw(rng, pool.ordinals, config)
        return Plan(question, workflow, thought)
    return questions.simulation.draw_plan(
        rng,
        index,
        pool,
        max_steps=config.rollout.max_steps,
        rounds=config.rollout.rounds,
        cards=config.prompt.cards,
    )


def fresh_tokenizer(
    config: TrainConfig, questions: Questions, pool: WorkerPool
) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a fresh model; check that questions and plans fit into the model.

    Raises:
        ConfigError: a question leaves no room for a completion, or a completion none for a plan.
    """
    tokenizer = build_tokenizer(fresh_phrases(config, questions))
    plans = [_draw_plan(config, questions, pool, index) for index in range(_MEASURED_PLANS)]
    check_room(tokenizer, config, [render_workflow(plan.workflow, plan.thought) for plan in plans])
    longest = 0
    for problem in chain(questions.learnt, *questions.held_out):
        prompt = write_prompt(tokenizer, questions.planned(problem), config, pool)
        longest = max(longest, len(tokenizer.encode(prompt, add_special_tokens=False)))
    needed = longest + config.rollout.max_tokens
    if needed > config.model.positions:
        raise ConfigError(
            f"model.positions: got {config.model.positions}, expected at least {needed}: the "
            f"longest prompt has {longest} tokens, and a completion rollout.max_tokens = "
            f"{config.rollout.max_tokens}; or leave out the longest questions"
        )
    return tokenizer


def fresh_phrases(config: TrainConfig, questions: Questions) -> list[str]:
    """Return the texts that a fresh model reads and writes as one token.

    They are the phrases of all simulated tasks, so that every fresh model can also learn these;
    then those of random plans, and the words and characters of at least one in a hundred of the
    learnt questions.
    """
    phrases: list[str] = []
    for simulation in simulations():
        phrases += simulation.phrases(cards=config.prompt.cards)
    learnt = questions.learnt
    if not learnt:
        return phrases
    phrases += [*FIRST, *LATER, *(thought.format("") for thought in THOUGHTS + SHAPES)]
    counts: Counter[str] = Counter()
    for problem in learnt:
        text = questions.planned(problem)
        counts.update({*_WORD.findall(text), *text})
    frequent = [part for part, count in counts.items() if count * 100 >= len(learnt)]
    return phrases + sorted(frequent)


def reading_row(tokenizer: PreTrainedTokenizerBase, setup: Setup, key: str) -> Row:
    """Return an exercise in reading cards: which of the drawn workers is listed for what."""
    assert setup.questions.simulation is not None
    pool = draw_pool(setup.config, setup.pool, key)
    prompt = write_prompt(tokenizer, "?", setup.config, pool)
    return make_row(tokenizer, prompt, setup.questions.simulation.write_index(pool.cards))


def random_plan(
    rng: random.Random, ordinals: Sequence[int], config: TrainConfig
) -> tuple[Workflow, str]:
    """Return a valid workflow for any question, and a thought; all choices are drawn uniformly.

    The last of several steps always sees some: else they were for nothing, and a worker that puts
    answers together would look bad before access is learnt.
    """
    size = rng.randint(1, config.rollout.max_steps)
    steps: list[Step] = []
    for index in range(size):
        access: Access = ()
        if index and (index == size - 1 or rng.random() < 0.7):
            seen = sorted(rng.sample(range(index), rng.randint(1, index)))
            access = "all" if config.prompt.access == "binary" else tuple(seen)
        worker = rng.choice(list(ordinals))
        subtask = rng.choice(LATER if access else FIRST)
        steps.append(Step(worker, subtask, access))
    thought = rng.choice(THOUGHTS).format(count_steps(size))
    return Workflow(tuple(steps)), thought


def shaped_plan(
    rng: random.Random, ordinals: Sequence[int], config: TrainConfig
) -> tuple[Workflow, str]:
    """Return a plan of one of three shapes, and a thought that names the shape.

    The shapes are a single step, a chain, and attempts with a merge. The steps are by different
    workers, any of them in any place. Attempts have no order of their own, so they stand in the
    order of their workers: then it is soon learnt that they differ. The length is drawn uniformly,
    and from three steps on so is the shape.
    """
    size = rng.randint(1, min(config.rollout.max_steps, len(ordinals)))
    shape = min(size - 1, rng.randint(1, 2))
    *before, last = rng.sample(list(ordinals), size)
    chain = shape == 1
    attempts = shape == 2
    if attempts:
        before.sort()
    steps: list[Step] = []
    for index, worker in enumerate([*before, last]):
        seen = tuple(range(index)) if chain or index == size - 1 else ()
        access: Access = "all" if seen and config.prompt.access == "binary" else seen
        steps.append(Step(worker, rng.choice(LATER if seen else FIRST), access))
    thought = SHAPES[shape].format(count_steps(size))
    return Workflow(tuple(steps)), thought


class _LossReport(TrainerCallback):
    """Reports the loss ten times in all."""

    def __init__(self, say: Callable[[str], None], steps: int) -> None:
        self._say, self._steps = say, steps
        self._pace = Pace()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """Report the loss that was logged."""
        del args, control
        step = state.global_step - 1
        logged = options.get("logs") or {}
        if not state.is_world_process_zero or "loss" not in logged:
            return
        finish = self._pace.finish(step, self._steps)
        if step % max(1, self._steps // 10) == 0:
            where = f"cold start: step {step} of {self._steps}"
            self._say(f"{where}, loss {logged['loss']:.3f} nats a token{finish}")


# ── supervised learning ───────────────────────────────────────────────────────────────────────────
def supervise(
    setup: Setup,
    learner: Learner,
    settings: SupervisedConfig,
    row: Callable[[int], Row],
    callbacks: Sequence[TrainerCallback] = (),
) -> Trainer:
    """Train the model on rows that are made by their index, from the last checkpoint on.

    The learning rate falls in a straight line.

    Args:
        setup: of the run.
        learner: the model.
        settings: steps, batch and learning rate.
        row: makes row ``index``; it must make the same one again when a run is resumed.
        callbacks: of the trainer, which is returned.
    """
    pad = cast("int", learner.tokenizer.pad_token_id)
    config = setup.config
    trainer = WholeCheckpoints(
        model=with_adapters(learner.model, config.model, seed=config.seed),
        args=supervised_arguments(
            config,
            settings,
            learner.checkpoints,
            schedule="linear",
            warmup=warmup_steps(settings.steps),
            steps=settings.steps,
        ),
        train_dataset=Rows(row, settings.steps * settings.batch),
        data_collator=lambda batch: collate(batch, pad),
        callbacks=list(callbacks),
    )
    resume_training(trainer, learner.checkpoints)
    return trainer


def make_row(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: str) -> Row:
    """Return a prompt and its completion as token ids."""
    end = cast("int", tokenizer.eos_token_id)
    target = tokenizer.encode(completion, add_special_tokens=False)
    return tokenizer.encode(prompt, add_special_tokens=False), [*target, end]


class Rows(Dataset[T]):
    """Rows that are made as they are needed."""

    def __init__(self, row: Callable[[int], T], count: int) -> None:
        self._row, self._count = row, count

    def __getitem__(self, index: int) -> T:
        return self._row(index)

    def __len__(self) -> int:
        return self._count


def warmup_steps(steps: int) -> int:
    """Return the steps over which the learning rate rises."""
    return min(50, steps // 4)


def supervised_arguments(
    config: TrainConfig,
    settings: SupervisedConfig,
    folder: Path,
    *,
    schedule: str,
    warmup: int,
    steps: int,
    save_every: int | None = None,
) -> TrainingArguments:
    """Return the recipe in transformers' words, for supervised learning.

    Args:
        config: the recipe.
        settings: of this phase.
        folder: for checkpoints.
        schedule: of the learning rate.
        warmup: steps over which the learning rate rises.
        steps: all steps.
        save_every: steps between checkpoints; None: the recipe's.

    Raises:
        ConfigError: a batch cannot be shared out evenly among the processes.
    """
    on_cpu = not torch.cuda.is_available()
    processes = PartialState().num_processes
    micro = min(settings.micro_batch, max(1, settings.batch // processes))
    if settings.batch % (micro * processes):
        raise ConfigError(
            f"supervised learning: got a batch of {settings.batch} over {processes} processes with "
            f"micro_batch {settings.micro_batch}, expected a whole number of micro batches in each "
            "process"
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
        use_cpu=on_cpu,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
        save_steps=save_every or config.save_every,
        save_total_limit=2,  # one counts until the next is whole
        logging_steps=1,
        train_sampling_strategy="sequential",  # rows are drawn by their index
        report_to=[],
        disable_tqdm=True,
    )


def resume_training(trainer: Trainer, folder: Path) -> None:
    """Train from the last whole checkpoint in the folder to the end."""
    trainer.remove_callback(PrinterCallback)
    checkpoint, _ = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def collate(rows: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
    """Return rows as tensors [B, T], padded on the right; only completions have labels."""
    longest = max(len(prompt) + len(completion) for prompt, completion in rows)
    shape = (len(rows), longest)
    ids = torch.full(shape, pad)
    labels = torch.full(shape, _IGNORED)
    mask = torch.zeros(shape, dtype=torch.long)
    for index, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[index, :end] = torch.tensor(prompt + completion)
        labels[index, len(prompt) : end] = torch.tensor(completion)
        mask[index, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
