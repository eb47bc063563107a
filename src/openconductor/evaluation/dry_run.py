"""Check what an evaluation needs: names, files, keys, prices, questions, a sandbox, a folder.

Nothing stops at the first fault, and nobody is asked. Trainings and servers share the checks of
pools, keys and tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from openconductor.calls.budget import RunBudget, check_price
from openconductor.checklist import Checklist
from openconductor.errors import SandboxError, TaskError
from openconductor.evaluation import grid, records, sheets, systems
from openconductor.evaluation.costs import QUESTION, SystemNeeds, estimate_needs
from openconductor.evaluation.eval_config import EvalConfig, TaskTable, against_in, expand
from openconductor.evaluation.sheets import Sheet
from openconductor.evaluation.systems import Workshop
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.protocols import Provider
from openconductor.tasks import Benchmark, load_task
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Problem


# ── shared with trainings and servers ─────────────────────────────────────────────────────────────
def check_pool(name: str, pool: WorkerPool, checklist: Checklist) -> None:
    """Add the workers of a pool to a checklist."""
    names = list(pool.names.values())
    checklist.ready("pool", f"{name}: {len(names)} workers ({', '.join(names)})")


def check_keys(
    name: str, pool: WorkerPool, checklist: Checklist, planners: Iterable[Provider] = ()
) -> None:
    """Check that the environment has the keys of workers and planners."""
    missing = missing_keys(pool, planners)
    if missing:
        checklist.absent("keys", f"not set in the environment: {', '.join(missing)}")
    elif simulated_pool(name) is None:
        checklist.ready("keys", "all are set")


def missing_keys(pool: WorkerPool, planners: Iterable[Provider] = ()) -> tuple[str, ...]:
    """Return the environment variables that workers and planners name and that are not set."""
    keys: set[str | None] = set()
    for provider in (*(worker.resolved for _, worker in pool), *planners):
        keys |= {provider.api_key_env, *provider.variables}
    return tuple(sorted(key for key in keys if key and not os.environ.get(key)))


def check_task(
    section: str, checklist: Checklist, name: str, *, split: str | None, **options: object
) -> Benchmark | None:
    """Check the name of a task, of its split, and that its local file is there.

    Returns:
        The task, of which nothing is read; None: something is wrong.
    """
    path = options.get("path")

    def check() -> Benchmark:
        task = load_task(name, **options)
        if split:
            task.check_split(split)
        if path and not Path(str(path)).exists():
            raise TaskError(f"{section}: task {name}: {path}: no such file or folder")
        return task

    task = checklist.attempt(section, check)
    if task is None:
        return None
    where = str(path or "in the package")
    if task.hub_names:
        where = f"of the hub: {', '.join(dict.fromkeys(task.hub_names))}"
    elif find_simulation(name) is not None:
        where = "drawn"
    checklist.ready(section, f"task {name}, split {split or task.splits[0]}, {where}")
    return task


# ── evaluations ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        checklist: every check.
        needs: what each system asks for; (): something is wrong.
    """

    checklist: Checklist
    needs: tuple[SystemNeeds, ...] = ()


async def check_evaluation(
    config: EvalConfig, folder: Path | None = None, *, offline: bool
) -> DryRun:
    """Check everything that an evaluation needs, and estimate what it will cost.

    Args:
        config: the recipe.
        folder: of the run, if one was named.
        offline: True fetches nothing: questions of the hub are absent.
    """
    checklist = Checklist()
    workshop = check_names(config, checklist)
    if workshop is None or not checklist.is_right:
        return DryRun(checklist)
    specs = expand(config.specs, workshop.pool.names.values())
    evaluated: list[Sheet] = []
    for table in config.task:
        load = partial(sheets.load_sheet, table, config)
        evaluated.append(_load(table, load, config, checklist, offline=offline))
    learning = None
    if systems.learns(specs, config):
        table = sheets.learning_table(config)
        load = partial(sheets.load_learning, config, evaluated)
        learning = _load(table, load, config, checklist, offline=offline)
    loaded = [*evaluated, learning] if learning else evaluated
    await _check_sandbox(config, loaded, checklist)
    checklist.attempt("held out", lambda: workshop.check_held_out(evaluated))
    if folder is not None and all(sheet.described for sheet in loaded):
        described = grid.describe(workshop, specs, evaluated, learning)
        checklist.attempt("folder", lambda: records.check_folder(folder, config, described))
    if not checklist.is_right:
        return DryRun(checklist)
    asked = grid.asked_systems(specs, workshop.pool.names.values())
    needs = await estimate_needs(config, workshop, asked, evaluated, learning)
    return DryRun(checklist, tuple(needs))


