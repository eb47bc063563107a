"""What baselines tell workers, where a baseline's definition needs more than the question.

In: a question. Out: an instruction. A question of the gym gets one in the gym's own few words, for
its workers understand no others; the same words could be in a Conductor's subtask.
"""

from __future__ import annotations

import re

from openconductor.gym.questions import OPENERS, GymQuestion, read_question
from openconductor.gym.world import COMPARE, read_value
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.types import Question

ALONE = ""
"""An instruction that adds nothing to the question; only for a step that no other one sees."""

STANDS = "My answer stands."
"""How a worker that looks at its own attempt again says that nothing has to be changed."""

REVISE = f"""\
Look at your attempt again with fresh eyes: check each step of it, and look for a mistake or something that you \
overlooked. If you find nothing to correct, reply with these words and no others: {STANDS} Else give your answer to \
the question anew and in full, corrected, in the form that the question demands."""

MERGE = """\
Several workers have answered the last message of the user; their answers are numbered below. Make one answer of them \
that is better than each. Examine what they say: any of them may be wrong or one-sided, and none is right because \
others say the same. Do not repeat one as it is: correct it, complete it, and put it in good order, in the form that \
the question demands.

The answers:"""
"""What Mixture-of-Agents says in the system prompt, above the numbered answers."""


def in_gym(question: Question) -> GymQuestion | None:
    """A question of the gym, read; None of any other."""
    if not isinstance(question, str) or not question.startswith(OPENERS) or "\n" in question:
        return None
    return read_question(question)


def is_answer(question: Question, response: str) -> bool:
    """Whether a response answers at all: a worker of the gym admits failures, in words that are all alike."""
    return in_gym(question) is None or read_value(response) is not None


def solve(question: Question) -> str:
    """To solve the whole question."""
    asked = in_gym(question)
    return SOLVE_SUBTASK if asked is None else asked.text


def revise(question: Question) -> str:
    """To revise an attempt that is seen."""
    return COMPARE[1] if in_gym(question) else REVISE


def stands(question: Question, before: str, said: str) -> bool:
    """Whether a worker that was asked to revise an attempt lets it stand.

    In the gym, where answers are values and nothing else, it does so by giving the same value
    again.
    """
    if in_gym(question):
        return said == before and is_answer(question, said)
    return " ".join(re.findall(r"\w+", said.casefold())).endswith(STANDS.casefold().rstrip("."))


def merge(question: Question) -> str:
    """To make one answer of several that are seen; outside the gym ``MERGE``, in the system prompt, says so."""
    return COMPARE[0] if in_gym(question) else ALONE
