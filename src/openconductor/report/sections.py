"""The report's parts: sentences and tables of texts, the same for terminals and for the page.

``sections`` makes them from a Report. Nothing is computed here except Holm's p-values, and nothing
is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import ALONE, GROUPS, HINDSIGHT, group_of
from openconductor.evaluation.records import MASKED
from openconductor.evaluation.statistics import holm
from openconductor.evaluation.tables import MARK, Cost
from openconductor.measures import MOST_MASKED
from openconductor.report import words as say
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.words import NOTHING, counted, interval, percent, points, span

if TYPE_CHECKING:
    from openconductor.evaluation.counterfactual import Counterfactuals
    from openconductor.evaluation.headroom import Headroom
    from openconductor.evaluation.statistics import Difference
    from openconductor.report.plays.transplants import PlayFigures
    from openconductor.report.report import Report
    from openconductor.report.rivals import Change, Effort
    from openconductor.report.routing import Routing, RoutingGroup
    from openconductor.report.training import Training

EDITS = {
    "drop": "step dropped",
    "swap": "another worker",
    "blind": "sees no earlier step",
    "untold": "only told to solve",
}
ADDS = "Who adds to whom"
_PLACES = {
    "all": "any step",
    "position": "{} step",
    "topology": "shape {}",
    "worker": "steps of {}",
}
INTERVAL = "95 % interval"
"""The heading of a column that belongs to the one before it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: sentences, then a table of texts.

    Attributes:
        title: its heading.
        lines: sentences.
        head, rows: the columns' names, and the cells; without rows there is no table.
        words: the columns of words; the others hold figures.
        marked: the row that stands out.
        brief: the number of rows that are enough on a terminal, from the first; None: all.
        drawn: a difference a row, which the page draws beside it; empty: none is drawn.
        figures: the names of the figures of ``plots`` that belong here.
        groups: the group of each row, by which the page orders them; empty: rows have no groups.
    """

    title: str
    lines: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: frozenset[int] = frozenset((0,))
    marked: int | None = None
    brief: int | None = None
    drawn: Sequence[Difference | None] = ()
    figures: Sequence[str] = ()
    groups: Sequence[str] = ()


def heading(report: Report) -> str:
    """Write the system, the tasks and the questions of a report."""
    figures = report.orchestration
    often = "once"
    if figures.repeats > 1:
        often = f"up to {figures.repeats} times"
    questions = counted(figures.questions, "question")
    text = f"{figures.system} on {', '.join(figures.tasks)}: {questions}, asked {often}"
    if report.missing:
        text += f"; {counted(report.missing, 'record')} of the evaluation are missing"
    return text


def sections(report: Report) -> Iterator[Section]:
    """Yield the parts of the report, in order."""
    figures = report.orchestration
    yield _levels(report)
    yield _routing(figures.routing)
    yield _form(figures)
    if figures.change is not None:
        yield _change(figures.change)
    if figures.routing.by_task:
        yield _groups("By task", figures.routing.by_task, figures.parts)
    if figures.routing.by_kind:
        names = ("worker_kind", "workflow_length", "worker_rounds")
        yield _groups("By kind of question", figures.routing.by_kind, figures.parts, names)
    if figures.plays is not None:
        yield _plays(figures.plays)
    if figures.counterfactuals is not None:
        yield _counterfactuals(figures.counterfactuals)
    if report.headroom is not None:
        how = "in hindsight" if report.headroom.oracle_corrected is None else "without luck"
        line = f"The best worker of each question, {how}: {gain(report.headroom)}."
        yield _pool(report.headroom, report.costs, line)
    if report.training is not None:
        yield _training(report.training)


def pool_sections(room: Headroom, costs: Mapping[str, Cost]) -> Iterator[Section]:
    """Yield what a pool could give, for ``pool headroom``, which says the gain itself."""
    yield _pool(room, costs)
    if len(room.workers) > 1:
        yield _complements(room)
    rows: list[Sequence[str]] = []
    for winners in room.patterns:
        rows.append((", ".join(winners.workers) or "nobody", f"{winners.questions:,}"))
    yield Section("Who gets the same questions", (), ("right", "questions"), rows, brief=10)


# ── where it stands ───────────────────────────────────────────────────────────────────────────────
def _levels(report: Report) -> Section:
    """Make every level with its interval, its cost, and the lead over it."""
    figures = report.orchestration
    system = figures.system
    ours = Level(system, figures.accuracy, None)
    levels = _name_levels(figures, ours)
    # Hindsight chose by the very answers that score it: it is only a bound, and not tested.
    tested = {
        name: level.lead.p
        for name, level in levels.items()
        if level.lead is not None and level.system != HINDSIGHT
    }
    p_values = holm(list(tested.values()))
    adjusted = dict(zip(tested, p_values, strict=True))
    rows: list[Sequence[str]] = []
    groups: list[str] = []
    for name, level in levels.items():
        cost = report.costs.get(level.system, Cost())
        if level is figures.best_fitted:  # of several workers
            cost = Cost()
        price, seconds = say.thousand(cost.dollars), say.three_digits(cost.seconds)
        right = percent(level.accuracy)
        if is_much_masked(figures.counts.get(level.system)):
            right = f"{MARK} {right}"
        accuracy = (name, right, interval(level.accuracy), price, seconds)
        if level is ours:
            rows.append((*accuracy, "", "", ""))
            groups.append(GROUPS[0])
            continue
        p = say.chance(adjusted[name]) if name in adjusted else NOTHING
        rows.append((*accuracy, points(level.lead), span(level.lead), p))
        groups.append(group_of(level.system.partition(",")[0]))
    return Section(
        "Where it stands",
        _level_lines(figures),
        (
            "",
            "right, %",
            INTERVAL,
            "dollars a 1,000",
            "seconds",
            f"lead of {system}",
            INTERVAL,
            "p (Holm)",
        ),
        rows,
        marked=list(levels).index(system),
        drawn=[level.lead for level in levels.values()],
        figures=("accuracy_cost",),
        groups=groups,
    )


def is_much_masked(counts: Mapping[str, int] | None) -> bool:
    """Return True if so many of a system's records are masked that its accuracy is marked."""
    if counts is None:
        return False
    return sum(counts[status] for status in MASKED) > MOST_MASKED * counts["records"]


