"""The questions of the verdict about plans: who answers, and if a question needs its own plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from openconductor.evaluation.statistics import Difference, Estimate
from openconductor.evaluation.strategies import Dependence
from openconductor.report.orchestration import Orchestration
from openconductor.report.plays.again import AGAIN, AgainFigures
from openconductor.report.plays.transplants import PlayFigures
from openconductor.report.verdict.rules import (
    RULES,
    WIDTH_OF_99,
    WIDTH_OF_999,
    Answer,
    Finding,
    Label,
    Question,
    compare,
    excludes,
    is_better,
    is_no_gain,
    leave_open,
)
from openconductor.report.words import about, gain_with_interval


class BetterThanOwnConstant(Question):
    """Is the system better than the best of its own plans, played for all questions?"""

    name = "better than one of its plans for all"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at the lead over the constant, and at the constant's own lead."""
        plays = figures.plays
        lead = None if plays is None else plays.constant
        if plays is None or lead is None:
            reason = "whether one of its plans would do for all questions was not played"
            return Finding("unknown", reason, replays=plays is None)
        text = f"{gain_with_interval(lead)} against one of its own plans for all"
        if is_better(lead):
            return Finding("yes", text)
        constant_lead = plays.constant_lead
        if constant_lead is not None and is_better(constant_lead):
            gained = gain_with_interval(constant_lead)
            return Finding("no", f"{text}, which is {gained} against the best worker alone")
        if is_no_gain(lead):
            return Finding("no", text)
        return leave_open(lead, text)


class WorkersAnswer(Question):
    """Do the workers answer, and not the model that plans?"""

    name = "the workers answer, not the planner"
    ends: ClassVar[Mapping[Answer, Label]] = {"no": "answers itself"}

    def ask(self, figures: Orchestration) -> Finding:
        """Look at transplants of the plans, then at the planner alone."""
        if figures.routing.top is None:
            reason = "no step was planned, so nothing shows that a worker answers"
            return Finding("unknown", reason)
        played = self._look_at_plays(figures)
        if played.answer == "no":
            return played
        alone = self._compare_with_planner(figures)
        if alone is None or alone.answer == "yes":
            return played
        if alone.answer == "unknown" and played.answer != "yes":
            return played
        return alone

    def _look_at_plays(self, figures: Orchestration) -> Finding:
        """Answer by what becomes of the plans on other questions."""
        plays = figures.plays
        if plays is None:
            reason = "whether the planner answers itself is not known: its plans were not replayed"
            return Finding("unknown", reason, replays=True)
        follows = plays.follows
        if follows is None or follows.problems < RULES.transplants:
            reason = "too few plans were played on other questions"
            return Finding("open", reason, max(RULES.fewest, round(1.5 * figures.questions)))
        text = (
            f"on other questions {plays.share:.0%} of its plans bring the answer of their own one "
            f"(by chance {plays.chance:.0%})"
        )
        if follows.value >= RULES.told and _is_above_0(follows, WIDTH_OF_999):
            if plays.remaining is None:
                return Finding("unknown", f"{text}, and there is no worker to compare with")
            text += f"; without these {gain_with_interval(plays.remaining)}"
            if not is_better(plays.remaining):
                return Finding("no", f"{text} against the best worker alone")
        sign = _find_sign_of_key(plays)
        if sign:
            reason = f"{text}, but {sign}: the planner may tell answers by the question"
            return Finding("unknown", reason)
        return Finding("yes", text)

    def _compare_with_planner(self, figures: Orchestration) -> Finding | None:
        """Answer by the planner and its base model alone; None: neither can be read, or exists."""
        alone, base, either = figures.planner_alone, figures.base_alone, figures.by_itself
        if figures.base and base is None:
            reason = "the model that it was trained from was not asked alone"
            return Finding("unknown", reason, system=figures.base)
        known = ((alone, "the planner alone"), (base, "the model that it was trained from"))
        asked = [(level, name) for level, name in known if level is not None]
        if not asked:
            return None
        for level, name in asked:
            if level.lead is None:
                return Finding("unknown", f"{name} has no decided answer to these questions")
        rivals = [rival for rival in asked if rival[0].unread <= RULES.unread]
        if either is not None:
            rivals.append((either, "the planner where it answers, or the best worker"))
        findings: list[Finding] = []
        for level, name in rivals:
            if level.lead is not None:
                text = f"{gain_with_interval(level.lead)} against {name}"
                findings.append(compare(level, text))
        failed = [finding for finding in findings if finding.answer != "yes"]
        return next(iter(failed + findings), None)


def _is_above_0(number: Estimate, width: float) -> bool:
    """Return True if an interval ``width`` times as wide still lies above 0."""
    return number.value > width * (number.value - number.low)


