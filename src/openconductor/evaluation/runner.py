"""One evaluation from recipe to tables, in a folder that it can be resumed from at any moment.

In: an EvalConfig and a folder. Out: in that folder ``config.toml``, ``environment.json``, ``journal.sqlite`` (every
call, and a record a question), ``table.json``, ``table.md``, ``table.csv``, ``table.tex``, ``latency.json``; Results.

Phases, each asked as one grid: first what trained baselines learn from (every worker alone, on questions that are not
evaluated, and for MASRouter trials of collaborations), then the systems. Where systems share calls, they come one after
the other, so that which of two equal calls is paid for does not depend on timing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from openconductor.baselines.collaboration import Trial, trial_of
from openconductor.baselines.observed import text_of
from openconductor.budget import check_price
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.cells import Cell, Sheet, cells_of
from openconductor.evaluation.config import EvalConfig
from openconductor.evaluation.folder import JOURNAL, check_folder, write_folder
from openconductor.evaluation.grid import Grid, OnProgress
from openconductor.evaluation.inputs import (
    Plain,
    check_tasks,
    describe_pool,
    in_sandbox,
    load_learning,
    load_pool,
    load_sheets,
    open_for,
)
from openconductor.evaluation.latency import latency
from openconductor.evaluation.planner import Planners
from openconductor.evaluation.records import Record, from_json
from openconductor.evaluation.results import Results, observations
from openconductor.evaluation.specs import HINDSIGHT, WORKER, Spec, expand
from openconductor.evaluation.systems import EXPLORER, Lessons, Workshop, describe_trained, explores, learns
from openconductor.evaluation.table import Table, against_in, make_table
from openconductor.evaluation.table_forms import table_files
from openconductor.journal import Journal
from openconductor.policies import LONG_PATIENCE_S, patient
from openconductor.pool import WorkerPool
from openconductor.sandboxes import Sandbox
from openconductor.storage import make_folder, write_whole


async def run_grid(
    config: EvalConfig, folder: str | Path, *, retry_failed: bool = False, on_progress: OnProgress | None = None
) -> Results:
    """Ask every system every question, as often as the recipe says, and write the tables.

    Args:
        config: the recipe.
        folder: where the run is written; one that holds the same evaluation, whole or cut off, is gone on with.
        retry_failed: whether to ask again what failed (transport, provider, time) in an earlier run.
        on_progress: told after each question.

    Returns:
        The records, in order.

    Raises:
        ConfigError: the recipe names what there is not, or the folder holds something else; the message says what.
        TaskError: data are absent or changed.
        BudgetExceeded: the evaluation's budget is spent; the tables show what there is, with a larger one it goes on.
        AuthFailed, JournalError: nothing more can be asked, or kept; what was kept stays.
    """
    folder = Path(folder)
    config.check()
    plan = _Plan.of(config)
    spent: BudgetExceeded | None = None
    try:
        resumed = check_folder(folder, config, plan.described)
        make_folder(folder)
        with Journal(folder / JOURNAL) as journal:
            level = None if plan.sandbox is None else plan.sandbox.level
            write_folder(folder, config, plan.described, sandbox=level)
            try:
                with patient(LONG_PATIENCE_S):
                    await _Run(plan, journal, retry_failed=retry_failed and resumed, on_progress=on_progress).play()
            except BudgetExceeded as error:
                spent = error
    finally:
        await plan.aclose()
    results = Results.load(folder)
    write_tables(results, folder)
    if spent is not None:
        raise spent
    return results


def write_tables(results: Results, folder: Path) -> Table:
    """Write the table in all its forms, and the latencies, into a run's folder.

    Raises:
        ConfigError: the recipe compares with a system that is not in it.
        JournalError: the disk failed.
    """
    table = make_table(results)
    for name, text in table_files(table).items():
        write_whole(folder / name, text)
    write_whole(folder / "latency.json", json.dumps(latency(results), indent=2) + "\n")
    return table


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is going to be asked, checked before anything is paid for."""

    config: EvalConfig
    specs: tuple[Spec, ...]
    planners: Planners
    sheets: tuple[Sheet, ...]
    learn: Sheet | None
    described: Plain
    sandbox: Sandbox | None

    @classmethod
    def of(cls, config: EvalConfig) -> _Plan:
        check_tasks(config)
        planners = Planners(config, load_pool(config))
        specs = tuple(expand(config.systems, (worker.name for _, worker in planners.pool)))
        against_in([spec.name for spec in specs], config.against)  # raises where there is none
        if len(specs) > 1 and find_spec("numpy") is None:
            raise ConfigError(
                "eval: no numpy, which comparisons of systems need; expected the extra: pip install "
                "'openconductor[baselines]'"
            )
        workshop = Workshop(config, planners, None)
        for spec in specs:
            workshop.check(spec)
        loaded = load_sheets(config)
        learnt = load_learning(config, loaded) if any(learns(spec, config) for spec in specs) else None
        described: Plain = {
            "workers": describe_pool(planners.pool),
            "planners": planners.described(specs),
            "tasks": {name: plain for name, (_, plain) in loaded.items()},
            "learn": None if learnt is None else learnt[1],
        }
        if trained := describe_trained(specs):
            described = {**described, "trained": trained}
        sandbox = open_for({**loaded, **({} if learnt is None else {"learn": learnt})}, unsafe=config.unsafe_code_exec)
        sheets = tuple(in_sandbox(sheet, sandbox) for sheet, _ in loaded.values())
        learn = None if learnt is None else in_sandbox(learnt[0], sandbox)
        return cls(config, specs, planners, sheets, learn, described, sandbox)

    async def aclose(self) -> None:
        """Let go of connections and of the sandbox."""
        await self.planners.aclose()
        if self.sandbox is not None:
            await self.sandbox.aclose()

    @property
    def asked(self) -> list[Spec]:
        """What is really asked: hindsight only looks back, at every worker."""
        asked = [spec for spec in self.specs if spec.kind != HINDSIGHT]
        if len(asked) < len(self.specs):
            alone = (Spec(WORKER, worker.name) for _, worker in self.planners.pool)
            asked += [spec for spec in alone if spec not in asked]
        return asked


