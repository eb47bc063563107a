"""Whether a training gains orchestration or only format: validity, accuracy given valid, and routing entropy.

In: the curve. Out: a Figure. A learner of format has a validity that rises, an accuracy given valid that stays, and a
routing entropy that falls; its accuracy rises all the same, which is why that curve alone proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from openconductor.plots import marks
from openconductor.plots.iterations import Smoothed, window_of
from openconductor.plots.looks import BLUE, GREEN, GREY, OURS, VERMILLION, Look
from openconductor.plots.material import Material
from openconductor.plots.over_training import counted, draw, explained, nothing, numbered
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import percentage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Format or orchestration: what the training gained"
ENTROPY = "routing entropy"
_LOOKS = {
    "validity": Look(BLUE, "s"),
    "accuracy": Look(OURS.colour, "o"),
    "accuracy given valid": Look(VERMILLION, "^", (4.0, 1.5)),
    ENTROPY: Look(GREEN, "D"),
}


def plot(results: Material) -> Figure:
    """Draw it; in words where there is no curve, or nothing of it could be decided."""
    curve = results.curve
    why = nothing(results, [iteration.validity for iteration in curve])
    if why:
        return in_words(TITLE, why)
    shares = {
        "validity": [iteration.validity for iteration in curve],
        "accuracy": [iteration.accuracy for iteration in curve],
        "accuracy given valid": [iteration.given_valid for iteration in curve],
    }
    entropy = [iteration.routing_entropy for iteration in curve]
    workers = max(len(iteration.worker_share) for iteration in curve)
    with styled():
        sheet = Sheet(TITLE, height=3.1, rows=2, heights=(1.7, 1), share="x")
        above, below = sheet.panels
        said: list[str] = []
        for index, (name, values) in enumerate(shares.items()):
            means = draw(above, curve, values, _LOOKS[name], gid=name, phase=3 * index)
            said.append(f"{name} {_change(means, percentage)}")
        marks.percent(above, "y", "share (%)")
        above.set_ylim(-0.02, 1.02)
        means = draw(below, curve, entropy, _LOOKS[ENTROPY], gid=ENTROPY)
        said.append(f"{ENTROPY} {_change(means, '{:.2f}'.format)} bits")
        even = ""
        if workers > 1:
            marks.level(below, math.log2(workers), Look(GREY), gid="even spread")
            even = f" Thin line: all {workers} workers alike, {math.log2(workers):.2f} bits."
        marks.label_axis(below, "y", "routing\nentropy (bits)")
        below.set_ylim(-0.05, 1.08 * max(1.0, math.log2(max(1, workers))))
        numbered(below, curve)
        window = window_of(len(curve))
        times = f"From the first {window} to the last {window} iterations" if window > 1 else "From first to last"
        caption = f"{times}: {'; '.join(said)}.{even} {counted(curve)} {explained(curve)}"
        return sheet.finish(caption, [Key(name, one) for name, one in _LOOKS.items()])


def _change(means: Sequence[Smoothed | None], write: Callable[[float], str]) -> str:
    """The mean of the first whole window, an arrow, and that of the last."""
    known = [mean.mean for mean in means[window_of(len(means)) - 1 :] if mean is not None]
    if not known:
        return "not known"
    return f"{write(known[0])} → {write(known[-1])}" if len(means) > 1 else write(known[0])
