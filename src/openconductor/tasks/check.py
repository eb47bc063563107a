"""Checks that a task's grader accepts what is right.

A canonical reply is the gold answer in the form that the prompt asks for, or the reference solution
that the data hold. If the grader refuses one, the fault is in the data, in the grader, or in this
machine (a library that a solution needs).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from openconductor.graders import grade_answer
from openconductor.protocols import Grader
from openconductor.tasks.data.items import Benchmark, Source
from openconductor.types import Grade, Problem

OnProgress = Callable[[int, int], None]
"""Gets the number of graded replies, and of all replies."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A canonical reply that was not accepted: the problem's id, the extracted answer, a reason."""

    id: str
    extracted: str | None
    note: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    Attributes:
        source: the origin of the problems.
        accepted: the number of canonical replies called right.
        refused: those called wrong.
        undecided: those that the grader could not judge.
        unanswered: the number of problems without a canonical reply.
    """

    source: Source
    accepted: int
    refused: tuple[CheckFinding, ...]
    undecided: tuple[CheckFinding, ...]
    unanswered: int

    @property
    def ok(self) -> bool:
        """True if none was refused, and not all were left undecided."""
        decided = self.accepted > 0 or not self.undecided
        return decided and not self.refused


async def check_task(
    task: Benchmark,
    *,
    grader: Grader | None = None,
    concurrency: int = 8,
    on_progress: OnProgress | None = None,
) -> CheckReport:
    """Grade every canonical reply of the default split.

    Args:
        task: the task to check.
        grader: judges in place of the task's own.
        concurrency: replies graded at the same time.
        on_progress: called after each.

    Raises:
        TaskError: the data are absent or changed.
        ConfigError: an extra that the grader needs is not installed.
    """
    loaded = task.read()
    answered = [
        (item.problem, item.canonical) for item in loaded.items if item.canonical is not None
    ]
    gate = asyncio.Semaphore(concurrency)
    done = itertools.count(1)

    async def check(problem: Problem, canonical: str) -> Grade:
        async with gate:
            grade = await grade_answer(grader or task.grader, problem, canonical)
        if on_progress is not None:
            on_progress(next(done), len(answered))
        return grade

    try:
        async with asyncio.TaskGroup() as group:
            checks = [group.create_task(check(problem, reply)) for problem, reply in answered]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    accepted = 0
    refused: list[CheckFinding] = []
    undecided: list[CheckFinding] = []
    for (problem, _), checked in zip(answered, checks, strict=True):
        grade = checked.result()
        if grade.correct:
            accepted += 1
        else:
            findings = undecided if grade.correct is None else refused
            findings.append(CheckFinding(problem.id, grade.extracted, grade.note))
    unanswered = len(loaded.items) - len(answered)
    return CheckReport(loaded.source, accepted, tuple(refused), tuple(undecided), unanswered)
