"""The figures of the report in words, the same for terminals and pages.

Shares are percentages, differences percentage points, entropies bits. An unknown figure is a dash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from openconductor.evaluation.statistics import Difference, Estimate

NOTHING = "-"
"""Stands for an unknown figure."""
# Control characters and lone surrogates, which no HTML may hold.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def percent(share: Estimate | None) -> str:
    """Write a share in percent.

    >>> percent(Estimate(0.805, 0.744, 0.854, 200))
    '80.5'
    """
    if share is None:
        return NOTHING
    return f"{100 * share.value:.1f}"


def interval(share: Estimate | None) -> str:
    """Write the interval of a share."""
    if share is None:
        return NOTHING
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def share(share: Estimate | None) -> str:
    """Write a share with its interval."""
    if share is None:
        return NOTHING
    return f"{percent(share)} % ({interval(share)})"


def number(estimate: Estimate | None, digits: int = 2, per: int = 1) -> str:
    """Write a number, ``per`` times as large; of several questions with its interval."""
    if estimate is None:
        return NOTHING
    value = f"{per * estimate.value:.{digits}f}"
    if estimate.problems == 1:
        return value
    return f"{value} ({per * estimate.low:.{digits}f} to {per * estimate.high:.{digits}f})"


def points(lead: Difference | Estimate | None) -> str:
    """Write a difference in points."""
    return NOTHING if lead is None else signed(lead.value)


def span(lead: Difference | Estimate | None) -> str:
    """Write the interval of a difference."""
    if lead is None:
        return NOTHING
    return f"{signed(lead.low)} to {signed(lead.high)}"


def gain(lead: Difference | Estimate | None) -> str:
    """Write a difference in points with its interval."""
    return f"{points(lead)} points ({span(lead)})"


def gain_with_interval(lead: Difference | Estimate) -> str:
    """Write a difference in points, with its interval named."""
    return f"{points(lead)} points (95 % interval {span(lead)})"


def signed(value: float) -> str:
    """Write a fraction as points with their sign; zero is not negative.

    >>> signed(0.123), signed(-0.0001)
    ('+12.3', '+0.0')
    """
    return f"{_rounded(value):+.1f}"


def below(lead: Difference) -> tuple[str, str]:
    """Write a lead turned around: the points below, and their interval."""
    low = _rounded(-lead.high)
    high = _rounded(-lead.low)
    return f"{_rounded(-lead.value):.1f}", f"{low:.1f} to {high:.1f}"


def _rounded(value: float) -> float:
    return round(100 * value, 1) + 0.0  # -0.0 and 0.0 are 0.0


def three_digits(value: float | None) -> str:
    """Write a number with three significant digits.

    >>> [three_digits(value) for value in (None, 0.000012345, 0.0, 3.6499, 123.4, 123456.7)]
    ['-', '0.0000123', '0', '3.65', '123', '123,457']
    """
    if value is None:
        return NOTHING
    if not value:
        return "0"
    _, _, exponent = f"{value:e}".partition("e")
    digits = max(0, 2 - int(exponent))
    return f"{value:,.{digits}f}"


def thousand(dollars: float | None) -> str:
    """Write the dollars of a question as those of a thousand questions."""
    return three_digits(None if dollars is None else 1000 * dollars)


def chance(p: float) -> str:
    """Write a p-value.

    >>> chance(0.0004), chance(0.031)
    ('<0.001', '0.031')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def largest(shares: Mapping[str, Estimate], most: int = 4) -> str:
    """Write the largest shares in whole percent, without those below one percent.

    >>> largest({"a": Estimate(0.25, 0, 1, 9), "b": Estimate(0.745, 0, 1, 9)})
    'b 74, a 25'
    """
    ranked = sorted(shares, key=lambda name: -shares[name].value)
    texts: list[str] = []
    for name in ranked[:most]:
        value = shares[name].value
        if value >= 0.01:
            texts.append(f"{name} {100 * value:.0f}")
    return ", ".join(texts) or NOTHING


def counted(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "question"), counted(2400, "question")
    ('1 question', '2,400 questions')
    """
    if count != 1:
        noun += "s"
    return f"{count:,} {noun}"


def about(what: str) -> str:
    """Name what a plan depends on: the ``kind`` of question, or which ``question`` it is."""
    return "kind of question" if what == "kind" else "question"
