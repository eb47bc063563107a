"""``openconductor eval``: systems x tasks x repeats, in a folder that it can be resumed from; or its answers regraded.

In: systems and tasks, or a recipe with ``key=value`` overrides, or a folder to continue with. Out: the table on stdout
(``--json``: its values with latencies), the folder with the table in all forms; progress on stderr.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.runs import (
    AsJson,
    BaseUrl,
    Dollars,
    KeyEnv,
    Out,
    PlannerName,
    Unsafe,
    counted,
    dollars_of,
    evaluated,
    missing,
    own_folder,
)
from openconductor.errors import BudgetExceeded, ConfigError

if TYPE_CHECKING:
    from openconductor.evaluation.eval_config import EvalConfig
    from openconductor.evaluation.grid import Regraded
    from openconductor.evaluation.records import Results

SYSTEMS = """What to ask: conductor, workers, worker:NAME, a baseline (consensus:NAME?n=5), an ablation
(conductor?subtasks=false). With --config also key=value."""
_OVERRIDE = re.compile(r"[a-z_][a-z0-9_.]*=")
SHOWN_MOVES = 20


def evaluate(  # noqa: PLR0913, PLR0917 - the options of a command
    systems: Annotated[list[str] | None, typer.Argument(help=SYSTEMS, show_default=False)] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="A task; may be repeated (default: gym).")] = None,
    task_path: Annotated[list[str] | None, typer.Option("--task-path", help="NAME=FILE: local data of a task.")] = None,
    pool: Annotated[Path | None, typer.Option("--pool", help="A pool file (TOML).", show_default="the gym's")] = None,
    conductor: PlannerName = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many problems a task.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", min=1, help="How often each is asked.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Draws problems, choices, answers.")] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", help="constrained (4,096 tokens) or unconstrained.")
    ] = None,
    against: Annotated[str | None, typer.Option("--against", help="The system that others are compared with.")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Questions asked at once.")] = None,
    dollars: Dollars = None,
    calls: Annotated[int | None, typer.Option("--budget-calls", min=0, help="The most calls, of all runs.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A recipe (TOML).")] = None,
    unsafe: Unsafe = False,
    out: Out = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again what failed before.")] = False,
    regrade: Annotated[Path | None, typer.Option("--regrade", help="A folder: grade its answers again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate systems on tasks, with intervals and costs; resumable."""
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
    if regrade is not None:
        if given or overrides or task or task_path or limit or config or out or retry_failed:
            raise ConfigError("--regrade: grades what a folder holds; expected nothing beside it but --json")
        _regrade(regrade, as_json)
        return
    if config is None and out is not None and "systems" not in given and (out / "config.toml").is_file():
        config = out / "config.toml"
    recipe = _recipe(given, overrides, config, _Tasks(task or (), task_path or (), limit))
    _evaluate(recipe, out or own_folder(recipe), retry_failed, as_json)


@dataclass(frozen=True, slots=True)
class _Tasks:
    """What the command line says about tasks."""

    names: Sequence[str]
    paths: Sequence[str]
    limit: int | None

    def tables(self, before: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """The recipe's tables of tasks; those of ``before`` where the command line names none."""
        paths: dict[str, str] = {}
        for text in self.paths:
            name, equals, path = text.partition("=")
            if not (name and equals and path):
                raise ConfigError(f"--task-path: got {text!r}, expected NAME=FILE")
            paths[name] = path
        made: list[dict[str, object]] = [{"name": name} for name in self.names or paths] or [
            dict(one) for one in before
        ]
        if strangers := sorted(paths.keys() - {str(one["name"]) for one in made}):
            raise ConfigError(f"--task-path: got {strangers[0]!r}, expected one of the tasks that are asked")
        limit: dict[str, object] = {} if self.limit is None else {"limit": self.limit}
        return [one | limit | ({"path": paths[name]} if (name := str(one["name"])) in paths else {}) for one in made]


def _recipe(given: Mapping[str, object], overrides: Sequence[str], path: Path | None, asked: _Tasks) -> EvalConfig:
    """The recipe: of a file, or of the command line alone; what the command line says wins."""
    from openconductor.evaluation.eval_config import load_eval_config, make_eval_config, plain_config

    if path is None:
        if overrides:
            raise ConfigError(f"{overrides[0]!r}: got key=value without a recipe; expected --config beside it")
        values: dict[str, object] = {"task": asked.tables([{"name": "gym"}])}
        for key, value in given.items():
            table, dot, name = key.rpartition(".")
            place = cast("dict[str, object]", values.setdefault(table, {})) if dot else values
            place[name] = value
        return make_eval_config(values, where="command line")
    values = dict(given)
    if asked.names or asked.paths or asked.limit is not None:
        before = plain_config(load_eval_config(path, overrides))["task"]
        values["task"] = asked.tables(cast("list[dict[str, object]]", before))
    return load_eval_config(path, overrides, values)


def _evaluate(config: EvalConfig, folder: Path, retry_failed: bool, as_json: bool) -> None:
    try:
        results = evaluated(config, folder, "evaluating", retry_failed=retry_failed)
    except KeyboardInterrupt:
        console.say("interrupted; the same command goes on from there")
        raise
    except BudgetExceeded:
        console.say(f"the table so far: {folder / 'table.md'}")
        raise
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

    from openconductor.evaluation.grid import regrade

    with console.only_results_on_stdout():
        done = asyncio.run(regrade(folder))
    if not as_json:
        words = {None: "undecided", True: "right", False: "wrong"}
        console.say(f"{counted(done.graded, 'answer')} graded again, {counted(len(done.moves), 'verdict')} moved")
        for move in done.moves[:SHOWN_MOVES]:
            place = f"{move.system} {move.task} {move.problem} #{move.sample}"
            console.say(f"  {place}: {words[move.before]} -> {words[move.now]} {move.note}")
        if len(done.moves) > SHOWN_MOVES:
            console.say(f"  and {len(done.moves) - SHOWN_MOVES} more; --json lists them all")
    _show(done.results, folder, as_json, done)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def _show(results: Results, folder: Path, as_json: bool, regraded: Regraded | None = None) -> None:
    from openconductor.evaluation.tables import accuracy_grid, briefly, comparisons, latency, make_table
    from openconductor.serialisation import plain

    table = make_table(results)
    if as_json:
        more = {"latency": latency(results), "folder": str(folder), "spent": _spent(folder)}
        if regraded is not None:
            more |= {"regraded": regraded.graded, "moves": regraded.moves}
        console.show_json({**table.to_json(), **cast("dict[str, object]", plain(more))})
        return
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


def _spent(folder: Path) -> dict[str, object]:
    """What was really paid for, in all runs of the folder; dollars are null where a price is not known."""
    from openconductor.evaluation.records import JOURNAL
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
