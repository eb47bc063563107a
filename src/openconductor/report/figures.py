"""The report's parts: sentences and tables of texts, the same for terminals and for the page.

In: a Report. Out: Sections. Nothing is computed here, and nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openconductor.evaluation.config import HINDSIGHT
from openconductor.report.words import (
    NOTHING,
    about,
    below,
    chance,
    counted,
    interval,
    largest,
    number,
    percent,
    points,
    share,
    span,
)

if TYPE_CHECKING:
    from openconductor.evaluation.counterfactual import Counterfactuals
    from openconductor.evaluation.headroom import Headroom
    from openconductor.evaluation.statistics import Difference, Estimate
    from openconductor.evaluation.strategies import Pattern
    from openconductor.report.orchestration import Level, Orchestration
    from openconductor.report.report import Course, Report, Training
    from openconductor.report.rivals import Change, Effort
    from openconductor.report.routing import Group, Routing

EDITS = {
    "drop": "step dropped",
    "swap": "another worker",
    "blind": "sees no earlier step",
    "untold": "only told to solve",
}
SHOWN_PATTERNS = 10
ADDS = "Who adds to whom"
_PLACES = {"all": "any step", "position": "{} step", "topology": "shape {}", "worker": "steps of {}"}
_INTERVAL = "95 % interval"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts.

    Attributes:
        head: the columns' names.
        rows: the cells.
        words: which columns are of words; the others are of figures.
        marked: which row stands out.
        brief: how many rows, the first ones, are enough on a terminal; None is all.
        drawn: a difference a row, which the page draws beside it; empty where none is drawn.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset((0,))
    marked: int | None = None
    brief: int | None = None
    drawn: tuple[Difference | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: sentences, then a table.

    Attributes:
        title: its heading.
        lines: sentences.
        grid: the table; None where there is none.
        figures: the names of the figures of ``plots`` that belong here.
    """

    title: str
    lines: tuple[str, ...] = ()
    grid: TextTable | None = None
    figures: tuple[str, ...] = ()


def heading(report: Report) -> str:
    """What the report is of."""
    found = report.orchestration
    often = "once" if found.repeats == 1 else f"up to {found.repeats} times"
    missing = f"; {counted(report.missing, 'record')} of the evaluation are missing" if report.missing else ""
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


def pool_sections(found: Headroom) -> Iterator[Section]:
    """What a pool could give, for ``pool headroom``, which says the gain itself."""
    yield _pool(found, gained=True)
    names = [one.name for one in found.workers]
    if len(names) > 1:
        shares = [[f"{100 * share:.0f}" for share in line] for line in found.complementary]
        for place, line in enumerate(shares):
            line[place] = NOTHING
        lines = ("The share of questions that the row's worker gets and the column's does not, in percent.",)
        rows = tuple((name, *line) for name, line in zip(names, shares, strict=True))
        yield Section(ADDS, lines, TextTable(("", *names), rows))
    rows = tuple((", ".join(names) or "nobody", f"{count:,}") for names, count in found.patterns)
    yield Section("Who gets the same questions", (), TextTable(("right", "questions"), rows, brief=10))


# ── where it stands ──────────────────────────────────────────────────────────────────────────────────────────────────
def _levels(found: Orchestration) -> Section:
    """Every level with its interval, the lead over it, what is won of the headroom, the rival at equal cost."""
    best, fitted, oracle = found.best_single, found.best_fitted, found.oracle
    above: list[tuple[str, Level | None]] = []
    if oracle is not None and oracle.system != found.system:  # which has its own row
        name = "oracle" if oracle.system != HINDSIGHT else "best worker of each question, in hindsight"
        above.append((name, oracle))
    above.append(("best worker of each question, without luck", found.oracle_corrected))
    under = [
        ("" if best is None else f"{best.name} alone, the best worker on these questions", best),
        ("" if fitted is None else f"best worker chosen on other questions (mostly {fitted.name})", fitted),
        ("best fixed workflow", found.best_fixed),
        ("random workflows", found.random),
        *((level.system, level) for level in found.others),
    ]
    rows: list[tuple[str, ...]] = [_level(name, level) for name, level in above if level is not None]
    marked, drawn = len(rows), [level.lead for _, level in (*above, *under) if level is not None]
    rows.append((found.system, *_share(found.accuracy), "", "", ""))
    rows += [_level(name, level) for name, level in under if level is not None]
    lines = [_headroom_line(found)] if found.captured is not None else []
    if best is not None and best.strict is not None:
        lines.append(
            f"With what could not be decided counted as wrong on both sides, the lead over {best.name} is "
            f"{points(best.strict)} points ({span(best.strict)})."
        )
    if found.effort is not None:
        lines.append(_effort_line(found.effort, found.system))
    if found.others:
        lines.append("Each p is of its comparison alone; the evaluation's table has them adjusted for all (Holm).")
    head = ("", "right, %", _INTERVAL, f"lead of {found.system}", _INTERVAL, "p")
    grid = TextTable(head, tuple(rows), marked=marked, drawn=(*drawn[:marked], None, *drawn[marked:]))
    return Section("Where it stands", tuple(lines), grid, ("headroom", "accuracy_cost"))


