r"""The prompts that workers see, beside the problem itself.

A prompt and its grader's extractor are one unit: ``\boxed{}`` is what ``graders.extraction`` looks
for first, the last fenced Python block is what ``graders.code_text`` runs. Multiple choice keeps
its prompts with its extractors (``graders.choice.choice_prompt``). ``boxed`` and ``fenced`` wrap an
answer as the prompts ask.

``ANSWER_FORMS`` are the texts at the end of all these prompts that say in which form to answer.
They are for workers: no Conductor is trained with them, and no question of a user has them.
"""

from __future__ import annotations

from openconductor.graders.choice import CHOICE_FORMS

_BOX = "Reason step by step, then give the final answer in \\boxed{}."
_PROGRAM = (
    "Write a Python program that reads the input from standard input and prints the answer to "
    "standard output."
)
_WHOLE_PROGRAM = "End with the whole program in one block that begins with ```python."
_FUNCTION = (
    "End with the whole solution, its imports among it, in one block that begins with ```python."
)
ANSWER_FORMS = (_BOX, _WHOLE_PROGRAM, _FUNCTION, *CHOICE_FORMS)


def boxed_prompt(problem: str) -> str:
    """Return the prompt for an answer that the math or the free-form grader reads."""
    return f"{problem.strip()}\n\n{_BOX}"


def program_prompt(problem: str) -> str:
    """Return the prompt for a program that is tested by its standard input and output."""
    return f"{problem.strip()}\n\n{_PROGRAM} {_WHOLE_PROGRAM}"


def function_prompt(problem: str, *, starter: str = "") -> str:
    """Return the prompt for a function; ``starter`` is its beginning or its signature."""
    start = f"\n\nComplete this:\n{fenced(starter)}" if starter.strip() else ""
    return f"{problem.strip()}{start}\n\n{_FUNCTION}".lstrip()


def boxed(answer: str) -> str:
    r"""Return a reply that gives an answer as ``boxed_prompt`` asks.

    >>> print(boxed("42"))
    The final answer is \boxed{42}.
    """
    return f"The final answer is \\boxed{{{answer}}}."


def fenced(program: str) -> str:
    """Return a program as a fenced block, with more ticks than the program has anywhere."""
    ticks = "```"
    while ticks in program:
        ticks += "`"
    return f"{ticks}python\n{program.strip(chr(10))}\n{ticks}"
