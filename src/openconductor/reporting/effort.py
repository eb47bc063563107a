"""The best worker, asked as often as the Conductor's answers cost: is a lead more than what more calls buy?

In: the records of an evaluation. Out: an Effort: self-consistency of a single worker at the cost nearest to ours.

A plan of five calls may win by its five calls alone. The fair rival is the best single worker with a vote over as many
of its own answers (self-consistency, X. Wang et al., 2023). Such a vote stands in the evaluation where it has
``consensus:NAME``; else it is read off the repeats that the worker was asked anyway, and costs nothing more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openconductor.evaluation.headroom import WORKER
from openconductor.evaluation.records import Record
from openconductor.evaluation.selection import Scores
from openconductor.evaluation.statistics import Difference, Estimate, Key, clustered_mean, difference, scores_by_problem

LIKE = 1.25
"""Costs within this factor of each other count as equal."""


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


@dataclass(frozen=True, slots=True)
class _Rival:
    """One worker, alone or with a vote, and what it costs, the system's cost being 1."""

    name: str
    votes: int
    scores: Scores
    cost: float

    @property
    def accuracy(self) -> float:
        return fmean(fmean(of_one) for of_one in self.scores.values())

    @property
    def equal(self) -> bool:
        return 1 / LIKE <= self.cost <= LIKE


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
    unit = "dollars" if all(map(_dollars, (ours, alone))) else "calls"
    base, once = _cost(ours, unit), _cost(alone, unit)
    if base <= 0 or once <= 0:
        return None
    own = list(_rivals(by_system, best, unit, base))
    floor = next(rival.accuracy for rival in own if rival.votes == 1)
    others = [name for name in by_system if name.startswith(WORKER) and name != best]
    strong = [rival for name in others for rival in _rivals(by_system, name, unit, base) if rival.accuracy > floor]
    equal = [rival for rival in (*own, *strong) if rival.equal]
    if equal:
        chosen = max(equal, key=lambda rival: rival.accuracy)
    else:
        chosen = min(own, key=lambda rival: abs(math.log(rival.cost)))
    mean = clustered_mean(list(chosen.scores.values()))
    accuracy = Estimate(mean.mean, mean.low, mean.high, len(chosen.scores))
    lead = difference(scores_by_problem(ours), chosen.scores, seed)
    return Effort(chosen.name, accuracy, lead, chosen.cost, chosen.votes, base / once, unit)


def _rivals(by_system: Mapping[str, Sequence[Record]], alone: str, unit: str, base: float) -> Iterator[_Rival]:
    """One worker alone and with a vote, what has no cost or nothing decided left out."""
    worker, records = alone.removeprefix(WORKER), by_system[alone]
    for name, of_one in by_system.items():
        if name.partition("?")[0] == f"consensus:{worker}" and (unit == "calls" or _dollars(of_one)):
            scores, cost = scores_by_problem(of_one), _cost(of_one, unit)
            if scores and cost > 0:
                yield _Rival(name, 0, scores, cost / base)
    once = _cost(records, unit)
    if once > 0 and (unit == "calls" or _dollars(records)):
        for name, votes, scores in _votes(records, worker):
            if scores:
                yield _Rival(name, votes, scores, votes * once / base)


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


def _votes(alone: Sequence[Record], worker: str) -> Iterator[tuple[str, int, Scores]]:
    """The worker alone, and votes over each number of its repeats that every question with an answer has."""
    said: dict[Key, list[tuple[str | None, float]]] = {}
    for record in alone:
        if record.correct is not None:
            text = record.extracted if record.extracted is not None else record.answer
            said.setdefault((record.task, record.problem), []).append((text, float(record.correct)))
    fewest = min(map(len, said.values()), default=0)
    yield f"{worker} alone", 1, scores_by_problem(alone)
    for times in range(3, fewest + 1):  # a vote of two is the first one's answer
        yield f"{worker}, a vote of {times}", times, {key: [vote(answers, times)] for key, answers in said.items()}


def _dollars(records: Sequence[Record]) -> bool:
    """Whether all calls have a price, and not all are free."""
    return not any(record.usage.unpriced_calls for record in records) and _cost(records, "dollars") > 0


def _cost(records: Sequence[Record], unit: str) -> float:
    """What a question costs; what was masked was paid for as well."""
    costs = [float(one.usage.dollars) if unit == "dollars" else float(one.calls) for one in records]
    return fmean(costs) if costs else 0.0
