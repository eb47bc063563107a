"""What an evaluation's answers depend on beside its recipe: the questions and the workers, loaded and described.

In: an EvalConfig. Out: Sheets, a WorkerPool, and their description as plain values: a run keeps it, and a resumed run
must find the same. Nothing is asked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from openconductor.baselines.pools import changed_pool
from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation.cells import Sheet
from openconductor.evaluation.config import CONSTRAINED_TOKENS, GYM, ConstrainedTable, EvalConfig, LearnTable, TaskTable
from openconductor.graders.code import CodeGrader
from openconductor.gym.workers import gym_pool
from openconductor.pool import WorkerPool
from openconductor.sandboxes import Sandbox, open_sandbox
from openconductor.serialisation import dumps, plain
from openconductor.tasks import Benchmark, load_task
from openconductor.types import Problem
from openconductor.worker import Worker

Plain = Mapping[str, object]
"""Values as JSON has them."""


def check_tasks(config: EvalConfig) -> None:
    """Make sure that every task is there, and that the gym's workers are asked nothing but the gym.

    Raises:
        ConfigError: there is no such task or option, or the gym's workers were to answer another one.
    """
    for table in config.task:
        _task(table, config.seed)
        _check_readers(table.name, config)


def load_sheets(config: EvalConfig) -> dict[str, tuple[Sheet, Plain]]:
    """The questions of every task, and their description, by the task's name.

    Raises:
        ConfigError: there is no such task or option.
        TaskError: the data are absent or not what they were, or two problems have one id.
    """
    return {table.name: _sheet(table.name, _task(table, config.seed)) for table in config.task}


def load_learning(config: EvalConfig, evaluated: Mapping[str, tuple[Sheet, Plain]]) -> tuple[Sheet, Plain]:
    """The questions that trained baselines learn from, and their description.

    Args:
        config: the recipe.
        evaluated: what ``load_sheets`` loaded; none of these questions may be learnt from.

    Raises:
        ConfigError: there is no such task or option, or the gym's workers were to answer another one than the gym.
        TaskError: the data are absent, or one of the questions is evaluated, too.
    """
    table = _learn_table(config.learn, config)
    _check_readers(table.name, config)
    try:
        sheet, described = _sheet(f"learn:{table.name}", _task(table, config.seed))
    except TaskError as error:
        raise TaskError(f"learn, what trained systems learn from (path, task, split of [learn]): {error}") from error
    tested = {problem.question for one, _ in evaluated.values() for problem in one.problems}
    both = [problem.id for problem in sheet.problems if problem.question in tested]
    if both:
        raise TaskError(
            f"learn: {len(both)} of {len(sheet.problems)} questions are evaluated, too ({both[0]!r} among them); "
            "expected others: another split, path or task"
        )
    return sheet, described


def open_for(sheets: Mapping[str, tuple[Sheet, Plain]], *, unsafe: bool) -> Sandbox | None:
    """The sandbox of the graders that run programs; None where none does. To be closed by the caller.

    It is opened before anything is asked: where no sandbox works, answers would be paid for that nobody can judge.

    Raises:
        SandboxError: none works here, and ``unsafe`` is off.
    """
    if not any(isinstance(sheet.grader, CodeGrader) for sheet, _ in sheets.values()):
        return None
    return open_sandbox(unsafe=unsafe)


def in_sandbox(sheet: Sheet, sandbox: Sandbox | None) -> Sheet:
    """The same questions, judged in this sandbox where programs judge them."""
    if sandbox is None or not isinstance(sheet.grader, CodeGrader):
        return sheet
    return replace(sheet, grader=CodeGrader(sheet.grader.mode, sandbox))


def load_pool(config: EvalConfig) -> WorkerPool:
    """The workers, in the setting of the recipe.

    Raises:
        ConfigError: the pool file is wrong, or the recipe limits a worker that is not there.
    """
    pool = gym_pool(config.seed or 0) if config.pool == GYM else WorkerPool.from_toml(Path(config.pool))
    for name in config.constrained:
        pool.ordinal_of(name)  # raises where there is none
    if config.setting == "unconstrained":
        return pool
    return changed_pool(pool, lambda worker: _constrained(worker, config.constrained.get(worker.name)))


def describe_pool(pool: WorkerPool) -> list[Plain]:
    """The workers as plain values: all that an answer, or what it costs, depends on."""
    return [
        {
            "ordinal": ordinal,
            "name": worker.name,
            "identity": worker.identity,
            "description": worker.description,
            "price": None
            if worker.price is None
            else {k: format(v, "f") for k, v in asdict(worker.price).items() if v is not None},
            "sampling": plain(worker.sampling),
        }
        for ordinal, worker in pool
    ]


def describe_problems(problems: Sequence[Problem]) -> Plain:
    """How many problems, and a digest of what is asked and what is right."""
    digest = blake2b(digest_size=16, person=b"oc-problems")
    for problem in problems:
        digest.update(dumps([problem.id, problem.question, problem.reference, problem.kind]).encode())
    return {"problems": len(problems), "digest": digest.hexdigest()}


def _check_readers(task: str, config: EvalConfig) -> None:
    # Simulations that can read no other question: what they answered to one would be scored as wrong.
    if config.pool == GYM and task != GYM:
        raise ConfigError(
            f"task {task}: got the gym's simulated workers, which can read only the gym's questions; expected a pool "
            "file: --pool FILE"
        )


def _learn_table(learn: LearnTable, config: EvalConfig) -> TaskTable:
    first = config.task[0]
    path = learn.path
    if path is None and first.path is not None and learn.task in ("", first.name) and Path(first.path).is_dir():
        path = first.path  # the splits lie side by side
    return TaskTable(learn.task or first.name, path, learn.split, learn.revision, learn.limit, config.seed)


def _task(table: TaskTable, seed: int | None) -> Benchmark:
    options = {option: value for option, value in asdict(table).items() if option != "name"}
    return load_task(table.name, **{**options, "seed": seed if table.seed is None else table.seed})


def _sheet(name: str, task: Benchmark) -> tuple[Sheet, Plain]:
    problems = task.load()
    (most, count), *_ = Counter(problem.id for problem in problems).most_common(1) or [("", 0)]
    if count != 1:
        got = f"{count} problems of the id {most!r}" if count else "no problem"
        raise TaskError(f"task {name}: got {got}, expected problems with an id each")
    return Sheet(name, problems, task.grader), {**describe_problems(problems), "source": task.source.record()}


def _constrained(worker: Worker, limits: ConstrainedTable | None) -> Worker:
    limits = limits or ConstrainedTable()
    sampling = worker.sampling
    own = sampling.max_tokens or CONSTRAINED_TOKENS
    body = MappingProxyType({**sampling.body, **limits.body})
    return replace(worker, sampling=replace(sampling, max_tokens=min(own, limits.max_tokens), body=body))
