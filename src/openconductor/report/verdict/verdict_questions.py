"""The questions of the verdict: one class each, which answers it from the figures of a report.

``QUESTIONS`` in ``verdict`` is the table of them. ``docs/report.md`` gives the reason of each rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from openconductor.evaluation.eval_config import ALONE, BOUNDS, WORKERS
from openconductor.evaluation.statistics import Difference, Estimate, interval_90
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.rivals import FEWEST_VOTES, LIKE
from openconductor.report.verdict.plan_questions import DependsOnQuestion
from openconductor.report.verdict.rules import (
    LABELS_WITHOUT_GAIN,
    RULES,
    WIDTH_OF_99,
    Answer,
    Finding,
    Label,
    Question,
    compare,
    excludes,
    is_better,
    is_no_gain,
    leave_open,
    turn,
)
from openconductor.report.words import gain_with_interval

ABLATIONS = frozenset(("one_worker", "subtasks", "examples", "access", "rounds", "sequential"))
"""The options of a Conductor that take something away (``baselines.rewired``)."""


class FormatOnly(Question):
    """Did validity alone rise with the training?"""

    name = "format only"
    ends: ClassVar[Mapping[Answer, Label]] = {"yes": "format gain only"}
    blocks = ("open", "unknown")
    needed = False

    def ask(self, figures: Orchestration) -> Finding | None:
        """Compare validity, then skill, before and after the training."""
        change = figures.change
        if change is None:
            return None
        if change.validity is None:
            reason = "validity before and after cannot be compared: no question was planned by both"
            return Finding("unknown", reason)
        text = f"validity {gain_with_interval(change.validity)} after the training"
        if not is_better(change.validity):
            return Finding("no", f"{text}: no gain in format")
        paired = change.given_valid
        if paired is not None and paired.problems >= RULES.paired:
            text += (
                f", accuracy given valid {gain_with_interval(paired)} on the {paired.problems} "
                "questions with valid plans both times"
            )
            return _judge_skill(paired, significant=paired.p < RULES.skill_alpha, text=text)
        skill = change.by_skill
        if skill is None:
            return Finding("open", f"{text}, but too few valid plans before it to compare skill")
        text += f"; better plans bring {gain_with_interval(skill)}"
        half_width = WIDTH_OF_99 * (skill.high - skill.low) / 2
        return _judge_skill(skill, significant=skill.value > half_width, text=text)


def _judge_skill(skill: Difference | Estimate, *, significant: bool, text: str) -> Finding:
    """Answer whether the training gained form alone, by what it gained in skill."""
    if skill.low > 0 and significant:
        return Finding("no", f"{text}: more than format was learnt")
    if skill.low > 0:
        return Finding("open", f"{text}: maybe more than format")
    if excludes(skill, RULES.form_margin):
        return Finding("yes", text)
    return leave_open(skill, text)


class Collapsed(Question):
    """Does one worker get nearly all steps, without a gain over that worker alone?"""

    name = "collapsed onto one worker"
    ends: ClassVar[Mapping[Answer, Label]] = {"yes": "collapse"}
    blocks = ("open",)
    needed = False

    def ask(self, figures: Orchestration) -> Finding:
        """Look at the largest share of steps, then at the lead over that worker."""
        if figures.routing.top is None:
            return Finding("unknown", "no step was planned")
        name, share = figures.routing.top
        text = f"{name} gets {share.value:.0%} of the steps ({share.low:.0%} to {share.high:.0%})"
        if share.problems < RULES.fewest and share.value >= RULES.collapsed:
            return leave_open(share, text)
        if share.low < RULES.collapsed:
            return Finding("no", f"{text}: no worker gets nearly all")
        depends = DependsOnQuestion().ask(figures)
        lead = figures.workers[name].lead if name in figures.workers else None
        if lead is None:
            text += "; it was not asked alone, so nothing shows that the system is better"
            if depends.answer == "yes":
                return Finding("unknown", f"{text}, but {depends.reason}")
            return Finding("yes", text)
        text += f", and the system is {gain_with_interval(lead)} against that worker alone"
        margin = RULES.margin if depends.answer == "yes" else RULES.form_margin
        if is_better(lead):
            return Finding("no", text)
        if is_no_gain(lead, margin):
            return Finding("yes", text)
        return leave_open(lead, text)


class BetterThanBest(Question):
    """Is the system better than the best worker alone?

    For yes the best worker chosen on other questions counts, and the one on these very questions
    less the luck by which it was chosen; for no both count.
    """

    name = "better than the best worker"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at the lead over the best worker, and at what is not known of the workers."""
        best = figures.best_single
        if best is None:
            reason = (
                "no worker alone has a decided answer, so there is no best worker to compare with"
            )
            return Finding("unknown", reason, system=WORKERS)
        if best.lead is None:
            return _share_no_question(figures, best)
        better, no_gain = _beats_best(figures), is_no_gain(best.lead)
        whose = f"{best.name}, the best worker alone on these questions"
        text = f"{gain_with_interval(best.lead)} against {whose}"
        if figures.absent and better:
            seeds = ", ".join(figures.absent)
            reason = f"{text}; but of the same study {seeds} were not evaluated"
            return Finding("unknown", reason)
        if figures.unasked and better:
            names = ", ".join(figures.unasked)
            reason = f"{text}; but of the pool {names} were not asked alone"
            return Finding("unknown", reason, system=WORKERS)
        if figures.unsure and not no_gain:
            names = ", ".join(name.removeprefix(ALONE) for name in figures.unsure)
            reason = (
                "the best worker is not known: "
                f"too many answers of {names} could not be decided or read"
            )
            return Finding("unknown", f"{text}; but {reason}")
        lacking = [task for task in figures.tasks if task not in figures.parts]
        if len(figures.tasks) > 1 and lacking:
            return Finding("unknown", f"{text}; but no worker was decided on {', '.join(lacking)}")
        if best.alike is not None and best.alike.value != best.lead.value:
            text += f", {gain_with_interval(best.alike)} with every task weighing the same"
        chosen_elsewhere = None if figures.best_fitted is None else figures.best_fitted.lead
        if chosen_elsewhere is not None:
            elsewhere = gain_with_interval(chosen_elsewhere)
            text += f" ({elsewhere} against the best one chosen on other questions)"
            no_gain = no_gain and is_no_gain(chosen_elsewhere)
        if better:
            luck = _luck(figures)
            if best.strict is not None and best.strict.low + luck <= 0:
                strict = gain_with_interval(best.strict)
                reason = f"{text}; {strict} where what could not be decided counts as wrong"
                return Finding("left out", reason)
            return Finding("yes", text)
        return Finding("no", text) if no_gain else leave_open(best.lead, text)


