"""One evaluation from recipe to tables, in a folder that it can be resumed from at any moment; or its answers regraded.

In: an EvalConfig and a folder. Out: in that folder ``config.toml``, ``environment.json`` (versions,
inputs), ``journal.sqlite`` (every call, and a record a question), the table in its forms,
``latency.json``; Results.

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
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from openconductor.calls.budget import BudgetMeter, PaidCall, check_price
from openconductor.calls.policies import LONG_PATIENCE_S, patient
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation import at_once, judged, records, systems, tables
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
from openconductor.evaluation.systems import Sheet, System
from openconductor.events import CallEnded, Event
from openconductor.protocols import CallContext
from openconductor.store import Journal, Spending
from openconductor.store.serialisation import plain
from openconductor.store.storage import make_folder, write_whole
from openconductor.types import Budget, Episode, Problem

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
    config: EvalConfig,
    folder: str | Path,
    *,
    retry_failed: bool = False,
    on_progress: OnProgress | None = None,
) -> Results:
    """Ask every system every question, as often as the recipe says, and write the tables.

    Args:
        config: the recipe.
        folder: where the run is written; one that holds the same evaluation, whole or cut off, is
            resumed.
        retry_failed: whether to ask again what failed (transport, provider, time) in an earlier
            run.
        on_progress: told after each question.

    Raises:
        ConfigError: the recipe names what there is not, or the folder holds something else; the
            message says what.
        TaskError: data are absent or changed.
        BudgetExceeded: the evaluation's budget is spent; the tables show what there is, a larger
            one resumes it.
        AuthFailed, JournalError: nothing more can be asked, or kept; what was kept stays.
    """
    folder = Path(folder)
    plan = _Plan(make_eval_config(plain_config(config), where="eval"))
    try:
        records.check_folder(folder, config, plan.described)
        make_folder(folder)
        with Journal(folder / records.JOURNAL) as journal, patient(LONG_PATIENCE_S):
            records.write_folder(folder, config, plan.described, plan.sandbox)
            await _Run(plan, journal, retry_failed, on_progress).play()
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


def write_tables(results: Results, folder: Path) -> None:
    """Write the table in all its forms, and the latencies, into a run's folder."""
    for name, text in tables.table_files(tables.make_table(results)).items():
        write_whole(folder / name, text)
    write_whole(folder / "latency.json", json.dumps(records.latency(results), indent=2) + "\n")


# ── what is going to be asked ─────────────────────────────────────────────────────────────────────
class _Plan:
    """A recipe, checked and loaded before anything is paid for."""

    def __init__(self, config: EvalConfig) -> None:
        self.config = config
        self.workshop = workshop = systems.Workshop(config, systems.load_pool(config))
        self.workers = [worker.name for _, worker in workshop.pool]
        specs = expand(config.systems, self.workers)
        against_in([spec.name for spec in specs], config.against)  # raises where there is none
        if len(specs) > 1 and find_spec("scipy") is None:
            raise ConfigError(
                "eval: no scipy, which comparisons of systems need; expected the extra: pip install "
                "'openconductor[eval]'"
            )
        for spec in specs:
            workshop.check(spec)
        self.trained = {spec.name for spec in specs if systems.learns(spec, config)}
        self.trials = (
            config.learn.trials
            if any(systems.learns(spec, config, "trials") for spec in specs)
            else 0
        )
        sheets = list(systems.load_sheets(config).values())
        workshop.check_held_out(sheets)
        learning = [systems.load_learning(config, sheets)] if self.trained else []
        self.described: dict[str, object] = {
            **workshop.described(specs),
            "tasks": {sheet.name: sheet.described for sheet in sheets},
            "learn": learning[0].described if learning else None,
        }
        self.sandbox, every = systems.open_for([*sheets, *learning], config)
        self.sheets, self.learn = every[: len(sheets)], every[-1] if learning else None
        # What is really asked: hindsight only looks back, at every worker.
        self.asked = [spec for spec in specs if spec.kind != HINDSIGHT]
        if len(self.asked) < len(specs):
            self.asked += [
                one for name in self.workers if (one := Spec(WORKER, name)) not in self.asked
            ]
        self.total = len(self.asked) * config.repeats * sum(len(sheet.problems) for sheet in sheets)
        self.total += sum(len(sheet.problems) for sheet in learning) * (
            len(self.workers) + self.trials
        )


