"""Grade the stored answers of an evaluation again, without calling any worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from openconductor.evaluation import for_each, judge, records
from openconductor.evaluation.grid import write_tables
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.sheets import check_questions, load_sheets, open_for
from openconductor.evaluation.statistics import Key
from openconductor.protocols import Grader
from openconductor.store import open_store
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
    folder: str | Path, on_progress: Callable[[int, int], None] | None = None
) -> Regraded:
    """Grade the stored answers of an evaluation again, and write its tables anew.

    A verdict that changed is a newer record of the same question; the older one stays in the
    journal. Records without an answer are not changed, and neither is what trained baselines
    learnt from. ``on_progress`` is told how many are graded, of how many.

    Raises:
        ConfigError: the folder holds no evaluation, or its questions are not what they were.
        TaskError: data are missing or changed.
        JournalError: the journal is in use, or the disk failed.
    """
    folder = Path(folder)
    config, environment = records.read_folder(folder)
    sheets = load_sheets(config)
    check_questions(folder, environment, sheets)
    sandbox, opened = open_for(sheets.values(), config)
    questions: dict[Key, tuple[Problem, Grader]] = {}
    for sheet in opened:
        for problem in sheet.problems:
            questions[sheet.name, problem.id] = (problem, sheet.grader)
    pairs: list[tuple[Record, Record]] = []

    async def grade_again(old: Record) -> None:
        new = await _grade_again(old, *questions[old.key])
        pairs.append((old, new))
        if on_progress is not None:
            on_progress(len(pairs), len(stored))
        if old != new:
            records.keep_record(journal, new)

    try:
        with open_store(folder / records.JOURNAL) as journal:
            kept = records.kept_records(journal)
            stored = [one for one in kept if one.answer is not None and one.key in questions]
            await for_each(stored, grade_again, limit=GRADED_AT_ONCE)
            await journal.wait_durable()
    finally:
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
    return Regraded(len(pairs), tuple(moves), results)


async def _grade_again(old: Record, problem: Problem, grader: Grader) -> Record:
    """Return the record with the verdict that the grader gives today."""
    episode = Episode(problem.question, (), old.answer, None, old.usage, old.seconds)
    outcome = await judge(problem, episode, grader, old.sample)
    new = records.record_of(outcome, system=old.system)
    return replace(
        old,
        correct=new.correct,
        status=new.status,
        extracted=new.extracted,
        note=new.note,
    )
