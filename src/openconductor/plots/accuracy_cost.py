# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Accuracy against the cost of a question, with the Pareto front (like the paper's Figure 5).

Cost is dollars where every price is known, else tokens, else calls, on a logarithmic axis. Systems
that know the answers are bounds: they are drawn, and are never part of the front.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from openconductor.evaluation.eval_config import BOUNDS, GROUPS, UNTRAINED, group_of
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import Estimate
from openconductor.plots.estimates import accuracy, mean_cost
from openconductor.plots.material import NO_RECORD, Material, labels, spanned
from openconductor.plots.sheet import DOTTED, GREY, Drawn, Look, in_percent, opened, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOLLARS = "US dollars a thousand questions"
MEASURES: dict[str, Callable[[Record], float]] = {
    DOLLARS: lambda record: 1000 * float(record.usage.dollars),
    "tokens a question": lambda record: float(record.usage.tokens),
    "calls a question": lambda record: float(record.calls),
}
_, _, WORKERS_ALONE, GROUP_OF_BOUNDS, ABLATIONS = GROUPS
FOLDED: dict[str, Look] = {
    WORKERS_ALONE: {"color": GREY, "marker": ".", "markersize": 4.0, "zorder": 2},
    ABLATIONS: {"color": GREY, "marker": "x", "markersize": 4.0, "zorder": 2},
}
"""The groups whose systems have one look and one line of the legend."""
NEAR_COST, NEAR_SHARE = 0.06, 0.025
"""The distances within which two markers lie on each other: powers of ten of cost, and shares."""


class CostPlace(NamedTuple):
    """A system on the figure; the group of ours is ""."""

    name: str
    group: str
    right: Estimate
    cost: Estimate


class CostPlane(NamedTuple):
    """The systems that can be compared.

    Attributes:
        unit: what cost is counted in.
        decided: the systems with a decided answer, in the order in which they are drawn.
        unpriced: True if not every price is known.
    """

    unit: str
    decided: list[CostPlace]
    unpriced: bool

    @property
    def places(self) -> list[CostPlace]:
        """The systems with a cost."""
        return [place for place in self.decided if place.cost.value]

    @property
    def front(self) -> list[CostPlace]:
        """The systems that no other one beats at the same cost or less, the cheapest first."""
        rivals = [place for place in self.places if place.group not in (GROUP_OF_BOUNDS, ABLATIONS)]
        front: list[CostPlace] = []
        for place in sorted(rivals, key=lambda place: (place.cost.value, -place.right.value)):
            if not front or place.right.value > front[-1].right.value:
                front.append(place)
        return front


def find_plane(material: Material) -> CostPlane | str:
    """Place the systems of an evaluation; in words if there is nothing to place."""
    if not material.records:
        return NO_RECORD
    tasks = _decided_tasks(material.records)
    if not tasks:
        return (
            f"Nothing could be decided: all {len(material.records):,} records are masked "
            "(ungraded or failed)."
        )
    # A mean over other tasks says nothing, so only systems that were decided on all are compared.
    compared = {
        name: records
        for name, records in material.by_system.items()
        if tasks <= _decided_tasks(records)
    }
    used = [record for records in compared.values() for record in records]
    unpriced = any(record.usage.unpriced_calls for record in used)
    unit = _choose_unit(used, unpriced=unpriced)
    plane = CostPlane(unit, _find_places(material, compared, MEASURES[unit]), unpriced)
    if not plane.places:
        return (
            "No system used a dollar, a token or a call: there is no cost to hold accuracy against."
        )
    return plane


def accuracy_cost(material: Material) -> Drawn:
    """Draw it; in words if nothing was evaluated, nothing was decided, or nothing was used."""
    plane = find_plane(material)
    if isinstance(plane, str):
        return plane
    places = plane.places
    figure, (panel,) = opened(2.6)
    _draw_front(panel, plane)
    hidden = _draw_places(panel, material, places)
    _write_axes(panel, plane.unit)
    size = spanned(place.right.problems for place in plane.decided)
    masked = sum(place.right.masked for place in plane.decided)
    caption = (
        f"n = {size} questions a system, {masked:,} records masked and left out of the accuracy, "
        "not of the cost. Bars: 95 % intervals. Star: the system reported on; dots: workers alone; "
        "crosses: its plans, changed."
    )
    if any(place.group == ABLATIONS for place in places):
        caption += " The front is without these."
    if plane.unit != DOLLARS:
        why = "not every price is known" if plane.unpriced else "nothing costs any"
        caption += f" Not in dollars: {why}."
    return figure, caption + _name_others(material, places, hidden, plane.unit)


