# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The figures of a training: what was gained (form, skill, routing), and shares of workers.

In: the curve, and for levels the records of an evaluation. Out: figures of lines over iterations,
with captions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import HINDSIGHT, ORACLE, UNTRAINED
from openconductor.plots.estimates import accuracy
from openconductor.plots.iterations import Iteration, smoothed, window_of
from openconductor.plots.material import Material, label, labels, look, spanned
from openconductor.plots.sheet import GREY, Drawn, Look, in_percent, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 8
"""The most workers with a line of their own."""
_GAINS: dict[str, Look] = {
    "validity {:.1%}": {"color": "#0072B2", "marker": "s"},
    "accuracy {:.1%}": {"color": "black", "marker": "o"},
    "given valid {:.1%}": {"color": "#D55E00", "marker": "^", "linestyle": (0, (4, 1.5))},
    "routing entropy {:.2f} bits": {"color": "#009E73", "marker": "D"},
}


def training_accuracy(material: Material) -> Drawn:
    """Whether a training gains orchestration or only format, and against each worker alone (like the paper's Figure 3).

    A learner of format has a validity that rises, an accuracy given valid that stays, and a routing
    entropy that falls; its accuracy rises all the same, which is why that curve alone proves
    nothing.
    """
    curve = material.curve
    if why := _nothing(curve, [iteration.validity for iteration in curve]):
        return why
    curve, mixed = _weighed(curve, material)
    measured = zip(
        *((one.validity, one.accuracy, one.given_valid, one.routing_entropy) for one in curve),
        strict=True,
    )
    workers = max(1, *(len(iteration.worker_share) for iteration in curve))
    even = math.log2(workers)
    figure, (above, below) = opened(3.4, rows=2, sharex=True, height_ratios=(2, 1))
    for place, ((name, own), values) in enumerate(zip(_GAINS.items(), measured, strict=True)):
        _draw(above if place < 3 else below, curve, values, own, label=name, place=place)
    said = _levels(above, material)
    below.axhline(even, color=GREY, linestyle=(0, (3, 2)), linewidth=0.7)
    _along(below, curve)
    below.set_ylabel("routing\nentropy (bits)")
    below.set_ylim(-0.05, 1.08 * max(1.0, even))
    in_percent(above, "y", "share (%)")
    above.set_ylim(-0.02, 1.02)
    dashed = f"Dashed, below: all {workers} workers alike, {even:.2f} bits."
    told = (
        _explained(curve),
        "In the legend: the last value.",
        mixed,
        material.terms,
        said,
        dashed,
    )
    return figure, " ".join(filter(None, told))


def _weighed(curve: Sequence[Iteration], material: Material) -> tuple[Sequence[Iteration], str]:
    """The curve with each kind of question weighing as in the evaluation, where it knows all; and what it is."""
    asked = {(one.task, one.problem, str(one.kind)) for one in material.records}
    kinds = Counter(kind for _, _, kind in asked)
    if len({task for task, _, _ in asked}) > 1 or kinds.keys() - {
        kind for one in curve for kind in one.by_kind
    }:
        return curve, "The training's questions are mixed in another way than those of the levels."
    found: list[Iteration] = []
    for one in curve:
        shares = (
            [one.by_kind[kind] for kind in kinds.elements() if kind in one.by_kind]
            if one.validity
            else []
        )
        mean = fmean(shares) if shares else one.accuracy
        given = mean / one.validity if mean is not None and one.validity else one.given_valid
        found.append(replace(one, accuracy=mean, given_valid=given))
    return found, "Each kind of question weighs as in the evaluation." if asked else ""