def _name_levels(figures: Orchestration, ours: Level) -> dict[str, Level]:
    """Return each level by its name in words, the highest bound first."""
    best, fitted, oracle = figures.best_single, figures.best_fitted, figures.oracle
    levels: dict[str, Level | None] = {}
    if oracle is not None and oracle.system != ours.system:
        hindsight = "best worker of each question, in hindsight"
        levels[hindsight if oracle.system == HINDSIGHT else "oracle"] = oracle
    levels["best worker of each question, without luck"] = figures.oracle_corrected
    levels[ours.system] = ours
    levels["the planner alone, without any worker"] = figures.planner_alone
    if best is not None:
        levels[f"{best.name} alone, the best worker on these questions"] = best
    if fitted is not None:
        levels[f"best worker chosen on other questions (mostly {fitted.name})"] = fitted
    levels["best fixed workflow"] = figures.best_fixed
    levels["random workflows"] = figures.random
    levels |= {level.system: level for level in figures.others}
    return {name: level for name, level in levels.items() if level is not None}


def _level_lines(figures: Orchestration) -> list[str]:
    """Write the share of headroom, the strict lead and the rival at equal cost."""
    lines = _headroom_lines(figures)
    if any(map(is_much_masked, figures.counts.values())):
        lines.append(f"{MARK} More than {100 * MOST_MASKED:.0f} % of the answers are masked.")
    best = figures.best_single
    if best is not None and best.strict is not None:
        lines.append(
            "With what could not be decided counted as wrong on both sides, "
            f"the lead over {best.name} is {say.gain(best.strict)}."
        )
    if figures.effort is not None:
        lines.append(_effort_line(figures.effort, figures.system))
    return lines


def _headroom_lines(figures: Orchestration) -> list[str]:
    captured = figures.captured
    if captured is None:
        return []
    line = ""
    if figures.oracle is not None and figures.oracle.lead is not None:
        regret, ends = say.below(figures.oracle.lead)
        line = f"Regret to the oracle: {regret} points ({ends}). "
    if captured.low is None or captured.high is None:
        line += (
            "The oracle's lead over the best worker may be nothing, "
            "so no share of it can be said to be won."
        )
        return [line]
    ends = f"{100 * captured.low:.0f} to {100 * captured.high:.0f} %"
    if captured.high >= 1.005:
        ends += ", above 100 by luck of the draw"
    value = f"{100 * captured.value:.0f} % are won ({ends})"
    return [f"{line}Of the oracle's lead over the best worker, {value}."]


