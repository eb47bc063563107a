"""What a system is fairly compared with: itself before its training, and the best worker asked as often.

In: records. Out: a Change and an Effort, differences with 95 % intervals.

Accuracy is validity times accuracy given valid, so a gain splits into two parts without a rest (E. M. Kitagawa, 1955):
what more valid plans bring at the mean accuracy, and what better plans bring at the mean validity. The skill that the
verdict looks at is compared on questions where both wrote valid plans: else the easy questions, whose plans are valid
first, would make the untrained one look skilled.

A plan of five calls may win by its five calls alone. The fair rival is the best single worker with a vote over as many
of its own answers (self-consistency, X. Wang et al., 2023). The evaluation has such a vote as ``consensus:NAME``; else
it is read off the repeats that the worker was asked anyway, and costs nothing more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from openconductor.evaluation.config import ALONE
from openconductor.evaluation.records import MASKED, Record
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    estimate,
    jackknife_interval,
    scores_by_problem,
)
from openconductor.report.routing import routing_entropy

LIKE = 1.25
"""Costs within this factor of each other count as equal."""


# ── before the training ──────────────────────────────────────────────────────────────────────────────────────────────
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
    old, new = ([one for one in side if (one.task, one.problem) in both] for side in (before, after))
    valid_old, valid_new = ([one for one in side if one.valid] for side in (old, new))
    form, skill = _form_and_skill(old, new)
    return Change(
        questions=len(both),
        validity=difference(validity_by_problem(new), validity_by_problem(old), seed),
        accuracy=difference(scores_by_problem(new), scores_by_problem(old), seed),
        given_valid=difference(scores_by_problem(valid_new), scores_by_problem(valid_old), seed),
        by_form=form,
        by_skill=skill,
        entropy_before=routing_entropy(old, workers),
        entropy_after=routing_entropy(new, workers),
    )


def validity_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Of each question, whether its plans were workflows; a planner that could not be reached wrote none."""
    found: dict[Key, list[float]] = {}
    for record in records:
        unknown = record.valid is None or (not record.valid and record.status in MASKED)
        if not unknown:
            found.setdefault((record.task, record.problem), []).append(float(bool(record.valid)))
    return found


class _Sums(NamedTuple):
    """Decided questions, the valid among them, and the right among these."""

    decided: float
    valid: float
    right: float

    @property
    def validity(self) -> float:
        return self.valid / self.decided if self.decided else math.nan

    @property
    def given_valid(self) -> float:
        return self.right / self.valid if self.valid else math.nan


def _form_and_skill(before: Sequence[Record], after: Sequence[Record]) -> tuple[Estimate | None, Estimate | None]:
    """How much of the gain is form and how much is skill, with jackknife intervals over questions."""
    old, new = _sums(before), _sums(after)
    keys = [key for key in new if key in old]
    if len(keys) < 2:
        return None, None
    old_all, new_all = (_Sums(*map(math.fsum, zip(*(side[key] for key in keys), strict=True))) for side in (old, new))
    whole = _split(old_all, new_all)
    without = [_split(_less(old_all, old[key]), _less(new_all, new[key])) for key in keys]
    if any(math.isnan(part) for pair in (whole, *without) for part in pair):
        return None, None
    ends = (jackknife_interval(whole[which], [pair[which] for pair in without]) for which in (0, 1))
    form, skill = (Estimate(value, low, high, len(keys)) for value, (_, low, high) in zip(whole, ends, strict=True))
    return form, skill


def _split(old: _Sums, new: _Sums) -> tuple[float, float]:
    form = (new.validity - old.validity) * (new.given_valid + old.given_valid) / 2
    skill = (new.given_valid - old.given_valid) * (new.validity + old.validity) / 2
    return form, skill


def _less(all_of_them: _Sums, one: _Sums) -> _Sums:
    return _Sums(*(whole - part for whole, part in zip(all_of_them, one, strict=True)))


def _sums(records: Sequence[Record]) -> Mapping[Key, _Sums]:
    """By question, each question weighing the same."""
    by_question: dict[Key, list[Record]] = {}
    for record in records:
        if record.correct is not None and record.valid is not None:
            by_question.setdefault((record.task, record.problem), []).append(record)
    return {
        key: _Sums(1.0, fmean(bool(one.valid) for one in some), fmean(bool(one.correct) for one in some))
        for key, some in by_question.items()
    }


# ── at equal cost ────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effort:
    """A single worker with a vote, at about the system's cost.

    Attributes:
        name: what it is: a system of the evaluation, or a vote over so many repeats of a worker.
        accuracy: its share of right answers.
        lead: the system's accuracy less its; None where no question was decided by both.
        cost: what it costs, the system's cost being 1.
        votes: how many answers vote where they are repeats of the worker alone (1: it alone); 0 is a system of the
            evaluation.
        wanted: how many answers of the worker alone cost as much as one of the system's.
        unit: what cost was counted in: ``dollars``, or ``calls`` where a price is not known or nothing.
    """

    name: str
    accuracy: Estimate
    lead: Difference | None
    cost: float
    votes: int
    wanted: float
    unit: str

    @property
    def equal(self) -> bool:
        """Whether it costs about as much as the system."""
        return self.enough and self.fair

    @property
    def enough(self) -> bool:
        """Whether it costs about as much as the system, or more: a lead over it is not bought by calls."""
        return self.cost * LIKE >= 1

    @property
    def fair(self) -> bool:
        """Whether it costs about as much as the system, or less: where it is as good, calls are what was bought."""
        return self.cost <= LIKE


