"""``openconductor task``: print the benchmarks and their problems, and check their graders."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from openconductor.calls.budget import RunBudget
from openconductor.cli import console
from openconductor.cli.bill import dollars_text
from openconductor.cli.console import counted
from openconductor.cli.options import AsJson, Dollars, Journal, JudgeName, spread
from openconductor.cli.runs import read_task, read_task_paths
from openconductor.config import one_of, registered
from openconductor.errors import ConfigError
from openconductor.events import CallEnded, Event
from openconductor.graders import GRADERS
from openconductor.graders.code_tests import CodeTests, IoTest
from openconductor.pool import WorkerPool
from openconductor.prompt import find_answer_form
from openconductor.protocols import CallContext, Grader
from openconductor.store import Store, open_store
from openconductor.store.serialisation import plain
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.check import CheckFinding, CheckReport, check_task
from openconductor.tasks.data.dataset import UnpinnedData
from openconductor.tasks.data.items import LOCAL_FILE, Benchmark, Item, Loaded, Source
from openconductor.tasks.paper_mix import MixGrader
from openconductor.tasks.prompts import ANSWER_FORMS
from openconductor.types import Budget, Usage

task = typer.Typer(help="List benchmarks, look at their problems, check their graders.")

Json = dict[str, object]
Name = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="TASK or NAME=TASK; `task list` lists the tasks.",
        show_default=False,
    ),
]
SHOWN = 20  # findings for people; --json has all
SHOWN_CHARACTERS = 300
SHOWN_TESTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The problems of a task that are loaded."""

    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            "--task-path",
            help="FILE or NAME=FILE: JSON Lines, or a folder of <split>.jsonl.",
        ),
    ] = None
    split: Annotated[
        str | None, typer.Option("--split", help="The split (default: the task's own default).")
    ] = None
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="A commit of the data set (default: the pinned one)."),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The most problems, drawn by the seed.")
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="The seed for --limit and for the order of choices."),
    ] = None
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="The expected hash of the data.")
    ] = None
    outcomes: Annotated[
        Path | None,
        typer.Option(
            "--outcomes", help="For paper_mix: verdicts of `grade`, which show what is hard."
        ),
    ] = None


@task.command("list")
def list_tasks(as_json: AsJson = False) -> None:
    """List the benchmarks with their data, licences and judges."""
    tasks = {name: load_task(name) for name in sorted(registered(TASKS, "task"))}
    if as_json:
        console.show_json(
            [{**_task_json(benchmark), "name": name} for name, benchmark in tasks.items()]
        )
        return
    rows: list[list[str]] = []
    for name, benchmark in tasks.items():
        splits = [
            f"{split} {count:,}" if count else split
            for split, count in _split_sizes(benchmark).items()
        ]
        rows.append([name, "\n".join(splits), _judge(benchmark), benchmark.about])
    console.show_table(("task", "splits", "judged by", "what it is"), rows, words=range(4), names=4)
    console.say("data sets, commits and licences: --json")


