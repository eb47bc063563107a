"""What a training is told: few fields, one level deep. Class defaults are the paper; a recipe lists its differences.

In: a TOML file and ``key=value`` overrides. Out: a ``TrainConfig``, or a ConfigError that names the
nearest key. Source of the defaults: arXiv 2512.04388, section 4 and its table of hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openconductor.config import dump_toml, load_toml, read_toml
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions
from openconductor.tasks.simulated import SIMULATIONS, find_simulation

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as numpy takes it
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Section):
    """Which questions, in which order.

    Attributes:
        task: the task's name in the registry, or ``module:attribute``.
        path: a local file or folder with its problems; "" is where the task is published.
        split: what is learnt from.
        seed: draws the questions.
        mix: weights of the gym's kinds in what is drawn to be learnt from; () is alike.
    """

    task: str = "paper_mix"
    path: str = ""
    split: str = "train"
    seed: Seed = 0
    mix: tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...] = ()


class ModelConfig(_Section):
    """The Conductor's language model: a checkpoint to start from, or the sizes of a fresh tiny one.

    Attributes:
        base: a folder or hub name; an empty one builds a fresh tiny model, which needs a cold
            start.
        lora_rank: learn adapters of this rank and leave the base's weights alone; 0 learns all
            weights.
        lora_targets: the linear layers that get adapters, by the ends of their names; empty is all
            of them.
        hidden, intermediate, layers, heads, positions: sizes of the fresh model, in units, blocks
            and tokens.
        initializer_range: standard deviation of the fresh weights.
    """

    base: str = "Qwen/Qwen2.5-7B-Instruct"
    lora_rank: NonNegative = 0
    lora_targets: tuple[str, ...] = ()
    hidden: Positive = 64
    intermediate: Positive = 192
    layers: Positive = 2
    heads: Positive = 4
    positions: Positive = 256
    initializer_range: Rate = 0.05


class SupervisedConfig(_Section):
    """Supervised learning.

    Attributes:
        steps: of the optimiser (0: none).
        batch: workflows a step.
        micro_batch: of them in a backward pass, at most.
        learning_rate: after a warm-up.
    """

    steps: NonNegative = 0
    batch: Positive = 64
    micro_batch: Positive = 64
    learning_rate: Rate = 4e-3


class ColdStartConfig(SupervisedConfig):
    """Supervised learning of the form on random workflows, which say nothing about who is good at what.

    A fresh model needs it, a base model only where it writes too few valid workflows by itself. The
    learning rate falls in a straight line.

    Attributes:
        reading: the first of the steps, which learn nothing but to read cards (in the gym, with
            ``prompt.cards``): a fresh model does not come to look up who is listed for what from
            workflows alone.
        shapes: plans are single steps, chains, or attempts and a merge, by different workers, and
            named so; else any. The gym has its own.
    """

    reading: NonNegative = 0
    shapes: bool = False


class StartConfig(_Section):
    """A look at the model before it learns from rewards; none of its questions is learnt from.

    Attributes:
        prompts: completions that are sampled and read.
        validity: the least share of valid workflows with which the training goes on; below it, it
            stops before any worker is paid.
        workflows: of the completions that are also executed and graded, at most.
    """

    prompts: Positive = 100
    validity: Fraction = 0.05
    workflows: NonNegative = 64


class ImitateConfig(SupervisedConfig):
    """Imitation of its own successes, in rounds before GRPO (rejection-sampling fine-tuning).

    A round samples, scores, and learns from what was right. Each round multiplies a workflow's
    chance by its rate of success: steps are bounded, nothing is pushed down, and no kind of
    question decides the shape of another.

    Attributes:
        rounds: at most (0: none), the last ones included.
        sharpen: of them, the last ones, which do not explore; they begin when no kind of question
            gets better.
        questions, completions: sampled in a round.
        steps, batch, micro_batch: of supervised learning in a round.
        learning_rate: after a warm-up; it stays.
        reading: the share of learning that goes to reading cards, as in ``cold_start.reading``:
            else it is forgotten.
        anchor: how often a question without a success is learnt from (one of its valid workflows),
            where one with a success counts 1. It keeps form and shape where nothing is solved yet.
        explore: a factor on the temperature of the first token where it is a number, in one of a
            question's completions. The thoughts of the cold start begin with the number of steps:
            more than 1 holds shapes in play that pay only once routing is known.
        contested: a question of which all completions are right teaches nothing: it tells no plan
            from another, and where many are such, the better plan wins more slowly.
    """

    rounds: NonNegative = 0
    sharpen: NonNegative = 0
    questions: Positive = 256
    completions: Positive = 4
    steps: Positive = 50
    learning_rate: Rate = 1e-5
    reading: Fraction = 0.0
    anchor: Fraction = 0.1
    explore: Annotated[float, Field(ge=1.0)] = 1.0
    contested: bool = False


class PromptConfig(_Section):
    """What the Conductor is shown."""

    template: Literal["full", "compact"] = "full"
    examples: Literal["none", "in_distribution", "mixed", "out_of_distribution"] = (
        "out_of_distribution"
    )
    access: Literal["binary", "index"] = "binary"
    cards: bool = False

    def options(self) -> PromptOptions:
        """The same, as the prompt floor takes it."""
        return PromptOptions(
            template=self.template, examples=self.examples, access=self.access, cards=self.cards
        )


class RolloutConfig(_Section):
    """How completions are sampled: ``questions`` x ``completions`` an iteration.

    Attributes:
        iterations: of GRPO (0: none, after imitation alone).
        questions, completions: how many questions an iteration, and completions of each (a group).
        temperature: of sampling; top_p, top_k and penalties are off, whatever the model's own
            settings are.
        max_tokens: of a completion.
        max_steps: of a workflow.
        sample_batch: completions that one process samples at once, at most (without vLLM).
        engine: what samples: transformers, vLLM in the training's processes, or a vLLM server at
            ``vllm_url``.
        vllm_memory: the share of a GPU's memory that vLLM takes in the training's processes.
        vllm_url: the server's address.
        offered: (fewest, most) workers that a question offers, drawn anew for each; () offers the
            whole pool.
        rounds: 2 is recursion: half of an iteration's completions are second rounds, each of which
            is shown a first round of the same question.
        first_round: the weight of the first rounds' advantages, which are normalised apart from the
            second rounds'.
    """

    iterations: NonNegative = 200
    questions: Positive = 4
    completions: Annotated[int, Field(ge=2)] = 64
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    max_tokens: Positive = 1024
    max_steps: Positive = 5
    sample_batch: Positive = 64
    engine: Literal["transformers", "vllm", "vllm_server"] = "transformers"
    vllm_memory: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.3
    vllm_url: str = "http://127.0.0.1:8000"
    offered: tuple[()] | tuple[Positive, Positive] = ()
    rounds: Literal[1, 2] = 1
    first_round: Fraction = 0.25

    @property
    def batch(self) -> int:
        """The completions of an iteration."""
        return self.questions * self.completions


class RewardConfig(_Section):
    """The reward is 0 / 0.5 / 1, less what a right answer cost if the recipe says so.

    ``control`` breaks it on purpose, to show that nothing else teaches.

    Attributes:
        control: ``shuffled`` deals each iteration's rewards out at random, ``flipped`` trains
            towards wrong answers.
        grade_timeout_s: seconds after which a verdict counts as undecided.
        undecided: what an answer is worth that its grader cannot decide: 0.5 (``wrong``), or
            nothing (``masked``). A grader that fails always masks.
        dollars, seconds: how much of its reward a right answer may lose in GRPO for what it cost
            and how long it took (``priced_rewards``); less than a half together, so that right is
            worth more than cheap.
        judge: the name of a worker of the pool that decides free-form answers which the rules
            cannot; "" is none.
        function: what GRPO learns from instead, ``module:attribute`` of a function (problem,
            episode, grade) -> a number, or None to mask; "" is none. What counts as right, and is
            imitated, stays what the grader says.
    """

    control: Literal["none", "shuffled", "flipped"] = "none"
    grade_timeout_s: float = 60.0
    undecided: Literal["wrong", "masked"] = "wrong"
    dollars: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    seconds: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    judge: str = ""
    function: str = ""


class BudgetConfig(_Section):
    """What the workers of a whole training may cost, resumed parts included; None is no limit."""

    dollars: Decimal | None = None
    calls: NonNegative | None = None


class OptimConfig(_Section):
    """GRPO's optimiser: clipped ratio, no KL, no reference model.

    Attributes:
        warmup: share of the iterations over which the learning rate rises.
        epsilon: the clip range of the ratio.
        scale: divide advantages by the standard deviation of their group (``group``), or not
            (``none``).
        micro_batch: completions a backward pass at most (gradients add up to the whole batch).
        grad_clip: the largest norm of a gradient.
        bf16: compute in bfloat16 (a tiny Conductor in float32 always); the weights that learn are
            float32.
        checkpointing: compute activations twice to hold fewer of them.
    """

    learning_rate: Rate = 1e-6
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Fraction = 0.03
    epsilon: float = 0.2
    scale: Literal["group", "batch", "none"] = "group"
    micro_batch: Positive = 4
    grad_clip: Rate = 1.0
    bf16: bool = True
    checkpointing: bool = True


class HeldOutConfig(_Section):
    """What a run is measured on before and after it learns; none of these questions may be learnt from.

    Attributes:
        task: the task, or several; "" is the one that is learnt from.
        path: as in ``data``; "" is the same path for the same task, else where the task is
            published.
        split: of which split, of each task.
        questions: at most this many, an equal share of each task; all where there are fewer.
    """

    task: str | tuple[str, ...] = ""
    path: str = ""
    split: str = "test"
    questions: Positive = 400

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks; none is the one that is learnt from."""
        return (self.task,) * bool(self.task) if isinstance(self.task, str) else self.task


