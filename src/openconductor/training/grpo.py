"""GRPO through TRL, with the workflow's reward, from one process to several machines.

In: a model, problems and a scorer. Out: a trained model, checkpoints, a curve. The trainer is TRL's
own; what is added
here: the first process scores for all, two rounds of one question (recursion), the two controls
that must not learn, and the curve.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from openconductor.errors import ConfigError, TrainingStopped
from openconductor.reward import Scored, episode_reward, priced_rewards
from openconductor.training.checkpoint import WholeCheckpoints, adapters, end_ids
from openconductor.training.curves import Curve, kind_of, measure
from openconductor.training.examples import Setup
from openconductor.training.rollout import (
    Sampled,
    check_masked,
    completion_of,
    draw_pool,
    render_chat,
)
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem, Round

T = TypeVar("T")
_REPORT_EVERY = 10  # iterations
PATIENCE_S = (
    24 * 3600
)  # how long the other processes wait for the first one, which waits for the workers


def grpo_arguments(
    config: TrainConfig, folder: Path, *, cpu: bool, processes: int = 1
) -> GRPOConfig:
    """The recipe in TRL's words (TRL 1.16; ``warmup_steps`` below 1 is a share of the steps).

    Raises:
        ConfigError: an iteration cannot be shared out evenly among the processes.
    """
    rollout, optim = config.rollout, config.optim
    share = rollout.questions * rollout.completions // processes
    micro = min(optim.micro_batch, share)
    whole = (
        rollout.completions * rollout.rounds if rollout.rounds > 1 else 1
    )  # both rounds of a question together
    if rollout.questions * rollout.completions % (micro * processes) or share % whole:
        raise ConfigError(
            f"rollout.questions x rollout.completions: got {rollout.questions} x {rollout.completions} over "
            f"{processes} processes with optim.micro_batch {optim.micro_batch}, expected a whole number of micro "
            f"batches{' and of questions with both rounds' if whole > 1 else ''} in each process"
        )
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=rollout.iterations,
        num_generations=rollout.completions,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=share // micro,
        generation_batch_size=rollout.questions * rollout.completions,
        max_completion_length=rollout.max_tokens,
        temperature=rollout.temperature,
        use_vllm=rollout.engine != "transformers",
        vllm_mode="server" if rollout.engine == "vllm_server" else "colocate",
        vllm_server_base_url=rollout.vllm_url if rollout.engine == "vllm_server" else None,
        vllm_gpu_memory_utilization=rollout.vllm_memory,
        vllm_enable_sleep_mode=rollout.engine == "vllm",
        learning_rate=optim.learning_rate,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_scheduler_type=optim.schedule,
        warmup_steps=optim.warmup,
        max_grad_norm=optim.grad_clip,
        epsilon=optim.epsilon,
        beta=0.0,  # no KL term, as in the paper
        loss_type="grpo",
        scale_rewards=optim.scale,
        shuffle_dataset=False,
        remove_unused_columns=False,
        bf16=optim.bf16,
        gradient_checkpointing=optim.checkpointing,
        use_cpu=cpu,
        ddp_timeout=PATIENCE_S,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not cpu,
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=2,
        logging_steps=1,
        report_to=list(config.trackers),
        disable_tqdm=True,
    )


def rows_of(problems: Sequence[Problem], setup: Setup) -> list[dict[str, Any]]:
    """The data set: what is asked, the problem's place in the list, which draws the workers on offer, and the round.

    A row holds nothing of the reference, so that a reference may be of any type.
    """
    config = setup.config
    rows: list[dict[str, Any]] = []
    for index, problem in enumerate(problems):
        prompt = render_chat(problem.question, config, draw_pool(config, setup.pool, str(index)))
        rows += [
            {"prompt": prompt, "problem": index, "round": number}
            for number in range(config.rollout.rounds)
        ]
    return rows


@dataclass(slots=True)
class Rewards:
    """Scores an iteration's completions, in the first process.

    Attributes:
        setup: of the run.
        problems: what the rows' ``problem`` is an index into.
        curve: what each iteration's record is appended to.
        alarm: the warnings of the curve in this process.
    """

    setup: Setup
    problems: Sequence[Problem]
    curve: Curve
    clock: float = field(default_factory=time.perf_counter)
    alarm: str = ""

    def score(self, sampled: Sequence[Sampled], iteration: int, *, phase: str = "") -> list[Scored]:
        """Score completions of an iteration; each round of it once."""
        assert self.setup.scorer is not None
        return self.setup.scorer.score(sampled, phase=f"iteration {iteration}{phase}")

    def finish(
        self,
        scored: Sequence[Scored],
        kinds: Sequence[str],
        iteration: int,
        *,
        group: int,
        phase: str = "grpo",
    ) -> list[float | None]:
        """Record an iteration or a round, and return its rewards: the true ones, but for the two controls.

        To imitate is to learn from what was graded right, so there a recipe's own reward can only
        mask.

        ``kinds`` says of which kind each completion's question is.

        Raises:
            TrainingStopped: too many are masked.
        """
        config, say = self.setup.config, self.setup.say
        now = time.perf_counter()
        measured = measure(kinds, scored, self.setup.pool, group=group)
        record = {"iteration": iteration, "phase": phase, "seconds": now - self.clock, **measured}
        self.clock = now
        for warning in self.curve.append(record):
            said = f"iteration {iteration}: {warning}"
            self.alarm = f"{self.alarm}; {said}" if self.alarm else said
            say(f"warning: {said}")
        if phase == "imitate" or iteration % _REPORT_EVERY == 0:
            named = f"iteration {iteration} of {self.curve.after + config.rollout.iterations}"
            if phase == "imitate":
                named = f"imitation, round {iteration} of {config.imitate.rounds}"
            say(
                f"{named}: accuracy {record['accuracy']:.3f}, validity {record['validity']:.3f}, routing entropy "
                f"{record['routing_entropy_bits']:.2f} bits"
            )
        check_masked(scored)
        rewards = [one.reward for one in scored]
        if phase == "imitate":
            rewards = [
                None if one.reward is None else episode_reward(one.episode, one.grade)
                for one in scored
            ]
        weights = {"dollars": config.reward.dollars, "seconds": config.reward.seconds}
        if phase == "grpo" and any(weights.values()):
            groups = [scored[start : start + group] for start in range(0, len(scored), group)]
            rewards = [reward for each in groups for reward in priced_rewards(each, **weights)]
        if config.reward.control == "flipped":
            return [None if reward is None else 1.0 - reward for reward in rewards]
        if config.reward.control == "shuffled":
            random.Random(f"shuffled/{config.seed}/{iteration}").shuffle(rewards)
        return rewards


def on_first(what: Callable[[], T]) -> T:
    """What a function returns in the first process, in every process; an error there stops the others, too."""
    state = PartialState()
    if state.num_processes == 1:
        return what()
    box: list[Any] = [None, ""]
    if state.is_main_process:
        try:
            box[0] = what()
        except BaseException as error:  # its words go round: not every error can be pickled
            broadcast_object_list([None, f"{type(error).__name__}: {error}"])
            raise
    broadcast_object_list(box)
    if box[1]:
        raise TrainingStopped(f"the first process stopped: {box[1]}")
    return cast("T", box[0])


def gathered(local: list[T]) -> list[T]:
    """The items of all processes, in the order of the batch."""
    return cast("list[T]", gather_object(local)) if PartialState().num_processes > 1 else local


class ConductorTrainer(WholeCheckpoints, GRPOTrainer):
    """TRL's trainer with rewards of the first process, and checkpoints that are whole or absent.

    TRL calls a reward function in every process; here one process scores the completions of all,
    which keeps limits, budget and journal in one place.
    """

    def __init__(self, rewards: Rewards, **options: Any) -> None:
        config = rewards.setup.config
        super().__init__(
            reward_funcs=cast("Any", _unused),
            rollout_func=_two_rounds if config.rollout.rounds > 1 else None,
            **options,
        )
        self.rewards, self.config = rewards, config
        self._ends = end_ids(cast("PreTrainedModel", self.accelerator.unwrap_model(self.model)))
        self.rows: list[dict[str, Any]] = []
        self.first: list[Scored] = []
        self.remove_callback(PrinterCallback)  # the curve says it all

    @property
    def iteration(self) -> int:
        """The iteration under way, the rounds of imitation counted."""
        return self.rewards.curve.after + self.state.global_step

    def sampled(
        self, rows: Sequence[dict[str, Any]], ids: Sequence[Sequence[int]], place: int
    ) -> list[Sampled]:
        """Rows and what was sampled for them, in the scorer's words; ``place`` is the first row's in its batch."""
        group = self.config.rollout.completions
        texts = cast(
            "list[str]",
            cast("Any", self.processing_class).batch_decode(list(ids), skip_special_tokens=True),
        )
        return [
            Sampled(
                self.rewards.problems[row["problem"]],
                completion_of(text, tokens, self._ends),
                self.iteration * self.config.stride + (place + index) % group,
                str(row["problem"]),
            )
            for index, (row, text, tokens) in enumerate(zip(rows, texts, ids, strict=True))
        ]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.rows = inputs
        made = super()._generate_and_score_completions(inputs)
        if self.config.rollout.rounds > 1:
            weights = [
                self.config.rollout.first_round if row["round"] == 0 else 1.0 for row in inputs
            ]
            made["advantages"] = made["advantages"] * torch.tensor(
                weights, device=made["advantages"].device
            )
        return made

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        """TRL's, a few rows at a time without vLLM, so that the memory of sampling does not grow with the batch."""
        size = self.config.rollout.sample_batch
        if self.use_vllm or len(prompt_ids) <= size:
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        ids: list[list[int]] = []
        for start in range(0, len(prompt_ids), size):
            part = prompt_ids[start : start + size]
            ids += super()._generate_single_turn(
                part, images, multimodal_fields, num_generations, has_tool_images
            )[0]
        return ids, None

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: Any,
        completions: Any,
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        """The rewards of all processes' completions [B, 1]; NaN is masked."""
        start = self.accelerator.process_index * len(inputs)
        mine = self.sampled(inputs, completion_ids_list, start)
        everything = gathered(list(zip(mine, [row["round"] for row in inputs], strict=True)))

        def score() -> list[float | None]:
            if self.config.rollout.rounds == 1:
                scored = self.rewards.score([one for one, _ in everything], self.iteration)
            else:
                scored = self._score_second(everything)
            kinds = [kind_of(one.problem, again=number > 0) for one, number in everything]
            return self.rewards.finish(
                scored, kinds, self.iteration, group=self.config.rollout.completions
            )

        rewards = on_first(score)
        values = [[float("nan") if reward is None else reward] for reward in rewards]
        return torch.tensor(values, dtype=torch.float32, device=self.accelerator.device)

    def _score_second(self, everything: Sequence[tuple[Sampled, int]]) -> list[Scored]:
        """The scores of both rounds in the batch's order; those of the first are known."""
        firsts = iter(self.first)
        seconds = [
            replace(one, previous=previous)
            for (one, _), previous in zip(
                (pair for pair in everything if pair[1] == 1), _rounds(self.first), strict=True
            )
        ]
        scored = iter(self.rewards.score(seconds, self.iteration, phase=", round 1"))
        return [next(scored) if number else next(firsts) for _, number in everything]


