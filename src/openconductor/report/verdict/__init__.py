"""The verdict: did a Conductor gain by orchestrating? One line and its reasons.

``judge`` asks the ``QUESTIONS`` of the figures of a report and concludes by rules that were written
down beforehand. ``docs/report.md`` has the rules and their reasons, ``rules`` the thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openconductor.evaluation.statistics import averaged_interval
from openconductor.report.orchestration import Orchestration
from openconductor.report.plays.again import AGAIN
from openconductor.report.verdict.plan_questions import (
    BetterThanOwnConstant,
    DependsOnQuestion,
    WorkersAnswer,
    needs_own_plan,
)
from openconductor.report.verdict.rules import (
    LABELS_WITHOUT_GAIN,
    RULES,
    Answer,
    Finding,
    Label,
    Question,
    is_better,
)
from openconductor.report.verdict.verdict_questions import (
    BetterAtEqualCost,
    BetterThanBest,
    BetterThanFixed,
    BetterThanOthers,
    Collapsed,
    FormatOnly,
    SameForLess,
)
from openconductor.report.words import gain_with_interval, points

QUESTIONS: tuple[Question, ...] = (
    FormatOnly(),
    Collapsed(),
    BetterThanBest(),
    BetterAtEqualCost(),
    BetterThanOthers(),
    BetterThanFixed(),
    BetterThanOwnConstant(),
    WorkersAnswer(),
    DependsOnQuestion(),
    SameForLess(),
)
"""The questions, in the order of the rules: an earlier one ends the verdict before a later one."""
MOST_PARTS = 4
"""The most tasks or kinds that the line names."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What further calls could add to an undecided verdict, or take from a gain.

    Attributes:
        systems: systems to evaluate, too.
        questions: the number of questions to ask in all; 0: as many as were asked.
        answers: True if answers failed, or were not asked, that may decide it.
        replays: True if the plans should be replayed.
        planning: the number of questions for which the planner should be asked again.
    """

    systems: tuple[str, ...] = ()
    questions: int = 0
    answers: bool = False
    replays: bool = False
    planning: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a report's figures.

    Attributes:
        label: one of ``Label``.
        line: the label and the main reason, in one line.
        reasons: the reason of each answer, in the order of ``answers``.
        answers: the answer to each question that was asked, by its name.
        missing: what could decide it, or test a gain; None: nothing.
    """

    label: Label
    line: str
    reasons: tuple[str, ...]
    answers: dict[str, Answer]
    missing: Missing | None = None


def judge(figures: Orchestration) -> Judgement:
    """Judge the figures of a report by the rules."""
    findings: dict[str, Finding] = {}
    for question in QUESTIONS:
        finding = question.ask(figures)
        if finding is not None:
            findings[question.name] = finding
    label, reason = _conclude(figures, findings)
    return Judgement(
        label=label,
        line=f"{label}: {reason}{_idle_steps(figures)}{_uneven_lead(figures)}",
        reasons=tuple(finding.reason for finding in findings.values()),
        answers={name: finding.answer for name, finding in findings.items()},
        missing=_find_missing(figures, label, findings),
    )


def _find_missing(
    figures: Orchestration, label: Label, findings: Mapping[str, Finding]
) -> Missing | None:
    """Return what would answer the questions that are not answered, or test a gain."""
    planning = max(finding.planning for finding in findings.values()) if figures.planner else 0
    if label == "orchestration gain" and planning:
        return Missing(planning=planning)
    if not label.startswith("undecided"):
        return None
    needed = [finding for name, finding in findings.items() if name != SameForLess.name]
    unanswered = [finding for finding in needed if finding.answer in ("open", "unknown")]
    systems = dict.fromkeys(finding.system for finding in unanswered if finding.system)
    missing = Missing(
        systems=tuple(systems),
        questions=max((finding.questions for finding in unanswered), default=0),
        answers=label == "undecided (too much left out)",
        replays=any(finding.replays for finding in unanswered),
    )
    is_repeated = figures.plays is not None and figures.plays.again is not None
    if figures.planner and missing != Missing() and not is_repeated:
        planning = min(AGAIN, max(figures.questions, missing.questions))
    return replace(missing, planning=planning)


