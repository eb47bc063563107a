"""The system of an evaluation that is worth deploying.

``choose_auto`` chooses the cheapest system that is about as good as the best one. Servers deploy
it under the name ``auto``, and reports begin with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from openconductor.evaluation.eval_config import ALONE, BOUNDS
from openconductor.evaluation.records import Results
from openconductor.evaluation.statistics import (
    FEWEST,
    Difference,
    Key,
    difference,
    holm,
    interval_90,
    mean_score,
)
from openconductor.evaluation.tables import Cost, user_costs

MARGIN = 0.02
"""A system is about as good as another one if it is surely less than this behind."""
MOST_CHANCE = 0.05
"""A system is better than the best worker if luck would do as much at most this often."""


class Candidate(NamedTuple):
    """A system that could be deployed.

    Attributes:
        right: the share of the questions that it got right, every task weighing the same. Answers
            that are undecided or missing count as wrong.
        unknown: the share of such answers.
        cost: the cost of a question.
    """

    right: float
    unknown: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class Choice:
    """The system that ``auto`` is.

    Attributes:
        system: its name.
        worker: the best worker alone, as a system.
        cheaper: the cheapest system that costs less and may be as good; "": none may be.
        won: False: no system is shown to be worth more than the best worker, which is chosen.
        reason: a sentence for people.
        candidates: every system that was asked, except for bounds.
        questions: the number of questions that were asked.
    """

    system: str
    worker: str
    cheaper: str
    won: bool
    reason: str
    candidates: Mapping[str, Candidate]
    questions: int

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"system": self.system, "won": self.won, "reason": self.reason}


def choose_auto(results: Results) -> Choice | None:
    """Choose the cheapest system that is about as good as the best one; None: no worker was asked.

    The best system is the one that is right most often. A system is about as good if the 90 %
    interval of its lead over the best, paired by question, ends above -2 points. One that costs
    more than the best worker must also be better than it, by a test at 5 % that is adjusted (Holm)
    for the number of these systems: the best of many equal ones looks better than it is. A cheaper
    one must be about as good as the worker. If no system is, or fewer than 30 questions were asked,
    the best worker is chosen.

    Answers that are undecided or missing count as wrong. Costs are compared in dollars, then in
    calls; an unknown price counts as the highest.
    """
    contest = _Contest(results)
    if contest.worker is None:
        return None
    passing = [system for system in contest.right if contest.passes(system)]
    system = contest.worker
    if passing:
        system = min(passing, key=lambda name: (contest.cost(name), -contest.right[name]))
        reason = contest.reason(system)
    elif contest.questions < FEWEST:
        reason = (
            f"{contest.questions} questions are too few to show that another system is better "
            f"({FEWEST} are the fewest)"
        )
    else:
        reason = "no other system is shown to be better, or as good for less"
    return Choice(
        system=system,
        worker=contest.worker,
        cheaper=contest.find_cheaper(system),
        won=bool(passing),
        reason=reason,
        candidates=contest.candidates,
        questions=contest.questions,
    )


class _Contest:
    """The systems of a run side by side, without the bounds of the scale.

    Attributes:
        right: the share of right answers of each system, every task weighing the same.
        best: the system that is right most often; of equal ones the cheapest.
        worker: the same of the workers alone; None: none was asked.
        questions: the number of questions that were asked.
        candidates: the systems, with what is known of them.
    """

    def __init__(self, results: Results) -> None:
        self._seed = results.config.seed or 0
        self._costs = user_costs(results)
        systems = [system for system in results.systems if is_competitor(system, results)]
        self._scores = _strict_scores(results, systems)
        self.right = {system: mean_score(scores) for system, scores in self._scores.items()}
        self.questions = len(next(iter(self._scores.values()), ()))
        ranked = sorted(systems, key=lambda system: (-self.right[system], self.cost(system)))
        workers = [system for system in ranked if system.startswith(ALONE)]
        self.best = ranked[0] if ranked else ""
        self.worker = workers[0] if workers else None
        self._second = ranked[1] if len(ranked) > 1 else None
        self._better = frozenset[str]() if self.worker is None else self._find_better(self.worker)
        decided = Counter(record.system for record in results.records if record.correct is not None)
        self.candidates: dict[str, Candidate] = {}
        for system, scores in self._scores.items():
            unknown = 1 - decided[system] / sum(map(len, scores.values()))
            candidate = Candidate(self.right[system], unknown, self._costs[system])
            self.candidates[system] = candidate

    def cost(self, system: str) -> tuple[bool, float, float]:
        """Return the cost of a question, by which systems can be sorted."""
        cost = self._costs[system]
        return cost.dollars is None, round(cost.dollars or 0.0, 12), cost.calls or 0.0

    def passes(self, system: str) -> bool:
        """Return True if a system is about as good as the best, and worth more than the worker."""
        assert self.worker is not None
        if self.questions < FEWEST:
            return False
        if system == self.best == self.worker:
            # It is offered in any case, but it wins only if it need not fear the next one.
            return self._second is not None and self._is_as_good(system, self._second)
        if system != self.best and not self._is_as_good(system, self.best):
            return False
        if system == self.worker:
            return True
        if self.cost(system) > self.cost(self.worker):
            return system in self._better
        return self._is_as_good(system, self.worker)

    def find_cheaper(self, system: str) -> str:
        """Return the cheapest system that is not shown to be worse than a dearer one; "": none."""
        cheaper = [other for other in self.right if self.cost(other) < self.cost(system)]
        for other in sorted(cheaper, key=self.cost):
            _, high = interval_90(self._lead(other, system))
            if high > 0:
                return other
        return ""

    def reason(self, system: str) -> str:
        """Say why a system that passes was chosen."""
        if system != self.best:
            lead = self._say_lead(system, self.best)
            return f"the cheapest system that is about as good as the best, {self.best}: {lead}"
        if system == self.worker:
            return f"the best worker; the next system is {self._second}"
        assert self.worker is not None
        lead = self._say_lead(system, self.worker)
        return f"the best system: against the best worker, {self.worker}, {lead}"

    def _find_better(self, worker: str) -> frozenset[str]:
        """Return the systems that cost more than the best worker and are shown to be better."""
        leads: dict[str, Difference] = {}
        for system in self.right:
            if not system.startswith(ALONE) and self.cost(system) > self.cost(worker):
                leads[system] = self._lead(system, worker)
        p_values = holm([lead.p for lead in leads.values()])
        better: set[str] = set()
        for (system, lead), p_value in zip(leads.items(), p_values, strict=True):
            if lead.low > 0 and p_value <= MOST_CHANCE:
                better.add(system)
        return frozenset(better)

    def _is_as_good(self, first: str, second: str) -> bool:
        low, _ = interval_90(self._lead(first, second))
        return low > -MARGIN

    def _say_lead(self, first: str, second: str) -> str:
        lead = self._lead(first, second)
        low, high = interval_90(lead)
        return f"{100 * lead.value:+.1f} points (90 %: {100 * low:+.1f} to {100 * high:+.1f})"

    def _lead(self, first: str, second: str) -> Difference:
        lead = difference(self._scores[first], self._scores[second], self._seed)
        assert lead is not None  # all have the same questions
        return lead


def is_competitor(system: str, results: Results) -> bool:
    """Return True if a system was asked, and does not know the answers."""
    return system.partition("?")[0] not in BOUNDS and bool(results.of(system))


def _strict_scores(results: Results, systems: Sequence[str]) -> dict[str, dict[Key, list[float]]]:
    """Return the scores of each system; what it did not answer, or nobody could decide, is 0."""
    asked = {(record.key, record.sample) for record in results.records if record.system in systems}
    right = {record.cell for record in results.records if record.correct}
    scores: dict[str, dict[Key, list[float]]] = {}
    for system in systems:
        of_system: dict[Key, list[float]] = {}
        for key, sample in sorted(asked):
            is_right = (system, *key, sample) in right
            of_system.setdefault(key, []).append(float(is_right))
        scores[system] = of_system
    return scores
