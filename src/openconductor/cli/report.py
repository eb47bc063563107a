"""``openconductor report``: did the Conductor learn to orchestrate? The verdict first, then the figures behind it.

In: the folder of an evaluation, or a recipe, which is then evaluated first. Out: the verdict and
short tables on stdout (``--json``: all values), and files: report.json, figures as SVG and PNG, and
one self-contained HTML page.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.options import AsJson, Dollars
from openconductor.cli.runs import evaluated, interruptible, own_folder
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.eval_config import CONDUCTOR, load_eval_config
from openconductor.evaluation.records import JOURNAL, Results
from openconductor.report.page import write_report
from openconductor.report.replays import (
    REPLAYS as JOURNAL_OF_REPLAYS,
    replay_plans,
    replays_are_free,
)
from openconductor.report.report import choose_system, make_report, same_questions
from openconductor.report.sections import Section, heading, sections
from openconductor.report.training import read_completions, read_training

AGAIN = "the same command"
CURVE = "curves.jsonl"
REPLAYS = """Replay the plans of N questions with one thing taken away at a time; earlier calls are free
(default: all where it is free, in the gym and over recorded models, and with --budget-dollars; else 0)."""


def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="The folder of an evaluation or a training, or a recipe (TOML) to evaluate first."
        ),
    ],
    system: Annotated[
        str | None, typer.Option("--system", help="Which system (default: conductor).")
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--before", help="The untrained one: its evaluation, or run.")
    ] = None,
    training: Annotated[
        Path | None, typer.Option("--training", help="A training's folder, for its curve.")
    ] = None,
    counterfactual: Annotated[
        int | None, typer.Option("--counterfactual", min=0, help=REPLAYS)
    ] = None,
    dollars: Dollars = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the files go (default: FOLDER/report).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether orchestrating gained anything, with a page and plots.

    Of a recipe everything is done by this one command: it evaluates (or continues with what is in
    --out), then reports.
    """
    if (source / CURVE).is_file():
        show_training(source, as_json=as_json)
        return
    if source.is_dir():
        folder, results = source, Results.load(source)
    elif source.is_file():
        config = load_eval_config(source)
        folder, out = out or own_folder(config), None
        with interruptible(folder, f"{AGAIN} and --out {shlex.quote(str(folder))}"):
            results = evaluated(config, folder, "evaluating")
    else:
        raise ConfigError(
            f"{source}: is not there, expected the folder of an evaluation or a recipe (TOML)"
        )
    for checkpoint in () if before is None else (before / "cold_start", before):
        if (checkpoint / "conductor.json").is_file():
            begun, before = (
                replace(results.config.conductor, planner=str(checkpoint)),
                folder / "before",
            )
            config = replace(results.config, systems=(CONDUCTOR,), against="", conductor=begun)
            with interruptible(before, AGAIN):
                evaluated(config, before, "before")
            break
    earlier = (
        None if before is None else same_questions(folder, before)
    )  # before anything is replayed
    named = choose_system(results, system)
    found, limit = None, counterfactual
    if limit or (limit is None and (dollars is not None or replays_are_free(results, folder))):
        most = None if dollars is None else Decimal(dollars)
        again = AGAIN if source == folder else f"{AGAIN} and --out {shlex.quote(str(folder))}"
        with (
            interruptible(folder, again, (JOURNAL, JOURNAL_OF_REPLAYS)),
            console.only_results_on_stdout(),
            console.progress_bar("replaying") as on_progress,
        ):
            replaying = replay_plans(
                results, folder, system=named, limit=limit, dollars=most, on_progress=on_progress
            )
            try:
                found = asyncio.run(replaying)
            except BudgetExceeded as error:
                if limit is not None:  # else nobody asked for them: the report is made without
                    raise
                console.say(
                    f"no replays: {error}; --counterfactual N replays the plans of fewer questions"
                )
    made = make_report(results, system=named, before=earlier, training_folder=training, found=found)
    with console.only_results_on_stdout():
        files = write_report(
            made, results, folder, out or folder / "report", curves=training, old=earlier
        )
    if as_json:
        console.show_json({**made.to_json(), "files": files})
    else:
        console.show(made.verdict.line, heading(made))
        show_sections(sections(made))
    if files["page"] is None:
        console.say(
            "no page and no figures; expected the extra: pip install 'openconductor[plots]'"
        )
    console.say(
        f"wrote {files['page'] or 'no page'}, {files['report']} and {len(files['figures'])} figures"
    )


def show_training(folder: Path, *, as_json: bool) -> None:
    """Print how a training went: its curve from the beginning to the end, and what the Conductor wrote."""
    found = read_training(folder)
    ends = {
        "first": range(found.window),
        "last": range(found.iterations - found.window, found.iterations),
    }
    wrote = {
        name: read_completions(folder, iterations=iterations) for name, iterations in ends.items()
    }
    if as_json:
        console.show_json({"training": found, "completions": wrote})
        return
    console.show(f"{found.iterations} iterations; the first and the last {found.window}:")
    rows: list[list[str]] = []
    for name in ("validity", "accuracy", "given_valid", "routing_entropy"):
        course = getattr(found, name)
        levels = ("–" if one is None else f"{one.value:.3f}" for one in (course.begin, course.end))
        rows.append([name.replace("_", " "), *levels])
    console.show_table(("", "first", "last"), rows)
    for name, part in wrote.items():
        reasons = ", ".join(f"{reason} {count}" for reason, count in part.invalid) or "none"
        console.show(f"Not workflows among the {name} {part.sampled} completions: {reasons}.")
    for example in wrote["last"].examples:
        console.show(
            "", f"{example['training']}, problem {example['problem']}, reward {example['reward']}:"
        )
        console.show(Text(console.printable(str(example["completion"]))))
        if example["error"]:
            console.show(Text(console.printable(f"({example['error']})")))


def show_sections(parts: Iterable[Section]) -> None:
    """Print parts of a report: a heading, sentences, a table."""
    for part in parts:
        console.show("", Text(console.printable(part.title), style="bold"))
        for line in part.lines:
            console.show(Text(console.printable(line)))
        if part.rows:
            names = next(
                (place for place in range(1, len(part.head)) if place not in part.words), 1
            )
            rows = part.rows[: part.brief]
            console.show_table(part.head, rows, words=part.words, names=names, marked=part.marked)