def check_names(config: EvalConfig, checklist: Checklist) -> Workshop | None:
    """Check the names, local files, keys and prices of a recipe, without reading its questions.

    Returns:
        The workshop of its systems; None: the pool is wrong.
    """
    # Before the pool, because a local worker's model takes long to load.
    known = [table for table in config.task if _check_table(table, config, checklist)]
    pool = checklist.attempt("pool", lambda: systems.load_pool(config, known))
    if pool is None:
        return None
    check_pool(config.pool, pool, checklist)
    workshop = Workshop(config, pool)
    specs = checklist.attempt("systems", lambda: expand(config.specs, pool.names.values())) or []
    for spec in specs:
        checklist.attempt("systems", partial(workshop.check, spec))
    if specs:
        names = [spec.name for spec in specs]
        checklist.attempt("against", lambda: against_in(names, config.against))
        if checklist.is_right:
            checklist.ready("systems", f"{len(names)}: {', '.join(names)}")
    if len(specs) > 1 and find_spec("scipy") is None:
        install = "pip install 'openconductor[eval]'"
        checklist.wrong("packages", f"the extra eval is not installed: {install}")
    if systems.learns(specs, config):
        table = checklist.attempt("questions", lambda: sheets.learning_table(config))
        if table is not None:
            _check_table(table, config, checklist)
    budget = config.budget.budget()
    if budget is not None:
        for _, worker in pool:
            checklist.attempt("budget", partial(check_price, RunBudget(budget), worker))
    check_keys(config.pool, pool, checklist, workshop.planners)
    return workshop


def _check_table(table: TaskTable, config: EvalConfig, checklist: Checklist) -> bool:
    """Check the names and the file of a task of the recipe; return True if they are right."""
    options = sheets.task_options(table, config)
    name = str(options.pop("task"))
    split = options.pop("split", None)
    split_name = str(split) if split else None
    task = check_task(table.name, checklist, name, split=split_name, **options)
    return task is not None


def _load(
    table: TaskTable,
    load: Callable[[], Sheet],
    config: EvalConfig,
    checklist: Checklist,
    *,
    offline: bool,
) -> Sheet:
    """Load the questions of a task; a sheet without a description stands for what is not here."""
    task = sheets.open_task(table, config)
    if offline and task.hub_names:
        names = ", ".join(dict.fromkeys(task.hub_names))
        text = f"{table.name}: not fetched offline (needs the network): {names}"
        checklist.absent("questions", text)
        count = min(filter(None, (table.limit, task.published_rows(table.split))), default=0)
        return Sheet(table.name, (Problem("", QUESTION, "", ""),) * count, task.grader, {})
    sheet = checklist.attempt("questions", load)
    if sheet is None:
        return Sheet(table.name, (), task.grader, {})
    checklist.ready("questions", f"{table.name}: {len(sheet.problems):,}")
    return sheet


async def _check_sandbox(config: EvalConfig, loaded: Sequence[Sheet], checklist: Checklist) -> None:
    """Check that a sandbox works if a grader runs programs."""
    try:
        sandbox, _ = sheets.open_for(loaded, config)
    except SandboxError as error:
        checklist.absent("sandbox", str(error))
        return
    if sandbox is not None:
        checklist.ready("sandbox", sandbox.level)
        await sandbox.aclose()
