"""``openconductor pool calibrate``: measure the workers of a pool file, and write it down there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, cast

import tomlkit
import typer
from tomlkit.items import Table

from openconductor.calls.cards import Calibration
from openconductor.cli import console
from openconductor.cli.options import AsJson, spread
from openconductor.cli.runs import WorkersRunOptions, ask_workers
from openconductor.errors import ConfigError
from openconductor.evaluation import headroom
from openconductor.pool import WorkerPool, simulated_pool
from openconductor.store.storage import write_whole

MOST_CATEGORIES = 10
"""The most categories with too few answers that are named."""


@spread
def calibrate(
    pool: Annotated[
        Path, typer.Argument(help="The pool file (TOML), which is changed.", show_default=False)
    ],
    *,
    task: Annotated[
        list[str],
        typer.Option(
            "--task", help="TASK or NAME=TASK: a task that questions come from; repeatable."
        ),
    ],
    asking: WorkersRunOptions,
    as_json: AsJson = False,
) -> None:
    """Measure what each worker is good at, for its card.

    Each worker gets a table [calibration.WORKER.TASK] with date, counts, cost and time. Tables of
    other tasks and the workers' descriptions stay as they are. Exit code 1: the budget was spent
    first, or too few answers could be decided. The file is then left as it is, and the same command
    resumes.
    """
    if simulated_pool(str(pool)) is not None:
        raise ConfigError(f"got the simulated pool {str(pool)!r}, expected a pool file to write to")
    run = ask_workers("calibrate", pool, task, asking)
    if run.error is not None:
        raise run.error
    today = date.today()
    measured: dict[str, dict[str, Calibration]] = {}
    fewest: dict[str, int] = {}
    for name, records in headroom.alone(run.results.records).items():
        calibrations, too_few = headroom.calibrate(records, today)
        if calibrations:
            measured[name] = calibrations
        for category, count in too_few.items():
            fewest[category] = min(count, fewest.get(category, count))
    if not measured:
        console.fail(
            f"no worker has {headroom.FEWEST_OF_KIND} decided answers to a task: nothing was "
            "written",
            hint="Raise --limit.",
        )
    _write_calibrations(pool, measured)
    cards = {worker.name: worker.card for _, worker in WorkerPool.from_toml(pool)}
    if as_json:
        console.show_json({"pool": str(pool), "cards": cards, "folder": str(run.folder)})
    else:
        console.show_table(("worker", "card"), list(cards.items()), words=(0, 1))
    _say_too_few(fewest)


def _say_too_few(fewest: Mapping[str, int]) -> None:
    """Name the categories that stand on no card, with the fewest decided answers of a worker."""
    for category, count in list(fewest.items())[:MOST_CATEGORIES]:
        answers = console.counted(count, "answer")
        console.say(f"{category}: {answers}, {headroom.FEWEST_OF_KIND} needed for a card")
    if len(fewest) > MOST_CATEGORIES:
        console.say(f"and {len(fewest) - MOST_CATEGORIES} more categories")
    if fewest:
        console.say("a higher --limit asks more questions, if the task has more")


def _write_calibrations(pool: Path, measured: Mapping[str, Mapping[str, Calibration]]) -> None:
    """Write the tables of the measured tasks into a pool file; all else stays as it is."""
    document = cast("dict[str, Any]", tomlkit.parse(pool.read_text(encoding="utf-8")))
    tables = document.setdefault("calibration", tomlkit.table(is_super_table=True))
    for worker, calibrations in measured.items():
        tasks = tables.setdefault(worker, tomlkit.table(is_super_table=True))
        for task, calibration in calibrations.items():
            table = _make_table(calibration)
            if task in tasks:
                table.add(tomlkit.nl())  # the new table takes the place of one that another follows
            tasks[task] = table
    text = tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType]
    write_whole(pool.resolve(), text.rstrip("\n") + "\n")


def _make_table(calibration: Calibration) -> Table:
    """Return a calibration as a table, with each category on a line."""
    table = tomlkit.table()
    for name in ("date", "right", "n", "answers", "seconds", "dollars"):
        value = getattr(calibration, name)
        if value is not None:
            table[name] = value
    if calibration.categories:
        categories = tomlkit.table()
        for name, count in calibration.categories.items():
            line = tomlkit.inline_table()
            line["right"] = count.right
            line["n"] = count.n
            line["answers"] = count.total
            categories[name] = line
        table["categories"] = categories
    return table
