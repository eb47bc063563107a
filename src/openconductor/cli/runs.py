"""Run folders: their default names, evaluations with a progress bar, and interruption."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from glob import escape
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.bill import dollars_text, say_interrupted
from openconductor.cli.console import counted
from openconductor.cli.options import Dollars, JudgeName, Out, Seed, UndecidedFate
from openconductor.config import read_toml
from openconductor.errors import BudgetExceeded, ConfigError, JournalError
from openconductor.evaluation.eval_config import GYM, EvalConfig, make_eval_config
from openconductor.evaluation.grid import EvalPlan, Progress, run_grid
from openconductor.evaluation.records import CONFIG, Results, holds, journal_place
from openconductor.evaluation.tables import TableRow, make_rows, much_masked
from openconductor.pool import simulated_pool
from openconductor.store import Spending, read_store
from openconductor.traces import TracesTable, open_traces

Values = dict[str, object]


def default_folder(config: EvalConfig) -> Path:
    """Return the folder of the day that holds this evaluation, or else a new one.

    The first of a day and name is ``runs/<date>-<name>``; others end with ``-2``, ``-3`` …
    """
    first = Path("runs") / f"{date.today():%Y-%m-%d}-{config.name}"
    others = first.parent.glob(f"{escape(first.name)}-*")
    for folder in (first, *sorted(others)):
        if holds(folder, config):
            return folder
    if not first.exists():
        return first
    numbered = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(folder for folder in numbered if not folder.exists())


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run of an evaluation; ``run_grid`` describes the first three."""

    retry_failed: bool = False
    extends: bool = False
    joins: bool = False
    traces: bool = False


def evaluate(
    config: EvalConfig, folder: Path, title: str, options: RunOptions | None = None
) -> Results:
    """Evaluate a recipe into a folder, or resume the run in it, with a progress bar."""
    options = options or RunOptions()
    with (
        open_traces(TracesTable() if options.traces else None) as tracing,
        console.only_results_on_stdout(),
        console.progress_bar(title) as advance,
    ):

        def report(progress: Progress) -> None:
            spent = progress.spent
            dollars = dollars_text(spent.usage, zero=True)
            costs = f"{dollars}, {counted(spent.calls, 'call')}"
            advance(progress.done, progress.total, costs)

        def begin(plan: EvalPlan) -> None:
            console.say(f"run folder: {folder}")
            if plan.is_recalibrated:
                console.say(
                    f"{config.pool} was calibrated since: this run goes on with its own cards; a "
                    "new folder (--out) takes the new ones"
                )

        running = run_grid(
            config,
            folder,
            retry_failed=options.retry_failed,
            extends=options.extends,
            joins=options.joins,
            on_begin=begin,
            on_progress=report,
            traces=tracing,
        )
        return asyncio.run(running)


def join_evaluation(recipe: Values) -> None:
    """Join an evaluation from a process of a cluster; its folder is for this process alone."""
    config = make_eval_config(recipe, where="recipe")
    with TemporaryDirectory(prefix="openconductor-") as folder:
        evaluate(config, Path(folder) / "run", "evaluating", RunOptions(joins=True))


@contextmanager
def interruptible(folder: Path, command: str, more: Sequence[str] = ()) -> Generator[None]:
    """On Ctrl-C, say what the calls in a run's journals cost, and the command that resumes it.

    ``more`` are the names of further journals in the folder.
    """
    try:
        yield
    except KeyboardInterrupt:
        if is_first_process() and (folder / CONFIG).is_file():
            spent = spent_in(journals_in(folder, more))
            say_interrupted(spent.calls, spent.usage, command, kept=True)
        raise


def ask_command(conductor: Path, pool: str) -> str:
    """Return the command that asks a trained Conductor over the pool of its training."""
    return shlex.join(["openconductor", "ask", "…", *_planner_options(conductor, pool)])


def _planner_options(conductor: Path, pool: str) -> list[str]:
    options = ["--conductor", str(conductor)]
    if simulated_pool(pool) is None:
        options += ["--pool", pool]
    return options


def require_evaluation(folder: Path) -> None:
    """Check that the run in a folder is not a training.

    Raises:
        ConfigError: it is one; the message has the commands for its Conductor.
    """
    path = folder / CONFIG
    if not path.is_file() or "rollout" not in read_toml(path):
        return
    from openconductor.training.train_config import load_train_config

    config = load_train_config(path)
    options = _planner_options(folder, config.pool)
    serve = ["openconductor", "serve", *options]
    measure = ["openconductor", "eval", "conductor", "workers", *options]
    for name, file in config.held_out_paths.items():
        measure += ["--task", name]
        if file:
            measure += ["--task-path", f"{name}={file}"]
    raise ConfigError(
        f"{folder}: is the folder of a training, expected that of an evaluation. To ask its "
        f"Conductor: {shlex.join(serve)}; to look at its answers, evaluate it first: "
        f"{shlex.join(measure)}"
    )


def is_first_process() -> bool:
    """Return True in the first of the processes of a training, which alone prints."""
    return os.environ.get("RANK", "0") == "0"


def journals_in(folder: Path, more: Sequence[str]) -> list[str | Path]:
    """Return the places of a run's journal, and of further ones in its folder."""
    return [journal_place(folder), *(folder / name for name in more)]