def _unused(**_: object) -> list[float]:
    """TRL wants a reward function; ``ConductorTrainer`` computes the rewards in its place."""
    raise NotImplementedError


def _rounds(scored: Sequence[Scored]) -> list[Round]:
    return [one.episode.rounds[-1] for one in scored]


def _two_rounds(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
    """Sample the first rounds, play them, and sample a second round of each, which is shown the first.

    TRL's ``rollout_func``. The rows of a process are whole questions: G first rounds, then G second
    ones.
    """
    assert isinstance(trainer, ConductorTrainer)
    inner = cast("Any", trainer)  # TRL's own steps, which a rollout_func is made of
    rows, group = trainer.rows, trainer.config.rollout.completions
    first = [place for place, row in enumerate(rows) if row["round"] == 0]
    asked = inner._tokenize_prompts([prompts[place] for place in first])[0]
    said = inner._generate_single_turn(asked, None, {}, group)
    start = trainer.accelerator.process_index * len(first)
    mine = trainer.sampled([rows[place] for place in first], said[0], start)
    everything = gathered(mine)

    def play() -> list[list[dict[str, str]]]:
        trainer.first = trainer.rewards.score(everything, trainer.iteration, phase=", round 0")
        config, pool = trainer.config, trainer.rewards.setup.pool
        return [
            render_chat(one.problem.question, config, draw_pool(config, pool, one.key), played)
            for one, played in zip(everything, _rounds(trainer.first), strict=True)
        ]

    again = on_first(play)[start : start + len(first)]
    asked_again = inner._tokenize_prompts(again)[0]
    said_again = inner._generate_single_turn(asked_again, None, {}, 1)

    def merged(ones: Sequence[T], others: Sequence[T]) -> list[T]:
        by_place = dict(zip(first, ones, strict=True)) | {
            place + group: other for place, other in zip(first, others, strict=True)
        }
        return [by_place[place] for place in range(len(rows))]

    logprobs = None if said[1] is None else merged(said[1], said_again[1])
    return {
        "prompt_ids": merged(asked, asked_again),
        "completion_ids": merged(said[0], said_again[0]),
        "logprobs": logprobs,
    }


def run_grpo(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rewards: Rewards,
    folder: Path,
    *,
    checkpoint: Path | None,
    processes: int = 1,
) -> ConductorTrainer:
    """Train the model in place on the problems, from a checkpoint in the folder on.

    Raises:
        TrainingStopped: the curve raised an alarm, and the recipe says to stop then; a checkpoint
            has been written.
    """
    config = rewards.setup.config
    cpu = not torch.cuda.is_available()
    trainer = ConductorTrainer(
        rewards,
        model=model,
        args=grpo_arguments(config, folder, cpu=cpu, processes=processes),
        train_dataset=Dataset.from_list(rows_of(rewards.problems, rewards.setup)),
        processing_class=tokenizer,
        peft_config=adapters(config.model) if config.model.lora_rank else None,
    )
    if config.alarms == "stop":
        trainer.add_callback(_Alarmed(rewards))
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < config.rollout.iterations:
        raise TrainingStopped(
            f"{on_first(lambda: rewards.alarm)}. A checkpoint is written; --resume goes on from it"
        )
    return trainer


class _Alarmed(TrainerCallback):
    """Ends the training behind the iteration whose curve raised an alarm."""

    def __init__(self, rewards: Rewards) -> None:
        self._rewards = rewards

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """What transformers calls behind each step."""
        if on_first(lambda: self._rewards.alarm):
            control.should_save = control.should_training_stop = True