def _effort_line(rival: Effort, system: str) -> str:
    where = "At equal cost" if rival.equal else "Of the best worker's votes the nearest in cost"
    line = (
        f"{where}: {rival.name} (at {rival.cost:.2f} of what {system} costs, in {rival.unit}) gets "
        f"{say.share(rival.accuracy)} right; {system} leads by {say.gain(rival.lead)}."
    )
    if not rival.equal:
        line += f" About {rival.wanted:.1f} answers of that worker cost as much as one of {system}."
    return line


def _form(figures: Orchestration) -> Section:
    """Make the share of valid plans, and the reasons of the others."""
    if figures.validity is None:
        return Section("Form", (f"There is no validity: {figures.no_validity}.",))
    valid = say.share(figures.validity)
    right = say.share(figures.given_valid)
    lines = [f"Valid plans: {valid}. Of these, {right} are right."]
    if figures.invalid:
        reasons = [f"{reason or 'unknown'} {count}" for reason, count in figures.invalid.items()]
        lines.append(f"Not valid: {', '.join(reasons)}")
    return Section("Form", lines)


def _change(change: Change) -> Section:
    """Make the trained Conductor beside the untrained one."""
    differences = {
        "valid plans": change.validity,
        "right": change.accuracy,
        "right, where both were valid": change.given_valid,
    }
    rows: list[Sequence[str]] = []
    for name, lead in differences.items():
        p = problems = NOTHING
        if lead is not None:
            p = say.chance(lead.p)
            problems = f"{lead.problems:,}"
        rows.append((name, points(lead), span(lead), p, problems))
    both = counted(change.questions, "question")
    before = say.number(change.entropy_before)
    after = say.number(change.entropy_after)
    untrained = f"untrained, which gets {say.share(change.before)} right"
    lines = [f"Trained less {untrained}, on {both} that both were asked."]
    if change.by_form is not None:
        form = say.gain(change.by_form)
        skill = say.gain(change.by_skill)
        lines.append(f"Of the gain, {form} are more valid plans and {skill} better ones.")
    lines.append(f"Routing entropy: {before} bits before, {after} after.")
    head = ("", "points", INTERVAL, "p", "questions")
    drawn = list(differences.values())
    return Section("What the training changed", lines, head, rows, drawn=drawn)


# ── how it works ──────────────────────────────────────────────────────────────────────────────────
def _routing(routing: Routing) -> Section:
    whole, dependence = routing.whole, routing.dependence
    lines = [
        f"Routing entropy: {say.number(whole.entropy)} bits of at most {routing.most_bits:.2f}.",
        f"Steps a plan: {say.number(whole.steps)}.",
    ]
    if dependence is None:
        lines.append(
            "Whether plans depend on the question cannot be told: "
            "asked once each, of one kind or of too many."
        )
    else:
        lines.append(
            f"A plan (who works, who sees whom) holds {dependence.bits:.2f} bits about the "
            f"{say.about(dependence.on)}, {dependence.excess:.2f} beyond chance "
            f"(p {say.chance(dependence.p)}, {dependence.workflows} different plans)."
        )
    if routing.wasted is not None and routing.wasted.value > 0:
        lines.append(f"Steps whose response cannot reach the answer: {say.share(routing.wasted)}.")
    rows: list[Sequence[str]] = []
    parts = {"worker": whole.workers, "shape": whole.topologies, "strategy": whole.strategies}
    for part, shares in parts.items():
        for name, share in shares.items():
            rows.append((part, name, percent(share), interval(share)))
    head = ("", "", "share, %", INTERVAL)
    return Section("Who works, and how", lines, head, rows, frozenset((0, 1)))


def _groups(
    title: str,
    groups: Iterable[RoutingGroup],
    leads: Mapping[str, Difference],
    figures: Sequence[str] = (),
) -> Section:
    rows: list[Sequence[str]] = []
    for group in groups:
        row = (
            group.name,
            f"{group.questions:,}",
            say.share(group.accuracy).replace(" %", ""),
            points(leads.get(group.name)),
            say.number(group.steps, 1),
            say.number(group.entropy, 1),
            say.largest(group.workers),
            say.largest(group.topologies, 3),
            say.largest(group.strategies, 3),
        )
        rows.append(row)
    head = (
        "",
        "questions",
        "right, %",
        "lead over best worker",
        "steps",
        "bits",
        "workers, %",
        "shapes, %",
        "strategies, %",
    )
    return Section(title, (), head, rows, frozenset((0, 6, 7, 8)), figures=figures)