def _levels(panel: Axes, material: Material) -> str:
    """Draw what workers alone and bounds reach as lines across a panel; returns what the caption says of them."""
    bound = next((name for name in (ORACLE, HINDSIGHT) if name in material.by_system), "")
    systems = [*material.alone, bound, "best_fixed"]
    levels = {
        name: one
        for name in systems
        if (one := accuracy(material.by_system.get(name, []))) is not None
    }
    workers = [name for name in material.alone if name in levels]
    if not levels:
        return "No worker alone was evaluated, so there is no level to hold it against."
    best = max(workers, key=lambda name: levels[name].value, default="")
    for name, one in levels.items():
        if name in workers and name != best:
            panel.axhline(one.value, color=GREY, linewidth=0.5, zorder=1)
            continue
        own = {"color": material.look_of(name)["color"], "zorder": 1}
        written = f"best worker, {label(name)}" if name == best else label(name)
        panel.axhline(
            one.value, linestyle=(0, (1, 1)), label=f"{written} {100 * one.value:.1f} %", **own
        )
        panel.axhspan(one.low, one.high, alpha=0.1, linewidth=0, **own)
    curve, counted = material.curve, spanned(one.problems for one in levels.values())
    for name, where in ((UNTRAINED, curve[0].number), (material.ours, curve[-1].number)):
        if (one := accuracy(material.by_system.get(name, []))) is not None:
            own, written = (
                {**material.look_of(name), "clip_on": False},
                f"{label(name)} {100 * one.value:.1f} %",
            )
            point(panel, where, one, own, written)
    return (
        f"Level lines: other workers alone (grey), the best one and others with 95 % intervals, on n = {counted} "
        "evaluation questions, not those of the training; at the ends the systems before and after it, on the same."
    )


def worker_share(material: Material) -> Drawn:
    """The share of each worker over the training (like the paper's Figure 7): the largest, and all others together."""
    curve = material.curve
    if why := _nothing(curve, [iteration.routing_entropy for iteration in curve]):
        return why
    stepped = [iteration.worker_share for iteration in curve if iteration.worker_share]
    means = {
        name: fmean(shares.get(name, 0.0) for shares in stepped)
        for shares in stepped
        for name in shares
    }
    workers = sorted(means, key=lambda name: -means[name])
    if len(workers) == 1:
        return f"There is one worker, {label(workers[0])}: it has every step. {_explained(curve)}"
    named = workers if len(workers) <= NAMED else workers[: NAMED - 1]
    groups = [
        ([name], written, look(material.names.index(name)))
        for name, written in labels(named).items()
    ]
    if rest := workers[len(named) :]:
        groups.append((rest, f"{len(rest)} others together", {"color": GREY, "linestyle": ":"}))
    figure, (panel,) = opened(2.3)
    for place, (group, written, own) in enumerate(groups):
        together = (sum(one.worker_share.get(name, 0.0) for name in group) for one in curve)
        values = [
            share if one.worker_share else None for one, share in zip(curve, together, strict=True)
        ]
        _draw(panel, curve, values, own, label=f"{written} {{:.1%}}", place=place, dots=False)
    _along(panel, curve)
    in_percent(panel, "y", "share of steps (%)")
    return figure, (
        f"{_explained(curve, dots=False)} Steps of valid workflows; each iteration counts the same. In the legend: "
        "the last share. These are all steps that were planned, so there are no intervals."
    )


# ── lines over iterations ─────────────────────────────────────────────────────────────────────────
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
    """Draw a measure's trailing mean as a line, and with ``dots`` single iterations and the 95 % band.

    Args:
        panel: where it is drawn.
        curve: the training's.
        values: one an iteration; None is a gap.
        look: how the line is drawn.
        label: of the legend; "{}" in it is the last mean.
        place: which one of several lines it is: it shifts the markers, so that lines on each other
            stay apart.
        dots: whether single iterations and the band are drawn, too.
    """
    numbers = [iteration.number for iteration in curve]
    means, lows, highs = zip(*smoothed(values, window_of(len(curve))), strict=True)
    if dots:
        single = [math.nan if value is None else value for value in values]
        panel.plot(
            numbers, single, ".", color=look["color"], markersize=1.6, markeredgewidth=0, alpha=0.3
        )
        panel.fill_between(numbers, lows, highs, color=look["color"], alpha=0.2, linewidth=0)
    step = max(1, len(curve) // 7)
    own: Look = {"marker": "o" if len(curve) == 1 else "", **look, "markersize": 3.4}
    last = next((mean for mean in reversed(means) if not math.isnan(mean)), math.nan)
    panel.plot(
        numbers,
        means,
        label=label.format(last).replace("%", " %"),
        markevery=(place * step // 4, step),
        **own,
    )


def _along(panel: Axes, curve: Sequence[Iteration]) -> None:
    """Name the axis of iterations, with whole numbers and room to either side."""
    from matplotlib.ticker import MaxNLocator

    first, last = curve[0].number, curve[-1].number
    margin = max(0.5, 0.015 * (last - first))
    panel.set_xlim(first - margin, last + margin)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    panel.set_xlabel("iteration")
