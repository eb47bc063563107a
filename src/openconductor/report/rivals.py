"""What a system is fairly compared with: itself before its training, and the best worker asked as often.

In: records. Out: a Change, an Effort and a Told, differences with 95 % intervals.

Accuracy is validity times accuracy given valid, so a gain splits into two parts without a rest (E.
M. Kitagawa, 1955):
what more valid plans bring at the mean accuracy, and what better plans bring at the mean validity.
The skill that the verdict looks at is compared on questions where both wrote valid plans: else the
easy questions, whose plans are valid first, would make the untrained one look skilled.

A plan of five calls may win by its five calls alone. The fair rival is the best single worker with
a vote over as many of its own answers (self-consistency, X. Wang et al., 2023). The evaluation has
such a vote as ``consensus:NAME``; else it is read off the repeats that the worker was asked anyway,
and costs nothing more.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from openconductor.baselines.consensus import answer_key
from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.records import MASKED, Record
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    difference,
    estimate,
    grouped,
    jackknife_interval,
    mean_interval,
    scores_by_problem,
    task_mean,
)
from openconductor.report.routing import routing_entropy

LIKE = 1.25
"""Costs within this factor of each other count as equal."""
UNPRICED = "calls, for a price is not known"
"""The unit of cost where calls are all that can be counted, which says nothing of equal cost."""


# ── before the training ───────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Change:
    """What is different after the training.

    Attributes:
        questions: how many questions both were asked.
        validity: trained less untrained.
        accuracy: trained less untrained.
        given_valid: the same where both wrote a valid plan; None where there is no such question.
        before: the share of right answers of the untrained one.
        by_form: the part of the gain in accuracy that more valid plans bring.
        by_skill: the part that better plans bring; the two add up to the gain. None where one side
            had no valid plan.
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


def change(
    before: Sequence[Record], after: Sequence[Record], *, workers: int, seed: int = 0
) -> Change:
    """What a training changed, on the questions that both were asked.

    Args:
        before: the records of the untrained system.
        after: those of the trained one.
        workers: how many workers there are.
        seed: of the bootstraps.
    """
    both = {_key(one) for one in before} & {_key(one) for one in after}
    old, new = ([one for one in side if _key(one) in both] for side in (before, after))
    valid_old, valid_new = ([one for one in side if one.valid] for side in (old, new))
    form, skill = _form_and_skill(old, new)
    return Change(
        questions=len(both),
        validity=difference(validity_by_problem(new), validity_by_problem(old), seed),
        accuracy=difference(scores_by_problem(new), scores_by_problem(old), seed),
        given_valid=difference(scores_by_problem(valid_new), scores_by_problem(valid_old), seed),
        before=estimate(grades) if (grades := scores_by_problem(old)) else None,
        by_form=form,
        by_skill=skill,
        entropy_before=routing_entropy(old, workers),
        entropy_after=routing_entropy(new, workers),
    )


def validity_by_problem(records: Iterable[Record]) -> dict[Key, list[float]]:
    """Of each question, whether its plans were workflows; a planner that could not be reached wrote none."""
    return grouped(
        (_key(one), one.valid) for one in records if one.valid or one.status not in MASKED
    )


def _form_and_skill(
    before: Sequence[Record], after: Sequence[Record]
) -> tuple[Estimate | None, Estimate | None]:
    """How much of the gain is form and how much is skill, with jackknife intervals over questions."""
    import numpy as np

    shares: list[Scores] = []  # of valid plans and of right answers, before and after
    for side in (before, after):
        decided = [one for one in side if one.correct is not None and one.valid is not None]
        shares += [grouped((_key(one), one.valid) for one in decided), scores_by_problem(decided)]
    table: Any = np.array(
        [[fmean(side[key]) for side in shares] for key in shares[2] if key in shares[0]]
    )
    count = len(table)
    without: Any = (table.sum(axis=0) - table) / (count - 1) if count > 1 else None
    if (
        without is None or not (without[:, [0, 2]] > 1e-9).all()
    ):  # one side has no valid plan, or one alone
        return None, None
    found: list[Estimate] = []
    for value, some in zip(_split(table.mean(axis=0)), _split(without.T), strict=True):
        _, low, high = jackknife_interval(float(value), some.tolist())
        found.append(Estimate(float(value), low, high, count))
    return found[0], found[1]


def _split(shares: Any) -> tuple[Any, Any]:
    """Form and skill, of the shares of valid plans and of right answers before, and both after."""
    valid, right, valid_now, right_now = shares
    given, given_now = right / valid, right_now / valid_now
    return (valid_now - valid) * (given_now + given) / 2, (given_now - given) * (
        valid_now + valid
    ) / 2


def _key(record: Record) -> Key:
    return record.task, record.problem


