"""The systems of an evaluation: workers, planners and baselines, made of a recipe's specs.

A ``Workshop`` makes and checks them. Their descriptions are plain values that a run keeps, and that
a resumed run must find unchanged. Nothing is asked here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from openconductor.baselines import baseline_needs, baseline_options, make_baseline
from openconductor.baselines.collaboration import Trial, trial_of
from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import changed_pool, check_count
from openconductor.baselines.rewired import ablated
from openconductor.calls.cards import Calibrations
from openconductor.calls.worker import Worker
from openconductor.conductor import Conductor, prompted
from openconductor.config import check_option
from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation.eval_config import (
    CONDUCTOR,
    CONSTRAINED_TOKENS,
    HINDSIGHT,
    ORACLE,
    PLANNER,
    PLANNER_ALONE,
    WORKER,
    WORKER_OPTIONS,
    ConstrainedTable,
    EvalConfig,
    Spec,
    TaskTable,
    find_planner,
)
from openconductor.evaluation.records import Plain, Record, observations
from openconductor.evaluation.sheets import Sheet, open_task, unreadable
from openconductor.pool import POOLS, WorkerPool, open_pool, reach
from openconductor.protocols import Orchestrator, Provider
from openconductor.providers import resolve
from openconductor.providers.conductor_file import (
    ConductorFile,
    question_digest,
    read_conductor_file,
)
from openconductor.store import CompletionStore
from openconductor.store.serialisation import load, plain
from openconductor.store.storage import write_whole
from openconductor.tasks import TASKS
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Budget, text_of

EXPLORER = "explorer"
"""The baseline that plays the trials of MASRouter."""
LESSONS = "lessons.json"
"""The file of a run that holds its lessons."""
UNLIMITED = "unlimited"
ABLATIONS = (
    "access",
    "calls",
    "cards",
    "examples",
    "max_steps",
    "on_no_plan",
    "one_worker",
    "previous",
    "rounds",
    "sequential",
    "subtasks",
    "template",
)
"""The options of ``conductor`` and ``planner``; ``calls`` is the budget of a question."""

_PLANNED = (CONDUCTOR, PLANNER, PLANNER_ALONE)
_LESSONS = {Observations: "observations", Trial: "trials"}
"""The option of a baseline that takes each kind of lessons."""
_TRAINED = "router"
"""The option that names the file of a trained baseline."""
_CHOSEN = "workers"
"""The option that names the workers of a baseline, which then learns nothing."""
_OF_PYTHON = ("key", "workflow")
"""Options that no text can express."""


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def load_pool(
    config: EvalConfig,
    tables: Sequence[TaskTable] | None = None,
    calibrations: Calibrations | None = None,
) -> WorkerPool:
    """Load the workers, in the setting of the recipe.

    Args:
        config: the recipe.
        tables: the tasks whose recorded answers the workers give; None: all of the recipe.
        calibrations: the measurements on the workers' cards; None: those of the pool file.

    Raises:
        ConfigError: the pool file is wrong, the recipe limits an unknown worker, or the simulated
            workers of another task would be asked.
    """
    if find_simulation(config.pool) is not None:
        asked = [table.task or table.name for table in config.task]
        for task in (*asked, config.learn.task):
            # The questions of a task from elsewhere are looked at when they are loaded.
            if task in TASKS and task != config.pool:
                raise unreadable(task, config.pool)
    pool = open_pool(config.pool, config.seed or 0, calibrations=calibrations)
    recorded = config.task if tables is None else tables
    for table in recorded:
        pool = open_task(table, config).with_records(pool)
    for name in config.constrained:
        pool.ordinal_of(name)  # raises if there is none
    if config.setting == "unconstrained":
        return pool
    return changed_pool(pool, lambda worker: _constrained(worker, config))


def _constrained(worker: Worker, config: EvalConfig) -> Worker:
    """Return the worker with the limits of the constrained setting."""
    limits = config.constrained.get(worker.name, ConstrainedTable())
    tokens = min(worker.sampling.max_tokens or CONSTRAINED_TOKENS, limits.max_tokens)
    body = MappingProxyType({**worker.sampling.body, **limits.body})
    return replace(worker, sampling=replace(worker.sampling, max_tokens=tokens, body=body))


# ── lessons ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Lessons:
    """The lessons of trained baselines: answers of every worker alone, and of random teams."""

    observations: Observations
    trials: tuple[Trial, ...] = ()


def lessons_of(records: Iterable[Record], sheet: Sheet, pool: WorkerPool) -> Lessons:
    """Return the lessons in the records of one sheet."""
    questions = {problem.id: problem.question for problem in sheet.problems}
    texts = {problem: text_of(question) for problem, question in questions.items()}
    asked = [record for record in records if record.task == sheet.name]
    asked.sort(key=lambda record: (record.problem, record.system, record.sample))
    trials: list[Trial] = []
    for record in asked:
        if record.system == EXPLORER and record.correct is not None and record.workflows:
            trial = trial_of(
                questions[record.problem],
                texts[record.problem],
                record.workflows[0],
                pool,
                right=float(record.correct),
            )
            if trial is not None:
                trials.append(trial)
    names = [worker.name for _, worker in pool]
    return Lessons(observations(asked, texts, names), tuple(trials))


def write_lessons(folder: Path, lessons: Lessons) -> None:
    """Write lessons into the folder of a run, so that its trained baselines can be made again."""
    write_whole(folder / LESSONS, json.dumps(plain(lessons)) + "\n")


def read_lessons(folder: Path) -> Lessons:
    """Read the lessons of a run.

    Raises:
        ConfigError: the run kept none, or the file is damaged.
    """
    path = folder / LESSONS
    try:
        return load(Lessons, json.loads(path.read_text("utf-8")))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder}: no {LESSONS}, because an earlier version made the run, or it was stopped "
            f"before everything was learnt; `openconductor eval --out {folder}` writes it, and "
            "asks no answered question again"
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}; delete it, and `openconductor eval --out {folder}` "
            "writes it again"
        ) from error


def check_trained_files(spec: Spec, environment: Plain) -> None:
    """Check that the file of a trained baseline is the one that a run was made with.

    Raises:
        ConfigError: it is missing, or was changed since.
    """
    path = dict(spec.options).get(_TRAINED)
    if path is None:
        return
    inputs = cast("dict[str, Any]", environment.get("inputs", {}))
    digest = inputs.get("trained", {}).get(str(path))
    try:
        unchanged = digest in (None, _file_digest(str(path)))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; expected the file of the run") from error
    if not unchanged:
        raise ConfigError(
            f"{path}: was changed after the run; expected the file that was measured, or a new run"
        )


def needs(spec: Spec, config: EvalConfig) -> tuple[type, ...]:
    """Return the kinds of lessons that a system learns from; empty: it learns nothing."""
    if spec.kind in (*_PLANNED, WORKER, ORACLE, HINDSIGHT):
        return ()
    if not {_TRAINED, _CHOSEN}.isdisjoint(dict(spec.options)):
        return ()
    if spec.kind == "best_fixed" and find_simulation(config.pool) is not None:
        return ()  # the best fixed workflow of simulated workers is known
    return baseline_needs(spec.kind)


def learns(specs: Iterable[Spec], config: EvalConfig) -> bool:
    """Return True if a system learns from questions."""
    return any(needs(spec, config) for spec in specs)


def count_trials(specs: Iterable[Spec], config: EvalConfig) -> int:
    """Return how many collaborations are tried on each question that systems learn from."""
    if any(Trial in needs(spec, config) for spec in specs):
        return config.learn.trials
    return 0


# ── systems ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class System:
    """An orchestrator under its name in tables; ``budget`` is the most that a question may cost."""

    name: str
    orchestrator: Orchestrator
    budget: Budget | None = None


class Workshop:
    """Makes the systems of one evaluation; each planner is loaded once for all of its ablations.

    Args:
        config: the recipe.
        pool: the workers, in its setting.

    Attributes:
        pool: the workers.
        journal: answers calls that were finished before; None: there are none.
    """

    def __init__(self, config: EvalConfig, pool: WorkerPool) -> None:
        self.pool = pool
        self.journal: CompletionStore | None = None
        self._config = config
        self._seed = config.seed or 0
        self._numbered = False
        self._planners: dict[str, Provider | Worker] = {}
        self._learnt: dict[str, ConductorFile] = {}

    def make(self, spec: Spec, lessons: Lessons | None = None) -> System:
        """Make a system; a trained baseline needs lessons (``needs``).

        Raises:
            ConfigError: a name or an option is unknown, or a value is out of its range.
        """
        if spec.kind in (CONDUCTOR, PLANNER):
            return self._conductor(spec)
        return System(spec.name, self._baseline(spec, lessons))

    def make_untrained(self, spec: Spec) -> System:
        """Make a system; one that learns is made of invented lessons. Raises as ``make``."""
        learning = needs(spec, self._config)
        return self.make(spec, self._invented_lessons() if learning else None)

    def make_teachers(self, trials: int) -> list[tuple[list[System], int]]:
        """Return the systems whose answers are lessons, with how often each question is asked.

        These are every worker alone and, where collaborations are tried, their explorer.
        """
        alone = [self.make(Spec(WORKER, worker.name)) for _, worker in self.pool]
        if not trials:
            return [(alone, 1)]
        return [(alone, 1), ([self.make(Spec(EXPLORER))], trials)]

    def check(self, spec: Spec) -> None:
        """Check that a system can be made, before anything is paid for.

        Raises:
            ConfigError: it cannot be made. The message names the system, and the nearest known
                option.
        """
        try:
            _check_argument(spec)
            _check_options(spec)
            if spec.kind != HINDSIGHT:
                self.make_untrained(spec)
        except ConfigError as error:
            raise ConfigError(f"system {spec.name!r}: {error}") from error

    def check_held_out(self, sheets: Iterable[Sheet]) -> None:
        """Check that no planner learnt from what it is evaluated on; call it after ``check``.

        Raises:
            TaskError: a planner learnt from these questions, or from others of the same split.
        """
        for sheet in sheets:
            for name, learnt in self._learnt.items():
                overlap = _overlap(sheet, learnt)
                if overlap:
                    raise TaskError(
                        f"task {sheet.name}: got questions that {name} learnt from ({overlap}); "
                        "expected others: another split, path or task"
                    )

    @property
    def planners(self) -> list[Provider]:
        """The models that plan; call it after ``check``."""
        return [_provider_of(planner) for planner in self._planners.values()]

    def replacing(
        self, *, worker: Callable[[Provider], Provider], planner: Callable[[Provider], Provider]
    ) -> Workshop:
        """Return a workshop with other providers of workers and planners, none of them limited.

        Call it after ``check``. Names, prices and sampling stay.
        """
        pool = changed_pool(self.pool, lambda one: _with_provider(one, worker(one.resolved)))
        workshop = Workshop(self._config, pool)
        for name, known in self._planners.items():
            provider = planner(_provider_of(known))
            if isinstance(known, Worker):
                workshop._planners[name] = _with_provider(known, provider)
            else:
                workshop._planners[name] = provider
        return workshop

    def described(self, specs: Sequence[Spec]) -> Plain:
        """Describe everything that an answer, or its cost, depends on; call it after ``check``.

        These are the workers, the models behind the planners by name, the weights of planners that
        are asked alone, the cards that prompted planners are shown, and a digest of each file of a
        trained baseline by its path. Descriptions of workers count only where somebody reads them.
        """
        fields = ["name", "identity", "price", "sampling"]
        if any(spec.kind != WORKER for spec in specs):
            fields.insert(2, "description")
        workers: list[dict[str, object]] = []
        for ordinal, worker in self.pool:
            values = {name: plain(getattr(worker, name)) for name in fields}
            workers.append({"ordinal": ordinal, **values})
        planned = [spec for spec in specs if spec.kind in _PLANNED]
        planners = {spec.argument or CONDUCTOR: self._planner(spec).identity for spec in planned}
        described: dict[str, object] = {"workers": workers, "planners": planners}
        alone = [spec for spec in planned if spec.kind == PLANNER_ALONE and spec.argument]
        weights = {spec.argument: _provider_of(self._planner(spec)).weights() for spec in alone}
        if any(weights.values()):
            described["weights"] = weights
        writers = [self._planner(spec) for spec in planned if spec.kind != PLANNER_ALONE]
        if any(_provider_of(writer).prompt_options is None for writer in writers):
            described["cards"] = {str(key): card for key, card in self.pool.full_cards.items()}
        options = [dict(spec.options) for spec in specs]
        paths = sorted({str(given[_TRAINED]) for given in options if _TRAINED in given})
        if paths:
            described["trained"] = {path: _file_digest(path) for path in paths}
        return described

    async def reach(self, specs: Sequence[Spec], *, learns: bool) -> None:
        """Connect to all that systems may ask, and to the judge; call it after ``check``.

        Args:
            specs: the systems.
            learns: True if every worker is asked for lessons, too.

        Raises:
            Unreachable: names each that could not be reached.
        """
        names = {spec.argument for spec in specs if spec.kind == WORKER} | {self._config.judge}
        if learns or any(spec.kind not in (WORKER, PLANNER_ALONE) for spec in specs):
            names = set(self.pool.names.values())
        workers = [worker for _, worker in self.pool if worker.name in names]
        planned = any(spec.kind in _PLANNED for spec in specs)
        planners = self._planners.values() if planned else ()
        await reach([*workers, *planners])

    async def aclose(self) -> None:
        """Close the connections of workers and planners on the running event loop."""
        await self.pool.aclose()
        for planner in self._planners.values():
            await _provider_of(planner).aclose()

    # ── the Conductor and its ablations ───────────────────────────────────────────────────────────
    def _conductor(self, spec: Spec) -> System:
        table = self._config.conductor
        options: dict[str, Any] = {
            "rounds": table.rounds,
            "max_steps": table.max_steps,
            "on_no_plan": table.on_no_plan,
            "cards": table.cards,
            "template": None,
        }
        options.update(spec.options)
        if options["rounds"] == UNLIMITED:
            if "calls" not in options:
                raise ConfigError("unlimited rounds require calls=N, the most calls of a question")
            options["rounds"] = None
        _check_ablation(options)
        calls = options.pop("calls", None)
        max_steps = options.pop("max_steps")
        conductor = Conductor(
            self._planner(spec),
            pool=self.pool,
            max_steps=max_steps,
            on_no_plan=options.pop("on_no_plan"),
            force=table.force,
        )
        self._number_workers(conductor.pool)
        conductor = prompted(
            conductor, template=options.pop("template"), cards=options.pop("cards")
        )
        if self.journal is not None:
            conductor = conductor.replaying(self.journal)
        budget = None if calls is None else Budget(calls=calls)
        return System(spec.name, ablated(conductor, **options), budget)

    def _number_workers(self, pool: WorkerPool) -> None:
        """Give all systems the ordinals by which a trained planner knows the workers of its pool.

        Raises:
            ConfigError: another planner knows them by other ordinals.
        """
        if all(self.pool.names.get(ordinal) == name for ordinal, name in pool.names.items()):
            return
        if self._numbered:
            raise ConfigError(
                "the planners were trained with these workers under different numbers; evaluate "
                "each planner in a run of its own"
            )
        self._numbered = True
        self.pool = self.pool.numbered({name: ordinal for ordinal, name in pool.names.items()})

    def _planner(self, spec: Spec) -> Provider | Worker:
        """Return the model that plans, loaded once."""
        name = spec.argument
        if name not in self._planners:
            if spec.kind == CONDUCTOR and name:
                raise ConfigError(
                    f"got {name!r} behind conductor; expected 'conductor' and options"
                )
            if spec.kind == PLANNER and not name:
                raise ConfigError("got '' behind planner; expected planner:PROVIDER:MODEL")
            self._planners[name] = self._load_planner(name)
        return self._planners[name]

    def _load_planner(self, name: str) -> Provider | Worker:
        """Load a planner; "": the one of the recipe."""
        table = self._config.conductor
        options: dict[str, str | None] = {}
        if not name:
            options = {"base_url": table.base_url, "key_env": table.api_key_env}
        planner = find_planner(
            name or table.planner or None,
            self.pool,
            simulated=self._config.pool in POOLS,
            **options,
        )
        if isinstance(planner, str) and Path(planner).is_dir():
            self._learnt[name or CONDUCTOR] = read_conductor_file(Path(planner))
        return planner if isinstance(planner, Worker) else resolve(planner)

    # ── baselines ─────────────────────────────────────────────────────────────────────────────────
    def _baseline(self, spec: Spec, lessons: Lessons | None) -> Orchestrator:
        pool = self.pool
        if spec.kind == PLANNER_ALONE:
            planner = self._planner(spec)
            if not isinstance(planner, Worker):
                planner = Worker(planner, name=PLANNER_ALONE)
            pool = WorkerPool([planner])
        if self.journal is not None:
            pool = pool.replaying(self.journal)
        if spec.kind == PLANNER_ALONE:
            return make_baseline("single", pool, worker=0)
        if spec.kind == WORKER:
            return make_baseline("single", pool, worker=pool.ordinal_of(spec.argument))
        if spec.kind == ORACLE:
            return self._oracle(pool)
        options = dict[str, object](spec.options)
        known = baseline_options(spec.kind)
        if "seed" in known:
            options.setdefault("seed", self._seed)
        if spec.argument:
            options[_argument_option(spec)] = spec.argument
        if lessons is not None:
            for needed in baseline_needs(spec.kind):
                options[_LESSONS[needed]] = getattr(lessons, _LESSONS[needed])
        return make_baseline(spec.kind, pool, **options)

    def _oracle(self, pool: WorkerPool) -> Orchestrator:
        simulation = find_simulation(self._config.pool)
        if simulation is None:
            raise ConfigError("only simulated workers have an oracle; expected oracle_observed")
        plan = partial(simulation.oracle_workflow, pool=pool)
        return make_baseline("planned", pool, plan=plan)

    def _invented_lessons(self) -> Lessons:
        """Return lessons that every trained baseline can be made of."""
        names = tuple(worker.name for _, worker in self.pool)
        right = ((1.0,) * len(names),)
        answers = (("Answer.",) * len(names),)
        trials = tuple(Trial("Question?", "io", (name,), 1.0) for name in names)
        return Lessons(Observations(("Question?",), names, right, answers), trials)


def _provider_of(planner: Provider | Worker) -> Provider:
    return planner.resolved if isinstance(planner, Worker) else planner


def _with_provider(worker: Worker, provider: Provider) -> Worker:
    """Return a worker over another provider, without its limits."""
    return replace(worker, provider=provider, max_concurrency=None, rpm=None, tpm=None)


def _overlap(sheet: Sheet, learnt: ConductorFile) -> str:
    """Return what a planner has learnt of the questions of a sheet; "": nothing."""
    split = cast("Plain", sheet.described["source"])["split"]
    splits = {f"{problem.task}/{split}" for problem in sheet.problems}
    shared = splits.intersection(learnt.learnt_splits)
    if shared:
        return f"drawn from {', '.join(sorted(shared))}"
    known = frozenset(learnt.learnt_questions)
    count = sum(question_digest(problem.question) in known for problem in sheet.problems)
    return f"{count} of {len(sheet.problems)}" if count else ""


def _file_digest(path: str) -> str:
    return blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


# ── names and options ─────────────────────────────────────────────────────────────────────────────
def _check_ablation(options: dict[str, Any]) -> None:
    """Check the values of a Conductor's options, as far as ``ablated`` does not."""
    for name in ("calls", "max_steps"):
        if options.get(name) is not None:
            check_count(name, options[name], 1)
    for name in ("cards", "sequential", "subtasks"):
        if not isinstance(options.get(name, True), bool | None):
            raise ConfigError(f"{name} {options[name]!r}, expected true or false")


