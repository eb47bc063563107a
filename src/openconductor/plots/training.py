# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""The figures of a training: gains (form, skill, routing), and shares of workers.

They are drawn from the curve, and for levels from the records of an evaluation.
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
from openconductor.plots.sheet import DOTTED, GREY, Drawn, Look, in_percent, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from openconductor.evaluation.statistics import Estimate

NAMED = 8
"""The most workers with a line of their own."""
_DASHED = (0, (4, 1.5))
_MEASURES: dict[str, tuple[str, Look]] = {
    "validity": ("validity {:.1%}", {"color": "#0072B2", "marker": "s"}),
    "accuracy": ("accuracy {:.1%}", {"color": "black", "marker": "o"}),
    "given_valid": (
        "given valid {:.1%}",
        {"color": "#D55E00", "marker": "^", "linestyle": _DASHED},
    ),
    "routing_entropy": ("routing entropy {:.2f} bits", {"color": "#009E73", "marker": "D"}),
}
"""The measures of an iteration that are drawn, with the label and the look of each line."""


# ── what a training gained ────────────────────────────────────────────────────────────────────────
def training_accuracy(material: Material) -> Drawn:
    """Draw validity, accuracy, accuracy given valid and routing entropy (the paper's Figure 3).

    A learner of format has a validity that rises, an accuracy given valid that stays, and a routing
    entropy that falls; its accuracy rises all the same, so that curve alone proves nothing.
    """
    why = _nothing(material.curve, [iteration.validity for iteration in material.curve])
    if why:
        return why
    curve, mix = _weigh_kinds(material)
    workers = max(1, *(len(iteration.worker_share) for iteration in curve))
    even = math.log2(workers)
    figure, (above, below) = opened(3.4, rows=2, sharex=True, height_ratios=(2, 1))
    for place, (measure, (text, line)) in enumerate(_MEASURES.items()):
        panel = below if measure == "routing_entropy" else above
        values = [getattr(iteration, measure) for iteration in curve]
        _draw(panel, curve, values, line, label=text, place=place)
    levels = _draw_levels(above, material)
    below.axhline(even, color=GREY, linestyle=(0, (3, 2)), linewidth=0.7)
    _along(below, curve)
    below.set_ylabel("routing\nentropy (bits)")
    below.set_ylim(-0.05, 1.08 * max(1.0, even))
    in_percent(above, "y", "share (%)")
    above.set_ylim(-0.02, 1.02)
    dashed = f"Dashed, below: all {workers} workers alike, {even:.2f} bits."
    caption = (
        _explain(curve),
        "In the legend: the last value.",
        mix,
        material.terms,
        levels,
        dashed,
    )
    return figure, " ".join(sentence for sentence in caption if sentence)


def _weigh_kinds(material: Material) -> tuple[Sequence[Iteration], str]:
    """Return the curve with kinds of question weighing as in the evaluation; say what it is."""
    curve = material.curve
    kind_of = {record.key: str(record.kind) for record in material.records}
    tasks = {task for task, _ in kind_of}
    sizes = Counter(kind_of.values())
    known = {kind for iteration in curve for kind in iteration.by_kind}
    if len(tasks) > 1 or not sizes.keys() <= known:
        return curve, "The training's questions are mixed in another way than those of the levels."
    weighed: list[Iteration] = []
    for iteration in curve:
        by_kind = iteration.by_kind
        shares = [by_kind[kind] for kind in sizes.elements() if kind in by_kind]
        if shares and iteration.validity:
            mean = fmean(shares)
            given_valid = mean / iteration.validity
            weighed.append(replace(iteration, accuracy=mean, given_valid=given_valid))
        else:
            weighed.append(iteration)
    return weighed, "Each kind of question weighs as in the evaluation." if sizes else ""


def _draw_levels(panel: Axes, material: Material) -> str:
    """Draw the levels of workers and bounds as lines, and the Conductor's as points; say so."""
    bound = ORACLE if ORACLE in material.by_system else HINDSIGHT
    levels: dict[str, Estimate] = {}
    for name in (*material.alone, bound, "best_fixed"):
        level = accuracy(material.by_system.get(name, []))
        if level is not None:
            levels[name] = level
    if not levels:
        return "No worker alone was evaluated, so there is no level to hold it against."
    workers = [name for name in material.alone if name in levels]
    best = max(workers, key=lambda name: levels[name].value, default="")
    for name, level in levels.items():
        if name in workers and name != best:
            panel.axhline(level.value, color=GREY, linewidth=0.5, zorder=1)
            continue
        own: Look = {"color": material.look_of(name)["color"], "zorder": 1}
        text = f"{label(name)} {100 * level.value:.1f} %"
        if name == best:
            text = f"best worker, {text}"
        panel.axhline(level.value, linestyle=DOTTED, label=text, **own)
        panel.axhspan(level.low, level.high, alpha=0.1, linewidth=0, **own)
    _draw_end(panel, material, UNTRAINED, material.curve[0].number)
    _draw_end(panel, material, material.ours, material.curve[-1].number)
    return (
        "Level lines: other workers alone (grey), the best one and others with 95 % intervals, "
        f"on n = {spanned(level.problems for level in levels.values())} evaluation questions, "
        "not those of the training; "
        "at the ends the systems before and after it, on the same."
    )


def _draw_end(panel: Axes, material: Material, system: str, number: int) -> None:
    """Draw an evaluated system at an iteration."""
    level = accuracy(material.by_system.get(system, []))
    if level is not None:
        own: Look = {**material.look_of(system), "clip_on": False}
        point(panel, number, level, own, f"{label(system)} {100 * level.value:.1f} %")


