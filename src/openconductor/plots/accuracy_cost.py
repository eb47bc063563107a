# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Accuracy against what a question costs, with the Pareto front (like the paper's Figure 5).

In: the records of all systems. Out: a figure: dollars a question where every price is known, else tokens, else calls,
on a logarithmic axis. Systems that know the answers are bounds: they are drawn, and are never part of the front.
"""

from __future__ import annotations

from collections.abc import Callable

from openconductor.evaluation.records import Record
from openconductor.plots.estimates import accuracy, mean_cost
from openconductor.plots.material import NO_RECORD, ORACLES, Material, labels, spanned
from openconductor.plots.sheet import GREY, Drawn, in_percent, opened, point

MEASURES: dict[str, Callable[[Record], float]] = {
    "US dollars": lambda record: float(record.usage.dollars),
    "tokens": lambda record: float(record.usage.tokens),
    "calls": lambda record: float(record.calls),
}


def accuracy_cost(material: Material) -> Drawn:
    """Draw it; in words where no system was evaluated, nothing was decided, or nothing was used."""
    if not material.records:
        return NO_RECORD
    # A mean over other tasks says nothing: only systems with a decided answer to every task are compared.
    tasks = {record.task for record in material.records if record.correct is not None}
    if not tasks:
        return f"Nothing could be decided: all {len(material.records):,} records are masked (ungraded or failed)."
    compared = {
        name: records
        for name, records in material.by_system.items()
        if tasks <= {record.task for record in records if record.correct is not None}
    }
    right = {name: one for name, records in compared.items() if (one := accuracy(records)) is not None}
    unpriced = any(record.usage.unpriced_calls for records in compared.values() for record in records)
    units = [
        unit
        for unit, of in MEASURES.items()
        if not (unpriced and unit == "US dollars") and all(sum(map(of, records)) > 0 for records in compared.values())
    ]
    unit = units[0] if units else "calls"
    found = {name: mean_cost(compared[name], MEASURES[unit]) for name in right}
    costs = {name: one for name, one in found.items() if one is not None and one.value}
    if not costs:
        return "No system used a dollar, a token or a call: there is no cost to hold accuracy against."
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, (panel,) = opened(2.6)
    # The front: none is at least as right for less, or more often right for as much.
    xs, ys = list[float](), list[float]()
    for cost, less in sorted((costs[name].value, -right[name].value) for name in costs if name not in ORACLES):
        if not ys or -less > ys[-1]:
            xs.append(cost)
            ys.append(-less)
    if xs:
        xs.append(max(one.high for one in costs.values()))
        panel.plot(xs, [*ys, ys[-1]], drawstyle="steps-post", color=GREY, linewidth=1.0, label="Pareto front")
    written = labels(material.by_system)
    for name in sorted(costs, key=lambda name: -right[name].value):
        point(panel, costs[name], right[name], material.look_of(name), written[name])
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,), numticks=7))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(f"{unit} a question")
    in_percent(panel, "y", "right (%)")
    masked, size = sum(one.masked for one in right.values()), spanned(one.problems for one in right.values())
    left = ", ".join(written[name] for name in written if name not in costs)
    known = ", ".join(name for name in ORACLES if name in costs)
    why = "not every price is known" if unpriced else "some cost none, and the axis has no zero"
    said = [
        f"n = {size} questions a system, {masked:,} records masked and left out of the accuracy, not of the cost.",
        "Bars: 95 % intervals. Filled: workers alone; star: the Conductor; hollow: other systems.",
        f"Not in the front, for the answers are known there: {known}." if known else "",
        "" if unit == "US dollars" else f"Not in dollars: {why}.",
        f"Not drawn, for lack of {unit} or of a decided answer to some task: {left}." if left else "",
    ]
    return figure, " ".join(filter(None, said))
