"""What baselines tell workers, where a baseline's definition needs more than the question.

In: a question. Out: an instruction. A question of the gym gets one in the gym's own few words, for its workers
understand no others; the same words could are in a Conductor's subtask.
"""

from __future__ import annotations

from openconductor.gym.questions import OPENERS, GymQuestion, read_question
from openconductor.gym.world import COMPARE, read_value
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.types import Question

ALONE = ""
"""An instruction that adds nothing to the question; only for a step that no other one sees."""

REVISE = """\
Look at your attempt again with fresh eyes: check each step of it, and look for a mistake or something that you \
overlooked. Then give your answer to the question anew and in full, corrected where that is needed, in the form that \
the question demands."""

MERGE = """\
You have several answers to the question, by different workers; some of them may be wrong. Weigh them against each \
other and against the question itself, and trust none only because it is repeated. Then give one answer of your own, \
complete and in the form that the question demands."""


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


def merge(question: Question) -> str:
    """To make one answer of several that are seen."""
    return COMPARE[0] if in_gym(question) else MERGE
