"""How the report says its figures, in one way for terminals and pages.

In: estimates, differences. Out: short texts. Shares are percentages, differences percentage points,
entropies bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.evaluation.statistics import Difference, Estimate

NOTHING = "-"
"""Stands for a figure that there is not."""


def percent(one: Estimate | None) -> str:
    """A share.

    >>> percent(Estimate(0.805, 0.744, 0.854, 200))
    '80.5'
    """
    return NOTHING if one is None else f"{100 * one.value:.1f}"


def interval(one: Estimate | None) -> str:
    """The interval of a share."""
    return NOTHING if one is None else f"{100 * one.low:.1f} to {100 * one.high:.1f}"


def share(one: Estimate | None) -> str:
    """A share with its interval."""
    return NOTHING if one is None else f"{percent(one)} % ({interval(one)})"


def number(one: Estimate | None, digits: int = 2, per: int = 1) -> str:
    """A number with its interval, ``per`` times as large; what rests on one alone says nothing of how sure it is."""
    if one is None:
        return NOTHING
    value, low, high = (f"{per * end:.{digits}f}" for end in (one.value, one.low, one.high))
    return f"{value} ({low} to {high})" if one.problems > 1 else value


def points(one: Difference | Estimate | None) -> str:
    """A difference in points."""
    return NOTHING if one is None else signed(one.value)


def span(one: Difference | Estimate | None) -> str:
    """The interval of a difference."""
    return NOTHING if one is None else f"{signed(one.low)} to {signed(one.high)}"


def gain(one: Difference | Estimate | None) -> str:
    """A difference in points with its interval."""
    return f"{points(one)} points ({span(one)})"


def gain_with_interval(lead: Difference | Estimate) -> str:
    """A difference in points, with its interval named."""
    return f"{points(lead)} points (95 % interval {span(lead)})"


def signed(value: float) -> str:
    """A fraction as points with their sign; nothing is not negative.

    >>> signed(0.123), signed(-0.0001)
    ('+12.3', '+0.0')
    """
    return f"{_points(value):+.1f}"


def below(lead: Difference) -> tuple[str, str]:
    """A lead turned around: by how many points it is below, and its interval."""
    return f"{_points(-lead.value):.1f}", f"{_points(-lead.high):.1f} to {_points(-lead.low):.1f}"


def _points(value: float) -> float:
    return round(100 * value, 1) + 0.0  # -0.0 and 0.0 are 0.0


def chance(p: float) -> str:
    """A p-value.

    >>> chance(0.0004), chance(0.031)
    ('<0.001', '0.031')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def largest(shares: Mapping[str, Estimate], most: int = 4) -> str:
    """The largest shares, in whole percent; what is below one percent is left out.

    >>> largest({"a": Estimate(0.25, 0, 1, 9), "b": Estimate(0.745, 0, 1, 9), "c": Estimate(0.005, 0, 1, 9)})
    'b 74, a 25'
    """
    ranked = sorted(shares.items(), key=lambda entry: -entry[1].value)
    return (
        ", ".join(
            f"{name} {100 * one.value:.0f}" for name, one in ranked[:most] if one.value >= 0.01
        )
        or NOTHING
    )


def counted(count: int, one: str, several: str = "") -> str:
    """How many of what.

    >>> counted(1, "question"), counted(2400, "question")
    ('1 question', '2,400 questions')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def about(what: str) -> str:
    """What a plan is said to depend on: the ``kind`` of question, or which ``question`` it is."""
    return "kind of question" if what == "kind" else "question"
