"""The recipe of an evaluation: systems, tasks, repeats, and a budget.

A recipe is a TOML file with ``key=value`` overrides, or plain values. It becomes an ``EvalConfig``,
or a ConfigError that names the nearest key. Defaults are the gym with the bundled Conductor, which
costs nothing.

A system is a ``[[system]]`` table, ``use = "consensus"`` with its options, or a name of the form
``kind``, ``kind:argument`` or ``kind:argument?option=value&…``. Both become a ``Spec``. The kinds
are ``conductor`` · ``planner`` (a prompted model as the Conductor) · ``planner_alone`` (the model
that plans, asked as a worker is) · ``worker`` · ``workers`` (every worker alone) · the baselines
(``consensus``, ``moa``, ``random``, ``best_fixed`` …) · ``oracle_observed`` (hindsight) ·
``oracle`` (in the gym) · ``module:attribute``, a baseline from elsewhere.
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
from urllib.parse import parse_qsl, urlsplit

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
from openconductor.store import database_url
from openconductor.store.serialisation import plain
from openconductor.tasks.simulated import SIMULATIONS
from openconductor.types import Budget, OnNoPlan, Undecided

if TYPE_CHECKING:
    from openconductor.conductor import Planner
    from openconductor.pool import WorkerPool

GYM = "gym"
"""The pool and the task that need no key."""
MOST_REPEATS = 4096
CONSTRAINED_TOKENS = 4096
"""Output tokens of every worker in the paper's constrained setting (section 5; as in training)."""
_OF_TRAINING = ("model", "cold_start", "rollout", "reward", "optim", "held_out")
"""Tables of a training's recipe."""
_FREE_TO_CHANGE = ("name", "against", "concurrency", "budget", "ray")
"""Fields on which no answer and no verdict depends."""

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Value = bool | int | float | str
"""The value of a system's option."""