def _level(name: str, level: Level) -> tuple[str, ...]:
    # Hindsight chose by the very answers that score it: a bound to look up to, and nothing to test.
    p = NOTHING if level.lead is None or level.system == HINDSIGHT else chance(level.lead.p)
    return name, *_share(level.accuracy), points(level.lead), span(level.lead), p


def _effort_line(rival: Effort, system: str) -> str:
    where = "At equal cost" if rival.equal else "Of the best worker's votes the nearest in cost"
    said = (
        f"{where}: {rival.name} (at {rival.cost:.2f} of what {system} costs, in {rival.unit}) gets "
        f"{share(rival.accuracy)} right; {system} leads by {points(rival.lead)} points ({span(rival.lead)})."
    )
    if rival.equal:
        return said
    return f"{said} About {rival.wanted:.1f} answers of that worker cost as much as one of {system}."


def _headroom_line(found: Orchestration) -> str:
    won = found.captured
    assert won is not None
    regret = found.oracle.lead if found.oracle is not None else None
    lost = "" if regret is None else "Regret to the oracle: {} points ({}). ".format(*below(regret))
    if won.low is None or won.high is None:
        return f"{lost}The oracle's lead over the best worker may be nothing, so no share of it can be said to be won."
    return (
        f"{lost}Of the oracle's lead over the best worker, {100 * won.value:.0f} % are won "
        f"({100 * won.low:.0f} to {100 * won.high:.0f} %)."
    )


def _form(found: Orchestration) -> Section:
    """How many plans were valid, and why the others were not."""
    if found.validity is None:
        return Section("Form", (f"There is no validity: {found.no_validity}.",))
    lines = [f"Valid plans: {share(found.validity)}. Of these, {share(found.given_valid)} are right."]
    if found.invalid:
        reasons = (f"{why or 'unknown'} {count}" for why, count in found.invalid.items())
        lines.append(f"Not valid: {', '.join(reasons)}")
    return Section("Form", tuple(lines))


def _changed(changed: Change) -> Section:
    """The trained Conductor beside the untrained one."""
    found = {
        "valid plans": changed.validity,
        "right": changed.accuracy,
        "right, where both were valid": changed.given_valid,
    }
    rows = tuple(
        (name, points(one), span(one), *((NOTHING, NOTHING) if one is None else (chance(one.p), f"{one.problems:,}")))
        for name, one in found.items()
    )
    lines = [f"Trained less untrained, on {counted(changed.questions, 'question')} that both were asked."]
    if changed.by_form is not None and changed.by_skill is not None:
        form, skill = changed.by_form, changed.by_skill
        lines.append(
            f"Of the gain, {points(form)} points ({span(form)}) are more valid plans and {points(skill)} points "
            f"({span(skill)}) better ones."
        )
    lines.append(
        f"Routing entropy: {number(changed.entropy_before)} bits before, {number(changed.entropy_after)} after."
    )
    grid = TextTable(("", "points", _INTERVAL, "p", "questions"), rows, drawn=tuple(found.values()))
    return Section("What the training changed", tuple(lines), grid)


# ── how it works ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _routing(found: Routing) -> Section:
    whole, one = found.whole, found.dependence
    lines = [
        f"Routing entropy: {number(whole.entropy)} bits of at most {found.most_bits:.2f}.",
        f"Steps a plan: {number(whole.steps)}.",
        "Whether plans depend on the question cannot be told: asked once each, of one kind or of too many."
        if one is None
        else f"A plan (who works, who sees whom) holds {one.bits:.2f} bits about the {about(one.on)}, {one.excess:.2f} "
        f"beyond chance (p {chance(one.p)}, {one.workflows} different plans).",
    ]
    if found.wasted is not None and found.wasted.value > 0:
        lines.append(f"Steps whose response cannot reach the answer: {share(found.wasted)}.")
    parts = {"worker": whole.workers, "shape": whole.topologies, "strategy": whole.strategies}
    rows = tuple((what, name, *_share(one)) for what, shares in parts.items() for name, one in shares.items())
    return Section(
        "Who works, and how", tuple(lines), TextTable(("", "", "share, %", _INTERVAL), rows, frozenset((0, 1)))
    )


def _groups(groups: Iterable[Group]) -> TextTable:
    rows = tuple(
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
    )
    head = ("", "questions", "right, %", "steps", "bits", "workers, %", "shapes, %", "strategies, %")
    return TextTable(head, rows, frozenset((0, 5, 6, 7)))


