"""The fair rivals of a system: itself before its training, and the best worker at equal cost.

Accuracy is validity times accuracy given valid, so a gain splits into two parts without a rest (E.
M. Kitagawa, 1955): more valid plans at the mean accuracy, and better plans at the mean validity.
The skill that the verdict looks at is compared on questions where both wrote valid plans, because
easy questions get valid plans first, which makes the untrained system look skilled.

A plan of five calls may win by its five calls alone. The fair rival is the best single worker with
a vote over as many of its own answers (self-consistency, X. Wang et al., 2023): ``consensus:NAME``
of the evaluation, or a vote over the repeats that the worker was asked anyway.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from openconductor.evaluation.eval_config import ALONE, PLANNER
from openconductor.evaluation.records import MASKED, Record
from openconductor.evaluation.statistics import (
    FEWEST,
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    estimate,
    grouped,
    jackknife_interval,
    mean_score,
    scores_by_problem,
)
from openconductor.report.routing import routing_entropy, steps_by_question

LIKE = 1.25
"""Costs within this factor of each other count as equal."""
FEWEST_VOTES = 3
"""The fewest answers of a vote: one of two is the first one's answer."""
DOLLARS = "dollars"
ANSWERS = "answers"
"""The unit of cost if a price is unknown or nothing costs anything: the answers of models."""


# ── before the training ───────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Change:
    """The change by a training: the trained system less the untrained one.

    Attributes:
        questions: the number of questions that both were asked.
        validity, accuracy: differences; None: no question was decided by both.
        given_valid: the difference in accuracy where both wrote a valid plan; None: nowhere.
        before: the untrained system's share of right answers.
        by_form: the part of the gain in accuracy that more valid plans bring.
        by_skill: the part that better plans bring; the two add up to the gain. None: one side had
            no valid plan.
        entropy_before, entropy_after: of routing, in bits.
    """

    questions: int
    validity: Difference | None
    accuracy: Difference | None
    given_valid: Difference | None
    before: Estimate | None
    by_form: Estimate | None
    by_skill: Estimate | None
    entropy_before: Estimate | None
    entropy_after: Estimate | None


def measure_change(
    before: Sequence[Record], after: Sequence[Record], *, workers: int, seed: int = 0
) -> Change:
    """Measure what a training changed, on the questions that both systems were asked.

    Args:
        before: the records of the untrained system.
        after: the records of the trained one.
        workers: the number of workers in the pool.
        seed: of the bootstraps.
    """
    keys = {record.key for record in before} & {record.key for record in after}
    old = [record for record in before if record.key in keys]
    new = [record for record in after if record.key in keys]
    old_scores, new_scores = scores_by_problem(old), scores_by_problem(new)
    old_given_valid = scores_by_problem(record for record in old if record.valid)
    new_given_valid = scores_by_problem(record for record in new if record.valid)
    form, skill = _split_gain(old, new)
    return Change(
        questions=len(keys),
        validity=difference(validity_by_problem(new), validity_by_problem(old), seed),
        accuracy=difference(new_scores, old_scores, seed),
        given_valid=difference(new_given_valid, old_given_valid, seed),
        before=estimate(old_scores) if old_scores else None,
        by_form=form,
        by_skill=skill,
        entropy_before=routing_entropy(steps_by_question(old), workers),
        entropy_after=routing_entropy(steps_by_question(new), workers),
    )


