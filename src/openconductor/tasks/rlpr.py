"""RLPR: general reasoning with free-form answers.

Shapes: ``{id, question, answer, kind?, tolerance?}`` (local), and the one that RLPR publishes: a
chat in ``prompt``, of which the last user turn is the question, and the answer in
``reward_model.ground_truth``.
"""

from __future__ import annotations

from typing import cast, get_args

from openconductor.graders.choice import LETTERS
from openconductor.graders.freeform import FreeFormAnswer, FreeFormGrader, Kind, kind_of
from openconductor.tasks.data.dataset import Dataset, Shape
from openconductor.tasks.data.items import DataFile, Item
from openconductor.tasks.data.rows import Row
from openconductor.tasks.prompts import boxed, boxed_prompt


def free_form_answer(row: Row, field: str) -> FreeFormAnswer:
    """Return the reference of a local row: its text, ``kind`` and ``tolerance``.

    Raises:
        TaskError: a field is missing or of the wrong type.
    """
    text = row.text_or_number(field)
    kind = row.text_or("kind") or None
    if kind is not None and kind not in get_args(Kind):
        raise row.wrong("kind", kind, f"one of {', '.join(get_args(Kind))}")
    if kind == "choice" and text.strip(" ().") not in tuple(LETTERS):
        raise row.wrong(field, text, f"a letter of {LETTERS} for the kind choice")
    tolerance = row.amount("tolerance")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise row.wrong("tolerance", tolerance, "a number from 0 to below 1")
    return FreeFormAnswer(text, cast("Kind | None", kind), tolerance)


def _local(row: Row) -> Item:
    subject = row.text_or("subject", row.text_or("category"))
    return _item(row, row.text("question"), free_form_answer(row, "answer"), subject)


def _published(row: Row) -> Item:
    turns = [turn.get("content") for turn in row.objects("prompt") if turn.get("role") == "user"]
    question = turns[-1] if turns else None
    if not isinstance(question, str) or not question.strip():
        raise row.wrong("prompt", row.values["prompt"], "a chat with a user's turn")
    judged = row.values["reward_model"]
    fields = cast("dict[str, object]", judged if isinstance(judged, dict) else {})
    answer = fields.get("ground_truth")
    if not isinstance(answer, str) or not answer.strip():
        raise row.wrong(
            "reward_model", row.values["reward_model"], "an object with the text ground_truth"
        )
    return _item(row, question, FreeFormAnswer(answer), row.text_or("ability"))


def _item(row: Row, question: str, answer: FreeFormAnswer, subject: str) -> Item:
    text = answer.text.strip()
    if (answer.kind or kind_of(text)) == "choice":
        text = text.strip("().")
    return row.item(boxed_prompt(question), answer, boxed(text), subject)


SHAPES = (
    Shape(("prompt", "reward_model"), _published),
    Shape(("id", "question", "answer"), _local, id="id"),
)

RLPR = Dataset(
    "rlpr",
    "general reasoning with free-form answers, of WebInstruct (Yu et al. 2025)",
    "openbmb/RLPR-Train-Dataset",
    None,  # no two independent records of a commit could be had
    "CC BY-NC 4.0",
    dict.fromkeys(("train", "test"), (DataFile("rlpr_train.parquet"),)),
    shapes=SHAPES,
    grader=FreeFormGrader,
    notes=(
        "free-form answers in other words than the reference's are undecided, not wrong",
        "train alone is published: of its questions a hundredth, drawn by a fixed seed, is test",
    ),
    held_out=0.01,
)
