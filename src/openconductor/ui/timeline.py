"""The times of an episode: a bar for each part, coloured by its cost, the critical path marked.

The critical path is what the answer waited for: from the step of a round that ended last, back to
the step that it saw and that ended last, and so on to the planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.ui.parts import Part, RoundParts

LEVELS = 5
"""The shades of cost: 0 costs nothing, the others are quarters of the most expensive part."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A part's time.

    Attributes:
        part: the part.
        left, width: in per cent of the episode.
        level: the shade of its cost.
        critical: True if the answer waited for it.
        retries: where further attempts began, in per cent of the episode.
    """

    part: Part
    left: float
    width: float
    level: int
    critical: bool
    retries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All bars, round by round, and the seconds that they span."""

    seconds: float
    bars: tuple[Bar, ...]


def draw_timeline(rounds: Sequence[RoundParts], seconds: float = 0.0) -> Timeline:
    """Lay out the times of an episode's rounds.

    Args:
        rounds: the rounds.
        seconds: the wall time of the episode, and the least length of the axis.
    """
    parts = [part for played in rounds for part in played.parts if part.started is not None]
    total = seconds
    for part in parts:
        total = max(total, part.started or 0.0, part.ended or 0.0)
    critical = {key for played in rounds for key in critical_path(played)}
    most = max((part.usage.dollars for part in parts), default=0)
    bars: list[Bar] = []
    for part in parts:
        begun = part.started or 0.0
        ended = total if part.ended is None else part.ended
        level = 0
        if most and part.usage.dollars:
            share = float(part.usage.dollars / most)
            level = min(LEVELS - 1, 1 + int(share * (LEVELS - 1)))
        retries = [attempt.call.started for attempt in part.attempts if attempt.call.attempt > 0]
        bars.append(
            Bar(
                part=part,
                left=_per_cent(begun, total),
                width=_per_cent(ended - begun, total),
                level=level,
                critical=part.key in critical,
                retries=tuple(_per_cent(moment, total) for moment in retries),
            )
        )
    return Timeline(total, tuple(bars))


def critical_path(played: RoundParts) -> list[str]:
    """Return the keys of the parts that a round's end waited for, the last one first."""
    path: list[str] = []
    candidates = list(played.steps)
    while True:
        ended = [part for part in candidates if part.ended is not None]
        if not ended:
            break
        latest = max(ended, key=lambda part: part.ended or 0.0)
        path.append(latest.key)
        candidates = [played.steps[seen] for seen in latest.sees]
    if played.planning is not None:
        path.append(played.planning.key)
    return path


def _per_cent(seconds: float, total: float) -> float:
    if total <= 0:
        return 0.0
    return round(min(100.0, max(0.0, 100 * seconds / total)), 3)
