"""``openconductor task``: which benchmarks there are, what their problems look like, and whether their graders work.

In: a task's name and, by option, a local file. Out: facts, a problem, or which canonical replies
the grader refuses, as text or with ``--json``.
"""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.cli.console import counted
from openconductor.cli.options import AsJson
from openconductor.config import registered
from openconductor.errors import ConfigError
from openconductor.graders import GRADERS
from openconductor.graders.code_tests import CodeTests, IoTest
from openconductor.store.serialisation import plain
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.check import CheckReport, check_task
from openconductor.tasks.dataset import UnpinnedData
from openconductor.tasks.items import Benchmark, Loaded, Source
from openconductor.tasks.paper_mix import MixGrader

task = typer.Typer(help="List benchmarks, look at their problems, check their graders.")

Json = dict[str, object]
Name = Annotated[
    str, typer.Argument(help="The task's name; `task list` lists them.", show_default=False)
]
Where = Annotated[
    Path | None,
    typer.Option("--path", help="Local data: a file of JSON Lines, or a folder of <split>.jsonl."),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", help="Another commit of the data set than the pinned one."),
]
Split = Annotated[
    str | None,
    typer.Option("--split", help="Which part of it; without it, the task's own default."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="So many problems only, drawn by the seed.")
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Draws for --limit, and the order of choices.")
]
Digest = Annotated[str | None, typer.Option("--sha256", help="What the data must hash to.")]
Outcomes = Annotated[
    Path | None,
    typer.Option("--outcomes", help="Of paper_mix: verdicts of `grade`, which tell what is hard."),
]

SHOWN = 20  # findings for people; --json has all
SHOWN_CHARACTERS = 300
SHOWN_TESTS = 3


@task.command("list")
def list_tasks(as_json: AsJson = False) -> None:
    """List the benchmarks with their data, licences and judges."""
    tasks = {name: load_task(name) for name in sorted(registered(TASKS, "task"))}
    if as_json:
        console.show_json([{**_described(one), "name": name} for name, one in tasks.items()])
        return
    rows: list[list[str]] = []
    for name, one in tasks.items():
        splits = ", ".join(
            f"{split} {count:,}" if count else split for split, count in _splits(one).items()
        )
        rows.append([name, splits, _judge(one), one.about])
    console.show_table(("task", "splits", "judged by", "what it is"), rows, words=range(4), names=4)
    console.say("data sets, commits and licences: --json")


@task.command("show")
def show(
    name: Name,
    problem: Annotated[str, typer.Option("--problem", help="Its place from 0, or its id.")] = "0",
    path: Where = None,
    split: Split = None,
    revision: Revision = None,
    limit: Limit = None,
    seed: Seed = None,
    sha256: Digest = None,
    outcomes: Outcomes = None,
    as_json: AsJson = False,
) -> None:
    """Show a problem as a worker sees it, and its reference."""
    options = {
        "path": path,
        "split": split,
        "revision": revision,
        "limit": limit,
        "seed": seed,
        "sha256": sha256,
    }
    made, loaded = _loaded(name, outcomes=outcomes, **options)
    place = _place(loaded, problem, name)
    item, source = loaded.items[place], loaded.source
    asked, reference = item.problem, _reference(item.problem.reference)
    if as_json:
        place_in = {
            "task": made.name,
            "split": source.split,
            "place": place,
            "problems": len(loaded.items),
        }
        known = {
            "id": asked.id,
            "kind": asked.kind,
            "subject": item.subject,
            "difficulty": item.difficulty,
        }
        known |= {"tags": list(item.tags), "question": asked.question, "reference": reference}
        console.show_json(
            {**place_in, **known, "canonical": item.canonical, "source": source.record()}
        )
        return
    facts = [
        f"{made.name}/{source.split}",
        f"{place} of {len(loaded.items)}",
        asked.id,
        asked.kind,
        item.subject,
    ]
    console.say(" · ".join(dict.fromkeys(filter(None, facts))))
    console.show_text(asked.question)
    console.say(f"reference: {_short(reference)}")
    if item.canonical is not None:
        console.say(f"canonical reply: {_short(item.canonical)}")
    _say_source(source)


