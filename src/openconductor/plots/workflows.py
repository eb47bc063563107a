# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""How long workflows are, and of which shape, by task and kind of question.

In: the Conductor's records. Out: figures of one bar of shares a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import mean_interval
from openconductor.measures import topology
from openconductor.plots.iterations import FEWEST
from openconductor.plots.material import Material, first_workflows, label, parts_of, split
from openconductor.plots.sheet import INK, Drawn, Look, aside, in_percent, in_rows, opened
from openconductor.types import Workflow

_BLUES = ("#F0F6FC", "#D0E1F2", "#A6CEE4", "#6AAED6", "#3787C0", "#105BA4", "#08306B")
_SIZES = ("1 step", *(f"{count} steps" for count in range(2, 7)), "7+ steps")
_LENGTHS: dict[str, Look] = {size: {"color": colour} for size, colour in zip(_SIZES, _BLUES, strict=True)}
_SHAPES: dict[str, Look] = {
    "single": {"color": "#E3E3E3"},
    "chain": {"color": "#56B4E9", "hatch": "////"},
    "parallel": {"color": "#E69F00", "hatch": "...."},
    "aggregate": {"color": "#009E73"},
    "tree": {"color": "#CC79A7", "hatch": "\\\\\\\\"},
    "dag": {"color": "#D55E00", "hatch": "xxxx"},
}


def workflow_length(material: Material) -> Drawn:
    """How long workflows are, by task and kind (like the paper's Figure 8): darker for longer, and the mean."""
    said = (
        "±: half of the 95 % interval of the mean over questions; none where all are alike, or there are fewer than "
        f"{FEWEST}."
    )
    return _stacked(material, lambda flow: _SIZES[min(len(flow), len(_SIZES)) - 1], _LENGTHS, said, mean=True)


def topology_kind(material: Material) -> Drawn:
    """Which shapes of workflow each kind of question gets."""
    return _stacked(material, topology, _SHAPES, "Shapes by who sees whom.")


def _stacked(
    material: Material, sort_of: Callable[[Workflow], str], looks: Mapping[str, Look], said: str, *, mean: bool = False
) -> Drawn:
    """How many of the first workflows of each kind of question are of each sort; with ``mean``, their mean length."""
    if why := material.no_workflow():
        return why
    ours = material.by_system[material.ours]
    parts = split(ours, parts_of(ours))
    counts = [
        Counter(sort_of(flow) for flows in first_workflows(part).values() for flow in flows) for part in parts.values()
    ]
    figure, (panel,) = opened(0.42 + 0.21 * len(parts))
    box: Look = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    start = [0.0] * len(parts)
    for sort, look in looks.items():
        shares = [count[sort] / (count.total() or 1) for count in counts]
        if any(shares):
            own: Look = {"height": 0.72, "label": sort, "edgecolor": INK, "linewidth": 0.3, **look}
            bars = panel.barh(range(len(parts)), shares, left=start, **own)
            written = [f"{100 * share:.0f}" if share >= 0.08 else "" for share in shares]
            for text in panel.bar_label(bars, written, label_type="center", fontsize=5.2):
                if text.get_text():
                    text.set_bbox(box)
            start = [low + share for low, share in zip(start, shares, strict=True)]
    in_rows(panel, list(parts))
    in_percent(panel, "x", "workflows (%)")
    panel.set_xlim(0, 1)
    panel.spines["left"].set_visible(False)
    aside(panel, 24, "n", [f"{count.total():,}" for count in counts])
    if mean:
        aside(panel, 68, "mean steps", [_mean(part) for part in parts.values()])
    wrote = sum(record.valid is not None for record in ours)
    none = f"{sum(record.valid is False for record in ours):,} of {wrote:,} texts were none and are left out"
    total, questions = sum(count.total() for count in counts), len({(one.task, one.problem) for one in ours})
    counted = f"n = {total:,} valid first workflows of {questions:,} questions"
    return figure, f"{label(material.ours)}: {counted}; {none if wrote else 'nobody wrote them in words'}. {said}"


def _mean(records: Sequence[Record]) -> str:
    """The mean length, each question weighing the same, with half its interval where that says something."""
    means = [fmean(map(len, flows)) for flows in first_workflows(records).values() if flows]
    if len(set(means)) < 2 or len(means) < FEWEST:
        return f"{fmean(means):.1f}" if means else "–"
    low, high = mean_interval(means)
    return f"{fmean(means):.1f} ± {(high - low) / 2:.1f}"