def _plays(plays: PlayFigures) -> Section:
    """Make what whole plans are worth elsewhere."""
    leads = {
        "own shape over another question's, in plain words": plays.shape,
        "own words over another question's": plays.words,
        "own words over none": plays.silence,
        "own plan over one of its plans for all": plays.constant,
        "other workers over its own": plays.strangers,
    }
    if plays.again is not None and plays.again.look is not None:
        leads["second rounds over those shown other answers"] = plays.again.look
    rows: list[Sequence[str]] = []
    for name, lead in leads.items():
        p = NOTHING if lead is None else say.chance(lead.p)
        rows.append((name, points(lead), span(lead), p))
    questions = counted(plays.questions, "question")
    lines = [f"The plans of {questions}, played elsewhere ({counted(plays.played, 'play')})."]
    if plays.follows is not None:
        lines.append(
            f"On another question of its kind {100 * plays.share:.1f} % of the plans bring the "
            f"answer of their own one (other choices: {100 * plays.chance:.1f} %)."
        )
    if plays.errors is not None:
        lines.append(
            f"Where they err, other workers make the same error by {say.gain(plays.errors)} more "
            "often than its own workers without its words."
        )
    if plays.again is not None:
        steps, words = say.gain(plays.again.shape), say.gain(plays.again.words)
        lines.append(
            "Asked again, its planner writes plans that are more like the own ones than like those "
            f"of other questions by {steps} in steps, and by {words} in words."
        )
        if plays.again.failed:
            failed = counted(plays.again.failed, "question")
            lines.append(f"The planner could not be asked again for {failed}, which are left out.")
    head = ("", "points", INTERVAL, "p")
    return Section("What whole plans are worth", lines, head, rows, drawn=list(leads.values()))


def _counterfactuals(replays: Counterfactuals) -> Section:
    line = counted(replays.replays, "replay")
    if replays.undecided:
        line += f", {replays.undecided} of them undecided"
    if replays.left_out:
        line += f"; {counted(replays.left_out, 'record')} without one plan are left out"
    lines = [f"{line}. Unedited plans, replayed: {say.share(replays.unedited)} right."]
    rows: list[Sequence[str]] = []
    for effect in replays.effects:
        row = (
            EDITS[effect.kind],
            _PLACES[effect.by].format(effect.group),
            points(effect.change),
            span(effect.change),
            say.chance(effect.p_holm),
            f"{effect.edits:,}",
            f"{effect.change.problems:,}",
        )
        rows.append(row)
    return Section(
        "What each step is worth",
        lines,
        ("what is taken away", "where", "points", INTERVAL, "p (Holm)", "edits", "questions"),
        rows,
        frozenset((0, 1)),
        brief=sum(effect.by == "all" for effect in replays.effects),
        drawn=[effect.change for effect in replays.effects],
    )


# ── the pool, the training ────────────────────────────────────────────────────────────────────────
def gain(room: Headroom) -> str:
    """Write the gain of the best worker of each question, and over whom.

    The oracle without luck is compared with a worker chosen without luck. Its gain is too small on
    average, because few repeats often miss a question's best worker; with luck it is too large.
    """
    if room.room_corrected is None or room.oracle_corrected is None:
        lead, oracle, single = room.room_naive, room.oracle_naive, room.best_naive
        bound = "at most"
        whose = f"{room.best}, the best worker on these questions"
        ends = f"{span(lead)}, luck included"
    else:
        lead, oracle, single = room.room_corrected, room.oracle_corrected, room.best_fitted
        bound = "at least"
        whose = "the worker that other questions would choose"
        ends = span(lead)
    text = f"{bound} {points(lead)} points"
    if lead.problems != oracle.problems:
        text += f" on the {lead.problems:,} questions that both have decided"
    text += f" over {whose} ({percent(single)} %), to {percent(oracle)} %"
    return f"{text} (95 % interval of the gain {ends})"