# ── the tables ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class TaskTable:
    """One ``[[task]]``.

    Attributes:
        name: its name in tables.
        task: a task of the registry; None: the task called ``name``.
        path: a local file or folder.
        split: the split of the data set.
        revision: a commit of the data set.
        limit: the most problems.
        seed: draws problems and the order of choices.
        sha256: the hash of its bytes.
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
    """The Conductor that the systems ``conductor…`` ask.

    Attributes:
        planner: ``provider:model``, a checkpoint folder, or ``worker:NAME`` of the pool; "": the
            bundled Conductor.
        base_url, api_key_env: of a ``provider:model``.
        max_steps: None: as many as the checkpoint was trained to write, else 5.
        rounds: the most rounds.
        cards: whether a prompted planner is shown what is known of the workers. None: yes, with
            the brief template.
        force: whether a trained planner takes workers that it was not trained with.
        on_no_plan: ``error``, or ``default_worker`` to measure what is served.
    """

    planner: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    max_steps: Positive | None = None
    rounds: Positive = 1
    cards: bool | None = None
    force: bool = False
    on_no_plan: OnNoPlan = "error"


@dataclass(frozen=True, slots=True)
class ConstrainedTable:
    """``[constrained.<worker>]``: replaces the worker's own sampling in the constrained setting.

    Attributes:
        max_tokens: the most output tokens.
        body: keeps its reasoning minimal (an effort, a thinking budget), in its provider's words.
    """

    max_tokens: Positive = CONSTRAINED_TOKENS
    body: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class LearnTable:
    """The questions that trained baselines learn from; every worker is asked them before.

    None of them may be evaluated.

    Attributes:
        task: a task that is evaluated, by its name, or another one of the registry; "": the first.
        path, split, revision, limit: as in ``TaskTable``.
        trials: how many collaborations are tried on each question.
    """

    task: str = ""
    path: str | None = None
    split: str = "train"
    revision: str | None = None
    limit: Positive = 200
    trials: Positive = 8


@dataclass(frozen=True, slots=True)
class SpendingTable:
    """The most that all runs of an evaluation may cost together; None: no limit."""

    dollars: Annotated[Decimal, Field(ge=0)] | None = None
    calls: Annotated[int, Field(ge=0)] | None = None

    def budget(self) -> Budget | None:
        """Return the limits as a Budget; None: nothing is limited."""
        if self.dollars is None and self.calls is None:
            return None
        return Budget(calls=self.calls, dollars=self.dollars)


@dataclass(frozen=True, slots=True)
class RayTable:
    """``[ray]``: the processes that ``eval --ray`` starts on a Ray cluster.

    Attributes:
        joiners: how many; None: one for each node.
        cpus, gpus: what Ray sets aside for each.
    """

    joiners: Positive | None = None
    cpus: Annotated[float, Field(ge=0)] = 1.0
    gpus: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """One evaluation.

    Attributes:
        name: names the run's folder.
        systems: names of systems.
        pool: a pool file, or ``gym``.
        repeats: how often each question is asked.
        seed: draws problems, orders of choices, the gym's answers and random workflows. None is 0
            where something must be drawn, and leaves choices in their published order.
        setting: ``constrained`` limits every worker's tokens and reasoning (paper, section 5).
        constrained: by the worker's name.
        against: the system that the others are compared with; "": the first.
        share_calls: lets systems that make the same call share its completion (common random
            numbers: cheaper, but their scores then depend on each other). Else each has its own.
        unsafe_code_exec: runs programs even where no sandbox works.
        undecided: the fate of an answer that its grader cannot decide. One that fails always masks.
        judge: the name of a worker of the pool that decides free-form answers which the rules
            cannot; what it leaves open is masked. "": none.
        concurrency: the most episodes that ask workers at once.
        journal: the PostgreSQL database (``postgresql://…``) that keeps calls and answers; "": a
            file in the run's folder.
        system: ``[[system]]`` tables; these systems stand behind those of ``systems``.
    """

    name: str = "eval"
    systems: tuple[str, ...] = ("conductor",)
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
    undecided: Undecided = "masked"
    judge: str = ""
    concurrency: Positive = 32
    budget: SpendingTable = SpendingTable()
    journal: str = ""
    ray: RayTable = RayTable()
    system: tuple[dict[str, Value], ...] = ()

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The systems, however they were written.

        Raises:
            ConfigError: a name or a table is wrong.
        """
        names = [read_spec(name) for name in self.systems]
        tables = [table_spec(table) for table in self.system]
        return (*names, *tables)

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
    values = read_toml(path)
    tables = [f"[{name}]" for name in _OF_TRAINING if name in values]
    if tables:
        raise ConfigError(
            f"{path}: has {', '.join(tables)}, so it is a recipe of `openconductor train`; "
            "expected one of an evaluation"
        )
    if "system" in values and "systems" not in values:
        overrides = ("systems=[]", *overrides)
    return _checked(load_toml(path, EvalConfig, overrides), str(path))


def make_eval_config(values: Mapping[str, object], *, where: str) -> EvalConfig:
    """Make a recipe of plain values; ``where`` names their source in errors.

    Raises:
        ConfigError: a key is unknown, or a value is out of its range.
    """
    if "system" in values:
        values = {"systems": [], **values}
    return _checked(validate(values, EvalConfig, where=where), where)


def _checked(config: EvalConfig, where: str) -> EvalConfig:
    """Check that there are systems, that no two tasks have one name, and the journal's URL."""
    if not config.systems and not config.system:
        raise ConfigError(f"{where}: systems: got none, expected at least one")
    # Tables and records use these names, too.
    learnt = config.learn.task or config.task[0].name
    taken = ("average", f"learn:{learnt}")
    names = Counter(taken)
    names.update(task.name for task in config.task)
    name, count = names.most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{where}: task: got {name!r} twice, expected each name once, "
            f"and none of {', '.join(taken)}"
        )
    if config.journal:
        _check_journal(config.journal, where)
    return config