# ── asking ────────────────────────────────────────────────────────────────────────────────────────
_Key = tuple[str, str, str, int]


class _Cell(NamedTuple):
    """One question, asked once of one system."""

    system: System
    sheet: Sheet
    problem: Problem
    repeat: int

    @property
    def key(self) -> _Key:
        """That of its record."""
        return self.system.name, self.sheet.name, self.problem.id, self.repeat


def _key(one: Record) -> _Key:
    return one.system, one.task, one.problem, one.sample


def _keep(journal: Journal, record: Record) -> None:
    journal.put_outcome(json.dumps(_key(record)), cast("dict[str, Any]", plain(record)))


def open_purse(budget: Budget, spent: Spending) -> BudgetMeter:
    """What all runs of an evaluation may still spend; what was ``spent`` before counts."""
    purse = BudgetMeter(budget, now=0.0, purse=True)
    purse.add(calls=spent.calls, dollars=spent.usage.dollars)
    return purse


class _Run:
    """One run of a plan: what its journal lacks is asked, many at once."""

    def __init__(
        self, plan: _Plan, journal: Journal, retry_failed: bool, on_progress: OnProgress | None
    ) -> None:
        self._plan, self._config, self.journal = plan, plan.config, journal
        kept = records.kept_records(journal)
        # What a system that has answered since has learnt from stays, failed or not.
        learnt = (
            plan.learn.name
            if plan.learn is not None and any(one.system in plan.trained for one in kept)
            else None
        )
        self._kept = {
            _key(one)
            for one in kept
            if not retry_failed or one.status != "failed" or one.task == learnt
        }
        self._places = asyncio.Semaphore(plan.config.concurrency)
        self.spent = journal.totals().spent
        budget = plan.config.budget.budget()
        self.purse = None if budget is None else open_purse(budget, self.spent)
        plan.workshop.journal = journal if plan.config.share_calls or self.spent.calls else None
        self._on_progress = on_progress
        self._empty: BudgetExceeded | None = None
        self._done = 0

    async def play(self) -> None:
        """Ask what is missing, phase by phase."""
        plan, workshop = self._plan, self._plan.workshop
        for _, worker in workshop.pool:
            check_price(self.purse, worker)
        lessons = None if plan.learn is None else await self._learn(plan.learn)
        every = [
            workshop.make(spec, lessons if spec.name in plan.trained else None)
            for spec in plan.asked
        ]
        for together in [[system] for system in every] if plan.config.share_calls else [every]:
            await self._ask_all(together, plan.sheets, plan.config.repeats)
        await self.journal.wait_durable()

    async def _learn(self, sheet: Sheet) -> systems.Lessons:
        """What trained baselines learn from."""
        plan = self._plan
        await self._ask_all(
            [plan.workshop.make(Spec(WORKER, name)) for name in plan.workers], [sheet], 1
        )
        if plan.trials:
            await self._ask_all([plan.workshop.make(Spec(systems.EXPLORER))], [sheet], plan.trials)
        await self.journal.wait_durable()
        return systems.lessons_of(records.kept_records(self.journal), sheet, plan.workshop.pool)

    async def _ask_all(
        self, asked: Sequence[System], sheets: Iterable[Sheet], repeats: int
    ) -> None:
        """Ask question by question, each repeat of it to all systems, so that what a stop leaves is paired."""
        cells = [
            _Cell(system, sheet, problem, repeat)
            for sheet in sheets
            for problem in sheet.problems
            for repeat in range(repeats)
            for system in asked
        ]
        missing = [one for one in cells if one.key not in self._kept]
        self._done += len(cells) - len(missing)
        await at_once(missing, self._play, (1 + SETTLING) * self._config.concurrency)
        if self._empty is not None:
            calls = "1 call" if self.spent.calls == 1 else f"{self.spent.calls} calls"
            raise BudgetExceeded(
                f"the evaluation's budget is spent, {self._done} of {self._plan.total} questions are done: paid "
                f"{calls} and ${self.spent.usage.dollars}; with a larger budget it goes on from there",
                limit=self._empty.limit,
            ) from self._empty

    async def _play(self, cell: _Cell) -> None:
        await self._places.acquire()
        sink = _Sink(self, self._places)
        try:
            if self._empty is not None:
                return
            episode = await self._ask(cell, sink)
        except BudgetExceeded as error:  # the evaluation's: a question's own is data
            self._empty = error
            return
        finally:
            sink.leave()
        outcome = await judged(cell.problem, episode, cell.sheet.grader, cell.repeat)
        record = records.record_of(outcome, system=cell.system.name, task=cell.sheet.name)
        _keep(self.journal, record)
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(Progress(record, self._done, self._plan.total, self.spent))

    async def _ask(self, cell: _Cell, sink: _Sink) -> Episode:
        system, problem = cell.system, cell.problem
        named = "" if self._config.share_calls else system.name
        sample = records.sample_number(named, cell.sheet.name, problem.id, cell.repeat)
        asked = system.orchestrator.ask(
            problem.question,
            budget=system.budget,
            on_event=sink,
            context=CallContext(sample=sample),
        )
        try:
            with (
                PaidCall(self.purse) if self.purse is not None else nullcontext()
            ):  # what is asked inside is charged
                return await asked
        except BudgetExceeded as error:
            if error.episode is None or (self.purse is not None and self.purse.ended_in(error)):
                raise
            return error.episode


