"""What a recipe names, made and described: questions, workers, planners, and the systems that are asked.

In: an EvalConfig, Specs, a journal to answer from; for trained baselines Lessons. Out: Sheets, a
WorkerPool, Systems, and descriptions as plain values, which a run keeps and a resumed run must find
the same. Nothing is asked here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from openconductor.baselines import baseline_options, make_baseline
from openconductor.baselines.observed import Observations, text_of
from openconductor.baselines.pools import changed_pool
from openconductor.baselines.rewired import ablated
from openconductor.calls.worker import Worker
from openconductor.conductor import Conductor
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
    ConstrainedTable,
    EvalConfig,
    Spec,
    TaskTable,
    find_planner,
)
from openconductor.evaluation.records import Plain, Record, observations
from openconductor.pool import POOLS, WorkerPool, open_pool
from openconductor.protocols import Grader, Orchestrator, Provider
from openconductor.providers import resolve
from openconductor.providers.conductor_file import (
    ConductorFile,
    question_digest,
    read_conductor_file,
)
from openconductor.store import CompletionStore
from openconductor.store.serialisation import dumps, plain
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Budget, Problem

if TYPE_CHECKING:
    from openconductor.baselines.collaboration import Trial
    from openconductor.sandboxes import Sandbox

EXPLORER = "explorer"
"""What plays the trials that MASRouter learns from, beside the workers alone."""
UNLIMITED = "unlimited"
ABLATIONS = (
    "access",
    "calls",
    "examples",
    "max_steps",
    "one_worker",
    "rounds",
    "sequential",
    "subtasks",
)
"""The options of ``conductor`` and ``planner``; ``calls`` is a question's budget, which unlimited rounds need."""

_TAUGHT = ("observations", "trials")  # options that are Lessons
_TRAINED = ("router", "controller")  # options that name what was trained before
_ARGUMENTS = ("worker", "aggregator")  # options that are said behind the colon
_OF_PYTHON = ("key", "workflow")  # options that no text can say


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Sheet:
    """The questions of one task, under the name that records give it, with their judge.

    ``described`` is how many there are, a digest of what is asked and what is right, and where they
    came from.
    """

    name: str
    problems: Sequence[Problem]
    grader: Grader
    described: Plain


def load_sheets(config: EvalConfig) -> dict[str, Sheet]:
    """The questions of every task by its name.

    Raises:
        ConfigError: there is no such task or option.
        TaskError: the data are absent or not what they were, or two problems have one id.
    """
    return {table.name: _sheet(table.name, table, config) for table in config.task}


def load_learning(config: EvalConfig, evaluated: Iterable[Sheet]) -> Sheet:
    """The questions that trained baselines learn from, none of those that are evaluated.

    Raises:
        ConfigError: there is no such task or option.
        TaskError: the data are absent, or one of the questions is evaluated, too.
    """
    learn, path = config.learn, config.learn.path
    name = learn.task or config.task[0].name
    same = next((one for one in config.task if one.name == name), TaskTable(name))
    if path is None and same.path is not None and Path(same.path).is_dir():
        path = same.path  # the splits lie side by side
    table = TaskTable(name, same.task, path, learn.split, learn.revision, learn.limit, config.seed)
    try:
        sheet = _sheet(f"learn:{table.name}", table, config)
    except TaskError as error:
        raise TaskError(
            f"learn, what trained systems learn from (path, task, split of [learn]): {error}"
        ) from error
    tested = {problem.question for one in evaluated for problem in one.problems}
    if both := [problem.id for problem in sheet.problems if problem.question in tested]:
        raise TaskError(
            f"learn: {len(both)} of {len(sheet.problems)} questions are evaluated, too ({both[0]!r} among them); "
            "expected others: another split, path or task"
        )
    return sheet


def open_for(sheets: Iterable[Sheet], config: EvalConfig) -> tuple[Sandbox | None, list[Sheet]]:
    """The sandbox of the graders that run programs, and the sheets with these graders in it.

    It is opened before anything is asked: without one nobody could judge.
    """
    sheets = list(sheets)
    if "openconductor.graders.code" not in sys.modules:  # then no sheet has such a grader
        return None, sheets
    from openconductor.graders.code import CodeGrader
    from openconductor.sandboxes import open_sandbox

    if not any(isinstance(sheet.grader, CodeGrader) for sheet in sheets):
        return None, sheets
    sandbox = open_sandbox(unsafe=config.unsafe_code_exec)
    return sandbox, [
        replace(sheet, grader=CodeGrader(sheet.grader.mode, sandbox))
        if isinstance(sheet.grader, CodeGrader)
        else sheet
        for sheet in sheets
    ]


