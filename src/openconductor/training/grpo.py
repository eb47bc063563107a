"""GRPO through TRL, with the workflow's reward, from one process to several machines.

The trainer is TRL's own. Added are: rewards by the first process alone, two rounds of one question
(recursion), the two controls that must not learn, and the curve.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar, cast

import torch
import trl.trainer.utils
from accelerate import PartialState
from datasets import Dataset
from packaging.specifiers import SpecifierSet
from transformers import (
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from openconductor.errors import ConfigError, TrainingStopped, WorkflowError
from openconductor.reward import Scored
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint
from openconductor.training.completions import (
    context_length,
    draw_pool,
    make_completion,
    render_chat,
)
from openconductor.training.curves import Curve, kind_of, read_curve, scalars
from openconductor.training.models import adapters, end_ids
from openconductor.training.scoring import (
    REPORT_EVERY,
    Rewards,
    Sample,
    Sampled,
    gathered,
    on_first,
)
from openconductor.training.setup import Learner, Phase, Setup, training_problems
from openconductor.training.supervised import use_one_gpu
from openconductor.training.train_config import TrainConfig
from openconductor.types import Problem, Round

T = TypeVar("T")
Row = dict[str, Any]
TIMEOUT_S = 24 * 3600
"""How long the other processes wait for the first one, which waits for the workers."""
_SWITCHED_TRL = SpecifierSet(">=1.16,<1.17")
"""The versions of TRL whose private switch ``score_only_completions`` knows."""
_SAMPLES = "conductor/completions"


def grpo(setup: Setup, learner: Learner) -> ConductorTrainer:
    """Train the model by GRPO, from the last checkpoint on; return the trainer."""
    state, path = PartialState(), setup.curve_path
    _, done = last_checkpoint(learner.checkpoints)
    after = sum(record["phase"] == "imitate" for record in read_curve(path))
    if state.is_main_process:
        curve = Curve.open(path, after=after, done=done)
    else:
        curve = Curve(path, after=after)
    state.wait_for_everyone()
    problems = training_problems(setup.config, setup.questions)
    return run_grpo(learner, Rewards(setup, problems, curve))


GRPO = Phase(
    "GRPO",
    grpo,
    lambda config: config.rollout.iterations > 0,
    folder="conductor",
    checkpoints="checkpoints",
)


def run_grpo(learner: Learner, rewards: Rewards) -> ConductorTrainer:
    """Train the model on the problems of the rewards, from the last checkpoint on.

    Raises:
        TrainingStopped: the curve raised an alarm, and the recipe says to stop then; a checkpoint
            has been written.
    """
    config = rewards.setup.config
    rows = make_rows(rewards.problems, rewards.setup)
    context = _vllm_context(learner, rows, config) if config.rollout.engine == "vllm" else None
    checkpoint, _ = last_checkpoint(learner.checkpoints)
    trainer = ConductorTrainer(
        rewards,
        model=learner.model,
        args=grpo_arguments(
            config, learner.checkpoints, processes=PartialState().num_processes, context=context
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=learner.tokenizer,
        peft_config=adapters(config.model) if config.model.lora_rank else None,
    )
    if config.alarms == "stop":
        trainer.add_callback(_StopOnAlarm(rewards))
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < config.rollout.iterations:
        alarm = on_first(lambda: rewards.alarm)
        raise TrainingStopped(f"{alarm}. A checkpoint is written; --resume goes on from it")
    return trainer


def _vllm_context(learner: Learner, rows: Sequence[Row], config: TrainConfig) -> int:
    """Return the context that vLLM makes room for; a model's own may be too long for a card.

    Raises:
        ConfigError: a prompt and its completion are longer than the model's context.
    """
    tokenizer: Any = learner.tokenizer
    prompts = [
        tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        for row in rows[:: config.rollout.rounds]
    ]
    most = int(learner.model.config.get_text_config().max_position_embeddings)
    return context_length(tokenizer, prompts, config, most)


def grpo_arguments(
    config: TrainConfig, folder: Path, *, processes: int = 1, context: int | None = None
) -> GRPOConfig:
    """Return the recipe in TRL's words; ``context`` is the length that vLLM makes room for.

    ``warmup_steps`` below 1 is a share of the steps (TRL 1.16).

    Raises:
        ConfigError: an iteration cannot be shared out evenly among the processes.
    """
    rollout, optim = config.rollout, config.optim
    on_cpu = not torch.cuda.is_available()
    share = rollout.batch // processes
    micro = min(optim.micro_batch, share)
    # Both rounds of a question stay together.
    together = rollout.completions * rollout.rounds if rollout.rounds > 1 else 1
    if rollout.batch % (micro * processes) or share % together:
        wanted = "a whole number of micro batches"
        if rollout.rounds > 1:
            wanted += " and of questions with both rounds"
        raise ConfigError(
            f"rollout.questions x rollout.completions: got {rollout.questions} x "
            f"{rollout.completions} over {processes} processes with optim.micro_batch "
            f"{optim.micro_batch}, expected {wanted} in each process"
        )
    arguments = GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=rollout.iterations,
        num_generations=rollout.completions,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=share // micro,
        generation_batch_size=rollout.batch,
        max_completion_length=rollout.max_tokens,
        temperature=rollout.temperature,
        use_vllm=rollout.engine != "transformers",
        vllm_mode="server" if rollout.engine == "vllm_server" else "colocate",
        vllm_server_base_url=rollout.vllm_url if rollout.engine == "vllm_server" else None,
        vllm_gpu_memory_utilization=rollout.vllm_memory,
        vllm_max_model_length=context,
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
        use_cpu=on_cpu,
        ddp_timeout=TIMEOUT_S,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not on_cpu,
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=2,
        logging_steps=1,
        report_to=list(config.trackers),
        disable_tqdm=True,
    )
    use_one_gpu(arguments)
    return arguments


def make_rows(problems: Sequence[Problem], setup: Setup) -> list[Row]:
    """Return a row a round of each problem: the prompt, the problem's index, the round's number.

    A row holds nothing of the reference, so that a reference may be of any type.
    """
    config = setup.config
    rows: list[Row] = []
    for index, problem in enumerate(problems):
        pool = draw_pool(config, setup.pool, str(index))
        prompt = render_chat(setup.questions.planned(problem), config, pool)
        for number in range(config.rollout.rounds):
            rows.append({"prompt": prompt, "problem": index, "round": number})
    return rows


def score_only_completions() -> None:
    """Make TRL apply the LM head only to completions on every device, as it does on GPUs.

    On a CPU it applies the head to the prompt, too, and drops the result. The gradients are the
    same. The switch is private, so other versions of TRL are left as they are.
    """
    if version("trl") in _SWITCHED_TRL:
        trl.trainer.utils._use_triton = lambda device: True  # type: ignore[attr-defined]  # noqa: ARG005


class ConductorTrainer(WholeCheckpoints, GRPOTrainer):
    """TRL's trainer with rewards of the first process, and checkpoints that are whole or absent.

    TRL calls a reward function in every process. Here one process scores the completions of all,
    which keeps limits, budget and journal in one place.
    """

    def __init__(self, rewards: Rewards, **options: Any) -> None:
        config = rewards.setup.config
        score_only_completions()
        super().__init__(
            reward_funcs=cast("Any", _unused),
            rollout_func=_sample_two_rounds if config.rollout.rounds > 1 else None,
            **options,
        )
        self.rewards, self.config = rewards, config
        self._ends = end_ids(cast("PreTrainedModel", self.accelerator.unwrap_model(self.model)))
        self.rows: list[Row] = []
        self.first_rounds: list[Scored] = []
        self.remove_callback(PrinterCallback)  # the curve says it all

    @property
    def iteration(self) -> int:
        """The number of the current iteration, the rounds of imitation counted."""
        return self.rewards.curve.after + self.state.global_step

    def make_samples(
        self, rows: Sequence[Row], ids: Sequence[Sequence[int]], first: int
    ) -> list[Sampled]:
        """Return the samples of rows; ``first`` is the place of the first row in its batch."""
        group = self.config.rollout.completions
        tokenizer: Any = self.processing_class
        texts: list[str] = tokenizer.batch_decode(list(ids), skip_special_tokens=True)
        samples: list[Sampled] = []
        for place, (row, text, tokens) in enumerate(zip(rows, texts, ids, strict=True), first):
            problem = self.rewards.problems[row["problem"]]
            completion = make_completion(text, tokens, self._ends)
            repeat = self.iteration * self.config.stride + place % group
            samples.append(Sampled(problem, completion, repeat, str(row["problem"])))
        return samples

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Complete the record of the iteration, and give it to the trackers, too."""
        entropies = self._metrics["train"].get("entropy", [])
        record = self.rewards.record(
            entropy=_finite(fmean(entropies)) if entropies else None,
            grad_norm=_finite(logs.get("grad_norm")),
        )
        numbers = {f"conductor/{name}": value for name, value in scalars(record).items()}
        super().log(logs | numbers, start_time)
        if record and record["iteration"] % REPORT_EVERY == 0:
            show_samples(self, self.rewards.samples)

    def _generate_and_score_completions(self, inputs: list[Row]) -> dict[str, Any]:
        """Run TRL's step, and weigh the advantages of first rounds."""
        self.rows = inputs
        outputs = super()._generate_and_score_completions(inputs)
        if self.config.rollout.rounds > 1:
            advantages = outputs["advantages"]
            first = self.config.rollout.first_round
            weights = [first if row["round"] == 0 else 1.0 for row in inputs]
            outputs["advantages"] = advantages * torch.tensor(weights, device=advantages.device)
        return outputs

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        """Run TRL's step on a few rows at a time, so that memory does not grow with the batch.

        What is sampled is computed like what is learnt. TRL samples adapters in float32, because
        accelerate sets the type for ``forward`` of peft's model, which ``generate`` does not call.
        """
        options = (images, multimodal_fields, num_generations, has_tool_images)
        if self.use_vllm:
            return super()._generate_single_turn(prompt_ids, *options)
        size = self.config.rollout.sample_batch
        ids: list[list[int]] = []
        with self.accelerator.autocast():
            for start in range(0, len(prompt_ids), size):
                part = prompt_ids[start : start + size]
                part_ids, _ = super()._generate_single_turn(part, *options)
                ids += part_ids
        return ids, None

    def _calculate_rewards(
        self,
        inputs: list[Row],
        prompts: Any,
        completions: Any,
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        """Return the rewards of all processes' completions [B, 1]; NaN is masked."""
        del prompts, completions
        start = self.accelerator.process_index * len(inputs)
        samples = self.make_samples(inputs, completion_ids_list, start)
        rounds = [row["round"] for row in inputs]
        everything = gathered(list(zip(samples, rounds, strict=True)))
        rewards = on_first(lambda: self._reward_all(everything))
        values = [[float("nan") if reward is None else reward] for reward in rewards]
        return torch.tensor(values, dtype=torch.float32, device=self.accelerator.device)

    def _reward_all(self, samples: Sequence[tuple[Sampled, int]]) -> list[float | None]:
        """Score the completions of all processes, each with the number of its round."""
        if self.config.rollout.rounds == 1:
            scored = self.rewards.score([sample for sample, _ in samples], self.iteration)
        else:
            scored = self._score_second_rounds(samples)
        kinds = [kind_of(sample.problem, again=number > 0) for sample, number in samples]
        group = self.config.rollout.completions
        keys = [sample.key for sample, _ in samples]
        rewards = self.rewards.finish(scored, kinds, keys, self.iteration, group=group)
        if self.config.rollout.credit == "episode":
            rounds = [number for _, number in samples]
            return credit_episodes(scored, rewards, rounds, group)
        return rewards

    def _score_second_rounds(self, samples: Sequence[tuple[Sampled, int]]) -> list[Scored]:
        """Return the scores of both rounds, in the batch's order; those of the first are known."""
        second = [sample for sample, number in samples if number == 1]
        played = _last_rounds(self.first_rounds)
        after = [
            replace(sample, previous=previous)
            for sample, previous in zip(second, played, strict=True)
        ]
        firsts = iter(self.first_rounds)
        seconds = iter(self.rewards.score(after, self.iteration, round_number=1))
        return [next(seconds) if number else next(firsts) for _, number in samples]


def credit_episodes(
    scored: Sequence[Scored],
    rewards: Sequence[float | None],
    rounds: Sequence[int],
    group: int,
) -> list[float | None]:
    """Return the rewards, where first rounds (0) have those of the second rounds behind them.

    A question has ``group`` first rounds, then as many second ones in the same order. An invalid
    first round keeps its own reward: else it would be a free one, and the form would be unlearnt.
    """
    credited: list[float | None] = []
    for place, number in enumerate(rounds):
        is_invalid = isinstance(scored[place].episode.error, WorkflowError)
        decisive = place
        if number == 0 and not is_invalid:
            decisive = place + group
        credited.append(rewards[decisive])
    return credited


def _finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it."""
    return value if value is not None and math.isfinite(value) else None


def _unused(**_: object) -> list[float]:
    """Stand in for TRL's reward function; ``ConductorTrainer`` computes the rewards itself."""
    raise NotImplementedError


def _last_rounds(scored: Sequence[Scored]) -> list[Round]:
    return [result.episode.rounds[-1] for result in scored]


def _sample_two_rounds(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
    """Sample first rounds, play them, and sample a second round after each: a ``rollout_func``.

    The rows of a process are whole questions: G first rounds, then G second ones.
    """
    assert isinstance(trainer, ConductorTrainer)
    trl: Any = trainer  # its own steps, of which a rollout_func is made
    rows, group = trainer.rows, trainer.config.rollout.completions
    places = [place for place, row in enumerate(rows) if row["round"] == 0]
    shown = [prompts[place] for place in places]
    first_prompts, *_ = trl._tokenize_prompts(shown)
    first_ids, first_logprobs, *_ = trl._generate_single_turn(first_prompts, None, {}, group)
    start = trainer.accelerator.process_index * len(places)
    samples = trainer.make_samples([rows[place] for place in places], first_ids, start)
    everything = gathered(samples)
    chats = on_first(lambda: _play_first_rounds(trainer, everything))
    own = chats[start : start + len(places)]
    second_prompts, *_ = trl._tokenize_prompts(own)
    second_ids, second_logprobs, *_ = trl._generate_single_turn(second_prompts, None, {}, 1)

    def in_order(first: Sequence[T], second: Sequence[T]) -> list[T]:
        """Return both rounds' items in the order of the rows."""
        by_place: dict[int, T] = {}
        for place, one, other in zip(places, first, second, strict=True):
            by_place[place] = one
            by_place[place + group] = other
        return [by_place[place] for place in range(len(rows))]

    logprobs = None
    if first_logprobs is not None:
        logprobs = in_order(first_logprobs, second_logprobs)
    return {
        "prompt_ids": in_order(first_prompts, second_prompts),
        "completion_ids": in_order(first_ids, second_ids),
        "logprobs": logprobs,
    }


def _play_first_rounds(
    trainer: ConductorTrainer, samples: Sequence[Sampled]
) -> list[list[dict[str, str]]]:
    """Play the first rounds of all processes; return the prompts of the second ones."""
    rewards, config = trainer.rewards, trainer.config
    setup = rewards.setup
    trainer.first_rounds = rewards.score(samples, trainer.iteration, round_number=0)
    chats: list[list[dict[str, str]]] = []
    for sample, played in zip(samples, _last_rounds(trainer.first_rounds), strict=True):
        pool = draw_pool(config, setup.pool, sample.key)
        question = setup.questions.planned(sample.problem)
        chats.append(render_chat(question, config, pool, played))
    return chats


class _StopOnAlarm(TrainerCallback):
    """Ends the training behind the iteration whose record raised an alarm."""

    def __init__(self, rewards: Rewards) -> None:
        self._rewards = rewards

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """Stop, and save, if an alarm was raised."""
        del args, state, options
        if on_first(lambda: self._rewards.alarm):
            control.should_save = control.should_training_stop = True


# ── trackers ──────────────────────────────────────────────────────────────────────────────────────
def show_samples(trainer: Trainer, samples: Sequence[Sample]) -> None:
    """Show completions in the trackers of a trainer, whose log takes numbers only.

    Only the first process has any.
    """
    if not samples or not trainer.is_world_process_zero():
        return
    for tracker in trainer.args.report_to or ():
        if tracker == "tensorboard":
            _write_text(trainer, samples)
        elif tracker in ("wandb", "trackio"):
            module: Any = importlib.import_module(tracker)
            module.log({_SAMPLES: _make_table(module, samples)})


def _write_text(trainer: Trainer, samples: Sequence[Sample]) -> None:
    parts = [
        f"**{sample.question}** reward {sample.reward}\n\n```\n{sample.completion}\n```"
        for sample in samples
    ]
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
            callback.tb_writer.add_text(_SAMPLES, "\n\n".join(parts), trainer.state.global_step)


def _make_table(module: Any, samples: Sequence[Sample]) -> Any:
    """Return a table of wandb or trackio."""
    from pandas import DataFrame

    return module.Table(dataframe=DataFrame(samples, columns=list(Sample._fields)))
