"""The recipe of a training: few fields, one level deep.

Class defaults are the paper's (arXiv 2512.04388, section 4 and its table of hyperparameters); a
recipe lists its differences.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openconductor.config import dump_toml, load_toml, read_toml
from openconductor.errors import ConfigError
from openconductor.prompt import PreviousName, PromptOptions
from openconductor.tasks.simulated import SIMULATIONS, find_simulation
from openconductor.types import Undecided

EXTRAS = ("deepspeed", "tensorboard", "vllm")
"""The packages that a recipe may need and an extra of their name installs, in versions that fit."""
UNTRIED = (
    "one GPU has trained adapters with this code; several GPUs, vLLM and training all weights are "
    "untried"
)
"""What no GPU has run yet."""
Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # as numpy takes it
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
OptionName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
Rate = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _require(ok: object, key: str, value: object, expected: str) -> None:
    """Check one setting.

    Raises:
        ValueError: it is not ``ok``; the message has the key, the value and what is expected.
    """
    if not ok:
        raise ValueError(f"{key}: got {value!r}, expected {expected}")


class DataConfig(_Section):
    """The questions, in their order.

    Attributes:
        task: the task's name in the registry, or ``module:attribute``.
        path: a local file or folder with its problems; "": where the task is published.
        split: the split to learn from.
        seed: draws the questions.
        judged_inside: whether programs are learnt from whose tests can only be judged in the
            program's own process, where a program that tries gets past them.
        mix: weights of the kinds of question that a simulated task draws; (): all alike.
    """

    task: str = "paper_mix"
    path: str = ""
    split: str = "train"
    seed: Seed = 0
    judged_inside: Literal["left_out", "learnt"] = "left_out"
    mix: tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...] = ()


class ModelConfig(_Section):
    """The Conductor's language model: a checkpoint to start from, or the sizes of a fresh tiny one.

    Attributes:
        base: a folder or hub name; "": a fresh tiny model, which needs a cold start.
        chat_template_kwargs: options of the base's chat template, such as ``enable_thinking =
            false``; they stay set in what is trained.
        lora_rank: learn adapters of this rank and leave the base's weights alone; 0: learn all
            weights.
        lora_targets: the linear layers that get adapters, by the ends of their names; (): all.
        hidden, intermediate, layers, heads, positions: sizes of the fresh model, in units, blocks
            and tokens.
        initializer_range: standard deviation of the fresh weights.
    """

    base: str = "Qwen/Qwen2.5-7B-Instruct"
    chat_template_kwargs: dict[OptionName, bool | int | float | str] = {}
    lora_rank: NonNegative = 0
    lora_targets: tuple[str, ...] = ()
    hidden: Positive = 64
    intermediate: Positive = 192
    layers: Positive = 2
    heads: Positive = 4
    positions: Positive = 256
    initializer_range: Rate = 0.05

    @model_validator(mode="after")
    def _check_fresh(self) -> Self:
        if not self.base:
            divisor = f"a divisor of hidden = {self.hidden}"
            _require(self.hidden % self.heads == 0, "model.heads", self.heads, divisor)
            _require(not self.lora_rank, "model.lora_rank", self.lora_rank, "0 for a fresh model")
            options = self.chat_template_kwargs
            _require(not options, "model.chat_template_kwargs", options, "none for a fresh model")
        return self


class SupervisedConfig(_Section):
    """Supervised learning.

    Attributes:
        steps: of the optimiser (0: none).
        batch: workflows a step.
        micro_batch: the most workflows in a backward pass.
        learning_rate: after a warm-up.
    """

    section: ClassVar[str] = "supervised"

    steps: NonNegative = 0
    batch: Positive = 64
    micro_batch: Positive = 64
    learning_rate: Rate = 4e-3

    @model_validator(mode="after")
    def _check_micro_batch(self) -> Self:
        _require(
            self.batch % min(self.batch, self.micro_batch) == 0,
            f"{self.section}.micro_batch",
            self.micro_batch,
            f"a divisor of {self.batch}",
        )
        return self


class ColdStartConfig(SupervisedConfig):
    """Supervised learning of the form, on random workflows that ignore who is good at what.

    A fresh model needs it; a base model only if it writes too few valid workflows by itself. The
    learning rate falls in a straight line.

    Attributes:
        reading: how many of the steps come first and teach only to read cards (with
            ``prompt.cards``). From workflows alone a model does not learn to look up who is listed
            for what.
        shapes: True: plans are a worker alone, or attempts by different workers and a merge, every
            number of attempts as often, and their thoughts say so. False: any. A simulated task has
            its own plans.
        quote_cards: True: the thought of a random plan quotes the card of each step's worker, and
            its ordinal behind it (with ``prompt.cards``). So a plan says in words whom it wants,
            and the ordinal is looked up.
    """

    section: ClassVar[str] = "cold_start"

    reading: NonNegative = 0
    shapes: bool = False
    quote_cards: bool = False


class StartConfig(_Section):
    """A measurement before the model learns from rewards, on questions that are not learnt from.

    Attributes:
        prompts: completions that are sampled and read.
        validity: the smallest share of valid workflows; below it the training stops before any
            worker is paid.
        workflows: the most completions that are also executed and graded.
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
        rounds: the most rounds (0: none), ``sharpen`` included.
        sharpen: the last rounds, which do not explore; they begin when no kind of question gets
            better.
        questions, completions: sampled in a round.
        steps, batch, micro_batch: of supervised learning in a round.
        learning_rate: after a warm-up; it stays.
        reading: the share of learning that goes to reading cards, as in ``cold_start.reading``,
            because it is forgotten otherwise.
        anchor: how often a question without a success is learnt from (one of its valid workflows);
            a question with a success counts 1. It keeps form and shape where nothing is solved yet.
        explore: a factor on the temperature of the first token where it is a number, in one of a
            question's completions. The thoughts of the cold start begin with the number of steps,
            so more than 1 keeps shapes in play that pay only once routing is known.
        contested: True skips questions that every completion got right, because they do not show
            which plan is better.
        remember: the number of earlier rounds whose right workflows are learnt, too. Where rounds
            are small because calls of workers are dear, a round alone is learnt by heart.
    """

    section: ClassVar[str] = "imitate"

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
    remember: NonNegative = 0

    @model_validator(mode="after")
    def _check_sharpen(self) -> Self:
        fits = self.sharpen <= self.rounds or not self.rounds
        _require(fits, "imitate.sharpen", self.sharpen, f"at most rounds = {self.rounds}")
        return self


class PromptConfig(_Section):
    """The Conductor's prompt."""

    template: Literal["full", "compact"] = "full"
    examples: Literal["none", "in_distribution", "mixed", "out_of_distribution"] = (
        "out_of_distribution"
    )
    access: Literal["binary", "index"] = "binary"
    cards: bool = False
    previous: PreviousName = "last"

    def options(self) -> PromptOptions:
        """Return the same as ``render_prompt`` takes it."""
        return PromptOptions(
            template=self.template,
            examples=self.examples,
            access=self.access,
            cards=self.cards,
            previous=self.previous,
        )


