"""The verdict: did a Conductor gain by orchestrating? One line and its reasons, by rules written down beforehand.

In: an Orchestration. Out: a Judgement. The rules and their reasons are in ``docs/report.md``; in short, the first that
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

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from openconductor.evaluation.headroom import questions_needed
from openconductor.evaluation.statistics import Difference, Estimate
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.rivals import Change
from openconductor.report.words import about, points, span

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
"""A comparison says no only where so large a gain is excluded: the upper end of its 80 % interval is below."""
OF_80, OF_99 = 0.654, 1.31
"""How wide an 80 % and a 99 % interval are, a 95 % one being 1."""
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
class Judgement:
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


class _Finding(NamedTuple):
    """The answer to one question that was asked of the figures, and its reason."""

    answer: Answer
    reason: str


def judge(found: Orchestration) -> Judgement:
    """Judge the figures of a report by the rules."""
    asked = {
        COLLAPSE: _collapsed(found),
        BEST: _over_best(found),
        EQUAL_COST: _at_equal_cost(found),
        FIXED: _over_fixed(found),
        DEPENDS: _depends(found),
    }
    if found.change is not None:
        asked = {FORMAT: _format_only(found.change), **asked}
    label, why = _conclude(asked, found)
    reasons = tuple(finding.reason for finding in asked.values())
    return Judgement(label, f"{label}: {why}", reasons, {name: finding.answer for name, finding in asked.items()})


def _conclude(asked: dict[str, _Finding], found: Orchestration) -> tuple[Label, str]:
    """The first rule that fits, and why."""
    form, collapsed = asked.get(FORMAT, _Finding("no", "")), asked[COLLAPSE]
    gain = {name: asked[name] for name in (BEST, EQUAL_COST, FIXED, DEPENDS)}
    best, equal, fixed, depends = (finding.answer for finding in gain.values())
    if found.accuracy is None:
        return "undecided (too much left out)", f"none of {found.masked:,} answers of {found.system} could be decided"
    if form.answer == "yes":
        return "format gain only", form.reason + ("; routing collapsed, too" if collapsed.answer == "yes" else "")
    if collapsed.answer == "yes":
        return "collapse", collapsed.reason
    if form.answer == "open":
        return "undecided (n too small)", form.reason
    # Plans may differ from question to question and win by what they have in common: one of two must exclude that.
    own = fixed == "yes" or (fixed == "unknown" and _shuffled(found) is not None)
    if best == "yes" and equal in ("yes", "unknown") and own and depends == "yes":
        if equal == "yes" and found.effort is not None and found.effort.votes == 1:
            del gain[EQUAL_COST]  # the rival at equal cost is the best worker itself
        return "orchestration gain", "; ".join(finding.reason for finding in gain.values())
    if best == "yes" and equal == "no":
        return "gain by more calls only", f"{gain[BEST].reason}, but {gain[EQUAL_COST].reason}"
    said = {finding.answer: finding.reason for finding in reversed(asked.values())}  # the first of each answer
    if "no" in (best, equal, fixed, depends):
        return "no gain", next(finding.reason for finding in gain.values() if finding.answer == "no")
    if "left out" in said:
        return "undecided (too much left out)", said["left out"]
    if "open" in said:
        return "undecided (n too small)", said["open"] + _how_many(found)
    unknown = [finding.reason for finding in gain.values() if finding.answer == "unknown"]
    return "undecided (not enough to compare with)", "; ".join(unknown)


# ── the questions ────────────────────────────────────────────────────────────────────────────────────────────────────
def _format_only(changed: Change) -> _Finding:
    if changed.validity is None:
        return _Finding("unknown", "validity before and after cannot be compared: no question was planned by both")
    said = f"validity {_points(changed.validity)} after the training"
    if not _better(changed.validity):
        return _Finding("no", f"{said}: no gain in format")
    skill = changed.given_valid
    if skill is not None and skill.problems >= PAIRED:
        sure = skill.p < SKILL_ALPHA
        said += f", accuracy given valid {_points(skill)} on the {skill.problems} questions with valid plans both times"
    elif (skill := changed.by_skill) is not None:
        sure = skill.value > OF_99 * (skill.high - skill.low) / 2
        said += f"; better plans bring {_points(skill)}"
    else:
        return _Finding("open", f"{said}, but too few valid plans before it to compare skill")
    if skill.low > 0 and sure:
        return _Finding("no", f"{said}: more than format was learnt")
    if skill.low > 0:
        return _Finding("open", f"{said}: maybe more than format")
    return _Finding("yes", said) if _excluded(skill) else _open(said, skill)


def _collapsed(found: Orchestration) -> _Finding:
    if found.routing.top is None:
        return _Finding("unknown", "no step was planned")
    name, share = found.routing.top
    said = f"{name} gets {share.value:.0%} of the steps ({share.low:.0%} to {share.high:.0%})"
    if share.problems < FEWEST and share.value >= COLLAPSED:
        return _open(said, share)
    if share.low < COLLAPSED:
        return _Finding("no", f"{said}: no worker gets nearly all")
    depends, why = _depends(found)
    lead = found.workers[name].lead if name in found.workers else None
    if lead is None:
        said += "; it was not asked alone, so nothing shows that the system is better"
        return _Finding("unknown", f"{said}, but {why}") if depends == "yes" else _Finding("yes", said)
    said += f", and the system is {_points(lead)} against that worker alone"
    if _better(lead):
        return _Finding("no", said)
    if _no_gain(lead):
        return _Finding("yes", said)
    return _Finding("yes", f"{said}; {why}") if depends == "no" else _open(said, lead)


def _over_best(found: Orchestration) -> _Finding:
    seeming = found.best_single
    if seeming is None:
        return _Finding("unknown", "no worker alone has a decided answer, so there is no best worker to compare with")
    if seeming.lead is None:
        return _nothing_shared(found, seeming)
    said = f"{_points(seeming.lead)} against {seeming.name}, the best worker alone on these questions"
    if _better(seeming.lead):
        if found.unasked:
            return _Finding("unknown", f"{said}; but of the pool {', '.join(found.unasked)} were not asked alone")
        return _compared(seeming, said)
    lenient = found.best_fitted.lead if found.best_fitted is not None else None
    if lenient is not None:
        said += f" ({points(lenient)} against the best one chosen on other questions)"
        if _better(lenient):
            return _Finding("open", f"{said}: which one counts is not clear")
    if _no_gain(seeming.lead) and (lenient is None or _no_gain(lenient) or seeming.lead.high <= 0):
        return _Finding("no", said)
    return _open(said, seeming.lead)


def _at_equal_cost(found: Orchestration) -> _Finding:
    rival = found.effort
    if rival is None or rival.lead is None:
        return _Finding("unknown", "nothing is known of the best worker at equal cost")
    if rival.enough if _better(rival.lead) else rival.fair:
        said = f"{_points(rival.lead)} against {rival.name} at {rival.cost:.2f} of the cost ({rival.unit})"
        return _compared(Level(rival.name, rival.accuracy, rival.lead), said)
    wanted = f"about {rival.wanted:.1f} of its answers cost as much"
    return _Finding("unknown", f"no vote of the best worker at equal cost was evaluated ({wanted})")


def _over_fixed(found: Orchestration) -> _Finding:
    level = found.best_fixed
    if level is None:
        why = "the evaluation has no best_fixed, so only replays can exclude that a constant plan wins"
        return _Finding("unknown", why)
    if level.lead is None:
        return _nothing_shared(found, level)
    return _compared(level, f"{_points(level.lead)} against the best fixed workflow")


def _depends(found: Orchestration) -> _Finding:
    shuffled, one = _shuffled(found), found.routing.dependence
    replayed = "" if shuffled is None else f"; with another question's workflow {_points(shuffled)}"
    if shuffled is not None:
        own = replace(shuffled, value=-shuffled.value, low=-shuffled.high, high=-shuffled.low)
        if not _better(own):
            if own.problems >= FEWEST and _excluded(own):
                return _Finding("no", f"the system does not need its own workflow for each question{replayed}")
            return _open(f"whether the system needs its own workflow for each question{replayed}", own)
        if one is None:
            return _Finding("yes", f"the workflow is needed by its question{replayed}")
    if one is None:
        why = "no replays, no repeats, and one kind of question, or too many"
        return _Finding("unknown", f"whether the workflow depends on the question cannot be told: {why}")
    beyond = f"{one.excess:.2f} bits about the {about(one.on)} beyond chance"
    said = f"the workflow holds {beyond} (p = {one.p:.3f}){replayed}"
    if one.p <= DEPENDENCE_ALPHA and one.excess >= DEPENDENCE_BITS:
        return _Finding("yes", said)
    if one.workflows == 1:
        return _Finding("no" if one.problems >= FEWEST else "open", f"the workflow is always the same: {said}")
    if one.problems >= DEPENDENCE_QUESTIONS:
        return _Finding("no", f"the workflow does not depend on the question: {said}")
    few = f"too few questions ({one.problems}) to tell whether the workflow depends on the question"
    return _Finding("open", f"{few}: {said}")


# ── what an interval says ────────────────────────────────────────────────────────────────────────────────────────────
def _better(one: Difference) -> bool:
    return one.p < ALPHA and one.problems >= FEWEST and one.low > 0


def _no_gain(one: Difference) -> bool:
    return one.problems >= FEWEST and _excluded(one)


def _excluded(one: Difference | Estimate) -> bool:
    """Whether a gain of ten points is excluded."""
    return one.value + OF_80 * (one.high - one.value) <= MARGIN


def _compared(level: Level, said: str) -> _Finding:
    """Whether the lead over a level is a gain; counted as wrong on both sides, what was left out must not undo it."""
    lead, strict = level.lead, level.strict
    if lead is None or not _better(lead):
        return _Finding("no", said) if lead is None or _no_gain(lead) else _open(said, lead)
    if strict is None or _better(strict):
        return _Finding("yes", said)
    return _Finding("left out", f"{said}; {_points(strict)} where what could not be decided counts as wrong")


def _open(said: str, one: Difference | Estimate) -> _Finding:
    """Nothing can be said by an interval that may look as if something could."""
    why = "too wide to tell" if one.problems >= FEWEST else f"too few questions to tell ({one.problems})"
    return _Finding("open", f"{said}: {why}")


def _nothing_shared(found: Orchestration, level: Level) -> _Finding:
    return _Finding("unknown", f"{found.system} and {level.system} have no decided question in common")


def _shuffled(found: Orchestration) -> Difference | None:
    return found.counterfactuals.shuffled if found.counterfactuals is not None else None


def _how_many(found: Orchestration) -> str:
    """How many questions would show the lead that is seen, where it is one."""
    lead = found.best_single.lead if found.best_single is not None else None
    if lead is None or lead.value <= 0 or lead.problems < 2 or _better(lead):
        return ""
    spread = ((lead.high - lead.low) / 2 / 1.96) ** 2 * lead.problems
    enough = max(FEWEST, questions_needed(lead.value, spread))
    return f"; about {enough:,} questions would show a lead like this one"


def _points(one: Difference | Estimate) -> str:
    return f"{points(one)} points (95 % interval {span(one)})"
