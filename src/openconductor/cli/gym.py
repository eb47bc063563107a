"""``openconductor gym``: look around in the gym: its questions, its workers, and the best workflow of a question.

In: which question (by seed and index, or its text) or which worker. Out: what the gym's own
functions say of it, as text or with ``--json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.console import labelled
from openconductor.cli.gym_measure import measure
from openconductor.cli.live import COLOURS
from openconductor.cli.options import AsJson, Seed
from openconductor.config import one_of
from openconductor.gym.exact import oracle_workflow, random_accuracy
from openconductor.gym.questions import (
    EQUAL_MIX,
    KINDS,
    SPLITS,
    GymQuestion,
    Kind as GymKind,
    Split as GymSplit,
    draw_questions,
    read_question,
)
from openconductor.gym.workers import COMPARES, MISREAD, PROFILES, REFEREE, SPOTS, gym_pool
from openconductor.gym.world import SKILLS
from openconductor.measures import topology
from openconductor.prompt import check_question, render_workflow

gym = typer.Typer(help="Look at the gym: questions, workers, best workflows.")
gym.command("measure")(measure)

Asked = Annotated[
    str | None,
    typer.Argument(help="A question of the gym; without it, one is drawn.", show_default=False),
]
Index = Annotated[int, typer.Option("--index", min=0, help="Which question of the seed.")]
Split = Annotated[str, typer.Option("--split", help="train, validation or test.")]
Kind = Annotated[
    str | None, typer.Option("--kind", help="single, pair, triple or smudged; without it, in turn.")
]


@gym.command("question")
def question(
    text: Asked = None,
    seed: Seed = 0,
    index: Index = 0,
    split: Split = "test",
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Show a question with its kind and its answer."""
    found = _find(text, seed, index, split, kind)
    if as_json:
        console.show_json(_question_json(found))
    else:
        _show_question(found)


@gym.command("questions")
def questions(
    count: Annotated[int, typer.Option("--count", min=1, help="How many.")] = 10,
    seed: Seed = 0,
    index: Index = 0,
    split: Split = "test",
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """List questions with their kinds and answers."""
    found = _draw(count, seed, index, split, kind)
    if as_json:
        console.show_json([_question_json(one) for one in found])
        return
    rows = [(one.kind, one.text, " ".join(one.answer)) for one in found]
    console.show_table(("kind", "question", "answer"), rows, words=range(3), names=3)


@gym.command("worker")
def worker(
    name: Annotated[
        str | None, typer.Argument(help="Its name; without it, all are listed.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a worker (or each) is good at, and what it costs."""
    chosen = list(range(len(PROFILES))) if name is None else [gym_pool().ordinal_of(name)]
    if as_json:
        listed = [_profile_json(ordinal) for ordinal in chosen]
        console.show_json(listed if name is None else listed[0])
    else:
        _show_workers(chosen)


@gym.command("oracle")
def oracle(
    text: Asked = None,
    seed: Seed = 0,
    index: Index = 0,
    split: Split = "test",
    kind: Kind = None,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, max=5, help="The most steps.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Show a question's best workflow, and how often it is right."""
    found = _find(text, seed, index, split, kind)
    workflow, accuracy = oracle_workflow(found, max_steps=max_steps)
    if as_json:
        known = {
            "workflow": workflow.steps,
            "text": render_workflow(workflow),
            "topology": topology(workflow),
        }
        console.show_json(
            {"question": _question_json(found), **known, "expected_accuracy": accuracy}
        )
        return
    _show_question(found)
    right = f"right {accuracy:.1%} of the time; a random workflow {random_accuracy(found):.1%}"
    console.show("", labelled("Oracle", render_workflow(workflow)), labelled("Expected", right))


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def _find(text: str | None, seed: int, index: int, split: str, kind: str | None) -> GymQuestion:
    if text is None:
        return _draw(1, seed, index, split, kind)[0]
    check_question(text)
    return read_question(text) or console.fail(
        f"the gym cannot read this question; it reads such as: {_draw(1, seed, index, 'test', None)[0].text}"
    )


def _draw(count: int, seed: int, start: int, split: str, kind: str | None) -> list[GymQuestion]:
    part = cast("GymSplit", one_of("--split", split, SPLITS))
    mix: Mapping[GymKind, float] = (
        EQUAL_MIX if kind is None else {cast("GymKind", one_of("--kind", kind, KINDS)): 1.0}
    )
    return draw_questions(part, count, seed=seed, mix=mix, start=start)


def _question_json(question: GymQuestion) -> dict[str, object]:
    return {
        "id": question.problem().id,
        "text": question.text,
        "kind": question.kind,
        "operations": [
            {"name": operation.name, "skill": operation.skill, "wording": wording}
            for operation, wording in question.operations
        ],
        "answer": " ".join(question.answer),
    }


def _show_question(question: GymQuestion) -> None:
    skills = ", then ".join(
        f"{operation.name} ({operation.skill})" for operation, _ in question.operations
    )
    smudged = (
        f"; each reading of the list goes wrong {MISREAD:.0%} of the time"
        if question.smudged
        else ""
    )
    console.show(
        labelled("Question", question.text),
        labelled("Kind", f"{question.kind}: {skills}{smudged}"),
        labelled("Answer", " ".join(question.answer)),
    )


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def _profile_json(ordinal: int) -> dict[str, object]:
    one = PROFILES[ordinal]
    return {
        "ordinal": ordinal,
        "name": one.name,
        "description": one.description,
        "skills": one.skills,
        "likes": one.likes,
        "otherwise": one.dislike,
        "referee": one.referee,
        "price": {"input": one.price.input, "output": one.price.output},
        "seconds": one.seconds,
    }


def _show_workers(chosen: list[int]) -> None:
    head = ("#", "worker", *SKILLS, "likes", "else", "$ in", "$ out", "s")
    rows: list[list[str | Text]] = []
    for ordinal in chosen:
        one = PROFILES[ordinal]
        name = Text(one.name, style=f"bold {COLOURS[ordinal % len(COLOURS)]}")
        chances = [f"{one.skills[skill]:.2f}" for skill in SKILLS]
        liked = ("either", "") if one.likes is None else (one.likes, f"x {one.dislike}")
        rows.append(
            [
                str(ordinal),
                name,
                *chances,
                *liked,
                *map(str, (one.price.input, one.price.output, one.seconds)),
            ]
        )
    console.show_table(head, rows, words=(1, head.index("likes")), names=2)
    if len(chosen) == 1:
        console.show(f"{PROFILES[chosen[0]].name}: {PROFILES[chosen[0]].description}.")
    legend = (
        "Chances of getting one operation right, by skill, in the wording that the worker likes; the other wording "
        "costs the factor under else. Prices are US dollars a million tokens. To compare answers is to count votes: "
        f"the referee slips {1 - REFEREE:.0%} of the time, the others {1 - COMPARES:.0%}. Where votes are even, only "
        f"the referee can check: it knows what is right and what is wrong {SPOTS:.0%} of the time, the others guess."
    )
    console.show(Text(legend, style="dim"))
