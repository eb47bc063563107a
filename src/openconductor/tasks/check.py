"""Whether a task's grader accepts what is right. In: a task. Out: which canonical replies it accepts, and which not.

A canonical reply is the gold answer in the form that the prompt asks for, or the reference solution
that the data hold. One that is refused is a fault of the data, of the grader, or of this machine (a
library that a solution needs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from openconductor.errors import GradingError
from openconductor.protocols import Grader
from openconductor.tasks.items import Benchmark, Source
from openconductor.types import Grade, Problem

OnProgress = Callable[[int, int], None]
"""Gets how many replies have been graded, and of how many."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A canonical reply that was not accepted: the problem's id, what was read off the reply, and why."""

    id: str
    extracted: str | None
    note: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        source: what was checked.
        accepted: how many canonical replies were called right.
        refused: those called wrong.
        undecided: those that the grader could not judge.
        unanswered: how many problems have no canonical reply.
    """

    source: Source
    accepted: int
    refused: tuple[Finding, ...]
    undecided: tuple[Finding, ...]
    unanswered: int

    @property
    def ok(self) -> bool:
        """Whether none was refused, and not all were left undecided."""
        return not self.refused and (self.accepted > 0 or not self.undecided)


async def check_task(
    task: Benchmark, *, concurrency: int = 8, on_progress: OnProgress | None = None
) -> CheckReport:
    """Grade every canonical reply of the default split.

    Args:
        task: whose replies.
        concurrency: replies graded at the same time.
        on_progress: told after each.

    Raises:
        TaskError: the data are absent or changed.
        ConfigError: an extra that the grader needs is not installed.
    """
    loaded = task.read()
    answered = [
        (item.problem, item.canonical) for item in loaded.items if item.canonical is not None
    ]
    gate, graded = asyncio.Semaphore(concurrency), 0

    async def graded_one(problem: Problem, canonical: str) -> Grade:
        nonlocal graded
        async with gate:
            grade = await judged(task.grader, problem, canonical)
        graded += 1
        if on_progress is not None:
            on_progress(graded, len(answered))
        return grade

    async with asyncio.TaskGroup() as group:
        running = [(one[0], group.create_task(graded_one(*one))) for one in answered]
    found: dict[bool | None, list[Finding]] = {True: [], False: [], None: []}
    for problem, grading in running:
        grade = grading.result()
        found[grade.correct].append(Finding(problem.id, grade.extracted, grade.note))
    unanswered = len(loaded.items) - len(answered)
    return CheckReport(
        loaded.source, len(found[True]), tuple(found[False]), tuple(found[None]), unanswered
    )


async def judged(grader: Grader, problem: Problem, answer: str) -> Grade:
    """The grade of an answer; undecided, with the reason, where the grader could not judge it."""
    try:
        return await grader.grade(problem, answer)
    except GradingError as error:
        return Grade(None, note=f"undecided: {error}")
