"""What a training changed: form, or skill? The untrained Conductor beside the trained one, on the same questions.

In: the records of both. Out: differences with 95 % intervals, and how much of the gain is form.

Accuracy is validity times accuracy given valid, so a gain splits into two parts without a rest (E. M. Kitagawa, 1955):
what more valid plans bring at the mean accuracy, and what better plans bring at the mean validity. The skill that the
verdict looks at is compared on questions where both wrote valid plans: else the easy questions, whose plans are valid
first, would make the untrained one look skilled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from openconductor.evaluation.intervals import jackknife_interval
from openconductor.evaluation.records import MASKED, Record
from openconductor.evaluation.statistics import Difference, Estimate, Key, difference, scores_by_problem
from openconductor.reporting.routing import routing_entropy


@dataclass(frozen=True, slots=True)
class Change:
    """What is different after the training.

    Attributes:
        questions: how many questions both were asked.
        validity: trained less untrained.
        accuracy: trained less untrained.
        given_valid: the same where both wrote a valid plan; None where there is no such question.
        by_form: the part of the gain in accuracy that more valid plans bring.
        by_skill: the part that better plans bring; the two add up to the gain. None where one side had no valid plan.
        entropy_before, entropy_after: of routing, in bits.
    """

    questions: int
    validity: Difference | None
    accuracy: Difference | None
    given_valid: Difference | None
    by_form: Estimate | None
    by_skill: Estimate | None
    entropy_before: Estimate | None
    entropy_after: Estimate | None


def change(before: Sequence[Record], after: Sequence[Record], *, workers: int, seed: int = 0) -> Change:
    """What a training changed, on the questions that both were asked.

    Args:
        before: the records of the untrained system.
        after: those of the trained one.
        workers: how many workers there are.
        seed: of the bootstraps.
    """
    both = {(one.task, one.problem) for one in before} & {(one.task, one.problem) for one in after}
    before, after = ([one for one in side if (one.task, one.problem) in both] for side in (before, after))
    form, skill = _parts(before, after)
    return Change(
        questions=len(both),
        validity=difference(validity_by_problem(after), validity_by_problem(before), seed),
        accuracy=difference(scores_by_problem(after), scores_by_problem(before), seed),
        given_valid=difference(scores_by_problem(_valid(after)), scores_by_problem(_valid(before)), seed),
        by_form=form,
        by_skill=skill,
        entropy_before=routing_entropy(before, workers),
        entropy_after=routing_entropy(after, workers),
    )


def _valid(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.valid]


def validity_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Of each question, whether its plans were workflows; a planner that could not be reached wrote none."""
    found: dict[Key, list[float]] = {}
    for record in records:
        unknown = record.valid is None or (not record.valid and record.status in MASKED)
        if not unknown:
            found.setdefault((record.task, record.problem), []).append(float(bool(record.valid)))
    return found


@dataclass(frozen=True, slots=True)
class _Sums:
    """Decided records, the valid among them, and the right among these."""

    decided: float
    valid: float
    right: float

    def __sub__(self, other: _Sums) -> _Sums:
        return _Sums(self.decided - other.decided, self.valid - other.valid, self.right - other.right)

    @property
    def validity(self) -> float:
        return self.valid / self.decided if self.decided else math.nan

    @property
    def given_valid(self) -> float:
        return self.right / self.valid if self.valid else math.nan


def _parts(before: Sequence[Record], after: Sequence[Record]) -> tuple[Estimate | None, Estimate | None]:
    """How much of the gain is form and how much is skill, with jackknife intervals over questions."""
    old, new = _sums(before), _sums(after)
    keys = [key for key in new if key in old]
    if len(keys) < 2:
        return None, None
    old_all, new_all = (
        _Sums(*map(math.fsum, zip(*(_of(side[key]) for key in keys), strict=True))) for side in (old, new)
    )
    whole = _split(old_all, new_all)
    without = [_split(old_all - old[key], new_all - new[key]) for key in keys]
    if any(math.isnan(part) for pair in (whole, *without) for part in pair):
        return None, None
    parts: list[Estimate] = []
    for which in (0, 1):
        _, low, high = jackknife_interval(whole[which], [pair[which] for pair in without])
        parts.append(Estimate(whole[which], low, high, len(keys)))
    return parts[0], parts[1]


def _split(old: _Sums, new: _Sums) -> tuple[float, float]:
    form = (new.validity - old.validity) * (new.given_valid + old.given_valid) / 2
    skill = (new.given_valid - old.given_valid) * (new.validity + old.validity) / 2
    return form, skill


def _of(sums: _Sums) -> tuple[float, float, float]:
    return sums.decided, sums.valid, sums.right


def _sums(records: Sequence[Record]) -> Mapping[Key, _Sums]:
    """By question, each question weighing the same."""
    by_question: dict[Key, list[Record]] = {}
    for record in records:
        if record.correct is not None and record.valid is not None:
            by_question.setdefault((record.task, record.problem), []).append(record)
    return {
        key: _Sums(
            1.0,
            sum(bool(one.valid) for one in of_one) / len(of_one),
            sum(bool(one.correct) for one in of_one) / len(of_one),
        )
        for key, of_one in by_question.items()
    }
