"""Which plans there were: the first distinct patterns, and how diverse plans are over a training.

In: workflows as they were planned, with the place in the training and whether they were right. Out: patterns in the
order in which they came, and the effective number of strategies and patterns at each place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from openconductor.evaluation.intervals import share_interval
from openconductor.evaluation.statistics import Estimate
from openconductor.evaluation.strategies import Strategy, pattern, strategy
from openconductor.measures import Topology, entropy_bits, topology
from openconductor.types import Workflow

FIRST_PATTERNS = 50
"""How many distinct patterns are looked at, in the order in which they first came."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A workflow that was planned.

    Attributes:
        workflow: the workflow.
        place: when: an iteration of the training, a tenth of it, or 0.
        correct: whether its answer was right; None where that is not known.
        problem: what was asked, so that repeats are told from questions.
    """

    workflow: Workflow
    place: int = 0
    correct: bool | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Workflows of one pattern and strategy.

    Attributes:
        pattern, strategy, topology: what they are.
        example: the first of them.
        first: the place where it came.
        count: how many there are.
        accuracy: the share of right ones, where any was decided (clustered by question).
    """

    pattern: str
    strategy: Strategy
    topology: Topology
    example: Workflow
    first: int
    count: int
    accuracy: Estimate | None


@dataclass(frozen=True, slots=True)
class Diversity:
    """How many kinds of plan there are at one place.

    Attributes:
        place: an iteration, or a tenth of a training.
        workflows: how many workflows there were.
        strategies: the effective number of strategies: 2 to the power of the entropy of their shares in bits.
        patterns: the same of patterns.
        accuracy: the share of right answers; None where nothing was decided.
    """

    place: int
    workflows: int
    strategies: float
    patterns: float
    accuracy: float | None


def first_patterns(planned: Iterable[Planned], limit: int = FIRST_PATTERNS) -> tuple[Pattern, ...]:
    """The first distinct patterns, in the order in which they came, with all workflows of theirs, later ones too."""
    groups: dict[tuple[str, Strategy], list[Planned]] = {}
    for one in planned:
        if not one.workflow.steps:
            continue
        key = (pattern(one.workflow), strategy(one.workflow))
        if key in groups or len(groups) < limit:
            groups.setdefault(key, []).append(one)
    return tuple(
        Pattern(
            name, kind, topology(of_one[0].workflow), of_one[0].workflow, of_one[0].place, len(of_one), _right(of_one)
        )
        for (name, kind), of_one in groups.items()
    )


def diversity(planned: Iterable[Planned]) -> tuple[Diversity, ...]:
    """The diversity at each place, in order."""
    places: dict[int, list[Planned]] = {}
    for one in planned:
        if one.workflow.steps:
            places.setdefault(one.place, []).append(one)
    found: list[Diversity] = []
    for place in sorted(places):
        of_one = places[place]
        kinds, shapes = (
            Counter(strategy(one.workflow) for one in of_one),
            Counter(pattern(one.workflow) for one in of_one),
        )
        decided = [one.correct for one in of_one if one.correct is not None]
        found.append(
            Diversity(
                place,
                len(of_one),
                2 ** entropy_bits(kinds.values()),
                2 ** entropy_bits(shapes.values()),
                sum(decided) / len(decided) if decided else None,
            )
        )
    return tuple(found)


def topology_diversity(counts: Mapping[str, int]) -> float | None:
    """The effective number of shapes where only these were counted, as in a training's curve; None without any."""
    return 2 ** entropy_bits(counts.values()) if any(counts.values()) else None


def _right(planned: Sequence[Planned]) -> Estimate | None:
    scores: dict[str, list[float]] = {}
    for one in planned:
        if one.correct is not None:
            scores.setdefault(one.problem, []).append(float(one.correct))
    if not scores:
        return None
    means = [sum(of_one) / len(of_one) for of_one in scores.values()]
    low, high = share_interval(means, sum(map(len, scores.values())))
    return Estimate(sum(means) / len(means), low, high, len(means))
