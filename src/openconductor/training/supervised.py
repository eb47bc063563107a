"""Supervised learning of workflows, and the cold start on random ones.

The random workflows of the cold start are valid and ignore who is good at what, so they teach the
form and nothing else.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

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

from openconductor.errors import ConfigError, TrainingStopped
from openconductor.measures import Pace
from openconductor.pool import WorkerPool
from openconductor.prompt import count_steps, render_workflow
from openconductor.tasks.simulated import Plan, find_simulation, simulations
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint
from openconductor.training.completions import check_room, draw_pool, write_prompt
from openconductor.training.models import build_tokenizer, with_adapters
from openconductor.training.scoring import Sampled, check_masked, on_first
from openconductor.training.setup import Learner, Phase, Questions, Setup
from openconductor.training.train_config import SupervisedConfig, TrainConfig
from openconductor.types import Access, Completion, Problem, Round, Step, Workflow

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
    "{}: attempts, and a last one that sees them all.",
)
"""Texts before the lists where shapes are named (``cold_start.shapes``)."""
NO_CARD = "a model without a description"
"""What a thought says of a worker that has no card (``cold_start.quote_cards``)."""
ACCEPTED = "0 steps: it stands."
"""The text before the empty lists of a round that accepts the answer before it."""
FIRST_ROUNDS_PLAYED = 512
"""The first rounds that are played for the exercises of second rounds."""


# ── the cold start ────────────────────────────────────────────────────────────────────────────────
def cold_start(setup: Setup, learner: Learner) -> Trainer:
    """Train the model on random workflows, from the last checkpoint on; return the trainer."""
    settings = setup.config.cold_start
    played: Sequence[Played] = ()
    if plays_first_rounds(setup.config):
        played = on_first(lambda: _play_first_rounds(setup))
    return supervise(
        setup,
        learner,
        settings,
        lambda index: _cold_start_row(setup, learner.tokenizer, index, played),
        callbacks=[_LossReport(setup.say, settings.steps)],
    )


COLD_START = Phase(
    "cold_start", cold_start, lambda config: config.cold_start.steps > 0, graded=False
)


def plays_first_rounds(config: TrainConfig) -> bool:
    """Return True if the cold start's second rounds follow first rounds that workers answered."""
    return config.rollout.rounds > 1 and find_simulation(config.data.task) is None


class Played(NamedTuple):
    """A problem with a first round for it, played by the workers that it offered."""

    problem: Problem
    pool: WorkerPool
    round: Round


def _play_first_rounds(setup: Setup) -> list[Played]:
    """Let the workers carry out random plans, for second rounds to be shown."""
    assert setup.scorer is not None
    config = setup.config
    attempts: list[Sampled] = []
    for index in range(FIRST_ROUNDS_PLAYED):
        rng = random.Random(f"cold-start/{config.seed}/played/{index}")
        problem = rng.choice(setup.questions.learnt)
        key = f"cold-start/played/{index}"
        pool = draw_pool(config, setup.pool, key)
        parts = setup.questions.draw_subtasks(problem, rng)
        workflow, thought = _draw_workflow(rng, pool, config, parts=parts)
        completion = Completion(render_workflow(workflow, thought))
        attempts.append(Sampled(problem, completion, sample=0, key=key))
    played: list[Played] = []
    scored = setup.scorer.score(attempts, phase="cold start")
    check_masked(scored)
    for attempt, result in zip(attempts, scored, strict=True):
        if result.episode.answer is not None:
            pool = draw_pool(config, setup.pool, attempt.key)
            played.append(Played(attempt.problem, pool, result.episode.rounds[-1]))
    if not played:
        raise TrainingStopped(
            f"cold start: none of {FIRST_ROUNDS_PLAYED} first rounds was answered"
        )
    return played


def _draw_workflow(
    rng: random.Random,
    pool: WorkerPool,
    config: TrainConfig,
    asked: Collection[int] = (),
    parts: Sequence[str] = (),
) -> tuple[Workflow, str]:
    """Draw a plan as the recipe wants them.

    Args:
        rng: the random state.
        pool: the workers on offer.
        config: the recipe.
        asked: the workers that have answered in the round before.
        parts: an instruction for each part of the question; (): it has none.
    """
    if config.cold_start.shapes:
        return shaped_plan(rng, pool, config, asked)
    return random_plan(rng, pool, config, parts)


