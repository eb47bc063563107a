"""What an evaluation is told: systems, tasks, repeats, and what may be spent.

In: a TOML file and ``key=value`` overrides, or values. Out: an ``EvalConfig``, or a ConfigError
that names the nearest key. Defaults are the gym with the bundled Conductor, which costs nothing.

Systems are named ``kind``, ``kind:name``, ``kind:name?option=value&…``: ``conductor`` and its
ablations (``conductor?subtasks=false``) · ``planner:PROVIDER:MODEL`` (a prompted model as the
Conductor) · ``planner_alone`` (the model that plans, asked as a worker is) · ``worker:NAME`` ·
``workers`` (every worker alone) · baselines (``consensus:NAME?n=5``, ``moa:NAME``, ``random``,
``best_fixed`` …) · ``oracle_observed`` (hindsight) · ``oracle`` (in the gym). What is not on this
list and has a colon is a baseline from elsewhere, ``module:attribute`` or
``module:attribute:NAME``.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from openconductor.baselines import BASELINES
from openconductor.config import (
    dump_toml,
    load_toml,
    one_of,
    read_toml,
    registered,
    split_name,
    validate,
)
from openconductor.errors import ConfigError
from openconductor.store.serialisation import plain
from openconductor.tasks.simulated import SIMULATIONS
from openconductor.types import Budget

if TYPE_CHECKING:
    from openconductor.conductor import Planner
    from openconductor.pool import WorkerPool

GYM = "gym"
"""The pool and the task that need no key."""
MOST_REPEATS = 4096
CONSTRAINED_TOKENS = 4096
"""Output tokens of every worker in the paper's constrained setting (section 5; as in training)."""
_OF_TRAINING = (
    "model",
    "cold_start",
    "rollout",
    "reward",
    "optim",
    "held_out",
)  # tables of a training's recipe
_FREE_TO_CHANGE = (
    "name",
    "against",
    "concurrency",
    "budget",
)  # no answer and no verdict depends on these

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class TaskTable:
    """One ``[[task]]``: what tables call it, a task of the registry (None: the one of that name), and its options.

    ``path`` is a local file or folder, ``revision`` a commit of the data set, ``sha256`` what its
    bytes must hash to, ``limit`` the most problems, ``seed`` what draws them and the order of
    choices.
    """

    name: str
    task: str | None = None
    path: str | None = None
    split: str | None = None
    revision: str | None = None
    limit: int | None = None
    seed: Seed | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ConductorTable:
    """Which Conductor the systems ``conductor…`` ask, with the most steps and rounds.

    ``planner`` is ``provider:model``, a checkpoint folder, or ``worker:NAME`` of the pool; "" is
    the bundled one. ``max_steps`` None is as many as the checkpoint was trained to write, else 5.
    """

    planner: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    max_steps: Positive | None = None
    rounds: Positive = 1


@dataclass(frozen=True, slots=True)
class ConstrainedTable:
    """``[constrained.<worker>]``: what is laid over the worker's own sampling in the constrained setting.

    ``body`` holds what makes its reasoning minimal (an effort, a thinking budget), in its
    provider's words.
    """

    max_tokens: Positive = CONSTRAINED_TOKENS
    body: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class LearnTable:
    """What the trained baselines learn from: questions that every worker is asked before, none of them evaluated.

    ``task`` is one that is evaluated, by its name ("": the first), or another one of the registry;
    ``trials`` is how many collaborations are tried on each question.
    """

    task: str = ""
    path: str | None = None
    split: str = "train"
    revision: str | None = None
    limit: Positive = 200
    trials: Positive = 8


