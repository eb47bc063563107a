"""The questions of the verdict: one class each, which answers it from the figures of a report.

``QUESTIONS`` in ``verdict`` is the table of them. ``docs/report.md`` gives the reason of each rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from openconductor.evaluation.eval_config import ALONE, BOUNDS, WORKERS
from openconductor.evaluation.statistics import Difference, Estimate
from openconductor.evaluation.strategies import Dependence
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.rivals import LIKE, UNPRICED
from openconductor.report.told import Told
from openconductor.report.verdict.rules import (
    LABELS_WITHOUT_GAIN,
    RULES,
    WIDTH_OF_99,
    Answer,
    Finding,
    Label,
    compare,
    excludes,
    is_better,
    is_no_gain,
    leave_open,
)
from openconductor.report.words import about, gain_with_interval, points


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
        if depends.answer == "no":
            return Finding("yes", f"{text}; {depends.reason}")
        return leave_open(lead, text)


class BetterThanBest(Question):
    """Is the system better than the best worker alone?

    For yes the best worker on these very questions counts, which flatters the worker; for no also
    the best one chosen on other questions.
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
        better, no_gain = is_better(best.lead), is_no_gain(best.lead)
        whose = f"{best.name}, the best worker alone on these questions"
        text = f"{gain_with_interval(best.lead)} against {whose}"
        if figures.unasked and better:
            names = ", ".join(figures.unasked)
            reason = f"{text}; but of the pool {names} were not asked alone"
            return Finding("unknown", reason, system=WORKERS)
        if figures.unsure and not no_gain:
            names = ", ".join(name.removeprefix(ALONE) for name in figures.unsure)
            reason = (
                f"the best worker is not known: too many answers of {names} could not be decided"
            )
            return Finding("unknown", f"{text}; but {reason}")
        lacking = [task for task in figures.tasks if task not in figures.parts]
        if len(figures.tasks) > 1 and lacking:
            return Finding("unknown", f"{text}; but no worker was decided on {', '.join(lacking)}")
        if better:
            return compare(best, text)
        chosen_elsewhere = None if figures.best_fitted is None else figures.best_fitted.lead
        if chosen_elsewhere is not None:
            text += f" ({points(chosen_elsewhere)} against the best one chosen on other questions)"
            if is_better(chosen_elsewhere):
                return Finding("open", f"{text}: which one counts is not clear")
            no_gain = no_gain and is_no_gain(chosen_elsewhere)
        return Finding("no", text) if no_gain else leave_open(best.lead, text)


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
        if rival.unit == UNPRICED:
            return Finding("unknown", f"{text}: whether that is equal cost cannot be told")
        comparable = rival.enough if is_better(rival.lead) else rival.fair
        if comparable:
            level = Level(rival.name, None, rival.lead)
            for other in figures.others:
                if other.system == rival.name:
                    level = replace(other, lead=rival.lead)
            return compare(level, text)
        if rival.wanted <= 1:
            return Finding("unknown", f"{text}: it costs more, and nothing cheaper was evaluated")
        vote = f"consensus:{rival.worker}?n={round(rival.wanted)}"
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
        for level in figures.others:
            if level.lead is None or level.system in BOUNDS or _is_ablation(level, figures):
                continue
            if level.cost is None or level.cost <= LIKE:
                fair.append((level, level.lead))
            elif not is_better(level.lead):
                dearer.append(level.name)
        closest = min(fair, key=lambda rival: rival[1].low, default=None)
        if figures.random is not None and figures.random.lead is not None:
            fair.append((figures.random, figures.random.lead))
        failed: dict[Answer, list[str]] = {}
        for level, lead in fair:
            finding = compare(level, f"{gain_with_interval(lead)} against {level.name}")
            failed.setdefault(finding.answer, []).append(finding.reason)
        for answer in LABELS_WITHOUT_GAIN:
            if answer in failed:
                return Finding(answer, "; ".join(failed[answer]))
        reasons: list[str] = []
        if closest is not None:
            level, lead = closest
            beaten = "the other system" if len(fair) == 1 else f"{len(fair)} other systems"
            reasons.append(f"better than {beaten}, {gain_with_interval(lead)} against {level.name}")
        if dearer:
            names = ", ".join(dearer)
            reasons.append(f"not shown to be better than {names}, which cost more")
        return Finding("yes", "; ".join(reasons))


def _is_ablation(level: Level, figures: Orchestration) -> bool:
    """Return True if a level is the system itself with other options."""
    return level.system.partition("?")[0] == figures.system.partition("?")[0]


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
            return Finding("unknown", reason, replays=figures.counterfactuals is None)
        if level.lead is None:
            return _share_no_question(figures, level)
        return compare(level, f"{gain_with_interval(level.lead)} against the best fixed workflow")


