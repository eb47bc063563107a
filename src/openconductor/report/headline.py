"""The first line of a report, in plain words: how often it is right, for what price, how fast."""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.evaluation.tables import Cost
from openconductor.report.orchestration import Orchestration
from openconductor.report.words import thousand, three_digits

SAME = 0.05
"""Prices and times that differ by less than this share are called the same."""


def headline(figures: Orchestration, costs: Mapping[str, Cost]) -> str:
    """Return right answers, dollars and seconds of the system, beside the best worker's."""
    system, best = figures.system, figures.best_single
    if figures.accuracy is None:
        return f"No answer of {system} could be decided."
    right = f"{system} is right on {100 * figures.accuracy.value:.0f} % of the questions"
    ours = costs.get(system, Cost())
    if best is None or best.accuracy is None:
        price, seconds = thousand(ours.dollars), three_digits(ours.seconds)
        return (
            f"{right}, for ${price} per 1,000 questions, in {seconds} seconds each; "
            "no worker was asked alone, so there is nothing to compare with."
        )
    theirs = costs.get(best.system, Cost())
    price = _compare_prices(ours.dollars, theirs.dollars)
    return (
        f"{right} instead of {100 * best.accuracy.value:.0f} % ({best.name}, the best worker "
        f"alone), {price}, in {three_digits(ours.seconds)} instead of "
        f"{three_digits(theirs.seconds)} seconds a question."
    )


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
