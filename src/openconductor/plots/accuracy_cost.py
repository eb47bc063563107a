# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Accuracy against what a question costs, with the Pareto front (like the paper's Figure 5).

In: the records of all systems. Out: a figure: dollars a question where every price is known, else
tokens, else calls, on a logarithmic axis. Systems that know the answers are bounds: they are drawn,
and are never part of the front.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from openconductor.evaluation.eval_config import BOUNDS, GROUPS, UNTRAINED, group_of
from openconductor.evaluation.records import Record
from openconductor.plots.estimates import accuracy, mean_cost
from openconductor.plots.material import NO_RECORD, Material, labels, spanned
from openconductor.plots.sheet import GREY, Drawn, Look, in_percent, opened, point

DOLLARS = "US dollars a thousand questions"
MEASURES: dict[str, Callable[[Record], float]] = {
    DOLLARS: lambda record: 1000 * float(record.usage.dollars),
    "tokens a question": lambda record: float(record.usage.tokens),
    "calls a question": lambda record: float(record.calls),
}


FOLDED: dict[str, Look] = {
    GROUPS[2]: {"color": GREY, "marker": ".", "markersize": 4.0, "zorder": 2},
    GROUPS[4]: {"color": GREY, "marker": "x", "markersize": 4.0, "zorder": 2},
}
"""The groups whose systems have one look and one line of the legend: workers alone, and ablations."""
NEAR = (0.06, 0.025)
"""How near two markers are that lie on each other: a factor of costs (as a power of ten), and a share."""


def accuracy_cost(material: Material) -> Drawn:
    """Draw it; in words where no system was evaluated, nothing was decided, or nothing was used."""
    if not material.records:
        return NO_RECORD
    # A mean over other tasks says nothing: only systems with a decided answer to every task are
    # compared.
    tasks = {record.task for record in material.records if record.correct is not None}
    if not tasks:
        return f"Nothing could be decided: all {len(material.records):,} records are masked (ungraded or failed)."
    compared = {
        name: records
        for name, records in material.by_system.items()
        if tasks <= {record.task for record in records if record.correct is not None}
    }
    right = {
        name: one for name, records in compared.items() if (one := accuracy(records)) is not None
    }
    unpriced = any(
        record.usage.unpriced_calls for records in compared.values() for record in records
    )
    units = [
        unit
        for unit, of in MEASURES.items()
        if not (unpriced and unit == DOLLARS)
        and any(sum(map(of, records)) > 0 for records in compared.values())
    ]
    unit = units[0] if units else "calls a question"
    found = {name: mean_cost(compared[name], MEASURES[unit]) for name in right}
    costs = {name: one for name, one in found.items() if one is not None and one.value}
    if not costs:
        return (
            "No system used a dollar, a token or a call: there is no cost to hold accuracy against."
        )
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, (panel,) = opened(2.6)
    groups = {name: "" if name == material.ours else group_of(name) for name in costs}
    # The front: none is at least as right for less, or more often right for as much.
    xs, ys = list[float](), list[float]()
    rivals = [name for name, group in groups.items() if group not in GROUPS[3:]]
    for cost, less in sorted((costs[name].value, -right[name].value) for name in rivals):
        if not ys or -less > ys[-1]:
            xs.append(cost)
            ys.append(-less)
    if xs:
        xs.append(max(one.high for one in costs.values()))
        panel.plot(
            xs,
            [*ys, ys[-1]],
            drawstyle="steps-post",
            color=GREY,
            linewidth=1.0,
            label="Pareto front",
        )
    written, hidden, drawn = labels(material.by_system), list[str](), list[tuple[float, float]]()
    many = Counter(groups.values())
    for name in sorted(
        costs,
        key=lambda one: (
            groups[one] in FOLDED,
            groups[one] != "",
            one != UNTRAINED,
            -right[one].value,
        ),
    ):
        place, look = (math.log10(costs[name].value), right[name].value), FOLDED.get(groups[name])
        if groups[name] == GROUPS[3]:
            own = material.look_of(name)["color"]
            panel.axhline(place[1], color=own, linestyle=(0, (1, 1)), label=written[name], zorder=1)
        elif any(
            all(abs(a - b) < near for a, b, near in zip(place, one, NEAR, strict=True))
            for one in drawn
        ):
            hidden.append(written[name])
        else:
            said = (
                written[name] if look is None else f"{groups[name].lower()} ({many[groups[name]]})"
            )
            point(panel, costs[name], right[name], look or material.look_of(name), said)
            drawn.append(place)
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,), numticks=7)
    )
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(unit)
    in_percent(panel, "y", "right (%)")
    masked, size = (
        sum(one.masked for one in right.values()),
        spanned(one.problems for one in right.values()),
    )
    left = ", ".join(written[name] for name in written if name not in costs)
    known = ", ".join(written[name] for name in BOUNDS if name in costs and name != material.ours)
    why = "not every price is known" if unpriced else "nothing costs any"
    said = [
        f"n = {size} questions a system, {masked:,} records masked and left out of the accuracy, not of the cost.",
        "Bars: 95 % intervals. Star: the system reported on; dots: workers alone; crosses: its plans, changed.",
        "The front is without these." if many[GROUPS[4]] else "",
        f"Lines, for they know the answers or the workers: {known}." if known else "",
        f"Not drawn, for they would lie on another marker: {', '.join(hidden)}." if hidden else "",
        "" if unit == DOLLARS else f"Not in dollars: {why}.",
        f"Not drawn, for lack of {unit.split(' a ')[0]} or of a decided answer to some task: {left}."
        if left
        else "",
    ]
    return figure, " ".join(filter(None, said))
