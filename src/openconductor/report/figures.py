"""The report's parts: sentences and tables of texts, the same for terminals and for the page.

In: a Report. Out: Sections. Nothing is computed here but what p-values are among so many, and
nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.eval_config import GROUPS, HINDSIGHT, group_of
from openconductor.evaluation.statistics import holm
from openconductor.report import words as say
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.words import NOTHING, counted, percent, points, span

if TYPE_CHECKING:
    from openconductor.evaluation.counterfactual import Counterfactuals
    from openconductor.evaluation.headroom import Headroom
    from openconductor.evaluation.statistics import Difference, Estimate
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
        head, rows: the columns' names, and the cells; no rows are no table.
        words: which columns are of words; the others are of figures.
        marked: which row stands out.
        brief: how many rows, the first ones, are enough on a terminal; None is all.
        drawn: a difference a row, which the page draws beside it; empty where none is drawn.
        figures: the names of the figures of ``plots`` that belong here.
        groups: the group of each row, by which the page orders them; empty where rows are not
            grouped.
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
    """What the report is of."""
    found = report.orchestration
    often = "once" if found.repeats == 1 else f"up to {found.repeats} times"
    missing = (
        f"; {counted(report.missing, 'record')} of the evaluation are missing"
        if report.missing
        else ""
    )
    return f"{found.system} on {', '.join(found.tasks)}: {counted(found.questions, 'question')}, asked {often}{missing}"


def sections(report: Report) -> Iterator[Section]:
    """The parts of the report, in order."""
    found = report.orchestration
    yield _levels(found)
    yield _form(found)
    if found.change is not None:
        yield _changed(found.change)
    yield _routing(found.routing)
    if found.routing.by_task:
        yield _groups("By task", found.routing.by_task, found.parts)
    if found.routing.by_kind:
        figures = ("worker_kind", "workflow_length", "worker_rounds")
        yield _groups("By kind of question", found.routing.by_kind, found.parts, figures)
    if found.counterfactuals is not None:
        yield _counterfactuals(found.counterfactuals)
    if report.headroom is not None:
        said = "in hindsight" if report.headroom.oracle_corrected is None else "without luck"
        yield _pool(
            report.headroom, f"The best worker of each question, {said}: {gain(report.headroom)}."
        )
    if report.training is not None:
        yield _training(report.training)


def pool_sections(found: Headroom) -> Iterator[Section]:
    """What a pool could give, for ``pool headroom``, which says the gain itself."""
    yield _pool(found)
    names = [one.name for one in found.workers]
    if len(names) > 1:
        line = "The share of questions that the row's worker gets and the column's does not, in percent."
        rows = [
            (
                name,
                *(
                    NOTHING if name == other else f"{100 * one:.0f}"
                    for other, one in zip(names, some, strict=True)
                ),
            )
            for name, some in zip(names, found.complementary, strict=True)
        ]
        yield Section(ADDS, (line,), ("", *names), rows)
    rows = [(", ".join(names) or "nobody", f"{count:,}") for names, count in found.patterns]
    yield Section("Who gets the same questions", (), ("right", "questions"), rows, brief=10)


# ── where it stands ───────────────────────────────────────────────────────────────────────────────
def _levels(found: Orchestration) -> Section:
    """Every level with its interval, the lead over it, what is won of the headroom, the rival at equal cost."""
    best, fitted, oracle, system = found.best_single, found.best_fitted, found.oracle, found.system
    ours = Level(system, found.accuracy, None)
    bound = "oracle"
    if oracle is not None and oracle.system == HINDSIGHT:
        bound = "best worker of each question, in hindsight"
    levels: list[tuple[str, Level | None]] = [
        (bound, None if oracle is not None and oracle.system == system else oracle),
        ("best worker of each question, without luck", found.oracle_corrected),
        (system, ours),
        ("the planner alone, without any worker", found.planner_alone),
        (f"{best.name if best else ''} alone, the best worker on these questions", best),
        (f"best worker chosen on other questions (mostly {fitted.name if fitted else ''})", fitted),
        ("best fixed workflow", found.best_fixed),
        ("random workflows", found.random),
        *((level.system, level) for level in found.others),
    ]
    known = [(name, level) for name, level in levels if level is not None]
    lines = _headroom_lines(found)
    if found.told is not None and found.told.share:
        lines.append(
            f"Right answers that stand in the plan's own subtasks: {100 * found.told.share:.1f} % "
            f"(other answers: {100 * found.told.by_chance:.1f} %)."
        )
    if best is not None and best.strict is not None:
        wrong = "With what could not be decided counted as wrong on both sides, the lead"
        lines.append(f"{wrong} over {best.name} is {say.gain(best.strict)}.")
    if found.effort is not None:
        lines.append(_effort_line(found.effort, system))
    tested = [
        level.lead for _, level in known if level.lead is not None and level.system != HINDSIGHT
    ]
    chances = iter(holm([lead.p for lead in tested]))
    return Section(
        "Where it stands",
        lines,
        ("", "right, %", INTERVAL, f"lead of {system}", INTERVAL, "p (Holm)"),
        [
            (
                name,
                *_share(level.accuracy),
                *(("", "", "") if level is ours else _lead(level, chances)),
            )
            for name, level in known
        ],
        marked=[level for _, level in known].index(ours),
        drawn=[level.lead for _, level in known],
        figures=("accuracy_cost",),
        groups=[
            GROUPS[0] if level is ours else group_of(level.system.partition(",")[0])
            for _, level in known
        ],
    )


def _lead(level: Level, chances: Iterator[float]) -> tuple[str, str, str]:
    # Hindsight chose by the very answers that score it: a bound to look up to, and nothing to test.
    p = NOTHING if level.lead is None or level.system == HINDSIGHT else say.chance(next(chances))
    return points(level.lead), span(level.lead), p


def _effort_line(rival: Effort, system: str) -> str:
    where = "At equal cost" if rival.equal else "Of the best worker's votes the nearest in cost"
    more = f" About {rival.wanted:.1f} answers of that worker cost as much as one of {system}."
    return (
        f"{where}: {rival.name} (at {rival.cost:.2f} of what {system} costs, in {rival.unit}) gets "
        f"{say.share(rival.accuracy)} right; {system} leads by {say.gain(rival.lead)}.{'' if rival.equal else more}"
    )


def _headroom_lines(found: Orchestration) -> list[str]:
    won = found.captured
    if won is None:
        return []
    lead = None if found.oracle is None else found.oracle.lead
    lost = "" if lead is None else "Regret to the oracle: {} points ({}). ".format(*say.below(lead))
    if won.low is None or won.high is None:
        return [
            f"{lost}The oracle's lead over the best worker may be nothing, so no share of it can be said to be won."
        ]
    ends = f"{100 * won.low:.0f} to {100 * won.high:.0f} %{', above 100 by luck of the draw' if won.high >= 1.005 else ''}"
    return [
        f"{lost}Of the oracle's lead over the best worker, {100 * won.value:.0f} % are won ({ends})."
    ]


def _form(found: Orchestration) -> Section:
    """How many plans were valid, and why the others were not."""
    if found.validity is None:
        return Section("Form", (f"There is no validity: {found.no_validity}.",))
    lines = [
        f"Valid plans: {say.share(found.validity)}. Of these, {say.share(found.given_valid)} are right."
    ]
    if found.invalid:
        reasons = (f"{why or 'unknown'} {count}" for why, count in found.invalid.items())
        lines.append(f"Not valid: {', '.join(reasons)}")
    return Section("Form", lines)


def _changed(changed: Change) -> Section:
    """The trained Conductor beside the untrained one."""
    found = {
        "valid plans": changed.validity,
        "right": changed.accuracy,
        "right, where both were valid": changed.given_valid,
    }
    rows = [
        (
            name,
            *_gain(one),
            *((NOTHING, NOTHING) if one is None else (say.chance(one.p), f"{one.problems:,}")),
        )
        for name, one in found.items()
    ]
    form, skill = changed.by_form, changed.by_skill
    both = counted(changed.questions, "question")
    lines = [
        f"Trained less untrained, which gets {say.share(changed.before)} right, on {both} that both were asked."
    ]
    if form is not None:
        lines.append(
            f"Of the gain, {say.gain(form)} are more valid plans and {say.gain(skill)} better ones."
        )
    before, after = say.number(changed.entropy_before), say.number(changed.entropy_after)
    lines.append(f"Routing entropy: {before} bits before, {after} after.")
    head = ("", "points", INTERVAL, "p", "questions")
    return Section("What the training changed", lines, head, rows, drawn=list(found.values()))


# ── how it works ──────────────────────────────────────────────────────────────────────────────────
def _routing(found: Routing) -> Section:
    whole, one = found.whole, found.dependence
    lines = [
        f"Routing entropy: {say.number(whole.entropy)} bits of at most {found.most_bits:.2f}.",
        f"Steps a plan: {say.number(whole.steps)}.",
        "Whether plans depend on the question cannot be told: asked once each, of one kind or of too many."
        if one is None
        else f"A plan (who works, who sees whom) holds {one.bits:.2f} bits about the {say.about(one.on)}, "
        f"{one.excess:.2f} beyond chance (p {say.chance(one.p)}, {one.workflows} different plans).",
    ]
    if found.wasted is not None and found.wasted.value > 0:
        lines.append(f"Steps whose response cannot reach the answer: {say.share(found.wasted)}.")
    parts = {"worker": whole.workers, "shape": whole.topologies, "strategy": whole.strategies}
    rows = [
        (what, name, *_share(one)) for what, shares in parts.items() for name, one in shares.items()
    ]
    return Section(
        "Who works, and how", lines, ("", "", "share, %", INTERVAL), rows, frozenset((0, 1))
    )


def _groups(
    title: str,
    groups: Iterable[RoutingGroup],
    leads: Mapping[str, Difference],
    figures: Sequence[str] = (),
) -> Section:
    rows = [
        (
            *(
                one.name,
                f"{one.questions:,}",
                say.share(one.accuracy).replace(" %", ""),
                points(leads.get(one.name)),
            ),
            *(say.number(one.steps, 1), say.number(one.entropy, 1)),
            *(
                say.largest(one.workers),
                say.largest(one.topologies, 3),
                say.largest(one.strategies, 3),
            ),
        )
        for one in groups
    ]
    head = (
        "",
        "questions",
        "right, %",
        "lead over best worker",
        "steps",
        "bits",
        "workers, %",
        "shapes, %",
    )
    return Section(
        title, (), (*head, "strategies, %"), rows, frozenset((0, 6, 7, 8)), figures=figures
    )


def _counterfactuals(found: Counterfactuals) -> Section:
    rows = [
        (
            *(EDITS[one.kind], _PLACES[one.by].format(one.group), *_gain(one.change)),
            *(say.chance(one.p_holm), f"{one.edits:,}", f"{one.change.problems:,}"),
        )
        for one in found.effects
    ]
    masked = f", {found.undecided} of them undecided" if found.undecided else ""
    left = (
        f"; {counted(found.left_out, 'record')} without one plan are left out"
        if found.left_out
        else ""
    )
    right = say.share(found.unedited)
    lines = [
        f"{counted(found.replays, 'replay')}{masked}{left}. Unedited plans, replayed: {right} right."
    ]
    if found.shuffled is not None:
        lines.append(f"With another question's plan: {say.gain(found.shuffled)}.")
    if found.strangers is not None and found.silent is not None:
        lines.append(f"With every step done by another worker: {say.gain(found.strangers)}.")
        lines.append(f"With every step only told to solve the question: {say.gain(found.silent)}.")
    return Section(
        "What each step is worth",
        lines,
        ("what is taken away", "where", "points", INTERVAL, "p (Holm)", "edits", "questions"),
        rows,
        frozenset((0, 1)),
        brief=sum(effect.by == "all" for effect in found.effects),
        drawn=[effect.change for effect in found.effects],
    )


# ── the pool, the training ────────────────────────────────────────────────────────────────────────
def gain(found: Headroom) -> str:
    """What the best worker of each question gains, and over whom: what is without luck, over a choice without luck."""
    room, oracle = found.room_corrected, found.oracle_corrected
    single, whose, luck = found.best_fitted, "the worker that other questions would choose", ""
    if room is None or oracle is None:
        room, oracle, single = found.room_naive, found.oracle_naive, found.best_naive
        whose, luck = f"{found.best}, the best worker on these questions", ", luck included"
    both = (
        ""
        if room.problems == oracle.problems
        else f" on the {room.problems:,} questions that both have decided"
    )
    return (
        f"{points(room)} points{both} over {whose} ({percent(single)} %), to {percent(oracle)} % (95 % interval of the "
        f"gain {span(room)}{luck})"
    )


def _pool(found: Headroom, *lines: str) -> Section:
    fate = {True: "could go", False: "adds", None: "open"}
    said = list(lines)
    if found.oracle_corrected is None:
        said.append(
            "With one answer each, luck cannot be told from skill: ask each question at least twice."
        )
    nobody, *some = found.got_by
    got = "".join(f", {count:,} for {size}" for size, count in enumerate(some, start=1) if count)
    asked = counted(found.questions, "question")
    said += [
        f"Of {asked}, {nobody:,} are right most of the time for no worker{got}.",
        "A worker could go where one worker a question is chosen and only it goes; plans of several steps may need it.",
    ]
    needed = [
        f"{100 * gain:g} {'point' if gain == 0.01 else 'points'} {middle:,} ({low:,} to {high:,})"
        for gain, low, middle, high in found.needed
    ]
    if needed:
        said.append("Questions to see a gain with 80 % power: " + "; ".join(needed) + ".")
    if found.visible is not None:
        said.append(
            f"The smallest gain that this number of questions can show: {100 * found.visible:.1f} points."
        )
    return Section(
        "What the pool could give",
        said,
        ("", "right, %", INTERVAL, "only it, %", "points lost without it", INTERVAL, ""),
        [
            (
                one.name,
                *_share(one.accuracy),
                percent(one.only),
                *_gain(one.loss),
                fate[one.redundant],
            )
            for one in found.workers
        ],
        frozenset((0, 6)),
        drawn=[one.loss for one in found.workers],
    )


def _training(found: Training) -> Section:
    measures = {
        "valid plans, %": (found.validity, 1, 100),
        "right of the valid, %": (found.given_valid, 1, 100),
        "right, %": (found.accuracy, 1, 100),
        "routing entropy, bits": (found.routing_entropy, 2, 1),
        "effective number of shapes": (found.shapes, 2, 1),
    }
    rows = [
        (name, *(say.number(end, digits, per) for end in (one.begin, one.end)))
        for name, (one, digits, per) in measures.items()
    ]
    counts = counted(found.iterations, "iteration")
    lines = [
        f"{counts}; the first and the last {found.window}, rollouts on training questions. {found.terms}".rstrip()
    ]
    if found.diversity:
        tenths = ", ".join(f"{one.strategies:.1f}" for one in found.diversity)
        lines.append(f"Effective number of strategies in each tenth of the training: {tenths}.")
    figures = ("training_accuracy", "worker_share")
    return Section(
        "The training", lines, ("", "at its beginning", "at its end"), rows, figures=figures
    )


def _share(one: Estimate | None) -> tuple[str, str]:
    return percent(one), say.interval(one)


def _gain(one: Difference | None) -> tuple[str, str]:
    return points(one), span(one)