def _check_argument(spec: Spec) -> None:
    """Check that a name stands behind the colon exactly where the kind takes one."""
    if spec.kind in _PLANNED:
        return  # checked when the planner is loaded
    takes_name = bool(_argument_option(spec))
    if takes_name and not spec.argument:
        raise ConfigError(f"no worker, expected {spec.kind}:NAME")
    if spec.argument and not takes_name:
        raise ConfigError(f"takes no name, got {spec.argument!r}; expected {spec.kind}")


def _check_options(spec: Spec) -> None:
    """Check that the kind takes each option."""
    known: Sequence[str] = ()
    if spec.kind in (CONDUCTOR, PLANNER):
        known = ABLATIONS
    elif spec.kind not in (PLANNER_ALONE, WORKER, ORACLE, HINDSIGHT):
        hidden = (*_LESSONS.values(), *WORKER_OPTIONS, *_OF_PYTHON)
        known = [name for name in baseline_options(spec.kind) if name not in hidden]
    for name, _ in spec.options:
        check_option(name, known, spec.kind)


def _argument_option(spec: Spec) -> str:
    """Return the option that takes the name behind the colon; "": there is none."""
    if spec.kind == WORKER:
        return WORKER
    if spec.kind in (ORACLE, HINDSIGHT):
        return ""
    known = baseline_options(spec.kind)
    return next((name for name in WORKER_OPTIONS if name in known), "")