class _Rival(NamedTuple):
    """One worker, alone or with a vote, and what it costs, the system's cost being 1."""

    name: str
    votes: int
    scores: Scores
    cost: float

    @property
    def accuracy(self) -> float:
        return fmean(fmean(of_one) for of_one in self.scores.values())


def effort(by_system: Mapping[str, Sequence[Record]], system: str, best: str, seed: int = 0) -> Effort | None:
    """The strongest vote of a single worker at about the system's cost.

    It is the best worker's, or another one's that is better than the best worker alone (votes of a weak worker would
    be no rival). Where there is none at about that cost, it is the best worker's that is nearest in cost.

    Args:
        by_system: the records of each system.
        system: which one is reported on.
        best: the system ``worker:NAME`` of the best worker.
        seed: of the bootstrap.

    Returns:
        None where neither side's cost is known.
    """
    ours, alone = by_system[system], by_system[best]
    unit = "dollars" if _priced(ours) and _priced(alone) else "calls"
    base, once = _cost(ours, unit), _cost(alone, unit)
    if base <= 0 or once <= 0:
        return None
    own = list(_rivals(by_system, best, unit, base))
    floor = next(rival.accuracy for rival in own if rival.votes == 1)
    others = [name for name in by_system if name.startswith(ALONE) and name != best]
    strong = [rival for name in others for rival in _rivals(by_system, name, unit, base) if rival.accuracy > floor]
    equal = [rival for rival in (*own, *strong) if 1 / LIKE <= rival.cost <= LIKE]
    if equal:
        chosen = max(equal, key=lambda rival: rival.accuracy)
    else:
        chosen = min(own, key=lambda rival: abs(math.log(rival.cost)))
    lead = difference(scores_by_problem(ours), chosen.scores, seed)
    return Effort(chosen.name, estimate(chosen.scores), lead, chosen.cost, chosen.votes, base / once, unit)


def vote(answers: Sequence[tuple[str | None, float]], times: int) -> float:
    """How often a vote over ``times`` answers of one question is right: the mean over runs of neighbouring answers.

    Args:
        answers: what was read off each answer (None: nothing), and its score.
        times: how many vote; of equals the first counts.

    >>> vote([("4", 1.0), ("4", 1.0), ("5", 0.0)], 3), vote([("4", 1.0), ("5", 0.0)], 1)
    (1.0, 0.5)
    """
    scores: list[float] = []
    for start in range(len(answers) if times < len(answers) else 1):
        heard = [answers[(start + place) % len(answers)] for place in range(times)]
        votes = Counter(said for said, _ in heard if said is not None)
        most = max(votes.values(), default=0)
        scores.append(next((score for said, score in heard if said is not None and votes[said] == most), 0.0))
    return fmean(scores)


def _rivals(by_system: Mapping[str, Sequence[Record]], alone: str, unit: str, base: float) -> Iterator[_Rival]:
    """One worker alone and with a vote; what has no cost, or nothing decided, is left out."""
    worker = alone.removeprefix(ALONE)
    found = [
        (name, 0, scores_by_problem(records), _cost(records, unit))
        for name, records in by_system.items()
        if name.partition("?")[0] == f"consensus:{worker}" and (unit == "calls" or _priced(records))
    ]
    if unit == "calls" or _priced(by_system[alone]):
        once = _cost(by_system[alone], unit)
        found += [(name, votes, scores, votes * once) for name, votes, scores in _votes(by_system[alone], worker)]
    for name, votes, scores, cost in found:
        if scores and cost > 0:
            yield _Rival(name, votes, scores, cost / base)


def _votes(alone: Sequence[Record], worker: str) -> Iterator[tuple[str, int, dict[Key, list[float]]]]:
    """The worker alone, and votes over each number of its repeats that every question with an answer has."""
    said: dict[Key, list[tuple[str | None, float]]] = {}
    for record in alone:
        if record.correct is not None:
            text = record.extracted if record.extracted is not None else record.answer
            said.setdefault((record.task, record.problem), []).append((text, float(record.correct)))
    yield f"{worker} alone", 1, scores_by_problem(alone)
    for times in range(3, min(map(len, said.values()), default=0) + 1):  # a vote of two is the first one's answer
        yield f"{worker}, a vote of {times}", times, {key: [vote(answers, times)] for key, answers in said.items()}


def _priced(records: Sequence[Record]) -> bool:
    """Whether all calls have a price, and not all are free."""
    return not any(record.usage.unpriced_calls for record in records) and _cost(records, "dollars") > 0


def _cost(records: Sequence[Record], unit: str) -> float:
    """What a question costs; what was masked was paid for as well."""
    costs = [float(one.usage.dollars) if unit == "dollars" else float(one.calls) for one in records]
    return fmean(costs) if costs else 0.0
