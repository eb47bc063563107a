"""``openconductor eval``: systems x tasks x repeats, in a folder that it can be resumed from; or its answers regraded.

In: systems and tasks, or a recipe with ``key=value`` overrides, or a folder to continue with. Out:
the table on stdout (``--json``: its values with latencies), the folder with the table in all forms;
progress on stderr.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.console import counted
from openconductor.cli.options import (
    AsJson,
    BaseUrl,
    Dollars,
    KeyEnv,
    Out,
    PlannerName,
    PoolFile,
    Unsafe,
)
from openconductor.cli.runs import evaluated, interruptible, missing, own_folder
from openconductor.errors import BudgetExceeded, ConfigError
from openconductor.evaluation.eval_config import (
    EvalConfig,
    load_eval_config,
    make_eval_config,
    plain_config,
)
from openconductor.evaluation.records import JOURNAL, Results, latency
from openconductor.evaluation.regrade import Regraded, regrade
from openconductor.evaluation.tables import (
    Table,
    accuracy_grid,
    briefly,
    comparisons,
    cut_answers,
    make_table,
)
from openconductor.store import read_store

SYSTEMS = """What to ask: conductor, workers, worker:NAME, a baseline (consensus:NAME?n=5, or module:attribute), an
ablation (conductor?subtasks=false). With --config also key=value."""
_OVERRIDE = re.compile(r"[a-z_][a-z0-9_.]*=")
SHOWN_MOVES = 20

Values = dict[str, object]


def eval(  # noqa: A001, PLR0913, PLR0917 - the options of a command
    systems: Annotated[list[str] | None, typer.Argument(help=SYSTEMS, show_default=False)] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Each a TASK or NAME=TASK (default: gym).")
    ] = None,
    task_path: Annotated[
        list[str] | None, typer.Option("--task-path", help="NAME=FILE: local data of a task.")
    ] = None,
    pool: PoolFile = None,
    conductor: PlannerName = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many problems a task.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="How often each is asked.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Draws problems, choices, answers.")
    ] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", help="constrained (4,096 tokens) or unconstrained.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The system that others are compared with.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Questions asked at once.")
    ] = None,
    dollars: Dollars = None,
    calls: Annotated[
        int | None, typer.Option("--budget-calls", min=0, help="The most calls, of all runs.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A recipe (TOML).")] = None,
    unsafe: Unsafe = False,
    out: Out = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again what failed before.")
    ] = False,
    regraded: Annotated[
        Path | None, typer.Option("--regrade", help="A folder: grade its answers again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate systems on tasks, with intervals and costs; resumable."""
    said: Values = {
        "systems": [word for word in systems or () if not _OVERRIDE.match(word)] or None,
        "pool": None if pool is None else str(pool),
        "conductor": {"planner": conductor, "base_url": base_url, "api_key_env": key_env},
        "repeats": repeats,
        "seed": seed,
        "setting": setting,
        "against": against,
        "unsafe_code_exec": unsafe or None,
        "concurrency": concurrency,
        "budget": {"dollars": dollars, "calls": calls},
    }
    given = _laid_over({}, said)
    overrides = [word for word in systems or () if _OVERRIDE.match(word)]
    paths = dict(_name_and_path(text) for text in task_path or ())
    asked: list[Values] = [
        dict(zip(("name", "task"), text.split("=", 1), strict=False)) for text in task or paths
    ]
    if regraded is not None:
        if given or overrides or asked or limit or config or out or retry_failed:
            raise ConfigError(
                "--regrade: grades what a folder holds; expected nothing beside it but --json"
            )
        _regrade(regraded, as_json)
        return
    if (
        config is None
        and out is not None
        and "systems" not in given
        and (out / "config.toml").is_file()
    ):
        config = out / "config.toml"
    if config is None and overrides:
        raise ConfigError(
            f"{overrides[0]!r}: got key=value without a recipe; expected --config beside it"
        )
    base = plain_config(EvalConfig() if config is None else load_eval_config(config, overrides))
    if "systems" in given:
        base.pop("system", None)
    tasks = _tasks(asked or cast("list[Values]", base["task"]), paths, limit)
    values = {**_laid_over(base, said), "task": tasks}
    recipe = make_eval_config(values, where="command line" if config is None else str(config))
    _evaluate(recipe, out or own_folder(recipe), retry_failed, as_json)


