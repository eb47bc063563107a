# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The figures of a training: accuracy against each worker, what was gained (form or skill), shares of workers.

In: the curve, and for levels the records of an evaluation. Out: figures of lines over iterations, with captions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.statistics import Estimate
from openconductor.plots.estimates import accuracy
from openconductor.plots.iterations import Iteration, smoothed, window_of
from openconductor.plots.material import ORACLES, Material, label, labels, look, spanned
from openconductor.plots.sheet import FAINT, GREY, Drawn, Look, in_percent, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 8
"""The most workers with a line of their own."""
_GAINS: dict[str, Look] = {
    "validity {:.1%}": {"color": "#0072B2", "marker": "s"},
    "accuracy {:.1%}": {"color": "black", "marker": "o"},
    "accuracy given valid {:.1%}": {"color": "#D55E00", "marker": "^", "linestyle": (0, (4, 1.5))},
    "routing entropy {:.2f} bits": {"color": "#009E73", "marker": "D"},
}


def training_accuracy(material: Material) -> Drawn:
    """Accuracy over the training against each worker alone (like the paper's Figure 3)."""
    curve = material.curve
    values = [iteration.accuracy for iteration in curve]
    if why := _nothing(curve, values):
        return why
    levels = _levels(material)
    workers = [name for name in levels if name.startswith(ALONE)]
    named = labels(name for name in levels if name not in workers[NAMED:])
    figure, (panel, *strip) = opened(
        2.4, columns=2 if levels else 1, sharey=True, width_ratios=(5, 1.5) if levels else None
    )
    _draw(panel, curve, values, {"color": "black"}, label="in training, last {:.1%}")
    for place, (name, written) in enumerate(named.items()):
        one, own = levels[name], material.look_of(name)
        panel.axhline(one.value, color=own["color"], linestyle=own["linestyle"], linewidth=0.7, alpha=0.75)
        point(strip[0], place, one, own, f"{written} {100 * one.value:.1f} %")
    if rest := [levels[name].value for name in workers[NAMED:]]:
        words = f"{len(rest)} other workers, {100 * min(rest):.1f} to {100 * max(rest):.1f} %"
        panel.axhspan(min(rest), max(rest), color=FAINT, alpha=0.6, linewidth=0, label=words, zorder=0)
    for beside in strip:
        beside.set_xticks([])
        beside.set_xlim(-0.7, len(named) - 0.3)
        beside.set_xlabel("alone")
        beside.tick_params(axis="y", length=0)
    _axes(panel, curve, "right (%)")
    said = (
        "At the right, and as thin lines: workers alone, and bounds, with 95 % intervals, on n = "
        f"{spanned(one.problems for one in levels.values())} evaluation questions, not those of the training."
        if levels
        else "No worker alone was evaluated, so there is no level to hold it against."
    )
    return figure, f"{_explained(curve)} {said}"


def format_gain(material: Material) -> Drawn:
    """Whether a training gains orchestration or only format: validity, accuracy given valid, and routing entropy.

    A learner of format has a validity that rises, an accuracy given valid that stays, and a routing entropy that falls;
    its accuracy rises all the same, which is why that curve alone proves nothing.
    """
    curve = material.curve
    if why := _nothing(curve, [iteration.validity for iteration in curve]):
        return why
    measured = zip(*((one.validity, one.accuracy, one.given_valid, one.routing_entropy) for one in curve), strict=True)
    workers = max(1, *(len(iteration.worker_share) for iteration in curve))
    even = math.log2(workers)
    figure, (above, below) = opened(3.1, rows=2, sharex=True, height_ratios=(1.7, 1))
    for place, ((name, own), values) in enumerate(zip(_GAINS.items(), measured, strict=True)):
        _draw(above if place < 3 else below, curve, values, own, label=name, place=2 * place)
    below.axhline(even, color=GREY, linestyle=(0, (3, 2)), linewidth=0.7)
    _axes(below, curve, "")
    below.set_ylabel("routing\nentropy (bits)")
    below.set_ylim(-0.05, 1.08 * max(1.0, even))
    in_percent(above, "y", "share (%)")
    above.set_ylim(-0.02, 1.02)
    return (
        figure,
        f"Dashed: all {workers} workers alike, {even:.2f} bits. In the legend: the last value. {_explained(curve)}",
    )


def worker_share(material: Material) -> Drawn:
    """The share of each worker over the training (like the paper's Figure 7): the eight largest, and all others."""
    curve = material.curve
    if why := _nothing(curve, [iteration.routing_entropy for iteration in curve]):
        return why
    last = curve[-window_of(len(curve)) :]
    names = dict.fromkeys(name for iteration in curve for name in iteration.worker_share)
    workers = sorted(names, key=lambda name: -_mean(last, name))
    if len(workers) == 1:
        return f"There is one worker, {label(workers[0])}: it has every step. {_explained(curve)}"
    named = workers
    if len(workers) > NAMED:
        named = sorted(workers, key=lambda name: -_mean(curve, name))[: NAMED - 1]
    written = labels(workers)
    figure, (panel,) = opened(2.2)
    for place, name in enumerate(one for one in workers if one in named):
        own = {**look(material.names.index(name)), "markersize": 3.4}
        _draw(panel, curve, _shares(curve, [name]), own, label=f"{written[name]} {{:.1%}}", place=place, dots=False)
    if rest := [name for name in workers if name not in named]:
        own, said = {"color": GREY, "linestyle": ":"}, f"{len(rest)} others together {{:.1%}}"
        _draw(panel, curve, _shares(curve, rest), own, label=said, place=NAMED, dots=False)
    _axes(panel, curve, "share of steps (%)")
    return figure, (
        f"{_explained(curve, dots=False)} Steps of valid workflows; each iteration counts the same. In the legend: "
        "the last share. These are all steps that were planned, so there are no intervals."
    )