def spent_in(journals: Sequence[str | Path]) -> Spending:
    """Return the calls and their usage in those of the journals that can be read."""
    spending = Spending()
    for place in journals:
        if isinstance(place, str) or place.is_file():
            with suppress(JournalError), read_store(place) as reader:
                spending += reader.totals().spent
    return spending


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────
def read_task(text: str) -> Values:
    """Return the recipe's table of TASK or NAME=TASK."""
    name, equals, task = text.partition("=")
    return {"name": name, "task": task} if equals else {"name": name}


def named_tasks(paths: Sequence[str]) -> list[str]:
    """Return the names in FILE or NAME=FILE."""
    names = [_split_path(text)[0] for text in paths]
    return [name for name in names if name]


def read_task_paths(texts: Sequence[str], tasks: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the file of each task, of FILE or NAME=FILE; FILE is that of the only task."""
    names = [str(task["name"]) for task in tasks]
    paths: dict[str, str] = {}
    for text in texts:
        name, path = _split_path(text)
        if not name and len(names) == 1:
            name = names[0]
        if name not in names or not path:
            raise ConfigError(
                f"--task-path: got {text!r}, expected NAME=FILE with the name of a --task, or "
                f"FILE for a single task; the tasks: {', '.join(names)}"
            )
        paths[name] = path
    return paths


def _split_path(text: str) -> tuple[str, str]:
    """Return the name ("": none) and the path of FILE or NAME=FILE."""
    name, equals, path = text.partition("=")
    if not equals or "/" in name:
        return "", text
    return name, path


def read_learn(text: str | None) -> Values:
    """Return the recipe's table of TASK or TASK=FILE, from which systems learn."""
    if text is None:
        return {}
    task, equals, path = text.partition("=")
    if not task or (equals and not path):
        raise ConfigError(f"--learn: got {text!r}, expected TASK or TASK=FILE")
    return {"task": task, "path": path} if equals else {"task": task}


def complete_tasks(
    tasks: Sequence[Mapping[str, object]], paths: Mapping[str, str], limit: int | None
) -> list[Values]:
    """Return the recipe's tables of tasks, with the paths and the limit of the command line."""
    tables: list[Values] = []
    for task in tasks:
        table = dict(task)
        path = paths.get(str(task["name"]))
        if path is not None:
            table["path"] = path
        if limit is not None:
            table["limit"] = limit
        tables.append(table)
    return tables


# ── every worker alone ────────────────────────────────────────────────────────────────────────────
def missing_text(answers: int) -> str:
    """Say how many answers a stopped evaluation lacks."""
    verb = "is" if answers == 1 else "are"
    return f"{counted(answers, 'answer')} {verb} missing"


@dataclass(frozen=True, slots=True)
class WorkersRun:
    """A run in which every worker of a pool was asked alone.

    Attributes:
        folder: the run's folder.
        results: its results so far.
        error: the error if the budget was spent before the end.
    """

    folder: Path
    results: Results
    error: BudgetExceeded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersRunOptions:
    """The options of a run in which every worker is asked alone."""

    task_path: Annotated[
        list[str] | None,
        typer.Option("--task-path", help="FILE or NAME=FILE: local data of a task."),
    ] = None
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many questions are drawn, by the seed.")
    ] = 100
    seed: Seed = 0
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Questions asked at once.")
    ] = 32
    undecided: UndecidedFate = None
    judge: JudgeName = None
    dollars: Dollars = None
    calls: Annotated[
        int | None,
        typer.Option("--budget-calls", min=1, help="The most calls of all runs together."),
    ] = None
    out: Out = None


def ask_workers(
    verb: str,
    pool: Path | None,
    tasks: Sequence[str],
    options: WorkersRunOptions,
    *,
    repeats: int = 1,
) -> WorkersRun:
    """Ask every worker of a pool file (None: of the gym) alone, or resume the run that did."""
    tables = [read_task(text) for text in dict.fromkeys(tasks)]
    path_of_task = read_task_paths(options.task_path or [], tables)
    values: dict[str, object] = {
        "name": f"{verb}-{GYM if pool is None else pool.stem}",
        "pool": GYM if pool is None else str(pool),
        "systems": ["workers"],
        "task": complete_tasks(tables, path_of_task, options.limit),
        "repeats": repeats,
        "seed": options.seed,
        "undecided": options.undecided or "masked",
        "judge": options.judge or "",
        "concurrency": options.concurrency,
        "budget": {"dollars": options.dollars, "calls": options.calls},
    }
    config = make_eval_config(values, where="command line")
    folder = options.out or default_folder(config)
    error = None
    try:
        with interruptible(folder, f"the same command and --out {shlex.quote(str(folder))}"):
            results = evaluate(config, folder, "asking the workers")
    except BudgetExceeded as spent:
        error = spent
        results = Results.load(folder)
    say_masked(make_rows(results))
    return WorkersRun(folder, results, error)


def say_masked(rows: Sequence[TableRow]) -> None:
    """Warn of accuracies that leave out many masked answers."""
    warning = much_masked(rows)
    if warning:
        console.say(f"warning: {warning}")
