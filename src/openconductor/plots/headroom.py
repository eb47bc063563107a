# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""How much of the oracle's headroom each system wins, and what is left: gain over the best single worker, and regret.

In: the records of workers alone, of an oracle (else the best worker of each question in hindsight), and of systems to
judge. Out: a Figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.config import ORACLE
from openconductor.evaluation.headroom import corrected_oracle, naive_oracle
from openconductor.evaluation.statistics import Estimate, Scores, scores_by_problem
from openconductor.plots.estimates import accuracy_of, difference_of
from openconductor.plots.material import ALONE, ORACLES, Material, label, labels, spanned
from openconductor.plots.sheet import FAINT, INK, aside, finish, in_percent, in_rows, in_words, opened, point, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Headroom won, and regret"
MOST = 16
"""The most systems that are drawn; those with the smallest gains are left out."""


@dataclass(frozen=True, slots=True)
class Won:
    """What systems won of a pool's headroom.

    Attributes:
        best: the best worker alone, chosen on these same questions.
        best_accuracy: its accuracy.
        oracle: what bounds the scale, in words.
        room: the oracle's gain over the best worker.
        gains: each system's gain over the best worker, on the questions that both decided.
        regrets: what each system lacks to the oracle.
    """

    best: str
    best_accuracy: Estimate
    oracle: str
    room: Estimate
    gains: Mapping[str, Estimate]
    regrets: Mapping[str, Estimate]


def plot(material: Material) -> Figure:
    """Draw it; in words where there is nothing to compare with, or no headroom."""
    found = measure(material)
    if isinstance(found, str):
        return in_words(TITLE, found)
    room, gains, ours = found.room, found.gains, material.ours
    systems = sorted(gains, key=lambda name: -gains[name].value)
    shown = systems[:MOST]
    if ours in systems and ours not in shown:
        shown[-1] = ours
    named = labels(name.removeprefix(ALONE) for name in shown)
    values, places = [gains[name].value for name in shown], range(len(shown))
    with styled():
        figure, (panel,) = opened(0.62 + 0.19 * len(shown))
        missing = [max(0.0, room.value - value) for value in values]
        panel.barh(places, missing, left=values, height=0.66, color=FAINT, label="regret")
        gained, lost = [max(0.0, value) for value in values], [min(0.0, value) for value in values]
        panel.barh(places, gained, height=0.66, color="#0072B2", label="gain")
        if any(lost):
            panel.barh(places, lost, height=0.66, color="#D55E00", hatch="////", edgecolor="white", label="loss")
        for place, name in enumerate(shown):
            point(panel, gains[name], place, {"color": INK, "marker": ""})
        panel.axvline(0.0, color=INK, linewidth=0.8)
        panel.axvline(room.value, color=INK, linewidth=0.8, linestyle=(0, (3, 1.5)), label="upper bound")
        in_rows(panel, [named[name.removeprefix(ALONE)] for name in shown])
        won = [f"{100 * value / room.value:.0f} %" if room.value > 0 else "–" for value in values]
        aside(panel, 27, "won", won)
        aside(panel, 54, "regret", [f"{100 * found.regrets[name].value:.1f}" for name in shown])
        in_percent(panel, "x", "gain over the best worker (points)")
        size, level = spanned(one.problems for one in gains.values()), f"{100 * found.best_accuracy.value:.1f} %"
        said = [
            f"Zero: the best worker alone, {label(found.best)}, {level} right, chosen on these same questions.",
            f"Dashed: {found.oracle}, at {_points(room)}.",
            "" if room.value > 0 else "There is no headroom: no share of it can be won.",
            f"Bars: n = {size} questions that both decided; whiskers: 95 % intervals of the paired difference.",
            "Won: share of the headroom; regret: points below the oracle.",
            f"{label(ours)} regrets {_points(found.regrets[ours])}." if ours is not None and ours in gains else "",
            f"Not shown: {len(systems) - MOST} systems with the smallest gains." if len(systems) > MOST else "",
        ]
        return finish(figure, TITLE, " ".join(filter(None, said)))


def measure(material: Material) -> Won | str:
    """The headroom of a pool and what each system won of it, or why that cannot be said."""
    if not material.records:
        return "No record of an evaluation was given."
    alone = {name: scores for name, records in material.alone.items() if (scores := scores_by_problem(records))}
    if not alone:
        return (
            "No worker alone (a system worker:NAME) has a decided answer: there is nothing to measure a gain against."
        )
    best = max(alone, key=lambda name: accuracy_of(alone[name]).value)
    oracle, bound = _bound(material, alone)
    room = difference_of(bound, alone[best])
    if room is None:
        return f"The best worker, {label(best)}, and {oracle} have no decided question in common."
    judged = [name for name in material.by_system if name not in ORACLES and not name.startswith(ALONE)]
    gains: dict[str, Estimate] = {}
    regrets: dict[str, Estimate] = {}
    for name in judged or [f"{ALONE}{name}" for name in alone if name != best]:
        scores = scores_by_problem(material.by_system[name])
        gain, lack = difference_of(scores, alone[best]), difference_of(bound, scores)
        if gain is not None and lack is not None:
            gains[name], regrets[name] = gain, lack
    if not gains:
        return "No system but the best worker itself has a decided answer, so there is nothing to judge."
    return Won(best, accuracy_of(alone[best]), oracle, room, gains, regrets)


def _bound(material: Material, alone: Mapping[str, Scores]) -> tuple[str, Scores]:
    """What bounds the scale: the true oracle, else the best worker of each question, without luck where that can be."""
    if true := scores_by_problem(material.by_system.get(ORACLE, ())):
        return "the oracle", true
    if corrected := corrected_oracle(alone):
        return "the best worker of each question, chosen on its other repeats", corrected
    return "the best worker of each question in hindsight, luck included", naive_oracle(alone)


def _points(one: Estimate) -> str:
    return f"{100 * one.value:.1f} points [{100 * one.low:.1f}, {100 * one.high:.1f}]"
