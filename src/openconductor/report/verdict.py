"""The verdict: did a Conductor gain by orchestrating? One line and its reasons, by rules written down beforehand.

In: an Orchestration. Out: a Verdict. The rules and their reasons stand in ``docs/report.md``; in short, the first that
fits:

1. ``format gain only``: with the untrained Conductor's records: validity rose, accuracy given valid did not.
   Where that is open, a gain is not looked for: it could be of form alone.
2. ``collapse``: one worker gets nearly all steps, and the system is not better than that worker alone (or not shown to
   be, and its plan does not depend on the question).
3. ``orchestration gain``: better than the best single worker as it seems on these very questions; better than a vote of
   that worker at equal cost, where one is known; better than the best fixed workflow, or shown by replays to need its
   own workflow for each question; and the workflow depends on the question.
4. ``gain by more calls only``: the best worker's vote at equal cost is as good.
5. ``no gain``: another one of these is answered by no.
6. ``undecided``: none is answered by no, but not all by yes: there are too few questions, too much was left out, or
   there is nothing to compare with.

Each question is answered by *yes*, *no*, *open* (too few questions to tell), *left out* (only what was left out makes
it a yes) or *unknown* (nothing to compare with). A comparison is *no* only where it excludes a gain of ten points; what
is merely not significant among few questions is *open*. For *yes* the stricter baseline counts (the best worker on
these questions, which flatters it), for *no* the more lenient one (the best worker on other questions), too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from openconductor.evaluation.headroom import questions_needed
from openconductor.evaluation.statistics import Difference, Estimate
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.words import points, span

Label = Literal[
    "orchestration gain",
    "format gain only",
    "collapse",
    "gain by more calls only",
    "no gain",
    "undecided (n too small)",
    "undecided (too much left out)",
    "undecided (not enough to compare with)",
]
Answer = Literal["yes", "no", "open", "left out", "unknown"]

ALPHA = 0.05
"""Of each comparison of accuracies, two-sided."""
FEWEST = 30
"""The fewest questions on which anything is said to be better, or not: below, intervals do not hold what they claim."""
SKILL_ALPHA = 0.01
"""Of the comparison of skill before and after a training, for it to be more than format."""
MARGIN = 0.10
"""A comparison says no only where so large a gain is excluded: the upper end of its 80 % interval lies below."""
OF_80 = 0.654
"""How wide an 80 % interval is, a 95 % one being 1."""
DEPENDENCE_ALPHA = 0.01
"""Of the permutation test that the workflow depends on the question."""
DEPENDENCE_BITS = 0.1
"""The least information, beyond chance, that a workflow must hold about its question."""
DEPENDENCE_QUESTIONS = 100
"""The fewest questions for the permutation test to say no."""
COLLAPSED = 0.8
"""The share of steps that one worker gets for certain (the lower end of its interval) where routing has collapsed."""
PAIRED = 50
"""The fewest questions with valid plans before and after for skill to be compared on these."""


FORMAT = "format only"
COLLAPSE = "collapsed onto one worker"
BEST = "better than the best worker"
EQUAL_COST = "better than the best worker at equal cost"
FIXED = "better than the best fixed workflow"
DEPENDS = "depends on the question"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the figures say.

    Attributes:
        label: one of ``Label``.
        line: the label and the main reason, in one line.
        reasons: every question that was asked of the figures, with its answer.
        answers: the same for programs.
    """

    label: Label
    line: str
    reasons: tuple[str, ...]
    answers: dict[str, Answer]

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Finding:
    """One question that was asked of the figures."""

    name: str
    answer: Answer
    reason: str


def judge(found: Orchestration) -> Verdict:
    """Judge the figures of a report by the rules."""
    collapsed = _Finding(COLLAPSE, *_collapsed(found))
    gain = [
        _Finding(BEST, *_over_best(found)),
        _Finding(EQUAL_COST, *_at_equal_cost(found)),
        _Finding(FIXED, *_over_fixed(found)),
        _Finding(DEPENDS, *_depends(found)),
    ]
    asked = [collapsed, *gain]
    if found.change is not None:
        asked.insert(0, _Finding(FORMAT, *_format_only(found)))
    label, why = _conclude(asked, gain, found)
    answers: dict[str, Answer] = {finding.name: finding.answer for finding in asked}
    return Verdict(label, f"{label}: {why}", tuple(finding.reason for finding in asked), answers)


