"""The rules of the verdict: labels, answers, thresholds, and what an interval says by them.

``RULES`` holds every threshold; ``docs/report.md`` gives the reasons. ``compare`` answers whether a
system is better than another one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from openconductor.evaluation.headroom import questions_needed
from openconductor.evaluation.statistics import FEWEST, Difference, Estimate, interval_90
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.words import gain_with_interval

Label = Literal[
    "orchestration gain",
    "format gain only",
    "collapse",
    "answers itself",
    "gain by one workflow",
    "same for less",
    "gain by more calls only",
    "no gain",
    "undecided (n too small)",
    "undecided (too much left out)",
    "undecided (not enough to compare with)",
]
Answer = Literal["yes", "no", "open", "left out", "unknown"]
"""The answer to one question of the verdict.

- ``open``: there are too few questions to tell.
- ``left out``: it is a yes only because of what was left out.
- ``unknown``: there is nothing to compare with.
"""
LABELS_WITHOUT_GAIN: dict[Answer, Label] = {
    "no": "no gain",
    "left out": "undecided (too much left out)",
    "open": "undecided (n too small)",
    "unknown": "undecided (not enough to compare with)",
}
"""The label that each answer other than yes leads to, the worst answer first."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The thresholds of the verdict; no option changes them.

    Attributes:
        alpha: the two-sided significance of each comparison of accuracies.
        fewest: the fewest questions on which anything is called better or not better.
        skill_alpha: the significance of the comparison of skill before and after a training.
        margin: a gain worth having; a comparison says no only if it excludes that much.
        form_margin: the same for a learner of form, and for a collapsed system.
        idle: the share of steps without a way to the answer from which the line names it.
        told: the share of answers, beyond chance, from which it matters that they follow the plan
            to another question.
        same: the most accuracy that may be lost where it is the same for less.
        less: the most that it may cost then, the cost of the others being 1.
        unread: the most unread or declined answers with which the planner alone counts.
        dependence_alpha: the significance of the permutation test of dependence on the question.
        dependence_bits: the least information about the question, beyond chance, in bits.
        dependence_questions: the fewest questions on which the permutation test may say no.
        lessons: the fewest questions from which a best fixed workflow is learnt.
        transplants: the fewest plans that are played on other questions; a question without an
            answer has none.
        errors: how much more often other workers make the plan's own errors than its workers do
            without its words, from which the plan may tell answers.
        astray: how far other questions' subtasks must lead workers below none for the same, if the
            errors of enough plans do not show it.
        collapsed: the lower end of one worker's share of the steps from which routing collapsed.
        paired: the fewest questions with valid plans both times on which skill is compared.
        again: how much more alike a plan and the one that is written again must at least be than
            plans of two questions; and how much a second round must lose without a look.
    """

    alpha: float = 0.05
    fewest: int = FEWEST
    skill_alpha: float = 0.01
    margin: float = 0.01
    form_margin: float = 0.10
    idle: float = 0.05
    told: float = 0.02
    same: float = 0.02
    less: float = 0.8
    unread: float = 0.1
    dependence_alpha: float = 0.01
    dependence_bits: float = 0.1
    dependence_questions: int = 100
    lessons: int = 100
    transplants: int = 20
    errors: float = 0.25
    astray: float = 0.15
    collapsed: float = 0.8
    paired: int = 50
    again: float = 0.05


RULES = Rules()
WIDTH_OF_99 = 1.31
"""The width of a 99 % interval as a share of the width of a 95 % interval."""
WIDTH_OF_999 = 1.68
"""The same of a 99.9 % interval."""


class Finding(NamedTuple):
    """The answer to one question of the verdict, its reason, and what would answer it better.

    Attributes:
        answer: the answer.
        reason: its reason.
        questions: the number of questions that may be enough; 0: more would not help.
        system: a system to evaluate, too; "": none would help.
        replays: True if replays of the plans may answer it.
        planning: the number of questions for which asking the planner again may change it.
    """

    answer: Answer
    reason: str
    questions: int = 0
    system: str = ""
    replays: bool = False
    planning: int = 0


class Question(ABC):
    """One question that the verdict asks.

    Attributes:
        name: the question's name in ``--json`` and on the page.
        ends: the answers that end the verdict at once, with its label.
        blocks: the answers with which no gain is looked for.
        needed: True if a gain needs a yes.
    """

    name: ClassVar[str]
    ends: ClassVar[Mapping[Answer, Label]] = {}
    blocks: ClassVar[tuple[Answer, ...]] = ()
    needed: ClassVar[bool] = True

    @abstractmethod
    def ask(self, figures: Orchestration) -> Finding | None:
        """Answer the question; None: it does not arise."""


def is_better(lead: Difference) -> bool:
    """Return True if a lead is shown to be a gain."""
    return lead.p < RULES.alpha and lead.problems >= RULES.fewest and lead.low > 0


def is_no_gain(lead: Difference, margin: float = RULES.margin) -> bool:
    """Return True if a lead of ``margin`` is excluded, on enough questions."""
    return lead.problems >= RULES.fewest and excludes(lead, margin)


def excludes(lead: Difference | Estimate, margin: float) -> bool:
    """Return True if the upper end of the 90 % interval is at most ``margin``.

    This is a one-sided test at 5 %.
    """
    _, high = interval_90(lead)
    return high <= margin


def compare(level: Level, text: str) -> Finding:
    """Answer whether the lead over a level is a gain.

    A gain must also hold if what could not be decided counts as wrong on both sides.

    Args:
        level: the other system.
        text: the lead in words.
    """
    if level.unsure:
        return Finding("unknown", f"{text}; but too many of its answers could not be decided")
    if level.lead is None:
        return Finding("no", text)
    if not is_better(level.lead):
        if is_no_gain(level.lead):
            return Finding("no", text)
        return leave_open(level.lead, text)
    if level.strict is None or is_better(level.strict):
        return Finding("yes", text)
    strict = gain_with_interval(level.strict)
    return Finding("left out", f"{text}; {strict} where what could not be decided counts as wrong")


def leave_open(lead: Difference | Estimate, text: str) -> Finding:
    """Answer *open*, and say how many questions might do."""
    if lead.problems < RULES.fewest:
        reason = f"{text}: too few questions to tell ({lead.problems})"
    else:
        reason = f"{text}: too wide to tell"
    if lead.problems < 2 or (isinstance(lead, Difference) and is_better(lead)):
        return Finding("open", reason)
    count, purpose = _find_questions_needed(lead)
    return Finding("open", f"{reason}; about {count:,} questions would {purpose}", count)


def _find_questions_needed(lead: Difference | Estimate) -> tuple[int, str]:
    """Return how many questions would show the gain that is seen, or exclude one of the margin."""
    margin = RULES.margin
    error = (lead.high - lead.low) / 2 / 1.96
    variance = error**2 * lead.problems
    if lead.value > margin:
        count = max(RULES.fewest, questions_needed(lead.value, variance))
        return count, "show a gain like this one"
    distance = max(margin - lead.value, margin / 2)
    enough = math.ceil(variance * (1.645 / distance) ** 2)
    count = max(RULES.fewest, enough)
    return count, f"exclude a gain of {100 * margin:g} point"


def turn(lead: Difference) -> Difference:
    """Return the difference seen from the other side."""
    return replace(lead, value=-lead.value, low=-lead.high, high=-lead.low)
