"""``openconductor pool headroom``: measure what orchestration could gain over a pool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.options import AsJson, spread
from openconductor.cli.report import show_sections
from openconductor.cli.runs import WorkersRunOptions, ask_workers, missing_text
from openconductor.errors import ConfigError
from openconductor.evaluation import headroom as measure
from openconductor.evaluation.eval_config import GYM
from openconductor.evaluation.tables import Cost, user_costs
from openconductor.report import sections as report_sections

MOST_COLUMNS = 10
"""The most workers for which the table of who adds to whom is printed."""


@spread
def headroom(
    pool: Annotated[
        Path | None, typer.Argument(help="The pool file (TOML).", show_default="the gym's pool")
    ] = None,
    *,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            help="TASK or NAME=TASK: a task that questions come from; repeatable.",
            show_default="gym",
        ),
    ] = None,
    asking: WorkersRunOptions,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="2 or more tell luck from skill.")
    ] = 2,
    gain: Annotated[
        list[float] | None,
        typer.Option("--gain", help="Points: say how many questions show this gain; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what orchestrating the workers of a pool could gain.

    Every worker is asked alone. Exit code 1: the budget was spent first; the answers so far are
    kept and shown.
    """
    for points in gain or ():
        if not 0 < points <= 100:
            raise ConfigError(f"--gain: got {points:g}, expected points above 0 and up to 100")
    run = ask_workers("headroom", pool, task or [GYM], asking, repeats=repeats)
    costs = user_costs(run.results)
    records = run.results.records
    gains = measure.GAINS
    if gain:
        gains = tuple(points / 100 for points in gain)
    measured = measure.headroom(records, seed=asking.seed, gains=gains)
    if measured is None:
        if run.error is not None:
            raise run.error
        console.fail(
            f"none of {len(records)} answers could be decided",
            hint="`openconductor pool check` says what each worker can do.",
        )
    if as_json:
        values = measured.to_json()
        values["matrix"] = measure.outcome_matrix(records)
        values["costs"] = {system: cost._asdict() for system, cost in costs.items()}
        values["missing"] = run.results.missing
        values["folder"] = str(run.folder)
        console.show_json(values)
    else:
        _show(measured, costs)
    if run.results.missing:
        console.say(missing_text(run.results.missing))
    if run.error is not None:
        console.show_error(run.error)
        raise typer.Exit(console.FAILED)


def _show(measured: measure.Headroom, costs: Mapping[str, Cost]) -> None:
    gain = report_sections.gain(measured)
    console.show(f"choosing the right worker for each question could gain {gain}")
    sections = list(report_sections.pool_sections(measured, costs))
    if len(measured.workers) > MOST_COLUMNS:
        sections = [section for section in sections if section.title != report_sections.ADDS]
    show_sections(sections)