class TrainConfig(_Section):
    """One experiment.

    Attributes:
        pool: a pool file; or ``gym``, its workers in another world (``gym:7``), or workers that are
            drawn anew for each question (``gym:drawn``).
        save_every: iterations between checkpoints.
        alarms: what a warning of GRPO's curve does: it is told, or it also ends the run, with a
            checkpoint.
    """

    name: str = "conductor"
    seed: Seed = 0
    pool: str = "pool.toml"
    save_every: Positive = 20
    alarms: Literal["tell", "stop"] = "tell"
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    start: StartConfig = StartConfig()
    imitate: ImitateConfig = ImitateConfig()
    prompt: PromptConfig = PromptConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    budget: BudgetConfig = BudgetConfig()
    optim: OptimConfig = OptimConfig()
    held_out: HeldOutConfig = HeldOutConfig()

    @property
    def stride(self) -> int:
        """What tells the samples of one iteration from those of the next."""
        return max(self.imitate.completions, self.rollout.completions)

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        """Refuse what cannot go together; a simulated task draws its questions, and goes with itself alone."""
        data, model, held_out, rollout = self.data, self.model, self.held_out, self.rollout
        fresh, cold, imitate = not model.base, self.cold_start, self.imitate
        simulation = find_simulation(data.task)
        kinds = () if simulation is None else simulation.kinds
        drawn = simulation is not None
        unfit = len(data.mix) != len(kinds) or not sum(data.mix)
        strange = [name for name in held_out.tasks if name in SIMULATIONS and name != data.task]
        other = drawn and set(held_out.tasks or (data.task,)) != {data.task}
        priced = self.reward.dollars or self.reward.seconds
        none = "none: the questions are drawn"
        too_long = fresh and rollout.max_tokens >= model.positions
        wrong = (
            (
                "model.heads",
                f"a divisor of hidden = {model.hidden}",
                fresh and model.hidden % model.heads,
            ),
            ("model.lora_rank", "0 for a fresh model", fresh and model.lora_rank),
            ("rollout.max_tokens", f"less than model.positions = {model.positions}", too_long),
            (
                "rollout.questions",
                "an even number with rollout.rounds = 2",
                rollout.rounds > 1 and rollout.questions % 2,
            ),
            (
                "imitate.questions",
                "an even number with rollout.rounds = 2",
                rollout.rounds > 1 and imitate.questions % 2,
            ),
            (
                "rollout.offered",
                "the fewest first",
                rollout.offered and rollout.offered[0] > rollout.offered[1],
            ),
            (
                "cold_start.steps",
                "more without model.base: a fresh model writes nothing",
                fresh and not cold.steps,
            ),
            (
                "cold_start.reading",
                f"fewer than cold_start.steps = {cold.steps}, and 0 without prompt.cards and a simulated task",
                cold.reading and not (self.prompt.cards and drawn and cold.reading < cold.steps),
            ),
            (
                "prompt.cards",
                f"false for {data.task} over other workers: its cold start reads no other cards",
                self.prompt.cards and drawn and self.pool.partition(":")[0] != data.task,
            ),
            (
                "imitate.reading",
                "0 without prompt.cards and a simulated task",
                imitate.reading and not (self.prompt.cards and drawn),
            ),
            (
                "cold_start.micro_batch",
                f"a divisor of {cold.batch}",
                cold.batch % min(cold.batch, cold.micro_batch),
            ),
            (
                "imitate.micro_batch",
                f"a divisor of {imitate.batch}",
                imitate.batch % min(imitate.batch, imitate.micro_batch),
            ),
            (
                "imitate.sharpen",
                f"at most rounds = {imitate.rounds}",
                imitate.sharpen > imitate.rounds > 0,
            ),
            (
                "rollout.iterations",
                "more without imitate.rounds",
                not rollout.iterations and not imitate.rounds,
            ),
            (
                "held_out.task",
                f"the same as data.task {data.task!r}: the questions of one are drawn",
                strange or other,
            ),
            ("data.path", none, drawn and data.path),
            ("held_out.path", none, drawn and held_out.path),
            (
                "data.mix",
                f"none, or for a simulated task a weight for each of {list(kinds)}",
                data.mix and unfit,
            ),
            ("data.split", f"'train' for {data.task}", drawn and data.split != "train"),
            (
                "optim.scale",
                "'none' with priced rewards: else their smallest difference weighs as much as right against wrong",
                priced and self.optim.scale != "none",
            ),
            (
                "reward.seconds",
                f"less than half together with dollars = {self.reward.dollars}",
                self.reward.dollars + self.reward.seconds >= 0.5,
            ),
            (
                "reward.function",
                "none with priced rewards: it can price them itself",
                priced and self.reward.function,
            ),
            ("held_out.split", f"'test' for {data.task}", drawn and held_out.split != "test"),
        )
        for key, expected, is_wrong in wrong:
            if is_wrong:
                section, _, name = key.partition(".")
                raise ValueError(
                    f"{key}: got {self.model_dump()[section][name]!r}, expected {expected}"
                )
        return self


