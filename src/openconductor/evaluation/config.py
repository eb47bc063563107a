"""What an evaluation is told: systems, tasks, repeats, and what may be spent. Few fields, one level deep.

In: a TOML file and ``key=value`` overrides, or values. Out: an ``EvalConfig``, or a ConfigError that names the nearest
key. Defaults are the gym with the bundled Conductor, which costs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Literal, cast

from openconductor.config import load_toml, read_toml, validate
from openconductor.errors import ConfigError
from openconductor.types import Budget

GYM = "gym"
"""The pool and the task that need no key."""
MOST_REPEATS = 4096
CONSTRAINED_TOKENS = 4096
"""Output tokens of every worker in the paper's constrained setting (section 5; as in training)."""

Setting = Literal["unconstrained", "constrained"]


@dataclass(frozen=True, slots=True)
class TaskTable:
    """One ``[[task]]``: a name of the registry, and the options that it takes.

    ``path`` is a local file or folder, ``revision`` a commit of the data set, ``sha256`` what its bytes must hash to,
    ``limit`` so many problems only, ``seed`` what draws them and the order of choices.
    """

    name: str
    path: str | None = None
    split: str | None = None
    revision: str | None = None
    limit: int | None = None
    seed: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ConductorTable:
    """Which Conductor the systems ``conductor…`` ask.

    Attributes:
        planner: ``provider:model``, a checkpoint folder, or ``worker:NAME`` of the pool; "" is the bundled one.
        base_url, api_key_env: for a planner behind HTTP.
        max_steps: the most steps of a workflow.
        rounds: the most rounds; 1 is no recursion.
    """

    planner: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    max_steps: int = 5
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class ConstrainedTable:
    """``[constrained.<worker>]``: what is laid over the worker's own sampling in the constrained setting.

    ``body`` holds what makes its reasoning minimal (an effort, a thinking budget), in its provider's words.
    """

    max_tokens: int = CONSTRAINED_TOKENS
    body: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class LearnTable:
    """What the trained baselines learn from: questions that every worker is asked before, none of them evaluated.

    Attributes:
        task: a name of the registry; "" is the first task that is evaluated.
        path, split, revision: as in ``[[task]]``.
        limit: so many questions.
        trials: how many collaborations, drawn at random, are tried on each (for MASRouter alone).
    """

    task: str = ""
    path: str | None = None
    split: str = "train"
    revision: str | None = None
    limit: int = 200
    trials: int = 8


@dataclass(frozen=True, slots=True)
class SpendingTable:
    """What the whole evaluation may cost, with what was spent before it was resumed; None is no limit."""

    dollars: Decimal | None = None
    calls: int | None = None

    def budget(self) -> Budget | None:
        """The same as a Budget; None where nothing is limited."""
        return None if self.dollars is None and self.calls is None else Budget(calls=self.calls, dollars=self.dollars)


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """One evaluation.

    Attributes:
        name: names the run's folder.
        systems: what is asked, as ``systems`` reads it: ``conductor``, ``worker:NAME``, a baseline with options.
        task: what is asked of each.
        pool: a pool file, or ``gym``.
        conductor: which Conductor.
        repeats: how often each question is asked.
        seed: draws problems, orders of choices, the gym's answers and random workflows; None is 0 where something must
            be drawn, and leaves choices in their published order.
        setting: ``constrained`` limits every worker's tokens and reasoning (paper, section 5).
        constrained: by the worker's name.
        learn: what the trained baselines learn from.
        against: the system that the others are compared with; "" is the first.
        share_calls: whether systems that make the same call share its completion (common random numbers: cheaper, but
            their scores then hang together); else each has its own.
        unsafe_code_exec: whether programs are run even where no sandbox works.
        concurrency: the most episodes that ask workers at once.
        budget: what all of it may cost.
    """

    name: str = "eval"
    systems: tuple[str, ...] = ("conductor",)
    task: tuple[TaskTable, ...] = (TaskTable(GYM),)
    pool: str = GYM
    conductor: ConductorTable = ConductorTable()
    repeats: int = 1
    seed: int | None = None
    setting: Setting = "unconstrained"
    constrained: dict[str, ConstrainedTable] = field(default_factory=dict[str, ConstrainedTable])
    learn: LearnTable = LearnTable()
    against: str = ""
    share_calls: bool = False
    unsafe_code_exec: bool = False
    concurrency: int = 32
    budget: SpendingTable = SpendingTable()

    def check(self) -> None:
        """Make sure that every value is in its range.

        Raises:
            ConfigError: one is not.
        """
        if not self.systems:
            raise ConfigError("systems: got none, expected at least one, such as 'conductor'")
        if not self.task:
            raise ConfigError("task: got none, expected at least one, such as 'gym'")
        names = [task.name for task in self.task]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"task: got {twice[0]!r} twice, expected each once")
        for where, seed in (("seed", self.seed), *((f"task {one.name}: seed", one.seed) for one in self.task)):
            if seed is not None and seed < 0:
                raise ConfigError(f"{where}: got {seed}, expected a whole number from 0")
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise ConfigError(f"repeats: got {self.repeats}, expected 1 to {MOST_REPEATS}")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency: got {self.concurrency}, expected at least 1")
        if self.conductor.max_steps < 1 or self.conductor.rounds < 1:
            raise ConfigError(
                f"conductor: got max_steps {self.conductor.max_steps} and rounds {self.conductor.rounds}, expected at "
                "least 1 each"
            )
        if self.learn.limit < 1 or self.learn.trials < 1:
            raise ConfigError(
                f"learn: got limit {self.learn.limit} and trials {self.learn.trials}, expected at least 1 each"
            )
        if (self.budget.dollars or 0) < 0 or (self.budget.calls or 0) < 0:
            raise ConfigError(
                f"budget: got dollars {self.budget.dollars} and calls {self.budget.calls}, expected at least 0 each"
            )
        for worker, limits in self.constrained.items():
            if limits.max_tokens < 1:
                raise ConfigError(f"constrained.{worker}.max_tokens: got {limits.max_tokens}, expected at least 1")


