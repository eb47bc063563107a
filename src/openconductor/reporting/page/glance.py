"""What the page begins with: the verdict in one line, what it rests on, and the figures at a glance.

In: a Verdict, an Orchestration. Out: elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from openconductor.evaluation.headroom import WORKER
from openconductor.evaluation.records import MASKED
from openconductor.evaluation.statistics import Estimate
from openconductor.reporting.orchestration import Level, Orchestration
from openconductor.reporting.page.elements import element
from openconductor.reporting.page.tables import drawn, row, table, ticks
from openconductor.reporting.verdict import Label, Verdict
from openconductor.reporting.words import NOTHING, below, counted, interval, percent

_TONES: dict[Label, str] = {
    "orchestration gain": "good",
    "format gain only": "bad",
    "collapse": "bad",
    "no gain": "bad",
}
"""All others are open."""
ABSENT = "not in this evaluation"


def verdict(one: Verdict) -> Iterator[Element]:
    """The verdict, and under it each question that was asked of the figures."""
    tone = _TONES.get(one.label, "open")
    why = one.line.removeprefix(one.label).removeprefix(":").strip()
    said = [element("strong", one.label), element("span", f" {why}") if why else None]
    yield element("p", *said, class_=f"verdict {tone}", role="note", aria_label="Verdict")
    asked = [
        element("li", element("span", answer, class_=f"answer is-{answer}"), element("span", f"{name}: {reason}"))
        for (name, answer), reason in zip(one.answers.items(), one.reasons, strict=False)
    ]
    if asked:
        yield element("ul", *asked, class_="asked", aria_label="What the verdict rests on")


def undecided(found: Orchestration) -> Element:
    """How much of what was asked could be decided, in one sentence."""
    counts = found.counts.get(found.system, {})
    whole = counts.get("records", 0)
    lost = ", ".join(f"{counts[status]:,} {status}" for status in MASKED if counts.get(status))
    wrong = ", ".join(
        f"{counts[status]:,} {status}" for status in ("unparsed", "invalid", "refused") if counts.get(status)
    )
    said = f"{counted(whole, 'answer')}: {whole - found.masked:,} decided"
    said += f" ({wrong} among the wrong)" if wrong else ""
    return element("p", f"{said}, {found.masked:,} not" + (f" ({lost})." if lost else "."), class_="decided")


def glance(found: Orchestration) -> Iterator[Element]:
    """Validity, accuracy, what that is held against, regret, headroom, entropy: with intervals, shares drawn, too."""
    best = None if found.best_single is None else found.best_single.accuracy
    held = None if best is None else best.value
    rows = [
        _share("valid plans", found.validity, absent=found.no_validity),
        _share("right, of the valid plans", found.given_valid, held, absent="no valid plan was decided"),
        _share(f"right: {found.system}", found.accuracy, held, absent="nothing was decided", class_="ours"),
        _level("best worker alone, chosen on these questions", found.best_single, held, named=True),
        _level("best worker alone, chosen on other questions", found.best_fitted, held, named=True),
        _at_equal_cost(found, held),
        _level("best fixed workflow", found.best_fixed, held),
        _level("random workflows", found.random, held),
        _level("oracle", found.oracle, held, named=True),
        _regret(found),
        _won(found),
        _entropy(found),
    ]
    yield table(
        f"{found.system} at a glance", ["", "value", "95 % interval", ticks("0", "50", "100 %")], rows, titled=True
    )
    said = "Bars are the intervals, strokes the values."
    if held is not None:
        said += " The thin line is the best worker alone, the level to beat."
    yield element("p", said, class_="legend")


def _share(
    name: str, one: Estimate | None, held: float | None = None, *, absent: str, class_: str | None = None
) -> Element:
    if one is None:
        return _without(name, absent)
    return row([name, f"{percent(one)} %", interval(one), drawn(one, held=held)], class_=class_)


def _level(name: str, level: Level | None, held: float | None, *, named: bool = False) -> Element:
    if level is None or level.accuracy is None:
        return _without(name, ABSENT)
    full = f"{name} ({level.system.removeprefix(WORKER)})" if named and level.system != name else name
    return _share(full, level.accuracy, held, absent=ABSENT)


def _at_equal_cost(found: Orchestration, held: float | None) -> Element:
    rival = found.effort
    if rival is None:
        return _without("best worker at equal cost", "costs or workers alone are not known")
    what = "best worker at about equal cost" if rival.equal else "best worker's vote that is nearest in cost"
    name = f"{what} ({rival.name}, {rival.cost:.2f} times in {rival.unit})"
    return _share(name, rival.accuracy, held, absent=ABSENT)


def _regret(found: Orchestration) -> Element:
    name = "regret: points below the oracle"
    lead = None if found.oracle is None else found.oracle.lead
    if lead is None:
        return _without(name, "no oracle was evaluated on these questions")
    return row([name, *below(lead), element("td")])


def _won(found: Orchestration) -> Element:
    name = "share of the oracle's headroom that is won"
    won = found.captured
    if won is None:
        return _without(name, "no headroom, or nothing to measure it by")
    if won.low is None or won.high is None:
        return row([name, f"{100 * won.value:.0f} %", "not bounded", element("td")])
    return row([name, f"{100 * won.value:.0f} %", f"{100 * won.low:.0f} to {100 * won.high:.0f}", element("td")])


def _entropy(found: Orchestration) -> Element:
    name = f"routing entropy, in bits of at most {found.routing.most_bits:.2f}"
    one = found.routing.whole.entropy
    if one is None:
        return _without(name, "no step was planned")
    span = f"{one.low:.2f} to {one.high:.2f}"
    return row([name, f"{one.value:.2f}", span, element("td")])


def _without(name: str, why: str) -> Element:
    """A row of a figure that there is not, and why."""
    return row([name, NOTHING, element("td", why, class_="absent", colspan="2")])
