"""``openconductor report``: print the verdict on a Conductor and the figures behind it.

The source is the folder of an evaluation, or a recipe that is evaluated first. The report's folder
gets report.json, figures as SVG and PNG, and one self-contained HTML page.
"""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.bill import dollars_text
from openconductor.cli.console import counted
from openconductor.cli.options import AsJson, Dollars
from openconductor.cli.runs import (
    RunOptions,
    default_folder,
    evaluate,
    interruptible,
    journals_in,
    spent_in,
)
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.eval_config import CONDUCTOR, TaskTable, load_eval_config
from openconductor.evaluation.records import Results
from openconductor.report.page import write_report
from openconductor.report.replays import (
    REPLAYS as REPLAYS_OF_RUN,
    Replays,
    load_conductor,
    read_replays,
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
from openconductor.types import Usage

AGAIN = "the same command"
JOURNALS = (REPLAYS_OF_RUN,)
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
        bool,
        typer.Option("--complete", help="Ask what is missing for a verdict, or to test a gain."),
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
    wanted = replays_are_free(results, folder)
    if counterfactual is not None:
        wanted = counterfactual > 0
    elif dollars is not None and not complete:
        wanted = True
    case = _Case(results, folder, name, counterfactual, dollars)
    inputs: dict[str, Any] = {
        "system": name,
        "before": untrained,
        "training_folder": training,
        "folder": folder,
    }
    with interruptible(folder, again, JOURNALS):
        if wanted:
            case.replay()
        elif counterfactual is None:
            case.read_replays()
        made = make_report(case.results, replays=case.replays, **inputs)
        if complete and made.verdict.missing is not None:
            case.complete(made.verdict.missing, str(made.price))
            made = make_report(case.results, replays=case.replays, **inputs)
    with console.only_results_on_stdout():
        files = write_report(
            made, case.results, folder, report_folder, curves=training, old=untrained
        )
    if as_json:
        console.show_json({**made.to_json(), "files": files})
    else:
        verdict = f"Did {made.orchestration.system} gain by orchestrating? {made.verdict.line}"
        verdict = verdict.replace(": ", ":\n", 1)  # the reason is long: it begins a line
        console.show(*made.advice, verdict, *made.notes, heading(made))
        show_sections(sections(made))
    page = files["page"]
    if page is None:
        page = "no page"
        console.say("no page and no figures; they require: pip install 'openconductor[plots]'")
    console.say(f"wrote {page}, {files['report']} and {len(files['figures'])} figures")
    if case.error is not None:
        raise case.error


def _check_places(report_folder: Path, training: Path | None) -> None:
    """Check where a report is written and what its curve is read of, before anything is replayed.

    Raises:
        ConfigError: the one is a file, or the other cannot be read.
    """
    if report_folder.exists() and not report_folder.is_dir():
        raise ConfigError(f"--out {report_folder}: is a file, expected a folder")
    if training is not None:
        read_training(training)


@dataclass(slots=True)
class _Case:
    """What a report is made of, and what is asked for it.

    Attributes:
        results: the results of the evaluation.
        folder: its folder.
        system: the system that is reported on.
        limit: the number of questions whose plans are replayed; None: all.
        dollars: the most that replays may cost, and the most that all runs of the evaluation may.
        replays: the replays of its plans; None: there are none.
        error: says that the budget is spent; None: it is not.
    """

    results: Results
    folder: Path
    system: str
    limit: int | None
    dollars: Decimal | None
    replays: Replays | None = None
    error: BudgetExceeded | None = None

    @property
    def _is_partial(self) -> bool:
        """Whether the plans of some questions only were replayed (``--counterfactual N``)."""
        questions = {record.key for record in self.results.of(self.system)}
        return self.replays is not None and len(self.replays.questions) < len(questions)

    def read_replays(self) -> None:
        """Take the replays that the run's folder keeps."""
        self.replays = read_replays(self.results, self.folder, self.system)
        if self.replays is None and (self.folder / REPLAYS_OF_RUN).is_file():
            console.say(
                "no replays: those in the folder were stopped, or are of other answers; "
                "--counterfactual N makes them, and pays for no call twice"
            )

    def replay(self, planning: int = 0) -> None:
        """Replay plans; if the budget is spent first, take those that the folder keeps.

        The planner is asked again for this number of questions, if it can be.
        """
        conductor = None
        if planning:
            try:
                loading = load_conductor(self.results, self.folder, self.system)
                conductor = asyncio.run(loading)
            except ConfigError as error:
                console.say(f"planning is not repeated: {error}")
        with console.only_results_on_stdout(), console.progress_bar("replaying") as on_progress:
            replaying = replay_plans(
                self.results,
                self.folder,
                system=self.system,
                siblings=find_siblings(self.results, self.system),
                limit=self.limit,
                dollars=self.dollars,
                on_progress=on_progress,
                conductor=conductor,
                planned=planning,
            )
            try:
                self.replays = asyncio.run(replaying)
            except BudgetExceeded as error:
                self.error = error
                self.replays = read_replays(self.results, self.folder, self.system)
        if planning and self.error is None and self.replays is not None:
            say_failed_planning(self.replays)

    def complete(self, missing: Missing, price: str) -> None:
        """Ask for what the verdict lacks, and say what that cost."""
        console.say(f"asking for what the verdict lacks: {price}")
        journals = journals_in(self.folder, JOURNALS)
        before = spent_in(journals)
        answers = len(self.results.records)
        if missing != Missing(planning=missing.planning):
            self._extend(missing)
        lacks_only_questions = bool(missing.questions) and (
            replace(missing, planning=0) == Missing(questions=missing.questions)
        )
        has_grown = len(self.results.records) > answers
        if self.error is None and lacks_only_questions and not (has_grown or self._is_partial):
            sources = [table.path or table.name for table in self.results.config.task]
            raise ConfigError(
                f"{', '.join(sources)}: no more questions; add some, or another task, and run the "
                "same command"
            )
        if self.error is None and (missing.replays or self.replays is not None):
            self.replay(missing.planning)
        now = spent_in(journals)
        dollars = now.usage.dollars - before.usage.dollars
        unpriced = now.usage.unpriced_calls - before.usage.unpriced_calls
        spent = dollars_text(Usage(dollars=dollars, unpriced_calls=unpriced), zero=True)
        console.say(f"asked {counted(now.calls - before.calls, 'call')}: {spent}")

    def _extend(self, missing: Missing) -> None:
        """Extend the evaluation by what its verdict lacks, as far as the budget allows."""
        results = self.results
        config = results.config
        known = [spec.name for spec in config.specs]
        systems = [*config.systems, *(name for name in missing.systems if name not in known)]
        if self.dollars is not None:
            config = replace(config, budget=replace(config.budget, dollars=self.dollars))
        total = sum(results.expected.values()) // config.repeats
        tables: list[TaskTable] = []
        for table in config.task:
            questions = results.expected[table.name] // config.repeats
            if missing.questions > total and (table.limit or results.config.simulated):
                wanted = math.ceil(questions * missing.questions / total)
                tables.append(replace(table, limit=wanted))
            else:
                tables.append(table)
        config = replace(config, systems=tuple(systems), task=tuple(tables))
        options = RunOptions(retry_failed=missing.answers, extends=True)
        try:
            self.results = evaluate(config, self.folder, "completing", options)
        except BudgetExceeded as error:
            self.error = error
            self.results = Results.load(self.folder)


def say_failed_planning(replays: Replays) -> None:
    """Say for how many questions the planner could not be asked again, and why the first."""
    again = replays.plays.again
    if again is not None and again.failures:
        failed = counted(len(again.failures), "question")
        reason = next(iter(again.failures.values()))
        console.say(f"planning was not repeated for {failed}: it failed; the first: {reason}")


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
        place = f"{example['training']}, problem {example['problem']}, reward {example['reward']}:"
        console.show("", place, Text(console.printable(str(example["completion"]))))
        if example["error"]:
            console.show(Text(console.printable(f"({example['error']})")))


def show_sections(parts: Iterable[Section]) -> None:
    """Print parts of a report: a heading, sentences, a table."""
    for part in parts:
        console.show("", Text(console.printable(part.title), style="bold"))
        for line in part.lines:
            console.show(Text(console.printable(line)))
        if part.rows:
            columns = range(1, len(part.head))
            names = next((column for column in columns if column not in part.words), 1)
            rows = part.rows[: part.brief]
            console.show_table(part.head, rows, words=part.words, names=names, marked=part.marked)