def load_train_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a recipe.

    Raises:
        ConfigError: the file cannot be read, is a recipe of an evaluation, a key is unknown, or a
            value is out of its range.
    """
    tables = read_toml(path)
    if "systems" in tables or isinstance(tables.get("task"), list):
        raise ConfigError(
            f"{path}: names systems or a [[task]], so it is a recipe of `openconductor eval` or `report`; expected one "
            "of a training"
        )
    return load_toml(path, TrainConfig, overrides)


def differences(there: TrainConfig, here: TrainConfig) -> str:
    """Where two recipes differ, in words: ``seed: 1 there, 2 here``; "" where they are the same."""
    stored, given = _values(there), _values(here)
    return ", ".join(
        f"{key}: {stored[key]} there, {given[key]} here"
        for key in given
        if stored[key] != given[key]
    )


def _values(config: TrainConfig) -> dict[str, str]:
    """Every value of a recipe by its dotted key, as TOML, which spells such values as JSON does."""
    values = config.model_dump(mode="json")
    tables = {name: table for name, table in values.items() if isinstance(table, dict)}
    return {key: json.dumps(value) for key, value in values.items() if key not in tables} | {
        f"{name}.{key}": json.dumps(value)
        for name, table in tables.items()
        for key, value in table.items()
    }


def dump_train_config(config: TrainConfig) -> str:
    """The whole recipe, defaults included, as TOML that loads to the same; what has no limit is left out."""
    return dump_toml(config.model_dump(mode="json", exclude_none=True))