@dataclass(frozen=True, slots=True)
class SpendingTable:
    """What the whole evaluation may cost, with what was spent before it was resumed; None is no limit."""

    dollars: Annotated[Decimal, Field(ge=0)] | None = None
    calls: Annotated[int, Field(ge=0)] | None = None

    def budget(self) -> Budget | None:
        """The same as a Budget; None where nothing is limited."""
        return (
            None
            if self.dollars is None and self.calls is None
            else Budget(calls=self.calls, dollars=self.dollars)
        )


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """One evaluation.

    Attributes:
        name: names the run's folder.
        pool: a pool file, or ``gym``.
        repeats: how often each question is asked.
        seed: draws problems, orders of choices, the gym's answers and random workflows; None is 0
            where something must be drawn, and leaves choices in their published order.
        setting: ``constrained`` limits every worker's tokens and reasoning (paper, section 5).
        constrained: by the worker's name.
        against: the system that the others are compared with; "" is the first.
        share_calls: whether systems that make the same call share its completion (common random
            numbers: cheaper, but their scores then hang together); else each has its own.
        unsafe_code_exec: whether programs are run even where no sandbox works.
        concurrency: the most episodes that ask workers at once.
    """

    name: str = "eval"
    systems: Annotated[tuple[str, ...], Field(min_length=1)] = ("conductor",)
    task: Annotated[tuple[TaskTable, ...], Field(min_length=1)] = (TaskTable(GYM),)
    pool: str = GYM
    conductor: ConductorTable = ConductorTable()
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 1
    seed: Seed | None = None
    setting: Literal["unconstrained", "constrained"] = "unconstrained"
    constrained: dict[str, ConstrainedTable] = field(default_factory=dict[str, ConstrainedTable])
    learn: LearnTable = LearnTable()
    against: str = ""
    share_calls: bool = False
    unsafe_code_exec: bool = False
    concurrency: Positive = 32
    budget: SpendingTable = SpendingTable()

    @property
    def simulated(self) -> bool:
        """True if simulated workers are asked their own task's questions: then all is known."""
        tasks = {table.task or table.name for table in self.task}
        return self.pool in SIMULATIONS and tasks == {self.pool}


def load_eval_config(path: Path, overrides: Sequence[str] = ()) -> EvalConfig:
    """Read a recipe; ``overrides`` win over it.

    Raises:
        ConfigError: the file cannot be read, is a recipe of a training, a key is unknown, or a
            value is out of its range.
    """
    if tables := [f"[{name}]" for name in _OF_TRAINING if name in read_toml(path)]:
        raise ConfigError(
            f"{path}: has {', '.join(tables)}, so it is a recipe of `openconductor train`; expected one of an "
            "evaluation"
        )
    return _distinct(load_toml(path, EvalConfig, overrides), str(path))


def make_eval_config(values: Mapping[str, object], *, where: str) -> EvalConfig:
    """The same of plain values; ``where`` names their source in errors.

    Raises:
        ConfigError: a key is unknown, or a value is out of its range.
    """
    return _distinct(validate(values, EvalConfig, where=where), where)


def _distinct(config: EvalConfig, where: str) -> EvalConfig:
    taken = (
        "average",
        f"learn:{config.learn.task or config.task[0].name}",
    )  # what tables and records also hold
    (name, count), *_ = Counter((*taken, *(task.name for task in config.task))).most_common(1)
    if count > 1:
        raise ConfigError(
            f"{where}: task: got {name!r} twice, expected each name once, and none of {', '.join(taken)}"
        )
    return config


def plain_config(config: EvalConfig) -> dict[str, object]:
    """The whole recipe as plain values, defaults included, what is None left out; decimals are texts."""
    known = asdict(
        config, dict_factory=lambda fields: {name: one for name, one in fields if one is not None}
    )
    return cast("dict[str, object]", plain(known))


def dump_eval_config(config: EvalConfig) -> str:
    """The whole recipe as TOML that loads to the same.

    Raises:
        ConfigError: a value is one that TOML cannot say.
    """
    return dump_toml(plain_config(config))


def differences(before: EvalConfig, now: EvalConfig, *, places: bool = False) -> list[str]:
    """What of two recipes differs in a way that answers or verdicts depend on: ``field: got …, expected …``.

    Where a pool file and local data lie is not compared unless ``places`` says so: a run keeps what
    is in them.
    """
    free = list(_FREE_TO_CHANGE)
    if not places:
        free += [
            r"task \d+: path",
            "learn: path",
            *(() if GYM in (before.pool, now.pool) else ("pool",)),
        ]
    may_change = re.compile(rf"({'|'.join(free)})\b")
    return [
        one
        for one in what_differs(plain_config(before), plain_config(now))
        if not may_change.match(one)
    ]


