"""The first line of a report, in plain words: how often it is right, for what price, how fast."""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.evaluation.eval_config import HINDSIGHT
from openconductor.evaluation.records import MASKED
from openconductor.evaluation.tables import Cost
from openconductor.report.orchestration import Orchestration
from openconductor.report.sections import is_much_masked
from openconductor.report.verdict import Missing
from openconductor.report.words import thousand, three_digits

SAME = 0.05
"""Prices that differ by less than this share are called the same."""
VOTE = "consensus:"
ALL = "the questions"


def headline(figures: Orchestration, costs: Mapping[str, Cost]) -> str:
    """Return right answers, dollars and seconds of the system, beside the best worker's."""
    system, best = figures.system, figures.best_single
    if figures.accuracy is None:
        return f"No answer of {system} could be decided."
    share = f"{100 * figures.accuracy.value:.0f} %"
    right = f"{system} is right on {share} of {_say_questions(figures, system)}"
    ours = costs.get(system, Cost())
    if best is None or best.accuracy is None:
        price, seconds = thousand(ours.dollars), three_digits(ours.seconds)
        return (
            f"{right}, for ${price} per 1,000 questions, in {seconds} seconds each; "
            "no worker was asked alone, so there is nothing to compare with."
        )
    theirs = costs.get(best.system, Cost())
    price = _compare_prices(ours.dollars, theirs.dollars)
    share = f"{100 * best.accuracy.value:.0f} %"
    questions = _say_questions(figures, best.system)
    if questions != ALL:
        share += f" of {questions}"
    seconds = f"{three_digits(ours.seconds)} instead of {three_digits(theirs.seconds)} seconds"
    alone = f"{share} ({best.name}, the best worker alone)"
    return f"{right} instead of {alone}, {price}, in {seconds} a question."


def _say_questions(figures: Orchestration, system: str) -> str:
    """Name the questions of which a share is right; many that could not be decided are said."""
    counts = figures.counts.get(system)
    if not is_much_masked(counts):
        return ALL
    assert counts is not None
    decided = counts["records"] - sum(counts[status] for status in MASKED)
    return f"the {decided} decided answers (of {counts['records']})"


def _compare_prices(ours: float | None, theirs: float | None) -> str:
    if ours is None or theirs is None:
        return "at an unknown price (the pool file lacks prices)"
    if not ours and not theirs:
        return "both at no price per call"
    amounts = f"${thousand(ours)} instead of ${thousand(theirs)} per 1,000 questions"
    if not theirs:
        return f"for {amounts}"
    factor = ours / theirs
    if abs(factor - 1) < SAME:
        return f"for about the same price ({amounts})"
    return f"for {three_digits(factor)} times the price ({amounts})"


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


def say_missing(figures: Orchestration, missing: Missing, costs: Mapping[str, Cost]) -> str:
    """Return in a sentence what an undecided verdict lacks, and about what it would cost."""
    lacks: list[str] = []
    if missing.answers:
        lacks.append("the answers that failed or are not there")
    if missing.questions > figures.questions:
        lacks.append(
            f"about {missing.questions:,} questions in all ({figures.questions:,} were asked)"
        )
    if missing.systems:
        lacks.append(f"the answers of {', '.join(missing.systems)}")
    if missing.replays:
        lacks.append("replays of its plans with a part taken away")
    if not lacks:
        return "Missing for a verdict: what no further call can give, as its reasons say."
    text = f"Missing for a verdict: {' and '.join(lacks)}"
    dollars = _estimate(figures, missing, costs)
    if dollars is not None:
        text += f", for about ${three_digits(dollars)}"
    return f"{text}."


def _estimate(figures: Orchestration, missing: Missing, costs: Mapping[str, Cost]) -> float | None:
    """Return about what it costs to ask what is missing; None: that is not known."""
    added = max(0, missing.questions - figures.questions)
    total = 0.0
    for system, cost in costs.items():
        if cost.dollars is None:
            return None
        if system != HINDSIGHT:
            total += cost.dollars * added
    for system in missing.systems:
        if not system.startswith(VOTE):  # a vote is chosen to cost what the system costs
            return None
        total += (costs[figures.system].dollars or 0.0) * max(missing.questions, figures.questions)
    return None if missing.replays or missing.answers else total
