# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""What the figures of workflows by kind have in common: a bar of shares a row. In: a Material. Out: a Figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from openconductor.evaluation.records import Record
from openconductor.plots.material import Material, first_workflows, parts_of, split
from openconductor.plots.sheet import INK, Look, aside, finish, in_percent, in_rows, in_words, opened, styled
from openconductor.types import Workflow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX: Look = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def stacked(
    material: Material,
    title: str,
    sort_of: Callable[[Workflow], str],
    looks: Mapping[str, Look],
    said: str,
    beside: Mapping[str, Callable[[Sequence[Record]], str]],
) -> Figure:
    """How many of the first workflows of each kind of question are of each sort; in words where there is none.

    Args:
        material: with the records of the system that plans.
        title: of the figure.
        sort_of: the sort of a workflow.
        looks: of all sorts, in the order in which they are drawn.
        said: the end of the caption.
        beside: what is written to the right of each row, by its heading.
    """
    if why := material.no_workflow():
        return in_words(title, why)
    ours = material.by_system[material.ours or ""]
    parts = split(ours, parts_of(ours))
    counts = [
        Counter(sort_of(flow) for flows in first_workflows(part).values() for flow in flows) for part in parts.values()
    ]
    with styled():
        figure, (panel,) = opened(0.42 + 0.21 * len(parts))
        start = [0.0] * len(parts)
        for sort, look in looks.items():
            shares = [count[sort] / (count.total() or 1) for count in counts]
            if any(shares):
                own: Look = {"height": 0.72, "label": sort, "edgecolor": INK, "linewidth": 0.3, **look}
                bars = panel.barh(range(len(parts)), shares, left=start, **own)
                written = [f"{100 * share:.0f}" if share >= 0.08 else "" for share in shares]
                for text in panel.bar_label(bars, written, label_type="center", fontsize=5.2):
                    if text.get_text():
                        text.set_bbox(BOX)
                start = [low + share for low, share in zip(start, shares, strict=True)]
        in_rows(panel, list(parts))
        in_percent(panel, "x", "workflows (%)")
        panel.set_xlim(0, 1)
        panel.spines["left"].set_visible(False)
        aside(panel, 24, "n", [f"{count.total():,}" for count in counts])
        for place, (heading, write) in enumerate(beside.items(), start=1):
            aside(panel, 24 + 44 * place, heading, [write(part) for part in parts.values()])
        return finish(figure, title, f"{material.counted_workflows()} {said}")
