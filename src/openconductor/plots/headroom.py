"""How much of the oracle's headroom each system wins, and what is left: gain over the best single worker, and regret.

In: the records of workers alone, of an oracle (else the best worker of each question in hindsight), and of systems to
judge. Out: a Figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.selection import Scores, corrected_oracle, naive_oracle
from openconductor.evaluation.specs import ORACLE
from openconductor.evaluation.statistics import Estimate, scores_by_problem
from openconductor.plots import marks
from openconductor.plots.estimates import accuracy_of, difference_of
from openconductor.plots.looks import BLUE, INK, VERMILLION, Look
from openconductor.plots.material import ALONE, ORACLES, Material
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import labels, percentage, signed, spanned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Headroom won, and regret"
MOST = 16
_GAIN, _LOSS, _REGRET = Look(BLUE), Look(VERMILLION, hatch="////"), Look("#DADADA")
_BESIDE = (27, 54)


@dataclass(frozen=True, slots=True)
class Headroom:
    """The scale, and where each system stands on it; all in shares of the questions.

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

    def captured(self, system: str) -> float | None:
        """The share of the headroom that a system won (negative: worse than the best worker); None without any."""
        return self.gains[system].value / self.room.value if self.room.value > 0 else None


def plot(results: Material) -> Figure:
    """Draw it; in words where there is nothing to compare with, or no headroom."""
    found = measure(results)
    if isinstance(found, str):
        return in_words(TITLE, found)
    systems = sorted(found.gains, key=lambda name: -found.gains[name].value)
    shown = systems[:MOST]
    if results.ours in systems and results.ours not in shown:
        shown[-1] = results.ours
    label = labels([name.removeprefix(ALONE) for name in shown], longest=20)
    with styled():
        sheet = Sheet(TITLE, height=0.62 + 0.19 * len(shown))
        (panel,) = sheet.panels
        for place, name in enumerate(shown):
            gain, captured = found.gains[name], found.captured(name)
            marks.gain(panel, place, gain, found.room.value, (_GAIN if gain.value >= 0 else _LOSS, _REGRET), gid=name)
            won = "–" if captured is None else percentage(captured, 0)
            marks.beside(panel, place, (won, signed(100 * found.regrets[name].value)), _BESIDE)
        marks.names(panel, "y", [label[name.removeprefix(ALONE)] for name in shown])
        marks.headings(panel, ("won", "regret"), _BESIDE)
        marks.upright(panel, 0.0, Look(INK), gid="best worker")
        marks.upright(panel, found.room.value, Look(INK, dashes=(3.0, 1.5)), gid="oracle")
        marks.percent(panel, "x", "gain over the best worker (points)")
        keys = [
            Key("gain", _GAIN, "area"),
            Key("loss", _LOSS, "area"),
            Key("regret", _REGRET, "area"),
            Key("upper bound", Look(INK, dashes=(3.0, 1.5))),
        ]
        return sheet.finish(_caption(found, results.ours, len(systems) - len(shown)), keys)


def measure(results: Material) -> Headroom | str:
    """The headroom of a pool and what each system won of it, or why that cannot be said."""
    if not results.records:
        return "No record of an evaluation was given."
    alone = {name: scores for name, records in results.alone.items() if (scores := scores_by_problem(records))}
    if not alone:
        return (
            "No worker alone (a system worker:NAME) has a decided answer: there is nothing to measure a gain against."
        )
    best = max(alone, key=lambda name: accuracy_of(alone[name]).value)
    oracle, bound = _bound(results, alone)
    room = difference_of(bound, alone[best])
    if room is None:
        return f"The best worker, {labels([best])[best]}, and {oracle} have no decided question in common."
    judged = [name for name in results.by_system if name not in ORACLES and not name.startswith(ALONE)]
    judged = judged or [f"{ALONE}{name}" for name in alone if name != best]
    gains: dict[str, Estimate] = {}
    regrets: dict[str, Estimate] = {}
    for name in judged:
        scores = scores_by_problem(results.by_system[name])
        gain, lack = difference_of(scores, alone[best]), difference_of(bound, scores)
        if gain is not None and lack is not None:
            gains[name], regrets[name] = gain, lack
    if not gains:
        return "No system but the best worker itself has a decided answer, so there is nothing to judge."
    return Headroom(best, accuracy_of(alone[best]), oracle, room, gains, regrets)


def _bound(results: Material, alone: Mapping[str, Scores]) -> tuple[str, Scores]:
    """What bounds the scale: the true oracle, else the best worker of each question, without luck where that can be."""
    if true := scores_by_problem(results.by_system.get(ORACLE, ())):
        return "the oracle", true
    if corrected := corrected_oracle(alone):
        return "the best worker of each question, chosen on its other repeats", corrected
    return "the best worker of each question in hindsight, luck included", naive_oracle(alone)


def _caption(found: Headroom, ours: str | None, left_out: int) -> str:
    best, room = found.best_accuracy, found.room
    size = spanned(gain.problems for gain in found.gains.values())
    best_name = labels([found.best])[found.best]
    said = [
        f"Zero: the best worker alone, {best_name}, {percentage(best.value)} right, chosen on these same questions."
    ]
    said.append(f"Dashed: {found.oracle}, at {signed(100 * room.value)} points {_interval(room)}.")
    if room.value <= 0:
        said.append("There is no headroom: no share of it can be won.")
    said.append(f"Bars: n = {size} questions that both decided; whiskers: 95 % intervals of the paired difference.")
    said.append("Won: share of the headroom; regret: points below the oracle.")
    if ours is not None and ours in found.regrets:
        lack = found.regrets[ours]
        said.append(f"{labels([ours])[ours]} regrets {signed(100 * lack.value)} points {_interval(lack)}.")
    if left_out > 0:
        said.append(f"Not shown: {left_out} systems with the smallest gains.")
    return " ".join(said)


def _interval(estimate: Estimate) -> str:
    """An interval in points."""
    return f"[{signed(100 * estimate.low)}, {signed(100 * estimate.high)}]"
