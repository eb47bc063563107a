# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The material of all figures: records, a curve and names; and the looks and labels of systems.

A ``Material`` knows which system is the Conductor and which is a worker alone. ``by_part`` parts
records by task or kind; ``look`` and ``label`` give series a look and a name that stay the same in
all figures.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from openconductor.evaluation.eval_config import ALONE, CONDUCTOR, short_name
from openconductor.evaluation.records import Record, natural_order
from openconductor.evaluation.statistics import Key
from openconductor.measures import group_by
from openconductor.plots.iterations import Iteration
from openconductor.plots.sheet import Look
from openconductor.tasks.simulated import simulations
from openconductor.types import Workflow

MOST_PARTS = 12
"""The most rows or columns of a figure by kind; the smallest kinds beyond are put together."""
MOST_LETTERS = 27
"""The longest label."""
NO_RECORD = "No record of an evaluation was given."
# Yellow is lost on paper.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#595959")
_MARKERS = "os^DvPX<p>"
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))


@dataclass(frozen=True)
class Material:
    """The material of figures. Missing parts are empty, and figures that need them say so.

    Attributes:
        records: the records of an evaluation, of all systems.
        workers: the workers' names by ordinal; a worker without a name is called by its number.
        curve: the curve of a training.
        system: the system that the figures are about; None: ``conductor``, else the first that
            plans.
        terms: the workers that the training's questions offered; "": all of them.
    """

    records: Sequence[Record] = ()
    workers: Mapping[int, str] = field(default_factory=dict[int, str])
    curve: Sequence[Iteration] = ()
    system: str | None = None
    terms: str = ""

    @cached_property
    def by_system(self) -> dict[str, list[Record]]:
        """The records of each system, in the order in which the systems first come."""
        return group_by(self.records, lambda record: record.system)

    @cached_property
    def ours(self) -> str:
        """The system that the figures are about; "": none is named, and none plans."""
        for name in (self.system, CONDUCTOR):
            if name in self.by_system:
                return name
        for record in self.records:
            if any(played.planned for played in record.rounds):
                return record.system
        return ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All known workers: by ordinal, then those of the curve alone, then others."""
        workflows = [workflow for record in self.records for workflow in record.workflows]
        used = {step.worker for workflow in workflows for step in workflow}
        ordinals = sorted({*self.workers, *used})
        names = [self.worker(ordinal) for ordinal in ordinals]
        for iteration in self.curve:
            names += iteration.worker_share
        names += [name.removeprefix(ALONE) for name in self.alone]
        return tuple(dict.fromkeys(names))

    @cached_property
    def alone(self) -> list[str]:
        """The systems that are one worker alone."""
        return [name for name in self.by_system if name.startswith(ALONE)]

    def worker(self, ordinal: int) -> str:
        """Return the name of the worker with an ordinal."""
        return self.workers.get(ordinal, f"worker {ordinal}")

    def look_of(self, system: str) -> Look:
        """Return the look of a system in all figures: ours is a black star, baselines are hollow.

        The looks of other systems follow on those of the workers, so no two share colour and
        marker.
        """
        if system == self.ours:
            return {"color": "black", "marker": "*", "markersize": 6.0, "zorder": 4}
        if system.startswith(ALONE):
            return look(self.names.index(system.removeprefix(ALONE)))
        others = [name for name in self.by_system if name != self.ours and name not in self.alone]
        place = len(self.names) + others.index(system)
        return {**look(place), "markerfacecolor": "none", "markersize": 6.0}

    def no_workflow(self) -> str:
        """Say why there is no workflow of ours to draw; "": there is one."""
        if not self.records:
            return NO_RECORD
        if not self.ours:
            return (
                "No system of this evaluation plans workflows: "
                "it holds workers alone and baselines."
            )
        records = self.by_system[self.ours]
        if any(first_workflows(records).values()):
            return ""
        wrote = sum(record.valid is not None for record in records)
        return f"None of the {wrote:,} texts that {label(self.ours)} wrote is a workflow."


def first_workflows(records: Iterable[Record]) -> dict[Key, list[Workflow]]:
    """Return the workflows of the first rounds, by question; none where a text was invalid."""
    workflows: dict[Key, list[Workflow]] = {}
    for record in records:
        of_question = workflows.setdefault(record.key, [])
        first = record.rounds[0].workflow if record.rounds else None
        if first:
            of_question.append(first)
    return workflows


def by_part(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each task, or of one task by kind; the smallest parts together.

    Kinds stand from easy to hard where an order of them is known.
    """
    parts = group_by(records, lambda record: record.task)
    if len(parts) == 1:
        by_kind = group_by(records, lambda record: record.kind or record.task)
        parts = {kind: by_kind[kind] for kind in in_order(by_kind)}
    if len(parts) <= MOST_PARTS:
        return parts
    ranked = sorted(parts, key=lambda name: -len(parts[name]))
    small = ranked[MOST_PARTS - 1 :]
    others = [record for name in small for record in parts.pop(name)]
    return {**parts, "others": others}


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds from easy to hard where that order is known, else by name.

    Numbers in names are ordered by size.

    >>> in_order(["hard", "easy"]), in_order(["level 10", "level 2"])
    (['easy', 'hard'], ['level 2', 'level 10'])
    """
    kinds = set(kinds)
    orders = [simulation.kinds for simulation in simulations()]
    for known in (*orders, ("easy", "medium", "hard")):
        if kinds <= set(known):
            return [kind for kind in known if kind in kinds]
    return sorted(kinds, key=natural_order)


# ── looks and names ───────────────────────────────────────────────────────────────────────────────
def look(place: int) -> Look:
    """Return the look of the series at a place.

    The first seventy differ in colour and marker taken together.

    >>> len({(series["color"], series["marker"]) for series in map(look, range(70))})
    70
    """
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "linestyle": _LINES[place // len(_COLOURS) % len(_LINES)],
    }


def label(name: str) -> str:
    """Write the name of a system or worker on one line, without the middle of a long one.

    Letters that the font lacks are escaped. Names of models share their beginnings and differ at
    their ends, so most of the end is kept.

    >>> label("worker:a-very-long-model-name-2026-11-21-instruct")
    'a-very-lo…26-11-21-instruct'
    """
    letters = "".join(_in_font(letter) for letter in short_name(name))
    text = " ".join(letters.split()).lstrip("_")  # matplotlib drops labels that begin with _
    if not text:
        return "(no name)"
    return text if len(text) <= MOST_LETTERS else f"{text[:9]}…{text[-17:]}"


def _in_font(letter: str) -> str:
    """Return a letter as the font can draw it: controls as blanks, unknown letters escaped."""
    if unicodedata.category(letter).startswith("C"):
        return " "
    if ord(letter) in _code_points():
        return letter
    return letter.encode("ascii", "backslashreplace").decode()


@cache
def _code_points() -> frozenset[int]:
    """Return the code points that the font of figures can draw."""
    from matplotlib import font_manager

    font: Any = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())


def labels(names: Iterable[str]) -> dict[str, str]:
    """Return the label of each name, never two alike."""
    written: dict[str, str] = {}
    for name in dict.fromkeys(names):
        text, number = label(name), 1
        while text in written.values():
            number += 1
            text = f"{label(name)} ({number})"
        written[name] = text
    return written


def spanned(counts: Iterable[int]) -> str:
    """Write the smallest and the largest of some counts; only one if they are the same.

    >>> spanned([100, 100]), spanned([1000, 30])
    ('100', '30 to 1,000')
    """
    counts = set(counts)
    fewest, most = min(counts), max(counts)
    if fewest == most:
        return f"{most:,}"
    return f"{fewest:,} to {most:,}"
