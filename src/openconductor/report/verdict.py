"""The verdict: did a Conductor gain by orchestrating? One line and its reasons, by rules written down beforehand.

In: an Orchestration. Out: a Judgement. The rules and their reasons are in ``docs/report.md``; in
short, the first that fits:

1. ``format gain only``: with the untrained Conductor's records: validity rose, accuracy given valid did not.
   Where that is open, a gain is not looked for: it could be of form alone.
2. ``collapse``: one worker gets nearly all steps, and the system is not better than that worker alone (or not shown to
   be, and its plan does not depend on the question).
3. ``answers itself``: its subtasks say the answers that the workers then repeat, or the model that plans is as good
   without any worker.
4. ``orchestration gain``: better than the best single worker as it seems on these very questions; better than a vote of
   that worker at equal cost; better than every other system at equal or lower cost that is no ablation of itself;
   better than the best fixed workflow, or shown by replays to need its own workflow for each question; the workflow
   depends on the question, and nothing shows that the planner answers itself.
5. ``gain by more calls only``: the best worker's vote at equal cost is as good.
6. ``no gain``: another one of these is answered by no.
7. ``undecided``: none is answered by no, but not all by yes: there are too few questions, too much was left out, or
   there is nothing to compare with.

Each question is answered by *yes*, *no*, *open* (too few questions to tell), *left out* (only what
was left out makes it a yes) or *unknown* (nothing to compare with). A comparison is *no* only where
it excludes a gain of one point; what is merely not significant among few questions is *open*. For
*yes* the stricter baseline counts (the best worker on these questions, which flatters it), for *no*
the more lenient one (the best worker on other questions), too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from openconductor.evaluation.eval_config import ALONE, BOUNDS
from openconductor.evaluation.headroom import questions_needed
from openconductor.evaluation.statistics import Difference, Estimate, averaged_interval
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.rivals import LIKE, UNPRICED, Change, Told
from openconductor.report.words import about, points, span

Label = Literal[
    "orchestration gain",
    "format gain only",
    "collapse",
    "answers itself",
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
MARGIN = 0.01
"""A gain worth having: a comparison says no only where the upper end of its 90 % interval is below."""
FORM_MARGIN = 0.10
"""The same of what else a learner of form, or a collapsed one, may have gained."""
OF_90, OF_99 = 0.839, 1.31
"""How wide a 90 % and a 99 % interval are, a 95 % one being 1."""
IDLE = 0.05
"""The share of steps without a way to the answer from which the verdict names it."""
TOLD = 0.02
"""The share of right answers that stand in the plan's own subtasks, beyond chance, from which it matters."""
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
OTHERS = "better than every other system at equal or lower cost"
FIXED = "better than the best fixed workflow"
WORKERS = "the workers answer, not the planner"
DEPENDS = "depends on the question"
FAILED: dict[Answer, Label] = {
    "no": "no gain",
    "left out": "undecided (too much left out)",
    "open": "undecided (n too small)",
    "unknown": "undecided (not enough to compare with)",
}
"""What is concluded from the worst answer, the worst first."""


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
        OTHERS: _over_others(found),
        FIXED: _over_fixed(found),
        WORKERS: _by_workers(found),
        DEPENDS: _depends(found),
    }
    if found.change is not None:
        asked = {FORMAT: _format_only(found.change), **asked}
    label, why = _conclude(asked, found)
    line = f"{label}: {why}{_beside(found)}"
    reasons = tuple(finding.reason for finding in asked.values())
    return Judgement(
        label, line, reasons, {name: finding.answer for name, finding in asked.items()}
    )


def _conclude(asked: dict[str, _Finding], found: Orchestration) -> tuple[Label, str]:
    """The first rule that fits, and why."""
    form, collapsed = asked.get(FORMAT, _Finding("no", "")), asked[COLLAPSE]
    gain = {name: asked[name] for name in (BEST, EQUAL_COST, OTHERS, FIXED, WORKERS, DEPENDS)}
    if found.accuracy is None:
        return (
            "undecided (too much left out)",
            f"none of {found.masked:,} answers of {found.system} could be decided",
        )
    if form.answer == "yes":
        return "format gain only", form.reason + (
            "; routing collapsed, too" if collapsed.answer == "yes" else ""
        )
    if collapsed.answer == "yes":
        return "collapse", collapsed.reason
    if gain[WORKERS].answer == "no":
        return "answers itself", gain[WORKERS].reason
    if form.answer in ("open", "unknown"):
        return FAILED[form.answer], form.reason
    # Plans may differ from question to question and win by what they have in common: one of two
    # must exclude that.
    if gain[FIXED].answer == "unknown" and _needs_own(found):
        gain[FIXED] = _Finding("yes", gain[FIXED].reason)
    answers = {name: finding.answer for name, finding in gain.items()}
    if set(answers.values()) == {"yes"}:
        if found.effort is not None and found.effort.votes == 1:
            del gain[EQUAL_COST]  # the rival at equal cost is the best worker itself
        return "orchestration gain", "; ".join(
            finding.reason for finding in gain.values() if finding.reason
        )
    if answers[BEST] == "yes" and answers[EQUAL_COST] == "no":
        return "gain by more calls only", f"{gain[BEST].reason}, but {gain[EQUAL_COST].reason}"
    said: dict[Answer, list[str]] = {}
    for finding in gain.values():
        said.setdefault(finding.answer, []).append(finding.reason)
    worst: Answer = next(answer for answer in FAILED if answer in said)
    if worst == "open" and "unknown" in said:
        said[worst] += said["unknown"]
    return FAILED[worst], "; ".join(said[worst])


