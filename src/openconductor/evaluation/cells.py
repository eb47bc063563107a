"""The grid's cells: one system, one question, one repeat. In: systems and loaded tasks. Out: Cells: keys and samples.

A cell's **sample number** is what tells its calls from all others: to the journal, which finds a call again by it, and
to simulated workers, which draw by it. It is made of the system, the task, the problem's id and the repeat, so that

- two systems that ask the same worker the same thing get two completions, and their scores are independent;
- it does not depend on which other systems, problems or repeats there are, nor on any order: the same cell of another
  evaluation is the same call.

With ``shared`` the system is left out: systems that make the same call then share its completion (common random
numbers), which is cheaper and ties their scores together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from openconductor.evaluation.config import MOST_REPEATS
from openconductor.protocols import Grader, Orchestrator
from openconductor.types import Budget, Problem


@dataclass(frozen=True, slots=True)
class System:
    """Something that answers, under the name that tables give it.

    Attributes:
        name: its normalised spec.
        orchestrator: what is asked.
        budget: what one question may cost it; None is no limit.
    """

    name: str
    orchestrator: Orchestrator
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """The questions of one task as they are asked.

    Attributes:
        name: what records call the task.
        problems: the questions.
        grader: their judge.
    """

    name: str
    problems: Sequence[Problem]
    grader: Grader


@dataclass(frozen=True, slots=True)
class Cell:
    """One question, asked once of one system."""

    system: System
    sheet: Sheet
    problem: Problem
    repeat: int

    @property
    def key(self) -> str:
        """Its name in the journal's ``outcomes``: a JSON list of system, task, problem and repeat."""
        return cell_key(self.system.name, self.sheet.name, self.problem.id, self.repeat)

    def sample(self, *, shared: bool) -> int:
        """The sample number of its calls."""
        return sample_number("" if shared else self.system.name, self.sheet.name, self.problem.id, self.repeat)


def cell_key(system: str, task: str, problem: str, repeat: int) -> str:
    """The key of a cell.

    >>> cell_key("conductor", "gym", "gym-1", 0)
    '["conductor", "gym", "gym-1", 0]'
    """
    return json.dumps([system, task, problem, repeat], ensure_ascii=True)


def sample_number(system: str, task: str, problem: str, repeat: int) -> int:
    """A number below 2**53 (JSON and SQLite hold it exactly): 41 bits of a digest, then the repeat.

    >>> sample_number("", "gym", "gym-1", 3) - sample_number("", "gym", "gym-1", 0)
    3
    """
    named = json.dumps([system, task, problem]).encode()
    digest = int.from_bytes(blake2b(named, digest_size=8, person=b"oc-sample").digest(), "big")
    return (digest >> 23) * MOST_REPEATS + repeat


def cells_of(systems: Sequence[System], sheets: Iterable[Sheet], repeats: int) -> Iterator[Cell]:
    """All cells: question by question, each repeat of it to all systems, so that what a stop leaves is paired."""
    for sheet in sheets:
        for problem in sheet.problems:
            for repeat in range(repeats):
                for system in systems:
                    yield Cell(system, sheet, problem, repeat)
