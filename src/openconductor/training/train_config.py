"""What a training is told: few fields, one level deep. Class defaults are the paper; a recipe lists its differences.

In: a TOML file and ``key=value`` overrides. Out: a ``TrainConfig``, or a ConfigError that names the nearest key.
Source of the defaults: arXiv 2512.04388, section 4 and its table of hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openconductor.config import dump_toml, load_toml, read_toml
from openconductor.errors import ConfigError
from openconductor.gym.questions import KINDS
from openconductor.prompt import PromptOptions

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as numpy takes it
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Weights = tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Section):
    """Which questions, in which order.

    Attributes:
        task: the task's name in the registry.
        path: a local file or folder with its problems; "" is where the task is published.
        split: what is learnt from.
        seed: draws the questions.
        curriculum: share of the iterations over which the mix of kinds moves from easy to even (0: even at once).
        easy: weights of the kinds, easy to hard, at the start of the curriculum.
    """

    task: str = "gym"
    path: str = ""
    split: str = "train"
    seed: Seed = 0
    curriculum: Fraction = 0.0
    easy: Weights = ()


class ModelConfig(_Section):
    """The Conductor's language model: a checkpoint to start from, or the sizes of a fresh tiny one.

    Attributes:
        base: a checkpoint folder or hub name; an empty one builds a fresh tiny model, which needs a cold start.
        hidden, intermediate, layers, heads, positions: sizes of the fresh model, in units, blocks and tokens.
        initializer_range: standard deviation of the fresh weights.
    """

    base: str = "Qwen/Qwen2.5-7B-Instruct"
    hidden: Positive = 64
    intermediate: Positive = 192
    layers: Positive = 2
    heads: Positive = 4
    positions: Positive = 256
    initializer_range: Rate = 0.05


class ColdStartConfig(_Section):
    """Supervised learning of syntax and copying on random workflows, for a fresh model; a base model needs none."""

    steps: NonNegative = 0
    batch: Positive = 64
    learning_rate: Rate = 4e-3


class WidenConfig(_Section):
    """A second act, for a tiny Conductor in the gym: its plans are varied at random, then GRPO continues from there.

    Attributes:
        steps: supervised steps on its own plans, most of them varied (0: there is no second act).
        batch: workflows a step.
        iterations: of GRPO, with ``rollout``, ``reward`` and ``optim`` as in the first act.
        easy: weights of the kinds at the beginning; they move to even until the end.
    """

    steps: NonNegative = 0
    batch: Positive = 64
    learning_rate: Rate = 1e-3
    iterations: Positive = 200
    easy: Weights = ()


class PromptConfig(_Section):
    """What the Conductor is shown."""

    template: Literal["full", "compact"] = "full"
    examples: Literal["none", "in_distribution", "mixed", "out_of_distribution"] = "out_of_distribution"
    access: Literal["binary", "index"] = "binary"

    def options(self) -> PromptOptions:
        """The same, as the prompt floor takes it."""
        return PromptOptions(template=self.template, examples=self.examples, access=self.access)


class RolloutConfig(_Section):
    """How completions are sampled: ``questions`` x ``completions`` an iteration."""

    iterations: Positive = 200
    questions: Positive = 4
    completions: Annotated[int, Field(ge=2)] = 64
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    max_tokens: Positive = 1024
    max_steps: Positive = 5

    @property
    def batch(self) -> int:
        """The completions of an iteration."""
        return self.questions * self.completions


class RewardConfig(_Section):
    """The reward is 0 / 0.5 / 1; ``control`` breaks it on purpose, to show that nothing else teaches.

    Attributes:
        control: ``shuffled`` deals each iteration's rewards out at random, ``flipped`` trains towards wrong answers.
        grade_timeout_s: seconds after which a verdict counts as undecided (masked).
    """

    control: Literal["none", "shuffled", "flipped"] = "none"
    grade_timeout_s: float = 60.0


class OptimConfig(_Section):
    """GRPO's optimiser: clipped ratio, no KL, no reference model.

    Attributes:
        warmup: share of the iterations over which the learning rate rises.
        epsilon: the clip range of the ratio.
        kl: weight of the KL divergence from the starting model at the start (the paper: none at all); it falls in a
            straight line to 0 over ``kl_until``.
        kl_until: share of the iterations with a KL term.
        scale: divide advantages by the standard deviation of their group (``group``), or not (``none``).
        micro_batch: completions a backward pass at most (gradients add up to the whole batch).
        grad_clip: the largest norm of a gradient.
    """

    learning_rate: Rate = 1e-6
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Fraction = 0.03
    epsilon: float = 0.2
    kl: Annotated[float, Field(ge=0.0)] = 0.0
    kl_until: Fraction = 1.0
    scale: Literal["group", "batch", "none"] = "group"
    micro_batch: Positive = 4
    grad_clip: Rate = 1.0
    bf16: bool = True


class HeldOutConfig(_Section):
    """What a run is measured on before and after it learns; none of these questions may be learnt from.

    Attributes:
        task: the task; "" is the one that is learnt from.
        path: as in ``data``; "" is the same path for the same task, else where the task is published.
        split: of which split.
        questions: at most this many; all where the task has fewer.
        start_repeats: workflows a question of the start, which is right so seldom that one of each says little.
    """

    task: str = ""
    path: str = ""
    split: str = "test"
    questions: Positive = 400
    start_repeats: Positive = 8


class TrainConfig(_Section):
    """One experiment."""

    name: str = "conductor"
    seed: Seed = 0
    pool: str = "gym"
    save_every: Positive = 20
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    widen: WidenConfig = WidenConfig()
    prompt: PromptConfig = PromptConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    optim: OptimConfig = OptimConfig()
    held_out: HeldOutConfig = HeldOutConfig()

    @property
    def micro_batch(self) -> int:
        """The completions of a backward pass: ``optim.micro_batch``, or the whole batch where that is smaller."""
        return min(self.optim.micro_batch, self.rollout.batch)

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        """Refuse what cannot go together; the gym draws its questions, and goes with itself alone."""
        data, model, held_out, widened = self.data, self.model, self.held_out, self.widen.steps
        fresh, steps = not model.base, self.cold_start.steps
        tested, learnt_gym = held_out.task or data.task, data.task == "gym"
        gym = learnt_gym or tested == "gym"
        weights = f"{len(KINDS)} weights, one for each of {list(KINDS)}"
        drawn = "none: the gym's questions are drawn"
        sizes = f"a divisor of rollout.questions x rollout.completions = {self.rollout.batch}"
        too_long = fresh and self.rollout.max_tokens >= model.positions
        wrong = (
            ("optim.micro_batch", sizes, self.rollout.batch % self.micro_batch),
            ("model.heads", f"a divisor of hidden = {model.hidden}", fresh and model.hidden % model.heads),
            ("rollout.max_tokens", f"less than model.positions = {model.positions}", too_long),
            ("cold_start.steps", "0 beside model.base: only a fresh model needs a cold start", steps and not fresh),
            ("cold_start.steps", "more without model.base: a fresh model writes nothing", fresh and not steps),
            ("widen.steps", f"0 with task {data.task!r}: only the gym has a second act", widened and not learnt_gym),
            ("held_out.task", f"the gym for both, beside data.task {data.task!r}", gym and data.task != tested),
            ("data.path", drawn, gym and data.path),
            ("held_out.path", drawn, gym and held_out.path),
            ("data.split", "'train' for the gym", gym and data.split != "train"),
            ("held_out.split", "'test' for the gym", gym and held_out.split != "test"),
            ("data.easy", weights, learnt_gym and _unfit(data.easy)),
            ("widen.easy", weights, learnt_gym and _unfit(self.widen.easy)),
        )
        for key, expected, is_wrong in wrong:
            if is_wrong:
                section, _, name = key.partition(".")
                raise ValueError(f"{key}: got {self.model_dump()[section][name]!r}, expected {expected}")
        return self


def _unfit(weights: Weights) -> bool:
    return bool(weights) and (len(weights) != len(KINDS) or sum(weights) <= 0)


def load_train_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a recipe.

    Raises:
        ConfigError: the file cannot be read, is a recipe of an evaluation, a key is unknown, or a value is out of its
            range.
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
    return ", ".join(f"{key}: {stored[key]} there, {given[key]} here" for key in given if stored[key] != given[key])


def _values(config: TrainConfig) -> dict[str, str]:
    """Every value of a recipe by its dotted key, as TOML, which spells such values as JSON does."""
    values = config.model_dump()
    tables = {name: table for name, table in values.items() if isinstance(table, dict)}
    return {key: json.dumps(value) for key, value in values.items() if key not in tables} | {
        f"{name}.{key}": json.dumps(value) for name, table in tables.items() for key, value in table.items()
    }


def dump_train_config(config: TrainConfig) -> str:
    """The whole recipe, defaults included, as TOML that loads to the same."""
    return dump_toml(config.model_dump())