def _check_journal(url: str, where: str) -> None:
    if database_url(url) is None:
        raise ConfigError(
            f"{where}: journal: got {url!r}, expected the URL of a database "
            "(postgresql://USER@HOST/DATABASE), or none: then a file in the run's folder"
        )
    parts = urlsplit(url)
    if parts.password is not None or "password" in dict(parse_qsl(parts.query)):
        raise ConfigError(
            f"{where}: journal: the URL holds a password, and the run's folder would keep it; "
            "expected it in PGPASSWORD or ~/.pgpass"
        )


def plain_config(config: EvalConfig) -> dict[str, object]:
    """Return the whole recipe as plain values, without what is None; decimals are texts."""
    values = asdict(config, dict_factory=_without_none)
    if not config.system:
        del values["system"]
    return cast("dict[str, object]", plain(values))


def _without_none(items: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in items if value is not None}


def dump_eval_config(config: EvalConfig) -> str:
    """Return the whole recipe as TOML that loads to the same.

    Raises:
        ConfigError: TOML cannot express a value.
    """
    return dump_toml(plain_config(config))


# ── differences ───────────────────────────────────────────────────────────────────────────────────
def differences(before: EvalConfig, now: EvalConfig, *, places: bool = False) -> list[str]:
    """Return the differences of two recipes on which answers or verdicts depend.

    Each is ``field: got …, expected …``. The paths of a pool file and of local data are compared
    only with ``places``, because a run keeps what is in them; so is the name of a database, which
    holds its own recipe.
    """
    free = list(_FREE_TO_CHANGE)
    if not places:
        free += [r"task \d+: path", "learn: path"]
        if GYM not in (before.pool, now.pool):
            free.append("pool")
        if now.journal:
            free.append("journal")
    may_change = re.compile(rf"({'|'.join(free)})\b")
    changed = what_differs(plain_config(before), plain_config(now))
    return [difference for difference in changed if not may_change.match(difference)]


def what_differs(before: object, now: object) -> list[str]:
    """Return the differences of two plain values, sorted: ``where: got …, expected …``."""
    old = dict(_leaves(before))
    new = dict(_leaves(now))
    lines: list[str] = []
    for where in sorted({**old, **new}):
        got = new.get(where, "null")
        expected = old.get(where, "null")
        if got != expected:
            lines.append(f"{where}: got {got}, expected {expected}")
    return lines