@task.command("check")
def check(
    name: Name,
    path: Where = None,
    split: Split = None,
    revision: Revision = None,
    limit: Limit = None,
    seed: Seed = None,
    sha256: Digest = None,
    outcomes: Outcomes = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Replies graded at once.")
    ] = 8,
    as_json: AsJson = False,
) -> None:
    """Check that the grader accepts every gold answer.

    Of programming tasks, every canonical solution; what it does not accept is listed.
    Exits with 0 where all that it decided on are accepted, with 1 where some are refused.
    """
    options = {
        "path": path,
        "split": split,
        "revision": revision,
        "limit": limit,
        "seed": seed,
        "sha256": sha256,
    }
    made, _ = _loaded(name, outcomes=outcomes, **options)
    with console.progress_bar("grading") as on_progress:
        report = asyncio.run(check_task(made, concurrency=concurrency, on_progress=on_progress))
    if as_json:
        found = {"task": made.name, "ok": report.ok, "accepted": report.accepted}
        judged = {
            "refused": report.refused,
            "undecided": report.undecided,
            "without_canonical_reply": report.unanswered,
        }
        console.show_json({**found, **judged, "source": report.source.record()})
    else:
        _show_report(made.name, report)
    if not report.ok:
        raise typer.Exit(console.FAILED)


def _loaded(name: str, **options: object) -> tuple[Benchmark, Loaded]:
    """The task and its default split; what is not pinned is said on stderr."""
    made = load_task(name, **options)
    with warnings.catch_warnings(record=True) as caught, console.only_results_on_stdout():
        warnings.simplefilter("always", UnpinnedData)
        loaded = made.read()
    for warning in caught:
        console.say(f"warning: {warning.message}")
    return made, loaded


def _place(loaded: Loaded, problem: str, name: str) -> int:
    ids = [item.problem.id for item in loaded.items]
    if problem in ids:
        return ids.index(problem)
    if problem.isdecimal() and int(problem) < len(ids):
        return int(problem)
    raise ConfigError(
        f"--problem: got {problem!r}, expected a place from 0 to {len(ids) - 1}, or the id of a problem of {name}"
    )


# ── what a task is ────────────────────────────────────────────────────────────────────────────────
def _described(made: Benchmark) -> Json:
    dataset = made.dataset
    return {
        "name": made.name,
        "about": made.about,
        "grader": _judge(made),
        "splits": _splits(made),
        "dataset": dataset and dataset.id,
        "revision": dataset and dataset.revision,
        "pinned": dataset is None or dataset.revision is not None,
        "licence": dataset and dataset.licence,
        "gated": dataset is not None and dataset.gated,
    }


def _judge(made: Benchmark) -> str:
    kind = type(made.grader)
    other = "by part" if kind is MixGrader else kind.__qualname__
    return {target: name for name, target in GRADERS.items()}.get(
        f"{kind.__module__}:{kind.__qualname__}", other
    )


def _splits(made: Benchmark) -> dict[str, int | None]:
    """How many rows each split is known to have."""
    files = {
        split: () if made.dataset is None else made.dataset.splits[split] for split in made.splits
    }
    return {split: sum(file.rows or 0 for file in parts) or None for split, parts in files.items()}


def _reference(reference: object) -> object:
    if not isinstance(reference, CodeTests):
        return plain(reference)
    first = [
        {"input": test.stdin, "output": test.expected}
        if isinstance(test, IoTest)
        else {"args": repr(test.arguments), "expected": test.condition or repr(test.expected)}
        for test in reference.tests[:SHOWN_TESTS]
    ]
    known = {"entry_point": reference.entry_point, "unittest": reference.unittest}
    return {"tests": len(reference.tests), "first": first, **known}


# ── for people ────────────────────────────────────────────────────────────────────────────────────
def _show_report(name: str, report: CheckReport) -> None:
    found = {"refused": report.refused, "undecided": report.undecided}
    checked = report.accepted + sum(map(len, found.values()))
    parts = [f"{report.accepted} of {checked} canonical replies accepted"]
    parts += [f"{len(findings)} {what}" for what, findings in found.items() if findings]
    parts += [f"{counted(report.unanswered, 'problem')} without one"] if report.unanswered else []
    print(f"{name}: {', '.join(parts)}")
    for what, findings in found.items():
        for finding in findings[:SHOWN]:
            print(
                console.printable(
                    f"{what}  {finding.id}  {_short(finding.extracted)}  {finding.note}"
                )
            )
        if len(findings) > SHOWN:
            print(f"{what}  and {len(findings) - SHOWN} more: --json lists all")
    _say_source(report.source)


def _say_source(source: Source) -> None:
    commit = f"@{source.revision[:12]}" if source.revision else ""
    digest = f", sha256 {source.sha256[:12]}" if source.sha256 else ""
    rows = f"{source.rows} rows{digest}, licence {source.licence}"
    console.say(f"source: {source.dataset}{commit} {source.split}, {rows}")
    for part in source.parts:
        _say_source(part)
    for one in source.left_out[:SHOWN]:
        console.say(f"left out: {one.id}: {one.why}")
    for note in source.notes:
        console.say(f"note: {note}")


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