# ── at equal cost ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Effort:
    """A single worker with a vote, at about the system's cost.

    Attributes:
        name: what it is: a system of the evaluation, or a vote over this many repeats of a worker.
        worker: the best worker.
        accuracy: its share of right answers.
        lead: the system's accuracy less its; None where no question was decided by both.
        cost: what it costs, the system's cost being 1.
        votes: how many answers vote where they are repeats of the worker alone (1: it alone); 0 is
            a system of the evaluation.
        wanted: how many answers of the worker alone cost as much as one of the system's.
        unit: what cost was counted in: ``dollars``; ``calls`` where nothing costs anything; else
            ``UNPRICED``.
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
        return task_mean({key: fmean(of_one) for key, of_one in self.scores.items()})


def effort(
    by_system: Mapping[str, Sequence[Record]], system: str, best: str, seed: int = 0
) -> Effort | None:
    """The strongest vote of a single worker at about the system's cost.

    It is the best worker's, or another one's that is better than the best worker alone (votes of a
    weak worker would be no rival). Where there is none at about that cost, it is the best worker's
    that is nearest in cost.

    Args:
        by_system: the records of each system.
        system: which one is reported on.
        best: the system ``worker:NAME`` of the best worker.
        seed: of the bootstrap.

    Returns:
        None where neither side's cost is known.
    """
    ours, alone = by_system[system], by_system[best]
    unit = _unit(ours, alone)
    base, once = cost(ours, unit), cost(alone, unit)
    if base <= 0 or once <= 0:
        return None
    own = list(_rivals(by_system, best, unit, base))
    floor = next(rival.accuracy for rival in own if rival.votes == 1)
    others = [name for name in by_system if name.startswith(ALONE) and name != best]
    strong = [
        rival
        for name in others
        for rival in _rivals(by_system, name, unit, base)
        if rival.accuracy > floor
    ]
    equal = [rival for rival in (*own, *strong) if 1 / LIKE <= rival.cost <= LIKE]
    nearest = min(own, key=lambda rival: abs(math.log(rival.cost)))
    chosen = max(equal, key=lambda rival: rival.accuracy, default=nearest)
    lead = difference(scores_by_problem(ours), chosen.scores, seed)
    worker = best.removeprefix(ALONE)
    return Effort(
        chosen.name,
        worker,
        estimate(chosen.scores),
        lead,
        chosen.cost,
        chosen.votes,
        base / once,
        unit,
    )


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
        said = next(iter(votes.most_common(1)), (None, 0))[0]  # of equals the first
        scores.append(next((score for one, score in heard if one is not None and one == said), 0.0))
    return fmean(scores)


def _rivals(
    by_system: Mapping[str, Sequence[Record]], alone: str, unit: str, base: float
) -> Iterator[_Rival]:
    """One worker with a vote and alone; what has no cost, or nothing decided, is left out."""
    worker, records = alone.removeprefix(ALONE), by_system[alone]
    systems = {
        name: some
        for name, some in by_system.items()
        if name.partition("?")[0] == f"consensus:{worker}"
    }
    for name, some in {**systems, f"{worker} alone": records}.items():
        scores, paid = scores_by_problem(some), cost(some, unit) / base
        if not scores or paid <= 0 or (unit == "dollars" and not _priced(some)):
            continue
        yield _Rival(name, int(name not in systems), scores, paid)
        repeats = () if name in systems else range(3, min(map(len, scores.values())) + 1)
        for times in repeats:  # a vote of two is the first one's answer
            yield _Rival(
                f"{worker}, a vote of {times}", times, _votes(records, times), times * paid
            )


def _votes(records: Sequence[Record], times: int) -> Scores:
    """Of each question, how often a vote over the repeats of a worker is right."""
    said: dict[Key, list[tuple[str | None, float]]] = {}
    for one in records:
        if one.correct is not None:
            text = one.extracted if one.extracted is not None else one.answer
            said.setdefault(_key(one), []).append((text, float(one.correct)))
    return {key: [vote(answers, times)] for key, answers in said.items()}


def relative_cost(records: Sequence[Record], ours: Sequence[Record]) -> float | None:
    """What a question costs one system, the cost of the other being 1; None where a price is not known."""
    unit = _unit(records, ours)
    base = cost(ours, unit)
    return None if unit == UNPRICED or not base else cost(records, unit) / base


def _unit(*systems: Sequence[Record]) -> str:
    """What cost is counted in: dollars; calls where nothing costs anything, or where a price is not known."""
    if any(one.usage.unpriced_calls for records in systems for one in records):
        return UNPRICED
    return "dollars" if all(map(_priced, systems)) else "calls"


def _priced(records: Sequence[Record]) -> bool:
    """Whether all calls have a price, and not all are free."""
    return (
        not any(record.usage.unpriced_calls for record in records) and cost(records, "dollars") > 0
    )


def cost(records: Sequence[Record], unit: str) -> float:
    """What a question costs, every task weighing the same; what was masked was paid for as well."""
    paid = grouped(
        (_key(one), float(one.usage.dollars if unit == "dollars" else one.calls)) for one in records
    )
    return task_mean({key: fmean(of_one) for key, of_one in paid.items()})


# ── answers that the plan itself tells ────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Told:
    """Subtasks that say the answer which comes back: then the planner may have answered, and the workers repeated it.

    Attributes:
        share: of the right answers, those that a subtask says, more often than any other answer.
        by_chance: how often the right answers to other questions are said in these subtasks.
        beyond: the one less the other.
        lead: the lead over the best worker where an answer that was told counts as little as chance
            would have it.
    """

    share: float
    by_chance: float
    beyond: Estimate
    lead: Difference | None


MOST_ANSWERS = 40
"""Of the right answers to other questions, as many are looked for in a plan."""
FEW_ANSWERS = 12
"""A task with no more different answers offers them as choices, so that all of them may be named in a subtask."""


def told(
    mine: Sequence[Record],
    wrong: Mapping[Key, set[str]],
    best: Scores,
    seed: int,
    *,
    later: bool = False,
) -> Told | None:
    """Whether a system's subtasks say the answers that come back; None where nothing that was planned is right.

    Args:
        mine: its records.
        wrong: what others wrongly answered to each question.
        best: the scores of the best worker.
        seed: of the bootstrap.
        later: whether to look at the rounds after the first one.
    """
    answers: dict[str, set[str]] = {}
    right: dict[tuple[str, str], dict[Key, str]] = {}
    for one in mine:
        answers.setdefault(one.task, set()).add(said_by(one))
        if one.correct:
            right.setdefault((one.task, one.kind), {})[_key(one)] = said_by(one)
    scores: list[tuple[Key, float]] = []
    found: list[
        tuple[Key, float, float]
    ] = []  # whether an answer was told, and how often others were
    for one in mine:
        said, flows = said_by(one), one.workflows[1:] if later else one.workflows[:1]
        credit = float(bool(one.correct))
        if one.correct and one.valid and flows and said:
            plan = plain_words(" \n".join(step.subtask for flow in flows for step in flow))
            few = len(answers[one.task]) <= FEW_ANSWERS
            choices = wrong.get(_key(one), set[str]()) | (answers[one.task] if few else set[str]())
            others = [text for key, text in right[one.task, one.kind].items() if key != _key(one)]
            some = others[:: max(1, len(others) // MOST_ANSWERS)]
            tells, chance = (
                _tells(plan, said, choices),
                fmean([_tells(plan, text, choices) for text in some] or [0.0]),
            )
            found.append((_key(one), float(tells), chance))
            credit = chance if tells else credit
        if one.correct is not None:
            scores.append((_key(one), credit))
    if not found:
        return None
    beyond = [
        fmean(of_one)
        for of_one in grouped((key, tells - chance) for key, tells, chance in found).values()
    ]
    return Told(
        fmean(tells for _, tells, _ in found),
        fmean(chance for *_, chance in found),
        Estimate(fmean(beyond), *mean_interval(beyond), len(beyond)),
        difference(grouped(scores), best, seed),
    )


def said_by(record: Record) -> str:
    """What a record's answer says, in plain words."""
    if record.extracted is not None:
        return plain_words(record.extracted)
    return plain_words((record.answer and (answer_key(record.answer) or record.answer)) or "")


def plain_words(text: str) -> str:
    r"""A text's words in one case, between blanks, without what only marks or parts them.

    >>> plain_words("It is **\\boxed{1,234.0}**, (B)."), plain_words("_7_ or 4.42")
    ('it is 1234 b', '7 or 4.42')
    """
    text = re.sub(r"\\(boxed|text\w*|mathrm|mathbf)\b", " ", text.casefold())
    text = re.sub(r"[^\w.+\-/^<>%\\]|_", " ", re.sub(r"(?<=\d),(?=\d{3})", "", text))
    return " ".join(
        re.sub(r"^(-?\d+)\.0+$", r"\1", bare) for word in text.split() if (bare := word.strip("."))
    )


def _tells(text: str, answer: str, choices: set[str]) -> bool:
    """Whether a text names an answer, and more often than any other choice."""
    named = _count(text, answer)
    return named > 0 and all(
        _count(text, other) < named for other in choices if other and other != answer
    )


def _count(text: str, answer: str) -> int:
    return f" {text} ".replace(" ", "  ").count(f" {answer.replace(' ', '  ')} ") if answer else 0
