"""Where a system stands, in words: its levels and leads, the form of its plans, what its training changed.

In: an Orchestration. Out: Sections.
"""

from __future__ import annotations

from openconductor.evaluation.headroom import WORKER
from openconductor.evaluation.specs import HINDSIGHT
from openconductor.reporting.change import Change
from openconductor.reporting.effort import Effort
from openconductor.reporting.orchestration import Level, Orchestration
from openconductor.reporting.sections import Grid, Section
from openconductor.reporting.words import (
    NOTHING,
    below,
    chance,
    counted,
    interval,
    listed,
    number,
    percent,
    points,
    share,
    span,
)


def levels(found: Orchestration) -> Section:
    """Every level with its interval, the lead over it, what is won of the headroom, the rival at equal cost."""
    rows: list[tuple[str, ...]] = []

    def add(name: str, level: Level | None) -> None:
        if level is not None:
            lead = level.lead
            # Hindsight chose by the very answers that score it: a bound to look up to, and nothing to test.
            p = NOTHING if lead is None or level.system == HINDSIGHT else chance(lead.p)
            rows.append((name, percent(level.accuracy), interval(level.accuracy), points(lead), span(lead), p))

    oracle, best, fitted = found.oracle, found.best_single, found.best_fitted
    if oracle is not None and oracle.system != found.system:  # which has its own row
        add(_oracle_name(oracle.system), oracle)
    add("best worker of each question, without luck", found.oracle_corrected)
    marked = len(rows)
    rows.append((found.system, percent(found.accuracy), interval(found.accuracy), "", "", ""))
    add("" if best is None else f"{_plain(best.system)} alone, the best worker on these questions", best)
    add("" if fitted is None else f"best worker chosen on other questions (mostly {_plain(fitted.system)})", fitted)
    add("best fixed workflow", found.best_fixed)
    add("random workflows", found.random)
    for level in found.others:
        add(level.system, level)
    head = ("", "right, %", "95 % interval", f"lead of {found.system}", "95 % interval", "p")
    lines = [_headroom_line(found)] if found.captured is not None else []
    if best is not None and best.strict is not None:
        lines.append(
            f"With what could not be decided counted as wrong on both sides, the lead over {_plain(best.system)} is "
            f"{points(best.strict)} points ({span(best.strict)})."
        )
    if found.effort is not None:
        lines.append(_effort_line(found.effort, found.system))
    if found.others:
        lines.append("Each p is of its comparison alone; the evaluation's table has them adjusted for all (Holm).")
    grid = Grid(head, tuple(rows), marked=marked)
    return Section("Where it stands", tuple(lines), grid, ("headroom", "accuracy_cost"))


def _effort_line(rival: Effort, system: str) -> str:
    where = "At equal cost" if rival.equal else "Of the best worker's votes the nearest in cost"
    said = (
        f"{where}: {rival.name} (at {rival.cost:.2f} of what {system} costs, in {rival.unit}) gets "
        f"{share(rival.accuracy)} right; {system} leads by {points(rival.lead)} points ({span(rival.lead)})."
    )
    if rival.equal:
        return said
    return f"{said} About {rival.wanted:.1f} answers of that worker cost as much as one of {system}."


def _oracle_name(system: str) -> str:
    return "best worker of each question, in hindsight" if system == "oracle_observed" else "oracle"


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


def _plain(system: str) -> str:
    return system.removeprefix(WORKER)


def form(found: Orchestration) -> Section:
    """How many plans were valid, and why the others were not."""
    if found.validity is None:
        return Section("Form", (f"There is no validity: {found.no_validity}.",))
    lines = [f"Valid plans: {share(found.validity)}. Of these, {share(found.given_valid)} are right."]
    if found.invalid:
        lines.append("Not valid: " + listed([f"{why or 'unknown'} {count}" for why, count in found.invalid.items()]))
    return Section("Form", tuple(lines))


def what_changed(changed: Change) -> Section:
    """The trained Conductor beside the untrained one."""
    rows = [
        (
            name,
            points(one),
            span(one),
            NOTHING if one is None else chance(one.p),
            NOTHING if one is None else f"{one.problems:,}",
        )
        for name, one in (
            ("valid plans", changed.validity),
            ("right", changed.accuracy),
            ("right, where both were valid", changed.given_valid),
        )
    ]
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
    return Section(
        "What the training changed", tuple(lines), Grid(("", "points", "95 % interval", "p", "questions"), tuple(rows))
    )