# ── shares of workers ─────────────────────────────────────────────────────────────────────────────
def worker_share(material: Material) -> Drawn:
    """Draw the shares of the largest workers, and of all others together (the paper's Figure 7)."""
    curve = material.curve
    why = _nothing(curve, [iteration.routing_entropy for iteration in curve])
    if why:
        return why
    workers = _rank_workers(curve)
    if len(workers) == 1:
        return f"There is one worker, {label(workers[0])}: it has every step. {_explain(curve)}"
    named = workers if len(workers) <= NAMED else workers[: NAMED - 1]
    others = workers[len(named) :]
    written = labels(named)
    figure, (panel,) = opened(2.3)
    for place, name in enumerate(named):
        own = look(material.names.index(name))
        text = f"{written[name]} {{:.1%}}"
        shares = _shares(curve, [name])
        _draw(panel, curve, shares, own, label=text, place=place, dots=False)
    if others:
        text = f"{len(others)} others together {{:.1%}}"
        own = {"color": GREY, "linestyle": ":"}
        place = len(named)
        shares = _shares(curve, others)
        _draw(panel, curve, shares, own, label=text, place=place, dots=False)
    _along(panel, curve)
    in_percent(panel, "y", "share of steps (%)")
    return figure, (
        f"{_explain(curve, dots=False)} Steps of valid workflows; each iteration counts the same. "
        "In the legend: the last share. "
        "These are all steps that were planned, so there are no intervals."
    )


def _rank_workers(curve: Sequence[Iteration]) -> list[str]:
    """Return the workers, those with the largest mean share first."""
    played = [iteration.worker_share for iteration in curve if iteration.worker_share]
    names = dict.fromkeys(name for shares in played for name in shares)
    means = {name: fmean(shares.get(name, 0.0) for shares in played) for name in names}
    return sorted(means, key=lambda name: -means[name])


def _shares(curve: Sequence[Iteration], workers: Sequence[str]) -> list[float | None]:
    """Return the share of some workers together in each iteration; None: there is no step."""
    shares: list[float | None] = []
    for iteration in curve:
        share = None
        if iteration.worker_share:
            share = sum(iteration.worker_share.get(name, 0.0) for name in workers)
        shares.append(share)
    return shares


# ── lines over iterations ─────────────────────────────────────────────────────────────────────────
def _nothing(curve: Sequence[Iteration], values: Sequence[object]) -> str:
    """Say why there is nothing to draw of values, one an iteration; "": there is something."""
    if not curve:
        return "No curve of a training was given, or it has no iteration yet."
    if all(iteration.masked >= iteration.rollouts for iteration in curve):
        count = sum(iteration.rollouts for iteration in curve)
        return (
            f"Nothing could be decided: all {count:,} rollouts of {len(curve)} iterations "
            "are masked. Look at the workers and at the grader."
        )
    if all(value is None for value in values):
        return (
            f"No text of {len(curve)} iterations was a valid workflow, "
            "so there is nothing to measure here."
        )
    return ""


def _explain(curve: Sequence[Iteration], *, dots: bool = True) -> str:
    """Say how much a curve rests on, and what its lines are: the end of a caption."""
    masked = sum(iteration.masked for iteration in curve)
    window = window_of(len(curve))
    rollouts = spanned(iteration.rollouts for iteration in curve)
    text = (
        f"n = {len(curve):,} iteration{'s' if len(curve) > 1 else ''} of {rollouts} rollouts, "
        f"{masked:,} masked and left out."
    )
    if window == 1:
        return f"{text} Each iteration by itself: too few for a mean and its interval."
    text += f" Lines: mean of the last {window} iterations"
    if dots:
        text += "; bands: 95 % intervals of it; dots: single iterations"
    return f"{text}."


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
    """Draw a measure's trailing mean, and with ``dots`` single iterations and the 95 % band.

    Args:
        panel: the panel to draw on.
        curve: the training's.
        values: one an iteration; None: a gap.
        look: the look of the line.
        label: of the legend; "{}" in it is the last mean.
        place: the line's place among others: it shifts the markers, so that lines on each other
            stay apart.
        dots: draw single iterations and the band, too.
    """
    numbers = [iteration.number for iteration in curve]
    points = smoothed(values, window_of(len(curve)))
    means, lows, highs = zip(*points, strict=True)
    if dots:
        single = [math.nan if value is None else value for value in values]
        band: Look = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
        dot: Look = {"color": look["color"], "markersize": 1.6, "markeredgewidth": 0, "alpha": 0.3}
        panel.plot(numbers, single, ".", **dot)
        panel.fill_between(numbers, lows, highs, **band)
    last = next((mean for mean in reversed(means) if not math.isnan(mean)), math.nan)
    step = max(1, len(curve) // 7)
    marker = "o" if len(curve) == 1 else ""
    own: Look = {
        "marker": marker,
        **look,
        "markersize": 3.4,
        "markevery": (place * step // 4, step),
    }
    text = label.format(last).replace("%", " %")
    panel.plot(numbers, means, label=text, **own)


def _along(panel: Axes, curve: Sequence[Iteration]) -> None:
    """Name the axis of iterations, with whole numbers and room to either side."""
    from matplotlib.ticker import MaxNLocator

    first = curve[0].number
    last = curve[-1].number
    margin = max(0.5, 0.015 * (last - first))
    panel.set_xlim(first - margin, last + margin)
    ticks = MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10])
    panel.xaxis.set_major_locator(ticks)
    panel.set_xlabel("iteration")
