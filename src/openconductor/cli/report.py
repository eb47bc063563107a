"""``openconductor report``: print the verdict on a Conductor and the figures behind it.

The source is the folder of an evaluation, or a recipe that is evaluated first. The report's folder
gets report.json, figures as SVG and PNG, and one self-contained HTML page.
"""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.options import AsJson, Dollars
from openconductor.cli.runs import default_folder, evaluate, interruptible
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.eval_config import CONDUCTOR, TaskTable, load_eval_config
from openconductor.evaluation.records import JOURNAL, Results
from openconductor.report.page import write_report
from openconductor.report.replays import (
    REPLAYS as JOURNAL_OF_REPLAYS,
    play_whole_plans,
    replay_plans,
    replays_are_free,
)
from openconductor.report.report import (
    choose_system,
    find_siblings,
    make_report,
    same_questions,
)
from openconductor.report.sections import Section, heading, sections
from openconductor.report.training import Completions, Training, read_completions, read_training
from openconductor.report.verdict import Missing

AGAIN = "the same command"
CURVE = "curves.jsonl"
REPLAYS = """Replay the plans of N questions with one thing taken away at a time; earlier calls are
free (default: all questions if replays are free, as in the gym and over recorded models, or with
--budget-dollars; otherwise 0)."""


def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="The folder of an evaluation or a training, or a recipe (TOML) to evaluate first."
        ),
    ],
    system: Annotated[
        str | None, typer.Option("--system", help="The system to report on (default: conductor).")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option("--before", help="The untrained Conductor: the folder of its evaluation."),
    ] = None,
    training: Annotated[
        Path | None, typer.Option("--training", help="The folder of a training, for its curve.")
    ] = None,
    counterfactual: Annotated[
        int | None, typer.Option("--counterfactual", min=0, help=REPLAYS)
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="If the verdict is undecided, ask what is missing.")
    ] = False,
    dollars: Dollars = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The report's folder (default: FOLDER/report).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether orchestrating gained anything, with a page and plots.

    A recipe is evaluated first, or resumed if --out has a run of it; then it is reported on.
    """
    if (source / CURVE).is_file():
        show_training(source, as_json=as_json)
        return
    again = AGAIN
    if source.is_dir():
        folder = source
        report_folder = out or source / "report"
        results = Results.load(folder)
    elif source.is_file():
        config = load_eval_config(source)
        folder = out or default_folder(config)
        report_folder = folder / "report"
        again = f"{AGAIN} and --out {shlex.quote(str(folder))}"
        with interruptible(folder, again):
            results = evaluate(config, folder, "evaluating")
    else:
        raise ConfigError(
            f"{source} does not exist; expected the folder of an evaluation, or a recipe (TOML)"
        )
    _check_places(report_folder, training)
    untrained = None
    if before is not None:  # compared before anything is replayed
        untrained = same_questions(folder, _evaluated_before(results, folder, before))
    name = choose_system(results, system)
    replays: dict[str, Any] = {}
    if counterfactual is None:
        wanted = dollars is not None or replays_are_free(results, folder)
    else:
        wanted = counterfactual > 0
    if wanted:
        with interruptible(folder, again, (JOURNAL, JOURNAL_OF_REPLAYS)):
            replays = _replay(results, folder, name, counterfactual, dollars)
    inputs: dict[str, Any] = {
        "system": name,
        "before": untrained,
        "training_folder": training,
        "folder": folder,
    }
    made = make_report(results, **replays, **inputs)
    missing = made.verdict.missing
    if complete and missing is not None:
        with interruptible(folder, again, (JOURNAL, JOURNAL_OF_REPLAYS)):
            results = _ask_missing(results, folder, missing, dollars)
            if missing.replays or replays:
                replays = _replay(results, folder, name, counterfactual, dollars)
        made = make_report(results, **replays, **inputs)
    with console.only_results_on_stdout():
        files = write_report(made, results, folder, report_folder, curves=training, old=untrained)
    if as_json:
        console.show_json({**made.to_json(), "files": files})
    else:
        first, *others = made.summary
        console.show(first, made.verdict.line, *others, heading(made))
        show_sections(sections(made))
    page = files["page"]
    if page is None:
        page = "no page"
        console.say("no page and no figures; they require: pip install 'openconductor[plots]'")
    console.say(f"wrote {page}, {files['report']} and {len(files['figures'])} figures")


def _check_places(report_folder: Path, training: Path | None) -> None:
    """Check where a report is written and what its curve is read of, before anything is replayed.

    Raises:
        ConfigError: the one is a file, or the other cannot be read.
    """
    if report_folder.exists() and not report_folder.is_dir():
        raise ConfigError(f"--out {report_folder}: is a file, expected a folder")
    if training is not None:
        read_training(training)


def _ask_missing(
    results: Results, folder: Path, missing: Missing, dollars: Decimal | None
) -> Results:
    """Extend the evaluation by what its verdict lacks, and return its results.

    ``dollars`` is the most that all runs of the evaluation may cost together.
    """
    config = results.config
    known = [spec.name for spec in config.specs]
    systems = [*config.systems, *(name for name in missing.systems if name not in known)]
    if dollars is not None:
        config = replace(config, budget=replace(config.budget, dollars=dollars))
    tables: list[TaskTable] = []
    for table in config.task:
        asked = results.expected[table.name] // config.repeats
        total = sum(results.expected.values()) // config.repeats
        if missing.questions > total:
            table = replace(table, limit=math.ceil(asked * missing.questions / total))  # noqa: PLW2901
        tables.append(table)
    config = replace(config, systems=tuple(systems), task=tuple(tables))
    return evaluate(config, folder, "completing", retry_failed=missing.answers, extends=True)


def _evaluated_before(results: Results, folder: Path, before: Path) -> Path:
    """Return the evaluation of the untrained Conductor; a checkpoint is evaluated first."""
    for checkpoint in (before / "cold_start", before):
        if (checkpoint / "conductor.json").is_file():
            planner = replace(results.config.conductor, planner=str(checkpoint))
            config = replace(results.config, systems=(CONDUCTOR,), against="", conductor=planner)
            evaluation = folder / "before"
            with interruptible(evaluation, AGAIN):
                evaluate(config, evaluation, "before")
            return evaluation
    return before


def _replay(
    results: Results, folder: Path, system: str, limit: int | None, dollars: Decimal | None
) -> dict[str, Any]:
    """Replay plans, and return what a report takes of it.

    Empty: the budget is spent, and no number of questions was asked for.
    """
    with console.only_results_on_stdout(), console.progress_bar("replaying") as on_progress:

        async def replay() -> dict[str, Any]:
            options: dict[str, Any] = {
                "system": system,
                "limit": limit,
                "dollars": dollars,
                "on_progress": on_progress,
            }
            siblings = find_siblings(results, system)
            plays = await play_whole_plans(results, folder, siblings=siblings, **options)
            return {"plays": plays, "found": await replay_plans(results, folder, **options)}

        try:
            return asyncio.run(replay())
        except BudgetExceeded as error:
            if limit is not None:
                raise
            console.say(
                f"no replays: {error}; --counterfactual N replays the plans of fewer questions"
            )
            return {}


def show_training(folder: Path, *, as_json: bool) -> None:
    """Print a training's curve from the beginning to the end, and some completions."""
    training = read_training(folder)
    count, window = training.iterations, training.window
    first = read_completions(folder, iterations=range(window))
    last = read_completions(folder, iterations=range(count - window, count))
    if as_json:
        console.show_json({"training": training, "completions": {"first": first, "last": last}})
        return
    console.show(f"{count} iterations; the first and the last {window}:")
    _show_curve(training)
    for name, part in (("first", first), ("last", last)):
        reasons = ", ".join(f"{reason} {count}" for reason, count in part.invalid) or "none"
        console.show(f"Not workflows among the {name} {part.sampled} completions: {reasons}.")
    _show_examples(last)


def _show_curve(training: Training) -> None:
    rows: list[list[str]] = []
    for name in ("validity", "accuracy", "given_valid", "routing_entropy"):
        course = getattr(training, name)
        row = [name.replace("_", " ")]
        for level in (course.begin, course.end):
            row.append("–" if level is None else f"{level.value:.3f}")
        rows.append(row)
    console.show_table(("", "first", "last"), rows)


def _show_examples(completions: Completions) -> None:
    for example in completions.examples:
        place = f"{example['training']}, problem {example['problem']}"
        console.show("", f"{place}, reward {example['reward']}:")
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
            figures = [place for place in range(1, len(part.head)) if place not in part.words]
            names = figures[0] if figures else 1
            rows = part.rows[: part.brief]
            console.show_table(part.head, rows, words=part.words, names=names, marked=part.marked)
