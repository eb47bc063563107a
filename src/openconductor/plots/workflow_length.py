"""How long workflows are, by task and kind (like the paper's Figure 8).

In: the Conductor's records. Out: a Figure: one bar of shares a row, darker for longer, and the mean with its interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import mean_interval
from openconductor.plots.iterations import FEWEST
from openconductor.plots.material import Material, first_workflows
from openconductor.plots.sheet import Look
from openconductor.plots.stacked import stacked
from openconductor.types import Workflow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Length of workflows"
LONGEST = "7+ steps"
"""Longer workflows are drawn as one sort."""
_SORTS = ("1 step", *(f"{count} steps" for count in range(2, 7)), LONGEST)
_COLOURS = ("#F0F6FC", "#D0E1F2", "#A6CEE4", "#6AAED6", "#3787C0", "#105BA4", "#08306B")
_LOOKS: dict[str, Look] = {sort: {"color": colour} for sort, colour in zip(_SORTS, _COLOURS, strict=True)}
_SAID = (
    "±: half of the 95 % interval of the mean over questions; none where all are alike, or there are fewer than "
    f"{FEWEST}."
)


def plot(material: Material) -> Figure:
    """Draw it; in words where no system planned a workflow."""
    return stacked(material, TITLE, _length, _LOOKS, _SAID, {"mean steps": _mean})


def _length(flow: Workflow) -> str:
    return _SORTS[min(len(flow), len(_SORTS)) - 1]


def _mean(records: Sequence[Record]) -> str:
    """The mean length, each question weighing the same, with half its interval where that says something."""
    means = [fmean(map(len, flows)) for flows in first_workflows(records).values() if flows]
    if len(set(means)) < 2 or len(means) < FEWEST:
        return f"{fmean(means):.1f}" if means else "–"
    low, high = mean_interval(means)
    return f"{fmean(means):.1f} ± {(high - low) / 2:.1f}"
