"""``openconductor eval``: systems x tasks x repeats, in a folder that it can be resumed from; or its answers regraded.

In: systems and tasks, or a recipe with ``key=value`` overrides, or a folder to go on with. Out: the table on stdout
(``--json``: its values with latencies), the folder with the table in all forms; progress on stderr.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.conductors import BaseUrl, KeyEnv
from openconductor.cli.runs import dollars_of, evaluated, missing, own_folder
from openconductor.cli.tables import tables
from openconductor.errors import BudgetExceeded, ConfigError

if TYPE_CHECKING:
    from openconductor.evaluation.config import EvalConfig
    from openconductor.evaluation.regrade import Regraded
    from openconductor.evaluation.results import Results
    from openconductor.evaluation.table import Table

_OVERRIDE = re.compile(r"[a-z_][a-z0-9_.]*=")
SHOWN_MOVES = 20


def evaluate(  # noqa: PLR0913, PLR0917 - the options of a command
    systems: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to ask: conductor, workers, worker:NAME, a baseline (consensus:NAME?n=5), an ablation "
            "(conductor?subtasks=false). With --config also key=value.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="A task's name; several times for several.", show_default="gym")
    ] = None,
    task_path: Annotated[
        list[str] | None, typer.Option("--task-path", help="NAME=FILE: local data of a task.", show_default=False)
    ] = None,
    pool: Annotated[Path | None, typer.Option("--pool", help="A pool file (TOML).", show_default="the gym's")] = None,
    conductor: Annotated[
        str | None,
        typer.Option(
            "--conductor", help="provider:model, a checkpoint folder, or worker:NAME.", show_default="bundled"
        ),
    ] = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="So many problems of each task.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", min=1, help="How often each is asked.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Draws problems, choices and the gym's answers.")
    ] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", help="constrained (4,096 tokens a worker) or unconstrained.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The system that the others are compared with.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Questions asked at once.")] = None,
    dollars: Annotated[str | None, typer.Option("--budget-dollars", help="The most US dollars, of all runs.")] = None,
    calls: Annotated[int | None, typer.Option("--budget-calls", min=0, help="The most calls, of all runs.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A recipe (TOML).", show_default=False)] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe-code-exec", help="Run programs even where no sandbox works: they can do anything.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run's folder; one that was cut off is gone on with.", show_default=False),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again what failed in an earlier run of this folder.")
    ] = False,
    regrade: Annotated[
        Path | None, typer.Option("--regrade", help="A run's folder: grade its answers again, and call nobody.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table's values as JSON.")] = False,
) -> None:
    """Evaluate systems on tasks: accuracy with intervals, costs, differences; resumable."""
    amount = dollars_of(dollars)
    named = {
        "systems": [word for word in systems or () if not _OVERRIDE.match(word)] or None,
        "pool": None if pool is None else str(pool),
        "repeats": repeats,
        "seed": seed,
        "setting": setting,
        "against": against,
        "concurrency": concurrency,
        "unsafe_code_exec": unsafe or None,
        "conductor.planner": conductor,
        "conductor.base_url": base_url,
        "conductor.api_key_env": key_env,
        "budget.dollars": None if amount is None else format(amount, "f"),
        "budget.calls": calls,
    }
    given = {key: value for key, value in named.items() if value is not None}
    overrides = [word for word in systems or () if _OVERRIDE.match(word)]
    asked = _Tasks(task or (), task_path or (), limit)
    if regrade is not None:
        if given or overrides or asked.given or config is not None or out is not None or retry_failed:
            raise ConfigError("--regrade: grades what a folder holds; expected nothing beside it but --json")
        _regrade(regrade, as_json)
        return
    recipe = _read(given, overrides, asked, config, out)
    _evaluate(recipe, out or own_folder(recipe), retry_failed, as_json)


class _Tasks:
    """What the command line says about tasks."""

    def __init__(self, names: Sequence[str], paths: Sequence[str], limit: int | None) -> None:
        self.given = bool(names or paths or limit is not None)
        self._limit = limit
        self._paths: dict[str, str] = {}
        for text in paths:
            name, equals, path = text.partition("=")
            if not (name and equals and path):
                raise ConfigError(f"--task-path: got {text!r}, expected NAME=FILE")
            self._paths[name] = path
        self._names = list(names) or list(self._paths)

    def tables(self, before: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """The recipe's tables of tasks; those of ``before`` where the command line names none."""
        tables: list[dict[str, object]] = [{"name": name} for name in self._names] or [dict(one) for one in before]
        strangers = sorted(set(self._paths) - {str(table["name"]) for table in tables})
        if strangers:
            raise ConfigError(f"--task-path: got {strangers[0]!r}, expected one of the tasks that are asked")
        for table in tables:
            if self._limit is not None:
                table["limit"] = self._limit
            path = self._paths.get(str(table["name"]))
            if path is not None:
                table["path"] = path
        return tables