class _Sink:
    """Where the events of one cell go: into the journal; what was paid is counted."""

    wants_text = False

    def __init__(self, run: _Run, places: asyncio.Semaphore) -> None:
        self._run = run
        self._places: asyncio.Semaphore | None = places

    def __call__(self, event: Event) -> None:
        self._run.journal(event)
        if isinstance(event, CallEnded) and not event.call.replayed:
            self._run.spent += Spending(1, event.call.usage)

    def leave(self) -> None:
        """Give the cell's place to the next one, once."""
        if self._places is not None:
            self._places.release()
        self._places = None

    async def wait_durable(self) -> None:
        """Wait for the disk; the episode has been answered, so its place is free."""
        self.leave()
        await self._run.journal.wait_durable()


# ── grading again ─────────────────────────────────────────────────────────────────────────────────
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

    A moved verdict is a newer record of the same question; the older one stays in the journal. What
    has no answer stays what it is, and so does what trained baselines learnt from.

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
    sandbox, opened = systems.open_for(sheets.values(), config)
    asked = {
        (sheet.name, problem.id): (sheet.grader, problem)
        for sheet in opened
        for problem in sheet.problems
    }
    pairs: list[tuple[Record, Record]] = []

    async def again(old: Record) -> None:
        grader, problem = asked[old.task, old.problem]
        answered = Episode(problem.question, (), old.answer, None, old.usage, old.seconds)
        new = records.record_of(
            await judged(problem, answered, grader, old.sample), system=old.system
        )
        now = replace(
            old, correct=new.correct, status=new.status, extracted=new.extracted, note=new.note
        )
        pairs.append((old, now))
        if old != now:
            _keep(journal, now)

    try:
        with Journal(folder / records.JOURNAL) as journal:
            kept = records.kept_records(journal)
            stored = [
                one for one in kept if one.answer is not None and (one.task, one.problem) in asked
            ]
            await at_once(stored, again, GRADED_AT_ONCE)
            await journal.wait_durable()
    finally:
        if sandbox is not None:
            await sandbox.aclose()
    pairs.sort(key=lambda pair: _key(pair[0]))
    moves = (
        Move(*_key(new), old.correct, new.correct, new.note)
        for old, new in pairs
        if old.correct != new.correct
    )
    results = Results.load(folder)
    write_tables(results, folder)
    return Regraded(len(pairs), tuple(moves), results)