def _conclude(asked: Sequence[_Finding], gain: Sequence[_Finding], found: Orchestration) -> tuple[Label, str]:
    """The first rule that fits, and why."""
    if found.accuracy is None:
        return "undecided (too much left out)", f"none of {found.masked:,} answers of {found.system} could be decided"
    answered = {finding.name: finding for finding in asked}
    form, collapsed = answered.get(FORMAT), answered[COLLAPSE]
    if form is not None and form.answer == "yes":
        return "format gain only", form.reason + ("; routing collapsed, too" if collapsed.answer == "yes" else "")
    if collapsed.answer == "yes":
        return "collapse", collapsed.reason
    if form is not None and form.answer == "open":
        return "undecided (n too small)", form.reason
    if _all_hold(answered, found):
        alone = found.effort is not None and found.effort.votes == 1 and answered[EQUAL_COST].answer == "yes"
        told = [finding.reason for finding in gain if finding.name != EQUAL_COST or not alone]
        return "orchestration gain", "; ".join(told)
    if answered[BEST].answer == "yes" and answered[EQUAL_COST].answer == "no":
        return "gain by more calls only", f"{answered[BEST].reason}, but {answered[EQUAL_COST].reason}"
    for answer, label in _LEFT:
        for finding in gain if answer == "no" else asked:
            if finding.answer == answer:
                return label, finding.reason + (_how_many(found) if answer == "open" else "")
    reasons = [finding.reason for finding in gain if finding.answer == "unknown"]
    return "undecided (not enough to compare with)", "; ".join(reasons)


_LEFT: tuple[tuple[Answer, Label], ...] = (
    ("no", "no gain"),
    ("left out", "undecided (too much left out)"),
    ("open", "undecided (n too small)"),
)
"""What an answer makes of the verdict where no gain is shown, the first first."""


def _all_hold(answered: Mapping[str, _Finding], found: Orchestration) -> bool:
    """Whether a gain is shown, and shown to come from plans that fit their questions."""
    if answered[BEST].answer != "yes" or answered[DEPENDS].answer != "yes":
        return False
    # Plans may differ from question to question and win by what they have in common: one of two must exclude that.
    own = answered[FIXED].answer == "yes" or (answered[FIXED].answer == "unknown" and _shuffled(found) is not None)
    return own and answered[EQUAL_COST].answer in ("yes", "unknown")


# ── the questions ────────────────────────────────────────────────────────────────────────────────────────────────────
def _format_only(found: Orchestration) -> tuple[Answer, str]:
    changed = found.change
    assert changed is not None
    if changed.validity is None:
        return "unknown", "validity before and after cannot be compared: no question was planned by both"
    rose = _better(changed.validity)
    said = f"validity {_points(changed.validity)} after the training"
    if not rose:
        return "no", f"{said}: no gain in format"
    skill = changed.given_valid
    if skill is not None and skill.problems >= PAIRED:
        said += f", accuracy given valid {_points(skill)} on the {skill.problems} questions with valid plans both times"
        return _not_skill(said, skill, sure=skill.p < SKILL_ALPHA)
    if changed.by_skill is None:
        return "open", f"{said}, but too few valid plans before it to compare skill"
    skill = changed.by_skill
    said += f"; better plans bring {_points(skill)}"
    # The interval at 99 % is 1.31 times as wide as that at 95 %.
    return _not_skill(said, skill, sure=skill.value > 1.31 * (skill.high - skill.low) / 2)


def _not_skill(said: str, skill: Difference | Estimate, *, sure: bool) -> tuple[Answer, str]:
    """Whether nothing but format was learnt, by the interval of what skill brings."""
    if skill.low > 0:
        return ("no", f"{said}: more than format was learnt") if sure else ("open", f"{said}: maybe more than format")
    none = skill.high <= 0 or _excluded(skill.value, skill.high)
    return ("yes", said) if none else ("open", f"{said}: {_doubt(skill)}")


def _collapsed(found: Orchestration) -> tuple[Answer, str]:
    top = found.routing.top
    if top is None:
        return "unknown", "no step was planned"
    name, share = top
    said = f"{name} gets {share.value:.0%} of the steps ({share.low:.0%} to {share.high:.0%})"
    if share.low < COLLAPSED:
        few = share.value >= COLLAPSED and share.problems < FEWEST
        return ("open", f"{said}: {_doubt(share)}") if few else ("no", f"{said}: no worker gets nearly all")
    if share.problems < FEWEST:
        return "open", f"{said}: {_doubt(share)}"
    lead = found.over_worker(name)
    if lead is None:
        said += "; it was not asked alone, so nothing shows that the system is better"
        depends, why = _depends(found)
        return ("unknown", f"{said}, but {why}") if depends == "yes" else ("yes", said)
    said += f", and the system is {_points(lead)} against that worker alone"
    if _better(lead):
        return "no", said
    if _no_gain(lead):
        return "yes", said
    depends, why = _depends(found)
    return ("yes", f"{said}; {why}") if depends == "no" else ("open", f"{said}: {_doubt(lead)}")


def _over_best(found: Orchestration) -> tuple[Answer, str]:
    seeming, fitted = found.best_single, found.best_fitted
    if seeming is None:
        return "unknown", "no worker alone has a decided answer, so there is no best worker to compare with"
    if seeming.lead is None:
        return "unknown", f"{found.system} and {seeming.system} have no decided question in common"
    name = seeming.system.partition(":")[2] or seeming.system
    said = f"{_points(seeming.lead)} against {name}, the best worker alone on these questions"
    if _better(seeming.lead):
        if found.unasked:
            return "unknown", f"{said}; but of the pool {', '.join(found.unasked)} were not asked alone"
        return _held(seeming, said)
    lenient = fitted.lead if fitted is not None else None
    if lenient is not None:
        said += f" ({points(lenient)} against the best one chosen on other questions)"
        if _better(lenient):
            return "open", f"{said}: which one counts is not clear"
    if _no_gain(seeming.lead) and (lenient is None or _no_gain(lenient) or seeming.lead.high <= 0):
        return "no", said
    return "open", f"{said}: {_doubt(seeming.lead)}"