class RolloutConfig(_Section):
    """Sampling of completions: ``questions`` x ``completions`` an iteration.

    Attributes:
        iterations: of GRPO (0: none, after imitation alone).
        questions, completions: questions an iteration, and completions of each (a group).
        temperature: of sampling; top_p, top_k and penalties are off, whatever the model's own
            settings are.
        max_tokens: of a completion.
        max_steps: of a workflow.
        sample_batch: the most completions that one process samples at once (without vLLM).
        engine: transformers, vLLM in the training's processes, or a vLLM server at ``vllm_url``.
        vllm_memory: the share of a GPU's memory that vLLM takes in the training's processes.
        vllm_url: the server's address.
        offered: (fewest, most) workers that a question offers, drawn anew for each; (): all.
        renumbered: each question's workers get ordinals in an order that is drawn anew, so only
            their cards say which is which.
        rounds: 2 is recursion: half of an iteration's completions are second rounds, each of which
            is shown a first round of the same question.
        first_round: the weight of the first rounds' advantages, which are normalised apart from the
            second rounds'.
        credit: what a first round is rewarded for, in recursion: its own answer (``round``), or the
            one with which the episode ends (``episode``), so that a cheap first round is worth its
            place where a second one corrects it.
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
    renumbered: bool = False
    rounds: Literal[1, 2] = 1
    first_round: Fraction = 0.25
    credit: Literal["round", "episode"] = "round"

    @property
    def batch(self) -> int:
        """The completions of an iteration."""
        return self.questions * self.completions

    @model_validator(mode="after")
    def _check_itself(self) -> Self:
        even = self.rounds == 1 or self.questions % 2 == 0
        expected = "an even number with rollout.rounds = 2"
        _require(even, "rollout.questions", self.questions, expected)
        follows = self.credit == "round" or self.rounds == 2
        _require(follows, "rollout.credit", self.credit, "round with rollout.rounds = 1")
        ordered = not self.offered or self.offered[0] <= self.offered[1]
        _require(ordered, "rollout.offered", self.offered, "the fewest first")
        return self


class RewardConfig(_Section):
    """The reward: 0 / 0.5 / 1, less what a right answer cost if the recipe says so.

    ``control`` breaks it on purpose, to show that nothing else teaches.

    Attributes:
        control: ``shuffled`` deals each iteration's rewards out at random, ``flipped`` trains
            towards wrong answers.
        grade_timeout_s: seconds after which a verdict counts as undecided.
        trailing_text: ``invalid``: a completion that goes on after the three lists is not a
            workflow. ``accepted``: nothing teaches the model to stop there.
        undecided: the reward of an answer that its grader cannot decide: 0.5 (``wrong``), or none
            (``masked``). A grader that fails always masks.
        dollars, seconds: the share of its reward that a right answer may lose for what it cost and
            how long it took (``priced_rewards``); less than a half together, so that right is worth
            more than cheap. Imitation learns right workflows in proportion to what is left of their
            rewards.
        answers: what a right answer loses for each worker's answer, over all rounds.
        free_answers: the number of workers' answers that cost nothing.
        judge: the name of a worker of the pool that decides free-form answers which the rules
            cannot; what it leaves open is masked. "": none.
        function: another reward for GRPO, ``module:attribute`` of a function (problem, episode,
            grade) -> a number, or None to mask; "": none. What counts as right, and is imitated,
            stays what the grader says.
    """

    control: Literal["none", "shuffled", "flipped"] = "none"
    grade_timeout_s: float = 60.0
    trailing_text: Literal["accepted", "invalid"] = "accepted"
    undecided: Undecided = "wrong"
    dollars: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    seconds: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    answers: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    free_answers: NonNegative = 0
    judge: str = ""
    function: str = ""

    @property
    def priced(self) -> bool:
        """True if a right answer loses reward for what it cost."""
        return self.dollars + self.seconds + self.answers > 0

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        together = self.dollars + self.seconds + self.answers
        _require(together < 0.5, "reward.dollars + seconds + answers", together, "less than a half")
        _require(
            not (self.priced and self.function),
            "reward.function",
            self.function,
            "none with priced rewards: it can price them itself",
        )
        return self


class BudgetConfig(_Section):
    """Limits on a whole training's costs, resumed parts included; None: no limit."""

    dollars: Decimal | None = None
    calls: NonNegative | None = None


