# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The figures of workers: right answers by kind of question, and their steps by round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import UNTRAINED
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate, Key
from openconductor.plots.estimates import accuracy, shares_of
from openconductor.plots.material import Material, by_part, label, labels
from openconductor.plots.sheet import FAINT, Drawn, Look, in_percent, in_rows, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40
"""The most workers of a figure, the first by ordinal."""
_FIRST: Look = {"color": "#0072B2", "marker": "o"}
_LATER: Look = {"color": "#D55E00", "marker": "D", "markerfacecolor": "none"}


# ── right answers by kind of question ─────────────────────────────────────────────────────────────
def worker_kind(material: Material) -> Drawn:
    """Draw a heat map: how often each worker alone, and the Conductor, is right by kind."""
    parts = by_part(material.records)
    systems = material.alone[:MOST_ROWS]
    systems += [name for name in (UNTRAINED, material.ours) if name in material.by_system]
    rows = [_accuracies(system, parts) for system in systems]
    decided = [cell for row in rows for cell in row if cell is not None]
    if not decided:
        return "Neither a worker alone nor a system that plans has a decided answer."
    height = 0.9 + 0.17 * len(systems)
    figure, (panel,) = opened(height)
    _draw_heat_map(panel, rows)
    in_rows(panel, list(labels(systems).values()))
    turned: Look = {"rotation": 20, "ha": "right"} if len(parts) > 5 else {}
    names = list(labels(parts).values())
    panel.set_xticks(range(len(parts)), names, **turned)
    sizes: list[str] = []
    for name, records in parts.items():
        questions = {record.key for record in records}
        sizes.append(f"{name} {len(questions)}")
    masked = sum(cell.masked for cell in decided)
    caption = (
        f"Right answers in percent; n, questions: {', '.join(sizes)}. {masked:,} records are "
        "masked and left out; a dash: nothing was decided."
    )
    hidden = len(material.alone) - MOST_ROWS
    if hidden > 0:
        caption += f" Not shown: {hidden} workers."
    return figure, caption


def _accuracies(system: str, parts: Mapping[str, Sequence[Record]]) -> list[Estimate | None]:
    """Return a system's accuracy in each part; None: nothing was decided."""
    cells: list[Estimate | None] = []
    for records in parts.values():
        own = [record for record in records if record.system == system]
        cells.append(accuracy(own))
    return cells


def _draw_heat_map(panel: Axes, rows: Sequence[Sequence[Estimate | None]]) -> None:
    values: list[list[float]] = []
    for row in rows:
        values.append([math.nan if cell is None else cell.value for cell in row])
    across = [column - 0.5 for column in range(len(rows[0]) + 1)]
    down = [row - 0.5 for row in range(len(rows) + 1)]
    panel.pcolormesh(
        across, down, values, cmap="Blues", vmin=0, vmax=1.1, edgecolor="white", linewidth=0.5
    )
    panel.set_facecolor(FAINT)
    panel.grid(visible=False)
    own: Look = {"ha": "center", "va": "center", "fontsize": 5.8}
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            text = "–" if math.isnan(value) else f"{100 * value:.0f}"
            color = "white" if value > 0.6 else "black"
            panel.text(x, y, text, color=color, **own)


# ── steps by round ────────────────────────────────────────────────────────────────────────────────
def worker_rounds(material: Material) -> Drawn:
    """Draw each worker's share of the steps in the first and in later rounds (Figure 10)."""
    why = material.no_workflow()
    if why:
        return why
    name, records = material.ours, material.by_system[material.ours]
    revised = sum(len(record.rounds) > 1 for record in records)
    if not revised:
        return f"{label(name)} was asked for one round only, so there is none to compare with."
    first = _step_shares(material, records, later=False)
    later = _step_shares(material, records, later=True)
    used = {worker for worker, share in (*first.items(), *later.items()) if share.value}
    workers = [worker for worker in material.names if worker in used][:MOST_ROWS]
    height = 0.7 + 0.2 * len(workers)
    figure, (panel,) = opened(height)
    _draw_shares(panel, workers, first, offset=-0.17, look=_FIRST, name="first round")
    _draw_shares(panel, workers, later, offset=0.17, look=_LATER, name="later rounds")
    in_rows(panel, list(labels(workers).values()))
    in_percent(panel, "x", "share of steps (%)")
    hidden = len(material.names) - len(workers)
    return figure, (
        f"{label(name)}: n = {len(records):,} answers, {revised:,} with a later round; "
        f"{_count_later_rounds(records)} Bars: 95 % intervals. "
        f"Not shown: {hidden} of {len(material.names)} workers."
    )


def _step_shares(
    material: Material, records: Sequence[Record], *, later: bool
) -> dict[str, Estimate]:
    """Return each worker's share of the steps of some rounds; empty: there is no step."""
    steps: dict[Key, Counter[str]] = {}
    for record in records:
        counts = steps.setdefault(record.key, Counter())
        rounds = record.rounds[1:] if later else record.rounds[:1]
        for played in rounds:
            counts.update(material.worker(step.worker) for step in played.workflow or ())
    return shares_of(list(steps.values()), material.names)


def _draw_shares(
    panel: Axes,
    workers: Sequence[str],
    shares: Mapping[str, Estimate],
    *,
    offset: float,
    look: Look,
    name: str,
) -> None:
    """Draw a worker's share in each row; the first one has the name in the legend."""
    if not shares:
        return
    for row, worker in enumerate(workers):
        point(panel, shares[worker], row + offset, look, name if row == 0 else "")


def _count_later_rounds(records: Sequence[Record]) -> str:
    """Say how many later rounds plan anew, accept, or are invalid."""
    later = [played.workflow for record in records for played in record.rounds[1:]]
    valid = [workflow for workflow in later if workflow is not None]
    new = sum(bool(workflow) for workflow in valid)
    return (
        f"of {len(later):,} later rounds {new:,} are new workflows, {len(valid) - new:,} accept, "
        f"{len(later) - len(valid):,} are not a workflow."
    )
