"""Whether a task's grader accepts what is right. In: a task. Out: which canonical replies it accepts, and which not.

A canonical reply is the gold answer in the form that the prompt asks for, or the reference solution that the data
hold. One that is refused is a fault of the data, of the grader, or of this machine (a library that a solution needs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from openconductor.errors import GradingError
from openconductor.protocols import Grader
from openconductor.tasks.items import Benchmark, Item, Source
from openconductor.types import Grade

OnProgress = Callable[[int, int], None]
"""Gets how many replies have been graded, and of how many."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A canonical reply that was not accepted: the problem's id, what was read off the reply, and why."""

    problem: str
    extracted: str | None
    note: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        task, source: what was checked.
        accepted: how many canonical replies were called right.
        refused: those called wrong.
        undecided: those that the grader could not judge.
        unanswered: how many problems have no canonical reply.
    """

    task: str
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
    task: Benchmark, split: str = "", *, concurrency: int = 8, on_progress: OnProgress | None = None
) -> CheckReport:
    """Grade every canonical reply of a split.

    Args:
        task: whose replies.
        split: of which part; "" is the default one.
        concurrency: replies graded at the same time.
        on_progress: told after each.

    Raises:
        TaskError: the data are absent or changed.
        ConfigError: an extra that the grader needs is not installed.
    """
    loaded = task.read(split)
    answered = [(item, item.canonical) for item in loaded.items if item.canonical is not None]
    gate = asyncio.Semaphore(concurrency)
    done = 0

    async def one(item: Item, canonical: str) -> Grade:
        nonlocal done
        async with gate:
            grade = await _grade(task.grader, item, canonical)
        done += 1
        if on_progress is not None:
            on_progress(done, len(answered))
        return grade

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(item, canonical)) for item, canonical in answered]
    grades = [(item, task.result()) for (item, _), task in zip(answered, running, strict=True)]
    return CheckReport(
        task.name,
        loaded.source,
        accepted=sum(grade.correct is True for _, grade in grades),
        refused=_findings(grades, False),
        undecided=_findings(grades, None),
        unanswered=len(loaded.items) - len(answered),
    )


async def _grade(grader: Grader, item: Item, canonical: str) -> Grade:
    try:
        return await grader.grade(item.problem, canonical)
    except GradingError as error:
        return Grade(None, note=f"undecided: {error}")


def _findings(grades: list[tuple[Item, Grade]], verdict: bool | None) -> tuple[Finding, ...]:
    return tuple(
        Finding(item.problem.id, grade.extracted, grade.note) for item, grade in grades if grade.correct is verdict
    )
