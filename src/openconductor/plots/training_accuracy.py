# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Accuracy over the training against each worker alone (like the paper's Figure 3).

In: the curve, and for the levels the records of workers alone and of bounds. Out: a Figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.evaluation.statistics import Estimate
from openconductor.plots.estimates import accuracy
from openconductor.plots.material import ALONE, BOUNDS, Material, labels, spanned
from openconductor.plots.over_training import draw, explained, nothing, numbered
from openconductor.plots.sheet import FAINT, finish, in_percent, in_words, opened, point, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Accuracy in training, against each worker alone"
NAMED = 8
"""The most workers with a line of their own; of the others only the range is shown."""


def plot(material: Material) -> Figure:
    """Draw it; in words where there is no curve, or nothing of it could be decided."""
    curve = material.curve
    values = [iteration.accuracy for iteration in curve]
    if why := nothing(curve, values):
        return in_words(TITLE, why)
    levels = _levels(material)
    workers = [name for name in levels if name.startswith(ALONE)]
    named = [name for name in levels if name not in workers[NAMED:]]
    label = labels(name.removeprefix(ALONE) for name in named)
    with styled():
        figure, (panel, *strip) = opened(
            2.4, columns=2 if levels else 1, sharey=True, width_ratios=(5, 1.5) if levels else None
        )
        draw(panel, curve, values, {"color": "black"}, label="in training, last {}")
        for place, name in enumerate(named):
            one, look = levels[name], material.look_of_system(name)
            said = f"{label[name.removeprefix(ALONE)]} {100 * one.value:.1f} %"
            panel.axhline(one.value, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.75)
            point(strip[0], place, one, look, said)
        if rest := [levels[name].value for name in workers[NAMED:]]:
            words = f"{len(rest)} other workers, {100 * min(rest):.1f} to {100 * max(rest):.1f} %"
            panel.axhspan(min(rest), max(rest), color=FAINT, alpha=0.6, linewidth=0, label=words, zorder=0)
        for beside in strip:
            beside.set_xticks([])
            beside.set_xlim(-0.7, len(named) - 0.3)
            beside.set_xlabel("alone")
            beside.tick_params(axis="y", length=0)
        numbered(panel, curve)
        in_percent(panel, "y", "right (%)")
        top = panel.get_ylim()[1]
        panel.set_ylim(-0.03 * top, top)
        said = (
            "At the right, and as thin lines: workers alone, and bounds, with 95 % intervals, on n = "
            f"{spanned(one.problems for one in levels.values())} evaluation questions, not those of the training."
            if levels
            else "No worker alone was evaluated, so there is no level to hold it against."
        )
        return finish(figure, TITLE, f"{explained(curve)} {said}")


def _levels(material: Material) -> dict[str, Estimate]:
    """The accuracy of each level that was measured: workers alone from best to worst, then the bounds."""
    workers = (f"{ALONE}{name}" for name in material.alone)
    systems = [*workers, *(name for name in BOUNDS if name in material.by_system)]
    found = {name: one for name in systems if (one := accuracy(material.by_system[name])) is not None}
    return dict(sorted(found.items(), key=lambda entry: -entry[1].value if entry[0].startswith(ALONE) else 1))
