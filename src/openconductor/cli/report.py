"""``openconductor report``: did the Conductor learn to orchestrate? The verdict first, then the figures behind it.

In: the folder of an evaluation, or a recipe, which is then evaluated first. Out: the verdict and short tables on stdout
(``--json``: all values), and files: report.json, figures as SVG and PNG, and one self-contained HTML page.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openconductor.cli import console
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from openconductor.evaluation.counterfactual import Counterfactuals
    from openconductor.evaluation.results import Results
    from openconductor.reporting.files import Written
    from openconductor.reporting.report import Report
    from openconductor.reporting.sections import Grid, Section

FREE = 200
"""Of so many questions plans are replayed where that is free, if nothing else is said: in the gym."""
HIDDEN = ("Patterns", "What was counted")
"""The sections that stand in the page and in report.json alone."""


def report(
    source: Annotated[Path, typer.Argument(help="The folder of an evaluation, or a recipe (TOML) to evaluate first.")],
    system: Annotated[
        str | None, typer.Option("--system", help="Which system is reported on.", show_default="conductor")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option("--before", help="The folder of the same evaluation of the untrained Conductor."),
    ] = None,
    training: Annotated[
        Path | None, typer.Option("--training", help="The run folder of a training, for its curve and its plans.")
    ] = None,
    counterfactual: Annotated[
        int | None,
        typer.Option(
            "--counterfactual",
            min=0,
            help="Replay the plans of so many questions with one thing taken away at a time; calls that were made "
            "before are free.",
            show_default=f"{FREE} in the gym, where it is free; else 0",
        ),
    ] = None,
    dollars: Annotated[
        str | None, typer.Option("--budget-dollars", help="The most US dollars that replays may cost, of all runs.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where the files go; of a recipe, the run's folder.", show_default="FOLDER/report or runs/…"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all values as JSON.")] = False,
) -> None:
    """Say whether a Conductor gains by orchestrating, with the figures behind it, a page, and plots.

    Of a recipe everything is done by this one command: it evaluates (or goes on with what is in --out), then reports.
    """
    from openconductor.evaluation.results import Results
    from openconductor.reporting.files import can_draw, chosen, refuse_other_questions, report_of, write_report

    limit = dollars_of(dollars)
    folder = source
    if not source.is_dir():
        folder = out or _new_folder(source)
        _evaluate(source, folder)
        out = None
    if before is not None:  # before anything is replayed
        refuse_other_questions(folder, before)
    results = Results.load(folder)
    named = chosen(results, system)
    found = _replay(results, folder, named, counterfactual, limit)
    made = report_of(folder, system=named, before=before, training_folder=training, found=found)
    with console.only_results_on_stdout():
        files = write_report(made, folder, out or folder / "report", curves=training)
    if as_json:
        console.show_json({**made.to_json(), "files": _files(files)})
    else:
        _show(made)
    if not can_draw():
        console.say("no figures: no matplotlib; expected the extra: pip install 'openconductor[plots]'")
    console.say(f"wrote {files.page}, {files.report} and {len(files.figures)} figures")


# ── what is done first ───────────────────────────────────────────────────────────────────────────────────────────────
def _evaluate(recipe: Path, folder: Path) -> None:
    """Evaluate a recipe into a folder, or go on with what is there."""
    import asyncio

    from openconductor.cli.bill import dollars_text
    from openconductor.evaluation.config import load_eval_config
    from openconductor.evaluation.grid import Progress
    from openconductor.evaluation.runner import run_grid

    if not recipe.is_file():
        raise ConfigError(f"{recipe}: is not there, expected the folder of an evaluation or a recipe (TOML)")
    config = load_eval_config(recipe)
    console.say(f"run folder: {folder}")
    with console.only_results_on_stdout(), bar("evaluating") as advance:

        def told(now: Progress) -> None:
            advance(now.done, now.total, dollars_text(now.spent.usage, zero=True))

        asyncio.run(run_grid(config, folder, on_progress=told))


def _new_folder(recipe: Path) -> Path:
    from datetime import date

    from openconductor.evaluation.config import load_eval_config

    if not recipe.is_file():
        raise ConfigError(f"{recipe}: is not there, expected the folder of an evaluation or a recipe (TOML)")
    return Path("runs") / f"{date.today():%Y-%m-%d}-{load_eval_config(recipe).name}"


def _replay(
    results: Results, folder: Path, system: str, limit: int | None, dollars: Decimal | None
) -> Counterfactuals | None:
    """Replay the plans of so many questions; None where nothing is to be replayed."""
    import asyncio

    from openconductor.evaluation.config import GYM
    from openconductor.reporting.report import replayed

    if limit is None:
        free = results.config.pool == GYM and all(table.name == GYM for table in results.config.task)
        limit = FREE if free else 0
    if not limit:
        return None
    with console.only_results_on_stdout(), bar("replaying") as advance:
        return asyncio.run(
            replayed(
                results,
                folder,
                system=system,
                limit=limit,
                dollars=dollars,
                on_progress=lambda done, total: advance(done, total, ""),
            )
        )


def dollars_of(text: str | None) -> Decimal | None:
    """An amount of an option.

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigError(f"--budget-dollars: got {text!r}, expected an amount of US dollars such as 2.50")
    return amount


@contextmanager
def bar(what: str) -> Generator[Callable[[int, int, str], None]]:
    """A bar on stderr, gone at the end; nothing where stderr is no terminal."""
    screen = console.messages()
    if not screen.is_interactive:
        yield lambda _done, _total, _more: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(None), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=screen, transient=True, expand=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, more: bar.update(task, completed=done, total=total, description=more)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────
def _show(made: Report) -> None:
    from rich.text import Text

    from openconductor.reporting.rows import heading, sections

    screen = console.results()
    screen.print(Text(console.printable(made.verdict.line), style="bold"), soft_wrap=True)
    screen.print(Text(console.printable(heading(made))), soft_wrap=True)
    show_sections(part for part in sections(made) if part.title not in HIDDEN)


def show_sections(parts: Iterable[Section]) -> None:
    """Print parts of a report for people."""
    from rich.text import Text

    screen = console.results()
    for part in parts:
        screen.print()
        screen.print(Text(console.printable(part.title), style="bold"))
        for line in part.lines:
            screen.print(Text(console.printable(line)))
        if part.grid is not None and part.grid.rows:
            screen.print(table_of(part.grid))


def table_of(grid: Grid) -> Table:
    """A table of a report as rich prints it: words to the left, figures to the right."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(grid.head):
        words = place in grid.words
        table.add_column(head, justify="left" if words else "right", overflow="fold")
    for place, cells in enumerate(grid.rows[: grid.brief]):
        table.add_row(*map(console.printable, cells), style="bold" if place == grid.marked else None)
    return table


def _files(files: Written) -> dict[str, object]:
    return {
        "report": str(files.report),
        "page": str(files.page),
        "figures": {name: str(path) for name, path in files.figures.items()},
    }
