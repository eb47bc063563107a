"""Grading again what is stored, with today's grader, without calling anyone.

In: the folder of an evaluation, whole or not. Out: which verdicts moved; the tables, made anew. A moved verdict is
written as a newer record of the same question; the older one stays in the journal (``Journal.outcomes(history=True)``).

What has no answer (an invalid plan, a refusal, a failure) stays what it is, and so does what trained baselines learnt
from. The data must be those that were asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from openconductor.errors import ConfigError
from openconductor.evaluation.cells import Sheet, cell_key
from openconductor.evaluation.folder import JOURNAL, input_differences, read_folder
from openconductor.evaluation.inputs import Plain, in_sandbox, load_sheets, open_for
from openconductor.evaluation.records import Record, from_json, record_of, to_json
from openconductor.evaluation.results import Results
from openconductor.evaluation.run import Outcome
from openconductor.evaluation.runner import write_tables
from openconductor.journal import Journal
from openconductor.reward import grade_answer
from openconductor.types import Episode, Problem

AT_ONCE = 64
"""Answers that are graded at the same time."""


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
    """What came of grading again.

    Attributes:
        graded: how many stored answers there were.
        moves: the verdicts that moved, in order.
        results: the records as they stand now.
    """

    graded: int
    moves: tuple[Move, ...]
    results: Results


async def regrade(folder: str | Path) -> Regraded:
    """Grade the stored answers of an evaluation again.

    Raises:
        ConfigError: the folder holds no evaluation, or its questions are not what they were.
        TaskError: data are absent or changed.
        JournalError: the journal is in use, or the disk failed.
    """
    folder = Path(folder)
    config, environment = read_folder(folder)
    loaded = load_sheets(config)
    before = cast("Mapping[str, Plain]", cast("Plain", environment.get("inputs", {})).get("tasks", {}))
    changed = input_differences(before, {name: plain for name, (_, plain) in loaded.items()})
    if changed:
        raise ConfigError(
            f"{folder}: its questions are others now: {'; '.join(changed)}; expected those that were asked"
        )
    sandbox = open_for(loaded, unsafe=config.unsafe_code_exec)
    try:
        judged = await _judge_again(folder, [in_sandbox(sheet, sandbox) for sheet, _ in loaded.values()])
    finally:
        if sandbox is not None:
            await sandbox.aclose()
    moves = [
        Move(new.system, new.task, new.problem, new.sample, old.correct, new.correct, new.note)
        for old, new in judged
        if old.correct != new.correct
    ]
    moves.sort(key=lambda move: (move.system, move.task, move.problem, move.sample))
    results = Results.load(folder)
    write_tables(results, folder)
    return Regraded(len(judged), tuple(moves), results)


async def _judge_again(folder: Path, sheets: Sequence[Sheet]) -> list[tuple[Record, Record]]:
    """Every record with an answer, as it stood and as it stands now; what differs is in the journal."""
    asked = {(sheet.name, problem.id): (sheet, problem) for sheet in sheets for problem in sheet.problems}
    with Journal(folder / JOURNAL) as journal:
        records = [from_json(one.record) for one in journal.outcomes()]
        stored = [one for one in records if one.answer is not None and (one.task, one.problem) in asked]
        places = asyncio.Semaphore(AT_ONCE)

        async def again(record: Record) -> Record:
            async with places:
                return await _again(record, *asked[record.task, record.problem])

        now = await asyncio.gather(*map(again, stored))
        for old, new in zip(stored, now, strict=True):
            if old != new:
                journal.put_outcome(cell_key(new.system, new.task, new.problem, new.sample), to_json(new))
        await journal.wait_durable()
    return list(zip(stored, now, strict=True))


async def _again(record: Record, sheet: Sheet, problem: Problem) -> Record:
    assert record.answer is not None
    grade = await grade_answer(sheet.grader, problem, record.answer)
    answered = Episode(problem.question, (), record.answer, None, record.usage, record.seconds)
    judged = record_of(Outcome(problem, answered, grade, record.sample), system=record.system)
    return replace(record, correct=judged.correct, status=judged.status, extracted=judged.extracted, note=judged.note)
