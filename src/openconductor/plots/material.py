"""What figures are drawn from: an evaluation's records, a training's curve, names.

In: Records, a curve, the workers' names. Out: a Material, which every figure takes, and what most figures ask of it:
which system is the Conductor, which is a worker alone, which rows a figure by task and kind has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from openconductor.evaluation.records import Record
from openconductor.evaluation.specs import CONDUCTOR, HINDSIGHT, ORACLE, WORKER
from openconductor.gym.questions import KINDS
from openconductor.measures import Topology
from openconductor.plots.iterations import Iteration
from openconductor.plots.looks import OURS, Look, look
from openconductor.plots.words import labels
from openconductor.types import Workflow

ALONE = f"{WORKER}:"
"""How the name of a system begins that is one worker alone."""
ORACLES = (ORACLE, HINDSIGHT)
"""Systems that know the answers: bounds of the scale, never competitors."""
BOUNDS = (*ORACLES, "best_fixed", "random")
SHAPES: tuple[Topology, ...] = get_args(Topology)
MOST_PARTS = 12
"""The most rows or columns of a figure by kind; the smallest kinds beyond are put together."""
_EASY_TO_HARD: tuple[Sequence[str], ...] = (KINDS, ("easy", "medium", "hard"))


@dataclass(frozen=True, slots=True)
class Row:
    """The records of one row of a figure: a task, a kind, or a kind of a task."""

    name: str
    records: tuple[Record, ...]

    @property
    def questions(self) -> int:
        """How many different questions there are."""
        return len({(record.task, record.problem) for record in self.records})


@dataclass(frozen=True)
class Material:
    """What figures are drawn from. What is not there is empty, and figures that need it say so.

    Attributes:
        records: of an evaluation, of all systems.
        workers: the workers' names by ordinal; one that is not named is called by its number.
        curve: of a training.
        system: which system the figures are about; None is ``conductor``, else the first that plans.
    """

    records: Sequence[Record] = ()
    workers: Mapping[int, str] = field(default_factory=dict[int, str])
    curve: Sequence[Iteration] = ()
    system: str | None = None

    @cached_property
    def by_system(self) -> dict[str, tuple[Record, ...]]:
        """The records of each system, in the order in which the systems first come."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.system, []).append(record)
        return {system: tuple(records) for system, records in found.items()}

    @cached_property
    def ours(self) -> str | None:
        """The system that the figures are about; None where none is named, and none plans."""
        if self.system in self.by_system:
            return self.system
        return CONDUCTOR if CONDUCTOR in self.planning else next(iter(self.planning), None)

    @cached_property
    def planning(self) -> tuple[str, ...]:
        """The systems that plan, those whose planner could never be reached among them."""
        return tuple(
            name
            for name, records in self.by_system.items()
            if name == CONDUCTOR or any(one.planned for record in records for one in record.rounds)
        )

    @cached_property
    def alone(self) -> dict[str, tuple[Record, ...]]:
        """The records of each worker alone, by the worker's name."""
        return {
            system.removeprefix(ALONE): records
            for system, records in self.by_system.items()
            if system.startswith(ALONE)
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All workers that are known of: those of the pool first, by ordinal, then those of the curve, then others."""
        found = dict.fromkeys(self.workers[ordinal] for ordinal in sorted(self.workers))
        found |= dict.fromkeys(name for iteration in self.curve for name in iteration.worker_share)
        played = {step.worker for record in self.records for flow in record.workflows for step in flow}
        found |= dict.fromkeys(self.worker(ordinal) for ordinal in sorted(played))
        return tuple(found | dict.fromkeys(self.alone))

    def worker(self, ordinal: int) -> str:
        """The name of the worker with an ordinal."""
        return self.workers.get(ordinal, f"worker {ordinal}")

    def look_of_worker(self, name: str) -> Look:
        """How a worker is drawn: the same in every figure."""
        return look(self.names.index(name))

    def look_of_system(self, system: str) -> Look:
        """How a system is drawn: ours a star, a worker alone as that worker is, everything else hollow.

        The looks of other systems follow on those of the workers, so no two share colour and marker.
        """
        if system == self.ours:
            return OURS
        if system.startswith(ALONE):
            return self.look_of_worker(system.removeprefix(ALONE))
        others = [name for name in self.by_system if name != self.ours and not name.startswith(ALONE)]
        return look(len(self.names) + others.index(system)).unfilled


@dataclass(frozen=True, slots=True)
class Columns:
    """How records are parted by task and kind.

    Attributes:
        names: of the parts, in order; at most twelve.
        place: where each pair of task and kind belongs.
    """

    names: tuple[str, ...]
    place: Mapping[tuple[str, str], int]

    def split(self, records: Iterable[Record]) -> list[tuple[Record, ...]]:
        """The records of each part; one of a task and kind that was not parted is left out."""
        found: list[list[Record]] = [[] for _ in self.names]
        for record in records:
            place = self.place.get((record.task, record.kind))
            if place is not None:
                found[place].append(record)
        return [tuple(part) for part in found]


def columns_of(records: Iterable[Record]) -> Columns:
    """The parts of records: by kind where they are of one task, else by task and kind, or by task if that is too many.

    Returns:
        At most twelve parts, from easy to hard where an order of the kinds is known; beyond them the smallest together.
    """
    questions = {(record.task, record.kind, record.problem): None for record in records}
    sizes = Counter((task, kind) for task, kind, _ in questions)
    tasks = list(dict.fromkeys(task for task, _ in sizes))
    kinds = in_order({kind for _, kind in sizes})
    pairs = sorted(sizes, key=lambda pair: (tasks.index(pair[0]), kinds.index(pair[1])))
    if 1 < len(tasks) <= MOST_PARTS < len(pairs):
        return Columns(tuple(tasks), {pair: tasks.index(pair[0]) for pair in pairs})
    kept = pairs
    if len(pairs) > MOST_PARTS:
        largest = sorted(pairs, key=lambda pair: (-sizes[pair], pairs.index(pair)))[: MOST_PARTS - 1]
        kept = [pair for pair in pairs if pair in largest]
    named = labels([_name(*pair, of_many=len(tasks) > 1) for pair in kept])
    others = (f"{len(pairs) - len(kept)} others",) if len(kept) < len(pairs) else ()
    return Columns(
        (*named.values(), *others), {pair: kept.index(pair) if pair in kept else len(kept) for pair in pairs}
    )


def rows(records: Sequence[Record]) -> list[Row]:
    """The parts of ``columns_of``, each with its records."""
    columns = columns_of(records)
    return [Row(name, part) for name, part in zip(columns.names, columns.split(records), strict=True)]


def in_order(kinds: Iterable[str]) -> list[str]:
    """Kinds from easy to hard where that order is known, else by name, numbers in them by size.

    >>> in_order(["hard", "easy"]), in_order(["level 10", "level 2"])
    (['easy', 'hard'], ['level 2', 'level 10'])
    """
    kinds = set(kinds)
    for known in _EASY_TO_HARD:
        if kinds <= set(known):
            return [kind for kind in known if kind in kinds]
    return sorted(
        kinds,
        key=lambda kind: [
            (part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split("([0-9]+)", kind)
        ],
    )


def first_workflows(records: Iterable[Record]) -> dict[tuple[str, str], list[Workflow]]:
    """The workflows of the first rounds, by question; a question whose text was no workflow has an empty list."""
    found: dict[tuple[str, str], list[Workflow]] = {}
    for record in records:
        flows = found.setdefault((record.task, record.problem), [])
        first = record.rounds[0].workflow if record.rounds else None
        if first is not None and first.steps:
            flows.append(first)
    return found


def _name(task: str, kind: str, *, of_many: bool) -> str:
    if of_many:
        return f"{task}: {kind}" if kind else task
    return kind or task