def _find_sign_of_key(plays: PlayFigures) -> str:
    """Return the sign that answers are told in a way that hangs on the question; "": none."""
    strangers, silence, astray, errors = plays.strangers, plays.silence, plays.astray, plays.errors
    if silence is None or not is_better(silence):
        return ""
    limit = 0.0
    if errors is not None and errors.problems >= RULES.transplants:
        limit = -RULES.astray
        if errors.value >= RULES.errors and _is_above_0(errors, WIDTH_OF_99):
            return f"other workers make the errors of its plans ({errors.value:+.0%})"
    if strangers is None or astray is None or strangers.high < 0:
        return ""
    if astray.value > limit or astray.high >= 0:
        return ""
    return "other subtasks lead workers astray, and any worker will do where its own stay"


class DependsOnQuestion(Question):
    """Does the workflow depend on the question?"""

    name = "depends on the question"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at plays of whole plans, else at information in bits."""
        if figures.plays is not None:
            return _judge_need(figures.plays, figures.questions)
        dependence = figures.routing.dependence
        if dependence is None:
            reason = (
                "whether the workflow depends on the question cannot be told: "
                "no replays, no repeats, and one kind of question, or too many"
            )
            return Finding("unknown", reason, replays=True)
        finding = self._judge_bits(dependence)
        if finding.answer == "no" and figures.routing.plans > 1:
            # Plans differ in their words, or in a later round.
            reason = f"{finding.reason}; whether its words do was not played"
            return Finding("unknown", reason, replays=True)
        return finding._replace(replays=True)

    def _judge_bits(self, dependence: Dependence) -> Finding:
        """Answer by the information that workflows hold about their questions."""
        bits = f"{dependence.excess:.2f} bits about the {about(dependence.on)} beyond chance"
        text = f"the workflow holds {bits} (p = {dependence.p:.3f})"
        significant = dependence.p <= RULES.dependence_alpha
        if significant and dependence.excess >= RULES.dependence_bits:
            return Finding("yes", text)
        if dependence.workflows == 1:
            answer: Answer = "no" if dependence.problems >= RULES.fewest else "open"
            reason = "the workflow is always the same, but for the order of steps"
            return Finding(answer, f"{reason}: {text}")
        if dependence.problems < RULES.dependence_questions:
            reason = (
                f"too few questions ({dependence.problems}) to tell "
                "whether the workflow depends on the question"
            )
            return Finding("open", f"{reason}: {text}", RULES.dependence_questions)
        if dependence.on == "question":
            return Finding("no", f"nothing ties the workflow to the question: {text}")
        reason = (
            "nothing ties the workflow to the kind of question; replays or repeats would tell more"
        )
        return Finding("unknown", f"{reason}: {text}")


def _judge_need(plays: PlayFigures, questions: int = 0) -> Finding:
    """Answer by the loss with another question's shape, and with other words in the own shape.

    What is needed must be planned again where the planner is asked again; ``questions`` is the
    number for which it can be.
    """
    shape, words, silence = plays.shape, plays.words, plays.silence
    if shape is None or words is None or silence is None:
        return Finding("unknown", "no two questions of a task were played with each other's plans")
    text = (
        f"its shape brings {gain_with_interval(shape)} over another question's; its words "
        f"{gain_with_interval(words)} over another question's, and {gain_with_interval(silence)} "
        "over none"
    )
    by_shape, by_words = is_better(shape), is_better(words) and is_better(silence)
    if by_shape or by_words:
        text = f"each question needs its own plan: {text}"
        if plays.again is None:
            text += "; planning was not repeated"
            return Finding("yes", text, planning=min(AGAIN, questions))
        needed = [plays.again.shape] if by_shape else []
        needed += [plays.again.words] if by_words else []
        finding = _look_at_repeats(max(needed, key=_lower_end), questions)
        return finding._replace(reason=f"{text}; {finding.reason}{_look(plays.again)}")
    if is_no_gain(shape) and (is_no_gain(words) or is_no_gain(silence)):
        return Finding("no", f"no question needs its own plan: {text}")
    closest = max((shape, min((words, silence), key=_value)), key=_value)
    return leave_open(closest, f"whether each question needs its own plan is open: {text}")


def _look_at_repeats(excess: Estimate, questions: int) -> Finding:
    """Answer whether a plan is more like the one written again than like other questions' plans."""
    asked = excess.problems
    text = (
        f"asked again for {asked} questions, its planner writes plans that are more like the own "
        f"ones than like those of other questions by {gain_with_interval(excess)}"
    )
    if asked >= RULES.fewest and _is_above_0(excess, WIDTH_OF_99):
        return Finding("yes", text)
    if excludes(excess, RULES.again):
        return Finding("no", f"{text}: plans are drawn by chance")
    more = questions if asked < questions else 0
    return Finding("open", f"{text}: too wide to tell", planning=more)


def _look(again: AgainFigures) -> str:
    """Say what a second round gains by what it sees; "": there is none."""
    if again.look is None:
        return ""
    text = f"; what its second rounds see brings them {gain_with_interval(again.look)}"
    return f"{text}: the look is no reason" if is_no_gain(again.look, RULES.again) else text


def _value(lead: Difference) -> float:
    return lead.value


def _lower_end(excess: Estimate) -> float:
    return excess.low


def needs_own_plan(figures: Orchestration) -> bool:
    """Return True if replays show that each question needs its own plan."""
    return figures.plays is not None and _judge_need(figures.plays).answer == "yes"