def _laid_over(base: Values, said: Values) -> Values:
    """The base, with what is said (all that is not None) in its place, table by table."""
    merged = dict(base)
    for name, value in said.items():
        if isinstance(value, dict):
            value = _laid_over(cast("Values", base.get(name, {})), cast("Values", value)) or None  # noqa: PLW2901
        if value is not None:
            merged[name] = value
    return merged


def _name_and_path(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise ConfigError(f"--task-path: got {text!r}, expected NAME=FILE")
    return name, path


def _tasks(
    asked: Sequence[Mapping[str, object]], paths: Mapping[str, str], limit: int | None
) -> list[Values]:
    """The recipe's tables of tasks, with what the command line says of them."""
    if strangers := sorted(paths.keys() - {one["name"] for one in asked}):
        raise ConfigError(
            f"--task-path: got {strangers[0]!r}, expected one of the tasks that are asked"
        )
    said: dict[str, Values] = {name: {"path": path} for name, path in paths.items()}
    at_most: Values = {} if limit is None else {"limit": limit}
    return [{**one, **at_most, **said.get(str(one["name"]), {})} for one in asked]


def _evaluate(config: EvalConfig, folder: Path, retry_failed: bool, as_json: bool) -> None:
    try:
        with interruptible(folder, shlex.join(("openconductor", "eval", "--out", str(folder)))):
            results = evaluated(config, folder, "evaluating", retry_failed=retry_failed)
    except BudgetExceeded:
        console.say(f"the table so far: {folder / 'table.md'}")
        raise
    _show(results, folder, as_json)
    masked = [record for record in results.records if record.correct is None]
    if failed := sum(record.status == "failed" for record in masked):
        said = f"{counted(failed, 'answer')} failed and {'is' if failed == 1 else 'are'} masked"
        console.say(f"{said}; --retry-failed asks again")
    if len(masked) == len(results.records):
        first = next((why for record in masked if (why := record.error or record.note)), "")
        console.fail(
            f"no answer could be decided, of {len(masked)}{first and f'; the first: {first}'}"
        )


def _regrade(folder: Path, as_json: bool) -> None:
    with console.only_results_on_stdout():
        done = asyncio.run(regrade(folder))
    if not as_json:
        words = {None: "undecided", True: "right", False: "wrong"}
        console.say(
            f"{counted(done.graded, 'answer')} graded again, {counted(len(done.moves), 'verdict')} moved"
        )
        for move in done.moves[:SHOWN_MOVES]:
            place = f"{move.system} {move.task} {move.problem} #{move.sample}"
            console.say(f"  {place}: {words[move.before]} -> {words[move.now]} {move.note}")
        if len(done.moves) > SHOWN_MOVES:
            console.say(f"  and {len(done.moves) - SHOWN_MOVES} more; --json lists them all")
    _show(done.results, folder, as_json, done)


def _show(results: Results, folder: Path, as_json: bool, regraded: Regraded | None = None) -> None:
    table = make_table(results)
    if as_json:
        more: Values = {"latency": latency(results), "folder": str(folder), "spent": _spent(folder)}
        if regraded is not None:
            more |= {"regraded": regraded.graded, "moves": regraded.moves}
        console.show_json({**table.to_json(), **more})
    else:
        _show_table(table)
    for line in cut_answers(results):
        console.say(line)


def _show_table(table: Table) -> None:
    for title, (head, rows) in (
        ("accuracy, with standard errors clustered by problem", accuracy_grid(table)),
        ("cost and form, a question", briefly(table)),
        (f"against {table.against}", comparisons(table)),
    ):
        if rows:
            console.show(title)
            named = sum(name in ("system", "task") for name in head)
            console.show_table(head, rows, words=range(named), names=named)
            console.show("")
    if table.missing:
        console.say(f"{missing(table.missing)}: the evaluation was stopped")


def _spent(folder: Path) -> Values:
    """What was really paid for, in all runs of the folder; dollars are null where a price is not known."""
    with read_store(folder / JOURNAL) as journal:
        spent = journal.totals().spent
    usage = spent.usage
    return {
        "calls": spent.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "dollars": None if usage.unpriced_calls else float(usage.dollars),
        "unpriced_calls": usage.unpriced_calls,
    }