def _beats_best(figures: Orchestration) -> bool:
    """Return True if the system beats the best worker, however that one is chosen."""
    best, fitted = figures.best_single, figures.best_fitted
    if best is None or best.lead is None or fitted is None or fitted.lead is None:
        return False
    return is_better(fitted.lead) and best.lead.low + _luck(figures) > 0


def _luck(figures: Orchestration) -> float:
    """Return by how much the best worker on these questions is better than on others."""
    best, fitted = figures.best_single, figures.best_fitted
    if best is None or best.accuracy is None or fitted is None or fitted.accuracy is None:
        return 0.0
    return max(0.0, best.accuracy.value - fitted.accuracy.value)


class BetterAtEqualCost(Question):
    """Is the system better than the best worker's vote at equal cost?"""

    name = "better than the best worker at equal cost"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at the lead over the vote that costs about as much."""
        rival = figures.effort
        if rival is None or rival.lead is None:
            return Finding("unknown", "nothing is known of the best worker at equal cost")
        cost = f"at {rival.cost:.2f} of the cost ({rival.unit})"
        text = f"{gain_with_interval(rival.lead)} against {rival.name} {cost}"
        comparable = rival.enough if is_better(rival.lead) else rival.fair
        if rival.votes == 1 and rival.wanted < FEWEST_VOTES - 0.5:
            comparable = True  # a vote of two is the first one's answer
            if _beats_best(figures):  # the rival is the best worker itself
                return Finding("yes", text)
        if comparable:
            level = Level(rival.name, None, rival.lead)
            for other in figures.others:
                if other.system == rival.name:
                    level = replace(other, lead=rival.lead)
            return compare(level, text)
        if rival.wanted <= 1:
            return Finding("unknown", f"{text}: it costs more, and nothing cheaper was evaluated")
        vote = f"consensus:{rival.worker}?n={round(rival.wanted)}"
        if any(other.system == vote for other in figures.others):
            reason = (
                f"{vote}, the best worker's vote at equal cost, was evaluated but does not count: "
                "a price is unknown, or its answers are all the worker's own, as without sampling"
            )
            return Finding("unknown", reason)
        reason = (
            f"no vote of the best worker at equal cost was evaluated ({vote} would cost as much)"
        )
        return Finding("unknown", reason, system=vote)


class BetterThanOthers(Question):
    """Is the system better than every other one at equal or lower cost, and than chance?

    Dearer systems are only named.
    """

    name = "better than every other system at equal or lower cost"

    def ask(self, figures: Orchestration) -> Finding:
        """Compare with every rival; the worst answer counts."""
        fair: list[tuple[Level, Difference]] = []
        dearer: list[str] = []
        without: list[Finding] = []
        for level in figures.others:
            if level.lead is None or level.system in BOUNDS:
                continue
            if _is_extension(level, figures):
                continue
            if _is_ablation(level, figures):
                without += _compare_with_ablation(level, level.lead)
                continue
            if level.cost is None or level.cost <= LIKE:
                fair.append((level, level.lead))
            elif not is_better(level.lead):
                dearer.append(level.name)
        closest = min(fair, key=lambda rival: rival[1].low, default=None)
        if figures.random is not None and figures.random.lead is not None:
            fair.append((figures.random, figures.random.lead))
        failed: dict[Answer, list[Finding]] = {}
        findings = without + [
            compare(level, f"{gain_with_interval(lead)} against {level.name}")
            for level, lead in fair
        ]
        for finding in findings:
            failed.setdefault(finding.answer, []).append(finding)
        for answer in LABELS_WITHOUT_GAIN:
            if answer in failed:
                reason = "; ".join(finding.reason for finding in failed[answer])
                return Finding(answer, reason, max(one.questions for one in failed[answer]))
        reasons: list[str] = []
        if closest is not None:
            level, lead = closest
            beaten = "the other system" if len(fair) == 1 else f"{len(fair)} other systems"
            reasons.append(f"better than {beaten}, {gain_with_interval(lead)} against {level.name}")
        if dearer:
            names = ", ".join(dearer)
            reasons.append(f"not shown to be better than {names}, which cost more")
        return Finding("yes", "; ".join(reasons))


def _is_extension(level: Level, figures: Orchestration) -> bool:
    """Return True if a level is the system itself with more rounds, which denies it nothing."""
    name, _, options = level.system.partition("?")
    own_name, _, own_options = figures.system.partition("?")
    changed = {option.partition("=")[0] for option in options.split("&")}
    if name != own_name or not changed <= {"rounds", "calls"}:
        return False
    return _count_rounds(options) > _count_rounds(own_options)


def _count_rounds(options: str) -> float:
    """Return the most rounds that a system's options allow."""
    for option in options.split("&"):
        key, _, value = option.partition("=")
        if key == "rounds":
            return int(value) if value.isdigit() else math.inf
    return 1


