"""What several verbs share: options, where a run goes, an evaluation with a bar beside it, parts of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openconductor.cli import console
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.evaluation.eval_config import EvalConfig
    from openconductor.evaluation.grid import Progress
    from openconductor.evaluation.records import Results
    from openconductor.report.figures import Section

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BaseUrl = Annotated[str | None, typer.Option("--conductor-base-url", help="Where its API begins, /v1 included.")]
KeyEnv = Annotated[str | None, typer.Option("--conductor-key-env", help="The environment variable that holds its key.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe-code-exec", help="Run programs even where no sandbox works: they can do anything.")
]
Dollars = Annotated[str | None, typer.Option("--budget-dollars", help="The most US dollars, of all runs.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="The run's folder; what is in it is resumed.", show_default="a new one in runs/"),
]
PlannerName = Annotated[
    str | None,
    typer.Option("--conductor", help="provider:model, a checkpoint folder, or worker:NAME.", show_default="bundled"),
]


def new_folder(name: str) -> Path:
    """Where a run goes if nothing is said: ``runs/<date>-<name>``."""
    return Path("runs") / f"{date.today():%Y-%m-%d}-{name}"


def own_folder(config: EvalConfig) -> Path:
    """Where an evaluation goes if nothing is said: the folder of the day that holds it already, or else a new one.

    The first of a day and name is ``runs/<date>-<name>``; others have ``-2``, ``-3`` … behind that.
    """
    from openconductor.evaluation.records import holds

    first = new_folder(config.name)
    numbered = re.compile(re.escape(first.name) + r"-([2-9]|[1-9]\d+)")
    there = first.parent.iterdir() if first.parent.is_dir() else ()
    taken = {int(match[1]): path for path in there if (match := numbered.fullmatch(path.name))}
    if first.exists():
        taken[1] = first
    for _, folder in sorted(taken.items()):
        if holds(folder, config):
            return folder
    free = next(number for number in range(1, len(taken) + 2) if number not in taken)
    return first if free == 1 else first.with_name(f"{first.name}-{free}")


def evaluated(config: EvalConfig, folder: Path, what: str, *, retry_failed: bool = False) -> Results:
    """Evaluate a recipe into a folder, or resume what is there; ``what`` names it beside the bar."""
    import asyncio

    from openconductor.cli.live import dollars_text
    from openconductor.evaluation.grid import run_grid

    console.say(f"run folder: {folder}")
    with console.only_results_on_stdout(), console.progress_bar(what) as advance:

        def told(now: Progress) -> None:
            paid = dollars_text(now.spent.usage, zero=True)
            advance(now.done, now.total, f"{paid}, {counted(now.spent.calls, 'call')}")

        return asyncio.run(run_grid(config, folder, retry_failed=retry_failed, on_progress=told))


def missing(count: int) -> str:
    """How many answers an evaluation that was stopped still lacks."""
    return f"{counted(count, 'answer')} {'is' if count == 1 else 'are'} missing"


def counted(count: int, one: str) -> str:
    """How many of what: ``1 answer``, ``2,400 answers``."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def dollars_of(text: str | None) -> Decimal | None:
    """An amount of the option ``--budget-dollars``.

    Raises:
        ConfigError: it is not an amount.
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


def one_of(option: str, value: str, known: Iterable[str]) -> str:
    """The value of an option that has only certain values.

    Raises:
        ConfigError: it is another one; the message names the nearest.
    """
    from openconductor.config import nearest

    names = list(known)
    if value not in names:
        near = nearest(value, names)
        raise ConfigError(f"{option}: got {value!r}, expected one of {', '.join(names)}; nearest: {near!r}")
    return value


def show_sections(parts: Iterable[Section]) -> None:
    """Print parts of a report: a heading, sentences, a table."""
    from rich.text import Text

    screen = console.results()
    for part in parts:
        screen.print("", Text(console.printable(part.title), style="bold"), sep="\n")
        for line in part.lines:
            screen.print(Text(console.printable(line)))
        if part.rows:
            names = next((place for place in range(1, len(part.head)) if place not in part.words), 1)
            styles = ["bold" if place == part.marked else None for place in range(len(part.rows))]
            rows = part.rows[: part.brief]
            console.show_table(part.head, rows, words=part.words, names=names, styles=styles)
