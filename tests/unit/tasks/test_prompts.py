"""Prompts and the extractors that they belong to: what a prompt asks for is what its grader finds."""

from __future__ import annotations

import pytest

from openconductor.graders.code_text import program_of
from openconductor.graders.extraction import find_answer
from openconductor.tasks.prompts import boxed, boxed_prompt, fenced, function_prompt, program_prompt


@pytest.mark.parametrize("answer", ["42", r"\frac{1}{2}", "x = 5", "the mitochondrion", r"\{1, 2\}"])
def test_the_box_that_is_asked_for_is_found(answer: str) -> None:
    assert "\\boxed{}" in boxed_prompt("What is it?")
    assert find_answer(boxed(answer)).text == answer


@pytest.mark.parametrize(
    "program",
    [
        "print(1)\n",
        "def f():\n    '''\n    ```python\n    no\n    ```\n    '''\n    return 1\n",
        "x = '````'\n",
        "\n\nx = 1",
    ],
)
def test_the_block_that_is_asked_for_is_found_whole(program: str) -> None:
    assert "```python" in program_prompt("Add.")
    assert "```python" in function_prompt("Add.")
    found = program_of(f"Here it is.\n\n{fenced(program)}\n\nDone.")
    assert found is not None
    assert found.strip("\n") == program.strip("\n")


def test_a_starter_stands_in_the_prompt() -> None:
    assert "```python\ndef add(a, b):\n```" in function_prompt("Add.", starter="def add(a, b):\n")
    assert function_prompt("", starter="def f():").startswith("Complete this:")
    assert "Complete" not in function_prompt("Add.", starter=" ")