def _at_equal_cost(found: Orchestration) -> tuple[Answer, str]:
    rival = found.effort
    if rival is None or rival.lead is None:
        return "unknown", "nothing is known of the best worker at equal cost"
    said = f"{_points(rival.lead)} against {rival.name} at {rival.cost:.2f} of the cost ({rival.unit})"
    better = _better(rival.lead)
    if (better and rival.enough) or (not better and rival.fair):
        return ("yes", said) if better else _not_better(rival.lead, said)
    return "unknown", (
        f"no vote of the best worker at equal cost was evaluated (about {rival.wanted:.1f} of its answers cost as much)"
    )


def _over_fixed(found: Orchestration) -> tuple[Answer, str]:
    level = found.best_fixed
    if level is not None and level.lead is None:
        return "unknown", f"{found.system} and best_fixed have no decided question in common"
    if level is None or level.lead is None:
        return "unknown", "the evaluation has no best_fixed, so only replays can exclude that a constant plan wins"
    said = f"{_points(level.lead)} against the best fixed workflow"
    return _held(level, said) if _better(level.lead) else _not_better(level.lead, said)


def _held(level: Level, said: str) -> tuple[Answer, str]:
    """Whether a lead outlives what was left out: counted as wrong on both sides, it must be there still."""
    if level.strict is None or _better(level.strict):
        return "yes", said
    return "left out", f"{said}; {_points(level.strict)} where what could not be decided counts as wrong"


def _shuffled(found: Orchestration) -> Difference | None:
    return found.counterfactuals.shuffled if found.counterfactuals is not None else None


def _depends(found: Orchestration) -> tuple[Answer, str]:
    shuffled = _shuffled(found)
    fewer = ""
    if shuffled is not None:
        fewer = f"; with another question's workflow {_points(shuffled)}"
        if not (_significant(shuffled) and shuffled.high < 0):
            if shuffled.problems >= FEWEST and _excluded(-shuffled.value, -shuffled.low):
                return "no", f"the system does not need its own workflow for each question{fewer}"
            return "open", f"whether the system needs its own workflow for each question{fewer}: {_doubt(shuffled)}"
    one = found.routing.dependence
    if one is None:
        if shuffled is not None:
            return "yes", f"the workflow is needed by its question{fewer}"
        return "unknown", (
            "whether the workflow depends on the question cannot be told: no replays, no repeats, and one kind of "
            "question, or too many"
        )
    said = (
        f"the workflow holds {one.excess:.2f} bits about the {'kind of question' if one.on == 'kind' else 'question'} "
        f"beyond chance (p = {one.p:.3f}){fewer}"
    )
    if one.p <= DEPENDENCE_ALPHA and one.excess >= DEPENDENCE_BITS:
        return "yes", said
    if one.workflows == 1:
        return "no" if one.problems >= FEWEST else "open", f"the workflow is always the same: {said}"
    if one.problems >= DEPENDENCE_QUESTIONS:
        return "no", f"the workflow does not depend on the question: {said}"
    return "open", f"too few questions ({one.problems}) to tell whether the workflow depends on the question: {said}"


def _how_many(found: Orchestration) -> str:
    """How many questions would show the lead that is seen, where it is one."""
    lead = found.best_single.lead if found.best_single is not None else None
    if lead is None or lead.value <= 0 or lead.problems < 2 or _better(lead):
        return ""
    spread = ((lead.high - lead.low) / 2 / 1.96) ** 2 * lead.problems
    enough = max(FEWEST, questions_needed(lead.value, spread))
    return f"; about {enough:,} questions would show a lead like this one"


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _significant(one: Difference) -> bool:
    return one.p < ALPHA and one.problems >= FEWEST


def _better(one: Difference) -> bool:
    return _significant(one) and one.low > 0


def _no_gain(one: Difference) -> bool:
    return one.problems >= FEWEST and (one.high <= 0 or _excluded(one.value, one.high))


def _excluded(value: float, high: float) -> bool:
    """Whether a gain of ten points is excluded."""
    return value + OF_80 * (high - value) <= MARGIN


def _not_better(one: Difference, said: str) -> tuple[Answer, str]:
    return ("no", said) if _no_gain(one) else ("open", f"{said}: {_doubt(one)}")


def _doubt(one: Difference | Estimate) -> str:
    """Why nothing can be said by an interval that may look as if something could."""
    return "too wide to tell" if one.problems >= FEWEST else f"too few questions to tell ({one.problems})"


def _points(one: Difference | Estimate) -> str:
    return f"{points(one)} points (95 % interval {span(one)})"