def _decided_tasks(records: Sequence[Record]) -> set[str]:
    return {record.task for record in records if record.correct is not None}


def _choose_unit(records: Sequence[Record], *, unpriced: bool) -> str:
    """Return the first unit that is known and used."""
    for unit, measure in MEASURES.items():
        if unit == DOLLARS and unpriced:
            continue
        if any(measure(record) > 0 for record in records):
            return unit
    return "calls a question"


def _find_places(
    material: Material,
    compared: Mapping[str, Sequence[Record]],
    measure: Callable[[Record], float],
) -> list[CostPlace]:
    """Return the systems with a decided answer, in the order in which they are drawn."""
    places: list[CostPlace] = []
    for name, records in compared.items():
        right, cost = accuracy(records), mean_cost(records, measure)
        if right is not None and cost is not None:
            group = "" if name == material.ours else group_of(name)
            places.append(CostPlace(name, group, right, cost))

    def rank(place: CostPlace) -> tuple[bool, bool, bool, float]:
        return (
            place.group in FOLDED,
            place.group != "",
            place.name != UNTRAINED,
            -place.right.value,
        )

    return sorted(places, key=rank)


def _draw_front(panel: Axes, plane: CostPlane) -> None:
    """Draw the systems that no other one beats at the same cost or less."""
    front = plane.front
    if front:
        costs = [place.cost.value for place in front]
        shares = [place.right.value for place in front]
        costs.append(max(place.cost.high for place in plane.places))
        shares.append(shares[-1])
        look: Look = {"drawstyle": "steps-post", "color": GREY, "linewidth": 1.0}
        panel.plot(costs, shares, label="Pareto front", **look)


def _draw_places(panel: Axes, material: Material, places: Sequence[CostPlace]) -> list[str]:
    """Draw the systems; return the labels of those that would lie on another marker."""
    written = labels(material.by_system)
    sizes = Counter(place.group for place in places)
    hidden: list[str] = []
    drawn: list[CostPlace] = []
    for place in places:
        name, look = written[place.name], material.look_of(place.name)
        if place.group == GROUP_OF_BOUNDS:
            line: Look = {"color": look["color"], "linestyle": DOTTED, "zorder": 1}
            panel.axhline(place.right.value, label=name, **line)
        elif any(_is_near(place, other) for other in drawn):
            hidden.append(name)
        else:
            if place.group in FOLDED:
                look = FOLDED[place.group]
                name = f"{place.group.lower()} ({sizes[place.group]})"
            point(panel, place.cost, place.right, look, name)
            drawn.append(place)
    return hidden


def _is_near(place: CostPlace, other: CostPlace) -> bool:
    """Return True if two markers lie on each other."""
    distance = abs(math.log10(place.cost.value / other.cost.value))
    return distance < NEAR_COST and abs(place.right.value - other.right.value) < NEAR_SHARE


def _write_axes(panel: Axes, unit: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_xscale("log")
    low, high = panel.get_xlim()
    steps = (1, 2, 5) if high < 40 * low else (1,)
    panel.xaxis.set_major_locator(LogLocator(subs=steps, numticks=7))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(unit)
    in_percent(panel, "y", "right (%)")


def _name_others(
    material: Material, places: Sequence[CostPlace], hidden: Sequence[str], unit: str
) -> str:
    """Name in the caption the systems that are lines, are hidden, or have no place."""
    written = labels(material.by_system)
    group_of_place = {place.name: place.group for place in places}
    bounds = [written[name] for name in BOUNDS if group_of_place.get(name) == GROUP_OF_BOUNDS]
    left_out = [text for name, text in written.items() if name not in group_of_place]
    text = ""
    if bounds:
        text += f" Lines, for they know the answers or the workers: {', '.join(bounds)}."
    if hidden:
        text += f" Not drawn, for they would lie on another marker: {', '.join(hidden)}."
    if left_out:
        lack = unit.partition(" a ")[0]
        names = ", ".join(left_out)
        text += f" Not drawn, for lack of {lack} or of a decided answer to some task: {names}."
    return text