def _sheet(name: str, table: TaskTable, config: EvalConfig) -> Sheet:
    options = {
        option: value for option, value in asdict(table).items() if option not in ("name", "task")
    }
    task = load_task(
        table.task or table.name,
        **{**options, "seed": config.seed if table.seed is None else table.seed},
    )
    problems = task.load()
    simulation = find_simulation(config.pool)
    if simulation is not None and not all(simulation.is_readable(one.question) for one in problems):
        raise _unreadable(name, config.pool)
    (most, count), *_ = Counter(problem.id for problem in problems).most_common(1) or [("", 0)]
    if count != 1:
        got = f"{count} problems of the id {most!r}" if count else "no problem"
        raise TaskError(f"task {name}: got {got}, expected problems with an id each")
    digest = blake2b(digest_size=16, person=b"oc-problems")
    for one in problems:
        digest.update(dumps([one.id, one.question, one.reference, one.kind]).encode())
    described = {
        "problems": len(problems),
        "digest": digest.hexdigest(),
        "source": task.source.record(),
    }
    return Sheet(name, problems, task.grader, described)


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def load_pool(config: EvalConfig) -> WorkerPool:
    """The workers, in the setting of the recipe.

    Raises:
        ConfigError: the pool file is wrong, the recipe limits a worker that is not there, or the
            simulated workers of another task were to answer.
    """
    asked = (*(one.task or one.name for one in config.task), config.learn.task)
    simulated = find_simulation(config.pool) is not None
    for name in asked:
        # Of a task from elsewhere the questions are looked at.
        if simulated and name in TASKS and name != config.pool:
            raise _unreadable(name, config.pool)
    pool = open_pool(config.pool, config.seed or 0)
    for name in config.constrained:
        pool.ordinal_of(name)  # raises where there is none

    def constrained(worker: Worker) -> Worker:
        limits = config.constrained.get(worker.name, ConstrainedTable())
        tokens = min(worker.sampling.max_tokens or CONSTRAINED_TOKENS, limits.max_tokens)
        body = MappingProxyType({**worker.sampling.body, **limits.body})
        return replace(worker, sampling=replace(worker.sampling, max_tokens=tokens, body=body))

    return pool if config.setting == "unconstrained" else changed_pool(pool, constrained)


def _unreadable(task: str, pool: str) -> ConfigError:
    """Return the error for simulated workers, whose answers to other questions would count as wrong."""
    return ConfigError(
        f"task {task}: got the {pool}'s simulated workers, which can read only the {pool}'s questions; "
        "expected a pool file: --pool FILE"
    )


# ── systems ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class System:
    """Something that answers, under the name that tables give it; ``budget`` is what one question may cost it."""

    name: str
    orchestrator: Orchestrator
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Lessons:
    """What trained baselines learn from: every worker alone, and collaborations drawn at random."""

    observations: Observations
    trials: tuple[Trial, ...] = ()


def lessons_of(records: Iterable[Record], sheet: Sheet, pool: WorkerPool) -> Lessons:
    """The lessons in the records of one sheet: those of the workers alone, and of the explorer."""
    from openconductor.baselines.collaboration import trial_of

    found = sorted(
        (one for one in records if one.task == sheet.name),
        key=lambda one: (one.problem, one.system, one.sample),
    )
    questions = {problem.id: problem.question for problem in sheet.problems}
    texts = {problem: text_of(question) for problem, question in questions.items()}
    trials = [
        trial_of(
            questions[one.problem],
            texts[one.problem],
            one.workflows[0],
            pool,
            right=float(one.correct),
            cost=None if one.usage.unpriced_calls else float(one.usage.dollars),
        )
        for one in found
        if one.system == EXPLORER and one.correct is not None and one.workflows
    ]
    seen = observations(found, texts, [worker.name for _, worker in pool])
    return Lessons(seen, tuple(one for one in trials if one is not None))


