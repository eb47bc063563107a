"""``openconductor show``: look at the answers of a run, right and wrong.

Without an ID it lists them, a line each. With the ID of a question it shows the answers to it as
``ask`` does: the question, the plan, each step in full, and below them the verdict and its reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.console import labelled, printable
from openconductor.cli.live import EpisodeView
from openconductor.cli.options import AsJson
from openconductor.cli.runs import require_evaluation
from openconductor.config import nearest, one_of
from openconductor.errors import ConfigError
from openconductor.evaluation.records import Results, natural_order
from openconductor.evaluation.sheets import QUESTIONS
from openconductor.report.answers import Answer, list_answers, read_answers
from openconductor.store.episode_json import episode_json

LOOKS = {
    "right": ("✓ right", "bold green"),
    "wrong": ("✗ wrong", "bold red"),
    "undecided": ("? undecided", "bold yellow"),
}


def show(
    run: Annotated[Path, typer.Argument(help="The folder of an evaluation.")],
    question: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The id of a question.", show_default=False),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="Only the answers of this system.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Only the answers to this task's questions.")
    ] = None,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="Only the answers that count as wrong.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most answers.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Look at the answers of an evaluation: plan, steps, verdict, reason."""
    require_evaluation(run)
    results = Results.load(run)
    _check_names(results, system, task, question)
    records = [
        record
        for record in results.records
        if system in (None, record.system)
        and task in (None, record.task)
        and question in (None, record.problem)
        and not (wrong and record.correct is not False)
    ]
    systems, tasks = results.systems, results.tasks
    records.sort(
        key=lambda record: (
            systems.index(record.system),
            tasks.index(record.task),
            natural_order(record.problem),
            record.sample,
        )
    )
    chosen = records[:limit]
    if question is None:
        answers = list_answers(run, chosen)
    else:
        answers = read_answers(run, chosen)
    if as_json:
        console.show_json({"found": len(records), "answers": [_form(each) for each in answers]})
    elif question is None:
        _list(answers, repeated=results.config.repeats > 1)
    else:
        for answer in answers:
            if answer.record.system == records[0].system:
                _show_whole(answer, results, run)
        others = [answer for answer in answers if answer.record.system != records[0].system]
        _list(others, repeated=results.config.repeats > 1)
    console.say(f"{len(answers):,} of {console.counted(len(records), 'such answer')}")
    if question is None and answers:
        first = answers[0].record
        words = ["openconductor", "show", str(run), first.problem, "--system", first.system]
        console.say(f"the first in full: {shlex.join(words)}")


def _check_names(
    results: Results, system: str | None, task: str | None, question: str | None
) -> None:
    if system is not None:
        one_of("--system", system, results.systems)
    if task is not None:
        one_of("--task", task, results.tasks)
    known = {record.problem for record in results.records}
    if question is not None and question not in known:
        closest = nearest(question, known)
        raise ConfigError(
            f"ID: no answer to a question {question!r}, the nearest is {closest!r}; "
            "without an ID they are listed"
        )


def _form(answer: Answer) -> dict[str, object]:
    """Return an answer as an object, with its plan and steps if they were read."""
    form: dict[str, object] = {
        "question": answer.question,
        "reference": answer.reference,
        "verdict": answer.verdict,
        "reason": answer.reason,
        "record": answer.record,
    }
    if answer.episode is not None:
        form["episode"] = episode_json(answer.episode, answer.episode.workers)
    return form


def _list(answers: Sequence[Answer], *, repeated: bool) -> None:
    """Print a line for each answer; where questions were asked repeatedly, with its sample."""
    rows: list[list[str | Text]] = []
    for answer in answers:
        record, verdict = answer.record, Text(*LOOKS[answer.verdict])
        samples = [str(record.sample)] if repeated else []
        rows.append([record.problem, record.system, *samples, verdict, answer.reason])
    if rows:
        samples = ["sample"] if repeated else []
        head = ("id", "system", *samples, "verdict", "reason")
        console.show_table(head, rows, words=range(len(head)), names=len(head))


def _show_whole(answer: Answer, results: Results, run: Path) -> None:
    """Print an answer in the picture of ``ask``, and below it the verdict."""
    record, episode = answer.record, answer.episode
    title = f"{record.problem}, answered by {record.system}"
    if results.config.repeats > 1:
        title += f", sample {record.sample}"
    console.show(Text(printable(title), style="bold"), "")
    if episode is None:
        console.show(labelled("Question", Text(printable(answer.question))))
        console.show("The run's journal does not hold the plan and the steps any more.")
    else:
        simulated = results.config.simulated
        console.show(EpisodeView.of(episode, episode.workers, simulated=simulated))
    reference = answer.reference
    if reference is None:
        command = shlex.join(["openconductor", "eval", "--out", str(run)])
        reference = f"unknown: the folder has no {QUESTIONS}; {command} adds it, and asks nothing"
    lines = {"Answer": record.answer, "Read as": record.extracted, "Reference": reference}
    if record.extracted == record.answer:
        del lines["Read as"]
    for label, text in lines.items():
        if text is not None:
            console.show(labelled(label, Text(printable(text))))
    reason = printable(record.error or record.note)
    verdict = Text.assemble(LOOKS[answer.verdict], f"  {reason}")
    console.show(labelled("Verdict", verdict), "")