def _read(
    given: Mapping[str, object], overrides: Sequence[str], asked: _Tasks, path: Path | None, out: Path | None
) -> EvalConfig:
    """The recipe: of a file, or of a folder to go on with, or of the command line alone; the latter wins."""
    from openconductor.evaluation.config import dump_value, load_eval_config, make_eval_config, plain_config

    if path is None and out is not None and "systems" not in given and (out / "config.toml").is_file():
        path = out / "config.toml"
    if path is None:
        if overrides:
            raise ConfigError(f"{overrides[0]!r}: got key=value without a recipe; expected --config beside it")
        values: dict[str, object] = {"task": asked.tables([{"name": "gym"}])}
        for key, value in given.items():
            table, dot, name = key.rpartition(".")
            if dot:
                cast("dict[str, object]", values.setdefault(table, {}))[name] = value
            else:
                values[key] = value
        return make_eval_config(values, where="command line")
    words = [f"{key}={dump_value(value)}" for key, value in given.items()]
    if asked.given:
        before = plain_config(load_eval_config(path, overrides))["task"]
        tables = asked.tables(cast("list[dict[str, object]]", before))
        words.append(f"task={dump_value(tables)}")
    return load_eval_config(path, [*words, *overrides])


def _evaluate(config: EvalConfig, folder: Path, retry_failed: bool, as_json: bool) -> None:
    try:
        results = evaluated(config, folder, "evaluating", retry_failed=retry_failed)
    except KeyboardInterrupt:
        console.say("interrupted; the same command goes on from there")
        raise
    except BudgetExceeded:
        console.say(f"the table so far: {folder / 'table.md'}")
        raise
    from openconductor.reporting.words import counted

    _show(results, folder, as_json)
    masked = [record for record in results.records if record.correct is None]
    failed = sum(record.status == "failed" for record in masked)
    if failed:
        said = f"{counted(failed, 'answer')} failed and {'is' if failed == 1 else 'are'} masked"
        console.say(f"{said}; --retry-failed asks again")
    if len(masked) == len(results.records):
        first = next((why for record in masked if (why := record.error or record.note)), "")
        console.fail(f"no answer could be decided, of {len(masked)}{first and f'; the first: {first}'}")


def _regrade(folder: Path, as_json: bool) -> None:
    import asyncio

    from openconductor.evaluation.regrade import regrade
    from openconductor.reporting.words import counted

    with console.only_results_on_stdout():
        done = asyncio.run(regrade(folder))
    if as_json:
        _show(done.results, folder, as_json, done)
        return
    console.say(f"{counted(done.graded, 'answer')} graded again, {counted(len(done.moves), 'verdict')} moved")
    for move in done.moves[:SHOWN_MOVES]:
        was, now = _verdict(move.before), _verdict(move.now)
        console.say(f"  {move.system} {move.task} {move.problem} #{move.sample}: {was} -> {now} {move.note}")
    if len(done.moves) > SHOWN_MOVES:
        console.say(f"  and {len(done.moves) - SHOWN_MOVES} more; --json lists them all")
    _show(done.results, folder, as_json)


def _verdict(correct: bool | None) -> str:
    return "undecided" if correct is None else "right" if correct else "wrong"


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def _show(results: Results, folder: Path, as_json: bool, regraded: Regraded | None = None) -> Table:
    from openconductor.evaluation.latency import latency
    from openconductor.evaluation.table import make_table

    table = make_table(results)
    if not as_json:
        _show_tables(table)
        return table
    values: dict[str, object] = {
        **table.to_json(),
        "latency": latency(results),
        "folder": str(folder),
        "spent": _spent(folder),
    }
    if regraded is not None:
        from dataclasses import asdict

        values |= {"regraded": regraded.graded, "moves": [asdict(move) for move in regraded.moves]}
    console.show_json(json.loads(json.dumps(values)))
    return table


def _spent(folder: Path) -> dict[str, object]:
    """What was really paid for, in all runs of the folder; dollars are null where a price is not known."""
    from openconductor.evaluation.folder import JOURNAL
    from openconductor.journal import JournalReader

    with JournalReader(folder / JOURNAL) as journal:
        spent = journal.totals().spent
    return {
        "calls": spent.calls,
        "input_tokens": spent.usage.input_tokens,
        "output_tokens": spent.usage.output_tokens,
        "dollars": None if spent.usage.unpriced_calls else float(spent.usage.dollars),
        "unpriced_calls": spent.usage.unpriced_calls,
    }


def _show_tables(table: Table) -> None:
    from openconductor.evaluation.table_forms import accuracy_grid, briefly, comparisons

    for title, (head, rows) in (
        ("accuracy, with standard errors clustered by problem", accuracy_grid(table)),
        ("cost and form, a question", briefly(table)),
        (f"against {table.against}", comparisons(table)),
    ):
        if rows:
            console.show(title)
            _show_cells(head, rows)
    if table.missing:
        console.say(f"{missing(table.missing)}: the evaluation was stopped")


def _show_cells(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table; where it is wider than the terminal its columns stand below each other, each part with the names."""
    named = sum(name in ("system", "task") for name in head)
    for table in tables(head, rows, words=range(named), names=named):
        console.show(table)
        console.show("")
