"""Run one evaluation from recipe to tables, in a folder that it can be resumed from at any moment.

The folder holds ``config.toml``, ``environment.json`` (versions, inputs), ``questions.jsonl``,
``journal.sqlite`` (every call, and a record a question; or they are in a database, as the recipe
says), ``lessons.json`` (what trained baselines learnt from), the table in its forms, and
``latency.json``.

- **EvalPlan.** ``make_plan`` checks and loads everything before anything is paid for.
- **Phases.** First the lessons of trained baselines: every worker alone, on questions that are not
  evaluated, and for MASRouter trials of collaborations. Then the systems: all at once, or one after
  the other where they share calls, so that timing does not decide which of two equal calls is paid.
- **Cells.** A cell is one system, one question, one repeat. It is done when its record is in the
  journal. A cell that was cut off is asked again, by systems that answer from the journal, so that
  nothing acknowledged is paid for twice.
- **Joined processes.** Processes that share a database ask each cell once. They wait for each other
  at the end of every phase, so all of them write the same tables. A budget is one account in the
  database, which all of them spend.
- **Stops.** Once the budget of the evaluation is spent, no episode is begun, and those that need no
  further call end normally. Every other error whose fate is *stop* cancels what runs. Either way
  the journal holds everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from openconductor.calls.budget import RunBudget, check_price
from openconductor.calls.cards import Calibrations
from openconductor.calls.dispatcher import FanOut
from openconductor.calls.policies import RUN_UNREACHABLE_S
from openconductor.errors import BudgetExceeded, ConfigError, RateLimited
from openconductor.evaluation import (
    ask_and_settle,
    judge,
    one_by_one,
    records,
    sheets,
    systems,
    tables,
)
from openconductor.evaluation.eval_config import (
    HINDSIGHT,
    WORKERS,
    EvalConfig,
    Spec,
    against_in,
    differences,
    expand,
    make_eval_config,
    plain_config,
    what_differs,
)
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.sheets import Sheet, check_judge, open_judge, settle_sheets
from openconductor.evaluation.systems import System, Workshop
from openconductor.events import CallEnded, Event
from openconductor.pool import read_calibrations
from openconductor.protocols import CallContext, OnEvent
from openconductor.store import (
    AccountStore,
    RecordClaims,
    SharedStore,
    Spending,
    Store,
    StoreReader,
    open_store,
)
from openconductor.store.storage import make_folder, write_whole
from openconductor.types import Budget, Episode, Problem

if TYPE_CHECKING:
    from openconductor.calls.shared_budget import SharedBudget, Teller
    from openconductor.evaluation.joined.cells import JoinedCells
    from openconductor.sandboxes import Sandbox
    from openconductor.traces.tracer import Traces


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an evaluation.

    Attributes:
        record: the cell that was just done; None: joined processes did others.
        done, total: cells.
        spent: what all runs of the evaluation have paid; of other joined processes, what they had
            paid when this one began.
    """

    record: Record | None
    done: int
    total: int
    spent: Spending


OnProgress = Callable[[Progress], None]


async def run_grid(
    config: EvalConfig,
    folder: str | Path,
    *,
    retry_failed: bool = False,
    extends: bool = False,
    joins: bool = False,
    on_begin: Callable[[EvalPlan], None] | None = None,
    on_progress: OnProgress | None = None,
    traces: Traces | None = None,
) -> Results:
    """Ask every system every question, as often as the recipe says, and write the tables.

    Args:
        config: the recipe.
        folder: where the run is written. One that holds the same evaluation is resumed.
        retry_failed: asks again what failed (transport, provider, time) in an earlier run.
        extends: lets the recipe have more systems and questions than the run in the folder.
        joins: shares the cells with other processes that join (the recipe names a database).
        on_begin: gets the plan when everything is checked, before the folder is written.
        on_progress: told after each question, and when other processes have done some.
        traces: records the spans of each episode, under the name of its system. None: nobody does.

    Raises:
        ConfigError: the recipe names something unknown, or the folder holds something else.
        TaskError: data are missing or changed.
        BudgetExceeded: the evaluation's budget is spent. The tables show what there is; a larger
            budget resumes it.
        Unreachable: a worker, planner or judge that must be asked cannot be reached; none is asked.
        AuthFailed, JournalError: nothing more can be asked, or kept. What was kept stays.
    """
    folder = Path(folder)
    checked = make_eval_config(plain_config(config), where="eval")
    if joins:
        check_joining(checked, retry_failed=retry_failed)
    plan = make_plan(checked, records.kept_calibrations(folder))
    try:
        if extends:
            _check_extension(folder, plan)
        else:
            records.check_folder(folder, config, plan.described)
        if on_begin is not None:
            on_begin(plan)
        make_folder(folder)
        with open_store(records.journal_place(folder, config)) as journal:
            if config.journal:
                assert isinstance(journal, SharedStore)
                await _agree(journal, plan, folder, extends=extends)
            pool = plan.workshop.pool
            records.write_folder(folder, config, plan.described, plan.sandbox, pool)
            sheets.write_questions(folder, plan.sheets)
            run = _Run(
                plan, folder, journal, on_progress, traces, retry_failed=retry_failed, joins=joins
            )
            try:
                await run.play()
            finally:
                run.close()
    except BudgetExceeded:
        write_tables(Results.load(folder), folder)
        raise
    finally:
        await plan.workshop.aclose()
        if plan.sandbox is not None:
            await plan.sandbox.aclose()
    results = Results.load(folder)
    write_tables(results, folder)
    return results


