# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Which worker is good at what, and which one is asked: two heat maps, worker by kind.

In: the records of workers alone, and of the Conductor. Out: a Figure; half of it where only one was evaluated.
A router that has learnt its pool asks, in each column, the workers that are dark in the map beside it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from openconductor.evaluation.statistics import wilson_interval
from openconductor.measures import worker_shares
from openconductor.plots.estimates import accuracy
from openconductor.plots.material import Material, first_workflows, label, labels, parts_of, split
from openconductor.plots.sheet import FAINT, finish, in_rows, in_words, opened, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Workers by kind of question"
MOST = 40
"""The most workers; those with the highest ordinals are left out."""
BESIDE = 5
"""The most columns of two maps that are drawn beside each other."""
Cells = list[list[float]]
"""Shares, row by row; NaN where nothing was measured."""


def plot(material: Material) -> Figure:
    """Draw it; in words where neither a worker alone nor a workflow was recorded."""
    parts = parts_of(material.records)
    columns, workers = list(dict.fromkeys(parts.values())), material.names[:MOST]
    ours = material.by_system.get(material.ours or "", [])
    alone = [record for records in material.alone.values() for record in records]
    maps: dict[str, Cells] = {}
    if any(record.correct is not None for record in alone):
        maps["alone: right (%)"] = _right(material, parts)[:MOST]
    if any(first_workflows(ours).values()):
        maps[f"{label(material.ours or '')}: steps (%)"] = _asked(material, parts)[:MOST]
    if not maps:
        return in_words(TITLE, "No worker alone has a decided answer, and no workflow was recorded.")
    named, beside = labels(workers), len(maps) == 2 and len(columns) <= BESIDE
    longest = max(map(len, columns))
    flat = len(columns) * (longest + 1) * (len(maps) if beside else 1) < 42
    tall = 0.3 + 0.155 * len(workers) + (0.2 if flat else 0.1 + 0.036 * longest)
    down, over = (1, len(maps)) if beside else (len(maps), 1)
    with styled():
        figure, panels = opened(tall * down, rows=down, columns=over, sharey=beside)
        for panel, (headline, cells) in zip(panels, maps.items(), strict=True):
            _heat(panel, cells)
            in_rows(panel, [named[worker] for worker in workers])
            panel.set_xticks(range(len(columns)), columns, rotation=0 if flat else 40, ha="center" if flat else "right")
            panel.tick_params(axis="x", length=0)
            panel.set_title(headline, pad=3)
        asked = split(alone or ours, parts)
        sizes = {name: len({(one.task, one.problem) for one in asked[name]}) for name in columns}
        low, high = wilson_interval(*((size := min(filter(None, sizes.values()), default=1)) // 2, size))
        masked = sum(one.correct is None for one in alone or ours)
        said = [
            f"n, questions by kind: {', '.join(f'{name} {size:,}' for name, size in sizes.items())}.",
            f"{masked:,} records are masked and left out.",
            f"A cell's accuracy is known to ±{50 * (high - low):.0f} points at worst (95 %)." if alone else "",
            "Each map's darkest cell is its largest; a dash: nothing was measured.",
            "Steps: of valid first workflows; each column adds up to 100." if len(maps) == 2 or not alone else "",
            f"Not shown: {len(material.names) - MOST} workers." if len(material.names) > MOST else "",
        ]
        return finish(figure, TITLE, " ".join(filter(None, said)))


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


def _right(material: Material, parts: dict[tuple[str, str], str]) -> Cells:
    """Each worker's accuracy alone in each column."""
    found: Cells = []
    for worker in material.names:
        estimates = map(accuracy, split(material.alone.get(worker, ()), parts).values())
        found.append([math.nan if one is None else one.value for one in estimates])
    return found


def _asked(material: Material, parts: dict[tuple[str, str], str]) -> Cells:
    """The share of the Conductor's steps that each worker has in each column."""
    columns: list[dict[str, float]] = []
    for part in split(material.by_system[material.ours or ""], parts).values():
        flows = [flow for flows in first_workflows(part).values() for flow in flows]
        columns.append({material.worker(ordinal): share for ordinal, share in worker_shares(flows).items()})
    return [[shares.get(worker, 0.0) if shares else math.nan for shares in columns] for worker in material.names]
