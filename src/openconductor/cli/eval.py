"""``openconductor eval``: evaluate systems on tasks, or grade the answers of a run again.

Systems and tasks come from options, from a recipe with ``key=value`` overrides, or from the folder
of a run, which is resumed. The table goes to stdout, progress to stderr, files to the run's folder.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.console import counted
from openconductor.cli.options import (
    AsJson,
    BaseUrl,
    Cards,
    Dollars,
    DryRunOption,
    Force,
    JudgeName,
    KeyEnv,
    Offline,
    Out,
    PlannerName,
    PoolFile,
    Traced,
    UndecidedFate,
    Unsafe,
)
from openconductor.cli.runs import (
    RunOptions,
    Values,
    complete_tasks,
    default_folder,
    evaluate,
    interruptible,
    join_evaluation,
    missing_text,
    named_tasks,
    read_learn,
    read_task,
    read_task_paths,
    say_masked,
)
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.eval_config import (
    EvalConfig,
    load_eval_config,
    make_eval_config,
    plain_config,
)
from openconductor.evaluation.grid import check_joining
from openconductor.evaluation.records import Results, journal_place, latency
from openconductor.evaluation.regrade import Regraded, regrade
from openconductor.evaluation.tables import (
    UNKNOWN,
    Table,
    briefly,
    comparisons,
    cut_answers,
    first_table,
    invalid_plans,
    make_table,
)
from openconductor.store import read_store
from openconductor.tasks.simulated import SIMULATIONS
from openconductor.types import OnNoPlan

if TYPE_CHECKING:
    from openconductor.evaluation.dry_run import SystemNeeds

SYSTEMS = """The systems to ask: conductor, workers, worker:NAME, a baseline (consensus:NAME?n=5, or
module:attribute), an ablation (conductor?subtasks=false). With --config also key=value."""
_OVERRIDE = re.compile(r"[a-z_][a-z0-9_.]*=")
SHOWN_MOVES = 20
_VERDICTS = {None: "undecided", True: "right", False: "wrong"}


def eval(  # noqa: A001, PLR0913, PLR0917 - the options of a command
    systems: Annotated[list[str] | None, typer.Argument(help=SYSTEMS, show_default=False)] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="TASK or NAME=TASK; repeatable (default: gym)."),
    ] = None,
    task_path: Annotated[
        list[str] | None,
        typer.Option("--task-path", help="FILE or NAME=FILE: local data of a task."),
    ] = None,
    learn: Annotated[
        str | None,
        typer.Option(
            "--learn", help="TASK or TASK=FILE: other questions, which best_fixed learns from."
        ),
    ] = None,
    pool: PoolFile = None,
    conductor: PlannerName = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    cards: Cards = None,
    force: Force = False,
    on_no_plan: Annotated[
        OnNoPlan | None,
        typer.Option(
            "--on-no-plan",
            help="Without a valid plan: error, or default_worker, as `ask` and `serve` do.",
            show_default="error",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The most problems of each task.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="How often each question is asked.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="The seed of problems, choices and simulated answers."),
    ] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", help="constrained (4,096 tokens) or unconstrained.")
    ] = None,
    undecided: UndecidedFate = None,
    judge: JudgeName = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The system to compare the others with.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Questions asked at once.")
    ] = None,
    dollars: Dollars = None,
    calls: Annotated[
        int | None,
        typer.Option("--budget-calls", min=0, help="The most calls of all runs together."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A recipe (TOML).")] = None,
    unsafe: Unsafe = False,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="URL",
            help="The PostgreSQL database of calls and answers (default: a file in --out).",
        ),
    ] = None,
    join: Annotated[
        bool,
        typer.Option("--join", help="Share the questions with other processes over --journal."),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Start processes that join on a Ray cluster ([ray] of the recipe says how many).",
        ),
    ] = None,
    out: Out = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again where an answer failed.")
    ] = False,
    regraded: Annotated[
        Path | None,
        typer.Option("--regrade", help="A run's folder: only grade its answers again."),
    ] = None,
    traces: Traced = False,
    dry_run: DryRunOption = False,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate systems on tasks, with intervals and costs; resumable."""
    words = systems or []
    overrides = [word for word in words if _OVERRIDE.match(word)]
    names = [word for word in words if not _OVERRIDE.match(word)]
    paths = task_path or []
    tasks = [read_task(text) for text in task or named_tasks(paths)]
    changes = _overlay(
        {},
        {
            "systems": names or None,
            "pool": None if pool is None else str(pool),
            "conductor": {
                "planner": conductor,
                "base_url": base_url,
                "api_key_env": key_env,
                "cards": cards,
                "force": force or None,
                "on_no_plan": on_no_plan,
            },
            "repeats": repeats,
            "seed": seed,
            "setting": setting,
            "undecided": undecided,
            "judge": judge,
            "against": against,
            "unsafe_code_exec": unsafe or None,
            "concurrency": concurrency,
            "budget": {"dollars": dollars, "calls": calls},
            "journal": journal,
            "learn": read_learn(learn),
        },
    )
    if regraded is not None:
        others = (overrides, tasks, paths, limit, config, out, retry_failed, traces, dry_run)
        if changes.keys() - {"judge"} or any(others) or offline or join or ray:
            raise ConfigError(
                "--regrade allows only --judge and --json; a judge is asked again where it failed"
            )
        _regrade(regraded, judge or "", as_json)
        return
    if config is None and out is not None and not names and (out / "config.toml").is_file():
        config = out / "config.toml"
    if config is None and overrides:
        raise ConfigError(f"{overrides[0]!r}: key=value requires --config")
    read = EvalConfig() if config is None else load_eval_config(config, overrides)
    base = plain_config(read)
    if names:
        base.pop("system", None)
    if learn is not None:
        cast("Values", base["learn"]).pop("path", None)
    values = _overlay(base, changes)
    chosen = tasks or cast("list[Values]", base["task"])
    values["task"] = complete_tasks(chosen, read_task_paths(paths, chosen), limit)
    where = "command line" if config is None else str(config)
    recipe = make_eval_config(values, where=where)
    joins = join or ray is not None
    if joins:
        check_joining(recipe, retry_failed=retry_failed)
    if dry_run:
        _dry_run(recipe, out, offline=offline, as_json=as_json)
        return
    if offline:
        raise ConfigError("--offline requires --dry-run")
    folder = out or default_folder(recipe)
    options = RunOptions(retry_failed=retry_failed, joins=joins, traces=traces)
    if ray is not None:
        _join_on_ray(recipe, ray)
    _evaluate(recipe, folder, options, as_json=as_json)


