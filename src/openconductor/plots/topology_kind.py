"""Which shapes of workflow each kind of question gets.

In: the Conductor's records. Out: a Figure: one bar of shares a kind (of several tasks: a task and kind).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from openconductor.measures import Topology, topology
from openconductor.plots import marks
from openconductor.plots.looks import GREEN, ORANGE, PURPLE, SKY, VERMILLION, Look
from openconductor.plots.material import SHAPES, Material, Row, first_workflows, rows
from openconductor.plots.planned import caption_of, nothing
from openconductor.plots.sheet import Key, Sheet, in_words, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Shapes of workflows by kind of question"
_LOOKS: dict[Topology, Look] = {
    "accept": Look("#FFFFFF"),
    "single": Look("#E3E3E3"),
    "chain": Look(SKY, hatch="////"),
    "parallel": Look(ORANGE, hatch="...."),
    "aggregate": Look(GREEN),
    "tree": Look(PURPLE, hatch="\\\\\\\\"),
    "dag": Look(VERMILLION, hatch="xxxx"),
}


def plot(results: Material) -> Figure:
    """Draw it; in words where no system planned a workflow."""
    why = nothing(results)
    if why:
        return in_words(TITLE, why)
    found = rows(results.by_system[results.ours or ""])
    counts = [shapes_of(row) for row in found]
    shapes: list[Topology] = [shape for shape in SHAPES if any(of_row[shape] for of_row in counts)]
    with styled():
        sheet = Sheet(TITLE, height=0.42 + 0.21 * len(found))
        (panel,) = sheet.panels
        for place, (row, of_row) in enumerate(zip(found, counts, strict=True)):
            total = of_row.total()
            if total:
                parts = [of_row[shape] / total for shape in shapes]
                marks.segments(panel, place, parts, [_LOOKS[shape] for shape in shapes], gid=row.name)
            marks.beside(panel, place, (f"{total:,}",), (24,))
        marks.headings(panel, ("n",), (24,))
        marks.rows_of_shares(panel, [row.name for row in found], "workflows (%)")
        return sheet.finish(
            caption_of(results, "Shapes by who sees whom."), [Key(shape, _LOOKS[shape], "area") for shape in shapes]
        )


def shapes_of(row: Row) -> Counter[Topology]:
    """How many of the first workflows of a row have each shape."""
    return Counter(topology(flow) for flows in first_workflows(row.records).values() for flow in flows)