def _is_ablation(level: Level, figures: Orchestration) -> bool:
    """Return True if a level is the system itself without something that plans may hold."""
    name, _, options = level.system.partition("?")
    own_name, _, _ = figures.system.partition("?")
    changed = {option.partition("=")[0] for option in options.split("&")}
    return name == own_name and changed <= ABLATIONS


def _compare_with_ablation(level: Level, lead: Difference) -> list[Finding]:
    """Return what a system without something says against a gain; empty: nothing."""
    _, _, options = level.system.partition("?")
    text = f"{gain_with_interval(lead)} against itself with {options}"
    if is_better(turn(lead)):
        return [Finding("no", f"as good without: {text}")]
    if lead.value < -RULES.margin:
        return [leave_open(lead, text)]
    return []


class BetterThanFixed(Question):
    """Is the system better than the best fixed workflow?"""

    name = "better than the best fixed workflow"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at the lead over ``best_fixed``."""
        level = figures.best_fixed
        if level is None:
            reason = (
                "the evaluation has no best_fixed, "
                "so only replays can exclude that a constant plan wins"
            )
            return Finding("unknown", reason, replays=figures.plays is None)
        if level.lead is None:
            return _share_no_question(figures, level)
        text = f"{gain_with_interval(level.lead)} against the best fixed workflow"
        finding = compare(level, text)
        too_few = figures.lessons is not None and figures.lessons < RULES.lessons
        if finding.answer == "yes" and too_few:
            reason = f"{text}, which was learnt from {figures.lessons} questions only"
            return Finding("unknown", f"{reason} (expected {RULES.lessons})")
        return finding


class SameForLess(Question):
    """Is the system as good as the best one, for less?"""

    name = "as good as the best, for less"
    needed = False

    def ask(self, figures: Orchestration) -> Finding:
        """Compare with the best worker, and with every system within two points of the best."""
        if figures.unasked or figures.accuracy is None or figures.best_single is None:
            return Finding("unknown", "whether it is as good for less is not known")
        rivals = self._find_rivals(figures)
        dearer: list[tuple[Level, Difference]] = []
        for level, lead in rivals:
            low, _ = interval_90(lead)
            if level.unsure or lead.problems < RULES.fewest or low <= -RULES.same:
                reason = f"not as good as {level.name} for certain: {gain_with_interval(lead)}"
                return Finding("no", reason)
            if level.cost is not None and RULES.less * level.cost >= 1:
                dearer.append((level, lead))
            elif level.system == figures.best_single.system or not is_better(lead):
                return Finding("no", f"{level.name} costs no more for certain")
        if not dearer:
            return Finding("unknown", "nothing to compare cost with")
        level, lead = min(dearer, key=lambda rival: rival[0].cost or 0.0)
        share = 1 / (level.cost or 1.0)
        text = f"{gain_with_interval(lead)} against {level.name} at {share:.2f} of its cost"
        return Finding("yes", text)

    @staticmethod
    def _find_rivals(figures: Orchestration) -> list[tuple[Level, Difference]]:
        """Return the best worker, and the systems within two points of the best, with the leads."""
        others = [level for level in figures.others if level.system not in BOUNDS]
        more = (figures.best_fixed, figures.planner_alone, figures.random)
        levels = [*figures.workers.values(), *others, *(level for level in more if level)]
        reached = {
            level.system: level.accuracy.value for level in levels if level.accuracy is not None
        }
        enough = max(reached.values(), default=0.0) - RULES.same
        rivals: list[tuple[Level, Difference]] = []
        for level in levels:
            is_best = figures.best_single is not None and level.name == figures.best_single.name
            near = is_best or reached.get(level.system, 0.0) >= enough
            if near and level.lead is not None:
                rivals.append((level, level.lead))
        return rivals


def _share_no_question(figures: Orchestration, level: Level) -> Finding:
    reason = f"{figures.system} and {level.system} have no decided question in common"
    return Finding("unknown", reason)
