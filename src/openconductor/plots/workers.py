# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Who is good at what, by kind of question; and which workers are asked in later rounds.

In: the records of workers alone, and of the Conductor. Out: figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from openconductor.evaluation.eval_config import UNTRAINED
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.plots.estimates import accuracy, shares_of
from openconductor.plots.material import Material, by_part, label, labels
from openconductor.plots.sheet import FAINT, Drawn, Look, in_percent, in_rows, opened, point

MOST_ROWS = 40
"""The most workers of a figure, the first by ordinal."""
_ROUNDS: dict[str, Look] = {
    "first round": {"color": "#0072B2", "marker": "o"},
    "later rounds": {"color": "#D55E00", "marker": "D", "markerfacecolor": "none"},
}


def worker_kind(material: Material) -> Drawn:
    """A heat map: how often each worker alone, and the Conductor, is right about each kind of question."""
    parts = by_part(material.records)
    systems = [
        *material.alone[:MOST_ROWS],
        *(one for one in (UNTRAINED, material.ours) if one in material.by_system),
    ]
    found = [
        [accuracy([one for one in part if one.system == system]) for part in parts.values()]
        for system in systems
    ]
    cells = [[math.nan if one is None else one.value for one in row] for row in found]
    if all(math.isnan(value) for row in cells for value in row):
        return "Neither a worker alone nor a system that plans has a decided answer."
    figure, (panel,) = opened(0.9 + 0.17 * len(systems))
    across, down = (
        [place - 0.5 for place in range(count + 1)] for count in (len(parts), len(systems))
    )
    panel.pcolormesh(
        across, down, cells, cmap="Blues", vmin=0, vmax=1.1, edgecolor="white", linewidth=0.5
    )
    panel.set_facecolor(FAINT)
    panel.grid(visible=False)
    for place, row in enumerate(cells):
        for over, value in enumerate(row):
            text, colour = (
                "–" if math.isnan(value) else f"{100 * value:.0f}",
                "white" if value > 0.6 else "black",
            )
            panel.text(over, place, text, ha="center", va="center", fontsize=5.8, color=colour)
    in_rows(panel, list(labels(systems).values()))
    turned: Look = {"rotation": 20, "ha": "right"} if len(parts) > 5 else {}
    panel.set_xticks(range(len(parts)), list(labels(parts).values()), **turned)
    sizes = ", ".join(
        f"{name} {len({(one.task, one.problem) for one in part})}" for name, part in parts.items()
    )
    masked = sum(one.masked for row in found for one in row if one is not None)
    left = (
        f" Not shown: {len(material.alone) - MOST_ROWS} workers."
        if len(material.alone) > MOST_ROWS
        else ""
    )
    return figure, (
        f"Right answers in percent; n, questions: {sizes}. {masked:,} records are masked and left out; a dash: nothing "
        f"was decided.{left}"
    )


def worker_rounds(material: Material) -> Drawn:
    """Which workers the Conductor turns to when it revises: shares in the first and in later rounds (Figure 10)."""
    if why := material.no_workflow():
        return why
    name, records = material.ours, material.by_system[material.ours]
    revised = sum(len(one.rounds) > 1 for one in records)
    if not revised:
        return f"{label(name)} was asked for one round only, so there is none to compare with."
    later = [one.workflow for record in records for one in record.rounds[1:]]
    new, accepted = (
        sum(bool(flow) for flow in later),
        sum(flow is not None and not flow for flow in later),
    )
    rounds = [_shares(material, records, where) for where in (slice(1), slice(1, None))]
    workers = [
        worker for worker in material.names if any(of and of[worker].value for of in rounds)
    ][:MOST_ROWS]
    figure, (panel,) = opened(0.7 + 0.2 * len(workers))
    for shift, of, (when, look) in zip((-0.17, 0.17), rounds, _ROUNDS.items(), strict=True):
        for place, worker in enumerate(workers if of else ()):
            point(panel, of[worker], place + shift, look, "" if place else when)
    in_rows(panel, list(labels(workers).values()))
    in_percent(panel, "x", "share of steps (%)")
    return figure, (
        f"{label(name)}: n = {len(records):,} answers, {revised:,} with a later round; of {len(later):,} later "
        f"rounds {new:,} are new workflows, {accepted:,} accept, {len(later) - new - accepted:,} are not a workflow. "
        f"Bars: 95 % intervals. Not shown: {len(material.names) - len(workers)} of {len(material.names)} workers."
    )


def _shares(material: Material, records: Sequence[Record], rounds: slice) -> dict[str, Estimate]:
    """Each worker's share of the steps of some rounds; empty where there is no step."""
    steps: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        flows = (one.workflow or () for one in record.rounds[rounds])
        counts = steps.setdefault((record.task, record.problem), Counter())
        counts.update(material.worker(step.worker) for flow in flows for step in flow)
    return shares_of(steps, material.names)
