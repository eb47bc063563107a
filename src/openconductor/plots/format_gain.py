# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Whether a training gains orchestration or only format: validity, accuracy given valid, and routing entropy.

In: the curve. Out: a Figure. A learner of format has a validity that rises, an accuracy given valid that stays, and a
routing entropy that falls; its accuracy rises all the same, which is why that curve alone proves nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from openconductor.plots.iterations import window_of
from openconductor.plots.material import Material
from openconductor.plots.over_training import draw, explained, nothing, numbered
from openconductor.plots.sheet import GREY, Look, finish, in_percent, in_words, opened, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Format or orchestration: what the training gained"
_LOOKS: dict[str, Look] = {
    "validity": {"color": "#0072B2", "marker": "s"},
    "accuracy": {"color": "black", "marker": "o"},
    "accuracy given valid": {"color": "#D55E00", "marker": "^", "linestyle": (0, (4, 1.5))},
    "routing entropy": {"color": "#009E73", "marker": "D"},
}


def plot(material: Material) -> Figure:
    """Draw it; in words where there is no curve, or nothing of it could be decided."""
    curve = material.curve
    if why := nothing(curve, [iteration.validity for iteration in curve]):
        return in_words(TITLE, why)
    measures = {
        "validity": [one.validity for one in curve],
        "accuracy": [one.accuracy for one in curve],
        "accuracy given valid": [one.given_valid for one in curve],
        "routing entropy": [one.routing_entropy for one in curve],
    }
    workers = max(1, *(len(iteration.worker_share) for iteration in curve))
    with styled():
        figure, (above, below) = opened(3.1, rows=2, sharex=True, height_ratios=(1.7, 1))
        said: list[str] = []
        for place, (name, values) in enumerate(measures.items()):
            bits = name == "routing entropy"
            ends = draw(below if bits else above, curve, values, _LOOKS[name], label=name, place=2 * place)
            written = " → ".join(f"{end:.2f}" if bits else f"{100 * end:.1f} %" for end in ends[: len(curve)])
            said.append(f"{name} {written or 'not known'}{' bits' if bits else ''}")
        below.axhline(math.log2(workers), color=GREY, linestyle=(0, (3, 2)), linewidth=0.7)
        below.set_ylabel("routing\nentropy (bits)")
        below.set_ylim(-0.05, 1.08 * max(1.0, math.log2(workers)))
        in_percent(above, "y", "share (%)")
        above.set_ylim(-0.02, 1.02)
        numbered(below, curve)
        window = window_of(len(curve))
        times = f"From the first {window} to the last {window} iterations" if window > 1 else "From first to last"
        even = f"Dashed: all {workers} workers alike, {math.log2(workers):.2f} bits."
        return finish(figure, TITLE, f"{times}: {'; '.join(said)}. {even} {explained(curve)}")
