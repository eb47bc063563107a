"""The exact grader: an answer is right when it is the reference, blanks at its ends and between its words aside.

In: a problem whose reference is a text. Out: right or wrong, never undecided.
"""

from __future__ import annotations

from openconductor.errors import GradingError
from openconductor.types import Grade, Problem


class ExactGrader:
    """Compares texts, word by word."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer.

        Raises:
            GradingError: the problem's reference is no text.
        """
        if not isinstance(problem.reference, str):
            raise GradingError(
                f"problem {problem.id}: got a reference of type {type(problem.reference).__name__}, expected a text"
            )
        words = answer.split()
        return Grade(words == problem.reference.split(), extracted=" ".join(words))
