"""Accuracy against what a question costs, with the Pareto front (like the paper's Figure 5).

In: the records of all systems. Out: a Figure: dollars a question where every price is known, else tokens, else calls,
on a logarithmic axis. Systems that know the answers are bounds: they are drawn, and stand outside of the front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.plots import marks
from openconductor.plots.estimates import Cost, accuracy, mean_cost
from openconductor.plots.looks import GREY, Look
from openconductor.plots.material import ALONE, ORACLES, Material
from openconductor.plots.sheet import Key, Sheet, in_words, styled
from openconductor.plots.words import labels, listed, spanned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Accuracy against cost"


@dataclass(frozen=True, slots=True)
class Measure:
    """One way to count what a question costs."""

    name: str
    of: Callable[[Record], float]


MEASURES = (
    Measure("US dollars", lambda record: float(record.usage.dollars)),
    Measure("tokens", lambda record: float(record.usage.tokens)),
    Measure("calls", lambda record: float(record.calls)),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a system stands."""

    accuracy: Estimate
    cost: Cost


def plot(results: Material) -> Figure:
    """Draw it; in words where no system was evaluated, nothing was decided, or nothing was used."""
    if not results.records:
        return in_words(TITLE, "No record of an evaluation was given.")
    compared, left_out = _comparable(results)
    accuracies = {name: estimate for name, records in compared.items() if (estimate := accuracy(records)) is not None}
    if not accuracies:
        return in_words(
            TITLE, f"Nothing could be decided: all {len(results.records):,} records are masked (ungraded or failed)."
        )
    measure, why = _measure({name: compared[name] for name in accuracies})
    places: dict[str, Place] = {}
    for name, estimate in accuracies.items():
        cost = mean_cost(compared[name], measure.of)
        if cost is not None and cost.value > 0:
            places[name] = Place(estimate, cost)
    if not places:
        return in_words(TITLE, "No system used a dollar, a token or a call: there is no cost to hold accuracy against.")
    idle = [name for name in accuracies if name not in places]
    with styled():
        sheet = Sheet(TITLE, height=2.5)
        (panel,) = sheet.panels
        front = pareto_front({name: place for name, place in places.items() if name not in ORACLES})
        keys = _draw(panel, results, places, front)
        marks.logarithmic(panel, "x", f"{measure.name} a question")
        marks.percent(panel, "y", "right (%)")
        panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]) if panel.get_ylim()[0] < 0.12 else None)
        return sheet.finish(_caption(accuracies, why, left_out, idle), keys)


def pareto_front(places: Mapping[str, Place]) -> list[str]:
    """The systems that no other beats: none is at least as right for less, or more often right for as much.

    Returns:
        Their names, from the cheapest to the dearest.
    """
    front: list[str] = []
    for name in sorted(places, key=lambda name: (places[name].cost.value, -places[name].accuracy.value)):
        if not front or places[name].accuracy.value > places[front[-1]].accuracy.value:
            front.append(name)
    return front


def _comparable(results: Material) -> tuple[dict[str, tuple[Record, ...]], list[str]]:
    """The systems that were asked every task, and the names of the others: a mean over other tasks says nothing."""
    tasks = {record.task for record in results.records if record.correct is not None}
    compared = {
        name: records
        for name, records in results.by_system.items()
        if tasks <= {record.task for record in records if record.correct is not None}
    }
    return compared, [name for name in results.by_system if name not in compared]


def _measure(systems: Mapping[str, Sequence[Record]]) -> tuple[Measure, str]:
    """What to count, and why it is not dollars; "" where it is."""
    unpriced = [name for name, records in systems.items() if any(one.usage.unpriced_calls for one in records)]
    if unpriced:
        why = f"Not in dollars: not every price is known of {listed(_named(unpriced))}."
    else:
        why = ""
    for measure in MEASURES[1:] if unpriced else MEASURES:
        free = [name for name, records in systems.items() if sum(map(measure.of, records)) <= 0]
        if not free:
            return measure, why
        if not why:
            why = f"Not in dollars: {listed(_named(free))} cost none, and the axis has no zero."
    return MEASURES[-1], why


def _draw(panel: Axes, results: Material, places: Mapping[str, Place], front: Sequence[str]) -> list[Key]:
    """The front as a staircase, each system as a point with both intervals; the legend, the most right first."""
    stairs = [places[name] for name in front]
    dearest = max(place.cost.high for place in places.values())
    xs = [place.cost.value for place in stairs] + [dearest]
    ys = [place.accuracy.value for place in stairs] + [stairs[-1].accuracy.value] if stairs else []
    keys: list[Key] = []
    if stairs:
        marks.stairs(panel, xs, ys, gid="Pareto front")
        keys.append(Key("Pareto front", Look(GREY)))
    label = labels([name.removeprefix(ALONE) for name in places])
    for name in sorted(places, key=lambda name: -places[name].accuracy.value):
        place, one = places[name], results.look_of_system(name)
        marks.point(
            *(panel, place.cost.value, place.accuracy.value, one),
            gid=name,
            along=marks.ends(place.accuracy),
            across=(place.cost.low, place.cost.high),
        )
        keys.append(Key(label[name.removeprefix(ALONE)], one, "point"))
    return keys


def _caption(accuracies: Mapping[str, Estimate], why: str, left_out: Sequence[str], idle: Sequence[str]) -> str:
    masked = sum(estimate.masked for estimate in accuracies.values())
    size = spanned(estimate.problems for estimate in accuracies.values())
    said = [f"n = {size} questions a system, {masked:,} records masked and left out of the accuracy, not of the cost."]
    said.append("Bars: 95 % intervals. Filled: workers alone; star: the Conductor; hollow: other systems.")
    bounds = [name for name in ORACLES if name in accuracies]
    if bounds:
        said.append(f"Not in the front, for the answers are known there: {listed(bounds)}.")
    if why:
        said.append(why)
    if idle:
        said.append(f"Without a single call, so not drawn: {listed(_named(idle))}.")
    if left_out:
        said.append(f"Without a decided answer to some task, so not drawn: {listed(_named(left_out))}.")
    return " ".join(said)


def _named(systems: Sequence[str]) -> list[str]:
    """The systems' labels; a worker alone is called by its name."""
    return list(labels([system.removeprefix(ALONE) for system in systems]).values())
