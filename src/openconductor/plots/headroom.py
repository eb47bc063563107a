# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""How much of the oracle's headroom each system wins, and what is left: gain over the best single worker, and regret.

In: the records of workers alone, of an oracle (else the best worker of each question in hindsight), and of systems to
judge. Out: a figure.
"""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.evaluation.eval_config import ALONE, ORACLE
from openconductor.evaluation.headroom import corrected_oracle, naive_oracle
from openconductor.evaluation.statistics import Estimate, Scores, scores_by_problem
from openconductor.plots.estimates import accuracy_of, difference_of
from openconductor.plots.material import NO_RECORD, ORACLES, Material, label, labels, spanned
from openconductor.plots.sheet import FAINT, INK, Drawn, aside, in_percent, in_rows, opened, point

MOST = 16
"""The most systems that are drawn; those with the smallest gains are left out."""


def headroom(material: Material) -> Drawn:
    """Draw it; in words where there is nothing to compare with, or no headroom."""
    if not material.records:
        return NO_RECORD
    scores = {name: found for name, records in material.by_system.items() if (found := scores_by_problem(records))}
    levels = {name: one for name in scores if name.startswith(ALONE) and (one := accuracy_of(scores[name]))}
    if not levels:
        return "No worker alone (worker:NAME) has a decided answer: there is nothing to measure a gain against."
    best = max(levels, key=lambda name: levels[name].value)
    oracle, bound = _bound(scores)
    room = difference_of(bound, scores[best])
    if room is None:
        return f"The best worker, {label(best)}, and {oracle} have no decided question in common."
    judged = [name for name in scores if name not in ORACLES and name not in levels]
    gains: dict[str, tuple[Estimate, Estimate]] = {}
    for name in judged or [name for name in levels if name != best]:
        gain, regret = difference_of(scores[name], scores[best]), difference_of(bound, scores[name])
        if gain is not None and regret is not None:
            gains[name] = gain, regret
    if not gains:
        return "No system but the best worker itself has a decided answer, so there is nothing to judge."
    shown = sorted(gains, key=lambda name: -gains[name][0].value)[:MOST]
    if material.ours in gains and material.ours not in shown:
        shown[-1] = material.ours
    values, places = [gains[name][0].value for name in shown], range(len(shown))
    figure, (panel,) = opened(0.62 + 0.19 * len(shown))
    missing = [max(0.0, room.value - value) for value in values]
    panel.barh(places, missing, left=values, height=0.66, color=FAINT, label="regret")
    colours = ["#0072B2" if value >= 0 else "#D55E00" for value in values]
    panel.barh(places, values, height=0.66, color=colours, label="gain")
    for place, name in enumerate(shown):
        point(panel, gains[name][0], place, {"color": INK, "marker": ""})
    panel.axvline(0.0, color=INK, linewidth=0.8)
    panel.axvline(room.value, color=INK, linewidth=0.8, linestyle=(0, (3, 1.5)), label="upper bound")
    in_rows(panel, list(labels(shown).values()))
    aside(panel, 27, "won", [f"{100 * value / room.value:.0f} %" if room.value > 0 else "–" for value in values])
    aside(panel, 54, "regret", [f"{100 * gains[name][1].value:.1f}" for name in shown])
    in_percent(panel, "x", "gain over the best worker (points)")
    size, percent = spanned(one.problems for one, _ in gains.values()), 100 * levels[best].value
    said = [
        f"Zero: the best worker alone, {label(best)}, {percent:.1f} % right, chosen on these same questions.",
        f"Dashed: {oracle}, at {_points(room)}.",
        "" if room.value > 0 else "There is no headroom: no share of it can be won.",
        f"Bars: n = {size} questions that both decided; whiskers: 95 % intervals of the paired difference.",
        "Won: share of the headroom; regret: points below the oracle.",
        f"{label(material.ours)} regrets {_points(gains[material.ours][1])}." if material.ours in gains else "",
        f"Not shown: {len(gains) - MOST} systems with the smallest gains." if len(gains) > MOST else "",
    ]
    return figure, " ".join(filter(None, said))


def _bound(scores: Mapping[str, Scores]) -> tuple[str, Scores]:
    """What bounds the scale: the true oracle, else the best worker of each question, without luck where that can be."""
    if ORACLE in scores:
        return "the oracle", scores[ORACLE]
    alone = {name.removeprefix(ALONE): each for name, each in scores.items() if name.startswith(ALONE)}
    if corrected := corrected_oracle(alone):
        return "the best worker of each question, chosen on its other repeats", corrected
    return "the best worker of each question in hindsight, luck included", naive_oracle(alone)


def _points(one: Estimate) -> str:
    return f"{100 * one.value:.1f} points [{100 * one.low:.1f}, {100 * one.high:.1f}]"
