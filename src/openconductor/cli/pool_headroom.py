"""``openconductor pool headroom``: what could orchestration gain over this pool, before anyone pays for a training?

In: a pool and a sample of a task. Out: every worker asked alone, in a folder that it can be resumed
from; then who is right where, who adds to whom, who could go, the oracle's lead with and without
luck, how many questions show a gain.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.options import (
    AsJson,
    AtOnce,
    Calls,
    Dollars,
    Limit,
    Out,
    Seed,
    TaskName,
    TaskPath,
)
from openconductor.cli.report import show_sections
from openconductor.cli.runs import evaluated, interruptible, missing, own_folder
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation import headroom as measure
from openconductor.evaluation.eval_config import GYM, make_eval_config
from openconductor.evaluation.records import Results
from openconductor.report import sections

MOST_COLUMNS = 10
"""Workers up to which who adds to whom is shown on a terminal."""


def headroom(  # noqa: PLR0913, PLR0917 - the options of a command
    pool: Annotated[
        Path | None, typer.Argument(help="The pool file (TOML).", show_default="the gym's pool")
    ] = None,
    task: TaskName = "gym",
    task_path: TaskPath = None,
    limit: Limit = 100,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="2 or more tell luck from skill.")
    ] = 2,
    gain: Annotated[
        list[float] | None, typer.Option("--gain", help="Points; how many questions show it?")
    ] = None,
    seed: Seed = 0,
    concurrency: AtOnce = 32,
    dollars: Dollars = None,
    calls: Calls = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Say what orchestrating the workers of a pool could gain.

    Every worker is asked alone. Exits with 1 where the budget was spent first; what was asked is
    kept and shown.
    """
    for one in gain or ():
        if not 0 < one <= 100:
            raise ConfigError(f"--gain: got {one:g}, expected points above 0 and up to 100")
    asked, budget = (
        {"name": task, "limit": limit, "path": task_path},
        {"dollars": dollars, "calls": calls},
    )
    recipe = {
        "task": [asked],
        "repeats": repeats,
        "seed": seed,
        "concurrency": concurrency,
        "budget": budget,
    }
    folder, results, spent = ask_workers("headroom", pool, recipe, out)
    gains = tuple(one / 100 for one in gain or ()) or measure.GAINS
    found = measure.headroom(results.records, seed=seed, gains=gains)
    if found is None:
        if spent is not None:
            raise spent
        console.fail(
            f"no answer of any worker could be decided, of {len(results.records)}",
            hint="`openconductor pool check` says what each worker can do.",
        )
    if as_json:
        matrix = measure.outcome_matrix(results.records)
        console.show_json(
            {**found.to_json(), "matrix": matrix, "missing": results.missing, "folder": str(folder)}
        )
    else:
        console.show(
            f"choosing the right worker for each question could gain {sections.gain(found)}"
        )
        wide = len(found.workers) > MOST_COLUMNS
        show_sections(
            part
            for part in sections.pool_sections(found)
            if not (wide and part.title == sections.ADDS)
        )
    if results.missing:
        console.say(missing(results.missing))
    if spent is not None:
        console.show_error(spent)
        raise typer.Exit(console.FAILED)


def ask_workers(
    name: str, pool: Path | None, recipe: Mapping[str, object], out: Path | None
) -> tuple[Path, Results, BudgetExceeded | None]:
    """Ask every worker of a pool alone: the run's folder, what is known now, and the budget if that was spent first."""
    named = {
        "name": f"{name}-{GYM if pool is None else pool.stem}",
        "pool": GYM if pool is None else str(pool),
    }
    config = make_eval_config({**named, "systems": ["workers"], **recipe}, where="command line")
    folder = out or own_folder(config)
    try:
        with interruptible(folder, f"the same command and --out {shlex.quote(str(folder))}"):
            return folder, evaluated(config, folder, "asking the workers"), None
    except BudgetExceeded as error:
        return folder, Results.load(folder), error
