"""``openconductor gym``: print the gym's questions, workers and best workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.console import labelled
from openconductor.cli.gym_measure import measure
from openconductor.cli.live import colour_of
from openconductor.cli.options import AsJson, Seed, spread
from openconductor.config import one_of
from openconductor.gym.exact import oracle_workflow, random_accuracy
from openconductor.gym.questions import (
    EQUAL_MIX,
    EXAMPLE,
    KINDS,
    SPLITS,
    GymQuestion,
    Kind as GymKind,
    draw_questions,
    read_question,
)
from openconductor.gym.workers import (
    COMPARES,
    MISREAD,
    PROFILES,
    REFEREE,
    SPOTS,
    Profile,
    gym_pool,
)
from openconductor.gym.world import SKILLS
from openconductor.measures import topology
from openconductor.prompt import check_question, render_workflow

gym = typer.Typer(help="Look at the gym: questions, workers, best workflows.")
gym.command("measure")(measure)

Asked = Annotated[
    str | None,
    typer.Argument(help="A question of the gym (default: one is drawn).", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawOptions:
    """The questions that are drawn."""

    seed: Seed = 0
    index: Annotated[int, typer.Option("--index", min=0, help="Which question of the seed.")] = 0
    split: Annotated[str, typer.Option("--split", help="train, validation or test.")] = "test"
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="single, pair, triple or smudged (default: in turn)."),
    ] = None

    def draw(self, count: int = 1) -> list[GymQuestion]:
        """Draw questions.

        Raises:
            ConfigError: the kind or the split is unknown.
        """
        mix: Mapping[GymKind, float] = EQUAL_MIX
        if self.kind is not None:
            mix = {one_of("--kind", self.kind, KINDS): 1.0}
        split = one_of("--split", self.split, SPLITS)
        return draw_questions(split, count, seed=self.seed, mix=mix, start=self.index)


LEGEND = (
    "Columns of skills: the chance of getting one operation right in the wording that the worker "
    "likes. The other wording costs the factor under else. Prices are US dollars a million "
    "tokens. Workers compare answers by counting votes: "
    f"the referee slips {1 - REFEREE:.0%} of the time, the others {1 - COMPARES:.0%}. If votes are "
    "even, only the referee can check: it recognises what is right and what is wrong "
    f"{SPOTS:.0%} of the time, the others guess."
)


@gym.command("question")
@spread
def question(
    text: Asked = None,
    *,
    drawn: DrawOptions,
    as_json: AsJson = False,
) -> None:
    """Show a question with its kind and its answer."""
    chosen = _find_question(text, drawn)
    if as_json:
        console.show_json(_question_json(chosen))
    else:
        _show_question(chosen)


@gym.command("questions")
@spread
def questions(
    count: Annotated[int, typer.Option("--count", min=1, help="How many.")] = 10,
    *,
    drawn: DrawOptions,
    as_json: AsJson = False,
) -> None:
    """List questions with their kinds and answers."""
    chosen = drawn.draw(count)
    if as_json:
        console.show_json([_question_json(question) for question in chosen])
        return
    rows = [(question.kind, question.text, " ".join(question.answer)) for question in chosen]
    console.show_table(("kind", "question", "answer"), rows, words=range(3), names=3)


@gym.command("worker")
def worker(
    name: Annotated[
        str | None, typer.Argument(help="Its name (default: all workers).", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the skills and the costs of a worker, or of all."""
    ordinals = list(range(len(PROFILES)))
    if name is not None:
        ordinals = [gym_pool().ordinal_of(name)]
    if as_json:
        profiles = [_profile_json(ordinal) for ordinal in ordinals]
        console.show_json(profiles if name is None else profiles[0])
    else:
        _show_workers(ordinals)


@gym.command("oracle")
@spread
def oracle(
    text: Asked = None,
    *,
    drawn: DrawOptions,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, max=5, help="The most steps.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Show a question's best workflow, and how often it is right."""
    chosen = _find_question(text, drawn)
    workflow, accuracy = oracle_workflow(chosen, max_steps=max_steps)
    if as_json:
        console.show_json(
            {
                "question": _question_json(chosen),
                "workflow": workflow.steps,
                "text": render_workflow(workflow),
                "topology": topology(workflow),
                "expected_accuracy": accuracy,
            }
        )
        return
    _show_question(chosen)
    right = f"right {accuracy:.1%} of the time; a random workflow {random_accuracy(chosen):.1%}"
    console.show("", labelled("Oracle", render_workflow(workflow)), labelled("Expected", right))


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
def _find_question(text: str | None, drawn: DrawOptions) -> GymQuestion:
    """Return the question of a text, or the one of the seed and index."""
    if text is None:
        return drawn.draw()[0]
    check_question(text)
    question = read_question(text)
    if question is None:
        console.fail(f"the gym cannot read this question; one that it can read: {EXAMPLE}")
    return question


def _question_json(question: GymQuestion) -> dict[str, object]:
    operations = [
        {"name": operation.name, "skill": operation.skill, "wording": wording}
        for operation, wording in question.operations
    ]
    return {
        "id": question.problem().id,
        "text": question.text,
        "kind": question.kind,
        "operations": operations,
        "answer": " ".join(question.answer),
    }


def _show_question(question: GymQuestion) -> None:
    operations = [f"{operation.name} ({operation.skill})" for operation, _ in question.operations]
    kind = f"{question.kind}: {', then '.join(operations)}"
    if question.smudged:
        kind += f"; each reading of the list goes wrong {MISREAD:.0%} of the time"
    console.show(
        labelled("Question", question.text),
        labelled("Kind", kind),
        labelled("Answer", " ".join(question.answer)),
    )


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def _profile_json(ordinal: int) -> dict[str, object]:
    profile = PROFILES[ordinal]
    return {
        "ordinal": ordinal,
        "name": profile.name,
        "description": profile.description,
        "skills": profile.skills,
        "likes": profile.likes,
        "otherwise": profile.dislike,
        "referee": profile.referee,
        "price": {"input": profile.price.input, "output": profile.price.output},
        "seconds": profile.seconds,
    }


def _show_workers(ordinals: Sequence[int]) -> None:
    head = ("#", "worker", *SKILLS, "likes", "else", "$ in", "$ out", "s")
    rows = [_worker_row(ordinal, PROFILES[ordinal]) for ordinal in ordinals]
    console.show_table(head, rows, words=(1, head.index("likes")), names=2)
    if len(ordinals) == 1:
        profile = PROFILES[ordinals[0]]
        console.show(f"{profile.name}: {profile.description}.")
    console.show(Text(LEGEND, style="dim"))


def _worker_row(ordinal: int, profile: Profile) -> list[str | Text]:
    name = Text(profile.name, style=f"bold {colour_of(ordinal)}")
    chances = [f"{profile.skills[skill]:.2f}" for skill in SKILLS]
    likes, factor = "either", ""
    if profile.likes is not None:
        likes = profile.likes
        factor = f"x {profile.dislike}"
    prices = [str(profile.price.input), str(profile.price.output)]
    return [str(ordinal), name, *chances, likes, factor, *prices, str(profile.seconds)]