def _leaves(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each value that is no table and no list of tables."""
    if isinstance(value, dict):
        for name, child in cast("dict[str, object]", value).items():
            yield from _leaves(child, f"{where}: {name}" if where else name)
    elif _is_list_of_tables(value):
        for number, child in enumerate(cast("list[object]", value)):
            yield from _leaves(child, f"{where} {number}")
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
        yield where, textwrap.shorten(text, 100, placeholder="…")


def _is_list_of_tables(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(child, dict) for child in cast("list[object]", value))


# ── systems ───────────────────────────────────────────────────────────────────────────────────────
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
"""The beginning of the name of a system that is one worker alone."""
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
"""The kinds of systems."""
_ARGUMENTS = {PLANNER: ("model",), PLANNER_ALONE: ("model",)}
"""The key of a table that holds the argument, where it is not the name of a worker."""
WORKER_OPTIONS = ("worker", "aggregator")
"""Options of baselines that stand behind the colon of a name."""
_OPTIONS = re.compile(r"\?(?=[a-z_]+=)")


@dataclass(frozen=True, slots=True)
class Spec:
    """One system.

    Attributes:
        kind: one of ``KINDS``, or ``module:attribute``.
        argument: a worker, or the model of a planner; "": none.
        options: sorted by name.
    """

    kind: str
    argument: str = ""
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def name(self) -> str:
        """The name of the system in its one form, as in tables."""
        text = self.kind
        if self.argument:
            text += f":{self.argument}"
        separator = "?"
        for name, value in self.options:
            shown = str(value).lower() if isinstance(value, bool) else value
            text += f"{separator}{name}={shown}"
            separator = "&"
        return text


def read_spec(text: str) -> Spec:
    """Read the name of a system.

    Raises:
        ConfigError: the name is wrong; the message names the nearest kind.

    >>> read_spec(" consensus:gpt-5?n=5 ").name
    'consensus:gpt-5?n=5'
    >>> read_spec("conductor?subtasks=False&access=index").name
    'conductor?access=index&subtasks=false'
    >>> read_spec("mine:Vote:gpt-5?n=5")
    Spec(kind='mine:Vote', argument='gpt-5', options=(('n', 5),))
    """
    text = text.strip()
    head, *tail = _OPTIONS.split(text, maxsplit=1)
    parts = split_name(head, {*KINDS, *_HIDDEN}, "baseline")
    kind, colon, argument = (part.strip() for part in parts)
    _check_kind(kind, f"system {text!r}")
    if colon and not argument:
        raise ConfigError(f"system {text!r}: nothing behind the colon; expected a name")
    options: dict[str, Value] = {}
    for pair in tail[0].split("&") if tail else ():
        name, _, value = (part.strip() for part in pair.partition("="))
        if not (name and value) or name in options:
            raise ConfigError(
                f"system {text!r}: got {pair!r}, expected option=value, each option once"
            )
        options[name] = _read_value(value)
    return Spec(kind, argument, tuple(sorted(options.items())))


def table_spec(table: Mapping[str, Value]) -> Spec:
    """Read a ``[[system]]`` table.

    ``use`` is the kind. ``worker`` (``aggregator``, ``model``) is the argument; all other keys are
    options.

    Raises:
        ConfigError: the kind is unknown, or the argument is not a text.

    >>> table_spec({"use": "consensus", "worker": "gpt-5", "n": 5}).name
    'consensus:gpt-5?n=5'
    """
    options = dict(table)
    where = f"[[system]] {dict(table)}"
    kind = str(options.pop("use", ""))
    _check_kind(kind, where)
    argument: Value = ""
    for key in _ARGUMENTS.get(kind, WORKER_OPTIONS):
        argument = options.pop(key, argument)
    if not isinstance(argument, str):
        raise ConfigError(f"{where}: got {argument!r}, expected the name of a worker or a model")
    return Spec(kind, argument, tuple(sorted(options.items())))


def expand(specs: Iterable[Spec], workers: Iterable[str]) -> list[Spec]:
    """Replace ``workers`` by one system for each worker, in order.

    Raises:
        ConfigError: two systems are the same, or ``workers`` has options.
    """
    names = list(workers)
    expanded: list[Spec] = []
    for spec in specs:
        if spec.kind == WORKERS:
            if spec.argument or spec.options:
                raise ConfigError(f"system {spec.name!r}: {WORKERS!r} takes no name and no options")
            alone = [Spec(WORKER, name) for name in names]
            expanded += [one for one in alone if one not in expanded]
        elif spec in expanded:
            raise ConfigError(f"system {spec.name!r}: named twice, expected each once")
        else:
            expanded.append(spec)
    return expanded


def _check_kind(kind: str, where: str) -> None:
    """Check that a kind is known, or may be a baseline from elsewhere."""
    if kind not in KINDS and ":" not in kind:
        known = (*KINDS, *registered({}, "baseline"), "worker:NAME", "module:attribute")
        one_of(where, kind, known)


def _read_value(text: str) -> Value:
    """Read the value of an option: a switch, a number, or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]+\.[0-9]+", text):
        return float(text)
    return text


# ── systems in tables and figures ─────────────────────────────────────────────────────────────────
GROUPS = ("Orchestrators", "Baselines", "Workers alone", "Bounds", "Ablations")
"""The groups of systems in tables and figures, in this order."""
_TITLES = {
    "best_fixed": "best fixed workflow",
    HINDSIGHT: "best in hindsight",
    PLANNER_ALONE: "planner alone",
}


