"""One evaluation from recipe to tables, in a folder that it can be resumed from at any moment; or its answers regraded.

In: an EvalConfig and a folder. Out: in that folder ``config.toml``, ``environment.json`` (versions, inputs),
``journal.sqlite`` (every call, and a record a question), the table in its forms, ``latency.json``; Results.

- **Phases.** First what trained baselines learn from (every worker alone, on questions that are not evaluated, and for
  MASRouter trials of collaborations), then the systems: all at once, or one after the other where they share calls, so
  that which of two equal calls is paid for does not depend on timing.
- **A cell** is one system, one question, one repeat; it is done when its record is in the journal. One that was cut
  off is asked again, by systems that answer from the journal, so that nothing acknowledged is paid for twice.
- **Places.** At most ``concurrency`` episodes ask workers at once. One whose answer is there gives its place to the
  next while it waits for the disk and for its grader; of these there is a bound, too.
- **Two kinds of stop.** Where the budget of the evaluation is spent, no episode is begun, and those that need nothing
  more come to their end. Every other error whose fate is *stop* cancels what runs. Either way the journal holds all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from openconductor.baselines.observed import text_of
from openconductor.budget import BudgetMeter, PaidCall, check_price
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation import Outcome, at_once, records, systems, tables
from openconductor.evaluation.eval_config import (
    HINDSIGHT,
    WORKER,
    EvalConfig,
    Spec,
    against_in,
    expand,
    make_eval_config,
    plain_config,
    what_differs,
)
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.systems import Sheet, System, explores, learns
from openconductor.events import Answered, Asked, CallEnded, Event
from openconductor.journal import Journal, Spending
from openconductor.policies import LONG_PATIENCE_S, patient
from openconductor.reward import grade_answer
from openconductor.serialisation import plain
from openconductor.storage import make_folder, write_whole
from openconductor.types import Budget, Call, Episode, Problem

SETTLING = 3
"""Episodes that may wait for the disk and their graders, for each that asks workers."""
GRADED_AT_ONCE = 64
"""Answers that ``regrade`` grades at the same time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is: the cell that was just done, how many of how many, and what all its runs have paid."""

    record: Record
    done: int
    total: int
    spent: Spending


OnProgress = Callable[[Progress], None]


async def run_grid(
    config: EvalConfig, folder: str | Path, *, retry_failed: bool = False, on_progress: OnProgress | None = None
) -> Results:
    """Ask every system every question, as often as the recipe says, and write the tables.

    Args:
        config: the recipe.
        folder: where the run is written; one that holds the same evaluation, whole or cut off, is resumed.
        retry_failed: whether to ask again what failed (transport, provider, time) in an earlier run.
        on_progress: told after each question.

    Raises:
        ConfigError: the recipe names what there is not, or the folder holds something else; the message says what.
        TaskError: data are absent or changed.
        BudgetExceeded: the evaluation's budget is spent; the tables show what there is, a larger one resumes it.
        AuthFailed, JournalError: nothing more can be asked, or kept; what was kept stays.
    """
    folder = Path(folder)
    plan = _Plan(make_eval_config(plain_config(config), where="eval"))
    spent: BudgetExceeded | None = None
    try:
        resumed = records.check_folder(folder, config, plan.described)
        make_folder(folder)
        with Journal(folder / records.JOURNAL) as journal:
            records.write_folder(folder, config, plan.described, plan.sandbox)
            run = _Run(plan, journal, retry_failed=retry_failed and resumed, on_progress=on_progress)
            try:
                with patient(LONG_PATIENCE_S):
                    await run.play()
            except BudgetExceeded as error:
                spent = error
    finally:
        await plan.workshop.aclose()
        if plan.sandbox is not None:
            await plan.sandbox.aclose()
    results = Results.load(folder)
    write_tables(results, folder)
    if spent is not None:
        raise spent
    return results


def write_tables(results: Results, folder: Path) -> tables.Table:
    """Write the table in all its forms, and the latencies, into a run's folder."""
    table = tables.make_table(results)
    for name, text in tables.table_files(table).items():
        write_whole(folder / name, text)
    write_whole(folder / "latency.json", json.dumps(tables.latency(results), indent=2) + "\n")
    return table