@task.command("show")
@spread
def show(
    name: Name,
    *,
    problem: Annotated[
        str, typer.Option("--problem", help="Its position, from 0, or its id.")
    ] = "0",
    data: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Show a problem as a worker sees it, and its reference."""
    benchmark, loaded = _load(name, data)
    position = _find_position(loaded, problem, name)
    item, source = loaded.items[position], loaded.source
    if as_json:
        console.show_json(
            {
                "task": benchmark.name,
                "split": source.split,
                "place": position,
                "problems": len(loaded.items),
                **_item_json(item),
                "source": source.record(),
            }
        )
        return
    facts = [
        f"{benchmark.name}/{source.split}",
        f"{position} of {len(loaded.items)}",
        item.problem.id,
        item.problem.kind,
        item.subject,
    ]
    known = dict.fromkeys(filter(None, facts))
    console.say(" · ".join(known))
    question = item.problem.question
    console.show_text(question)
    form = find_answer_form(question, (*ANSWER_FORMS, *benchmark.answer_forms))
    if form:
        console.say(f"for workers only, a trained Conductor is not shown: {form}")
    console.say(f"reference: {_short(_reference(item.problem.reference))}")
    if item.canonical is not None:
        console.say(f"canonical reply: {_short(item.canonical)}")
    _say_source(source)


@task.command("check")
@spread
def check(
    name: Name,
    *,
    data: DataOptions,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Replies graded at once.")
    ] = 8,
    judge: JudgeName = None,
    pool: Annotated[
        Path | None, typer.Option("--pool", help="The pool file (TOML) of the judge.")
    ] = None,
    dollars: Dollars = None,
    journal: Journal = None,
    as_json: AsJson = False,
) -> None:
    """Check that the grader accepts every gold answer.

    For programming tasks these are the canonical solutions. Rejected ones are listed. Exit code 0:
    all decided ones are accepted. 1: some are rejected.
    """
    benchmark, _ = _load(name, data)
    if (judge is None) != (pool is None):
        raise ConfigError("--judge NAME and --pool FILE require each other")
    if journal is not None and judge is None:
        raise ConfigError("--journal requires --judge NAME and --pool FILE")
    paid: list[Usage] = []
    grader = None
    with (
        nullcontext() if journal is None else open_store(journal) as store,
        console.progress_bar("grading") as on_progress,
    ):
        if judge is not None and pool is not None:
            grader = _with_judge(benchmark.grader, judge, pool, dollars, store, paid)
        checking = check_task(
            benchmark, grader=grader, concurrency=concurrency, on_progress=on_progress
        )
        report = asyncio.run(checking)
    if judge is not None:
        spent = dollars_text(sum(paid, Usage()), zero=True)
        line = f"judge {judge}: {counted(len(paid), 'call')}, {spent}"
        if paid and journal is None:
            line += "; with --journal FILE a second check pays for none of them again"
        console.say(line)
    if as_json:
        console.show_json(
            {
                "task": benchmark.name,
                "ok": report.ok,
                "accepted": report.accepted,
                "refused": report.refused,
                "undecided": report.undecided,
                "without_canonical_reply": report.unanswered,
                "source": report.source.record(),
            }
        )
    else:
        _show_report(benchmark.name, report)
    if not report.ok:
        raise typer.Exit(console.FAILED)


def _with_judge(
    grader: Grader,
    judge: str,
    pool: Path,
    dollars: Decimal | None,
    journal: Store | None,
    paid: list[Usage],
) -> Grader:
    """Return a grader that asks a worker what it cannot decide; ``paid`` gets each call's usage."""
    from openconductor.evaluation.undecided import PoolJudge, settled

    def on_event(event: Event) -> None:
        if isinstance(event, CallEnded) and not event.call.replayed:
            paid.append(event.call.usage)
        if journal is not None:
            journal(event)

    workers = WorkerPool.from_toml(pool)
    one_of("--judge", judge, workers.names.values())
    budget = None if dollars is None else RunBudget(Budget(dollars=dollars))
    if journal is not None:
        workers = workers.replaying(journal)
        if budget is not None:
            budget.add(dollars=journal.totals().counted.usage.dollars)
    context = CallContext(budget=budget)
    pool_judge = PoolJudge(workers, judge, journal, context, on_event, asks_again=True)
    return settled(grader, undecided="masked", judge=pool_judge)


def _load(name: str, data: DataOptions) -> tuple[Benchmark, Loaded]:
    """Return the task and its problems; say on stderr if its data are not pinned."""
    table = read_task(name)
    options = asdict(data)
    if data.path is not None:
        options["path"] = read_task_paths([data.path], [table])[str(table["name"])]
    benchmark = load_task(str(table.get("task", table["name"])), **options)
    benchmark.name = str(table["name"])
    with warnings.catch_warnings(record=True) as caught, console.only_results_on_stdout():
        warnings.simplefilter("always", UnpinnedData)
        loaded = benchmark.read()
    for warning in caught:
        console.say(f"warning: {warning.message}")
    return benchmark, loaded


def _find_position(loaded: Loaded, problem: str, name: str) -> int:
    ids = [item.problem.id for item in loaded.items]
    if problem in ids:
        return ids.index(problem)
    if problem.isdecimal() and int(problem) < len(ids):
        return int(problem)
    raise ConfigError(
        f"--problem: got {problem!r}, expected a position from 0 to {len(ids) - 1}, or the id of a "
        f"problem of {name}"
    )


# ── values ────────────────────────────────────────────────────────────────────────────────────────
def _task_json(benchmark: Benchmark) -> Json:
    dataset = benchmark.dataset
    return {
        "name": benchmark.name,
        "about": benchmark.about,
        "grader": _judge(benchmark),
        "splits": _split_sizes(benchmark),
        "dataset": dataset and dataset.id,
        "revision": dataset and dataset.revision,
        "pinned": dataset is None or dataset.revision is not None,
        "licence": dataset and dataset.licence,
        "gated": dataset is not None and dataset.gated,
    }


def _item_json(item: Item) -> Json:
    problem = item.problem
    return {
        "id": problem.id,
        "kind": problem.kind,
        "subject": item.subject,
        "difficulty": item.difficulty,
        "tags": list(item.tags),
        "question": problem.question,
        "reference": _reference(problem.reference),
        "canonical": item.canonical,
    }


def _judge(benchmark: Benchmark) -> str:
    """Return the name of the task's grader."""
    kind = type(benchmark.grader)
    if kind is MixGrader:
        return "by part"
    names = {target: name for name, target in GRADERS.items()}
    return names.get(f"{kind.__module__}:{kind.__qualname__}", kind.__qualname__)


def _split_sizes(benchmark: Benchmark) -> dict[str, int | None]:
    """Return the number of rows of each split. None: unknown."""
    return {split: benchmark.published_rows(split) for split in benchmark.splits}


def _reference(reference: object) -> object:
    """Return a reference as plain values; of many tests the first."""
    if not isinstance(reference, CodeTests):
        return plain(reference)
    first: list[Json] = []
    for test in reference.tests[:SHOWN_TESTS]:
        if isinstance(test, IoTest):
            first.append({"input": test.stdin, "output": test.expected})
        else:
            expected = test.condition or repr(test.expected)
            first.append({"args": repr(test.arguments), "expected": expected})
    return {
        "tests": len(reference.tests),
        "first": first,
        "entry_point": reference.entry_point,
        "unittest": reference.unittest,
    }


# ── for people ────────────────────────────────────────────────────────────────────────────────────
def _show_report(name: str, report: CheckReport) -> None:
    refused, undecided = report.refused, report.undecided
    checked = report.accepted + len(refused) + len(undecided)
    parts = [f"{report.accepted} of {checked} canonical replies accepted"]
    if refused:
        parts.append(f"{len(refused)} refused")
    if undecided:
        parts.append(f"{len(undecided)} undecided")
    if report.unanswered:
        parts.append(f"{counted(report.unanswered, 'problem')} without one")
    print(f"{name}: {', '.join(parts)}")
    _print_findings("refused", refused)
    _print_findings("undecided", undecided)
    _say_source(report.source)


def _print_findings(outcome: str, findings: Sequence[CheckFinding]) -> None:
    for finding in findings[:SHOWN]:
        line = f"{outcome}  {finding.id}  {_short(finding.extracted)}  {finding.note}"
        print(console.printable(line))
    if len(findings) > SHOWN:
        print(f"{outcome}  and {len(findings) - SHOWN} more: --json lists all")


def _say_source(source: Source) -> None:
    origin = f"{source.dataset} {source.split}"
    if source.revision:
        origin = f"{source.dataset}@{source.revision[:12]} {source.split}"
    elif source.dataset == LOCAL_FILE:
        origin = f"{source.dataset} {source.files[0].name}"
    rows = f"{source.rows} rows"
    if source.sha256:
        rows += f", sha256 {source.sha256[:12]}"
    console.say(f"source: {origin}, {rows}, licence {source.licence}")
    for part in source.parts:
        _say_source(part)
    for left_out in source.left_out[:SHOWN]:
        console.say(f"left out: {left_out.id}: {left_out.why}")
    for note in source.notes:
        console.say(f"note: {note}")


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
