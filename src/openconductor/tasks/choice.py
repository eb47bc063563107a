"""Multiple choice: MMLU, GPQA-Diamond, and local questions with choices.

Shapes: ``{id, question, choices, answer}`` (local; the answer is an index from 0 or a letter), the
same without an id (MMLU), ``{question_id, question, options, answer}`` (MMLU-Pro), and GPQA's
columns.

Choices keep their published order unless a seed draws another. GPQA's columns put the right choice
first, so its order is always drawn (with 0 if there is no seed). A choice that speaks of the others
by their places ("both A and C", "all of the above") must not move: such a question keeps its order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from openconductor.graders.choice import LETTERS, ChoiceGrader, choice_prompt, shuffled
from openconductor.tasks.data.dataset import Dataset, Shape, parquet
from openconductor.tasks.data.items import DataFile, Item
from openconductor.tasks.data.rows import Row

_OF_OTHERS = re.compile(
    r"(?i:\b(?:all|none|neither|both|any|each|either|two|three)\b.{0,20}"
    r"\b(?:above|below|these|the other|previous)\b)"
    r"|(?i:\b(?:both|neither|either|only|options?|choices?|answers?))\s+\(?[A-J]\)?(?:\b|$)"
    r"|^\(?[A-J]\)?\s*(?:,|and|or|&)\s*\(?[A-J]\)?\b"
)


def choices_of(row: Row, field: str = "choices") -> list[str]:
    """Return the texts of the choices, of which there are at most as many as letters."""
    choices = row.texts(field)
    if not 2 <= len(choices) <= len(LETTERS):
        raise row.wrong(field, choices, f"2 to {len(LETTERS)} choices")
    return choices


def letter_at(row: Row, field: str, count: int) -> str:
    """Return the letter of the right choice, given as an index from 0 or as a letter.

    Raises:
        TaskError: there is no such choice.
    """
    letters = LETTERS[:count]
    value = row.identity(field)
    if isinstance(value, str):
        letter = value.strip()
    else:
        letter = dict(enumerate(letters)).get(value)
    if letter not in set(letters):
        raise row.wrong(field, value, f"a letter of {letters}, or an index from 0 to {count - 1}")
    return letter


def _with_choices(row: Row) -> Item:
    kind = row.text_or("type")
    return _listed(row, "choices", row.text_or("subject", kind))


def _with_options(row: Row) -> Item:
    return _listed(row, "options", row.text_or("category"))


def _listed(row: Row, field: str, subject: str) -> Item:
    choices = choices_of(row, field)
    letter = letter_at(row, "answer", len(choices))
    return _item(row, row.text("question"), choices, letter, subject, row.seed)


def _gpqa(row: Row) -> Item:
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    choices = [row.text(column).strip() for column in columns]
    subdomain = row.text_or("Subdomain")
    subject = row.text_or("High-level domain", subdomain)
    question = row.text("Question")
    return _item(row, question, choices, "A", subject, row.seed or 0)


def _item(
    row: Row, question: str, choices: Sequence[str], letter: str, subject: str, seed: int | None
) -> Item:
    movable = not any(_OF_OTHERS.search(choice) for choice in choices)
    if seed is not None and movable:
        right = LETTERS.index(letter)
        choices, places = shuffled(choices, f"{seed} {row.id}")
        letter = LETTERS[places.index(right)]
    prompt = choice_prompt(question, choices, subject=subject)
    return row.item(prompt, letter, f"Answer: {letter}", subject)


SHAPES = (
    Shape(("Question", "Correct Answer", "Record ID"), _gpqa, id="Record ID"),
    Shape(("question_id", "question", "options", "answer"), _with_options, id="question_id"),
    Shape(("id", "question", "choices", "answer"), _with_choices, id="id"),
    Shape(("question", "choices", "answer"), _with_choices),
)
_dataset = partial(Dataset, shapes=SHAPES, grader=ChoiceGrader)

_MMLU_SPLITS = {
    "test": parquet(
        "all/test", "74a41822ce7d3def56e1682f958469c04642a5336a5ce912fa375fdb90fb25d7", 14042
    ),
    "validation": parquet(
        "all/validation",
        "66cdf0b090ccb657d18d13cd81e31fdc55c3467da9642ffb178653268a97c8ef",
        1531,
    ),
    "dev": parquet("all/dev", None, 285),
    "auxiliary_train": parquet("all/auxiliary_train", None, 99842),
}
MMLU = _dataset(
    "mmlu",
    "57 subjects, four choices (Hendrycks et al. 2021)",
    "cais/mmlu",
    "c30699e8356da336a370243923dbaf21066bb9fe",
    "MIT",
    _MMLU_SPLITS,
)

GPQA_DIAMOND = _dataset(
    "gpqa_diamond",
    "198 graduate-level questions of science, four choices (Rein et al. 2023)",
    "Idavidrein/gpqa",
    "633f5ee89ab8ad4522a9f850766b73f62147ffdd",
    "CC BY 4.0; its authors ask not to publish the questions",
    {"test": (DataFile("gpqa_diamond.csv", None, 198),)},
    notes=("the order of the choices is drawn: the data put the right one first",),
    gated=True,
)
