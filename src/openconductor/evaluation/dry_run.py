"""Check what an evaluation needs, and estimate what it will cost, before anything is paid for.

The checks are of names, files, keys, prices, questions, a sandbox and a folder. Nothing stops at
the first fault, and nobody is asked. Trainings and servers share the checks of pools, keys and
tasks.

For the estimates each system is played on a few questions. Stand-ins answer at once in place of
workers and planners, so that the number of calls is what the system itself makes. The length of
answers and plans is assumed (the constants below). Simulated workers answer themselves, because
they cost nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from openconductor.baselines.single import SingleWorker
from openconductor.calls.budget import RunBudget, check_price
from openconductor.calls.cards import Calibrations
from openconductor.calls.options import guess_tokens
from openconductor.checklist import Checklist
from openconductor.errors import OpenConductorError, SandboxError, TaskError
from openconductor.evaluation import Outcome, grid, records, sheets, systems
from openconductor.evaluation.eval_config import (
    EvalConfig,
    Spec,
    TaskTable,
    expand,
)
from openconductor.evaluation.sheets import Sheet
from openconductor.evaluation.systems import System, Workshop
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.store import check_store, place_name
from openconductor.tasks import Benchmark, load_task
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Completion, Message, Problem, Sampling, Step, Usage, Workflow

STEPS = 3
"""The steps of a workflow."""
ANSWER_TOKENS = 700
"""The tokens that a worker writes in a call."""
PLAN_TOKENS = 400
"""The tokens that a planner writes in a call."""
ASSUMED = (
    f"assumed: {STEPS} steps a workflow, {ANSWER_TOKENS} tokens an answer, {PLAN_TOKENS} a plan, "
    "no repeated attempts"
)
QUESTION = "word " * 100
"""Stands for a question that is not here."""

_PLAYED = 2  # questions of each task


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
    kept = None
    if folder is not None:
        kept = checklist.attempt("folder", partial(records.kept_calibrations, folder))
    workshop = check_names(config, checklist, kept)
    if config.journal and not offline:
        checklist.attempt("journal", partial(_check_database, config.journal, checklist))
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
    if config.judge:
        check = partial(sheets.check_judge, config.judge, workshop.pool, loaded)
        if checklist.attempt("judge", check):
            checklist.ready("judge", config.judge)
    if folder is not None and all(sheet.described for sheet in loaded):
        described = grid.describe(workshop, specs, evaluated, learning)
        checklist.attempt("folder", lambda: records.check_folder(folder, config, described))
    if not checklist.is_right:
        return DryRun(checklist)
    asked = grid.asked_systems(specs, workshop.pool.names.values())
    needs = await estimate_needs(config, workshop, asked, evaluated, learning)
    return DryRun(checklist, tuple(needs))


def _check_database(url: str, checklist: Checklist) -> None:
    check_store(url)
    checklist.ready("journal", place_name(url))


def check_names(
    config: EvalConfig, checklist: Checklist, calibrations: Calibrations | None = None
) -> Workshop | None:
    """Check the names, local files, keys and prices of a recipe, without reading its questions.

    Args:
        config: the recipe.
        checklist: gets every check.
        calibrations: those of the run that is resumed; None: those of the pool file.

    Returns:
        The workshop of its systems; None: the pool is wrong.
    """
    # Before the pool, because a local worker's model takes long to load.
    known = [table for table in config.task if _check_table(table, config, checklist)]
    pool = checklist.attempt("pool", lambda: systems.load_pool(config, known, calibrations))
    if pool is None:
        return None
    check_pool(config.pool, pool, checklist)
    workshop = Workshop(config, pool)
    specs = checklist.attempt("systems", lambda: expand(config.specs, pool.names.values())) or []
    for spec in specs:
        checklist.attempt("systems", partial(workshop.check, spec))
    if specs:
        names = [spec.name for spec in specs]
        checklist.attempt("against", partial(grid.check_comparable, names, config))
        if checklist.is_right:
            checklist.ready("systems", f"{len(names)}: {', '.join(names)}")
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
    options.pop("split", None)
    task = check_task(table.name, checklist, name, split=table.split, **options)
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


# ── estimates ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class SystemNeeds:
    """What a system asks of workers and planners in a whole evaluation.

    Attributes:
        system: its name; ``learning`` for the questions that trained systems learn from.
        calls, tokens: how many.
        dollars: None: a price is unknown.
    """

    system: str
    calls: int
    tokens: int
    dollars: Decimal | None


async def estimate_needs(
    config: EvalConfig,
    workshop: Workshop,
    asked: Sequence[Spec],
    evaluated: Sequence[Sheet],
    learning: Sheet | None,
) -> list[SystemNeeds]:
    """Estimate what each system asks for, and what the trained ones learn from.

    Args:
        config: the recipe.
        workshop: makes the systems; every one of them is checked.
        asked: the systems.
        evaluated: the questions that are evaluated.
        learning: the questions that trained systems learn from; None: no system learns.
    """
    if find_simulation(config.pool) is None:
        steps = min(STEPS, config.conductor.max_steps or STEPS)
        plan = partial(_StandIn, ordinals=workshop.pool.ordinals, steps=steps)
        workshop = workshop.replacing(worker=_StandIn, planner=plan)
    needs: list[SystemNeeds] = []
    for spec in asked:
        needs.append(await _play(workshop.make_untrained(spec), evaluated, config.repeats))
    answers = [(sheet, len(asked) * config.repeats) for sheet in evaluated]
    if learning is not None:
        parts: list[SystemNeeds] = []
        for teachers, repeats in workshop.make_teachers(systems.count_trials(asked, config)):
            answers.append((learning, len(teachers) * repeats))
            for teacher in teachers:
                parts.append(await _play(teacher, [learning], repeats))
        needs.append(add_up("learning", parts))
    if config.judge:
        needs.append(await _judge_needs(config.judge, workshop.pool, answers))
    return needs


def add_up(name: str, parts: Sequence[SystemNeeds]) -> SystemNeeds:
    """Return the needs of several systems together."""
    dollars = [part.dollars for part in parts if part.dollars is not None]
    return SystemNeeds(
        name,
        sum(part.calls for part in parts),
        sum(part.tokens for part in parts),
        sum(dollars, Decimal(0)) if len(dollars) == len(parts) else None,
    )


async def _play(system: System, sheets: Sequence[Sheet], repeats: int) -> SystemNeeds:
    """Play a system on the first questions of each task, and scale up what it used."""
    calls = tokens = dollars = Decimal(0)
    unpriced = 0
    for sheet in sheets:
        played = sheet.problems[:_PLAYED]
        times = Decimal(len(sheet.problems) * repeats) / max(1, len(played))
        for number, problem in enumerate(played):
            context = CallContext(sample=number)
            try:
                episode = await system.orchestrator.ask(
                    problem.question, budget=system.budget, context=context
                )
            except OpenConductorError as error:  # the question's own budget is spent
                if error.episode is None:
                    raise
                episode = error.episode
            record = records.record_of(Outcome(problem, episode, None), system=system.name)
            calls += times * record.calls
            tokens += times * record.usage.tokens
            dollars += times * record.usage.dollars
            unpriced += record.usage.unpriced_calls
    known = None if unpriced else dollars
    return SystemNeeds(system.name, round(calls), round(tokens), known)


async def _judge_needs(
    name: str, pool: WorkerPool, answers: Sequence[tuple[Sheet, int]]
) -> SystemNeeds:
    """Estimate what a judge is asked at most: about every answer, each as long as it may be.

    ``answers`` are the sheets, each with the number of answers to each of its questions.
    """
    from openconductor.evaluation.undecided import may_be_judged
    from openconductor.graders.freeform import JUDGED_CHARACTERS, judge_prompt

    judge = System(name, SingleWorker(pool, name))
    longest = "a" * JUDGED_CHARACTERS
    parts: list[SystemNeeds] = []
    for sheet, times in answers:
        asked: list[Problem] = []
        for problem in sheet.problems:
            if may_be_judged(problem, sheet.grader):
                prompt = judge_prompt(problem, str(problem.reference), longest)
                asked.append(replace(problem, question=prompt))
        parts.append(await _play(judge, [replace(sheet, problems=asked)], times))
    return add_up(f"judge {name}, at most", parts)


class _StandIn(Provider):
    """Answers at once in place of another provider, and costs as much.

    With ``steps`` it plans: each workflow has that number of steps, which go around ``ordinals``.
    """

    def __init__(self, provider: Provider, ordinals: Sequence[int] = (), steps: int = 0) -> None:
        self.prices_itself = provider.prices_itself and not provider.nests
        self._unpriced = int(provider.nests)  # the prices of its workers are not known here
        self._ordinals = ordinals
        self._steps = steps

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Answer with a text of the assumed length, or of the call's token limit."""
        read, most = guess_tokens(messages, sampling)
        assumed = PLAN_TOKENS if self._steps else ANSWER_TOKENS
        written = min(assumed, most or assumed)
        text = "word " * written
        if self._steps:
            count = len(self._ordinals)
            places = [(call.sample + step) % count for step in range(self._steps)]
            steps = [Step(self._ordinals[place], "Solve it.", "all") for place in places]
            text = render_workflow(Workflow(tuple(steps)))
        return Completion(
            text, usage=Usage(max(read, 1), 0, written, unpriced_calls=self._unpriced)
        )