class Workshop:
    """Makes the systems of one evaluation; each planner is loaded once for all of its ablations.

    Args:
        config: the recipe.
        pool: the workers, in its setting.
    """

    def __init__(self, config: EvalConfig, pool: WorkerPool) -> None:
        self.pool = pool
        self.journal: CompletionStore | None = (
            None  # where finished calls are found; None where there are none to find
        )
        self._config = config
        self._seed = config.seed or 0
        self._planners: dict[str, Provider | Worker] = {}
        self._learnt: dict[str, ConductorFile] = {}

    def make(self, spec: Spec, lessons: Lessons | None = None) -> System:
        """The system of a spec; a trained baseline needs lessons (``learns``).

        Raises:
            ConfigError: it names what there is not, or an option that it does not take or that is
                out of its range.
        """
        if spec.kind in (CONDUCTOR, PLANNER):
            return self._conductor(spec)
        alone = spec.kind == PLANNER_ALONE
        pool = WorkerPool([self._alone(spec)]) if alone else self.pool
        pool = pool if self.journal is None else pool.replaying(self.journal)
        if alone:
            return System(spec.name, make_baseline("single", pool, worker=0))
        if spec.kind == WORKER:
            return System(
                spec.name, make_baseline("single", pool, worker=pool.ordinal_of(spec.argument))
            )
        if spec.kind == ORACLE:
            simulation = find_simulation(self._config.pool)
            if simulation is None:
                raise ConfigError(
                    "only simulated workers have one, got a pool file; expected oracle_observed"
                )
            plan = partial(simulation.oracle_workflow, pool=pool)
            return System(spec.name, make_baseline("planned", pool, plan=plan))
        given: dict[str, object] = {
            "seed": self._seed,
            **dict(spec.options),
            _argument(spec): spec.argument or None,
        }
        if lessons is not None:
            given |= {name: getattr(lessons, name) for name in _TAUGHT}
        known = baseline_options(spec.kind)
        options = {
            name: value for name, value in given.items() if name in known and value is not None
        }
        return System(spec.name, make_baseline(spec.kind, pool, **options))

    def check(self, spec: Spec) -> None:
        """Make sure that the system can be made, before anything is paid for: one that learns of made-up lessons.

        Raises:
            ConfigError: it cannot; the message names the system, and the nearest of an option that
                is not known.
        """
        try:
            _check_names(spec)
            if spec.kind != HINDSIGHT:
                self.make(spec, self._made_up() if learns(spec, self._config) else None)
        except ConfigError as error:
            raise ConfigError(f"system {spec.name!r}: {error}") from error

    def check_held_out(self, sheets: Iterable[Sheet]) -> None:
        """Make sure that no planner learnt from what it is evaluated on; to be called after ``check``.

        Raises:
            TaskError: one did, or from others of the same split.
        """
        for sheet, (name, said) in product(sheets, self._learnt.items()):
            source, known = (
                cast("Plain", sheet.described["source"]),
                frozenset(said.learnt_questions),
            )
            splits = {f"{one.task}/{source['split']}" for one in sheet.problems} & {
                *said.learnt_splits
            }
            both = sum(question_digest(one.question) in known for one in sheet.problems)
            if splits or both:
                what = (
                    f"drawn from {', '.join(sorted(splits))}"
                    if splits
                    else f"{both} of {len(sheet.problems)}"
                )
                raise TaskError(
                    f"task {sheet.name}: got questions that {name} learnt from ({what}); expected others: another "
                    "split, path or task"
                )

    def described(self, specs: Sequence[Spec]) -> Plain:
        """All that an answer, or its cost, depends on, as plain values; to be called after ``check``.

        That is the workers (those that are only asked alone read no cards), what is behind each
        planner by its name, and a digest of each file that a system was trained to before by its
        path, if there are any.
        """
        cards = ("description",) if any(spec.kind != WORKER for spec in specs) else ()
        told = ("name", "identity", *cards, "price", "sampling")
        workers = [
            {"ordinal": place, **{name: plain(getattr(one, name)) for name in told}}
            for place, one in self.pool
        ]
        planned = [spec for spec in specs if spec.kind in (CONDUCTOR, PLANNER, PLANNER_ALONE)]
        planners = {spec.argument or CONDUCTOR: self._planner(spec).identity for spec in planned}
        paths = sorted(
            {str(value) for spec in specs for name, value in spec.options if name in _TRAINED}
        )
        trained = {
            path: blake2b(Path(path).read_bytes(), digest_size=16).hexdigest() for path in paths
        }
        return {
            "workers": workers,
            "planners": planners,
            **({"trained": trained} if trained else {}),
        }

    async def aclose(self) -> None:
        """Close the connections of workers and planners on the running event loop."""
        await self.pool.aclose()
        for planner in self._planners.values():
            await (planner.resolved if isinstance(planner, Worker) else planner).aclose()

    def _made_up(self) -> Lessons:
        from openconductor.baselines.collaboration import Trial

        names = tuple(worker.name for _, worker in self.pool)
        seen = Observations(
            ("Question?",), names, ((1.0,) * len(names),), (("Answer.",) * len(names),)
        )
        return Lessons(seen, tuple(Trial("Question?", "io", (name,), 1.0, 0.0) for name in names))

    def _alone(self, spec: Spec) -> Worker:
        """The model that plans as a worker, which is sent the question and nothing else."""
        planner = self._planner(spec)
        return planner if isinstance(planner, Worker) else Worker(planner, name=PLANNER_ALONE)

    def _planner(self, spec: Spec) -> Provider | Worker:
        name, table = spec.argument, self._config.conductor
        if name not in self._planners:
            if spec.kind != PLANNER_ALONE and bool(name) != (spec.kind == PLANNER):
                expected = "planner:PROVIDER:MODEL" if not name else "'conductor' and options"
                raise ConfigError(f"got {name!r} behind {spec.kind}; expected {expected}")
            told = {} if name else {"base_url": table.base_url, "key_env": table.api_key_env}
            found = find_planner(
                name or table.planner or None,
                self.pool,
                simulated=self._config.pool in POOLS,
                **told,
            )
            if isinstance(found, str) and Path(found).is_dir():
                self._learnt[name or CONDUCTOR] = read_conductor_file(Path(found))
            self._planners[name] = found if isinstance(found, Worker) else resolve(found)
        return self._planners[name]

    def _conductor(self, spec: Spec) -> System:
        table = self._config.conductor
        options: dict[str, Any] = {
            "rounds": table.rounds,
            "max_steps": table.max_steps,
            **dict(spec.options),
        }
        if options["rounds"] == UNLIMITED:
            if "calls" not in options:
                raise ConfigError(
                    "unlimited rounds go on until a budget ends; expected calls=N beside, the most calls of a question"
                )
            options["rounds"] = None
        for name in ("calls", "max_steps", "rounds"):
            if (value := options.get(name)) is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} {value!r}, expected a whole number from 1")
        for name in ("sequential", "subtasks"):
            if not isinstance(options.get(name, True), bool):
                raise ConfigError(f"{name} {options[name]!r}, expected true or false")
        calls = options.pop("calls", None)
        conductor = Conductor(
            self._planner(spec), pool=self.pool, max_steps=options.pop("max_steps")
        )
        if self.journal is not None:
            conductor = conductor.replaying(self.journal)
        return System(
            spec.name, ablated(conductor, **options), None if calls is None else Budget(calls=calls)
        )