def validity_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Return for each question whether its plans were workflows.

    A planner that could not be reached wrote none.
    """
    reached = (record for record in records if record.valid or record.status not in MASKED)
    return grouped((record.key, record.valid) for record in reached)


def _split_gain(
    before: Sequence[Record], after: Sequence[Record]
) -> tuple[Estimate | None, Estimate | None]:
    """Split the gain into form and skill, with jackknife intervals over questions."""
    import numpy as np

    old, new = _validity_and_scores(before), _validity_and_scores(after)
    # A row a question: shares of valid plans and of right answers, before and after.
    rows = [(*old[key], *new[key]) for key in new if key in old]
    count = len(rows)
    if count < 2:
        return None, None
    table: Any = np.array(rows)
    without: Any = (table.sum(axis=0) - table) / (count - 1)
    if not (without[:, [0, 2]] > 1e-9).all():  # a side has one valid plan at most
        return None, None
    form, skill = _form_and_skill(table.mean(axis=0))
    forms, skills = _form_and_skill(without.T)
    return _jackknifed(form, forms), _jackknifed(skill, skills)


def _validity_and_scores(records: Iterable[Record]) -> dict[Key, tuple[float, float]]:
    """Return the shares of valid plans and of right answers of each question."""
    decided = [
        record for record in records if record.correct is not None and record.valid is not None
    ]
    valid = grouped((record.key, record.valid) for record in decided)
    scores = scores_by_problem(decided)
    return {key: (fmean(valid[key]), fmean(scores[key])) for key in scores}


def _form_and_skill(shares: Any) -> tuple[Any, Any]:
    """Return form and skill, from shares valid and right before, and both after."""
    valid, right, valid_now, right_now = shares
    given, given_now = right / valid, right_now / valid_now
    form = (valid_now - valid) * (given_now + given) / 2
    skill = (given_now - given) * (valid_now + valid) / 2
    return form, skill


def _jackknifed(value: Any, without: Any) -> Estimate:
    _, low, high = jackknife_interval(float(value), without.tolist())
    return Estimate(float(value), low, high, len(without))


# ── at equal cost ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effort:
    """A single worker with a vote, at about the system's cost.

    Attributes:
        name: a system of the evaluation, or a vote over a number of repeats of a worker.
        worker: the best worker.
        accuracy: its share of right answers.
        lead: the system's accuracy less its; None: no question was decided by both.
        cost: its cost, the system's cost being 1.
        votes: the number of repeats of the worker that vote (1: the worker alone); 0: a system of
            the evaluation.
        wanted: the number of the worker's answers that cost as much as one of the system's.
        unit: the unit of cost: ``DOLLARS``; ``ANSWERS`` if a price is unknown or all is free.
    """

    name: str
    worker: str
    accuracy: Estimate
    lead: Difference | None
    cost: float
    votes: int
    wanted: float
    unit: str

    @property
    def equal(self) -> bool:
        """True if it costs about as much as the system."""
        return self.enough and self.fair

    @property
    def enough(self) -> bool:
        """True if it costs about as much or more, so that a lead over it was not bought."""
        return self.cost * LIKE >= 1

    @property
    def fair(self) -> bool:
        """True if it costs about as much or less, so that calls explain what it reaches, too."""
        return self.cost <= LIKE


class _Rival(NamedTuple):
    """One worker, alone or with a vote, and its cost, the system's cost being 1."""

    name: str
    votes: int
    scores: Scores
    cost: float

    @property
    def accuracy(self) -> float:
        return mean_score(self.scores)


def find_effort(
    by_system: Mapping[str, Sequence[Record]], system: str, best: str, seed: int = 0
) -> Effort | None:
    """Find the strongest vote of a single worker at about the system's cost.

    It is the best worker's, or another worker's that beats the best worker alone, because votes of
    a weak worker are no rival. If no vote is at about that cost, the best worker's nearest one is
    returned. None: either side has no cost at all.

    Args:
        by_system: the records of each system.
        system: the system that is reported on.
        best: the system ``worker:NAME`` of the best worker.
        seed: of the bootstrap.
    """
    ours, workers = by_system[system], by_system[best]
    unit = _unit(ours, workers)
    system_cost = cost(ours, unit)
    worker_cost = cost(workers, unit)
    if system_cost <= 0 or worker_cost <= 0:
        return None
    own = list(_rivals(by_system, best, unit, system_cost))
    floor = next(rival.accuracy for rival in own if rival.votes == 1)
    candidates = list(own)
    for name in by_system:
        if name.startswith(ALONE) and name != best:
            others = _rivals(by_system, name, unit, system_cost)
            candidates += [rival for rival in others if rival.accuracy > floor]
    equal = [rival for rival in candidates if 1 / LIKE <= rival.cost <= LIKE]
    if equal:
        chosen = max(equal, key=lambda rival: rival.accuracy)
    else:
        chosen = min(own, key=lambda rival: abs(math.log(rival.cost)))
    return Effort(
        name=chosen.name,
        worker=best.removeprefix(ALONE),
        accuracy=estimate(chosen.scores),
        lead=difference(scores_by_problem(ours), chosen.scores, seed, pooled=True),
        cost=chosen.cost,
        votes=chosen.votes,
        wanted=system_cost / worker_cost,
        unit=unit,
    )


