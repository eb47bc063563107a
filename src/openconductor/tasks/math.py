r"""Mathematics: MATH (train), MATH500, AIME 2025, GSM8K, and local problems with answers.

Shapes: ``{id, problem, answer}`` (local, AIME 2025), with ``unique_id`` for ``id`` (MATH-500),
``{problem, solution, level, type}`` (MATH: the solution boxes it), ``{question, answer}`` with
``#### 42`` at the end (GSM8K).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from openconductor.graders.extraction import find_boxed
from openconductor.graders.math import MathGrader
from openconductor.tasks.data.dataset import Dataset, Shape, parquet
from openconductor.tasks.data.items import DataFile, Item
from openconductor.tasks.data.rows import Row, Unusable
from openconductor.tasks.prompts import boxed, boxed_prompt


def _answered(row: Row) -> Item:
    """Read a row that gives its answer."""
    return _item(row, row.text("problem"), row.text_or_number("answer"))


def _solved(row: Row) -> Item:
    """Read a row whose solution boxes the answer."""
    solution = row.text("solution")
    found = find_boxed(solution)
    if found is None or found.text is None:
        raise Unusable("its solution boxes no answer")
    return replace(_item(row, row.text("problem"), found.text), canonical=solution)


def _marked(row: Row) -> Item:
    """Read a row whose answer ends with a line that begins with ####."""
    solution = row.text("answer")
    _, mark, answer = solution.rpartition("#### ")
    if not mark or not answer.strip():
        raise row.wrong("answer", solution[-60:], "a text that ends with '#### ' and the answer")
    return _item(row, row.text("question"), answer.strip())


def _item(row: Row, problem: str, answer: str) -> Item:
    """Make an item whose kind is its level (1 to 5, or "Level 1" to "Level 5"), if there is one."""
    subject = row.text_or("subject", row.text_or("type"))
    item = row.item(boxed_prompt(problem), answer, boxed(answer), subject)
    level = re.fullmatch(r"(?:Level )?([1-5])", str(row.values.get("level")))
    if level is None:
        return item
    problem_of_level = replace(item.problem, kind=f"level {level[1]}")
    difficulty = (int(level[1]) - 1) / 4
    return replace(item, problem=problem_of_level, difficulty=difficulty)


SHAPES = (
    Shape(("problem", "answer", "unique_id"), _answered, id="unique_id"),
    Shape(("problem", "solution", "level", "type"), _solved),
    Shape(("question", "answer"), _marked),
    Shape(("id", "problem", "answer"), _answered, id="id"),
)
_dataset = partial(Dataset, shapes=SHAPES, grader=MathGrader)

MATH = _dataset(
    "math",
    "competition mathematics (Hendrycks et al. 2021), the training part",
    "DigitalLearningGmbH/MATH-lighteval",
    "0530c78699ea5e8eb5530600900e1f328b48acad",
    "MIT",
    {
        "train": parquet(
            "data/train", "eca6e667f4305dd5e5ba09b4fd55e7f3174a0fbe361cdfd4c44758b593a76933", 7500
        ),
        "test": parquet(
            "data/test", "7dca8d6e41af88ecf82f2b5f36eb5530e083aaaa86ee325f62bd5c31535178c6", 5000
        ),
    },
    notes=("the test split holds the 500 problems of math500",),
)

MATH500 = _dataset(
    "math500",
    "500 problems of MATH's test part (Lightman et al. 2023)",
    "HuggingFaceH4/MATH-500",
    "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    "MIT (problems: hendrycks/math; split: openai/prm800k)",
    {
        "test": (
            DataFile(
                "test.jsonl",
                "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
                500,
            ),
        )
    },
)

AIME25 = _dataset(
    "aime25",
    "the 30 problems of AIME I and II 2025, integers from 0 to 999",
    "math-ai/aime25",
    "563bb8404243c5f09de6ec262f2db674fe5bce9b",
    "not stated; the problems are the MAA's",
    {
        "test": (
            DataFile(
                "test.jsonl", "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331", 30
            ),
        )
    },
)

GSM8K = _dataset(
    "gsm8k",
    "grade-school word problems (Cobbe et al. 2021)",
    "openai/gsm8k",
    "740312add88f781978c0658806c59bc2815b9866",
    "MIT",
    {
        "test": parquet(
            "main/test", "ee7b8da9e381df27b9e3f7758a159ab2bdaa4dbaa910546cbbc47e0cb44e4f59", 1319
        ),
        "train": parquet(
            "main/train", "ea82612ea9582142387730c793eb67d3b12849002bc0b7fa6f8efafa7351419d", 7473
        ),
    },
)