# ── what is going to be asked ────────────────────────────────────────────────────────────────────────────────────────
class _Plan:
    """A recipe, checked and loaded before anything is paid for."""

    def __init__(self, config: EvalConfig) -> None:
        systems.check_tasks(config)
        self.config = config
        self.workshop = systems.Workshop(config, systems.load_pool(config))
        self.workers = [worker.name for _, worker in self.workshop.pool]
        self.specs = specs = expand(config.systems, self.workers)
        against_in([spec.name for spec in specs], config.against)  # raises where there is none
        if len(specs) > 1 and find_spec("scipy") is None:
            raise ConfigError(
                "eval: no scipy, which comparisons of systems need; expected the extra: pip install "
                "'openconductor[eval]'"
            )
        for spec in specs:
            self.workshop.check(spec)
        sheets = list(systems.load_sheets(config).values())
        trained = [spec for spec in specs if learns(spec, config)]
        every = [*sheets, systems.load_learning(config, sheets)] if trained else sheets
        self.described: dict[str, object] = {
            "workers": systems.describe_pool(self.workshop.pool),
            "planners": self.workshop.described(specs),
            "tasks": {sheet.name: sheet.described for sheet in sheets},
            "learn": every[-1].described if trained else None,
        }
        if files := systems.describe_trained(specs):
            self.described["trained"] = files
        self.sandbox = systems.open_for(every, config)
        every = [sheet.judged_in(self.sandbox) for sheet in every]
        self.sheets, self.learn = every[: len(sheets)], every[-1] if trained else None
        self.trained = {spec.name for spec in trained}
        self.trials = config.learn.trials if any(explores(spec, config) for spec in specs) else 0
        # What is really asked: hindsight only looks back, at every worker.
        self.asked = [spec for spec in specs if spec.kind != HINDSIGHT]
        if len(self.asked) < len(specs):
            self.asked += [one for name in self.workers if (one := Spec(WORKER, name)) not in self.asked]
        self.total = len(self.asked) * config.repeats * sum(len(sheet.problems) for sheet in sheets)
        if self.learn is not None:
            self.total += len(self.learn.problems) * (len(self.workers) + self.trials)


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Cell:
    """One question, asked once of one system; ``key`` is that of its record."""

    system: System
    sheet: Sheet
    problem: Problem
    repeat: int

    @property
    def key(self) -> _Key:
        return self.system.name, self.sheet.name, self.problem.id, self.repeat


def _cells(asked: Sequence[System], sheets: Iterable[Sheet], repeats: int) -> list[_Cell]:
    """All cells: question by question, each repeat of it to all systems, so that what a stop leaves is paired."""
    return [
        _Cell(system, sheet, problem, repeat)
        for sheet in sheets
        for problem in sheet.problems
        for repeat in range(repeats)
        for system in asked
    ]


_Key = tuple[str, str, str, int]


def _key(one: Record) -> _Key:
    return one.system, one.task, one.problem, one.sample


def _keep(journal: Journal, record: Record) -> None:
    journal.put_outcome(json.dumps(_key(record)), cast("dict[str, Any]", plain(record)))


def open_purse(budget: Budget, spent: Spending) -> BudgetMeter:
    """What all runs of an evaluation may still spend; what was ``spent`` before counts."""
    purse = BudgetMeter(budget, now=0.0)
    purse.add(calls=spent.calls, dollars=spent.usage.dollars)
    return purse


def give_back(purse: BudgetMeter | None, call: Call) -> None:
    """Count a call that a journal answered as not made: it was paid for by an earlier one."""
    if purse is not None and call.replayed:
        purse.add(calls=-1, dollars=-call.usage.dollars)