def _overlay(base: Mapping[str, object], changes: Values) -> Values:
    """Return the base with all changes that are not None, table by table."""
    merged = dict(base)
    for name, value in changes.items():
        if isinstance(value, dict):
            table = _overlay(cast("Values", base.get(name, {})), cast("Values", value))
            if table:
                merged[name] = table
        elif value is not None:
            merged[name] = value
    return merged


def _join_on_ray(config: EvalConfig, address: str) -> None:
    """Have the questions asked by processes on a Ray cluster."""
    from openconductor.evaluation.joined.ray_cluster import join_on_ray

    join = partial(join_evaluation, plain_config(config))
    join_on_ray(address, config.ray, join, command="eval --ray", say=console.say)


def _evaluate(config: EvalConfig, folder: Path, options: RunOptions, *, as_json: bool) -> None:
    command = ["openconductor", "eval", "--out", str(folder)]
    if options.joins:
        command.append("--join")
    try:
        with interruptible(folder, shlex.join(command)):
            results = evaluate(config, folder, "evaluating", options)
    except BudgetExceeded:
        console.say(f"the table so far: {folder / 'table.md'}")
        raise
    _show(results, folder, as_json)
    _say_next(results, folder)
    _say_masked_answers(results, folder)


def _say_next(results: Results, folder: Path) -> None:
    """Say which command looks at the results: of answers alone, where no system plans."""
    rounds = [record.rounds[0] for record in results.records if record.rounds]
    verb = "report" if any(first.planned for first in rounds) else "show"
    console.say(f"next: {shlex.join(['openconductor', verb, str(folder)])}")


def _say_masked_answers(results: Results, folder: Path) -> None:
    """Say why answers are masked, and what asks again; fail if all of them are."""
    masked = [record for record in results.records if record.correct is None]
    failed = sum(record.status == "failed" for record in masked)
    if failed:
        verb = "is" if failed == 1 else "are"
        answers = counted(failed, "answer")
        console.say(f"{answers} failed and {verb} masked; --retry-failed asks again")
    notes = Counter(record.note for record in masked if record.status == "ungraded")
    if notes:
        _say_ungraded(notes, folder, results.config.judge)
    if len(masked) == len(results.records):
        message = f"none of {counted(len(masked), 'answer')} could be decided"
        reasons = [record.error or record.note for record in masked]
        first = next(filter(None, reasons), None)
        if first is not None:
            message += f"; the first: {first}"
        console.fail(message)


def _say_ungraded(notes: Counter[str], folder: Path, judge: str) -> None:
    """Say why answers could not be decided, and the command that decides more of them."""
    ((note, _),) = notes.most_common(1)
    command = ["openconductor", "eval", "--regrade", str(folder)]
    if not judge:
        command += ["--judge", "NAME"]
    who = f"the judge {judge}" if judge else "a worker, if they are free-form"
    console.say(
        f"{counted(notes.total(), 'answer')} could not be decided (mostly: {note}); this asks "
        f"{who}: {shlex.join(command)}"
    )