class WorkersAnswer(Question):
    """Do the workers answer, and not the model that plans?"""

    name = "the workers answer, not the planner"
    ends: ClassVar[Mapping[Answer, Label]] = {"no": "answers itself"}

    def ask(self, figures: Orchestration) -> Finding:
        """Look for told answers, at the planner alone, and at replays."""
        told, later, alone = figures.told, figures.told_later, figures.planner_alone
        if figures.routing.top is None:
            reason = "no step was planned, so nothing shows that a worker answers"
            return Finding("unknown", reason)
        if told is not None and told.lead is not None and _tells(told) and not is_better(told.lead):
            reason = (
                f"of its right answers {told.share:.0%} stand in its own subtasks (by chance "
                f"{told.by_chance:.0%}); without these {gain_with_interval(told.lead)} "
                "against the best worker alone"
            )
            return Finding("no", reason)
        if alone is not None:
            return self._compare_with_planner(figures, alone)
        if later is not None and _tells(later):
            reason = (
                f"of its right answers {later.share:.0%} stand in the subtasks of later rounds, "
                "maybe from the round before; planner_alone was not asked"
            )
            return Finding("unknown", reason, system=figures.planner)
        return self._look_at_replays(figures)

    def _compare_with_planner(self, figures: Orchestration, alone: Level) -> Finding:
        if alone.lead is None:
            return Finding("unknown", "the planner alone has no decided answer to these questions")
        text = f"{gain_with_interval(alone.lead)} against the planner alone"
        finding = compare(alone, text)
        if finding.answer == "yes" and figures.by_itself is not None:
            either = figures.by_itself
            if either.lead is not None:
                whole = (
                    f"{gain_with_interval(either.lead)} against the planner alone "
                    "or the best worker, whichever is better on each kind"
                )
                finding = compare(either, whole)
        return Finding("yes", text) if finding.answer == "yes" else finding

    def _look_at_replays(self, figures: Orchestration) -> Finding:
        replays = figures.counterfactuals
        if replays is None or replays.strangers is None or replays.silent is None:
            return Finding("yes", "")
        text = (
            f"with other workers {gain_with_interval(replays.strangers)}, "
            f"with subtasks that say nothing {gain_with_interval(replays.silent)}"
        )
        if replays.strangers.high < 0:
            return Finding("yes", text)
        if replays.silent.high < 0:
            reason = (
                f"{text}: any worker will do where the subtasks stay, "
                "so the planner may answer itself; planner_alone was not asked"
            )
            return Finding("unknown", reason, system=figures.planner)
        return Finding("yes", "")


def _tells(told: Told) -> bool:
    """Return True if subtasks certainly say the answers more often than by chance."""
    return told.beyond.value >= RULES.told and told.beyond.low > 0


class DependsOnQuestion(Question):
    """Does the workflow depend on the question?"""

    name = "depends on the question"

    def ask(self, figures: Orchestration) -> Finding:
        """Look at replays with another question's plan, then at information in bits."""
        loss = _loss_when_shuffled(figures)
        replayed = ""
        if loss is not None:
            replayed = f"; with another question's workflow {gain_with_interval(_turn(loss))}"
            if is_no_gain(loss):
                reason = f"the system does not need its own workflow for each question{replayed}"
                return Finding("no", reason)
            if is_better(loss):
                return Finding("yes", f"the workflow is needed by its question{replayed}")
            if loss.problems >= RULES.fewest:
                replayed += ", which is too wide to tell"
            else:
                replayed += f" ({loss.problems} questions)"
        dependence = figures.routing.dependence
        if dependence is None:
            reason = (
                "whether the workflow depends on the question cannot be told: "
                f"no replays, no repeats, and one kind of question, or too many{replayed}"
            )
            return Finding("unknown", reason, replays=loss is None)
        finding = self._judge_bits(dependence, replayed)
        return finding._replace(replays=loss is None)

    def _judge_bits(self, dependence: Dependence, replayed: str) -> Finding:
        """Answer by the information that workflows hold about their questions."""
        bits = f"{dependence.excess:.2f} bits about the {about(dependence.on)} beyond chance"
        text = f"the workflow holds {bits} (p = {dependence.p:.3f}){replayed}"
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


def needs_own_plan(figures: Orchestration) -> bool:
    """Return True if replays show that each question needs its own plan."""
    loss = _loss_when_shuffled(figures)
    return loss is not None and is_better(loss)


def _loss_when_shuffled(figures: Orchestration) -> Difference | None:
    """Return what is lost with another question's plan; None: it was not replayed."""
    replays = figures.counterfactuals
    if replays is None or replays.shuffled is None:
        return None
    return _turn(replays.shuffled)


def _turn(lead: Difference) -> Difference:
    """Return the difference seen from the other side."""
    return replace(lead, value=-lead.value, low=-lead.high, high=-lead.low)


def _share_no_question(figures: Orchestration, level: Level) -> Finding:
    reason = f"{figures.system} and {level.system} have no decided question in common"
    return Finding("unknown", reason)