def _beside(found: Orchestration) -> str:
    """What the line adds: where the lead over the best worker is not the same, and steps that are for show."""
    said, best, wasted = "", found.best_single, found.routing.wasted
    if wasted is not None and wasted.value >= IDLE:
        said += f"; {wasted.value:.0%} of its steps cannot reach the answer, and are in no share"
    if not found.parts or best is None or best.lead is None:
        return said
    if best.lead.low > 0:
        most = max(found.parts, key=lambda name: found.parts[name].value)
        rest = [one for name, one in found.parts.items() if name != most]
        low, _ = averaged_interval([(one.value, one.low, one.high) for one in rest])
        said += "" if low > 0 else f"; the gain is carried by {most} ({_points(found.parts[most])})"
    for word, names in (
        ("lost on", [name for name, one in found.parts.items() if one.high < 0]),
        ("not ahead on", [name for name, one in found.parts.items() if one.value <= 0 <= one.high]),
    ):
        shown = [f"{name} ({points(found.parts[name])})" for name in names[:4]]
        shown += [f"{len(names) - 4} more"] if len(names) > 4 else []
        said += f"; {word} {', '.join(shown)}" if shown else ""
    return said


# ── the questions ─────────────────────────────────────────────────────────────────────────────────
def _format_only(changed: Change) -> _Finding:
    if changed.validity is None:
        return _Finding(
            "unknown",
            "validity before and after cannot be compared: no question was planned by both",
        )
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
    return _Finding("yes", said) if _excluded(skill, FORM_MARGIN) else _open(said, skill)


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
        return (
            _Finding("unknown", f"{said}, but {why}") if depends == "yes" else _Finding("yes", said)
        )
    said += f", and the system is {_points(lead)} against that worker alone"
    if _better(lead):
        return _Finding("no", said)
    if _no_gain(lead, MARGIN if depends == "yes" else FORM_MARGIN):
        return _Finding("yes", said)
    return _Finding("yes", f"{said}; {why}") if depends == "no" else _open(said, lead)


def _over_best(found: Orchestration) -> _Finding:
    seeming = found.best_single
    if seeming is None:
        return _Finding(
            "unknown",
            "no worker alone has a decided answer, so there is no best worker to compare with",
        )
    if seeming.lead is None:
        return _nothing_shared(found, seeming)
    said = (
        f"{_points(seeming.lead)} against {seeming.name}, the best worker alone on these questions"
    )
    if found.unasked and _better(seeming.lead):
        return _Finding(
            "unknown", f"{said}; but of the pool {', '.join(found.unasked)} were not asked alone"
        )
    if found.unsure and not _no_gain(seeming.lead):
        failed = ", ".join(name.removeprefix(ALONE) for name in found.unsure)
        why = f"the best worker is not known: too many answers of {failed} could not be decided"
        return _Finding("unknown", f"{said}; but {why}")
    if len(found.tasks) > 1 and (
        lacking := [task for task in found.tasks if task not in found.parts]
    ):
        return _Finding("unknown", f"{said}; but no worker was decided on {', '.join(lacking)}")
    if _better(seeming.lead):
        return _compared(seeming, said)
    lenient = found.best_fitted.lead if found.best_fitted is not None else None
    if lenient is not None:
        said += f" ({points(lenient)} against the best one chosen on other questions)"
        if _better(lenient):
            return _Finding("open", f"{said}: which one counts is not clear")
    if _no_gain(seeming.lead) and (lenient is None or _no_gain(lenient)):
        return _Finding("no", said)
    return _open(said, seeming.lead)


