# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""What the figures of a training have in common: lines over iterations, their captions, when there is nothing to draw.

In: the curve of a Material. Out: words, and lines on a panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openconductor.plots.iterations import Iteration, smoothed, window_of
from openconductor.plots.material import spanned
from openconductor.plots.sheet import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def nothing(curve: Sequence[Iteration], values: Sequence[object]) -> str:
    """Why there is nothing to draw of a training; "" where there is something.

    Args:
        curve: the training's.
        values: what would be drawn, one an iteration; None is not known.
    """
    if not curve:
        return "No curve of a training was given, or it has no iteration yet."
    if all(iteration.masked >= iteration.rollouts for iteration in curve):
        rollouts = sum(iteration.rollouts for iteration in curve)
        return (
            f"Nothing could be decided: all {rollouts:,} rollouts of {len(curve)} iterations are masked. Look "
            "at the workers and at the grader."
        )
    if all(value is None for value in values):
        return f"No text of {len(curve)} iterations was a valid workflow, so there is nothing to measure here."
    return ""


def explained(curve: Sequence[Iteration], *, dots: bool = True) -> str:
    """How much a curve rests on, and what its lines are: the end of a caption."""
    masked, window = sum(iteration.masked for iteration in curve), window_of(len(curve))
    size = spanned(iteration.rollouts for iteration in curve)
    many = "s" if len(curve) > 1 else ""
    counted = f"n = {len(curve):,} iteration{many} of {size} rollouts, {masked:,} masked and left out."
    if window == 1:
        return f"{counted} Each iteration by itself: too few for a mean and its interval."
    drawn = "; bands: 95 % intervals of it; dots: single iterations" if dots else ""
    return f"{counted} Lines: mean of the last {window} iterations{drawn}."


def draw(
    panel: Axes,
    curve: Sequence[Iteration],
    values: Sequence[float | None],
    look: Look,
    *,
    label: str = "",
    place: int = 0,
    dots: bool = True,
) -> list[float]:
    """A measure's trailing mean as a line, and with ``dots`` single iterations and the 95 % band.

    Args:
        panel: where it is drawn.
        curve: the training's.
        values: one an iteration; None is a gap.
        look: how the line is drawn.
        label: of the legend; "{}" in it is the last mean, in percent.
        place: which one of several lines it is: it shifts the markers, so that lines on each other stay apart.
        dots: whether single iterations and the band are drawn, too.

    Returns:
        The means of the first and of the last whole window; none where nothing was measured.
    """
    numbers, window = [iteration.number for iteration in curve], window_of(len(curve))
    means = smoothed(values, window)
    known = [one.mean for one in means[window - 1 :] if not math.isnan(one.mean)]
    if dots:
        single = [math.nan if value is None else value for value in values]
        ends = [one.low for one in means], [one.high for one in means]
        panel.plot(numbers, single, ".", color=look["color"], markersize=1.6, markeredgewidth=0, alpha=0.3)
        panel.fill_between(numbers, *ends, color=look["color"], alpha=0.2, linewidth=0)
    own: Look = {"marker": "o" if len(curve) == 1 else "", "markersize": 3.4, **look}
    step = max(1, len(curve) // 7)
    own["markevery"] = (place * step // 8, step)
    last = f"{100 * known[-1]:.1f} %" if known else "-"
    panel.plot(numbers, [one.mean for one in means], label=label.format(last), **own)
    return [known[0], known[-1]] if known else []


def numbered(panel: Axes, curve: Sequence[Iteration]) -> None:
    """The axis of iterations: whole numbers; a single one has room to either side."""
    from matplotlib.ticker import MaxNLocator

    first, last = curve[0].number, curve[-1].number
    margin = max(0.5, 0.015 * (last - first))
    panel.set_xlim(first - margin, last + margin)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    panel.set_xlabel("iteration")