def _patterns(patterns: Sequence[Pattern]) -> Section:
    ranked = sorted(patterns, key=lambda one: -one.count)[:SHOWN_PATTERNS]
    rows = tuple((one.pattern, one.strategy, f"{one.count:,}", *_share(one.accuracy)) for one in ranked)
    line = (
        f"{counted(len(patterns), 'distinct pattern')} (of the first 50), letters for workers, numbers for the steps "
        "that are seen; the most frequent:"
    )
    grid = TextTable(("pattern", "strategy", "plans", "right, %", _INTERVAL), rows, frozenset((0, 1)))
    return Section("Patterns", (line,), grid)


def _counterfactuals(found: Counterfactuals) -> Section:
    rows = tuple(
        (
            EDITS[one.kind],
            _PLACES[one.by].format(one.group),
            *_gain(one.change),
            chance(one.p_holm),
            f"{one.edits:,}",
            f"{one.change.problems:,}",
        )
        for one in found.effects
    )
    masked = f", {found.undecided} of them undecided" if found.undecided else ""
    left = f"; {counted(found.left_out, 'record')} without one plan are left out" if found.left_out else ""
    lines = [
        f"{counted(found.replays, 'replay')}{masked}{left}. Unedited plans, replayed: {share(found.unedited)} right."
    ]
    if found.shuffled is not None:
        lines.append(f"With another question's plan: {points(found.shuffled)} points ({span(found.shuffled)}).")
    head = ("what is taken away", "where", "points", _INTERVAL, "p (Holm)", "edits", "questions")
    brief = sum(effect.by == "all" for effect in found.effects)
    drawn = tuple(effect.change for effect in found.effects)
    return Section(
        "What each step is worth", tuple(lines), TextTable(head, rows, frozenset((0, 1)), None, brief, drawn)
    )


# ── the pool, the training, the counts ───────────────────────────────────────────────────────────────────────────────
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
    fate = {True: "could go", False: "adds", None: "open"}
    rows = tuple(
        (one.name, *_share(one.accuracy), percent(one.only), *_gain(one.loss), fate[one.redundant])
        for one in found.workers
    )
    lines: list[str] = []
    luck = found.oracle_corrected is None
    if not gained:
        lines.append(f"The best worker of each question, {'in hindsight' if luck else 'without luck'}: {gain(found)}.")
    if luck:
        lines.append("With one answer each, luck cannot be told from skill: ask each question at least twice.")
    got = ", ".join(f"{count:,} by {size or 'none'}" for size, count in enumerate(found.got_by))
    asked = counted(found.questions, "question")
    lines.append(f"Of {asked}, so many are got (most answers right) by so many workers: {got}.")
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
    head = ("", "right, %", _INTERVAL, "only it, %", "points lost without it", _INTERVAL, "")
    grid = TextTable(head, rows, frozenset((0, 6)), drawn=tuple(one.loss for one in found.workers))
    return Section("What the pool could give", tuple(lines), grid)


def _training(found: Training) -> Section:
    measures: dict[str, tuple[Course, int]] = {
        "valid plans, %": (found.validity, 100),
        "right of the valid, %": (found.given_valid, 100),
        "right, %": (found.accuracy, 100),
        "routing entropy, bits": (found.routing_entropy, 1),
        "effective number of shapes": (found.shapes, 1),
    }
    rows = tuple((name, _mean(one.begin, per), _mean(one.end, per)) for name, (one, per) in measures.items())
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
        tenths = ", ".join(f"{one.strategies:.1f}" for one in found.diversity)
        lines.append(f"Effective number of strategies in each tenth of the training: {tenths}.")
    figures = ("training_accuracy", "format_gain", "worker_share")
    return Section("The training", tuple(lines), TextTable(("", "at its beginning", "at its end"), rows), figures)


def _mean(level: Estimate | None, per: int) -> str:
    digits = 1 if per == 100 else 2
    if level is not None and level.problems < 2:  # one iteration alone says nothing of how sure it is
        return f"{per * level.value:.{digits}f}"
    return number(level, digits, per)


def _counts(found: Orchestration) -> Section:
    rows = tuple((name, *(f"{count:,}" for count in counts.values())) for name, counts in found.counts.items())
    line = (
        "graded: right or wrong. Wrong, too: unparsed (no answer in the text), invalid (no workflow), refused. Left "
        "out of every share: ungraded (the grader could not decide) and failed (transport, provider, time)."
    )
    return Section("What was counted", (line,), TextTable(("", *found.counts[found.system]), rows))


def _share(one: Estimate | None) -> tuple[str, str]:
    return percent(one), interval(one)


def _gain(one: Difference) -> tuple[str, str]:
    return points(one), span(one)