def check_joining(config: EvalConfig, *, retry_failed: bool) -> None:
    """Check that processes can share an evaluation.

    Raises:
        ConfigError: it has no database, or would be asked several times.
    """
    if not config.journal:
        raise ConfigError(
            "eval: processes join over a database, because a SQLite file has one writer: "
            "--journal postgresql://USER@HOST/DATABASE; `openconductor store copy FILE URL` moves "
            "what a file holds"
        )
    if retry_failed:
        raise ConfigError(
            "eval: --retry-failed is for one process: run it once without --join, when the others "
            "have ended"
        )


async def _agree(journal: SharedStore, plan: EvalPlan, folder: Path, *, extends: bool) -> None:
    """Compare the recipe with that in a database, or write it there."""
    from openconductor.evaluation.joined.agreement import agree, describe as describe_run

    if extends:
        journal.put_record(records.DESCRIPTION, describe_run(plan.config, plan.described))
    else:
        await agree(journal, plan.config, plan.described, folder)


def _check_extension(folder: Path, plan: EvalPlan) -> None:
    """Check that a plan keeps every answer of the run in a folder.

    Raises:
        ConfigError: it would change what was asked.
    """
    before, environment = records.read_folder(folder)
    inputs = cast("Mapping[str, object]", environment.get("inputs", {}))
    changed = differences(before, plan.config)
    changed = [what for what in changed if not re.match(r"systems\b|task \d+: limit\b", what)]
    changed += what_differs(inputs.get("workers"), plan.described["workers"])
    if changed:
        raise ConfigError(f"{folder}: the run cannot be extended: {'; '.join(changed)}")
    kept_questions = sheets.read_questions(folder)
    questions = {
        (sheet.name, problem.id): sheets.keep_question(problem)
        for sheet in plan.sheets
        for problem in sheet.problems
    }
    for key, question in kept_questions.items():
        if questions.get(key) != question:
            raise ConfigError(
                f"{folder}: its questions have changed, or a task draws other ones if it draws "
                f"more: {' '.join(key)}; expected a new folder (--out)"
            )


def write_tables(results: Results, folder: Path) -> None:
    """Write the table in all its forms, and the latencies, into a run's folder."""
    for name, text in tables.table_files(tables.make_table(results)).items():
        write_whole(folder / name, text)
    write_whole(folder / "latency.json", json.dumps(records.latency(results), indent=2) + "\n")


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class EvalPlan:
    """One evaluation, checked and loaded.

    Attributes:
        workshop: makes the systems.
        asked: the systems that are asked, those that hindsight looks back at among them.
        sheets: the questions that are evaluated.
        learning: the questions that trained baselines learn from; None: no system learns.
        trained: the names of the systems that learn.
        trials: how many collaborations are tried on each question of ``learning``.
        described: everything that an answer depends on, as plain values.
        sandbox: runs programs for graders; None: no grader needs it.
        is_recalibrated: True if the cards are the run's own, because the pool file has others now.
    """

    config: EvalConfig
    workshop: Workshop
    asked: Sequence[Spec]
    sheets: Sequence[Sheet]
    learning: Sheet | None
    trained: frozenset[str]
    trials: int
    described: Mapping[str, object]
    sandbox: Sandbox | None
    is_recalibrated: bool

    @property
    def total(self) -> int:
        """The number of cells."""
        questions = sum(len(sheet.problems) for sheet in self.sheets)
        total = questions * len(self.asked) * self.config.repeats
        if self.learning is not None:
            times = len(self.workshop.pool) + self.trials
            total += len(self.learning.problems) * times
        return total