def learns(spec: Spec, config: EvalConfig, what: str = "observations") -> bool:
    """Whether a system learns from questions that are not evaluated: from ``observations``, or from ``trials``, too.

    The best fixed workflow of simulated workers is known.
    """
    known = spec.kind == "best_fixed" and find_simulation(config.pool) is not None
    if known or spec.kind in (CONDUCTOR, PLANNER, PLANNER_ALONE, WORKER, ORACLE, HINDSIGHT):
        return False
    return what in baseline_options(spec.kind) and not set(_TRAINED) & set(dict(spec.options))


def _check_names(spec: Spec) -> None:
    """Make sure that a spec has the name and the options that its kind takes."""
    taken: Sequence[str] = ()
    if spec.kind in (CONDUCTOR, PLANNER, PLANNER_ALONE):
        taken, named = () if spec.kind == PLANNER_ALONE else ABLATIONS, spec.argument
    else:
        named = _argument(spec)
        if spec.kind not in (WORKER, ORACLE, HINDSIGHT):
            unsaid = (*_TAUGHT, *_ARGUMENTS, *_OF_PYTHON)
            taken = [name for name in baseline_options(spec.kind) if name not in unsaid]
    if named and not spec.argument:
        raise ConfigError(f"no worker, expected {spec.kind}:NAME")
    if spec.argument and not named:
        raise ConfigError(f"takes no name, got {spec.argument!r}; expected {spec.kind}")
    for name, _ in spec.options:
        check_option(name, taken, spec.kind)


def _argument(spec: Spec) -> str:
    """What a system calls the worker that is named behind its colon; "" where it takes none."""
    if spec.kind in (WORKER, ORACLE, HINDSIGHT):
        return WORKER if spec.kind == WORKER else ""
    known = baseline_options(spec.kind)
    return next((name for name in _ARGUMENTS if name in known), "")