def what_differs(before: object, now: object) -> list[str]:
    """What of two plain values differs, in order of its name: ``where: got …, expected …``."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    said = {
        where: f"got {new.get(where, 'null')}, expected {old.get(where, 'null')}"
        for where in {**old, **new}
    }
    return [
        f"{where}: {text}"
        for where, text in sorted(said.items())
        if old.get(where) != new.get(where)
    ]


def _leaves(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """The parts of tables and lists of tables that are neither: where each is, and what it is."""
    if isinstance(value, list) and all(
        isinstance(one, dict) for one in cast("list[object]", value)
    ):
        for number, one in enumerate(cast("list[object]", value)):
            yield from _leaves(one, f"{where} {number}")
    elif isinstance(value, dict):
        for name, one in cast("dict[str, object]", value).items():
            yield from _leaves(one, f"{where}: {name}" if where else name)
    else:
        yield (
            where,
            textwrap.shorten(
                json.dumps(value, ensure_ascii=False, default=str), 100, placeholder="…"
            ),
        )


# ── systems, as they are named ────────────────────────────────────────────────────────────────────
CONDUCTOR = "conductor"
PLANNER = "planner"
PLANNER_ALONE = "planner_alone"
"""The model that plans, asked alone: of ``conductor``, or of what is named behind the colon."""
WORKER = "worker"
WORKERS = "workers"
ORACLE = "oracle"
HINDSIGHT = "oracle_observed"
BOUNDS = ("heuristic", ORACLE, HINDSIGHT)
"""Systems that know the answers, or the gym's workers: bounds of the scale, never competitors."""
UNTRAINED = "untrained"
"""The Conductor before its training, beside the systems of an evaluation."""
ALONE = f"{WORKER}:"
"""How the name of a system begins that is one worker alone."""
_HIDDEN = ("planned", "single", "explorer")  # made from Python, not from a name
KINDS = (
    CONDUCTOR,
    PLANNER,
    PLANNER_ALONE,
    WORKER,
    WORKERS,
    ORACLE,
    HINDSIGHT,
    *(name for name in BASELINES if name not in _HIDDEN),
)
"""What a spec may begin with."""
_OPTIONS = re.compile(r"\?(?=[a-z_]+=)")

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Spec:
    """One system: one of ``KINDS`` or a baseline from elsewhere, what is behind it ("" for nothing), its options."""

    kind: str
    argument: str = ""
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def name(self) -> str:
        """The spec in its one form: what tables call the system."""
        head = f"{self.kind}:{self.argument}" if self.argument else self.kind
        said = [
            f"{name}={str(one).lower() if isinstance(one, bool) else one}"
            for name, one in self.options
        ]
        return head + ("?" + "&".join(said) if said else "")


def renamed(system: str) -> str:
    """A system's name of today: baselines that are lite were called by the name of the published ones.

    >>> renamed("smoothie?mode=dependent"), renamed("routerdc-lite")
    ('smoothie-lite?mode=dependent', 'routerdc-lite')
    """
    return re.sub(r"^(masrouter|routerdc|smoothie)(?=\?|$)", r"\1-lite", system)


def read_spec(text: str) -> Spec:
    """Read one spec, an old name too (``renamed``).

    Raises:
        ConfigError: it is not one; the message names the nearest kind.

    >>> read_spec(" consensus:gpt-5?n=5 ").name, read_spec("conductor?subtasks=False&access=index").name
    ('consensus:gpt-5?n=5', 'conductor?access=index&subtasks=false')
    >>> read_spec("mine:Vote:gpt-5?n=5")
    Spec(kind='mine:Vote', argument='gpt-5', options=(('n', 5),))
    """
    text = renamed(text.strip())
    head, *tail = _OPTIONS.split(text, maxsplit=1)
    kind, colon, argument = (
        part.strip() for part in split_name(head, {*KINDS, *_HIDDEN}, "baseline")
    )
    known = (
        KINDS
        if kind in KINDS or ":" in kind
        else (*KINDS, *registered({}, "baseline"), "module:attribute")
    )
    if kind not in known and ":" not in kind:
        one_of(f"system {text!r}", kind, known)
    if colon and not argument:
        raise ConfigError(f"system {text!r}: nothing behind the colon; expected a name")
    options: dict[str, Value] = {}
    for pair in tail[0].split("&") if tail else ():
        name, _, value = (part.strip() for part in pair.partition("="))
        if not (name and value) or name in options:
            raise ConfigError(
                f"system {text!r}: got {pair!r}, expected option=value, each option once"
            )
        options[name] = _value(value)
    return Spec(kind, argument, tuple(sorted(options.items())))