OF_TRAINING = ("model", "cold_start", "rollout", "reward", "optim", "held_out")
"""Tables that only the recipe of a training has."""
FREE_TO_CHANGE = ("name", "against", "concurrency", "budget")
"""What a resumed run may have otherwise: no answer and no verdict depends on it."""


def load_eval_config(path: Path, overrides: Sequence[str] = ()) -> EvalConfig:
    """Read a recipe.

    Raises:
        ConfigError: the file cannot be read, is a recipe of a training, a key is unknown, or a value is out of its
            range.
    """
    tables = [f"[{name}]" for name in OF_TRAINING if name in read_toml(path)]
    if tables:
        raise ConfigError(
            f"{path}: has {', '.join(tables)}, so it is a recipe of `openconductor train`; expected one of an "
            "evaluation"
        )
    return _checked(load_toml(path, EvalConfig, overrides), str(path))


def make_eval_config(values: Mapping[str, object], *, where: str) -> EvalConfig:
    """The same of plain values; ``where`` names their source in errors.

    Raises:
        ConfigError: a key is unknown, or a value is out of its range.
    """
    return _checked(validate(values, EvalConfig, where=where), where)


def plain_config(config: EvalConfig) -> dict[str, object]:
    """The whole recipe as plain values, defaults included, what is None left out; decimals are texts."""
    return cast("dict[str, object]", _plain(config))


def dump_eval_config(config: EvalConfig) -> str:
    """The whole recipe as TOML that loads to the same."""
    values = plain_config(config)
    lines = [f"{key} = {dump_value(value)}" for key, value in values.items() if not _is_table(value)]
    for key, value in values.items():
        if isinstance(value, list) and _is_table(cast("object", value)):
            for table in cast("list[dict[str, object]]", value):
                lines += _table(f"[[{key}]]", table)
        elif isinstance(value, dict):
            table = cast("dict[str, object]", value)
            if key == "constrained":
                for worker, limits in cast("dict[str, dict[str, object]]", table).items():
                    lines += _table(f"[constrained.{_text(worker)}]", limits)
            else:
                lines += _table(f"[{key}]", table)
    return "\n".join(lines) + "\n"


def differences(before: EvalConfig, now: EvalConfig, *, places: bool = False) -> list[str]:
    """What of two recipes differs in a way that answers or verdicts depend on: ``field: got …, expected …``.

    Where a pool file and local data lie is none of it, unless ``places`` says so: a run keeps what stands in them
    (``inputs``).
    """
    old, new = plain_config(before), plain_config(now)
    if not places and GYM not in (before.pool, now.pool):
        new["pool"] = old["pool"]
    for recipe in () if places else (old, new):
        for table in cast("list[dict[str, object]]", [*cast("list[object]", recipe["task"]), recipe["learn"]]):
            table.pop("path", None)
    names = [one.name for one in fields(EvalConfig) if one.name not in FREE_TO_CHANGE]
    return [
        f"{name}: got {_short(new.get(name))}, expected {_short(old.get(name))}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _checked(config: EvalConfig, where: str) -> EvalConfig:
    try:
        config.check()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return config


def _plain(value: object) -> object:
    if hasattr(type(value), "__dataclass_fields__"):
        parts = {one.name: getattr(value, one.name) for one in fields(cast("EvalConfig", value))}
        return {name: _plain(part) for name, part in parts.items() if part is not None}
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in cast("Sequence[object]", value)]
    return format(value, "f") if isinstance(value, Decimal) else value


def _is_table(value: object) -> bool:
    if isinstance(value, list):
        return any(isinstance(part, dict) for part in cast("list[object]", value))
    return isinstance(value, dict)


def _table(head: str, table: Mapping[str, object]) -> list[str]:
    return ["", head, *(f"{_key(key)} = {dump_value(value)}" for key, value in table.items())] if table else []


def dump_value(value: object) -> str:
    """A plain value as TOML writes it behind an equals sign.

    Raises:
        ConfigError: TOML cannot say it.
    """
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(k)} = {dump_value(v)}" for k, v in cast("dict[str, object]", value).items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(dump_value(part) for part in cast('list[object]', value))}]"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"recipe: got {value}, which TOML cannot say as JSON does; expected a text, number or switch")
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _text(name)


def _text(text: str) -> str:
    # JSON's strings are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"