class OptimConfig(_Section):
    """GRPO's optimiser: clipped ratio, no KL, no reference model.

    Attributes:
        warmup: share of the iterations over which the learning rate rises.
        epsilon: the clip range of the ratio.
        scale: divide advantages by the standard deviation of their group or batch, or not
            (``none``).
        micro_batch: the most completions in a backward pass (gradients add up to the whole batch).
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


PAPER_HELD_OUT = ("math500", "mmlu", "rlpr", "livecodebench_v6")
"""What the paper measures on; its mix has no questions to hold out."""


class HeldOutConfig(_Section):
    """The questions that a run is measured on; none of them may be learnt from.

    Attributes:
        task: the task, or several; "": the one that is learnt from, or the paper's four tasks for
            its mix.
        path: as in ``data``, for all tasks or as a table by task; "", or no entry: the same path
            for the same task, else where the task is published.
        split: the split of each task.
        questions: the most questions, an equal share of each task.
    """

    task: str | tuple[str, ...] = ""
    path: str | dict[str, str] = ""
    split: str = "test"
    questions: Positive = 400

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks; (): those that go with the one that is learnt from."""
        if isinstance(self.task, tuple):
            return self.task
        return (self.task,) if self.task else ()

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        paths = self.path if isinstance(self.path, dict) else {}
        expected = f"one of held_out.task {self.tasks}"
        for task in paths:
            _require(task in self.tasks, "held_out.path", task, expected)
        return self


