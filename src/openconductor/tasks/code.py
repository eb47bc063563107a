"""Programs: HumanEval, MBPP, BigCodeBench-Hard, and local problems with tests.

Shapes: ``{id, question, starter_code?, tests, entry_point?, solution?}`` (local; ``tests`` as
``data.tests`` reads them), and those of HumanEval, MBPP and BigCodeBench as published. Nothing is
run here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_outside import given_by
from openconductor.graders.code_tests import CodeTests, from_asserts
from openconductor.tasks.data.dataset import Dataset, Shape, parquet
from openconductor.tasks.data.items import Item
from openconductor.tasks.data.rows import Row
from openconductor.tasks.data.tests import read_tests
from openconductor.tasks.prompts import fenced, function_prompt, program_prompt

_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)


def row_tests(row: Row) -> CodeTests:
    """Return the tests of a local row.

    Without ``entry_point``, the first function of ``starter_code`` is meant, dunders aside.

    Raises:
        TaskError: a field is missing or of the wrong type, or a test is of no known shape.
    """
    functions = _DEFINED.findall(row.text_or("starter_code"))
    named = [name for name in functions if not name.startswith("__")]
    entry_point = row.text_or("entry_point") or next(iter(named), None)
    return read_tests(row, entry_point)


def _asserted(row: Row, field: str, source: str, entry_point: str | None) -> CodeTests:
    """Return the tests of a program of assertions that is in a field."""
    with row.of_field(field):
        return from_asserts(source, entry_point)


def _local(row: Row) -> Item:
    tests = row_tests(row)
    question = row.text("question")
    if tests.entry_point:
        text = function_prompt(question, starter=row.text_or("starter_code"))
    else:
        text = program_prompt(question)
    solution = row.text_or("solution")
    canonical = fenced(solution) if solution.strip() else None
    return row.item(text, tests, canonical, row.text_or("subject"))


def _humaneval(row: Row) -> Item:
    entry_point = row.text("entry_point")
    tests = _asserted(row, "test", row.text("test"), entry_point)
    tests = replace(tests, given=given_by(row.text("prompt"), entry_point))
    return _completion(row, "prompt", tests)


def _bigcodebench(row: Row) -> Item:
    entry_point = row.text("entry_point")
    given = given_by(row.text("complete_prompt"), entry_point)
    tests = CodeTests((), entry_point, row.text("test"), given)
    return _completion(row, "complete_prompt", tests)


def _completion(row: Row, field: str, tests: CodeTests) -> Item:
    prompt = row.text(field)
    canonical = fenced(prompt + row.text("canonical_solution"))
    return row.item(function_prompt("", starter=prompt), tests, canonical)


def _mbpp(row: Row) -> Item:
    asserts = row.texts("test_list")
    if not asserts:
        raise row.wrong("test_list", [], "a list of assertions, of at least one")
    setup = row.texts("test_imports") if row.has("test_imports") else []
    setup.append(row.text_or("test_setup_code"))
    lines = [line for line in setup if line.strip()]
    text = row.text("text") if row.has("text") else row.text("prompt")
    tests = _asserted(row, "test_list", "\n".join(lines + asserts), None)
    # One assertion names the function and its arguments; the others stay hidden.
    example = f"Name the function `{tests.entry_point}`. For example:\n{fenced(asserts[0])}"
    question = f"{text.strip()}\n\n{example}"
    return row.item(function_prompt(question), tests, fenced(row.text("code")))


_COMPLETED = ("canonical_solution", "test", "entry_point")
LOCAL = Shape(("id", "question", "tests"), _local, id="id")
SHAPES = (
    Shape(("task_id", "complete_prompt", *_COMPLETED), _bigcodebench, id="task_id"),
    Shape(("task_id", "prompt", *_COMPLETED), _humaneval, id="task_id"),
    Shape(("task_id", "code", "test_list"), _mbpp, id="task_id"),
    LOCAL,
)
_dataset = partial(Dataset, shapes=SHAPES, grader=CodeGrader)

HUMANEVAL = _dataset(
    "humaneval",
    "164 functions to complete (Chen et al. 2021)",
    "openai/openai_humaneval",
    "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    "MIT",
    {
        "test": parquet(
            "openai_humaneval/test",
            "2f2871a15fbc95b6c683043359f4ed8e144c5a1c4f24f25f66bc51f598dfcfb6",
            164,
        )
    },
)

MBPP = _dataset(
    "mbpp",
    "short Python functions, the 427 verified ones (Austin et al. 2021)",
    "google-research-datasets/mbpp",
    "4bb6404fdc6cacfda99d4ac4205087b89d32030c",
    "CC BY 4.0",
    {
        "test": parquet(
            "sanitized/test",
            "e9e9efa2c0d59ef5e55537a9d126b8f875d5ac010a8d75628d76824884e15850",
            257,
        ),
        "train": parquet(
            "sanitized/train",
            "d95f8ad6d2fff08fe4826122d6e3e31f75716825d0c5c340d297aca5e9e0de0e",
            120,
        ),
        "validation": parquet(
            "sanitized/validation",
            "27e065fcab3c863959933328a7fdbf404e1bcb5464b1be6fe0dcd9530e420204",
            43,
        ),
        "prompt": parquet(
            "sanitized/prompt",
            "73c623309b7b5d65fd5661204b35f779f8e66301aa9832d1ad4b8fc3b21151fd",
            7,
        ),
    },
    notes=("the prompt shows one of a problem's assertions; the usual one shows all of them",),
)

BIGCODEBENCH_HARD = _dataset(
    "bigcodebench_hard",
    "148 functions over many libraries, to complete (Zhuo et al. 2024)",
    "bigcode/bigcodebench-hard",
    "298d2cc7b96612e15e47313c3603ee124cee0c1f",
    "Apache-2.0",
    {
        "test": parquet(
            "data/v0.1.4", "73a4270b43feb81abefad7bb1b592937c768ea45c3263bedc1cabd30a9a6ce79", 148
        )
    },
    notes=(
        (
            "judged by its own unittest classes beside the answer, "
            "which a program that tries can get past"
        ),
        (
            "some canonical solutions need libraries of 2021 to 2023, or a network: "
            "`task check` lists them"
        ),
    ),
)