def expand(texts: Sequence[str], workers: Iterable[str]) -> list[Spec]:
    """Read all specs; ``workers`` becomes one for each worker, in order.

    Raises:
        ConfigError: one is not a spec, or two are the same.
    """
    names = list(workers)
    specs: list[Spec] = []
    for text in texts:
        spec = read_spec(text)
        if spec.kind == WORKERS:
            if spec.argument or spec.options:
                raise ConfigError(
                    f"system {text!r}: got more than {WORKERS!r}, which stands for every worker alone"
                )
            specs += [Spec(WORKER, name) for name in names if Spec(WORKER, name) not in specs]
        elif spec in specs:
            raise ConfigError(f"system {text!r}: named twice, expected each once")
        else:
            specs.append(spec)
    return specs


GROUPS = ("Orchestrators", "Baselines", "Workers alone", "Bounds", "Ablations")
"""What systems are grouped by in tables and figures, in this order."""
_WRITTEN = {
    "best_fixed": "best fixed workflow",
    HINDSIGHT: "best in hindsight",
    PLANNER_ALONE: "planner alone",
}


def group_of(system: str) -> str:
    """The group of a table that a system belongs to, by its name."""
    kind, changed = re.split(r"[:?]", system, maxsplit=1)[0], "?" in system
    if kind in (CONDUCTOR, PLANNER):
        return GROUPS[4 if changed else 0]
    return (
        GROUPS[2] if kind in (WORKER, PLANNER_ALONE) else GROUPS[3] if kind in BOUNDS else GROUPS[1]
    )


def short_name(system: str) -> str:
    """The name of a system as tables and figures write it beside others of its group.

    >>> [short_name(name) for name in ("worker:jack", "conductor?access=none", "consensus:jack?n=5", "oracle_observed")]
    ['jack', 'access=none', 'consensus (jack, n=5)', 'best in hindsight']
    """
    named, _, options = system.partition("?")
    kind, _, whose = named.partition(":")
    inside = ", ".join(filter(None, (whose, options.replace("&", ", "))))
    if kind in (CONDUCTOR, WORKER):
        return inside or system
    return f"{kind} ({inside})" if inside and kind in BASELINES else _WRITTEN.get(system, system)


def against_in(systems: Sequence[str], named: str) -> str:
    """The system that the others are compared with; "" is the first.

    Raises:
        ConfigError: the one that is named is not among them, or is hindsight.
    """
    if not named:
        return next((system for system in systems if system != HINDSIGHT), systems[0])
    name = read_spec(named).name
    if name == HINDSIGHT:
        raise ConfigError(
            f"against: got {name!r}, which chose by the very answers; expected a system that answers"
        )
    if name not in systems:
        raise ConfigError(f"against: got {name!r}, expected one of {', '.join(systems)}")
    return name


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]+\.[0-9]+", text) else text


def find_planner(
    named: str | None,
    pool: WorkerPool,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    simulated: bool = True,
) -> Planner:
    """What ``--conductor`` names: ``provider:model``, a checkpoint folder, ``worker:NAME``; None is the bundled one.

    Raises:
        ConfigError: there is no such thing, it does not take a URL or a key, or the bundled one is
            not ``simulated``.
    """
    from openconductor.pool import simulated_pool
    from openconductor.providers import PROVIDERS, create

    options = {
        name: value
        for name, value in (("base_url", base_url), ("api_key_env", key_env))
        if value is not None
    }
    if named is None:
        if options:
            raise ConfigError(
                "--conductor-base-url, --conductor-key-env: expected --conductor provider:model beside"
            )
        bundled_for = simulated_pool(GYM)
        if bundled_for is None or not simulated:
            raise ConfigError(
                "conductor: the bundled Conductor knows only the gym, got a pool file; expected --conductor "
                "provider:model, a checkpoint folder, or worker:NAME of the pool"
            )
        return str(bundled_for.conductor)
    kind, colon, name = split_name(named, {WORKER, *PROVIDERS}, "provider")
    if kind == WORKER and colon:
        if options:
            raise ConfigError(
                f"--conductor {named}: takes its URL and key from the pool file, got them as options too"
            )
        return pool[pool.ordinal_of(name)]
    if options and not (kind and name):
        raise ConfigError(
            f"--conductor {named!r}: got a URL or a key for it, expected 'provider:model'"
        )
    return create(kind, name, **options) if options else named
