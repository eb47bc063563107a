# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""What figures are drawn from: an evaluation's records, a training's curve, names; and what most figures ask of it.

In: Records, a curve, the workers' names. Out: a Material, which every figure takes: which system is
the Conductor, which is a worker alone, how each is drawn, how records are parted by task or kind.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from openconductor.evaluation.eval_config import ALONE, CONDUCTOR, short_name
from openconductor.evaluation.records import Record
from openconductor.measures import group_by
from openconductor.plots.iterations import Iteration
from openconductor.plots.sheet import Look
from openconductor.tasks.simulated import simulations
from openconductor.types import Workflow

MOST_PARTS = 12
"""The most rows or columns of a figure by kind; the smallest kinds beyond are put together."""
NO_RECORD = "No record of an evaluation was given."
_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#595959",
)  # yellow is lost on paper
_MARKERS = "os^DvPX<p>"
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))


@dataclass(frozen=True)
class Material:
    """What figures are drawn from. What is not there is empty, and figures that need it say so.

    Attributes:
        records: of an evaluation, of all systems.
        workers: the workers' names by ordinal; one that is not named is called by its number.
        curve: of a training.
        system: which system the figures are about; None is ``conductor``, else the first that
            plans.
        terms: what the training's questions offered, where that is not what the evaluation's do.
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
        """The system that the figures are about; "" where none is named, and none plans."""
        plans = (record.system for record in self.records for one in record.rounds if one.planned)
        wanted = (self.system, CONDUCTOR, *dict.fromkeys(plans))
        return next((name for name in wanted if name in self.by_system), "")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All workers that are known of: by ordinal, then those of the curve alone, then others."""
        played = {
            step.worker for record in self.records for flow in record.workflows for step in flow
        }
        found = dict.fromkeys(map(self.worker, sorted({*self.workers, *played})))
        found |= dict.fromkeys(name for iteration in self.curve for name in iteration.worker_share)
        return tuple(found | dict.fromkeys(name.removeprefix(ALONE) for name in self.alone))

    @cached_property
    def alone(self) -> list[str]:
        """The systems that are one worker alone."""
        return [name for name in self.by_system if name.startswith(ALONE)]

    def worker(self, ordinal: int) -> str:
        """The name of the worker with an ordinal."""
        return self.workers.get(ordinal, f"worker {ordinal}")

    def look_of(self, system: str) -> Look:
        """How a system is drawn in all figures: ours a black star, everything but workers alone hollow.

        The looks of other systems follow on those of the workers, so no two share colour and
        marker.
        """
        if system == self.ours:
            return {"color": "black", "marker": "*", "markersize": 6.0, "zorder": 4}
        if system.startswith(ALONE):
            return look(self.names.index(system.removeprefix(ALONE)))
        others = [name for name in self.by_system if name != self.ours and name not in self.alone]
        return {
            **look(len(self.names) + others.index(system)),
            "markerfacecolor": "none",
            "markersize": 6.0,
        }

    def no_workflow(self) -> str:
        """Why there is no workflow of ours to draw; "" where there is one."""
        if not self.ours:
            none = "No system of this evaluation plans workflows: it holds workers alone and baselines."
            return none if self.records else NO_RECORD
        records = self.by_system[self.ours]
        if any(first_workflows(records).values()):
            return ""
        wrote = sum(record.valid is not None for record in records)
        return f"None of the {wrote:,} texts that {label(self.ours)} wrote is a workflow."


def first_workflows(records: Iterable[Record]) -> dict[tuple[str, str], list[Workflow]]:
    """The workflows of the first rounds, by question; a question whose text was no workflow has an empty list."""
    found: dict[tuple[str, str], list[Workflow]] = {}
    for record in records:
        flows = found.setdefault((record.task, record.problem), [])
        flows += [
            one.workflow
            for one in record.rounds[:1]
            if one.workflow is not None and one.workflow.steps
        ]
    return found


def by_part(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each task, or of each kind where there is one task; the smallest parts beyond eleven together.

    Kinds stand from easy to hard where an order of them is known.
    """
    by_task = group_by(records, lambda record: record.task)
    by_kind = group_by(records, lambda record: record.kind or record.task)
    parts = by_task if len(by_task) > 1 else {kind: by_kind[kind] for kind in in_order(by_kind)}
    ranked = sorted(parts, key=lambda name: -len(parts[name]))
    small = ranked[MOST_PARTS - 1 :] if len(parts) > MOST_PARTS else []
    rest = {"others": [record for name in small for record in parts[name]]} if small else {}
    return {**{name: some for name, some in parts.items() if name not in small}, **rest}


def in_order(kinds: Iterable[str]) -> list[str]:
    """Kinds from easy to hard where that order is known, else by name, numbers in them by size.

    >>> in_order(["hard", "easy"]), in_order(["level 10", "level 2"])
    (['easy', 'hard'], ['level 2', 'level 10'])
    """
    kinds = set(kinds)
    orders = [simulation.kinds for simulation in simulations()]
    for known in (*orders, ("easy", "medium", "hard")):
        if kinds <= set(known):
            return [kind for kind in known if kind in kinds]
    return sorted(
        kinds,
        key=lambda kind: [
            (part.isdecimal(), part.zfill(20)) for part in re.split("([0-9]+)", kind)
        ],
    )


# ── looks and names ───────────────────────────────────────────────────────────────────────────────
def look(place: int) -> Look:
    """How the series at a place is drawn; the first seventy differ in colour and marker taken together.

    >>> len({(one["color"], one["marker"]) for one in map(look, range(70))})
    70
    """
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "linestyle": _LINES[place // len(_COLOURS) % len(_LINES)],
    }


def label(name: str) -> str:
    """The name of a system or worker as figures write it: on one line, its middle left out if it is long.

    Letters that the font lacks are escaped. Names of models share their beginnings and differ at
    their ends, so most of the end is kept.

    >>> label("worker:a-very-long-model-name-2026-11-21-instruct")
    'a-ver…-11-21-instruct'
    """
    plain = (one if unicodedata.category(one)[0] != "C" else " " for one in short_name(name))
    known = (
        one if ord(one) in _letters() else one.encode("ascii", "backslashreplace").decode()
        for one in plain
    )
    text = (
        " ".join("".join(known).split()).lstrip("_") or "(no name)"
    )  # matplotlib leaves out labels that begin with _
    return text if len(text) <= 22 else f"{text[:5]}…{text[-15:]}"


def labels(names: Iterable[str]) -> dict[str, str]:
    """The label of each name, never two alike."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        short, number = label(name), 2
        while short in found.values():
            short, number = f"{label(name)} ({number})", number + 1
        found[name] = short
    return found


def spanned(counts: Iterable[int]) -> str:
    """The smallest and the largest of some counts; one of them where they are the same.

    >>> spanned([100, 100]), spanned([1000, 30])
    ('100', '30 to 1,000')
    """
    sizes = sorted(counts)
    return " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))


@cache
def _letters() -> frozenset[int]:
    """The code points that the font of figures can draw."""
    from matplotlib import font_manager

    font: Any = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())
