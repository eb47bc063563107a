"""Multiple choice: MMLU, GPQA-Diamond. In: rows with a question and its choices. Out: Items.

Shapes: ``{id, question, choices, answer}`` (local; the answer is an index from 0 or a letter), the same without an id
(MMLU), ``{question_id, question, options, answer}`` (MMLU-Pro), and GPQA's columns.

Choices keep their published order unless a seed draws another. GPQA's columns put the right choice first, so its order
is always drawn (with 0 where there is no seed). A choice that speaks of the others by their places ("both A and C",
"all of the above") must not move: such a question keeps its order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openconductor.graders.choice import LETTERS, ChoiceGrader, choice_prompt, shuffled
from openconductor.tasks.dataset import DatasetSpec, RowPlace, Shape
from openconductor.tasks.hub import HubDataset, HubFile, parquet
from openconductor.tasks.items import Item
from openconductor.tasks.rows import Row

_OF_OTHERS = re.compile(
    r"(?i:\b(?:all|none|neither|both|any|each|either|two|three)\b.{0,20}\b(?:above|below|these|the other|previous)\b)"
    r"|(?i:\b(?:both|neither|either|only|options?|choices?|answers?))\s+\(?[A-J]\)?(?:\b|$)"
    r"|^\(?[A-J]\)?\s*(?:,|and|or|&)\s*\(?[A-J]\)?\b"
)


def letter_at(row: Row, field: str, count: int) -> str:
    """The letter of the right choice, given as an index from 0 or as a letter.

    Raises:
        TaskError: there is no such choice.
    """
    letters = LETTERS[:count]
    value = row.identity(field)
    if isinstance(value, int):
        if not 0 <= value < count:
            raise row.wrong(field, value, f"an index from 0 to {count - 1}, or a letter of {letters}")
        return letters[value]
    if len(value.strip()) != 1 or value.strip() not in letters:
        raise row.wrong(field, value, f"a letter of {letters}, or an index from 0 to {count - 1}")
    return value.strip()


def _with_choices(row: Row, place: RowPlace) -> Item:
    return _listed(row, place, "choices", row.text_or("subject", row.text_or("type")))


def _with_options(row: Row, place: RowPlace) -> Item:
    return _listed(row, place, "options", row.text_or("category"))


def _listed(row: Row, place: RowPlace, field: str, subject: str) -> Item:
    choices = row.choices(field)
    return _item(row.text("question"), choices, letter_at(row, "answer", len(choices)), subject, place, place.seed)


def _gpqa(row: Row, place: RowPlace) -> Item:
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    choices = [row.text(column).strip() for column in columns]
    subject = row.text_or("High-level domain", row.text_or("Subdomain"))
    return _item(row.text("Question"), choices, "A", subject, place, place.seed or 0)


def _item(question: str, choices: Sequence[str], letter: str, subject: str, place: RowPlace, seed: int | None) -> Item:
    if seed is not None and not any(_OF_OTHERS.search(choice) for choice in choices):
        choices, places = shuffled(choices, f"{seed} {place.id}")
        letter = LETTERS[places.index(LETTERS.index(letter))]
    return place.item(choice_prompt(question, choices, subject=subject), letter, f"Answer: {letter}", subject)


SHAPES = (
    Shape(("Question", "Correct Answer", "Record ID"), _gpqa, id="Record ID"),
    Shape(("question_id", "question", "options", "answer"), _with_options, id="question_id"),
    Shape(("id", "question", "choices", "answer"), _with_choices, id="id"),
    Shape(("question", "choices", "answer"), _with_choices),
)

MMLU = DatasetSpec(
    "mmlu",
    "57 subjects, four choices (Hendrycks et al. 2021)",
    HubDataset(
        "cais/mmlu",
        "c30699e8356da336a370243923dbaf21066bb9fe",
        "MIT",
        {
            "test": parquet("all/test", "74a41822ce7d3def56e1682f958469c04642a5336a5ce912fa375fdb90fb25d7", 14042),
            "validation": parquet(
                "all/validation", "66cdf0b090ccb657d18d13cd81e31fdc55c3467da9642ffb178653268a97c8ef", 1531
            ),
            "dev": parquet("all/dev", None, 285),
            "auxiliary_train": parquet("all/auxiliary_train", None, 99842),
        },
    ),
    SHAPES,
    ChoiceGrader,
)

GPQA_DIAMOND = DatasetSpec(
    "gpqa_diamond",
    "198 graduate-level questions of science, four choices (Rein et al. 2023)",
    HubDataset(
        "Idavidrein/gpqa",
        "633f5ee89ab8ad4522a9f850766b73f62147ffdd",
        "CC BY 4.0; its authors ask not to publish the questions",
        {"test": (HubFile("gpqa_diamond.csv", None, 198),)},
        gated=True,
    ),
    SHAPES,
    ChoiceGrader,
    ("the order of the choices is drawn: the data put the right one first",),
)
