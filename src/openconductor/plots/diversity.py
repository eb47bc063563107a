"""How many strategies are left: the shapes of workflows over the training, their diversity, and accuracy beside it.

In: the curve. Out: a Figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.plots import marks
from openconductor.plots.iterations import Iteration, smoothed, window_of
from openconductor.plots.looks import OURS, Look, look
from openconductor.plots.material import SHAPES, Material
from openconductor.plots.over_training import counted, draw, draw_means, explained, nothing, numbered, single
from openconductor.plots.sheet import Key, Sheet, in_words, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Diversity of strategies over the training"
_SHAPES: tuple[str, ...] = SHAPES


def plot(results: Material) -> Figure:
    """Draw it; in words where there is no curve, or no workflow in it."""
    curve = results.curve
    diversity = [iteration.diversity for iteration in curve]
    why = nothing(results, diversity)
    if why:
        return in_words(TITLE, why)
    met = {shape for iteration in curve for shape, count in iteration.topology.items() if count}
    shapes = [*(shape for shape in _SHAPES if shape in met), *sorted(met.difference(_SHAPES))]
    dark = single(curve, Look(OURS.colour))
    with styled():
        sheet = Sheet(TITLE, height=3.6, rows=3, heights=(1.5, 1, 1), share="x")
        above, middle, below = sheet.panels
        keys: list[Key] = []
        for index, shape in enumerate(shapes):
            one = single(curve, look(_SHAPES.index(shape) if shape in _SHAPES else len(SHAPES) + index))
            means = smoothed([_share(iteration, shape) for iteration in curve], window_of(len(curve)))
            draw_means(above, curve, means, one, gid=shape, phase=index)
            keys.append(Key(shape, one))
        marks.percent(above, "y", "workflows (%)")
        above.set_ylim(-0.02, 1.02)
        draw(middle, curve, diversity, dark, gid="diversity")
        marks.label_axis(middle, "y", "effective\nshapes (number)")
        middle.set_ylim(0.8, max(2.0, *(value for value in diversity if value is not None)) + 0.2)
        draw(below, curve, [iteration.accuracy for iteration in curve], dark, gid="accuracy")
        marks.percent(below, "y", "right (%)")
        marks.from_zero(below)
        numbered(below, curve)
        caption = (
            f"{counted(curve)} Shapes of valid workflows by who sees whom. Effective shapes: 2 to the power of the "
            f"entropy of their shares in bits; 1 is always the same shape. {explained(curve)}"
        )
        return sheet.finish(caption, keys)


def _share(iteration: Iteration, shape: str) -> float | None:
    total = sum(iteration.topology.values())
    return iteration.topology.get(shape, 0) / total if total else None