def _conclude(figures: Orchestration, findings: Mapping[str, Finding]) -> tuple[Label, str]:
    """Return the label of the first rule that fits, and the reason."""
    if figures.accuracy is None:
        reason = f"none of {figures.masked:,} answers of {figures.system} could be decided"
        return "undecided (too much left out)", reason
    asked = [question for question in QUESTIONS if question.name in findings]
    for question in asked:
        finding = findings[question.name]
        if finding.answer in question.ends:
            label, reason = question.ends[finding.answer], finding.reason
            if label == "format gain only" and findings[Collapsed.name].answer == "yes":
                reason += "; routing collapsed, too"
            return label, reason
    for question in asked:
        finding = findings[question.name]
        if finding.answer in question.blocks:
            return LABELS_WITHOUT_GAIN[finding.answer], finding.reason
    needed = {question.name: findings[question.name] for question in asked if question.needed}
    fixed = needed[BetterThanFixed.name]
    if figures.best_fixed is None and needs_own_plan(figures):
        # Plans may differ from question to question and win by what they have in common: either
        # the best fixed workflow or replays must exclude that.
        needed[BetterThanFixed.name] = Finding("yes", fixed.reason)
    return _look_for_gain(figures, needed, findings[SameForLess.name])


def _look_for_gain(
    figures: Orchestration, needed: dict[str, Finding], for_less: Finding
) -> tuple[Label, str]:
    """Conclude from the questions that a gain needs, and from the same for less."""
    by_answer: dict[Answer, list[str]] = {}
    for finding in needed.values():
        by_answer.setdefault(finding.answer, []).append(finding.reason)
    if by_answer.keys() == {"yes"}:
        if figures.effort is not None and figures.effort.votes == 1:
            # The rival at equal cost is the best worker itself.
            del needed[BetterAtEqualCost.name]
        reasons = [finding.reason for finding in needed.values() if finding.reason]
        return "orchestration gain", "; ".join(reasons)
    constant = needed[BetterThanOwnConstant.name]
    if constant.answer == "no" and _is_gain_by_one_workflow(figures, needed):
        return (
            "gain by one workflow",
            f"{needed[BetterThanBest.name].reason}, but {constant.reason}",
        )
    if for_less.answer == "yes" and needed[WorkersAnswer.name].answer == "yes":
        return "same for less", for_less.reason
    best, equal_cost = needed[BetterThanBest.name], needed[BetterAtEqualCost.name]
    if best.answer == "yes" and equal_cost.answer == "no":
        return "gain by more calls only", f"{best.reason}, but {equal_cost.reason}"
    worst: Answer = next(answer for answer in LABELS_WITHOUT_GAIN if answer in by_answer)
    reasons = by_answer[worst]
    if worst == "open":
        reasons = reasons + by_answer.get("unknown", [])
    return LABELS_WITHOUT_GAIN[worst], "; ".join(reasons)


def _is_gain_by_one_workflow(figures: Orchestration, needed: Mapping[str, Finding]) -> bool:
    """Return True if one plan for all gains, and all that has nothing to do with it is a yes."""
    constant_lead = None if figures.plays is None else figures.plays.constant_lead
    if constant_lead is None or not is_better(constant_lead):
        return False
    others = dict(needed)
    del others[BetterThanOwnConstant.name], others[DependsOnQuestion.name]
    if figures.best_fixed is None:
        del others[BetterThanFixed.name]
    return all(finding.answer == "yes" for finding in others.values())


# ── what the line adds ────────────────────────────────────────────────────────────────────────────
def _idle_steps(figures: Orchestration) -> str:
    """Say how many steps are for show; "" if next to none are."""
    wasted = figures.routing.wasted
    if wasted is None or wasted.value < RULES.idle:
        return ""
    return f"; {wasted.value:.0%} of its steps cannot reach the answer, and are in no share"


def _uneven_lead(figures: Orchestration) -> str:
    """Say on which tasks or kinds the lead over the best worker is carried, lost or absent."""
    parts, best = figures.parts, figures.best_single
    if not parts or best is None or best.lead is None:
        return ""
    text = ""
    if best.lead.low > 0:
        largest = max(parts, key=lambda name: parts[name].value)
        rest = [lead for name, lead in parts.items() if name != largest]
        low, _ = averaged_interval(rest)
        if low <= 0:
            lead = gain_with_interval(parts[largest])
            text += f"; the gain is carried by {largest} ({lead})"
    lost = [name for name, lead in parts.items() if lead.high < 0]
    level = [name for name, lead in parts.items() if lead.value <= 0 <= lead.high]
    text += _list_parts("lost on", lost, figures)
    text += _list_parts("not ahead on", level, figures)
    return text


def _list_parts(word: str, names: Sequence[str], figures: Orchestration) -> str:
    if not names:
        return ""
    shown = [f"{name} ({points(figures.parts[name])})" for name in names[:MOST_PARTS]]
    if len(names) > MOST_PARTS:
        shown.append(f"{len(names) - MOST_PARTS} more")
    return f"; {word} {', '.join(shown)}"
