# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""What the figures of a training have in common: lines over iterations, their captions, when there is nothing to draw.

In: the curve of a Material. Out: words, and lines on a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openconductor.plots import marks
from openconductor.plots.iterations import Iteration, Smoothed, smoothed, window_of
from openconductor.plots.looks import Look
from openconductor.plots.material import Material
from openconductor.plots.words import spanned

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MARKED = 7
"""Markers along a line."""
DRAWN = 300
"""The most iterations that are drawn; of a longer curve every second, every third …, and always the last."""


def nothing(results: Material, values: Sequence[object]) -> str:
    """Why there is nothing to draw of a training; "" where there is something.

    Args:
        results: with the curve.
        values: what would be drawn, one an iteration; None is not known.
    """
    if not results.curve:
        return "No curve of a training was given, or it has no iteration yet."
    if all(iteration.masked >= iteration.rollouts for iteration in results.curve):
        rollouts = sum(iteration.rollouts for iteration in results.curve)
        return (
            f"Nothing could be decided: all {rollouts:,} rollouts of {len(results.curve)} iterations are masked. Look "
            "at the workers and at the grader."
        )
    if all(value is None for value in values):
        return f"No text of {len(results.curve)} iterations was a valid workflow, so there is nothing to measure here."
    return ""


def counted(curve: Sequence[Iteration]) -> str:
    """How much a curve rests on, as a sentence of a caption."""
    masked = sum(iteration.masked for iteration in curve)
    size = spanned(iteration.rollouts for iteration in curve)
    many = "s" if len(curve) > 1 else ""
    return f"n = {len(curve):,} iteration{many} of {size} rollouts, {masked:,} masked and left out."


def explained(curve: Sequence[Iteration], *, dots: bool = True) -> str:
    """What lines, bands and dots are, as a sentence of a caption."""
    if window_of(len(curve)) == 1:
        return "Each iteration by itself: too few for a mean and its interval."
    line = f"Lines: mean of the last {window_of(len(curve))} iterations"
    step = _step(len(curve))
    each = "single iterations" if step == 1 else f"one iteration in {step}"
    return f"{line}; bands: 95 % intervals of it; dots: {each}." if dots else f"{line}."


def draw(
    panel: Axes, curve: Sequence[Iteration], values: Sequence[float | None], one: Look, *, gid: str, phase: int = 0
) -> list[Smoothed | None]:
    """A measure: single iterations as faint dots, the trailing mean as a line with its 95 % band.

    Returns:
        The trailing mean at each iteration.
    """
    means = smoothed(values, window_of(len(values)))
    places = _drawn(len(curve))
    numbers = [curve[place].number for place in places]
    kept = [means[place] for place in places]
    panel.plot(
        numbers,
        marks.gaps([values[place] for place in places]),
        linestyle="none",
        marker=".",
        markersize=1.6,
        markeredgewidth=0,
        color=one.colour,
        alpha=0.3,
        gid=f"{gid}: single",
    )
    low = [None if mean is None or mean.half is None else mean.mean - mean.half for mean in kept]
    high = [None if mean is None or mean.half is None else mean.mean + mean.half for mean in kept]
    panel.fill_between(
        numbers, marks.gaps(low), marks.gaps(high), color=one.colour, alpha=0.2, linewidth=0, gid=f"{gid}: interval"
    )
    draw_means(panel, curve, means, one, gid=gid, phase=phase)
    return means


def draw_means(
    panel: Axes, curve: Sequence[Iteration], means: Sequence[Smoothed | None], one: Look, *, gid: str, phase: int = 0
) -> None:
    """A trailing mean as a line with a few markers; ``phase`` shifts them, so that lines on each other stay apart."""
    places = _drawn(len(curve))
    step = max(1, len(places) // MARKED)
    panel.plot(
        [curve[place].number for place in places],
        marks.gaps([None if (mean := means[place]) is None else mean.mean for place in places]),
        color=one.colour,
        linestyle=(0, one.dashes) if one.dashes else "-",
        marker=one.marker or None,
        markevery=(phase * step // MARKED % step, step),
        markersize=3.4,
        markeredgewidth=0.6,
        markerfacecolor="none" if one.hollow else one.colour,
        gid=gid,
    )


def last_of(means: Sequence[Smoothed | None]) -> float:
    """The last mean that is known; at least one is."""
    return next(mean.mean for mean in reversed(means) if mean is not None)


def numbered(panel: Axes, curve: Sequence[Iteration]) -> None:
    """The axis of iterations; a single one has room to either side."""
    marks.label_axis(panel, "x", "iteration")
    first, last = curve[0].number, curve[-1].number
    margin = max(0.5, 0.015 * (last - first))
    panel.set_xlim(first - margin, last + margin)
    marks.whole_numbers(panel)


def _drawn(count: int) -> list[int]:
    """Which iterations are drawn: all of a short curve, evenly spaced ones of a long one, the last always."""
    step = _step(count)
    return list(range((count - 1) % step, count, step))


def _step(count: int) -> int:
    return max(1, -(-count // DRAWN))


def single(curve: Sequence[Iteration], one: Look) -> Look:
    """A look that can be seen on a curve of one iteration, too: with a marker, for a line has no length there."""
    return one if len(curve) > 1 or one.marker else Look(one.colour, "o", one.dashes)