def make_plan(config: EvalConfig, calibrations: Calibrations | None = None) -> EvalPlan:
    """Check and load everything that an evaluation needs, before anything is paid for.

    ``calibrations`` are those of the run that is resumed; None: those of the pool file.
    """
    workshop = Workshop(config, systems.load_pool(config, calibrations=calibrations))
    budget = config.budget.budget()
    if budget is not None:
        for _, worker in workshop.pool:
            check_price(RunBudget(budget), worker)
    workers = [worker.name for _, worker in workshop.pool]
    specs = expand(config.specs, workers)
    check_comparable([spec.name for spec in specs], config)
    for spec in specs:
        workshop.check(spec)
    needs = {spec.name: systems.needs(spec, config) for spec in specs}
    trained = frozenset(name for name, lessons in needs.items() if lessons)
    if trained:  # checked before anything is fetched
        sheets.learning_table(config)
    evaluated = list(sheets.load_sheets(config).values())
    workshop.check_held_out(evaluated)
    learning = [sheets.load_learning(config, evaluated)] if trained else []
    if config.judge:
        check_judge(config.judge, workshop.pool, [*evaluated, *learning])
    described = describe(workshop, specs, evaluated, learning[0] if learning else None)
    sandbox, opened = sheets.open_for([*evaluated, *learning], config)
    return EvalPlan(
        config=config,
        workshop=workshop,
        asked=asked_systems(specs, workers),
        sheets=opened[: len(evaluated)],
        learning=opened[-1] if learning else None,
        trained=trained,
        trials=systems.count_trials(specs, config),
        described=described,
        sandbox=sandbox,
        is_recalibrated=calibrations not in (None, read_calibrations(config.pool)),
    )


def check_comparable(names: Sequence[str], config: EvalConfig) -> None:
    """Check that systems can be compared.

    Raises:
        ConfigError: the recipe compares with another system, or a package is missing.
    """
    against_in(names, config.against)
    if len(names) > 1 and find_spec("scipy") is None:
        raise ConfigError(
            "eval: comparing systems requires scipy: pip install 'openconductor[eval]'"
        )


def describe(
    workshop: Workshop, specs: Sequence[Spec], evaluated: Iterable[Sheet], learning: Sheet | None
) -> dict[str, object]:
    """Describe everything that an answer depends on, as plain values."""
    return {
        **workshop.described(specs),
        "tasks": {sheet.name: sheet.described for sheet in evaluated},
        "learn": None if learning is None else learning.described,
    }


def asked_systems(specs: Sequence[Spec], workers: Iterable[str]) -> list[Spec]:
    """Return the systems that are asked; hindsight is none, but looks back at every worker."""
    asked = [spec for spec in specs if spec.kind != HINDSIGHT]
    if len(asked) < len(specs):
        return expand([*asked, Spec(WORKERS)], workers)
    return asked


# ── asking ────────────────────────────────────────────────────────────────────────────────────────
_BUDGET = "evaluation"  # the name of its accounts
_SPARE_SHARE = 16  # a sixteenth of those at once: few statements, and little is held back


