"""The share of each worker over the training (like the paper's Figure 7).

In: the curve. Out: a Figure. The eight largest shares have lines of their own; those of all others are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from openconductor.plots import marks
from openconductor.plots.iterations import Iteration, smoothed, window_of
from openconductor.plots.looks import OTHERS
from openconductor.plots.material import Material
from openconductor.plots.over_training import counted, draw_means, explained, last_of, nothing, numbered, single
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import labels, percentage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Share of each worker over the training"
NAMED = 8
"""The most workers with a line of their own."""


def plot(results: Material) -> Figure:
    """Draw it; in words where there is no curve, no workflow in it, or only one worker."""
    curve = results.curve
    why = nothing(results, [iteration.routing_entropy for iteration in curve])
    if why:
        return in_words(TITLE, why)
    window = window_of(len(curve))
    workers = _by_last_share(curve, window)
    label = labels(workers)
    if len(workers) == 1:
        return in_words(TITLE, f"There is one worker, {label[workers[0]]}: it has every step.", counted(curve))
    with styled():
        sheet = Sheet(TITLE, height=2.2)
        (panel,) = sheet.panels
        keys: list[Key] = []
        for index, group in enumerate(_groups(curve, workers)):
            alone = len(group) == 1
            one = single(curve, results.look_of_worker(group[0]) if alone else OTHERS)
            means = smoothed([_share(iteration, group) for iteration in curve], window)
            draw_means(panel, curve, means, one, gid=group[0] if alone else "others", phase=index)
            name = label[group[0]] if alone else f"{len(group)} others together"
            keys.append(Key(f"{name} {percentage(last_of(means), 0)}", one))
        marks.percent(panel, "y", "share of steps (%)")
        marks.from_zero(panel)
        numbered(panel, curve)
        caption = (
            f"{counted(curve)} {explained(curve, dots=False)} Steps of valid workflows; each iteration counts the "
            "same. In the legend: the last share. These are all steps that were planned, so there are no intervals."
        )
        return sheet.finish(caption, keys)


def _groups(curve: Sequence[Iteration], workers: Sequence[str]) -> list[list[str]]:
    """The workers with the largest shares each by itself, and all others as one group."""
    if len(workers) <= NAMED:
        return [[name] for name in workers]
    named = sorted(workers, key=lambda name: -_mean(curve, name))[: NAMED - 1]
    return [*([name] for name in workers if name in named), [name for name in workers if name not in named]]


def _by_last_share(curve: Sequence[Iteration], window: int) -> list[str]:
    """All workers, that with the largest share at the end first."""
    names = dict.fromkeys(name for iteration in curve for name in iteration.worker_share)
    return sorted(names, key=lambda name: -_mean(curve[-window:], name))


def _mean(curve: Sequence[Iteration], name: str) -> float:
    shares = [share for iteration in curve if (share := _share(iteration, [name])) is not None]
    return fmean(shares) if shares else 0.0


def _share(iteration: Iteration, group: Sequence[str]) -> float | None:
    """The share of some workers together; None where there was no step."""
    if not iteration.worker_share:
        return None
    return sum(iteration.worker_share.get(name, 0.0) for name in group)