def _second_round_row(
    rng: random.Random,
    tokenizer: PreTrainedTokenizerBase,
    setup: Setup,
    played: Sequence[Played],
) -> Row:
    """Return an exercise that accepts the answer of a first round, or plans a further one."""
    config, questions = setup.config, setup.questions
    problem, pool, before = rng.choice(played)
    prompt = write_prompt(tokenizer, questions.planned(problem), config, pool, before)
    if rng.random() < 0.5:
        return make_row(tokenizer, prompt, render_workflow(Workflow(()), ACCEPTED))
    asked = [step.worker for step in before.workflow or ()]
    parts = questions.draw_subtasks(problem, rng)
    workflow, thought = _draw_workflow(rng, pool, config, asked, parts)
    return make_row(tokenizer, prompt, render_workflow(workflow, thought))


def _cold_start_row(
    setup: Setup, tokenizer: PreTrainedTokenizerBase, index: int, played: Sequence[Played]
) -> Row:
    """Return exercise number ``index``: a question, and a random workflow for it.

    With ``played`` first rounds, half of the exercises are second rounds.
    """
    config, settings = setup.config, setup.config.cold_start
    if index < settings.reading * settings.batch:
        return reading_row(tokenizer, setup, f"cold-start/{index}")
    rng = random.Random(f"cold-start/{config.seed}/{index}/round")
    if played and rng.random() < 0.5:
        return _second_round_row(rng, tokenizer, setup, played)
    pool = draw_pool(config, setup.pool, f"cold-start/{index}")
    plan = _draw_plan(config, setup.questions, pool, index)
    prompt = write_prompt(tokenizer, plan.question, config, pool, plan.previous)
    return make_row(tokenizer, prompt, render_workflow(plan.workflow, plan.thought))


