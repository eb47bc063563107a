# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Accuracy against what a question costs, with the Pareto front (like the paper's Figure 5).

In: the records of all systems. Out: a figure: dollars a question where every price is known, else tokens, else calls,
on a logarithmic axis. Systems that know the answers are bounds: they are drawn, and are never part of the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
    compared = {
        name: records
        for name, records in material.by_system.items()
        if tasks and tasks <= {record.task for record in records if record.correct is not None}
    }
    right = {name: one for name, records in compared.items() if (one := accuracy(records)) is not None}
    if not right:
        count = len(material.records)
        return f"Nothing could be decided: all {count:,} records are masked (ungraded or failed)."
    unit, why = _unit(compared)
    found = {name: mean_cost(compared[name], MEASURES[unit]) for name in right}
    costs = {name: one for name, one in found.items() if one is not None and one.value}
    if not costs:
        return "No system used a dollar, a token or a call: there is no cost to hold accuracy against."
    written = labels(costs)
    figure, (panel,) = opened(2.5)
    # The front: none is at least as right for less, or more often right for as much.
    xs, ys = list[float](), list[float]()
    for cost, less in sorted((costs[name].value, -right[name].value) for name in costs if name not in ORACLES):
        if not ys or -less > ys[-1]:
            xs.append(cost)
            ys.append(-less)
    if xs:
        xs.append(max(one.high for one in costs.values()))
        panel.plot(xs, [*ys, ys[-1]], drawstyle="steps-post", color=GREY, linewidth=1.0, label="Pareto front")
    for name in sorted(costs, key=lambda name: -right[name].value):
        point(panel, costs[name], right[name], material.look_of(name), written[name])
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,), numticks=7))
    panel.xaxis.set_major_formatter(FuncFormatter(_written_out))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(f"{unit} a question")
    in_percent(panel, "y", "right (%)")
    masked, size = sum(one.masked for one in right.values()), spanned(one.problems for one in right.values())
    said = [
        f"n = {size} questions a system, {masked:,} records masked and left out of the accuracy, not of the cost.",
        "Bars: 95 % intervals. Filled: workers alone; star: the Conductor; hollow: other systems.",
        _listed("Not in the front, for the answers are known there", (one for one in ORACLES if one in costs)),
        why,
        _listed(f"Without {unit}, so not drawn", (name for name in right if name not in costs)),
        _listed(
            "Without a decided answer to some task, so not drawn",
            (name for name in material.by_system if name not in compared),
        ),
    ]
    return figure, " ".join(filter(None, said))


def _written_out(value: float, _: int | None = None) -> str:
    """A number without an exponent.

    >>> [_written_out(value) for value in (0.00002, 0.5, 20, 5e4)]
    ['0.00002', '0.5', '20', '50,000']
    """
    return f"{value:,.0f}" if value >= 1 else f"{value:.12f}".rstrip("0")


def _unit(systems: Mapping[str, Sequence[Record]]) -> tuple[str, str]:
    """What cost is counted in, and why it is not dollars; "" where it is."""
    unpriced = [name for name, records in systems.items() if any(one.usage.unpriced_calls for one in records)]
    why = _listed("Not in dollars: not every price is known of", unpriced).replace("of:", "of")
    for unit, of in MEASURES.items():
        free = [name for name, records in systems.items() if sum(map(of, records)) <= 0]
        if not free and not (unpriced and unit == "US dollars"):
            return unit, why
        why = why or _listed("Not in dollars, for the axis has no zero and some cost none", free)
    return "calls", why


def _listed(what: str, systems: Iterable[str]) -> str:
    """A sentence that names systems, of many the first four; "" where there are none."""
    names = list(labels(systems).values())
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{what}: {', '.join(names[:4])}{more}." if names else ""