class _Cell(NamedTuple):
    """One question, asked once of one system."""

    system: System
    sheet: Sheet
    problem: Problem
    repeat: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The cell of its record (``Record.cell``)."""
        return self.system.name, self.sheet.name, self.problem.id, self.repeat

    @property
    def record_key(self) -> str:
        """The key of its record in the journal."""
        return records.cell_key(self.key)


def open_run_budget(budget: Budget, spent: Spending) -> RunBudget:
    """Return the budget of all runs of an evaluation, charged with what was ``spent`` before."""
    run_budget = RunBudget(budget)
    run_budget.add(calls=spent.calls, dollars=spent.usage.dollars)
    return run_budget


def _join_budget(budget: Budget, teller: Teller, journal: StoreReader) -> SharedBudget:
    """Return the budget of all processes that join, and of all runs before."""
    from openconductor.calls.shared_budget import SharedBudget

    shared = SharedBudget(budget, _BUDGET, teller)
    for name, reserved in shared.slices.items():

        def spent(name: str = name) -> Decimal:
            counted = journal.totals().counted
            return Decimal(counted.calls) if name == "calls" else counted.usage.dollars

        teller.accounts.reopen(reserved.account, spent)
    return shared


class _Run:
    """One run of a plan: it asks what its journal lacks."""

    def __init__(
        self,
        plan: EvalPlan,
        folder: Path,
        journal: Store,
        on_progress: OnProgress | None,
        traces: Traces | None,
        *,
        retry_failed: bool,
        joins: bool,
    ) -> None:
        self._folder = folder
        self._config = plan.config
        self._journal = journal
        self._kept = _kept_cells(plan, records.kept_records(journal), retry_failed)
        self._sink = _Sink(journal)
        self._traces = traces
        self._budget: RunBudget | None = None
        self._teller: Teller | None = None
        budget = plan.config.budget.budget()
        if budget is not None and joins:
            from openconductor.calls.shared_budget import Teller

            assert isinstance(journal, AccountStore)
            self._teller = Teller(journal.accounts, lambda _: Decimal(0))
            self._budget = self._sink.budget = _join_budget(budget, self._teller, journal)
        elif budget is not None:
            self._budget = open_run_budget(budget, self._sink.spent)
        if plan.config.share_calls or self._sink.spent.calls or joins:
            plan.workshop.journal = journal
        pool = plan.workshop.pool.replaying(journal)
        judge = open_judge(plan.config, pool, journal, self._budget, self._sink_of("judge"))
        settle = partial(settle_sheets, undecided=plan.config.undecided, judge=judge)
        learning = None
        if plan.learning is not None:
            (learning,) = settle([plan.learning])
        self._plan = replace(plan, sheets=settle(plan.sheets), learning=learning)
        self._on_progress = on_progress
        self._out_of_budget: BudgetExceeded | None = None
        self._done = 0
        self._claims: RecordClaims | None = None
        if joins:
            assert isinstance(journal, SharedStore)
            self._claims = journal
        self._joined: JoinedCells[_Cell] | None = None  # of the phase

    def close(self) -> None:
        """Charge for good what was spent of a shared budget."""
        if self._teller is not None:
            self._teller.stop()
        if self._sink.budget is not None:
            self._sink.budget.book(closed=True)

    async def play(self) -> None:
        """Ask what is missing, phase by phase, if all that is asked can be reached."""
        plan = self._plan
        if len(self._kept) < plan.total:
            await plan.workshop.reach(plan.asked, learns=plan.learning is not None)
        lessons = None
        if plan.learning is not None:
            lessons = await self._learn(plan.learning)
        made: list[System] = []
        for spec in plan.asked:
            own_lessons = lessons if spec.name in plan.trained else None
            made.append(plan.workshop.make(spec, own_lessons))
        if self._config.share_calls:
            for system in made:
                await self._ask_all([system], plan.sheets, self._config.repeats)
        else:
            await self._ask_all(made, plan.sheets, self._config.repeats)

    def _sink_of(self, asked: str) -> OnEvent:
        """Return the sink of the episodes of a system, or of the judge."""
        if self._traces is None:
            return self._sink
        return FanOut(self._sink, self._traces.named(asked))

    async def _learn(self, sheet: Sheet) -> systems.Lessons:
        """Ask for the lessons of trained baselines; keep and return them."""
        workshop = self._plan.workshop
        for teachers, repeats in workshop.make_teachers(self._plan.trials):
            await self._ask_all(teachers, [sheet], repeats)
        kept = records.kept_records(self._journal)
        lessons = systems.lessons_of(kept, sheet, workshop.pool)
        systems.write_lessons(self._folder, lessons)
        return lessons

    async def _ask_all(
        self, asked: Sequence[System], questions: Iterable[Sheet], repeats: int
    ) -> None:
        """Ask question by question, each repeat of all systems, so that a stop leaves pairs."""
        cells = [
            _Cell(system, sheet, problem, repeat)
            for sheet in questions
            for problem in sheet.problems
            for repeat in range(repeats)
            for system in asked
        ]
        missing = [cell for cell in cells if cell.key not in self._kept]
        self._done += len(cells) - len(missing)
        drawn: AsyncIterator[_Cell] = one_by_one(missing)
        if self._claims is not None:
            drawn = self._joined = self._join_cells(self._claims, missing)
        await ask_and_settle(drawn, self._ask, self._settle, concurrency=self._config.concurrency)
        if self._out_of_budget is not None:
            spent = self._sink.spent
            calls = "1 call" if spent.calls == 1 else f"{spent.calls} calls"
            message = (
                f"the evaluation's budget is spent, {self._done} of {self._plan.total} questions "
                f"are done: paid {calls} and ${spent.usage.dollars:f}; {self._out_of_budget}. With "
                "a larger budget the same command goes on from there"
            )
            raise BudgetExceeded(message, limit=self._out_of_budget.limit) from self._out_of_budget

    def _join_cells(self, claims: RecordClaims, cells: Iterable[_Cell]) -> JoinedCells[_Cell]:
        """Return those of the cells that this process is to ask."""
        from openconductor.evaluation.joined.cells import JoinedCells

        by_key = {cell.record_key: cell for cell in cells}
        spare = self._config.concurrency // _SPARE_SHARE
        return JoinedCells(claims, by_key, on_kept=partial(self._report, None), spare=spare)

    async def _ask(self, cell: _Cell) -> Episode | None:
        """Ask one cell; None: the budget of the evaluation is spent."""
        if self._out_of_budget is not None:
            return None
        system = cell.system
        owner = "" if self._config.share_calls else system.name
        sample = records.sample_number(owner, cell.sheet.name, cell.problem.id, cell.repeat)
        context = CallContext(sample=sample, budget=self._budget, unreachable_s=RUN_UNREACHABLE_S)
        try:
            return await system.orchestrator.ask(
                cell.problem.question,
                budget=system.budget,
                on_event=self._sink_of(system.name),
                context=context,
            )
        except BudgetExceeded as error:
            own = self._budget is None or not self._budget.ended_in(error)
            if own and error.episode is not None:  # the question's own budget: a wrong answer
                return error.episode
            self._stop_asking(error)
            return None

    def _stop_asking(self, error: BudgetExceeded) -> None:
        """Begin no further episode: no budget is left."""
        self._out_of_budget = error
        if self._joined is not None:
            self._joined.stop()

    async def _settle(self, cell: _Cell, episode: Episode) -> None:
        """Grade an answer, and keep its record, unless no budget is left for a judge's verdict."""
        try:
            outcome = await judge(cell.problem, episode, cell.sheet.grader, cell.repeat)
        except BudgetExceeded as error:
            self._stop_asking(error)
            return
        record = records.record_of(outcome, system=cell.system.name, task=cell.sheet.name)
        if self._joined is not None and not await self._joined.confirm(cell.record_key):
            return  # another process has the cell
        records.keep_record(self._journal, record)
        if self._claims is not None:
            self._claims.release(cell.record_key)
        await self._journal.wait_durable()
        self._report(record)

    def _report(self, record: Record | None, done: int = 1) -> None:
        """Report that cells are done; ``record`` is as in ``Progress``."""
        self._done += done
        if self._on_progress is not None:
            progress = Progress(record, self._done, self._plan.total, self._sink.spent)
            self._on_progress(progress)


def _kept_cells(
    plan: EvalPlan, kept: Sequence[Record], retry_failed: bool
) -> set[tuple[str, str, str, int]]:
    """Return the cells that are not asked again."""
    if not retry_failed:
        return {record.cell for record in kept}
    cells = {record.cell for record in kept if record.status != "failed"}
    if plan.learning is not None and any(record.system in plan.trained for record in kept):
        # A system has answered: what it has learnt from stays, failed or not.
        cells |= {record.cell for record in kept if record.task == plan.learning.name}
    return cells


class _Sink:
    """Writes the events of a run to its journal, and counts what was paid.

    It has no ``wait_durable``, because the record of each cell waits for the disk.

    Attributes:
        spent: what was paid.
        budget: is charged for each call, where processes share it.
    """

    wants_text = False

    def __init__(self, journal: Store) -> None:
        self._journal = journal
        self.spent = journal.totals().counted
        self.budget: SharedBudget | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallEnded) and not event.call.replayed:
            calls = 0 if event.call.outcome == RateLimited.outcome else 1
            self.spent += Spending(calls, event.call.usage)
            if self.budget is not None:  # first, so that no call is stored without its charge
                self.budget.book()
        self._journal(event)