def _draw_plan(config: TrainConfig, questions: Questions, pool: WorkerPool, index: int) -> Plan:
    """Draw plan number ``index`` of the cold start, over the workers on offer."""
    rng = random.Random(f"cold-start/{config.seed}/{index}")
    if questions.simulation is None:
        problem = rng.choice(questions.learnt)
        parts = questions.draw_subtasks(problem, rng)
        workflow, thought = _draw_workflow(rng, pool, config, parts=parts)
        return Plan(questions.planned(problem), workflow, thought)
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

    Prompts of second rounds are checked in simulated tasks only: elsewhere they quote answers that
    are not known yet.

    Raises:
        ConfigError: a question leaves no room for a completion, or a completion none for a plan.
    """
    phrases = fresh_phrases(config, questions)
    if config.rollout.rounds > 1:
        phrases += [phrase for _, worker in pool for phrase in worker.resolved.phrases]
    tokenizer = build_tokenizer(phrases)
    plans = [_draw_plan(config, questions, pool, index) for index in range(_MEASURED_PLANS)]
    check_room(tokenizer, config, [render_workflow(plan.workflow, plan.thought) for plan in plans])
    prompts = [
        write_prompt(tokenizer, plan.question, config, pool, plan.previous) for plan in plans
    ]
    for problem in chain(questions.learnt, *questions.held_out):
        prompts.append(write_prompt(tokenizer, questions.planned(problem), config, pool))
    lengths = [len(tokenizer.encode(prompt, add_special_tokens=False)) for prompt in prompts]
    longest = max(lengths)
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
    if config.rollout.rounds > 1:
        phrases += [count_steps(0), ACCEPTED.removeprefix(count_steps(0))]
    counts: Counter[str] = Counter()
    for problem in learnt:
        text = questions.planned(problem)
        counts.update({*_WORD.findall(text), *text})
    frequent = [part for part, count in counts.items() if count * 100 >= len(learnt)]
    return phrases + sorted(frequent)


def reading_row(tokenizer: PreTrainedTokenizerBase, setup: Setup, key: str) -> Row:
    """Return an exercise in reading cards: which of the drawn workers is listed for what."""
    pool = draw_pool(setup.config, setup.pool, key)
    prompt = write_prompt(tokenizer, "?", setup.config, pool)
    simulation = setup.questions.simulation
    if simulation is not None:
        return make_row(tokenizer, prompt, simulation.write_index(pool.cards))
    ordinals = list(pool.ordinals)
    random.Random(f"reading/{key}").shuffle(ordinals)
    return make_row(tokenizer, prompt, quote_cards(ordinals, pool.cards))


def quote_cards(ordinals: Sequence[int], cards: Mapping[int, str]) -> str:
    """Return the cards of some workers, each with the ordinal that it is listed under.

    >>> quote_cards([4, 1], {1: "sorts numbers", 4: "knows plurals"})
    'knows plurals: Model 4, then sorts numbers: Model 1'
    """
    quotes = [f"{cards.get(ordinal) or NO_CARD}: Model {ordinal}" for ordinal in ordinals]
    return ", then ".join(quotes)


def random_plan(
    rng: random.Random, pool: WorkerPool, config: TrainConfig, parts: Sequence[str] = ()
) -> tuple[Workflow, str]:
    """Return a valid workflow for any question, and a thought; all choices are drawn uniformly.

    The last of several steps always sees some: else they were for nothing, and a worker that puts
    answers together would look bad before access is learnt. Where a question has ``parts``, there
    are no more steps than parts, and they share them out in order. With ``cold_start.quote_cards``
    the thought quotes the cards of the steps' workers.
    """
    most = config.rollout.max_steps
    if parts:
        most = min(most, len(parts))
    size = rng.randint(1, most)
    shares = [*parts[: size - 1], ", then ".join(parts[size - 1 :])]
    steps: list[Step] = []
    for index in range(size):
        access: Access = ()
        if index and (index == size - 1 or rng.random() < 0.7):
            seen = sorted(rng.sample(range(index), rng.randint(1, index)))
            access = "all" if config.prompt.access == "binary" else tuple(seen)
        worker = rng.choice(list(pool.ordinals))
        if parts:
            subtask = shares[index]
        else:
            subtask = rng.choice(LATER if access else FIRST)
        steps.append(Step(worker, subtask, access))
    thought = rng.choice(THOUGHTS).format(count_steps(size))
    if config.cold_start.quote_cards:
        quotes = quote_cards([step.worker for step in steps], pool.cards)
        thought = f"{count_steps(size)}: {quotes}."
    return Workflow(tuple(steps)), thought


def shaped_plan(
    rng: random.Random, pool: WorkerPool, config: TrainConfig, asked: Collection[int] = ()
) -> tuple[Workflow, str]:
    """Return a plan of one of two shapes, and a thought that names the shape.

    The shapes are a worker alone, and attempts by different workers with a last step that sees them
    all. The number of attempts is drawn evenly, from none (a worker alone) to as many as there are
    workers and steps for. The last step is by a worker that merges, if the pool has any, else by
    one that made no attempt. Nothing in a plan tells who is good. Attempts have no order of their
    own, so they stand in the order of their workers: then it is soon learnt that they differ.
    Workers that were ``asked`` in the round before make no attempt, if there are others.
    """
    mergers = [ordinal for ordinal, worker in pool if worker.resolved.merges]
    models = [ordinal for ordinal in pool.ordinals if ordinal not in mergers] or mergers
    models = [ordinal for ordinal in models if ordinal not in asked] or models
    most = min(config.rollout.max_steps - 1, len(models) if mergers else len(models) - 1)
    attempts = rng.randint(0, most)
    if attempts == 0:
        alone = Step(rng.choice(models), rng.choice(FIRST))
        return Workflow((alone,)), SHAPES[0].format(count_steps(1))
    workers = sorted(rng.sample(models, attempts))
    steps = [Step(worker, rng.choice(FIRST)) for worker in workers]
    last = rng.choice(mergers or [model for model in models if model not in workers])
    seen: Access = "all" if config.prompt.access == "binary" else tuple(range(attempts))
    steps.append(Step(last, rng.choice(LATER), seen))
    return Workflow(tuple(steps)), SHAPES[1].format(count_steps(len(steps)))


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
    arguments = TrainingArguments(
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
    use_one_gpu(arguments)
    return arguments


def use_one_gpu(arguments: TrainingArguments) -> None:
    """Keep a process to one GPU, whatever else it sees, such as a worker's.

    A Trainer without a launcher would copy the model to all of them and multiply the batch.
    """
    gpus = min(1, arguments.n_gpu)
    arguments._n_gpu = gpus  # pyright: ignore[reportPrivateUsage] - as Trainer itself does


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
