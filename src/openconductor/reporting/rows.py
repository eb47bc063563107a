"""The report's tables: what stands in which row and column, for terminals and pages alike.

In: a Report. Out: Sections: sentences and tables of texts. Nothing is computed here, and nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.headroom import Headroom
from openconductor.evaluation.patterns import Pattern
from openconductor.reporting.orchestration import STATUSES, Orchestration
from openconductor.reporting.report import Report
from openconductor.reporting.routing import Group, Routing
from openconductor.reporting.sections import Grid, Section
from openconductor.reporting.standing import form, levels, what_changed
from openconductor.reporting.training import Course, Training
from openconductor.reporting.words import (
    NOTHING,
    chance,
    counted,
    interval,
    largest,
    listed,
    number,
    percent,
    points,
    share,
    span,
)

EDITS = {
    "drop": "step dropped",
    "swap": "another worker",
    "blind": "sees no earlier step",
    "untold": "only told to solve",
}
SHOWN_PATTERNS = 10
ADDS = "Who adds to whom"
_PLACES = {
    "all": "any step",
    "position": "{} step",
    "topology": "shape {}",
    "worker": "steps of {}",
}


def heading(report: Report) -> str:
    """What the report is of."""
    found = report.orchestration
    often = "once" if found.repeats == 1 else f"up to {found.repeats} times"
    asked = f"{counted(found.questions, 'question')}, asked {often}"
    missing = f"; {counted(report.missing, 'record')} of the evaluation are missing" if report.missing else ""
    return f"{found.system} on {listed(found.tasks)}: {asked}{missing}"


def sections(report: Report) -> Iterator[Section]:
    """The parts of the report, in order."""
    found = report.orchestration
    yield levels(found)
    yield form(found)
    if found.change is not None:
        yield what_changed(found.change)
    yield _routing(found.routing)
    if found.routing.by_task:
        yield Section("By task", (), _groups(found.routing.by_task))
    if found.routing.by_kind:
        figures = ("worker_kind", "workflow_length", "topology_kind", "worker_rounds")
        yield Section("By kind of question", (), _groups(found.routing.by_kind), figures)
    if found.counterfactuals is not None:
        yield _counterfactuals(found.counterfactuals)
    if found.patterns:
        yield _patterns(found.patterns)
    if report.headroom is not None:
        yield _pool(report.headroom)
    if report.training is not None:
        yield _training(report.training)
    yield _counts(found)


# ── how it works ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _routing(found: Routing) -> Section:
    whole = found.whole
    lines = [
        f"Routing entropy: {number(whole.entropy)} bits of at most {found.most_bits:.2f}.",
        f"Steps a plan: {number(whole.steps)}.",
    ]
    one = found.dependence
    if one is None:
        lines.append(
            "Whether plans depend on the question cannot be told: asked once each, of one kind or of too many."
        )
    else:
        what = "kind of question" if one.on == "kind" else "question"
        lines.append(
            f"A plan (who works, who sees whom) holds {one.bits:.2f} bits about the {what}, {one.excess:.2f} beyond "
            f"chance (p {chance(one.p)}, {one.workflows} different plans)."
        )
    if found.wasted is not None and found.wasted.value > 0:
        lines.append(f"Steps whose response cannot reach the answer: {share(found.wasted)}.")
    rows = [("worker", name, percent(one), interval(one)) for name, one in whole.workers.items()]
    rows += [("shape", name, percent(one), interval(one)) for name, one in whole.topologies.items()]
    rows += [("strategy", name, percent(one), interval(one)) for name, one in whole.strategies.items()]
    return Section(
        "Who works, and how", tuple(lines), Grid(("", "", "share, %", "95 % interval"), tuple(rows), frozenset((0, 1)))
    )


def _groups(groups: tuple[Group, ...]) -> Grid:
    rows = [
        (
            one.name,
            f"{one.questions:,}",
            share(one.accuracy).replace(" %", ""),
            number(one.steps, 1),
            number(one.entropy, 1),
            largest(one.workers),
            largest(one.topologies, 3),
            largest(one.strategies, 3),
        )
        for one in groups
    ]
    head = ("", "questions", "right, %", "steps", "bits", "workers, %", "shapes, %", "strategies, %")
    return Grid(head, tuple(rows), frozenset((0, 5, 6, 7)))


def _patterns(patterns: tuple[Pattern, ...]) -> Section:
    ranked = sorted(patterns, key=lambda one: -one.count)[:SHOWN_PATTERNS]
    rows = [
        (one.pattern, one.strategy, f"{one.count:,}", percent(one.accuracy), interval(one.accuracy)) for one in ranked
    ]
    line = (
        f"{counted(len(patterns), 'distinct pattern')} (of the first 50), letters for workers, numbers for the steps "
        "that are seen; the most frequent:"
    )
    grid = Grid(("pattern", "strategy", "plans", "right, %", "95 % interval"), tuple(rows), frozenset((0, 1)))
    return Section("Patterns", (line,), grid)


def _counterfactuals(found: Counterfactuals) -> Section:
    rows: list[tuple[str, ...]] = []
    for effect in found.effects:
        where = _PLACES[effect.by].format(effect.group)
        change = effect.change
        rows.append(
            (
                EDITS[effect.kind],
                where,
                points(change),
                span(change),
                chance(effect.p_holm),
                f"{effect.edits:,}",
                f"{change.problems:,}",
            )
        )
    masked = f", {found.undecided} of them undecided" if found.undecided else ""
    left = f"; {counted(found.left_out, 'record')} without one plan are left out" if found.left_out else ""
    lines = [
        f"{counted(found.replays, 'replay')}{masked}{left}. Unedited plans, replayed: {share(found.unedited)} right."
    ]
    if found.shuffled is not None:
        lines.append(f"With another question's plan: {points(found.shuffled)} points ({span(found.shuffled)}).")
    head = ("what is taken away", "where", "points", "95 % interval", "p (Holm)", "edits", "questions")
    brief = sum(effect.by == "all" for effect in found.effects)
    grid = Grid(head, tuple(rows), frozenset((0, 1)), brief=brief)
    return Section("What each step is worth", tuple(lines), grid)


# ── the pool, the training, the counts ───────────────────────────────────────────────────────────────────────────────
def pool_sections(found: Headroom) -> Iterator[Section]:
    """What a pool could give, for ``pool headroom``, which says the gain itself."""
    yield _pool(found, gained=True)
    names = [one.name for one in found.workers]
    if len(names) > 1:
        rows = tuple(
            (
                name,
                *(NOTHING if name == other else f"{100 * share:.0f}" for other, share in zip(names, line, strict=True)),
            )
            for name, line in zip(names, found.complementary, strict=True)
        )
        lines = ("The share of questions that the row's worker gets and the column's does not, in percent.",)
        yield Section(ADDS, lines, Grid(("", *names), rows))
    rows = tuple((listed(names) or "nobody", f"{count:,}") for names, count in found.patterns)
    yield Section("Who gets the same questions", (), Grid(("right", "questions"), rows, brief=10))


def gain(found: Headroom) -> str:
    """What the best worker of each question gains, and over whom: what is without luck, over a choice without luck."""
    room, oracle = found.room_corrected, found.oracle_corrected
    single, whose, luck = found.best_fitted, "the worker that other questions would choose", ""
    if room is None or oracle is None:
        room, oracle = found.room_naive, found.oracle_naive
        single, whose = found.best_naive, f"{found.best}, the best worker on these questions"
        luck = ", luck included"
    both = "" if room.problems == oracle.problems else f" on the {room.problems:,} questions that both have decided"
    return (
        f"{points(room)} points{both} over {whose} ({percent(single)} %), to {percent(oracle)} % (95 % interval of the "
        f"gain {span(room)}{luck})"
    )


def _pool(found: Headroom, *, gained: bool = False) -> Section:
    rows = [
        (
            one.name,
            percent(one.accuracy),
            interval(one.accuracy),
            percent(one.only),
            points(one.loss),
            span(one.loss),
            {True: "could go", False: "adds", None: "open"}[one.redundant],
        )
        for one in found.workers
    ]
    lines: list[str] = []
    luck = found.oracle_corrected is None
    if not gained:
        lines.append(f"The best worker of each question, {'in hindsight' if luck else 'without luck'}: {gain(found)}.")
    if luck:
        lines.append("With one answer each, luck cannot be told from skill: ask each question at least twice.")
    got = [f"{count:,} by {size or 'none'}" for size, count in enumerate(found.got_by)]
    asked = counted(found.questions, "question")
    lines.append(f"Of {asked}, so many are got (most answers right) by so many workers: {listed(got)}.")
    lines.append(
        "A worker could go where one worker a question is chosen, and only it goes; plans of several steps may need it."
    )
    needed = [
        f"{100 * gain:g} {'point' if gain == 0.01 else 'points'} {middle:,} ({low:,} to {high:,})"
        for gain, low, middle, high in found.needed
    ]
    if needed:
        lines.append("Questions to see a gain with 80 % power: " + "; ".join(needed) + ".")
    if found.visible is not None:
        lines.append(f"So many questions as these show a gain from {100 * found.visible:.1f} points on.")
    head = ("", "right, %", "95 % interval", "only it, %", "points lost without it", "95 % interval", "")
    return Section("What the pool could give", tuple(lines), Grid(head, tuple(rows), frozenset((0, 6))))


def _training(found: Training) -> Section:
    rows = [
        (name, _course(one, per), _course(Course(one.end, None), per))
        for name, one, per in (
            ("valid plans, %", found.validity, 100),
            ("right of the valid, %", found.given_valid, 100),
            ("right, %", found.accuracy, 100),
            ("routing entropy, bits", found.routing_entropy, 1),
            ("effective number of shapes", found.shapes, 1),
        )
    ]
    counts = counted(found.iterations, "iteration")
    lines = [f"{counts}; the first and the last {found.window}, rollouts on training questions."]
    rho = found.diversity_and_accuracy
    if rho is not None:
        left = rho.detrended
        rest = "" if left is None else f"; without the trend {left.rho:+.2f} ({left.low:+.2f} to {left.high:+.2f})"
        lines.append(
            f"Diversity of shapes and accuracy go together by {rho.rho:+.2f} ({rho.low:+.2f} to {rho.high:+.2f}, rank "
            f"correlation over iterations){rest}."
        )
    if found.diversity:
        tenths = [f"{one.strategies:.1f}" for one in found.diversity]
        lines.append(f"Effective number of strategies in each tenth of the training: {listed(tenths)}.")
    figures = ("training_accuracy", "format_gain", "worker_share", "diversity")
    return Section("The training", tuple(lines), Grid(("", "at its beginning", "at its end"), tuple(rows)), figures)


def _course(one: Course, per: int) -> str:
    level = one.begin
    if level is None:
        return NOTHING
    digits = 1 if per == 100 else 2
    if level.problems < 2:  # one iteration alone says nothing of how sure it is
        return f"{per * level.value:.{digits}f}"
    return f"{per * level.value:.{digits}f} ({per * level.low:.{digits}f} to {per * level.high:.{digits}f})"


def _counts(found: Orchestration) -> Section:
    rows = [
        (name, f"{counts['records']:,}", *(f"{counts.get(status, 0):,}" for status in STATUSES))
        for name, counts in found.counts.items()
    ]
    line = (
        "graded: right or wrong. Wrong, too: unparsed (no answer in the text), invalid (no workflow), refused. Left "
        "out of every share: ungraded (the grader could not decide) and failed (transport, provider, time)."
    )
    return Section("What was counted", (line,), Grid(("", "records", *STATUSES), tuple(rows)))
