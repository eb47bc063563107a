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

from openconductor.evaluation import statistics
from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.records import MASKED, Record
from openconductor.evaluation.statistics import Difference, Estimate, Key, Scores, difference, scores_by_problem
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
        if record.valid or (record.valid is False and record.status not in MASKED):
            found.setdefault((record.task, record.problem), []).append(float(record.valid))
    return found


def _form_and_skill(before: Sequence[Record], after: Sequence[Record]) -> tuple[Estimate | None, Estimate | None]:
    """How much of the gain is form and how much is skill, with jackknife intervals over questions."""
    old, new = _sums(before), _sums(after)
    keys = [key for key in new if key in old]
    if len(keys) < 2:
        return None, None
    totals = [[math.fsum(column) for column in zip(*(side[key] for key in keys), strict=True)] for side in (old, new)]
    try:
        whole = _split(*totals)
        without = [_split(_less(totals[0], old[key]), _less(totals[1], new[key])) for key in keys]
    except ZeroDivisionError:  # one side has no valid plan, or one alone
        return None, None
    ends = (statistics.jackknife_interval(*pair) for pair in zip(whole, zip(*without, strict=True), strict=True))
    form, skill = (Estimate(value, low, high, len(keys)) for value, (_, low, high) in zip(whole, ends, strict=True))
    return form, skill


def _split(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Form and skill, of the ``_sums`` before and after."""
    (valid, given), (valid_now, given_now) = ((some / every, right / some) for every, some, right in (old, new))
    return (valid_now - valid) * (given_now + given) / 2, (given_now - given) * (valid_now + valid) / 2


def _less(total: Sequence[float], part: Sequence[float]) -> list[float]:
    return [whole - one for whole, one in zip(total, part, strict=True)]


def _sums(records: Sequence[Record]) -> dict[Key, tuple[float, float, float]]:
    """Of each decided question 1, the share of valid plans, and of right answers."""
    found: dict[Key, list[Record]] = {}
    for one in records:
        if one.correct is not None and one.valid is not None:
            found.setdefault((one.task, one.problem), []).append(one)
    return {
        key: (1.0, fmean(bool(r.valid) for r in some), fmean(bool(r.correct) for r in some))
        for key, some in found.items()
    }


# ── at equal cost ────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effort:
    """A single worker with a vote, at about the system's cost.

    Attributes:
        name: what it is: a system of the evaluation, or a vote over this many repeats of a worker.
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
        return fmean(map(fmean, self.scores.values()))


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
    right = statistics.estimate(chosen.scores)
    return Effort(chosen.name, right, lead, chosen.cost, chosen.votes, base / once, unit)


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
    """One worker with a vote and alone; what has no cost, or nothing decided, is left out."""
    worker, records = alone.removeprefix(ALONE), by_system[alone]
    for name, some in by_system.items():
        if name.partition("?")[0] == f"consensus:{worker}" and (unit == "calls" or _priced(some)):
            scores, cost = scores_by_problem(some), _cost(some, unit)
            if scores and cost > 0:
                yield _Rival(name, 0, scores, cost / base)
    scores, once = scores_by_problem(records), _cost(records, unit)
    if not scores or once <= 0 or (unit == "dollars" and not _priced(records)):
        return
    yield _Rival(f"{worker} alone", 1, scores, once / base)
    said: dict[Key, list[tuple[str | None, float]]] = {}
    for one in records:
        if one.correct is not None:
            text = one.extracted if one.extracted is not None else one.answer
            said.setdefault((one.task, one.problem), []).append((text, float(one.correct)))
    for times in range(3, min(map(len, said.values())) + 1):  # a vote of two is the first one's answer
        votes = {key: [vote(answers, times)] for key, answers in said.items()}
        yield _Rival(f"{worker}, a vote of {times}", times, votes, times * once / base)


def _priced(records: Sequence[Record]) -> bool:
    """Whether all calls have a price, and not all are free."""
    return not any(record.usage.unpriced_calls for record in records) and _cost(records, "dollars") > 0


def _cost(records: Sequence[Record], unit: str) -> float:
    """What a question costs; what was masked was paid for as well."""
    return fmean(float(one.usage.dollars if unit == "dollars" else one.calls) for one in records)