def _levels(material: Material) -> dict[str, Estimate]:
    """The accuracy of each level that was measured: workers alone from best to worst, then the bounds."""
    workers = (name for name in material.by_system if name.startswith(ALONE))
    systems = [*workers, *ORACLES, "best_fixed", "random"]
    found = {name: one for name in systems if (one := accuracy(material.by_system.get(name, []))) is not None}
    return dict(sorted(found.items(), key=lambda entry: -entry[1].value if entry[0].startswith(ALONE) else 1))


def _mean(curve: Sequence[Iteration], name: str) -> float:
    known = [share for share in _shares(curve, [name]) if share is not None]
    return fmean(known) if known else 0.0


def _shares(curve: Sequence[Iteration], group: Sequence[str]) -> list[float | None]:
    """The share of some workers together in each iteration; None where there was no step."""
    return [sum(one.worker_share.get(name, 0.0) for name in group) if one.worker_share else None for one in curve]


# ── lines over iterations ────────────────────────────────────────────────────────────────────────────────────────────
def _nothing(curve: Sequence[Iteration], values: Sequence[object]) -> str:
    """Why there is nothing to draw of a training's values, one an iteration (None: not known); "" where there is."""
    if not curve:
        return "No curve of a training was given, or it has no iteration yet."
    if all(iteration.masked >= iteration.rollouts for iteration in curve):
        rollouts = f"{sum(iteration.rollouts for iteration in curve):,} rollouts of {len(curve)} iterations"
        return f"Nothing could be decided: all {rollouts} are masked. Look at the workers and at the grader."
    if all(value is None for value in values):
        return f"No text of {len(curve)} iterations was a valid workflow, so there is nothing to measure here."
    return ""


def _explained(curve: Sequence[Iteration], *, dots: bool = True) -> str:
    """How much a curve rests on, and what its lines are: the end of a caption."""
    masked, window = sum(iteration.masked for iteration in curve), window_of(len(curve))
    many = f"{len(curve):,} iteration{'s' if len(curve) > 1 else ''}"
    counted = f"n = {many} of {spanned(one.rollouts for one in curve)} rollouts, {masked:,} masked and left out."
    if window == 1:
        return f"{counted} Each iteration by itself: too few for a mean and its interval."
    drawn = "; bands: 95 % intervals of it; dots: single iterations" if dots else ""
    return f"{counted} Lines: mean of the last {window} iterations{drawn}."


def _draw(
    panel: Axes,
    curve: Sequence[Iteration],
    values: Sequence[float | None],
    look: Look,
    *,
    label: str,
    place: int = 0,
    dots: bool = True,
) -> None:
    """A measure's trailing mean as a line, and with ``dots`` single iterations and the 95 % band.

    Args:
        panel: where it is drawn.
        curve: the training's.
        values: one an iteration; None is a gap.
        look: how the line is drawn.
        label: of the legend; "{}" in it is the last mean.
        place: which one of several lines it is: it shifts the markers, so that lines on each other stay apart.
        dots: whether single iterations and the band are drawn, too.
    """
    numbers = [iteration.number for iteration in curve]
    means, lows, highs = zip(*smoothed(values, window_of(len(curve))), strict=True)
    if dots:
        single = [math.nan if value is None else value for value in values]
        panel.plot(numbers, single, ".", color=look["color"], markersize=1.6, markeredgewidth=0, alpha=0.3)
        panel.fill_between(numbers, lows, highs, color=look["color"], alpha=0.2, linewidth=0)
    step = max(1, len(curve) // 7)
    own: Look = {"marker": "o" if len(curve) == 1 else "", "markersize": 3.4, **look}
    last = next((mean for mean in reversed(means) if not math.isnan(mean)), math.nan)
    panel.plot(numbers, means, label=label.format(last).replace("%", " %"), markevery=(place * step // 8, step), **own)


def _axes(panel: Axes, curve: Sequence[Iteration], label: str) -> None:
    """The axis of iterations, whole numbers with room to either side; with a label, the one of shares from 0 up."""
    from matplotlib.ticker import MaxNLocator

    first, last = curve[0].number, curve[-1].number
    margin = max(0.5, 0.015 * (last - first))
    panel.set_xlim(first - margin, last + margin)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    panel.set_xlabel("iteration")
    if label:
        in_percent(panel, "y", label)
        top = panel.get_ylim()[1]
        panel.set_ylim(-0.03 * top, top)
