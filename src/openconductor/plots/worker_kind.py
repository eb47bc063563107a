"""Which worker is good at what, and which one is asked: two heat maps, worker by kind.

In: the records of workers alone, and of the Conductor. Out: a Figure; half of it where only one was evaluated.
A router that has learnt its pool asks, in each column, the workers that are dark on the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.intervals import wilson_interval
from openconductor.evaluation.records import Record
from openconductor.measures import worker_shares
from openconductor.plots import marks
from openconductor.plots.estimates import accuracy
from openconductor.plots.material import Columns, Material, columns_of, first_workflows
from openconductor.plots.sheet import WIDTH, Sheet, in_words, styled
from openconductor.plots.words import labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Workers by kind of question"
MOST = 40
"""The most workers; those with the highest ordinals are left out."""
BESIDE = 5
"""The most columns of two maps that stand beside each other."""
Cells = list[list[float | None]]


def plot(results: Material) -> Figure:
    """Draw it; in words where neither a worker alone nor a workflow was recorded."""
    columns = columns_of(results.records)
    ours = results.by_system.get(results.ours or "", ())
    workers = results.names[:MOST]
    maps: dict[str, Cells] = {}
    if any(record.correct is not None for records in results.alone.values() for record in records):
        maps["alone: right (%)"] = [_right(results.alone.get(worker, ()), columns) for worker in workers]
    if any(first_workflows(ours).values()):
        maps[f"{labels([results.ours or ''])[results.ours or '']}: steps (%)"] = _asked(results, ours, columns, workers)
    if not maps:
        return in_words(TITLE, "No worker alone has a decided answer, and no workflow was recorded.")
    label = labels(workers, longest=18)
    beside = len(maps) == 2 and len(columns.names) <= BESIDE
    flat = _fit(list(label.values()), columns.names, panels=len(maps) if beside else 1)
    tall = 0.3 + 0.155 * len(workers) + (0.2 if flat else 0.1 + 0.036 * max(map(len, columns.names)))
    with styled():
        sheet = Sheet(
            TITLE,
            height=tall if beside else tall * len(maps),
            rows=1 if beside else len(maps),
            columns=len(maps) if beside else 1,
            share="y" if beside else "",
        )
        for panel, (headline, cells) in zip(sheet.panels, maps.items(), strict=True):
            top = max((value for row in cells for value in row if value is not None), default=1.0)
            marks.heat(panel, cells, top=top, gid=headline)
            marks.names(panel, "y", [label[worker] for worker in workers])
            marks.names(panel, "x", columns.names, slanted=not flat)
            marks.headline(panel, headline)
        return sheet.finish(_caption(results, columns, ours, len(maps)))


def _right(records: Sequence[Record], columns: Columns) -> list[float | None]:
    """A worker's accuracy alone in each column."""
    estimates = [accuracy(part) for part in columns.split(records)]
    return [None if estimate is None else estimate.value for estimate in estimates]


def _asked(results: Material, records: Sequence[Record], columns: Columns, workers: Sequence[str]) -> Cells:
    """The share of the Conductor's steps that each worker has in each column."""
    cells: Cells = [[] for _ in workers]
    for part in columns.split(records):
        flows = [flow for flows in first_workflows(part).values() for flow in flows]
        shares = {results.worker(ordinal): share for ordinal, share in worker_shares(flows).items()}
        for row, worker in zip(cells, workers, strict=True):
            row.append(shares.get(worker, 0.0) if shares else None)
    return cells


def _fit(rows: Sequence[str], columns: Sequence[str], *, panels: int) -> bool:
    """Whether the columns' names fit beside each other, by rule of thumb: 0.055 inches a character."""
    room = (WIDTH - 0.055 * max(map(len, rows)) - 0.2 * panels) / (len(columns) * panels)
    return 0.055 * (max(map(len, columns)) + 1) <= room


def _caption(results: Material, columns: Columns, ours: Sequence[Record], halves: int) -> str:
    asked = [record for records in results.alone.values() for record in records] or list(ours)
    sizes = [len({(one.task, one.problem) for one in part}) for part in columns.split(asked)]
    counts = ", ".join(f"{name} {size:,}" for name, size in zip(columns.names, sizes, strict=True))
    said = [
        f"n, questions by kind: {counts}; {sum(one.correct is None for one in asked):,} records masked and left out."
    ]
    if results.alone:
        worst = _half_width(min(filter(None, sizes), default=1))
        said.append(f"A cell's accuracy is known to ±{worst:.0f} points at worst (95 %).")
    said.append("Each map's darkest cell is its largest; a dash: nothing was measured.")
    if halves == 2 or not results.alone:
        said.append("Steps: of valid first workflows; each column adds up to 100.")
    if len(results.names) > MOST:
        said.append(f"Not shown: {len(results.names) - MOST} workers.")
    return " ".join(said)


def _half_width(count: int) -> float:
    """The half width of Wilson's interval at one half, in points: the widest that a share can have."""
    low, high = wilson_interval(count // 2, count)
    return 50 * (high - low)