class _Run:
    """One run of a plan: what its journal lacks is asked, many at once."""

    def __init__(self, plan: _Plan, journal: Journal, *, retry_failed: bool, on_progress: OnProgress | None) -> None:
        config = plan.config
        self._plan, self._config, self.journal = plan, config, journal
        kept = records.kept_records(journal)
        # What a system that has answered since has learnt from stays, failed or not.
        learnt = plan.learn.name if plan.learn is not None and any(one.system in plan.trained for one in kept) else None
        self._kept = {_key(one) for one in kept if not retry_failed or one.status != "failed" or one.task == learnt}
        self._places = asyncio.Semaphore(config.concurrency)
        self._tasks = asyncio.Semaphore((1 + SETTLING) * config.concurrency)
        self.spent = journal.totals().spent
        budget = config.budget.budget()
        self.purse = None if budget is None else open_purse(budget, self.spent)
        plan.workshop.journal = journal if config.share_calls or self.spent.calls else None
        self._on_progress = on_progress
        self._empty: BudgetExceeded | None = None
        self._done = 0

    async def play(self) -> None:
        """Ask what is missing, phase by phase."""
        plan, config, workshop = self._plan, self._config, self._plan.workshop
        for _, worker in workshop.pool:
            check_price(self.purse, worker)
        lessons = None if plan.learn is None else await self._learn(plan.learn)
        every = [workshop.make(spec, lessons if spec.name in plan.trained else None) for spec in plan.asked]
        for together in [[system] for system in every] if config.share_calls else [every]:
            await self._ask_all(_cells(together, plan.sheets, config.repeats))
        await self.journal.wait_durable()

    async def _learn(self, sheet: Sheet) -> systems.Lessons:
        """What trained baselines learn from."""
        from openconductor.baselines.collaboration import Trial, trial_of

        plan, workshop = self._plan, self._plan.workshop
        alone = [workshop.make(Spec(WORKER, name)) for name in plan.workers]
        await self._ask_all(_cells(alone, [sheet], 1))
        if plan.trials:
            await self._ask_all(_cells([workshop.make(Spec(systems.EXPLORER))], [sheet], plan.trials))
        await self.journal.wait_durable()
        found = [record for record in records.kept_records(self.journal) if record.task == sheet.name]
        found.sort(key=lambda record: (record.problem, record.system, record.sample))
        questions = {problem.id: problem.question for problem in sheet.problems}
        trials: list[Trial] = []
        for one in found:
            if one.system == systems.EXPLORER and one.correct is not None and one.workflows:
                asked, cost = questions[one.problem], None if one.usage.unpriced_calls else float(one.usage.dollars)
                right = float(one.correct)
                trial = trial_of(asked, text_of(asked), one.workflows[0], workshop.pool, right=right, cost=cost)
                trials += [] if trial is None else [trial]
        texts = {problem: text_of(question) for problem, question in questions.items()}
        return systems.Lessons(records.observations(found, texts, plan.workers), tuple(trials))

    async def _ask_all(self, cells: Sequence[_Cell]) -> None:
        missing = [cell for cell in cells if cell.key not in self._kept]
        self._done += len(cells) - len(missing)
        try:
            async with asyncio.TaskGroup() as group:
                for cell in missing:
                    await self._tasks.acquire()
                    await self._places.acquire()
                    if self._empty is not None:
                        break
                    group.create_task(self._play(cell))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one ended it all
        if self._empty is not None:
            calls = "1 call" if self.spent.calls == 1 else f"{self.spent.calls} calls"
            raise BudgetExceeded(
                f"the evaluation's budget is spent, {self._done} of {self._plan.total} questions are done: paid "
                f"{calls} and ${self.spent.usage.dollars}; with a larger budget it goes on from there",
                limit=self._empty.limit,
            ) from self._empty

    async def _play(self, cell: _Cell) -> None:
        hears = _Hearing(self, self._places)
        try:
            episode = await self._ask(cell, hears)
            hears.leave()
            judge = cell.sheet.grader
            grade = None if episode.answer is None else await grade_answer(judge, cell.problem, episode.answer)
            outcome = Outcome(cell.problem, episode, grade, cell.repeat)
            record = records.record_of(outcome, system=cell.system.name, task=cell.sheet.name)
            _keep(self.journal, record)
        except BudgetExceeded as error:  # the evaluation's: a question's own is data
            self._empty = error
        else:
            self._done += 1
            if self._on_progress is not None:
                self._on_progress(Progress(record, self._done, self._plan.total, self.spent))
        finally:
            hears.leave()
            self._tasks.release()

    async def _ask(self, cell: _Cell, hears: _Hearing) -> Episode:
        system, problem = cell.system, cell.problem
        named = "" if self._config.share_calls else system.name
        sample = records.sample_number(named, cell.sheet.name, problem.id, cell.repeat)
        asked = system.orchestrator.ask(problem.question, budget=system.budget, on_event=hears, sample=sample)
        try:
            if self.purse is None:
                return await asked
            with PaidCall(self.purse):  # what is asked inside is charged to it
                return await asked
        except BudgetExceeded as error:
            if error.episode is None or (self.purse is not None and self.purse.ended_in(error)):
                raise
            return error.episode


