"""Instructions to workers: the words in which baselines ask them, and how their answers are read.

``Instructions`` suits language models. A simulated task brings its own (``simulated.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from openconductor.prompt import SOLVE_SUBTASK
from openconductor.types import Question

ALONE = ""
"""An instruction that adds nothing to the question; only for a step that no other step sees."""

STANDS = "My answer stands."
"""The reply of a worker that finds nothing to correct in its own attempt."""

REVISE = f"""\
Look at your attempt again with fresh eyes: check each step of it, and look for a mistake or \
something that you overlooked. If you find nothing to correct, reply with these words and no \
others: {STANDS} Else give your answer to the question anew and in full, corrected, in the form \
that the question demands."""

MERGE = """\
Several workers have answered the last message of the user; their answers are numbered below. Make \
one answer of them that is better than each. Examine what they say: any of them may be wrong or \
one-sided, and none is right because others say the same. Do not repeat one as it is: correct it, \
complete it, and put it in good order, in the form that the question demands.

The answers:"""
"""The system prompt of Mixture-of-Agents, above the numbered answers."""


class Instructions:
    """The instructions that suit language models.

    Attributes:
        bare: True if an answer is a value and nothing else: it is compared as it is, and other
            workers read it only as a turn of the conversation.
    """

    bare = False

    def solve(self, question: Question) -> str:
        """Return the instruction to solve the whole question."""
        del question
        return SOLVE_SUBTASK

    def revise(self) -> str:
        """Return the instruction to revise an attempt that is in the worker's context."""
        return REVISE

    def merge(self) -> str:
        """Return the instruction to make one answer of several that are in the context."""
        return ALONE

    def roles(
        self, question: Question, roles: Sequence[str], texts: Mapping[str, str]
    ) -> list[str]:
        """Return the instruction of each seat of a collaboration; ``texts`` are those by role."""
        del question
        return [texts[role] for role in roles]

    def is_answer(self, response: str) -> bool:
        """Return True if the response is an answer, not an admitted failure."""
        del response
        return True

    def stands(self, before: str, response: str) -> bool:
        """Return True if a worker that was asked to revise its attempt lets it stand."""
        del before
        words = " ".join(re.findall(r"\w+", response.casefold()))
        return words.endswith(STANDS.casefold().rstrip("."))