def _pool(room: Headroom, costs: Mapping[str, Cost], *lines: str) -> Section:
    fates = {True: "could go", False: "adds", None: "open"}
    rows: list[Sequence[str]] = []
    for worker in room.workers:
        cost = costs.get(f"{ALONE}{worker.name}", Cost())
        right = percent(worker.accuracy)
        if worker.accuracy.masked > MOST_MASKED * room.questions * room.repeats:
            right = f"{MARK} {right}"
        row = (
            worker.name,
            right,
            interval(worker.accuracy),
            say.thousand(cost.dollars),
            say.three_digits(cost.seconds),
            percent(worker.only),
            points(worker.loss),
            span(worker.loss),
            fates[worker.redundant],
        )
        rows.append(row)
    return Section(
        "What the pool could give",
        [*lines, *_pool_lines(room)],
        (
            "",
            "right, %",
            INTERVAL,
            "dollars a 1,000",
            "seconds",
            "only it, %",
            "loss without it",
            INTERVAL,
            "",
        ),
        rows,
        frozenset((0, 8)),
        drawn=[worker.loss for worker in room.workers],
    )


def _pool_lines(room: Headroom) -> Iterator[str]:
    if room.oracle_corrected is None:
        yield (
            "With one answer each, luck cannot be told from skill, so the gain is at most this: "
            "ask each question at least twice."
        )
    else:
        yield (
            "The gain is at least this: a question's worker is chosen by its other repeats (here "
            f"{room.repeats - 1} of {room.repeats}), which may miss the best one. More repeats come"
            " nearer to the truth."
        )
    if any(row.loss.value < 0 for row in room.workers):
        yield (
            "A loss below zero is chance: without that worker the other repeats chose better. Take "
            "it for none."
        )
    nobody, *winners = room.got_by
    right = f"{nobody:,} are right most of the time for no worker"
    for size, count in enumerate(winners, start=1):
        if count:
            right += f", {count:,} for {size}"
    yield f"Of {counted(room.questions, 'question')}, {right}."
    yield (
        "A worker could go where one worker a question is chosen and only it goes; "
        "plans of several steps may need it."
    )
    needed: list[str] = []
    for row in room.needed:
        noun = "point" if row.gain == 0.01 else "points"
        needed.append(f"{100 * row.gain:g} {noun} {row.questions:,} ({row.low:,} to {row.high:,})")
    if needed:
        yield f"Questions to see a gain with 80 % power: {'; '.join(needed)}."
    if room.visible is not None:
        visible = f"{100 * room.visible:.1f} points"
        yield f"The smallest gain that this number of questions can show: {visible}."


def _complements(room: Headroom) -> Section:
    """Make the table of who is right where others are not."""
    line = (
        "The share of questions that the row's worker gets and the column's does not, in percent."
    )
    names = [worker.name for worker in room.workers]
    rows: list[Sequence[str]] = []
    for name, shares in zip(names, room.complementary, strict=True):
        cells = [f"{100 * share:.0f}" for share in shares]
        cells[names.index(name)] = NOTHING
        rows.append((name, *cells))
    return Section(ADDS, (line,), ("", *names), rows)


def _training(training: Training) -> Section:
    measures = (
        ("valid plans, %", training.validity, 1, 100),
        ("right of the valid, %", training.given_valid, 1, 100),
        ("right, %", training.accuracy, 1, 100),
        ("routing entropy, bits", training.routing_entropy, 2, 1),
        ("effective number of shapes", training.shapes, 2, 1),
    )
    rows: list[Sequence[str]] = []
    for name, course, digits, per in measures:
        begin, end = say.number(course.begin, digits, per), say.number(course.end, digits, per)
        rows.append((name, begin, end))
    line = (
        f"{counted(training.iterations, 'iteration')}; the first and the last {training.window}, "
        f"rollouts on training questions. {training.terms}"
    )
    lines = [line.rstrip()]
    if training.diversity:
        tenths = [f"{tenth.strategies:.1f}" for tenth in training.diversity]
        numbers = ", ".join(tenths)
        lines.append(f"Effective number of strategies in each tenth of the training: {numbers}.")
    return Section(
        "The training",
        lines,
        ("", "at its beginning", "at its end"),
        rows,
        figures=("training_accuracy", "worker_share"),
    )