def _dry_run(config: EvalConfig, folder: Path | None, *, offline: bool, as_json: bool) -> None:
    """Check everything, estimate calls, tokens and dollars, and print both."""
    from openconductor.evaluation.dry_run import ASSUMED, add_up, check_evaluation

    with console.only_results_on_stdout():
        checked = asyncio.run(check_evaluation(config, folder, offline=offline))
    needs = [*checked.needs, add_up("together", checked.needs)] if checked.needs else []
    if as_json:
        console.show_json({"checks": checked.checklist.checks, "needs": needs})
    else:
        console.show_checks(checked.checklist.checks)
        if needs:
            _show_needs(needs, ASSUMED if config.pool not in SIMULATIONS else "")
    console.finish_checks(checked.checklist, offline=offline)


def _show_needs(needs: Sequence[SystemNeeds], assumed: str) -> None:
    """Print what each system asks for, the last row for all together; "": nothing is paid."""
    rows: list[list[str]] = []
    for row in needs:
        dollars = UNKNOWN if row.dollars is None else f"{row.dollars:,.2f}"
        rows.append([row.system, f"{row.calls:,}", f"{row.tokens:,}", dollars if assumed else "0"])
    console.show("")
    console.show_table(("system", "calls", "tokens", "dollars"), rows, marked=len(rows) - 1)
    if assumed:
        console.say(f"{assumed}; {UNKNOWN}: a price is unknown")


def _regrade(folder: Path, judge: str, as_json: bool) -> None:
    with console.only_results_on_stdout(), console.progress_bar("grading") as advance:
        regraded = asyncio.run(regrade(folder, judge=judge, on_progress=advance))
    if not as_json:
        _say_moves(regraded)
    _show(regraded.results, folder, as_json, regraded)
    _say_next(regraded.results, folder)
    _say_masked_answers(regraded.results, folder)
    fates = Counter(record.status for record in regraded.results.records)
    if regraded.results.config.judge and fates["ungraded"] and not fates["judged"]:
        console.fail(f"the judge {regraded.results.config.judge} has decided no answer")


def _say_moves(regraded: Regraded) -> None:
    moves = regraded.moves
    graded = counted(regraded.graded, "answer")
    console.say(f"{graded} graded again, {counted(len(moves), 'verdict')} changed")
    for move in moves[:SHOWN_MOVES]:
        answer = f"{move.system} {move.task} {move.problem} #{move.sample}"
        verdicts = f"{_VERDICTS[move.before]} -> {_VERDICTS[move.now]}"
        console.say(f"  {answer}: {verdicts} ({move.note})")
    if len(moves) > SHOWN_MOVES:
        console.say(f"  and {len(moves) - SHOWN_MOVES} more; --json lists them all")


def _show(results: Results, folder: Path, as_json: bool, regraded: Regraded | None = None) -> None:
    table = make_table(results)
    say_masked(table.rows)
    for line in invalid_plans(results):
        console.say(line)
    if as_json:
        values = table.to_json()
        values["latency"] = latency(results)
        values["folder"] = str(folder)
        values["spent"] = _spent(folder)
        if regraded is not None:
            values["regraded"] = regraded.graded
            values["moves"] = regraded.moves
        console.show_json(values)
    else:
        _show_table(table, results)
    for line in cut_answers(results):
        console.say(line)


def _show_table(table: Table, results: Results) -> None:
    against = f"against {table.against}"
    compared = table
    if table.best_worker and not results.config.against:
        against = f"against {table.best_worker}, the best worker alone"
        compared = make_table(results, table.best_worker)
    parts = {
        "accuracy, with standard errors clustered by problem": first_table(table, results),
        "cost and form, a question": briefly(table),
        against: comparisons(compared),
    }
    for title, (head, rows) in parts.items():
        if rows:
            console.show(title)
            named = sum(name in ("system", "task") for name in head)
            console.show_table(head, rows, words=range(named), names=named)
            console.show("")
    if table.missing:
        console.say(f"{missing_text(table.missing)}: the evaluation was stopped")


def _spent(folder: Path) -> Values:
    """Return what all runs of the folder cost; dollars are null if a price is unknown."""
    with read_store(journal_place(folder)) as journal:
        spent = journal.totals().spent
    usage = spent.usage
    return {
        "calls": spent.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "dollars": None if usage.unpriced_calls else float(usage.dollars),
        "unpriced_calls": usage.unpriced_calls,
    }
