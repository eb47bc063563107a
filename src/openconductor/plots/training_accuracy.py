"""Accuracy over the training against each worker alone (like the paper's Figure 3).

In: the curve, and for the levels the records of workers alone and of bounds. Out: a Figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from openconductor.evaluation.statistics import Estimate
from openconductor.plots import marks
from openconductor.plots.estimates import accuracy
from openconductor.plots.looks import FAINT, OURS, Look
from openconductor.plots.material import ALONE, BOUNDS, Material
from openconductor.plots.over_training import counted, draw, explained, last_of, nothing, numbered, single
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import labels, percentage, spanned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Accuracy in training, against each worker alone"
NAMED = 8
"""The most workers with a line of their own; of the others only the range is shown."""


def plot(results: Material) -> Figure:
    """Draw it; in words where there is no curve, or nothing of it could be decided."""
    values = [iteration.accuracy for iteration in results.curve]
    why = nothing(results, values)
    if why:
        return in_words(TITLE, why)
    levels = _levels(results)
    one = single(results.curve, Look(OURS.colour))
    with styled():
        sheet = Sheet(TITLE, height=2.4)
        (panel,) = sheet.panels
        means = draw(panel, results.curve, values, one, gid="accuracy")
        numbered(panel, results.curve)
        keys = [Key(f"in training, last {percentage(last_of(means))}", one), *_draw_levels(panel, results, levels)]
        marks.percent(panel, "y", "right (%)")
        marks.from_zero(panel)
        return sheet.finish(f"{counted(results.curve)} {explained(results.curve)} {_said(levels)}", keys)


def _levels(results: Material) -> dict[str, Estimate]:
    """The accuracy of each level that was measured: workers alone from best to worst, then the bounds."""
    found = {
        system: estimate
        for system, records in results.by_system.items()
        if (system.startswith(ALONE) or system in BOUNDS) and (estimate := accuracy(records)) is not None
    }
    workers = sorted((name for name in found if name.startswith(ALONE)), key=lambda name: -found[name].value)
    return {name: found[name] for name in (*workers, *(bound for bound in BOUNDS if bound in found))}


def _draw_levels(panel: Axes, results: Material, levels: Mapping[str, Estimate]) -> list[Key]:
    """Each level as a line, and in a strip at the right its marker with its interval; the legend's entries."""
    workers = [name for name in levels if name.startswith(ALONE)]
    named = [name for name in levels if name not in workers[NAMED:]]
    label = labels([name.removeprefix(ALONE) for name in named])
    left, right = panel.get_xlim()
    step = 0.035 * (right - left)
    keys: list[Key] = []
    for index, name in enumerate(named):
        one, estimate = results.look_of_system(name), levels[name]
        place = right + step * (index + 0.7)
        marks.level(panel, estimate.value, one, gid=f"level {name}")
        marks.point(panel, place, estimate.value, one, gid=f"{name}: interval", along=marks.ends(estimate))
        keys.append(Key(f"{label[name.removeprefix(ALONE)]} {percentage(estimate.value)}", one, "point"))
    if len(workers) > NAMED:
        rest = [levels[name].value for name in workers[NAMED:]]
        marks.span(panel, min(rest), max(rest), gid="other workers")
        words = f"{len(rest)} other workers, {percentage(min(rest))} to {percentage(max(rest))}"
        keys.append(Key(words, Look(FAINT), "area"))
    if named:
        marks.strip(panel, right, right + step * (len(named) + 0.4))
    return keys


def _said(levels: Mapping[str, Estimate]) -> str:
    """What the caption says about the levels."""
    if not levels:
        return "No worker alone was evaluated, so there is no level to hold it against."
    return (
        "At the right, and as thin lines: each worker alone, and bounds, with 95 % intervals, on "
        f"n = {spanned(level.problems for level in levels.values())} evaluation questions, which are not those of the "
        "training."
    )
