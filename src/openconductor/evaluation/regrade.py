"""Grade the stored answers of an evaluation again, without calling any worker but its judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from openconductor.config import one_of
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation import for_each, judge as judge_episode, records
from openconductor.evaluation.eval_config import EvalConfig, dump_eval_config
from openconductor.evaluation.grid import open_run_budget, write_tables
from openconductor.evaluation.joined.agreement import describe
from openconductor.evaluation.records import Plain, Record, Results
from openconductor.evaluation.sheets import (
    Sheet,
    check_judge,
    check_questions,
    load_sheets,
    open_for,
    open_judge,
    settle_sheets,
)
from openconductor.evaluation.statistics import Key
from openconductor.evaluation.systems import load_pool
from openconductor.pool import WorkerPool, reach
from openconductor.protocols import Grader
from openconductor.store import Store, open_store
from openconductor.store.storage import write_whole
from openconductor.types import Episode, Problem

GRADED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Move:
    """A verdict that changed; ``None`` is undecided."""

    system: str
    task: str
    problem: str
    sample: int
    before: bool | None
    now: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class Regraded:
    """The result of grading again.

    Attributes:
        graded: how many answers were graded.
        moves: the verdicts that changed, in order.
        results: the records with the new verdicts.
    """

    graded: int
    moves: tuple[Move, ...]
    results: Results


async def regrade(
    folder: str | Path,
    *,
    judge: str = "",
    on_progress: Callable[[int, int], None] | None = None,
) -> Regraded:
    """Grade the stored answers of an evaluation again, and write its tables anew.

    A verdict that changed is a newer record of the same question; the older one stays in the
    journal. Records without an answer are not changed, and neither is what trained baselines
    learnt from. A judge is only asked about what it has not decided before.

    Args:
        folder: of the evaluation.
        judge: the worker that decides from now on what the rules cannot; "": the recipe's.
        on_progress: told how many are graded, of how many.

    Raises:
        ConfigError: the folder holds no evaluation, its questions are not what they were, or the
            judge is not one of its workers.
        TaskError: data are missing or changed.
        Unreachable: the judge cannot be reached. Nothing was changed.
        BudgetExceeded: the evaluation's budget is spent. What was decided is kept.
        JournalError: the journal is in use, or the disk failed.
    """
    folder = Path(folder)
    config, environment = records.read_folder(folder)
    if judge:
        config = replace(config, judge=judge)
    loaded = load_sheets(config)
    check_questions(folder, environment, loaded)
    pool = _open_pool(config, environment, list(loaded.values())) if config.judge else None
    sandbox, sheets = open_for(loaded.values(), config)
    pairs: list[tuple[Record, Record]] = []
    spent: list[BudgetExceeded] = []
    try:
        with open_store(records.journal_place(folder, config)) as journal:
            questions = _questions(sheets, config, pool, journal)
            kept = records.kept_records(journal)
            stored = [one for one in kept if one.answer is not None and one.key in questions]
            if pool is not None and any(record.correct is None for record in stored):
                await reach([pool[config.judge]])
            if judge:
                write_whole(folder / records.CONFIG, dump_eval_config(config))
                if config.journal:
                    inputs = cast("Plain", environment["inputs"])
                    journal.put_record(records.DESCRIPTION, describe(config, inputs))

            async def grade_again(old: Record) -> None:
                try:
                    new = await _grade_again(old, *questions[old.key])
                except BudgetExceeded as error:  # others need no further call
                    spent.append(error)
                    return
                pairs.append((old, new))
                if on_progress is not None:
                    on_progress(len(pairs), len(stored))
                if old != new:
                    records.keep_record(journal, new)

            await for_each(stored, grade_again, limit=GRADED_AT_ONCE)
            await journal.wait_durable()
    finally:
        if pool is not None:
            await pool.aclose()
        if sandbox is not None:
            await sandbox.aclose()
    pairs.sort(key=lambda pair: pair[0].cell)
    moves = [
        Move(*new.cell, before=old.correct, now=new.correct, note=new.note)
        for old, new in pairs
        if old.correct != new.correct
    ]
    results = Results.load(folder)
    write_tables(results, folder)
    if spent:
        raise spent[0]
    return Regraded(len(pairs), tuple(moves), results)


def _open_pool(config: EvalConfig, environment: Plain, sheets: Sequence[Sheet]) -> WorkerPool:
    """Open the pool of a run for its judge.

    Raises:
        ConfigError: the judge is not one of the run's workers, or has nothing to judge.
    """
    pool = load_pool(config)
    check_judge(config.judge, pool, sheets)
    inputs = cast("Mapping[str, list[Plain]]", environment["inputs"])
    known = {str(worker["name"]): worker["identity"] for worker in inputs["workers"]}
    one_of("judge", config.judge, known)
    identity = pool[pool.ordinal_of(config.judge)].identity
    if identity != known[config.judge]:
        raise ConfigError(
            f"judge: {config.judge} is another model than in the run: got {identity!r}, expected "
            f"{known[config.judge]!r}"
        )
    return pool


def _questions(
    sheets: Iterable[Sheet], config: EvalConfig, pool: WorkerPool | None, journal: Store
) -> dict[Key, tuple[Problem, Grader]]:
    """Return every problem with its grader; a judge is paid from the budget of the run."""
    judge = None
    if pool is not None:
        limits = config.budget.budget()
        budget = None if limits is None else open_run_budget(limits, journal.totals().counted)
        replaying = pool.replaying(journal)
        judge = open_judge(config, replaying, journal, budget, asks_again=True)
    questions: dict[Key, tuple[Problem, Grader]] = {}
    for sheet in settle_sheets(sheets, config.undecided, judge):
        for problem in sheet.problems:
            questions[sheet.name, problem.id] = (problem, sheet.grader)
    return questions


async def _grade_again(old: Record, problem: Problem, grader: Grader) -> Record:
    """Return the record with the verdict that the grader gives today."""
    episode = Episode(problem.question, (), old.answer, None, old.usage, old.seconds)
    outcome = await judge_episode(problem, episode, grader, old.sample)
    new = records.record_of(outcome, system=old.system)
    return replace(
        old,
        correct=new.correct,
        status=new.status,
        extracted=new.extracted,
        note=new.note,
        judged_by=new.judged_by,
    )