class _Hearing:
    """The sink of one cell: everything goes to the journal, and the place is left, once, when the episode is over."""

    wants_text = False
    __slots__ = ("_episode", "_places", "_run")

    def __init__(self, run: _Run, places: asyncio.Semaphore) -> None:
        self._run = run
        self._places: asyncio.Semaphore | None = places
        self._episode = ""

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()

    def __call__(self, event: Event) -> None:
        run = self._run
        run.journal(event)
        if isinstance(event, CallEnded):
            give_back(run.purse, event.call)
            if not event.call.replayed:
                run.spent += Spending(1, event.call.usage)
        elif isinstance(event, Asked):
            self._episode = self._episode or event.episode
        elif isinstance(event, Answered) and event.episode == self._episode:
            self.leave()

    async def wait_durable(self) -> None:
        await self._run.journal.wait_durable()


# ── grading again ────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Move:
    """A verdict that is another one now; ``None`` is undecided."""

    system: str
    task: str
    problem: str
    sample: int
    before: bool | None
    now: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class Regraded:
    """How many stored answers were graded again, the verdicts that moved, in order, and the records as they are now."""

    graded: int
    moves: tuple[Move, ...]
    results: Results


async def regrade(folder: str | Path) -> Regraded:
    """Grade the stored answers of an evaluation again, without calling anyone, and write its tables anew.

    A moved verdict is a newer record of the same question; the older one stays in the journal. What has no answer stays
    what it is, and so does what trained baselines learnt from.

    Raises:
        ConfigError: the folder holds no evaluation, or its questions are not what they were.
        TaskError: data are absent or changed.
        JournalError: the journal is in use, or the disk failed.
    """
    folder = Path(folder)
    config, environment = records.read_folder(folder)
    sheets = systems.load_sheets(config)
    before = cast("dict[str, records.Plain]", environment.get("inputs", {})).get("tasks", {})
    if changed := what_differs(before, {name: sheet.described for name, sheet in sheets.items()}):
        raise ConfigError(
            f"{folder}: its questions are others now: {'; '.join(changed)}; expected those that were asked"
        )
    sandbox = systems.open_for(sheets.values(), config)
    asked = {
        (name, problem.id): (sheet.judged_in(sandbox).grader, problem)
        for name, sheet in sheets.items()
        for problem in sheet.problems
    }
    judged: list[tuple[Record, Record]] = []

    async def again(old: Record) -> None:
        grader, problem = asked[old.task, old.problem]
        grade = await grade_answer(grader, problem, old.answer or "")
        answered = Episode(problem.question, (), old.answer, None, old.usage, old.seconds)
        new = records.record_of(Outcome(problem, answered, grade, old.sample), system=old.system)
        now = replace(old, correct=new.correct, status=new.status, extracted=new.extracted, note=new.note)
        judged.append((old, now))
        if old != now:
            _keep(journal, now)

    try:
        with Journal(folder / records.JOURNAL) as journal:
            kept = records.kept_records(journal)
            stored = [one for one in kept if one.answer is not None and (one.task, one.problem) in asked]
            await at_once(stored, again, GRADED_AT_ONCE)
            await journal.wait_durable()
    finally:
        if sandbox is not None:
            await sandbox.aclose()
    judged.sort(key=lambda pair: _key(pair[0]))
    moves = (Move(*_key(new), old.correct, new.correct, new.note) for old, new in judged if old.correct != new.correct)
    results = Results.load(folder)
    write_tables(results, folder)
    return Regraded(len(judged), tuple(moves), results)