class _Run:
    """One run of a plan: what its journal lacks is asked."""

    def __init__(
        self, plan: _Plan, journal: Journal, *, retry_failed: bool, on_progress: OnProgress | None = None
    ) -> None:
        self._plan = plan
        self._config = config = plan.config
        self._journal = journal
        self._kept = {one.key for one in journal.outcomes()}
        if retry_failed:
            self._kept -= _failed(plan, journal)
        self._grid = Grid(
            journal,
            concurrency=config.concurrency,
            shared=config.share_calls,
            budget=config.budget.budget(),
            on_progress=on_progress,
        )
        found = config.share_calls or self._grid.spent.calls > 0
        self._workshop = Workshop(config, plan.planners, journal if found else None)
        self._done = 0
        self._total = self._count()

    async def play(self) -> None:
        """Ask what is missing, phase by phase."""
        config, plan = self._config, self._plan
        for _, worker in plan.planners.pool:
            check_price(self._grid.purse, worker)
        asked, lessons = plan.asked, None
        ready = {spec: self._workshop.make(spec) for spec in asked if not learns(spec, config)}
        if plan.learn is not None:
            lessons = await self._learn(plan.learn)
        systems = [ready.get(spec) or self._workshop.make(spec, lessons) for spec in asked]
        for together in [[system] for system in systems] if config.share_calls else [systems]:
            await self._ask(cells_of(together, plan.sheets, config.repeats))
        await self._journal.wait_durable()

    async def _ask(self, cells: Iterable[Cell]) -> None:
        wanted = list(cells)
        missing = [cell for cell in wanted if cell.key not in self._kept]
        self._done += len(wanted) - len(missing)
        await self._grid.play(missing, done=self._done, total=self._total)
        self._done += len(missing)

    async def _learn(self, sheet: Sheet) -> Lessons:
        """What trained baselines learn from."""
        config, pool = self._config, self._plan.planners.pool
        alone = [self._workshop.make(Spec(WORKER, worker.name)) for _, worker in pool]
        await self._ask(cells_of(alone, [sheet], 1))
        tried = any(explores(spec, config) for spec in self._plan.specs)
        if tried:
            await self._ask(cells_of([self._workshop.explorer()], [sheet], config.learn.trials))
        await self._journal.wait_durable()
        records = [from_json(one.record) for one in self._journal.outcomes() if one.record.get("task") == sheet.name]
        records.sort(key=lambda record: (record.problem, record.system, record.sample))
        questions = {problem.id: text_of(problem.question) for problem in sheet.problems}
        seen = observations(records, questions, [worker.name for _, worker in pool])
        return Lessons(seen, tuple(_trials(records, sheet, pool)) if tried else ())

    def _count(self) -> int:
        plan, config = self._plan, self._config
        total = len(plan.asked) * config.repeats * sum(len(sheet.problems) for sheet in plan.sheets)
        if plan.learn is not None:
            tried = any(explores(spec, config) for spec in plan.specs)
            total += len(plan.learn.problems) * (len(plan.planners.pool) + (config.learn.trials if tried else 0))
        return total


def _failed(plan: _Plan, journal: Journal) -> set[str]:
    """The keys of what failed. What a system has learnt from that has answered since is none of it: it stays."""
    trained = {spec.name for spec in plan.specs if learns(spec, plan.config)}
    learnt = plan.learn is not None and any(one.record.get("system") in trained for one in journal.outcomes())
    fixed = plan.learn.name if plan.learn is not None and learnt else None
    return {
        one.key
        for one in journal.outcomes()
        if one.record.get("status") == "failed" and one.record.get("task") != fixed
    }


def _trials(records: Iterable[Record], sheet: Sheet, pool: WorkerPool) -> Iterator[Trial]:
    """The explorer's records as trials; what was not decided tells nothing."""
    questions = {problem.id: problem.question for problem in sheet.problems}
    for record in records:
        if record.system != EXPLORER or record.correct is None or not record.workflows:
            continue
        question = questions[record.problem]
        right = float(record.correct)
        cost = None if record.usage.unpriced_calls else float(record.usage.dollars)
        trial = trial_of(question, text_of(question), record.workflows[0], pool, right=right, cost=cost)
        if trial is not None:
            yield trial
