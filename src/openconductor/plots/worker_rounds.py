# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Which workers the Conductor turns to when it revises: shares in the first and in later rounds (paper, Figure 10).

In: the records of a recursive Conductor. Out: a Figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.plots.estimates import share
from openconductor.plots.material import Material, label, labels
from openconductor.plots.sheet import Look, finish, in_percent, in_rows, in_words, opened, point, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Workers in the first round and in later ones"
MOST = 24
"""The most workers; those with smaller shares are left out."""
_LOOKS: dict[str, Look] = {
    "first round": {"color": "#0072B2", "marker": "o"},
    "later rounds": {"color": "#D55E00", "marker": "D", "markerfacecolor": "none"},
}


def plot(material: Material) -> Figure:
    """Draw it; in words where nobody planned, or nothing was revised."""
    if why := material.no_workflow():
        return in_words(TITLE, why)
    name = recursive(material)
    records = material.by_system[name]
    if not any(len(record.rounds) > 1 for record in records):
        return in_words(TITLE, f"{label(name)} was asked for one round only, so there is none to compare with.")
    found = {when: shares(material, records, first=when == "first round") for when in _LOOKS}
    if not found["later rounds"]:
        return in_words(TITLE, f"{label(name)} wrote no new workflow after its first.", _counted(name, records))
    largest = {worker: max(of[worker].value for of in found.values() if worker in of) for worker in material.names}
    asked = [worker for worker in material.names if largest[worker] > 0]
    kept = sorted(asked, key=lambda worker: -largest[worker])[:MOST]
    workers = [worker for worker in asked if worker in kept]
    with styled():
        figure, (panel,) = opened(0.45 + 0.2 * len(workers))
        for shift, (when, look) in zip((-0.17, 0.17), _LOOKS.items(), strict=True):
            for place, worker in enumerate(workers):
                if worker in found[when]:
                    point(panel, found[when][worker], place + shift, look, "" if place else when)
        in_rows(panel, list(labels(workers).values()))
        in_percent(panel, "x", "share of steps (%)")
        panel.set_xlim(left=-0.02 * panel.get_xlim()[1])
        idle, beyond = len(material.names) - len(asked), len(asked) - len(kept)
        left = f" Not shown: {idle} of {len(material.names)} workers, without a step." if idle else ""
        left += f" Not shown: {beyond} workers with smaller shares." if beyond else ""
        return finish(figure, TITLE, f"{_counted(name, records)} Bars: 95 % intervals.{left}")


def recursive(material: Material) -> str:
    """Of the systems that plan, the one with the most revised answers; ours where it has as many."""
    revised = {name: sum(len(one.rounds) > 1 for one in material.by_system[name]) for name in material.planning}
    return max(revised, key=lambda name: (revised[name], name == material.ours), default=material.ours or "")


def shares(material: Material, records: Sequence[Record], *, first: bool) -> dict[str, Estimate]:
    """Each worker's share of the steps of the first or of all later rounds; empty where there is no step."""
    steps: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        counts = steps.setdefault((record.task, record.problem), Counter())
        for one in record.rounds[:1] if first else record.rounds[1:]:
            counts.update(material.worker(step.worker) for step in one.workflow or ())
    found = {
        worker: share({key: (float(counts[worker]), float(counts.total())) for key, counts in steps.items()})
        for worker in material.names
    }
    return {worker: one for worker, one in found.items() if one is not None}


def _counted(name: str, records: Sequence[Record]) -> str:
    """How often a later round was asked for, and what came of it."""
    later = [one for record in records for one in record.rounds[1:]]
    revised = sum(bool(one.workflow and one.workflow.steps) for one in later)
    accepted = sum(one.workflow is not None and not one.workflow.steps for one in later)
    again = sum(len(record.rounds) > 1 for record in records)
    return (
        f"{label(name)}: n = {len(records):,} answers, {again:,} with a later round; of {len(later):,} later rounds "
        f"{revised:,} are new workflows, {accepted:,} accept, {len(later) - revised - accepted:,} are no workflow."
    )