def group_of(system: str) -> str:
    """Return the group of a system, by its name."""
    orchestrators, baselines, workers, bounds, ablations = GROUPS
    kind = re.split(r"[:?]", system, maxsplit=1)[0]
    if kind in (CONDUCTOR, PLANNER):
        return ablations if "?" in system else orchestrators
    if kind in (WORKER, PLANNER_ALONE):
        return workers
    return bounds if kind in BOUNDS else baselines


def short_name(system: str) -> str:
    """Return the name of a system as tables and figures write it beside others of its group.

    >>> [short_name(name) for name in ("worker:jack", "conductor?access=none")]
    ['jack', 'access=none']
    >>> [short_name(name) for name in ("consensus:jack?n=5", "oracle_observed")]
    ['consensus (jack, n=5)', 'best in hindsight']
    """
    named, _, options = system.partition("?")
    kind, _, argument = named.partition(":")
    details = ", ".join(filter(None, (argument, *options.split("&"))))
    if kind in (CONDUCTOR, WORKER):
        return details or system
    if details and kind in BASELINES:
        return f"{kind} ({details})"
    return _TITLES.get(system, system)


def against_in(systems: Sequence[str], named: str) -> str:
    """Return the system that the others are compared with; ``named`` "": the first.

    Raises:
        ConfigError: the one that is named is not among them, or is hindsight.
    """
    if not named:
        return next((system for system in systems if system != HINDSIGHT), systems[0])
    name = named if named in systems else read_spec(named).name
    if name == HINDSIGHT:
        raise ConfigError(
            f"against: {name!r} chose by the answers themselves; expected a system that answers"
        )
    if name not in systems:
        raise ConfigError(f"against: got {name!r}, expected one of {', '.join(systems)}")
    return name


def find_planner(
    named: str | None,
    pool: WorkerPool,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    simulated: bool = True,
) -> Planner:
    """Return the planner that ``--conductor`` names.

    Args:
        named: ``provider:model``, a checkpoint folder, or ``worker:NAME``; None: the bundled one.
        pool: the workers.
        base_url: the URL of a ``provider:model``.
        key_env: the environment variable with its key.
        simulated: True if the workers are simulated, as the bundled Conductor requires.

    Raises:
        ConfigError: the planner is unknown, does not take a URL or a key, or is the bundled one
            over workers that are not simulated.
    """
    from openconductor.conductor import find_in_pool
    from openconductor.pool import Worker
    from openconductor.providers import PROVIDERS, create

    options = {"base_url": base_url, "api_key_env": key_env}
    options = {name: value for name, value in options.items() if value is not None}
    if named is None:
        if options:
            raise ConfigError(
                "--conductor-base-url, --conductor-key-env: require --conductor provider:model"
            )
        return _bundled_conductor(simulated)
    planner = find_in_pool(named, pool)
    if not options:
        return planner
    if isinstance(planner, Worker):
        raise ConfigError(
            f"--conductor {named}: takes its URL and key from the pool file, got them as options "
            "too"
        )
    kind, _, name = split_name(named, PROVIDERS, "provider")
    if not (kind and name):
        raise ConfigError(
            f"--conductor {named!r}: got a URL or a key for it, expected 'provider:model'"
        )
    return create(kind, name, **options)


def _bundled_conductor(simulated: bool) -> str:
    """Return the folder of the bundled Conductor."""
    from openconductor.pool import simulated_pool

    gym = simulated_pool(GYM)
    if gym is None or not simulated:
        raise ConfigError(
            "conductor: the bundled Conductor knows only the gym, got a pool file; expected "
            "--conductor provider:model, a checkpoint folder, or worker:NAME of the pool"
        )
    return str(gym.conductor)