def _rivals(
    by_system: Mapping[str, Sequence[Record]], alone: str, unit: str, system_cost: float
) -> Iterator[_Rival]:
    """Yield one worker's votes, and the worker alone, if they have a cost and an answer."""
    worker = alone.removeprefix(ALONE)
    for name, records in by_system.items():
        is_consensus = name.partition("?")[0] == f"consensus:{worker}"
        if is_consensus and _comparable(records, unit) and _is_vote(records, by_system[alone]):
            share = cost(records, unit) / system_cost
            yield _Rival(name, 0, scores_by_problem(records), share)
    records = by_system[alone]
    if not _comparable(records, unit):
        return
    scores = scores_by_problem(records)
    share = cost(records, unit) / system_cost
    yield _Rival(f"{worker} alone", 1, scores, share)
    repeats = min(len(answers) for answers in scores.values())
    for times in range(FEWEST_VOTES, repeats + 1):
        name = f"{worker}, a vote of {times}"
        yield _Rival(name, times, _votes(records, times), times * share)


def _is_vote(records: Sequence[Record], alone: Sequence[Record]) -> bool:
    """Return True if a vote's answers are not just the worker's own, as without sampling."""
    own = {record.key: record.answer for record in alone if record.sample == 0}
    votes = [record for record in records if record.sample == 0 and record.key in own]
    return len(votes) < FEWEST or any(record.answer != own[record.key] for record in votes)


def _comparable(records: Sequence[Record], unit: str) -> bool:
    """Return True if a system has a decided answer and a cost in the unit."""
    if unit == DOLLARS and _has_unknown_price(records):
        return False
    if not scores_by_problem(records):
        return False
    return cost(records, unit) > 0


def _votes(records: Sequence[Record], times: int) -> Scores:
    """Return for each question how often a vote over a worker's repeats is right."""
    answers: dict[Key, list[tuple[str | None, float]]] = {}
    for record in records:
        if record.correct is not None:
            text = record.answer if record.extracted is None else record.extracted
            answers.setdefault(record.key, []).append((text, float(record.correct)))
    return {key: [vote(of_question, times)] for key, of_question in answers.items()}


def vote(answers: Sequence[tuple[str | None, float]], times: int) -> float:
    """Return how often a vote over ``times`` answers to one question is right.

    It is the mean over all runs of ``times`` neighbouring answers; a tie goes to the first.

    Args:
        answers: the text read off each answer (None: nothing), and its score.
        times: the number of votes.

    >>> vote([("4", 1.0), ("4", 1.0), ("5", 0.0)], 3), vote([("4", 1.0), ("5", 0.0)], 1)
    (1.0, 0.5)
    """
    count = len(answers)
    starts = count if times < count else 1
    scores: list[float] = []
    for start in range(starts):
        run = [answers[(start + offset) % count] for offset in range(times)]
        scores.append(_winner_score(run))
    return fmean(scores)


def _winner_score(answers: Sequence[tuple[str | None, float]]) -> float:
    """Return the score of the most frequent text; a tie goes to the first."""
    counts = Counter(text for text, _ in answers if text is not None)
    if not counts:
        return 0.0
    winner, _ = counts.most_common(1)[0]
    return next(score for text, score in answers if text == winner)


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────
def relative_cost(records: Sequence[Record], ours: Sequence[Record]) -> float | None:
    """Return a system's cost, that of ours being 1; None: ours has none at all."""
    unit = _unit(records, ours)
    base = cost(ours, unit)
    return cost(records, unit) / base if base else None


def cost(records: Sequence[Record], unit: str) -> float:
    """Return the cost of a question, masked answers included, every task weighing the same.

    Calls count as the answers of models (``count_answers``).
    """
    paid: list[tuple[Key, float]] = []
    for record in records:
        spent = record.usage.dollars if unit == DOLLARS else record.calls
        paid.append((record.key, float(spent)))
    return mean_score(grouped(paid))


def count_answers(record: Record, aggregators: Container[int]) -> int:
    """Return the number of answers that models were asked for.

    A trained Conductor's plans are none, those of a model that is only prompted to plan are.

    Args:
        record: of any system.
        aggregators: the ordinals of workers that have no model, whose answers do not count.
    """
    name, _, _ = record.system.partition("?")
    plans = 0
    if not re.match(rf"{PLANNER}:[^:]+:", name):
        plans = sum(one.planned for one in record.rounds)
    workers = [step.worker for workflow in record.workflows for step in workflow]
    merges = sum(worker in aggregators for worker in workers)
    return max(record.calls - plans, len(workers)) - merges


def _unit(first: Sequence[Record], second: Sequence[Record]) -> str:
    """Return the unit in which two systems can be compared."""
    if _has_unknown_price(first) or _has_unknown_price(second):
        return ANSWERS
    dollars = min(cost(first, DOLLARS), cost(second, DOLLARS))
    return DOLLARS if dollars > 0 else ANSWERS


def _has_unknown_price(records: Sequence[Record]) -> bool:
    return any(record.usage.unpriced_calls for record in records)
