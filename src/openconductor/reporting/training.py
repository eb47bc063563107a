"""What a training's curve says beside the verdict: form, skill and routing at its beginning and its end.

In: a training's folder (``curves.jsonl``, a journal where there is one). Out: a Training.

Rollouts are sampled on training questions, so nothing here is a result on held-out ones, and the verdict does not rest
on it. Intervals are over iterations: they say how sure the level is, not how a repeated training would come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from openconductor.evaluation.association import Association, association
from openconductor.evaluation.intervals import mean_interval
from openconductor.evaluation.journaled import journaled_plans
from openconductor.evaluation.patterns import Diversity, Pattern, diversity, first_patterns
from openconductor.evaluation.statistics import Estimate
from openconductor.plots.iterations import Iteration, read_curve, window_of

JOURNAL = "journal.sqlite"


@dataclass(frozen=True, slots=True)
class Course:
    """One measure at the beginning and at the end of a training; None where it could not be measured there."""

    begin: Estimate | None
    end: Estimate | None


@dataclass(frozen=True, slots=True)
class Training:
    """What a training's curve says.

    Attributes:
        iterations: how many there were.
        window: how many of them the beginning, and the end, are.
        validity, given_valid, accuracy: shares.
        routing_entropy: bits.
        shapes: the effective number of shapes of workflows.
        diversity_and_accuracy: how the number of shapes goes with accuracy; None where that cannot be said.
        diversity: strategies and patterns in each tenth of the training, where a journal holds its plans.
        patterns: the first distinct patterns, from the same journal.
    """

    iterations: int
    window: int
    validity: Course
    given_valid: Course
    accuracy: Course
    routing_entropy: Course
    shapes: Course
    diversity_and_accuracy: Association | None
    diversity: tuple[Diversity, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        values = asdict(self)
        values["patterns"] = [
            {"pattern": one.pattern, "strategy": one.strategy, "first": one.first, "count": one.count}
            for one in self.patterns
        ]
        return values


def training(folder: Path) -> Training:
    """Read a training's folder, or its ``curves.jsonl``.

    Raises:
        ConfigError: there is no curve.
        JournalError: its journal cannot be read.
    """
    curve = read_curve(folder)
    window = window_of(len(curve))

    def course(measure: Callable[[Iteration], float | None]) -> Course:
        values = [measure(iteration) for iteration in curve]
        return Course(_level(values[:window]), _level(values[len(values) - window :]))

    journal = folder / JOURNAL
    plans = list(journaled_plans(journal)) if journal.is_file() else []
    return Training(
        iterations=len(curve),
        window=window,
        validity=course(lambda one: one.validity),
        given_valid=course(lambda one: one.given_valid),
        accuracy=course(lambda one: one.accuracy),
        routing_entropy=course(lambda one: one.routing_entropy),
        shapes=course(lambda one: one.diversity),
        diversity_and_accuracy=association([one.diversity for one in curve], [one.accuracy for one in curve]),
        diversity=diversity(plans),
        patterns=first_patterns(plans),
    )


def _level(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = mean_interval(known) if len(known) > 1 else (known[0], known[0])
    return Estimate(fmean(known), low, high, len(known))