class TrainConfig(_Section):
    """One experiment.

    Attributes:
        name: names the run's folder.
        pool: a pool file, or a simulated pool: ``gym``, its workers in another world (``gym:7``),
            or workers that are drawn anew for each question (``gym:drawn``).
        save_every: iterations between checkpoints.
        alarms: ``tell``: report warnings of GRPO's curve. ``stop``: also end the run, with a
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
    def held_out_tasks(self) -> tuple[str, ...]:
        """The names of the held-out tasks."""
        if self.held_out.tasks:
            return self.held_out.tasks
        return PAPER_HELD_OUT if self.data.task == "paper_mix" else (self.data.task,)

    @property
    def held_out_paths(self) -> dict[str, str]:
        """The held-out tasks, each with its local file or folder; "": where it is published."""
        data, held_out = self.data, self.held_out
        given = held_out.path
        paths: dict[str, str] = {}
        for name in self.held_out_tasks:
            path = given.get(name, "") if isinstance(given, dict) else given
            paths[name] = path or (data.path if name == data.task else "")
        return paths

    @property
    def stride(self) -> int:
        """The distance between the sample numbers of one iteration and of the next."""
        return max(self.imitate.completions, self.rollout.completions)

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        """Check that the model can learn at all, and that both rounds of recursion fit."""
        named = self.name.strip() and "/" not in self.name
        _require(named, "name", self.name, "a name for the run's folder, without /")
        rollout, model = self.rollout, self.model
        if not model.base:
            _require(
                rollout.max_tokens < model.positions,
                "rollout.max_tokens",
                rollout.max_tokens,
                f"less than model.positions = {model.positions}",
            )
            _require(
                self.cold_start.steps,
                "cold_start.steps",
                self.cold_start.steps,
                "more without model.base: a fresh model writes nothing",
            )
        _require(
            rollout.iterations or self.imitate.rounds,
            "rollout.iterations",
            rollout.iterations,
            "more without imitate.rounds",
        )
        _require(
            rollout.rounds == 1 or self.imitate.questions % 2 == 0,
            "imitate.questions",
            self.imitate.questions,
            "an even number with rollout.rounds = 2",
        )
        _require(
            not self.reward.priced or self.optim.scale == "none",
            "optim.scale",
            self.optim.scale,
            "'none' with priced rewards: else their smallest difference weighs as much as right "
            "against wrong",
        )
        return self

    @model_validator(mode="after")
    def _check_cards(self) -> Self:
        """Check that cards are shown where they are needed, and read where exercises teach it."""
        cold = self.cold_start
        simulated = self.data.task in SIMULATIONS
        _require(
            not cold.reading or (self.prompt.cards and cold.reading < cold.steps),
            "cold_start.reading",
            cold.reading,
            f"fewer than cold_start.steps = {cold.steps}, and 0 without prompt.cards",
        )
        _require(
            not self.imitate.reading or self.prompt.cards,
            "imitate.reading",
            self.imitate.reading,
            "0 without prompt.cards",
        )
        _require(
            not cold.quote_cards or (self.prompt.cards and not simulated and not cold.shapes),
            "cold_start.quote_cards",
            cold.quote_cards,
            "false without prompt.cards, with cold_start.shapes, and in a simulated task",
        )
        renumbered = self.rollout.renumbered
        _require(
            not renumbered or self.prompt.cards,
            "rollout.renumbered",
            renumbered,
            "false without prompt.cards: nothing else says which worker is which",
        )
        _require(
            not (renumbered and self.reward.answers),
            "rollout.renumbered",
            renumbered,
            "false with reward.answers, which knows the workers that merge by their ordinals",
        )
        own_workers = self.pool.partition(":")[0] == self.data.task
        _require(
            not (self.prompt.cards and simulated) or own_workers,
            "prompt.cards",
            self.prompt.cards,
            f"false for {self.data.task} over other workers: its cold start reads no other cards",
        )
        return self

    @model_validator(mode="after")
    def _check_drawn_questions(self) -> Self:
        """Check that a simulated task, which draws its questions, goes with itself alone."""
        data, held_out = self.data, self.held_out
        measured = set(self.held_out_tasks)
        simulation = find_simulation(data.task)
        if simulation is None:
            _require(not data.mix, "data.mix", data.mix, "none, because no questions are drawn")
            _require(
                not measured & set(SIMULATIONS),
                "held_out.task",
                held_out.task,
                f"no simulated task beside data.task {data.task!r}",
            )
            return self
        same = f"the same as data.task {data.task!r}, whose questions are drawn"
        _require(measured == {data.task}, "held_out.task", held_out.task, same)
        none = "none, because the questions are drawn"
        _require(not data.path, "data.path", data.path, none)
        _require(not held_out.path, "held_out.path", held_out.path, none)
        learnt, tested = simulation.learnt, simulation.tested
        _require(data.split == learnt, "data.split", data.split, repr(learnt))
        _require(held_out.split == tested, "held_out.split", held_out.split, repr(tested))
        kinds = list(simulation.kinds)
        fits = not data.mix or (len(data.mix) == len(kinds) and sum(data.mix) > 0)
        _require(fits, "data.mix", data.mix, f"none, or a weight for each of {kinds}")
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
            f"{path}: is a recipe of `openconductor eval` or `report` (it has systems or "
            "[[task]]); expected a recipe of a training"
        )
    return load_toml(path, TrainConfig, overrides)


def differences(there: TrainConfig, here: TrainConfig) -> str:
    """Return where two recipes differ, such as ``seed: 1 there, 2 here``; "" if nowhere."""
    stored, given = _values(there), _values(here)
    changed: list[str] = []
    for key in given:
        if stored[key] != given[key]:
            changed.append(f"{key}: {stored[key]} there, {given[key]} here")
    return ", ".join(changed)


def _values(config: TrainConfig) -> dict[str, str]:
    """Return the values of a recipe by dotted key, spelled as in JSON and TOML."""
    values: dict[str, str] = {}
    tables: dict[str, str] = {}
    for name, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            for key, item in cast("dict[str, object]", value).items():
                tables[f"{name}.{key}"] = json.dumps(item)
        else:
            values[name] = json.dumps(value)
    return values | tables


def install_command(package: str) -> str:
    """Return the command that installs a tracker, vLLM or DeepSpeed."""
    return (
        f'pip install "openconductor[{package}]"' if package in EXTRAS else f"pip install {package}"
    )


def draw_seeds(config: TrainConfig, count: int) -> tuple[int, ...]:
    """Return different seeds that nobody chose: they follow from what the recipe sets.

    Values that are equal to their defaults do not count, nor does the recipe's own seed.
    """
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"seed"})
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return tuple(random.Random(digest).sample(range(1000, 10000), count))


def dump_train_config(config: TrainConfig) -> str:
    """Return the whole recipe, defaults included, as TOML; what has no limit is left out."""
    return dump_toml(config.model_dump(mode="json", exclude_none=True))
