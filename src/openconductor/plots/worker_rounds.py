"""Which workers the Conductor turns to when it revises: shares in the first and in later rounds (paper, Figure 10).

In: the records of a recursive Conductor. Out: a Figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.plots import marks
from openconductor.plots.estimates import share
from openconductor.plots.looks import BLUE, VERMILLION, Look
from openconductor.plots.material import Material
from openconductor.plots.planned import nothing
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import labels
from openconductor.types import Workflow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Workers in the first round and in later ones"
MOST = 24
_FIRST, _LATER = Look(BLUE, "o"), Look(VERMILLION, "D", hollow=True)


def plot(results: Material) -> Figure:
    """Draw it; in words where nobody planned, or nothing was revised."""
    why = nothing(results)
    if why:
        return in_words(TITLE, why)
    name = recursive(results)
    records = results.by_system[name]
    label = labels([name])[name]
    if not any(len(record.rounds) > 1 for record in records):
        return in_words(TITLE, f"{label} was asked for one round only, so there is none to compare with.")
    later = shares(results, records, first=False)
    if not later:
        return in_words(TITLE, f"{label} wrote no new workflow after its first.", _counted(label, records))
    first = shares(results, records, first=True)
    asked = [worker for worker in results.names if max(_value(first, worker), _value(later, worker)) > 0]
    largest = sorted(asked, key=lambda worker: -max(_value(first, worker), _value(later, worker)))[:MOST]
    workers = [worker for worker in asked if worker in largest]
    named = labels(workers)
    with styled():
        sheet = Sheet(TITLE, height=0.45 + 0.2 * len(workers))
        (panel,) = sheet.panels
        marks.names(panel, "y", [named[worker] for worker in workers])
        for place, worker in enumerate(workers):
            for found, one, shift, when in ((first, _FIRST, -0.17, "first"), (later, _LATER, 0.17, "later")):
                if worker in found:
                    estimate = found[worker]
                    marks.point(
                        panel, estimate.value, place + shift, one, gid=f"{worker}: {when}", across=marks.ends(estimate)
                    )
        marks.percent(panel, "x", "share of steps (%)")
        panel.set_xlim(left=-0.02 * panel.get_xlim()[1])
        keys = [Key("first round", _FIRST, "point"), Key("later rounds", _LATER, "point")]
        return sheet.finish(f"{_counted(label, records)} Bars: 95 % intervals.{_left_out(results, asked)}", keys)


def recursive(results: Material) -> str:
    """Of the systems that plan, the one with the most revised answers; ours where it has as many."""
    revised = {name: sum(len(one.rounds) > 1 for one in results.by_system[name]) for name in results.planning}
    return max(revised, key=lambda name: (revised[name], name == results.ours), default=results.ours or "")


def shares(results: Material, records: Sequence[Record], *, first: bool) -> dict[str, Estimate]:
    """Each worker's share of the steps of the first or of all later rounds; empty where there is no step."""
    steps: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        counted = steps.setdefault((record.task, record.problem), Counter())
        for flow in _flows(record, first=first):
            counted.update(results.worker(step.worker) for step in flow)
    workers = {worker for counted in steps.values() for worker in counted} or set[str]()
    found: dict[str, Estimate] = {}
    for worker in results.names if workers else ():
        estimate = share({key: (float(counted[worker]), float(counted.total())) for key, counted in steps.items()})
        if estimate is not None:
            found[worker] = estimate
    return found


def _flows(record: Record, *, first: bool) -> Iterable[Workflow]:
    rounds = record.rounds[:1] if first else record.rounds[1:]
    return (one.workflow for one in rounds if one.workflow is not None and one.workflow.steps)


def _value(found: dict[str, Estimate], worker: str) -> float:
    return found[worker].value if worker in found else 0.0


def _counted(label: str, records: Sequence[Record]) -> str:
    """How often a later round was asked for, and what came of it."""
    later = [one for record in records for one in record.rounds[1:]]
    revised = sum(one.workflow is not None and bool(one.workflow.steps) for one in later)
    accepted = sum(one.workflow is not None and not one.workflow.steps for one in later)
    again = sum(len(record.rounds) > 1 for record in records)
    return (
        f"{label}: n = {len(records):,} answers, {again:,} with a later round; of {len(later):,} later rounds "
        f"{revised:,} are new workflows, {accepted:,} accept, {len(later) - revised - accepted:,} are no workflow."
    )


def _left_out(results: Material, asked: Sequence[str]) -> str:
    """What the caption says of workers that are not there."""
    idle, beyond = len(results.names) - len(asked), len(asked) - MOST
    said = f" Not shown: {idle} of {len(results.names)} workers, without a step." if idle else ""
    return said + (f" Not shown: {beyond} workers with smaller shares." if beyond > 0 else "")
