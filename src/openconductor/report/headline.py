"""The first lines of a report, in plain words: what to deploy, for what price, and what is missing.

``headline`` names the system that servers deploy as ``auto`` (``evaluation.choice``), beside the
one that is reported on and the best worker alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from openconductor.evaluation.choice import Choice
from openconductor.evaluation.eval_config import ALONE, HINDSIGHT, WORKERS, read_spec
from openconductor.evaluation.tables import Cost
from openconductor.measures import MOST_MASKED
from openconductor.report.orchestration import Orchestration
from openconductor.report.verdict import Missing
from openconductor.report.words import counted, thousand, three_digits

SAME = 0.05
"""Costs that differ by less than this share are called the same."""
PLAYS = 16
"""An upper estimate of the price of replays, as a multiple of the price of the plans replayed."""
LOOKS = 2
"""An upper estimate of the price of planning again, as a multiple of the price of the plans.

It holds where second rounds are played; without any the multiple is below 1.
"""


# ── what to deploy ────────────────────────────────────────────────────────────────────────────────
def headline(figures: Orchestration, choice: Choice | None, costs: Mapping[str, Cost]) -> list[str]:
    """Say which system to deploy, and in further lines how sure that is and what others cost.

    Args:
        figures: of the system that is reported on.
        choice: the choice of ``auto``; None: no worker was asked alone.
        costs: the cost of a question to each system.
    """
    system = figures.system
    if choice is None:
        known = _say_system(figures, costs)
        return [f"{known}.", "No worker was asked alone, so nothing says what to deploy."]
    chosen = choice.candidates[choice.system]
    if all(candidate.unknown == 1 for candidate in choice.candidates.values()):
        return ["No answer could be decided, so nothing says what to deploy."]
    right = f"right on {100 * chosen.right:.0f} % of the questions"
    lines = [f"Deploy {_name(choice.system, choice)}: {right}, {_say_cost(chosen.cost)}."]
    if not choice.won:
        lines.append(f"Why: {choice.reason}.")
    named = dict.fromkeys((choice.system, choice.cheaper, system, choice.worker))
    named = [name for name in named if name in choice.candidates]
    for name in named[1:]:
        candidate = choice.candidates[name]
        compared = _compare_costs(candidate.cost, chosen.cost)
        text = f"{_name(name, choice)}: right on {100 * candidate.right:.0f} %, {compared}"
        if name == choice.cheaper:
            text += "; more questions would tell whether it is as good"
        lines.append(f"{text}.")
    for name in named:
        unknown = choice.candidates[name].unknown
        if unknown > MOST_MASKED:
            share = f"{100 * unknown:.0f} % of the answers of {name}"
            lines.append(f"{share} are undecided or missing, and count as wrong.")
    return lines


def _say_system(figures: Orchestration, costs: Mapping[str, Cost]) -> str:
    """Say what is known of a system that nothing can be compared with."""
    if figures.accuracy is None:
        return f"No answer of {figures.system} could be decided"
    decided = figures.counts[figures.system]["records"] - figures.masked
    right = f"{100 * figures.accuracy.value:.0f} % of {counted(decided, 'decided answer')}"
    text = f"{figures.system} is right on {right}"
    cost = costs.get(figures.system)
    return text if cost is None else f"{text}, {_say_cost(cost)}"


def _name(system: str, choice: Choice) -> str:
    """Name a system; a worker is called one."""
    if system == choice.worker:
        return f"{system.removeprefix(ALONE)}, the best worker alone"
    if system.startswith(ALONE):
        return f"{system.removeprefix(ALONE)}, a worker alone"
    return system


def _say_cost(cost: Cost) -> str:
    price = "at an unknown price (the pool file lacks prices)"
    if cost.dollars is not None:
        price = f"${thousand(cost.dollars)} per 1,000 questions"
    return f"{price}, {three_digits(cost.seconds)} seconds each"


def _compare_costs(cost: Cost, base: Cost) -> str:
    """Write a cost beside the base: in dollars, or in calls where a price is unknown or nothing."""
    compared = f"${thousand(cost.dollars)} per 1,000 questions"
    if cost.dollars is not None and base.dollars:
        compared = _say_times(cost.dollars / base.dollars, "price")
    elif not cost.dollars and cost.calls and base.calls:
        compared = _say_times(cost.calls / base.calls, "calls")
    return f"for {compared}, {three_digits(cost.seconds)} seconds each"


def _say_times(factor: float, of: str) -> str:
    """Write a factor as a multiple or as a share.

    >>> [_say_times(factor, "price") for factor in (12.4, 3.21, 0.98, 0.081, 0.001)]
    ['12 times the price', '3.2 times the price', 'the same price', '8 % of the price', \
'less than 1 % of the price']
    """
    if abs(factor - 1) < SAME:
        return f"the same {of}"
    if factor >= 10:
        return f"{factor:,.0f} times the {of}"
    if factor > 1:
        return f"{factor:.1f} times the {of}"
    if factor >= 0.01:
        return f"{100 * factor:.0f} % of the {of}"
    return f"less than 1 % of the {of}"


def who_works(figures: Orchestration) -> str:
    """Return who gets the work, and how much of it there is; "": no step was planned."""
    whole = figures.routing.whole
    if not whole.workers:
        return ""
    shares: list[str] = []
    for name in sorted(whole.workers, key=lambda name: -whole.workers[name].value):
        if whole.workers[name].value >= 0.005:
            shares.append(f"{name} {100 * whole.workers[name].value:.0f} %")
    steps = "" if whole.steps is None else f" of its {whole.steps.value:.1f} steps a question"
    return f"Who does the work{steps}: {', '.join(shares)}."


# ── what is missing ───────────────────────────────────────────────────────────────────────────────
class AskingPrice(NamedTuple):
    """The price of asking what is missing, at most; dollars None: a price is unknown."""

    calls: float
    dollars: float | None

    def __str__(self) -> str:
        calls = counted(max(1, round(self.calls)), "call")
        if self.dollars is None:
            return f"at most about {calls}, at an unknown price"
        return f"at most about {calls} and ${three_digits(self.dollars)}"


def say_missing(figures: Orchestration, missing: Missing, sources: Sequence[str]) -> str:
    """Return in a sentence what an undecided verdict lacks.

    Args:
        figures: of the system.
        missing: what it lacks.
        sources: the files or tasks of which all questions were asked; empty: there are more.
    """
    lacks: list[str] = []
    if missing.answers:
        lacks.append("the answers that failed or are not there")
    more = missing.questions - figures.questions
    if more > 0 and sources:
        lacks.append(f"about {counted(more, 'more question')} in {' or '.join(sources)}")
    elif more > 0:
        lacks.append(
            f"about {missing.questions:,} questions in all ({figures.questions:,} were asked)"
        )
    if missing.systems:
        lacks.append(f"the answers of {', '.join(missing.systems)}")
    if missing.replays:
        lacks.append("replays of its plans with a part taken away")
    if missing.planning:
        planner = f"its planner, asked again for {counted(missing.planning, 'question')}"
        if missing == Missing(planning=missing.planning):
            return f"Not asked yet: {planner}."
        lacks.append(planner)
    if not lacks:
        return "Missing for a verdict: what no further call can give, as its reasons say."
    return f"Missing for a verdict: {' and '.join(lacks)}."


def _expected_cost(system: str, own: Cost, costs: Mapping[str, Cost]) -> Cost:
    """Return the likely cost of an answer of a system that was not asked yet.

    A vote costs as much as its worker's answers. Any other system is taken to cost as much as the
    one that is reported on.
    """
    spec = read_spec(system)
    votes = dict(spec.options).get("n")
    alone = costs.get(f"{ALONE}{spec.argument}")
    if spec.kind != "consensus" or not isinstance(votes, int) or alone is None:
        return own
    dollars = None if alone.dollars is None else votes * alone.dollars
    calls = None if alone.calls is None else votes * alone.calls
    return alone._replace(dollars=dollars, calls=calls)


def price_missing(
    figures: Orchestration, missing: Missing, costs: Mapping[str, Cost]
) -> AskingPrice:
    """Estimate what it takes to ask what is missing, by what answers have cost."""
    own = costs.get(figures.system, Cost())
    times: list[tuple[Cost, float]] = []
    added = max(0, missing.questions - figures.questions)
    questions = figures.questions + added
    for system, cost in costs.items():
        if system != HINDSIGHT:
            failed = figures.counts.get(system, {}).get("failed", 0)
            times.append((cost, added * figures.repeats + missing.answers * failed))
    for system in missing.systems:
        rows = len(figures.unasked) if system == WORKERS else 1
        answers = rows * questions * figures.repeats
        times.append((_expected_cost(system, own, costs), answers))
    if missing.replays:
        times.append((own, PLAYS * questions))
    if missing.planning:
        calls = own.calls if figures.rounds > 1 else 1.0
        times.append((own._replace(calls=calls), min(figures.rounds, LOOKS) * missing.planning))
    needed = [(cost, count) for cost, count in times if count]
    calls = sum((cost.calls or 0.0) * count for cost, count in needed)
    if any(cost.dollars is None for cost, _ in needed):
        return AskingPrice(calls, None)
    return AskingPrice(calls, sum((cost.dollars or 0.0) * count for cost, count in needed))
