# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Which worker is good at what, and which one is asked: by kind of question, and in later rounds.

In: the records of workers alone, and of the Conductor. Out: figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, wilson_interval
from openconductor.measures import worker_shares
from openconductor.plots.estimates import accuracy, shares_of
from openconductor.plots.material import Material, first_workflows, label, labels, parts_of, split
from openconductor.plots.sheet import FAINT, Drawn, Look, in_percent, in_rows, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS, MOST_SHARES = 40, 24
"""The most workers of a heat map (the first by ordinal), and of shares in rounds (the largest)."""
Cells = Sequence[Sequence[float]]
"""Shares, row by row; NaN where nothing was measured."""
_ROUNDS: dict[str, Look] = {
    "first round": {"color": "#0072B2", "marker": "o"},
    "later rounds": {"color": "#D55E00", "marker": "D", "markerfacecolor": "none"},
}


# ── by kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def worker_kind(material: Material) -> Drawn:
    """Two heat maps, worker by kind: how often each is right alone, and how often it is asked.

    A router that has learnt its pool asks, in each column, the workers that are dark in the map beside it. Half of the
    figure where only one was evaluated.
    """
    parts = parts_of(material.records)
    columns, workers = list(dict.fromkeys(parts.values())), material.names[:MOST_ROWS]
    ours = material.by_system.get(material.ours, [])
    alone = [record for record in material.records if record.system.startswith(ALONE)]
    maps: dict[str, Cells] = {}
    if any(record.correct is not None for record in alone):
        maps["alone: right (%)"] = [
            [math.nan if one is None else one.value for one in map(accuracy, split(some, parts).values())]
            for some in (material.by_system.get(f"{ALONE}{worker}", ()) for worker in workers)
        ]
    if any(first_workflows(ours).values()):
        maps[f"{label(material.ours)}: steps (%)"] = _asked(material, parts)[:MOST_ROWS]
    if not maps:
        return "No worker alone has a decided answer, and no workflow was recorded."
    longest = max(map(len, columns))
    turned: Look = {} if len(columns) * (longest + 1) < 42 else {"rotation": 40, "ha": "right"}
    tall = 0.3 + 0.155 * len(workers) + (0.1 + 0.036 * longest if turned else 0.2)
    figure, panels = opened(tall * len(maps), rows=len(maps))
    for panel, (headline, cells) in zip(panels, maps.items(), strict=True):
        _heat(panel, cells)
        in_rows(panel, list(labels(workers).values()))
        panel.set_xticks(range(len(columns)), columns, **turned)
        panel.tick_params(axis="x", length=0)
        panel.set_title(headline, pad=3)
    asked = split(alone or ours, parts)
    sizes = {name: len({(one.task, one.problem) for one in asked[name]}) for name in columns}
    low, high = wilson_interval(*((size := min(filter(None, sizes.values()), default=1)) // 2, size))
    left = len(material.names) - MOST_ROWS
    said = [
        f"n, questions by kind: {', '.join(f'{name} {size:,}' for name, size in sizes.items())}.",
        f"{sum(one.correct is None for one in alone or ours):,} records are masked and left out.",
        f"A cell's accuracy is known to ±{50 * (high - low):.0f} points at worst (95 %)." if alone else "",
        "Each map's darkest cell is its largest; a dash: nothing was measured.",
        "Steps: of valid first workflows; each column adds up to 100." if len(maps) == 2 or not alone else "",
        f"Not shown: {left} workers." if left > 0 else "",
    ]
    return figure, " ".join(filter(None, said))


def _heat(panel: Axes, cells: Cells) -> None:
    """A heat map of shares, each written into its cell in percent; a cell without a number is a dash on grey."""
    top = max((value for row in cells for value in row if not math.isnan(value)), default=0.0) or 1.0
    across, down = ([place - 0.5 for place in range(count + 1)] for count in (len(cells[0]), len(cells)))
    panel.pcolormesh(across, down, cells, cmap="Blues", vmin=0, vmax=1.1 * top, edgecolor="white", linewidth=0.5)
    panel.set_facecolor(FAINT)
    panel.grid(visible=False)
    for down, row in enumerate(cells):
        for over, value in enumerate(row):
            text = "–" if math.isnan(value) else f"{100 * value:.0f}"
            colour = "white" if value > 0.6 * top else "black"
            panel.text(over, down, text, ha="center", va="center", fontsize=5.8, color=colour)


def _asked(material: Material, parts: Mapping[tuple[str, str], str]) -> Cells:
    """The share of the Conductor's steps that each worker has in each column."""
    columns: list[dict[str, float]] = []
    for part in split(material.by_system[material.ours], parts).values():
        flows = [flow for flows in first_workflows(part).values() for flow in flows]
        columns.append({material.worker(ordinal): share for ordinal, share in worker_shares(flows).items()})
    return [[shares.get(worker, 0.0) if shares else math.nan for shares in columns] for worker in material.names]


# ── in later rounds ──────────────────────────────────────────────────────────────────────────────────────────────────
def worker_rounds(material: Material) -> Drawn:
    """Which workers the Conductor turns to when it revises: shares in the first and in later rounds (Figure 10)."""
    if why := material.no_workflow():
        return why
    # Of the systems that plan, the one with the most revised answers; ours where it has as many.
    revised = {name: sum(len(one.rounds) > 1 for one in material.by_system[name]) for name in material.planning}
    name = max(revised, key=lambda name: (revised[name], name == material.ours), default=material.ours)
    records = material.by_system[name]
    if not (again := revised.get(name, 0)):
        return f"{label(name)} was asked for one round only, so there is none to compare with."
    later = [one for record in records for one in record.rounds[1:]]
    new = sum(bool(one.workflow and one.workflow.steps) for one in later)
    accepted = sum(one.workflow is not None and not one.workflow.steps for one in later)
    counted = (
        f"{label(name)}: n = {len(records):,} answers, {again:,} with a later round; of {len(later):,} later rounds "
        f"{new:,} are new workflows, {accepted:,} accept, {len(later) - new - accepted:,} are no workflow."
    )
    if not new:
        return f"{label(name)} wrote no new workflow after its first. {counted}"
    rounds = [_shares(material, records, where) for where in (slice(1), slice(1, None))]
    largest = {worker: max(of[worker].value for of in rounds if of) for worker in material.names}
    asked = [worker for worker in material.names if largest[worker] > 0]
    kept = sorted(asked, key=lambda worker: -largest[worker])[:MOST_SHARES]
    workers = [worker for worker in asked if worker in kept]
    figure, (panel,) = opened(0.45 + 0.2 * len(workers))
    for shift, of, (when, look) in zip((-0.17, 0.17), rounds, _ROUNDS.items(), strict=True):
        for place, worker in enumerate(workers if of else ()):
            point(panel, of[worker], place + shift, look, "" if place else when)
    in_rows(panel, list(labels(workers).values()))
    in_percent(panel, "x", "share of steps (%)")
    panel.set_xlim(left=-0.02 * panel.get_xlim()[1])
    idle, beyond = len(material.names) - len(asked), len(asked) - len(kept)
    left = f" Not shown: {idle} of {len(material.names)} workers, without a step." if idle else ""
    left += f" Not shown: {beyond} workers with smaller shares." if beyond else ""
    return figure, f"{counted} Bars: 95 % intervals.{left}"


def _shares(material: Material, records: Sequence[Record], rounds: slice) -> dict[str, Estimate]:
    """Each worker's share of the steps of some rounds; empty where there is no step."""
    steps: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        flows = (one.workflow or () for one in record.rounds[rounds])
        counts = steps.setdefault((record.task, record.problem), Counter())
        counts.update(material.worker(step.worker) for flow in flows for step in flow)
    return shares_of(steps, material.names)
