"""Supervised learning of workflows: the loop, the cold start on random ones, and imitation of one's own successes.

In: a model. Out: one that was trained by transformers' own loop, with checkpoints that a later call resumes from. The
random workflows of the cold start are valid and ignorant of who is good at what: they teach the form and nothing else.
A round of imitation (rejection-sampling fine-tuning) samples workflows, plays them, and learns from what was right; of
a question without a success it learns, less often, one of its valid workflows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from trl.models.utils import unwrap_model_for_generation

from openconductor.errors import ConfigError, TrainingStopped
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import (
    WholeCheckpoints,
    last_checkpoint,
    with_adapters,
)
from openconductor.training.curves import Curve, Record, kind_of, read_curve
from openconductor.training.examples import Setup, imitation_problems, training_problems
from openconductor.training.grpo import Rewards, gathered, on_first
from openconductor.training.rollout import Sampled, complete, draw_offered, write_prompt
from openconductor.training.train_config import ColdStartConfig, ImitateConfig, TrainConfig
from openconductor.types import Access, Step, Workflow

T = TypeVar("T")
Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""

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
        offered = draw_offered(config, setup.pool.ordinals, f"cold-start/{index}")
        if problems:
            question = rng.choice(problems).question
            workflow = random_plan(rng, offered, max_steps=config.rollout.max_steps, config=config)
            thought = rng.choice(THOUGHTS).format("one step" if len(workflow) == 1 else f"{len(workflow)} steps")
        else:
            drawn = draw_question("train", KINDS[index % len(KINDS)], rng)
            workflow = random_workflow(rng, drawn, offered, max_steps=config.rollout.max_steps)
            question, thought = drawn.text, write_thought(workflow, drawn)
        return _row(tokenizer, write_prompt(tokenizer, question, config, offered), workflow, thought)

    every = max(1, settings.steps // 10)

    def told(step: int, loss: float) -> None:
        if step % every == 0:
            setup.say(f"cold start: step {step} of {settings.steps}, loss {loss:.3f} nats a token")

    return supervise(
        model, tokenizer, row, setup, settings, folder, warmup=min(_WARMUP, settings.steps // 4), on_step=told
    )


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


def _row(tokenizer: PreTrainedTokenizerBase, prompt: str, workflow: Workflow, thought: str) -> Row:
    return row_of(tokenizer, prompt, render_workflow(workflow, thought))


def row_of(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: str) -> Row:
    """A prompt and what is to be written for it, as a row."""
    said = tokenizer.encode(completion, add_special_tokens=False)
    return tokenizer.encode(prompt, add_special_tokens=False), [*said, cast("int", tokenizer.eos_token_id)]


class _Rows(Dataset[T]):
    """Rows that are made as they are needed."""

    def __init__(self, row: Callable[[int], T], count: int) -> None:
        self._row, self._count = row, count

    def __getitem__(self, index: int) -> T:
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


def supervise(
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
    """``settings.steps`` steps of supervised learning on the completions of rows 0, 1, …; resumes in the folder."""
    trainer = WholeCheckpoints(
        model=with_adapters(model, setup.config.model),
        args=_arguments(setup.config, settings, folder, warmup=warmup, steps=settings.steps),
        train_dataset=_Rows(row, settings.steps * settings.batch),
        data_collator=lambda rows: _collated(rows, cast("int", tokenizer.pad_token_id)),
        callbacks=None if on_step is None else [_Told(on_step)],
    )
    return _trained(trainer, folder)


def _arguments(
    config: TrainConfig, settings: ColdStartConfig, folder: Path, *, warmup: int, steps: int, save: int | None = None
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
        lr_scheduler_type="linear",
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
        report_to=[],
        disable_tqdm=True,
    )


def _trained(trainer: Trainer, folder: Path) -> Trainer:
    """The trainer after its training, from the last whole checkpoint in the folder on."""
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


# ── imitation ─────────────────────────────────────────────────────────────────────────────────────────────────────────
_RISE = 0.02  # of a kind's accuracy; less is noise
_PATIENCE = 3  # rounds without a rise
_SOLVED, _LOST = 0.05, 0.02  # accuracy of a kind that was solved, and of one that is lost
_LEAST = 0.25  # weight of a kind that is always right, or never; one that is right half of the time has 1


def imitate(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, setup: Setup, folder: Path) -> Trainer:
    """Rounds of imitation, from the last whole one in the folder on; returns the trainer."""
    config, settings = setup.config, setup.config.imitate
    path, done = setup.folder / "curves.jsonl", last_checkpoint(folder)[1] // settings.steps
    curve = Curve.open(path, done=done) if PartialState().is_main_process else Curve(path)
    PartialState().wait_for_everyone()
    rounds = done if is_settled(read_curve(path)[:done]) else settings.rounds
    warmup = min(_WARMUP, settings.rounds * settings.steps // 4)
    trainer = _Imitation(
        setup,
        tokenizer,
        curve,
        model=with_adapters(model, config.model),
        args=_arguments(config, settings, folder, warmup=warmup, steps=rounds * settings.steps, save=settings.steps),
        train_dataset=_Rows(lambda index: index, rounds * settings.steps * settings.batch),
        data_collator=lambda indices: {"index": torch.tensor(indices)},
    )
    trainer.add_callback(_Settled(path, settings.steps))
    return _trained(trainer, folder)


@dataclass(slots=True)
class _Kind:
    """What was written in a round for one kind of question; each text stands behind its prompt.

    Attributes:
        weight: how much the kind counts.
        solved: the share of its questions with a right workflow.
        right: the right workflows, by their number of steps.
        others: valid workflows of the questions that were not solved.
    """

    weight: float
    solved: float
    right: dict[int, list[tuple[str, str]]]
    others: list[tuple[str, str]]

    def draw(self, rng: random.Random, settings: ImitateConfig) -> tuple[str, str] | None:
        """A prompt and what to learn for it; None where the question that was drawn teaches nothing."""
        if rng.random() < self.solved:
            steps = rng.choices(
                list(self.right), [len(each) ** (1 - settings.balance) for each in self.right.values()]
            )[0]
            return rng.choice(self.right[steps])
        return rng.choice(self.others) if self.others and rng.random() < settings.anchor else None


class _Imitation(WholeCheckpoints):
    """Supervised steps on what the model wrote itself: at the beginning of each round it samples and plays anew.

    A batch is known by the places of its rows, and written when its step begins, by the model of that moment.
    """

    def __init__(self, setup: Setup, tokenizer: PreTrainedTokenizerBase, curve: Curve, **options: Any) -> None:
        super().__init__(**options)
        self.setup, self.tokenizer, self.curve = setup, tokenizer, curve
        self.round = -1
        self.kinds: list[_Kind] = []

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """What transformers calls for the micro batches of a step, and for the number of tokens that they teach."""
        places, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        config, settings = self.setup.config, self.setup.config.imitate
        number = self.state.global_step // settings.steps
        if number != self.round:
            with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
                self.kinds = self._play(cast("PreTrainedModel", model), number)
            self.round = number
        weights = [kind.weight for kind in self.kinds]
        batches: list[dict[str, torch.Tensor]] = []
        for batch in places:
            rows: list[Row] = []
            for index in batch["index"].tolist():
                rng, drawn = random.Random(f"imitate/{config.seed}/{index}"), None
                while drawn is None:
                    drawn = rng.choices(self.kinds, weights)[0].draw(rng, settings)
                rows.append(row_of(self.tokenizer, *drawn))
            batches.append(_collated(rows, cast("int", self.tokenizer.pad_token_id)))
        return batches, cast("Any", self)._get_num_items_in_batch(batches, device)

    def _play(self, model: PreTrainedModel, number: int) -> list[_Kind]:
        """Sample and play a round: what can be learnt from, by kind.

        Raises:
            TrainingStopped: nothing can.
        """
        setup, config, count = self.setup, self.setup.config, self.setup.config.imitate.completions
        before = _weights(read_curve(self.curve.path)[number - 1]) if number else {}
        problems = imitation_problems(config, setup.questions, number, before)
        problems = [problem for problem in problems for _ in range(count)]
        offers = [draw_offered(config, setup.pool.ordinals, f"{number}/{problem.id}") for problem in problems]
        prompts = [
            write_prompt(self.tokenizer, problem.question, config, offered)
            for problem, offered in zip(problems, offers, strict=True)
        ]
        rewards = Rewards(setup, problems, self.curve)
        state = PartialState()
        share = -(-len(prompts) // state.num_processes)
        padded = prompts + prompts[-1:] * (share * state.num_processes - len(prompts))  # all must sample equally often
        said = complete(
            model,
            self.tokenizer,
            padded[state.process_index * share : (state.process_index + 1) * share],
            config=config,
            temperature=config.rollout.temperature,
            seed=(config.seed * 1_000 + number) * state.num_processes + state.process_index,
        )
        sampled = [
            Sampled(problem, one, number * config.stride + place % count, offered if config.rollout.offered else ())
            for place, (problem, one, offered) in enumerate(
                zip(problems, gathered(said)[: len(prompts)], offers, strict=True)
            )
        ]

        def score() -> list[tuple[float | None, int]]:
            """The rewards, and how many steps each workflow has (0: it is none)."""
            scored = rewards.score(sampled, number)
            worth = rewards.finish(scored, problems, number, group=count, phase="imitate")
            rounds = [one.episode.rounds for one in scored]
            return [(reward, _steps(one[-1].workflow) if one else 0) for reward, one in zip(worth, rounds, strict=True)]

        found = on_first(score)
        learnt: dict[str, _Kind] = {}
        kinds = [kind_of(problem) for problem in problems]
        # Only workflows are learnt: the control ``flipped`` rewards invalid texts, too.
        solved = {problem.id for problem, (reward, steps) in zip(problems, found, strict=True) if reward == 1 and steps}
        for kind, weight in _weights(read_curve(self.curve.path)[number]).items():
            of_kind = [place for place, one in enumerate(kinds) if one == kind]
            right: dict[int, list[tuple[str, str]]] = defaultdict(list)
            others: list[tuple[str, str]] = []
            for place in of_kind:
                (reward, steps), row = found[place], (prompts[place], sampled[place].completion.text)
                if reward == 1 and steps:
                    right[steps].append(row)
                elif reward is not None and steps and problems[place].id not in solved:
                    others.append(row)
            if right or (others and config.imitate.anchor):
                asked = {problems[place].id for place in of_kind}
                learnt[kind] = _Kind(weight, len(asked & solved) / len(asked), right, others)
        if not learnt:
            raise TrainingStopped(f"imitation, round {number}: no workflow was right, so nothing can be learnt from it")
        return list(learnt.values())


def _steps(workflow: Workflow | None) -> int:
    return 0 if workflow is None else len(workflow)


def _weights(record: Record) -> dict[str, float]:
    """How much each kind of question counts: most where right and wrong are alike frequent, which teaches most."""
    return {kind: max(_LEAST, 4 * share * (1 - share)) for kind, share in record["accuracy_by_kind"].items()}


class _Settled(TrainerCallback):
    """Ends the rounds early where nothing gets better any more."""

    def __init__(self, path: Path, steps: int) -> None:
        self._path, self._steps = path, steps

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """What transformers calls behind each step."""
        if state.global_step % self._steps == 0 and is_settled(read_curve(self._path)):
            control.should_training_stop = True


def is_settled(records: Sequence[Record]) -> bool:
    """Whether no kind got better of late, and none that was solved is lost."""
    before, latest = (_best(part) for part in (records[:-_PATIENCE], records[-_PATIENCE:]))
    still = all(latest.get(kind, 0.0) < best + _RISE for kind, best in before.items())
    return bool(before) and still and not lost_kinds(records)


def _best(records: Sequence[Record]) -> dict[str, float]:
    """The best accuracy of each kind."""
    best: dict[str, float] = {}
    for record in records:
        for kind, accuracy in record["accuracy_by_kind"].items():
            best[kind] = max(accuracy, best.get(kind, 0.0))
    return best


def lost_kinds(records: Sequence[Record]) -> list[str]:
    """The kinds of question that were solved once and are not in the last record."""
    latest = records[-1]["accuracy_by_kind"] if records else {}
    return [kind for kind, best in _best(records).items() if best >= _SOLVED and latest.get(kind, best) < _LOST]
