# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The share of each worker over the training (like the paper's Figure 7).

In: the curve. Out: a Figure. The eight largest shares have lines of their own; those of all others are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.plots.iterations import Iteration, window_of
from openconductor.plots.material import Material, labels
from openconductor.plots.over_training import draw, explained, nothing, numbered
from openconductor.plots.sheet import GREY, finish, in_percent, in_words, opened, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Share of each worker over the training"
NAMED = 8
"""The most workers with a line of their own."""


def plot(material: Material) -> Figure:
    """Draw it; in words where there is no curve, no workflow in it, or only one worker."""
    curve = material.curve
    if why := nothing(curve, [iteration.routing_entropy for iteration in curve]):
        return in_words(TITLE, why)
    last = curve[-window_of(len(curve)) :]
    names = dict.fromkeys(name for iteration in curve for name in iteration.worker_share)
    workers = sorted(names, key=lambda name: -_mean(last, name))
    label = labels(workers)
    if len(workers) == 1:
        return in_words(TITLE, f"There is one worker, {label[workers[0]]}: it has every step.", explained(curve))
    named = workers
    if len(workers) > NAMED:
        named = sorted(workers, key=lambda name: -_mean(curve, name))[: NAMED - 1]
    with styled():
        figure, (panel,) = opened(2.2)
        for place, name in enumerate(one for one in workers if one in named):
            look = {**material.look_of_worker(name), "markersize": 3.4}
            draw(panel, curve, _shares(curve, [name]), look, label=f"{label[name]} {{}}", place=place, dots=False)
        if rest := [name for name in workers if name not in named]:
            look, said = {"color": GREY, "linestyle": ":"}, f"{len(rest)} others together {{}}"
            draw(panel, curve, _shares(curve, rest), look, label=said, place=NAMED, dots=False)
        in_percent(panel, "y", "share of steps (%)")
        top = panel.get_ylim()[1]
        panel.set_ylim(-0.03 * top, top)
        numbered(panel, curve)
        caption = (
            f"{explained(curve, dots=False)} Steps of valid workflows; each iteration counts the same. In the legend: "
            "the last share. These are all steps that were planned, so there are no intervals."
        )
        return finish(figure, TITLE, caption)


def _mean(curve: Sequence[Iteration], name: str) -> float:
    known = [share for share in _shares(curve, [name]) if share is not None]
    return fmean(known) if known else 0.0


def _shares(curve: Sequence[Iteration], group: Sequence[str]) -> list[float | None]:
    """The share of some workers together in each iteration; None where there was no step."""
    return [sum(one.worker_share.get(name, 0.0) for name in group) if one.worker_share else None for one in curve]