def _at_equal_cost(found: Orchestration) -> _Finding:
    rival = found.effort
    if rival is None or rival.lead is None:
        return _Finding("unknown", "nothing is known of the best worker at equal cost")
    said = (
        f"{_points(rival.lead)} against {rival.name} at {rival.cost:.2f} of the cost ({rival.unit})"
    )
    if rival.unit == UNPRICED:
        return _Finding("unknown", f"{said}: whether that is equal cost cannot be told")
    if rival.enough if _better(rival.lead) else rival.fair:
        known = next((one for one in found.others if one.system == rival.name), None)
        return _compared(
            replace(known, lead=rival.lead) if known else Level(rival.name, None, rival.lead), said
        )
    vote = f"consensus:{rival.worker}?n={round(rival.wanted)}"
    why = f"no vote of the best worker at equal cost was evaluated ({vote} would cost as much)"
    return _Finding(
        "unknown",
        why if rival.wanted > 1 else f"{said}: it costs more, and nothing cheaper was evaluated",
    )


def _over_others(found: Orchestration) -> _Finding:
    """Every other system that costs as much or less must be beaten; what costs more is only named."""
    own = found.system.partition("?")[0]
    named = [one for one in found.others if one.lead is not None and one.system not in BOUNDS]
    rivals = [one for one in named if one.system.partition("?")[0] != own]
    chance = [found.random] if found.random is not None and found.random.lead is not None else []
    fair = [
        *(one for one in rivals if one.cost is None or one.cost <= LIKE),
        *chance,
    ]  # chance at any cost
    dearer = [
        one for one in rivals if one not in fair and one.lead is not None and not _better(one.lead)
    ]
    findings = [
        _compared(one, f"{_points(one.lead)} against {one.name}")
        for one in fair
        if one.lead is not None
    ]
    noted = (
        f"not shown to be better than {', '.join(one.name for one in dearer)}, which cost more"
        if dearer
        else ""
    )
    for answer in FAILED:
        if failed := [finding.reason for finding in findings if finding.answer == answer]:
            return _Finding(answer, "; ".join(failed))
    closest = min((one for one in fair if one not in chance), key=_low, default=None)
    if closest is None:
        return _Finding("yes", noted)
    beaten = (
        f"better than {len(fair)} other systems"
        if len(fair) > 1
        else "better than the other system"
    )
    return _Finding(
        "yes",
        f"{beaten}, {_points(closest.lead)} against {closest.name}" + (noted and f"; {noted}"),
    )


def _over_fixed(found: Orchestration) -> _Finding:
    level = found.best_fixed
    if level is None:
        why = "the evaluation has no best_fixed, so only replays can exclude that a constant plan wins"
        return _Finding("unknown", why)
    if level.lead is None:
        return _nothing_shared(found, level)
    return _compared(level, f"{_points(level.lead)} against the best fixed workflow")


def _by_workers(found: Orchestration) -> _Finding:
    """Whether the workers answer, and not the model that plans."""
    told, later, itself, replays = (
        found.told,
        found.told_later,
        found.planner_alone,
        found.counterfactuals,
    )
    if found.routing.top is None:
        return _Finding("unknown", "no step was planned, so nothing shows that a worker answers")
    if told is not None and _tells(told) and told.lead is not None and not _better(told.lead):
        said = f"of its right answers {told.share:.0%} stand in its own subtasks (by chance {told.by_chance:.0%})"
        return _Finding(
            "no", f"{said}; without these {_points(told.lead)} against the best worker alone"
        )
    if itself is not None and itself.lead is None:
        return _Finding("unknown", "the planner alone has no decided answer to these questions")
    if itself is not None:
        either = "the planner alone or the best worker, whichever is better on each kind"
        for level, name in ((itself, "the planner alone"), (found.by_itself, either)):
            if level is not None and level.lead is not None:
                finding = _compared(level, f"{_points(level.lead)} against {name}")
                if finding.answer != "yes":
                    return finding
        return _Finding("yes", f"{_points(itself.lead)} against the planner alone")
    if later is not None and _tells(later):
        said = f"of its right answers {later.share:.0%} stand in the subtasks of later rounds"
        return _Finding(
            "unknown", f"{said}, maybe from the round before; planner_alone was not asked"
        )
    if replays is not None and replays.strangers is not None and replays.silent is not None:
        swapped, silent = replays.strangers, replays.silent
        said = f"with other workers {_points(swapped)}, with subtasks that say nothing {_points(silent)}"
        if swapped.high < 0:
            return _Finding("yes", said)
        if silent.high < 0:
            why = "any worker will do where the subtasks stay, so the planner may answer itself"
            return _Finding("unknown", f"{said}: {why}; planner_alone was not asked")
    return _Finding("yes", "")


def _depends(found: Orchestration) -> _Finding:
    shuffled, one = _shuffled(found), found.routing.dependence
    replayed = "" if shuffled is None else f"; with another question's workflow {_points(shuffled)}"
    if shuffled is not None:
        own = _turned(shuffled)
        if _no_gain(own):
            return _Finding(
                "no", f"the system does not need its own workflow for each question{replayed}"
            )
        if _better(own):
            return _Finding("yes", f"the workflow is needed by its question{replayed}")
        replayed += (
            ", which is too wide to tell"
            if own.problems >= FEWEST
            else f" ({own.problems} questions)"
        )
    if one is None:
        why = "no replays, no repeats, and one kind of question, or too many"
        return _Finding(
            "unknown",
            f"whether the workflow depends on the question cannot be told: {why}{replayed}",
        )
    beyond = f"{one.excess:.2f} bits about the {about(one.on)} beyond chance"
    said = f"the workflow holds {beyond} (p = {one.p:.3f}){replayed}"
    if one.p <= DEPENDENCE_ALPHA and one.excess >= DEPENDENCE_BITS:
        return _Finding("yes", said)
    if one.workflows == 1:
        always = "the workflow is always the same, but for the order of steps"
        return _Finding("no" if one.problems >= FEWEST else "open", f"{always}: {said}")
    if one.problems >= DEPENDENCE_QUESTIONS:
        asked = (
            "the question"
            if one.on == "question"
            else "the kind of question; replays or repeats would tell more"
        )
        return _Finding(
            "no" if one.on == "question" else "unknown",
            f"nothing ties the workflow to {asked}: {said}",
        )
    few = f"too few questions ({one.problems}) to tell whether the workflow depends on the question"
    return _Finding("open", f"{few}: {said}")


# ── what an interval says ─────────────────────────────────────────────────────────────────────────
def _better(one: Difference) -> bool:
    return one.p < ALPHA and one.problems >= FEWEST and one.low > 0


def _no_gain(one: Difference, margin: float = MARGIN) -> bool:
    return one.problems >= FEWEST and _excluded(one, margin)


def _excluded(one: Difference | Estimate, margin: float) -> bool:
    """Whether a gain of so much is excluded: by the upper end of the 90 % interval, a one-sided test at 5 %."""
    return one.value + OF_90 * (one.high - one.value) <= margin


def _tells(told: Told) -> bool:
    """Whether subtasks say the answers for certain more often than by chance."""
    return told.beyond.value >= TOLD and told.beyond.low > 0


def _low(level: Level) -> float:
    return -1.0 if level.lead is None else level.lead.low


def _turned(one: Difference) -> Difference:
    return replace(one, value=-one.value, low=-one.high, high=-one.low)


def _compared(level: Level, said: str) -> _Finding:
    """Whether the lead over a level is a gain; counted as wrong on both sides, what was left out must not undo it."""
    lead, strict = level.lead, level.strict
    if level.unsure:
        return _Finding("unknown", f"{said}; but too many of its answers could not be decided")
    if lead is None or not _better(lead):
        return _Finding("no", said) if lead is None or _no_gain(lead) else _open(said, lead)
    if strict is None or _better(strict):
        return _Finding("yes", said)
    return _Finding(
        "left out", f"{said}; {_points(strict)} where what could not be decided counts as wrong"
    )


def _open(said: str, one: Difference | Estimate) -> _Finding:
    """Nothing can be said by an interval that may look as if something could; how many questions might do."""
    if one.problems < FEWEST:
        return _Finding(
            "open", f"{said}: too few questions to tell ({one.problems})" + _needed(one)
        )
    return _Finding("open", f"{said}: too wide to tell{_needed(one)}")


def _needed(one: Difference | Estimate) -> str:
    """How many questions would show the gain that is seen, or exclude one of a point."""
    if one.problems < 2 or (isinstance(one, Difference) and _better(one)):
        return ""
    spread = ((one.high - one.low) / 2 / 1.96) ** 2 * one.problems
    if one.value > MARGIN:
        return f"; about {max(FEWEST, questions_needed(one.value, spread)):,} questions would show a gain like this one"
    margin = max(MARGIN - one.value, MARGIN / 2)
    enough = math.ceil(spread * (1.645 / margin) ** 2)
    return (
        f"; about {max(FEWEST, enough):,} questions would exclude a gain of {100 * MARGIN:g} point"
    )


def _nothing_shared(found: Orchestration, level: Level) -> _Finding:
    return _Finding(
        "unknown", f"{found.system} and {level.system} have no decided question in common"
    )


def _shuffled(found: Orchestration) -> Difference | None:
    return found.counterfactuals.shuffled if found.counterfactuals is not None else None


def _needs_own(found: Orchestration) -> bool:
    shuffled = _shuffled(found)
    return shuffled is not None and _better(_turned(shuffled))


def _points(one: Difference | Estimate | None) -> str:
    return f"{points(one)} points (95 % interval {span(one)})"
